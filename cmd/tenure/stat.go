package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/znode"
)

func newStatCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "stat PATH",
		Short:             "Print the Stat of a node",
		Args:              args("PATH", 1, 1),
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := parsePath(args[0])
			if err != nil {
				return err
			}
			return a.withConn(cmd.Context(), func(ctx context.Context, c *conn) error {
				stat, err := c.Stat(ctx, path)
				if err != nil {
					return err
				}
				return a.printStat(path, stat)
			})
		},
	}
}

// pathStat is what verbs that end in a Stat print as JSON.
type pathStat struct {
	Path string     `json:"path"`
	Stat statFields `json:"stat"`
}

// printStat prints the Stat of path.
func (a *app) printStat(path string, s znode.Stat) error {
	if a.output == outputJSON {
		return a.printJSON(pathStat{path, statFieldsOf(s)})
	}
	return writeStat(a.out, s)
}
