package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/session"
)

// listCommand is one run of "ls".
type listCommand struct {
	app             *app
	long, recursive bool
	failed          error // the first node whose children could not be read
}

func newListCommand(a *app) *cobra.Command {
	l := &listCommand{app: a}
	cmd := &cobra.Command{
		Use:   "ls [PATH]",
		Short: "List children, in the order of their names",
		Long: `List the children of PATH (default /) in ascending order of their names.

Any number of children is listed, page by page; one that is created or deleted
meanwhile may or may not be shown. With -R a subtree that may not be read is named on
standard error, the rest is listed, and the exit code is 6.`,
		Args:              args("at most one PATH", 0, 1),
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := pathArg(args, 0)
			if err != nil {
				return err
			}
			return a.withConn(cmd.Context(), func(ctx context.Context, c *conn) error { return l.run(ctx, c, path) })
		},
	}
	cmd.Flags().BoolVarP(&l.long, "long", "l", false, "with the mode and the Stat of each child")
	cmd.Flags().BoolVarP(&l.recursive, "recursive", "R", false, "all descendants, as whole paths")
	return cmd
}

func (l *listCommand) run(ctx context.Context, c *conn, path string) error {
	if l.long && l.app.output != outputJSON {
		fmt.Fprintf(l.app.out, longFormat, "MODE", "VERSION", "CVERS", "AVERS", "CHILDREN", "BYTES", "OWNER", "MZXID", "MODIFIED", "NAME")
	}
	if l.recursive {
		w := walker{lister: c, denied: l.denied, visit: func(path string, c child, _ int) error { return l.print(path, c) }}
		if err := w.walk(ctx, path); err != nil {
			return err
		}
		return l.failed
	}
	for child, err := range children(ctx, c, path, l.long) {
		if err != nil {
			return err
		}
		if err := l.print(child.name, child); err != nil {
			return err
		}
	}
	return nil
}

// denied names a subtree that may not be read and goes on.
func (l *listCommand) denied(_ string, err error) {
	l.app.note("tenure: %v", err)
	l.failed = fmt.Errorf("the list is not complete: %w", err)
}

const longFormat = "%-14s %11s %6s %6s %9s %8s %-18s %-18s %-24s %s\n"

// print writes one line; name is a name or a whole path.
func (l *listCommand) print(name string, c child) error {
	var err error
	switch {
	case l.app.output == outputJSON:
		line := struct {
			Name string      `json:"name,omitempty"`
			Path string      `json:"path,omitempty"`
			Stat *statFields `json:"stat,omitempty"`
			modeFields
		}{Name: name}
		if l.recursive {
			line.Name, line.Path = "", name
		}
		if l.long {
			f := statFieldsOf(c.stat)
			line.Stat, line.modeFields = &f, modeFieldsOf(c.life)
		}
		err = l.app.printJSON(line)
	case l.long:
		err = l.printLong(name, c)
	default:
		_, err = fmt.Fprintln(l.app.out, l.app.text(name))
	}
	return err
}

func (l *listCommand) printLong(name string, c child) error {
	s := c.stat
	_, err := fmt.Fprintf(l.app.out, "%-14s %11d %6d %6d %9d %8d %-18s %-18s %-24s %s\n",
		modeText(c.life), s.Version, s.Cversion, s.Aversion, s.NumChildren, s.DataLength, ownerText(s.EphemeralOwner),
		formatZxid(s.Mzxid), formatTime(s.Mtime), l.app.text(name))
	return err
}

// ownerText is a session id, or "-" for a node that no session owns.
func ownerText(id session.ID) string {
	if id == 0 {
		return "-"
	}
	return id.String()
}
