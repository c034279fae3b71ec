package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/tenure-dev/tenure/server"
)

// ensembleMax bounds what is read of a server's answer.
const ensembleMax = 4 << 20

// ensemble prints the status of all members, as one of servers finds it out.
func (a *app) ensemble(ctx context.Context) error {
	servers, err := a.tenureServers("status")
	if err != nil {
		return err
	}
	if _, err := a.options(servers); err != nil { // wrong flags, before any server is asked
		return err
	}
	var e server.EnsembleStatus
	if err := firstAnswer(servers, func(s endpoint) (err error) {
		e, err = a.ensembleStatus(ctx, s)
		return err
	}); err != nil {
		return err
	}
	if a.output == outputJSON {
		err = a.printJSON(e)
	} else {
		err = a.printEnsemble(&e)
	}
	if err != nil {
		return err
	}
	switch e.State {
	case server.StateHealthy:
		return nil
	case server.StateNoQuorum:
		return &codeError{exitUnreachable, fmt.Errorf("status: %s", e.State)}
	}
	return &codeError{exitDegraded, fmt.Errorf("status: %s", e.State)}
}

// ensembleStatus asks one server, over HTTP: a session needs a quorum.
func (a *app) ensembleStatus(ctx context.Context, from endpoint) (e server.EnsembleStatus, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.limit())
	defer cancel()
	response, err := a.httpGet(ctx, from, "/v1/status", "")
	if err != nil {
		return e, err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(io.LimitReader(response.Body, ensembleMax)).Decode(&e); err != nil {
		return e, &codeError{exitUnreachable, fmt.Errorf("%s: its answer to /v1/status: %w", from.host, err)}
	}
	return e, nil
}

// printEnsemble prints a row per member, and what is wrong below.
func (a *app) printEnsemble(e *server.EnsembleStatus) error {
	fmt.Fprintf(a.out, "ensemble %s: %s (asked of member %d)\n\n", safeText(e.Cluster), safeText(e.State), e.AskedOf)
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MEMBER\tROLE\tTERM\tAPPLIED\tLAG\tSYNC MEAN/MAX\tSESSIONS\tWATCHES\tRTT\tCLIENTS AT\tMEMBERS AT")
	var problems []string
	for i := range e.Members {
		m := &e.Members[i]
		if m.Role == "" {
			fmt.Fprintf(w, "%d\t-\t-\t-\t-\t-\t-\t-\t-\t-\t%s\n", m.ID, textOr(m.Address))
		} else {
			fmt.Fprintf(w, "%d\t%s\t%d\t%d\t%d\t%.1f/%.1f ms\t%d\t%d\t%s\t%s\t%s\n", m.ID, safeText(m.Role), m.Term, m.Applied, m.Lag,
				m.SyncMeanMs, m.SyncMaxMs, m.Sessions, m.Watches, roundTrips(m.Peers), textOr(m.Listen), textOr(m.Address))
		}
		for _, p := range m.Problems {
			problems = append(problems, fmt.Sprintf("member %d: %s", m.ID, p))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	problems = append(problems, e.Problems...)
	if len(problems) > 0 {
		fmt.Fprintln(a.out)
	}
	for _, p := range problems {
		fmt.Fprintln(a.out, safeText(p))
	}
	return nil
}

// roundTrips is the longest of a member's round trips to others.
func roundTrips(peers []server.PeerStatus) string {
	longest := 0.0
	for _, p := range peers {
		if p.Connected {
			longest = max(longest, p.RTTMs)
		}
	}
	if longest == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", longest)
}

func textOr(s string) string {
	if s == "" {
		return "-"
	}
	return safeText(s)
}
