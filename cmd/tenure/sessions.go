package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
)

func newSessionsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List open sessions, or end one",
		Long: `List the open sessions in the order in which they were opened. ADDRESS is empty for one
that is not connected to the member asked; IDLE is the time since it was last heard of.
The session of this command is among them. Servers may ask for the admin token
(--token-file).`,
		Args: args("no argument", 0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withTenure(cmd.Context(), "sessions", a.sessions)
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "kill ID",
		Short: "End a session and delete its ephemeral nodes",
		Args:  args("ID", 1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseZxid(args[0])
			if err != nil || id <= 0 {
				return usagef("sessions kill %q: want a session id such as 0x100000007", args[0])
			}
			return a.withTenure(cmd.Context(), "sessions kill", func(ctx context.Context, c *conn) error {
				return killSession(ctx, c, session.ID(id))
			})
		},
	})
	return cmd
}

// killSession ends an open session. The server's answer to a wrong id could be taken for
// the end of the session that asks, so the id is looked up first.
func killSession(ctx context.Context, c *conn, id session.ID) error {
	page, err := c.Sessions(ctx, id-1, 1)
	if err != nil {
		return err
	}
	if len(page.Sessions) == 0 || page.Sessions[0].ID != id {
		return &codeError{exitNotFound, fmt.Errorf("sessions kill %v on %s: no such session is open", id, c.where)}
	}
	return c.KillSession(ctx, id)
}

// sessions prints all sessions, page by page.
func (a *app) sessions(ctx context.Context, c *conn) error {
	if a.output != outputJSON {
		fmt.Fprintf(a.out, "%-20s %8s %10s %8s %10s %s\n", "ID", "TIMEOUT", "IDLE", "WATCHES", "EPHEMERALS", "ADDRESS")
	}
	after := session.ID(0)
	for {
		page, err := c.Sessions(ctx, after, pageSize)
		if err != nil {
			return err
		}
		for _, s := range page.Sessions {
			if err := a.printSession(s); err != nil {
				return err
			}
			after = s.ID
		}
		if !page.More || len(page.Sessions) == 0 {
			return nil
		}
	}
}

func (a *app) printSession(s wire.SessionInfo) error {
	if a.output == outputJSON {
		return a.printJSON(struct {
			ID         string `json:"id"`
			TimeoutMs  int32  `json:"timeoutMs"`
			Remote     string `json:"remote,omitempty"`
			IdleMs     int64  `json:"idleMs"` // -1 = unknown
			Watches    int32  `json:"watches"`
			Ephemerals int32  `json:"ephemerals"`
		}{s.ID.String(), s.TimeoutMs, s.Remote, s.IdleMs, s.Watches, s.Ephemerals})
	}
	idle := "-"
	if s.IdleMs >= 0 {
		idle = (time.Duration(s.IdleMs) * time.Millisecond).String()
	}
	_, err := fmt.Fprintf(a.out, "%-20s %8v %10s %8d %10d %s\n", s.ID,
		time.Duration(s.TimeoutMs)*time.Millisecond, idle, s.Watches, s.Ephemerals, safeText(s.Remote))
	return err
}
