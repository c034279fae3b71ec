package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/znode"
)

func newStatCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "stat PATH",
		Short:             "Print the Stat and the mode of a node",
		Args:              args("PATH", 1, 1),
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := parsePath(args[0])
			if err != nil {
				return err
			}
			return a.withConn(cmd.Context(), func(ctx context.Context, c *conn) error {
				stat, life, err := c.Stat(ctx, path)
				if err != nil {
					return err
				}
				return a.printStat(path, stat, life)
			})
		},
	}
}

// pathStat is what verbs that end in a Stat print as JSON.
type pathStat struct {
	Path string     `json:"path"`
	Stat statFields `json:"stat"`
}

// printStat prints the Stat and the mode of path.
func (a *app) printStat(path string, s znode.Stat, l znode.Lifetime) error {
	if a.output == outputJSON {
		return a.printJSON(struct {
			pathStat
			modeFields
		}{pathStat{path, statFieldsOf(s)}, modeFieldsOf(l)})
	}
	if err := writeStat(a.out, s); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.out, "mode            %s\n", modeText(l))
	return err
}
