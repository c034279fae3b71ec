package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/znode"
)

// treeCommand is one run of "tree".
type treeCommand struct {
	app    *app
	depth  int
	indent []string // what stands before a node of each depth
	count  int
	failed error
}

func newTreeCommand(a *app) *cobra.Command {
	t := &treeCommand{app: a}
	cmd := &cobra.Command{
		Use:   "tree [PATH]",
		Short: "Draw a subtree",
		Long: `Draw the subtree at PATH (default /). Ephemeral nodes are marked with *, container
and TTL nodes with their mode. A subtree that may not be read is named on standard
error, the rest is drawn, and the exit code is 6.`,
		Args:              args("at most one PATH", 0, 1),
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := pathArg(args, 0)
			if err != nil {
				return err
			}
			if t.depth < 0 {
				return usagef("tree: --depth %d: must not be negative", t.depth)
			}
			return a.withConn(cmd.Context(), func(ctx context.Context, c *conn) error { return t.run(ctx, c, path) })
		},
	}
	cmd.Flags().IntVarP(&t.depth, "depth", "L", 0, "how many levels below PATH, 0 = all")
	return cmd
}

func (t *treeCommand) run(ctx context.Context, l lister, path string) error {
	w := walker{lister: l, depth: t.depth, visit: t.print, denied: t.denied}
	if t.app.output != outputJSON {
		fmt.Fprintln(t.app.out, t.app.text(path))
	}
	if err := w.walk(ctx, path); err != nil {
		return err
	}
	if t.app.output != outputJSON {
		fmt.Fprintf(t.app.out, "\n%d nodes below\n", t.count)
	}
	return t.failed
}

func (t *treeCommand) denied(_ string, err error) {
	t.app.note("tenure: %v", err)
	t.failed = fmt.Errorf("the tree is not complete: %w", err)
}

// print draws one node; the nodes come each before its children.
func (t *treeCommand) print(path string, c child, depth int) error {
	t.count++
	if t.app.output == outputJSON {
		return t.app.printJSON(struct {
			Path  string     `json:"path"`
			Depth int        `json:"depth"`
			Stat  statFields `json:"stat"`
			modeFields
		}{path, depth, statFieldsOf(c.stat), modeFieldsOf(c.life)})
	}
	t.indent = t.indent[:depth-1]
	for _, piece := range t.indent {
		if _, err := t.app.out.WriteString(piece); err != nil {
			return err
		}
	}
	branch, below := "├── ", "│   "
	if c.last {
		branch, below = "└── ", "    "
	}
	t.indent = append(t.indent, below)
	_, err := fmt.Fprintf(t.app.out, "%s%s%s\n", branch, t.app.text(c.name), treeMark(c.life))
	return err
}

// treeMark is what stands behind the name of a node that is not persistent.
func treeMark(l znode.Lifetime) string {
	switch l.Kind {
	case znode.Persistent:
		return ""
	case znode.Ephemeral:
		return " *"
	}
	return " (" + modeText(l) + ")"
}
