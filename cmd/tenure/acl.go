package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/znode"
)

const aclHelp = `An access list is one or more SCHEME:ID:PERMS, separated by commas:
  world:anyone:r             everybody
  ip:10.0.0.0/8:rw           an address or a net
  digest:user:HASH:cdrwa     a user, as 'getacl' prints it
  auth::cdrwa                whoever this command presents itself as (--auth)
PERMS are letters: c create children, d delete children, r read, w write, a admin.`

func newGetACLCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "getacl PATH",
		Short:             "Print the access list of a node",
		Long:              "Print the access list of PATH, one entry per line, as setacl takes it.\n\n" + aclHelp,
		Args:              args("PATH", 1, 1),
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := parsePath(args[0])
			if err != nil {
				return err
			}
			return a.withConn(cmd.Context(), func(ctx context.Context, c *conn) error { return a.getACL(ctx, c, path) })
		},
	}
}

func (a *app) getACL(ctx context.Context, c *conn, path string) error {
	acl, stat, err := c.GetACL(ctx, path)
	if err != nil {
		return err
	}
	if a.output == outputJSON {
		return a.printJSON(struct {
			Path string      `json:"path"`
			ACL  []znode.ACL `json:"acl"`
			Stat statFields  `json:"stat"`
		}{path, acl, statFieldsOf(stat)})
	}
	for _, entry := range acl {
		if _, err := fmt.Fprintln(a.out, a.text(entry.String())); err != nil {
			return err
		}
	}
	return nil
}

func newSetACLCommand(a *app) *cobra.Command {
	var version int32
	cmd := &cobra.Command{
		Use:   "setacl PATH ACL",
		Short: "Replace the access list of a node",
		Long: "Replace the access list of PATH; nodes below it keep theirs. With --version it is\n" +
			"replaced only if it has that version (aversion).\n\n" + aclHelp,
		Args:              args("PATH ACL", 2, 2),
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := parsePath(args[0])
			if err != nil {
				return err
			}
			acl, err := parseACL(args[1])
			if err != nil {
				return err
			}
			return a.withConn(cmd.Context(), func(ctx context.Context, c *conn) error {
				stat, err := c.SetACL(ctx, path, acl, version)
				if err != nil {
					return err
				}
				return a.printChanged(path, "aversion", stat.Aversion, stat)
			})
		},
	}
	cmd.Flags().Int32Var(&version, "version", -1, "replace only this aversion, -1 = any")
	return cmd
}

// parseACL reads an access list as aclHelp describes it.
func parseACL(s string) ([]znode.ACL, error) {
	acl, err := znode.ParseACL(s)
	if err != nil {
		return nil, &usageError{err.Error()}
	}
	return acl, nil
}
