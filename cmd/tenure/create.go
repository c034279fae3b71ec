package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/znode"
)

// createCommand is one run of "create".
type createCommand struct {
	app                              *app
	ephemeral, sequential, container bool
	ttl                              time.Duration
	parents                          bool
	acl                              string
	options                          client.CreateOptions
	path                             string
	data                             []byte
	child                            []string // the command behind --
}

func newCreateCommand(a *app) *cobra.Command {
	k := &createCommand{app: a}
	cmd := &cobra.Command{
		Use:   "create PATH [VALUE|@FILE|-] [-- CMD ARG...]",
		Short: "Create a node",
		Long: `Create PATH and print the path that it got. VALUE is taken as it is; @FILE is the
content of FILE, - is standard input, @@text is the text "@text", none is null data.

Without a mode the node is persistent. With --sequential a counter of the parent is
appended to the name; PATH may then end with a slash.

An --ephemeral node lives as long as this command: it stays until the command is
interrupted (exit code 130), until its session ends (5), or until CMD ends, whose exit
code is passed on. CMD gets TENURE_PATH and TENURE_SESSION in its environment; if the
session ends first, CMD is sent SIGTERM and, 5 s later, SIGKILL.

` + aclHelp,
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			own, child := splitAtDash(cmd, args)
			if err := k.prepare(cmd.Context(), own, child); err != nil {
				return err
			}
			return a.withConn(cmd.Context(), k.run)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&k.ephemeral, "ephemeral", "e", false, "goes with the session of this command")
	f.BoolVarP(&k.sequential, "sequential", "s", false, "append the parent's counter to the name")
	f.BoolVarP(&k.container, "container", "c", false, "the server deletes it after its last child")
	f.DurationVar(&k.ttl, "ttl", 0, "the server deletes it when it has no children and its data is not set for this long, as 5m")
	f.BoolVarP(&k.parents, "parents", "p", false, "create missing parents, persistent and open")
	f.StringVar(&k.acl, "acl", "", "access list, default world:anyone:cdrwa")
	return cmd
}

// splitAtDash separates the arguments before "--" from the command behind it.
func splitAtDash(cmd *cobra.Command, args []string) (own, child []string) {
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		return args[:dash], args[dash:]
	}
	return args, nil
}

// prepare judges the arguments, before anything is sent.
func (k *createCommand) prepare(ctx context.Context, own, child []string) error {
	if len(own) < 1 || len(own) > 2 {
		return usagef("create: want PATH [VALUE], got %d argument(s); see 'tenure create --help'", len(own))
	}
	if child != nil && (!k.ephemeral || len(child) == 0) {
		return usagef("create: a command behind -- needs --ephemeral and at least a name")
	}
	k.child = child
	if err := k.mode(); err != nil {
		return err
	}
	var err error
	if k.path, err = k.createPath(own[0]); err != nil {
		return err
	}
	if k.acl != "" {
		if k.options.ACL, err = parseACL(k.acl); err != nil {
			return err
		}
	}
	if len(own) == 2 {
		k.data, err = k.app.value(ctx, own[1])
	}
	return err
}

// mode turns the flags into the mode of the node.
func (k *createCommand) mode() error {
	k.options.Mode.Sequential = k.sequential
	kinds := 0
	if k.ephemeral {
		k.options.Mode.Kind = znode.Ephemeral
		kinds++
	}
	if k.container {
		k.options.Mode.Kind = znode.Container
		kinds++
	}
	if k.ttl != 0 {
		k.options.Mode.Kind, k.options.TTL = znode.TTL, k.ttl
		kinds++
	}
	switch {
	case kinds > 1:
		return usagef("create: --ephemeral, --container and --ttl: a node has one of them at most")
	case k.container && k.sequential:
		return usagef("create: --container with --sequential: there is no such mode")
	case k.ttl != 0 && k.ttl < time.Millisecond:
		return usagef("create: --ttl %v: must be 1ms or more", k.ttl)
	}
	return nil
}

// createPath checks the path; a sequential one is valid if it is with its counter.
func (k *createCommand) createPath(path string) (string, error) {
	if !k.sequential {
		return parsePath(path)
	}
	if err := znode.ValidatePath(path + "0"); err != nil {
		return "", &usageError{err.Error()}
	}
	return path, nil
}

func (k *createCommand) run(ctx context.Context, c *conn) error {
	if k.parents {
		// With a counter the name may be empty, and all before the slash is the parent.
		parent := k.path[:max(strings.LastIndexByte(k.path, '/'), 0)]
		if err := createParents(ctx, c, parent); err != nil {
			return err
		}
	}
	path, stat, err := c.CreateNode(ctx, k.path, k.data, k.options, k.app.output == outputJSON)
	if err != nil {
		return err
	}
	if k.app.output == outputJSON {
		err = k.app.printJSON(pathStat{path, statFieldsOf(stat)})
	} else {
		_, err = fmt.Fprintln(k.app.out, k.app.text(path))
	}
	if err != nil || !k.ephemeral {
		return err
	}
	return k.app.hold(ctx, c, path, k.child)
}

// createParents creates path and what is missing above it; "" and "/" need nothing.
// It tries from below, as most often everything exists.
func createParents(ctx context.Context, c *conn, path string) error {
	if path == "" || path == "/" {
		return nil
	}
	_, _, err := c.CreateNode(ctx, path, nil, client.CreateOptions{}, false)
	if errors.Is(err, znode.NoNode) {
		above, _ := znode.Split(path)
		if err = createParents(ctx, c, above); err == nil {
			_, _, err = c.CreateNode(ctx, path, nil, client.CreateOptions{}, false)
		}
	}
	if errors.Is(err, znode.NodeExists) {
		return nil
	}
	return err
}
