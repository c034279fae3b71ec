package main

import (
	"context"

	"github.com/spf13/cobra"
)

func newSyncCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "sync [PATH]",
		Short: "Wait until the member has all that was committed",
		Long: `Wait until the member that serves this command has applied everything that was
committed before. It succeeds only while there is a quorum, so it is also the shortest
test of one.`,
		Args:              args("at most one PATH", 0, 1),
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := pathArg(args, 0)
			if err != nil {
				return err
			}
			return a.withConn(cmd.Context(), func(ctx context.Context, c *conn) error {
				if err := c.Sync(ctx, path); err != nil {
					return err
				}
				if a.output == outputJSON {
					return a.printJSON(struct {
						Path string `json:"path"`
					}{path})
				}
				return nil
			})
		},
	}
}
