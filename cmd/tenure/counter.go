package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/recipes"
)

func newCounterCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "counter NAME [DELTA]",
		Short: "Read a counter, or add to it",
		Long: `Print the counter NAME, a path or a name in ` + countersDir + `. With DELTA add it first,
exactly once. A negative one comes behind --.

  tenure counter builds 1
  tenure counter builds -- -1`,
		Args:              args("NAME [DELTA]", 1, 2),
		ValidArgsFunction: a.completeRecipe(countersDir),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := recipePath(countersDir, args[0])
			if err != nil {
				return err
			}
			var delta int64
			if len(args) == 2 {
				if delta, err = strconv.ParseInt(args[1], 10, 64); err != nil {
					return usagef("counter: DELTA %q: want a whole number of 64 bits", args[1])
				}
			}
			return a.askStore(cmd.Context(), func(ctx context.Context, s recipes.Store) error {
				c, err := recipes.NewCounter(s, path)
				if err != nil {
					return invalid(err)
				}
				var n int64
				if len(args) == 2 {
					n, err = c.Add(ctx, delta)
				} else {
					n, err = c.Get(ctx)
				}
				if err == nil {
					_, err = fmt.Fprintln(a.out, n)
				}
				return err
			})
		},
	}
}
