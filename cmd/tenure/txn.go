package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

func newTxnCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "txn [FILE|-] [-- CMD ARG...]",
		Short: "Apply several changes, all or none",
		Long: `Read operations from FILE, or standard input, one per line, and apply all or none:

  check PATH VERSION
  create [-e] [-s] PATH [DATA]     -e ephemeral, -s sequential
  set PATH DATA [VERSION]
  delete PATH [VERSION]

Words are separated by blanks. A word in "double quotes" may hold blanks and the
escapes of a Go string (\n \t \" \\ \x00 \u00e9); in 'single quotes' nothing is an
escape. Empty data is "", no DATA is null. Lines that are empty or begin with # are
skipped. VERSION -1 is any.

A line may also be a JSON object:
  {"op":"create","path":"/a","data":"text","mode":"ephemeral","sequential":true,
   "ttl":"5m","acl":[{"perms":31,"scheme":"world","id":"anyone"}]}
  {"op":"set","path":"/a","base64":"AAE=","version":3}
"mode" is persistent, ephemeral, container or ttl.

If it fails, nothing was changed; the error names the line that failed and why. When
an operation made an ephemeral node the session is kept as by 'create --ephemeral'.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			own, child := splitAtDash(cmd, args)
			if len(own) > 1 {
				return usagef("txn: want at most one FILE, got %d; see 'tenure txn --help'", len(own))
			}
			name := "-"
			if len(own) == 1 {
				name = own[0]
			}
			return a.txn(cmd.Context(), name, child)
		},
	}
	return cmd
}

// txn reads the operations in the file name and applies them.
func (a *app) txn(ctx context.Context, name string, child []string) error {
	input, err := a.openInput(ctx, name)
	if err != nil {
		return err
	}
	defer input.Close()
	lines, err := parseTxn(input)
	if err != nil {
		return err
	}
	if len(lines) == 0 {
		return usagef("txn: there is no operation in the input")
	}
	ephemeral := false
	ops := make([]znode.Op, len(lines))
	for i, line := range lines {
		ops[i] = line.op
		if create, ok := line.op.(*znode.Create); ok {
			ephemeral = ephemeral || create.Mode.Kind == znode.Ephemeral
			create.WantStat = a.output == outputJSON // nothing else shows it
		}
	}
	if child != nil && (!ephemeral || len(child) == 0) {
		return usagef("txn: a command behind -- needs an ephemeral create and at least a name")
	}
	return a.withConn(ctx, func(ctx context.Context, c *conn) error {
		results, err := c.Multi(ctx, ops...)
		if err != nil {
			return explainTxn(c.where, lines, results, err)
		}
		if err := a.printResults(lines, results); err != nil || !ephemeral {
			return err
		}
		return a.hold(ctx, c, firstEphemeral(lines, results), child)
	})
}

// firstEphemeral returns the path of the first ephemeral node that was made.
func firstEphemeral(lines []txnLine, results []znode.Result) string {
	for i, line := range lines {
		if create, ok := line.op.(*znode.Create); ok && create.Mode.Kind == znode.Ephemeral && i < len(results) {
			return results[i].Path
		}
	}
	return ""
}

// explainTxn says which line failed the transaction.
func explainTxn(where string, lines []txnLine, results []znode.Result, err error) error {
	i := failedOp(results)
	if i < 0 || i >= len(lines) {
		return fmt.Errorf("txn: %w", err)
	}
	op, path := describeOp(lines[i].op)
	return &codeError{
		exitCodeOf(results[i].Err),
		fmt.Errorf("txn on %s: line %d, %s %s: %s; nothing was changed", where, lines[i].number, op, path, reasonOf(op, results[i].Err)),
	}
}

// describeOp returns what an operation of a transaction does and to which path.
func describeOp(op znode.Op) (name, path string) {
	switch op := op.(type) {
	case *znode.Create:
		return "create", op.Path
	case *znode.SetData:
		return "set", op.Path
	case *znode.Delete:
		return "delete", op.Path
	case *znode.Check:
		return "check", op.Path
	}
	return wire.OpOf(op).String(), ""
}

// printResults prints one line per operation; a create shows the path that it got.
func (a *app) printResults(lines []txnLine, results []znode.Result) error {
	for i, line := range lines {
		if i >= len(results) {
			break
		}
		name, path := describeOp(line.op)
		if name == "create" && results[i].Path != "" {
			path = results[i].Path
		}
		if err := a.printResult(name, path, results[i]); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printResult(name, path string, r znode.Result) error {
	hasStat := r.Kind == znode.ResultSetData || r.Kind == znode.ResultCreateStat
	if a.output == outputJSON {
		line := struct {
			Op   string      `json:"op"`
			Path string      `json:"path"`
			Stat *statFields `json:"stat,omitempty"`
		}{Op: name, Path: path}
		if hasStat {
			f := statFieldsOf(r.Stat)
			line.Stat = &f
		}
		return a.printJSON(line)
	}
	_, err := fmt.Fprintf(a.out, "%-6s %s", name, a.text(path))
	if err == nil && r.Kind == znode.ResultSetData {
		_, err = fmt.Fprintf(a.out, " version %d", r.Stat.Version)
	}
	if err == nil {
		_, err = fmt.Fprintln(a.out)
	}
	return err
}
