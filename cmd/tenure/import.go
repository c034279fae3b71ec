package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// importCommand is one run of "import".
type importCommand struct {
	app               *app
	dryRun, overwrite bool
}

func newImportCommand(a *app) *cobra.Command {
	m := &importCommand{app: a}
	cmd := &cobra.Command{
		Use:   "import PATH [FILE|-]",
		Short: "Create a subtree from JSON",
		Long: `Create the nodes that 'tenure export' wrote to FILE, or to standard input, at PATH and
below it. The parent of PATH must exist.

A node that exists already with the same data is left as it is. One with other data is
a conflict: it is left as it is, too, and named, and the exit code is 3 after all others
were created; with --overwrite its data and access list are replaced. --dry-run changes
nothing and prints what would be done.

An import is not atomic: if it fails, what was done is printed, and doing it again
continues it.`,
		Args:              args("PATH [FILE]", 1, 2),
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := parsePath(args[0])
			if err != nil {
				return err
			}
			name := "-"
			if len(args) == 2 {
				name = args[1]
			}
			return m.run(cmd.Context(), path, name)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&m.dryRun, "dry-run", "n", false, "change nothing, print what would be done")
	f.BoolVar(&m.overwrite, "overwrite", false, "replace data and access list of nodes that exist")
	return cmd
}

func (m *importCommand) run(ctx context.Context, root, name string) error {
	input, err := m.app.openInput(ctx, name)
	if err != nil {
		return err
	}
	defer input.Close()
	records, err := newRecordReader(input)
	if err != nil {
		return err
	}
	return m.app.withConn(ctx, func(ctx context.Context, c *conn) error {
		i := importer{tree: c, root: root, overwrite: m.overwrite, dryRun: m.dryRun, conflict: func(path string) {
			m.app.note("conflict: %s exists with other data", path)
		}}
		err := importAll(ctx, &i, records)
		if printErr := m.print(&i); err == nil {
			err = printErr
		}
		if err != nil {
			return fmt.Errorf("import %s: not complete: %w", root, err)
		}
		if i.conflicts > 0 {
			return &codeError{exitConflict, fmt.Errorf("import %s: %d nodes exist with other data; --overwrite replaces it", root, i.conflicts)}
		}
		return nil
	})
}

// importAll imports all records.
func importAll(ctx context.Context, i *importer, records *recordReader) error {
	for {
		r, err := records.next()
		if err == io.EOF {
			return i.flush(ctx)
		}
		if err == nil {
			err = i.add(ctx, r)
			if err != nil && errors.As(err, new(*usageError)) {
				err = usagef("record %d: %v", records.count, err)
			}
		}
		if err != nil {
			// What came before a wrong record is valid, and is counted as done.
			return errors.Join(err, i.flush(ctx))
		}
	}
}

// print says what was done.
func (m *importCommand) print(i *importer) error {
	if m.app.output == outputJSON {
		return m.app.printJSON(struct {
			Created   int  `json:"created"`
			Replaced  int  `json:"replaced"`
			Same      int  `json:"same"`
			Conflicts int  `json:"conflicts"`
			DryRun    bool `json:"dryRun"`
		}{i.created, i.replaced, i.same, i.conflicts, i.dryRun})
	}
	would := ""
	if i.dryRun {
		would = "would have "
	}
	_, err := fmt.Fprintf(m.app.out, "%screated %d, replaced %d; the same already %d, conflicts %d\n",
		would, i.created, i.replaced, i.same, i.conflicts)
	return err
}
