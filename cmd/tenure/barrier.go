package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/recipes"
)

func newBarrierCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "barrier raise|lower|wait NAME",
		Short: "Raise a barrier, lower it, or wait until it is lowered",
		Long: `Raise or lower the barrier NAME, a path or a name in ` + barriersDir + `, or wait while it is
raised: no longer than --timeout D, which exits with 3.

  tenure barrier raise deploy
  tenure barrier wait deploy && ./start
  tenure barrier lower deploy`,
		Args:      args("raise, lower or wait, and NAME", 2, 2),
		ValidArgs: []cobra.Completion{"raise", "lower", "wait"},
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := recipePath(barriersDir, args[1])
			if err != nil {
				return err
			}
			switch args[0] {
			case "raise", "lower":
				return a.askStore(cmd.Context(), func(ctx context.Context, s recipes.Store) error {
					b, err := recipes.NewBarrier(s, path)
					if err != nil {
						return invalid(err)
					}
					if args[0] == "raise" {
						return b.Raise(ctx)
					}
					return b.Lower(ctx)
				})
			case "wait":
				return a.withStore(cmd.Context(), func(ctx context.Context, s recipes.Store) error {
					return a.waitBarrier(ctx, s, path)
				})
			}
			return usagef("barrier %q: want raise, lower or wait", args[0])
		},
	}
}

// waitBarrier waits until the barrier is lowered.
func (a *app) waitBarrier(ctx context.Context, s recipes.Store, path string) error {
	b, err := recipes.NewBarrier(s, path)
	if err != nil {
		return invalid(err)
	}
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if a.timeout > 0 {
		bounded, cancel = context.WithTimeout(ctx, a.timeout)
	}
	defer cancel()
	err = b.Wait(bounded)
	if err != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded) {
		return &codeError{exitConflict, fmt.Errorf("%s: still raised after %v", path, a.timeout)}
	}
	return err
}
