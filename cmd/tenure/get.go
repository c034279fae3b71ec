package main

import (
	"context"

	"github.com/spf13/cobra"
)

func newGetCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "get PATH",
		Short: "Print the data of a node",
		Long: `Print the data of PATH.

-o raw writes exactly the bytes of the node and nothing else. The default, table, is
for people: text with control characters escaped and a line break at its end, and a
hex dump if it is not text. -o json has "data" for text and "base64" for anything
else; null data has neither, empty data is "".`,
		Args:              args("PATH", 1, 1),
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := parsePath(args[0])
			if err != nil {
				return err
			}
			return a.withConn(cmd.Context(), func(ctx context.Context, c *conn) error { return a.get(ctx, c, path) })
		},
	}
}

func (a *app) get(ctx context.Context, c *conn, path string) error {
	data, stat, err := c.Get(ctx, path)
	if err != nil {
		return err
	}
	switch a.output {
	case outputRaw:
		_, err = a.out.Write(data)
		return err
	case outputJSON:
		return a.printJSON(struct {
			Path string `json:"path"`
			dataFields
			Stat statFields `json:"stat"`
		}{path, dataFieldsOf(data), statFieldsOf(stat)})
	}
	return writeData(a.out, data)
}
