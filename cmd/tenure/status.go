package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/wire"
)

// statusParallel is how many servers are asked at once.
const statusParallel = 8

func newStatusCommand(a *app) *cobra.Command {
	figures := false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how each member is doing",
		Long: `Ask one server about all members of its ensemble and show what each says: its role and
how far it is, what a sync of its log takes, who is connected to it, and in words what is
wrong. It answers also without a quorum, and when some members are down. The exit code is
0 if all is well, 8 if all is served but something is wrong, and 5 if there is no quorum or
no server answers.

With --figures every endpoint is asked for its figures, which are shown side by side. A
server that cannot be asked is named on standard error with the reason; the exit code is
then 5, or 6 where it does not let us ask.`,
		Args: args("no argument", 0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if figures {
				return a.status(cmd.Context())
			}
			return a.ensemble(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&figures, "figures", false, "the figures of every endpoint, side by side")
	return cmd
}

// memberStatus is what one server said, or why it said nothing.
type memberStatus struct {
	server  endpoint
	figures []wire.Figure
	err     error
}

// status prints the figures of every endpoint.
func (a *app) status(ctx context.Context) error {
	servers, err := a.tenureServers("status")
	if err != nil {
		return err
	}
	if _, err := a.options(servers); err != nil { // wrong flags, before any server is asked
		return err
	}
	members := make([]memberStatus, len(servers))
	slots := make(chan struct{}, statusParallel)
	var wait sync.WaitGroup
	for i, server := range servers {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			members[i] = a.memberStatus(ctx, server)
		})
	}
	wait.Wait()
	if err := a.printStatus(members); err != nil {
		return err
	}
	return a.statusFailure(ctx, members)
}

// memberStatus asks one server. One that answers HTTP but opens no session says by
// /readyz why.
func (a *app) memberStatus(ctx context.Context, server endpoint) memberStatus {
	m := memberStatus{server: server}
	c, err := a.connect(ctx, []endpoint{server})
	if err != nil {
		if text, ok := a.notReady(ctx, server); ok {
			err = fmt.Errorf("%w; its /readyz says: %s", err, text)
		}
		m.err = err
		return m
	}
	defer c.tree.Close()
	reply, err := c.Status(ctx)
	m.figures, m.err = reply.Figures, err
	return m
}

// statusFailure names the servers that could not be asked.
func (a *app) statusFailure(ctx context.Context, members []memberStatus) error {
	var failed []string
	code := exitOK
	for _, m := range members {
		if m.err == nil {
			continue
		}
		failed = append(failed, m.server.host)
		code = max(code, exitCode(m.err))
		if ctx.Err() == nil {
			a.note("tenure: %v", m.err)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(failed) == 0 {
		return nil
	}
	return &codeError{code, errors.New("status: no answer from " + strings.Join(failed, ", "))}
}

// printStatus prints a row per figure and a column per server. Figures that only some
// servers have come in the order in which they are first seen.
func (a *app) printStatus(members []memberStatus) error {
	if a.output == outputJSON {
		return a.printStatusJSON(members)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "FIGURE")
	for _, m := range members {
		fmt.Fprintf(w, "\t%s", m.server.host)
	}
	fmt.Fprintln(w)
	for _, name := range figureNames(members) {
		fmt.Fprint(w, safeText(name))
		for _, m := range members {
			fmt.Fprintf(w, "\t%s", safeText(m.figure(name)))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

func (a *app) printStatusJSON(members []memberStatus) error {
	for _, m := range members {
		line := struct {
			Endpoint string            `json:"endpoint"`
			Figures  map[string]string `json:"figures,omitempty"`
			Error    string            `json:"error,omitempty"`
		}{Endpoint: m.server.host}
		if m.err != nil {
			line.Error = oneLine(m.err.Error())
		} else {
			line.Figures = map[string]string{}
			for _, f := range m.figures {
				line.Figures[f.Name] = f.Value
			}
		}
		if err := a.printJSON(line); err != nil {
			return err
		}
	}
	return nil
}

// figureNames returns the names of all figures.
func figureNames(members []memberStatus) []string {
	var names []string
	seen := map[string]bool{}
	for _, m := range members {
		for _, f := range m.figures {
			if !seen[f.Name] {
				seen[f.Name] = true
				names = append(names, f.Name)
			}
		}
	}
	return names
}

// figure is the value of a figure, "unreachable" for a server that did not answer.
func (m *memberStatus) figure(name string) string {
	if m.err != nil {
		return "unreachable"
	}
	for _, f := range m.figures {
		if f.Name == name {
			return f.Value
		}
	}
	return "-"
}
