package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// memberStatus is what a member knows of itself, without asking others.
type memberStatus struct {
	Role          string // leader or follower
	Term, Applied uint64
}

// statusClient asks for status, each time on a connection of its own: one that is left
// over from a member's earlier life would be of no use.
var statusClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// statusMax bounds how long a member may take to tell its status: one that is paused
// never does.
const statusMax = 2 * time.Second

// fetch reads a page of the HTTP port at address, whatever its status.
func fetch(address, path string) (status int, text []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), statusMax)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := statusClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	return response.StatusCode, text, err
}

// get reads a page of a member's HTTP port.
func (m *ensembleMember) get(path string) (text []byte, err error) {
	status, text, err := fetch(m.http, path)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("member %d: %s: status %d: %s", m.id, path, status, text)
	}
	return text, err
}

// metrics reads those of a member that have no labels.
func (m *ensembleMember) metrics() (map[string]float64, error) {
	text, err := m.get("/metrics")
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if f, err := strconv.ParseFloat(value, 64); err == nil {
			all[name] = f
		}
	}
	return all, nil
}

// status asks a member about itself.
func (m *ensembleMember) status() (s memberStatus, err error) {
	all, err := m.metrics()
	if err != nil {
		return s, err
	}
	s = memberStatus{Role: "follower", Term: uint64(all["tenure_term"]), Applied: uint64(all["tenure_log_applied_index"])}
	if all["tenure_is_leader"] == 1 {
		s.Role = "leader"
	}
	return s, nil
}

// leader returns the member that leads in the newest term, nil if none says that it does.
func (e *ensemble) leader() *ensembleMember {
	var found *ensembleMember
	var term uint64
	for _, m := range e.members {
		if !m.runs() || m.stopped.Load() {
			continue
		}
		if s, err := m.status(); err == nil && s.Role == "leader" && s.Term >= term {
			found, term = m, s.Term
		}
	}
	return found
}

// waitLeader waits until a member leads, and returns it.
func (e *ensemble) waitLeader() *ensembleMember {
	e.t.Helper()
	var found *ensembleMember
	e.eventually(30*time.Second, "a leader", func() error {
		if found = e.leader(); found == nil {
			return fmt.Errorf("nobody leads")
		}
		return nil
	})
	return found
}

// follower returns a member that runs and does not lead.
func (e *ensemble) follower() *ensembleMember {
	e.t.Helper()
	leader := e.waitLeader()
	for _, m := range e.others(leader) {
		if m.runs() && !m.stopped.Load() {
			return m
		}
	}
	e.t.Fatal("no follower runs")
	return nil
}

// eventuallyPoll is how often a condition is looked at.
const eventuallyPoll = 20 * time.Millisecond

// eventually waits until condition has no error any more.
func (e *ensemble) eventually(limit time.Duration, what string, condition func() error) (took time.Duration) {
	e.t.Helper()
	began := time.Now()
	for tick := time.NewTicker(eventuallyPoll); ; <-tick.C {
		err := condition()
		if err == nil {
			return time.Since(began)
		}
		if time.Since(began) > limit {
			e.t.Fatalf("%s: after %v: %v", what, limit, err)
		}
	}
}

// sameState waits until all members that run have applied the same entries, and wants
// their states to be the same. There must be no load meanwhile.
func (e *ensemble) sameState() {
	e.t.Helper()
	e.eventually(30*time.Second, "the same state on all members", e.compareStates)
}

// compareStates wants all members that run to have the same digest at the same entry.
func (e *ensemble) compareStates() error {
	digests := map[string][]int{} // members by entry and digest
	for _, m := range e.members {
		if !m.runs() || m.stopped.Load() {
			continue
		}
		text, err := m.get("/v1/status")
		if err != nil {
			return err
		}
		var all struct {
			Members []struct {
				ID      int
				Applied uint64
				Digest  string
			}
		}
		if err := json.Unmarshal(text, &all); err != nil {
			return err
		}
		for _, s := range all.Members {
			if s.ID == m.id {
				at := fmt.Sprintf("%d %s", s.Applied, s.Digest)
				digests[at] = append(digests[at], m.id)
			}
		}
	}
	if len(digests) != 1 {
		return fmt.Errorf("applied entries and digest, by member: %v", digests)
	}
	return nil
}
