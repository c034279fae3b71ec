package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// watchCommand is one run of "watch".
type watchCommand struct {
	app     *app
	options client.WatchOptions
	from    string
	command string
	count   int
}

func newWatchCommand(a *app) *cobra.Command {
	w := &watchCommand{app: a}
	cmd := &cobra.Command{
		Use:   "watch PATH",
		Short: "Print what happens to a node",
		Long: `Print the events of PATH, which need not exist yet, one per line: type, path, zxid.
Types are created, deleted, dataChanged and childrenChanged; with -r created, deleted
and dataChanged of PATH and everything below it. A line "gap" says that events are
missing, because the server's history did not reach back far enough: read again.

--from ZXID first prints the events after ZXID, so that
  tenure get -o json /a      (take "mzxid" from its "stat")
  tenure watch /a --from ZXID
misses nothing. --exec runs CMD by the shell for each event, one at a time, with
TENURE_EVENT_TYPE, TENURE_EVENT_PATH and TENURE_EVENT_ZXID in its environment; if it
fails the watch ends and the error names the zxid to continue from.

It ends after --count events or after --timeout: with exit code 1 if fewer than --count
events came, else 0.`,
		Args:              args("PATH", 1, 1),
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := parsePath(args[0])
			if err != nil {
				return err
			}
			if w.from != "" {
				if w.options.FromZxid, err = parseZxid(w.from); err != nil || w.options.FromZxid < 0 {
					return usagef("watch: --from %q: want a zxid such as 0x100000007", w.from)
				}
			}
			if w.count < 0 {
				return usagef("watch: --count %d: must not be negative", w.count)
			}
			return a.withConn(cmd.Context(), func(ctx context.Context, c *conn) error {
				return w.run(cmd.Context(), ctx, c, path)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&w.options.Recursive, "recursive", "r", false, "PATH and everything below it")
	f.StringVar(&w.from, "from", "", "first print the events after this `ZXID`")
	f.StringVar(&w.command, "exec", "", "shell command `CMD` to run for each event")
	f.IntVar(&w.count, "count", 0, "end after so many events, 0 = never")
	return cmd
}

// run prints events until ctx ends, which an interrupt and --timeout do; only the
// former also ends interrupt.
func (w *watchCommand) run(interrupt, ctx context.Context, c *conn, path string) error {
	seen := 0
	for event, err := range c.Watch(ctx, path, w.options) {
		if err != nil {
			if ctx.Err() != nil {
				break
			}
			return err
		}
		if err := w.handle(ctx, event); err != nil {
			return err
		}
		if seen++; seen == w.count {
			return nil
		}
	}
	if err := interrupt.Err(); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return &codeError{exitUnreachable, &requestError{c.where, fmt.Errorf("the watch of %s ended", path)}}
	}
	if seen < w.count {
		return fmt.Errorf("watch %s: %d of %d events within %v", path, seen, w.count, w.app.timeout)
	}
	return nil
}

// handle prints one event at once and runs the command for it.
func (w *watchCommand) handle(ctx context.Context, e wire.Event) error {
	var err error
	if w.app.output == outputJSON {
		err = w.app.printJSON(struct {
			Type string `json:"type"`
			Path string `json:"path"`
			Zxid string `json:"zxid"`
		}{eventName(e.Type), e.Path, formatZxid(e.Zxid)})
	} else {
		_, err = fmt.Fprintf(w.app.out, "%-15s %s %s\n", eventName(e.Type), w.app.text(e.Path), formatZxid(e.Zxid))
	}
	if err == nil {
		err = w.app.out.Flush()
	}
	if err != nil || w.command == "" {
		return err
	}
	cmd := w.app.command(ctx, "/bin/sh", "-c", w.command)
	cmd.Env = append(cmd.Env, "TENURE_EVENT_TYPE="+eventName(e.Type),
		"TENURE_EVENT_PATH="+e.Path, "TENURE_EVENT_ZXID="+formatZxid(e.Zxid))
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("watch: --exec for %s %s: %w; continue with --from %s",
			eventName(e.Type), e.Path, err, formatZxid(e.Zxid))
	}
	return nil
}

// eventName is the name of an event type in every output.
func eventName(t znode.EventType) string {
	switch t {
	case znode.EventCreated:
		return "created"
	case znode.EventDeleted:
		return "deleted"
	case znode.EventDataChanged:
		return "dataChanged"
	case znode.EventChildrenChanged:
		return "childrenChanged"
	case wire.EventGap:
		return "gap"
	}
	return "type" + strconv.Itoa(int(t))
}
