package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

// removeCommand is one run of "rm".
type removeCommand struct {
	app                    *app
	recursive, dryRun, yes bool
	version                int32
}

func newRemoveCommand(a *app) *cobra.Command {
	r := &removeCommand{app: a}
	cmd := &cobra.Command{
		Use:   "rm PATH",
		Short: "Delete a node, or with -r a subtree",
		Long: `Delete PATH; with -r also all that is below it, however much that is.

A recursive delete works from the leaves up in transactions of up to 500 nodes, so it
is not atomic: if it fails, the error says exactly how many nodes were deleted. On a terminal it asks first, unless --yes; --dry-run only counts.
/ and /zookeeper are refused.`,
		Args:              args("PATH", 1, 1),
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := parsePath(args[0])
			if err != nil {
				return err
			}
			if path == "/" || path == "/zookeeper" {
				return usagef("rm %s: refused; the server needs it", path)
			}
			if r.recursive && r.version != -1 {
				return usagef("rm: --version is for one node, not with --recursive")
			}
			return a.withConn(cmd.Context(), func(ctx context.Context, c *conn) error { return r.run(ctx, c, path) })
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&r.recursive, "recursive", "r", false, "all that is below PATH, too")
	f.BoolVarP(&r.dryRun, "dry-run", "n", false, "print how many nodes would be deleted, and delete none")
	f.BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	f.Int32Var(&r.version, "version", -1, "delete only this version, -1 = any")
	return cmd
}

func (r *removeCommand) run(ctx context.Context, c *conn, path string) error {
	if !r.recursive && !r.dryRun {
		return c.Delete(ctx, path, r.version)
	}
	below := 0
	if r.recursive {
		var err error
		if below, err = c.CountDescendants(ctx, path); err != nil {
			return err
		}
	} else if _, _, err := c.Stat(ctx, path); err != nil {
		return err
	}
	if r.dryRun {
		return r.print(path, below+1, "would delete")
	}
	agreed, err := r.app.confirm(ctx, r.yes, "delete %s and %d nodes below it?", path, below)
	if err != nil {
		return err
	}
	if !agreed {
		return fmt.Errorf("rm %s: not confirmed, nothing was deleted", path)
	}
	d := deleter{tree: c}
	if err := d.deleteTree(ctx, path); err != nil {
		return d.explain(path, err)
	}
	return r.print(path, d.deleted, "deleted")
}

// print says how many nodes were, or would be, deleted.
func (r *removeCommand) print(path string, n int, verb string) error {
	if r.app.output == outputJSON {
		return r.app.printJSON(struct {
			Path   string `json:"path"`
			Nodes  int    `json:"nodes"`
			DryRun bool   `json:"dryRun"`
		}{path, n, r.dryRun})
	}
	_, err := fmt.Fprintf(r.app.out, "%s %d nodes\n", verb, n)
	return err
}
