package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/znode"
)

func newSetCommand(a *app) *cobra.Command {
	var version int32
	var null bool
	cmd := &cobra.Command{
		Use:   "set PATH VALUE|@FILE|-",
		Short: "Replace the data of a node",
		Long: `Replace the data of PATH. VALUE is taken as it is; @FILE is the content of FILE, - is
standard input, and @@text is the text "@text". --null, without a VALUE, sets null data.

With --version it is replaced only if the node has that version; if it has another
the exit code is 3. The new version is printed.`,
		Args:              args("PATH VALUE", 1, 2),
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			if null == (len(args) == 2) {
				return usagef("set: want PATH VALUE, or PATH --null; see 'tenure set --help'")
			}
			path, err := parsePath(args[0])
			if err != nil {
				return err
			}
			var data []byte
			if !null {
				if data, err = a.value(cmd.Context(), args[1]); err != nil {
					return err
				}
			}
			return a.withConn(cmd.Context(), func(ctx context.Context, c *conn) error {
				stat, err := c.Set(ctx, path, data, version)
				if err != nil {
					return err
				}
				return a.printChanged(path, "version", stat.Version, stat)
			})
		},
	}
	cmd.Flags().Int32Var(&version, "version", -1, "replace only this version, -1 = any")
	cmd.Flags().BoolVar(&null, "null", false, "set null data")
	return cmd
}

// printChanged prints the outcome of a change: its counter, or the whole Stat as JSON.
func (a *app) printChanged(path, counter string, n int32, s znode.Stat) error {
	if a.output == outputJSON {
		return a.printJSON(pathStat{path, statFieldsOf(s)})
	}
	_, err := fmt.Fprintf(a.out, "%s %d\n", counter, n)
	return err
}
