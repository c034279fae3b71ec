package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/recipes"
)

func newFloorCommand(a *app) *cobra.Command {
	var lease bool
	cmd := &cobra.Command{
		Use:   "floor NAME TOKEN",
		Short: "Make later fencing tokens higher than one",
		Long: `Make every later fencing token of NAME higher than TOKEN: after a rebuilt server, whose
counters began anew, so that resources refuse the tokens that are made of them. NAME is the
path of an election or a lock, or the name of an election; with --lease that of a lease. A
floor that is below the present token changes nothing.

  tenure floor scheduler 8589934592
  tenure floor /tenure/locks/backup 8589934592`,
		Args:              args("NAME TOKEN", 2, 2),
		ValidArgsFunction: a.completeRecipe(electionsDir),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := electionsDir
			if lease {
				dir = leasesDir
			}
			path, err := recipePath(dir, args[0])
			if err != nil {
				return err
			}
			token, err := strconv.ParseUint(args[1], 10, 64)
			if err != nil {
				return usagef("floor: TOKEN %q: want a number of 0 to %d", args[1], uint64(1<<64-1))
			}
			return a.askStore(cmd.Context(), func(ctx context.Context, s recipes.Store) error {
				if !lease {
					return recipes.SetFloor(ctx, s, path, recipes.Token(token))
				}
				l, err := recipes.NewLease(s, path, recipes.LeaseOptions{})
				if err != nil {
					return invalid(err)
				}
				return l.SetFloor(ctx, recipes.Token(token))
			})
		},
	}
	cmd.Flags().BoolVar(&lease, "lease", false, "NAME is a lease")
	return cmd
}
