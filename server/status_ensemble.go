package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// The states of an ensemble, in EnsembleStatus.State.
const (
	StateHealthy  = "healthy"
	StateDegraded = "degraded"  // all is served, but something is wrong
	StateNoQuorum = "no quorum" // nothing is served
)

// EnsembleStatus is what a member finds out of all members.
type EnsembleStatus struct {
	Cluster string         `json:"cluster"` // its id
	State   string         `json:"state"`
	AskedOf uint64         `json:"asked_of"` // the member that says all this
	Members []MemberStatus `json:"members"`  // by id
	// Problems are those of the ensemble, besides the ones of its members.
	Problems []string `json:"problems,omitempty"`
}

const (
	// statusPatience bounds one member's answer.
	statusPatience = 800 * time.Millisecond
	// statusFresh is how long an answer serves all who ask: anybody may.
	statusFresh = 250 * time.Millisecond
)

// lastStatus is what was found out last. Safe for concurrent use.
type lastStatus struct {
	mu     sync.Mutex
	at     time.Time
	status *EnsembleStatus
}

// ensembleStatus asks all members, whether or not the one who wants to know still waits:
// others get the answer, too.
func (s *Server) ensembleStatus() *EnsembleStatus {
	l := &s.lastStatus
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.status == nil || time.Since(l.at) > statusFresh {
		l.status = judgeEnsemble(s.askMembers(s.running))
		l.status.Cluster, l.status.AskedOf = fmt.Sprintf("%016x", s.rep.Cluster()), uint64(s.cfg.MemberID)
		l.at = time.Now()
	}
	return l.status
}

// askMembers returns what each member says of itself, by id.
func (s *Server) askMembers(ctx context.Context) []MemberStatus {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	list := s.memberList(ctx)
	var wait sync.WaitGroup
	for i := range list {
		wait.Go(func() {
			m := &list[i]
			said, err := s.askMember(ctx, m.ID)
			if err != nil {
				m.Problems = []string{"not reachable: " + err.Error()}
				return
			}
			said.ID, said.Voter, said.Address = m.ID, m.Voter, cmp.Or(m.Address, said.Address)
			*m = *said
		})
	}
	wait.Wait()
	return list
}

// memberList lists the members with what is known without asking them. This member is
// among them though it may not be one yet, or not any more.
func (s *Server) memberList(ctx context.Context) (list []MemberStatus) {
	self := uint64(s.cfg.MemberID)
	ctx, cancel := context.WithTimeout(ctx, statusPatience/2)
	defer cancel()
	members, _ := s.rep.Members(ctx) // without an answer of the leader's it is what is known here
	for i := range members.List {
		m := &members.List[i]
		list = append(list, MemberStatus{ID: m.ID, Address: m.Address, Voter: m.Voter})
	}
	if !slices.ContainsFunc(list, func(m MemberStatus) bool { return m.ID == self }) {
		list = append(list, MemberStatus{ID: self})
	}
	return list
}

// askMember asks one member for its status.
func (s *Server) askMember(ctx context.Context, id uint64) (*MemberStatus, error) {
	if id == uint64(s.cfg.MemberID) {
		return s.ownStatus(), nil
	}
	reply, err := s.rep.Call(ctx, id, []byte(statusCall))
	if err != nil {
		if p, known := s.network.Stats()[id]; known && !p.Connected && p.LastError != "" {
			return nil, fmt.Errorf("%s", p.LastError)
		}
		return nil, err
	}
	m := new(MemberStatus)
	if err := json.Unmarshal(reply, m); err != nil {
		return nil, fmt.Errorf("its answer: %w", err)
	}
	return m, nil
}

// judgeEnsemble adds what shows only when the members' answers are seen together.
func judgeEnsemble(list []MemberStatus) *EnsembleStatus {
	e := &EnsembleStatus{State: StateHealthy, Members: list}
	var leader *MemberStatus
	commit, voters, answering := uint64(0), 0, 0
	for i := range list {
		m := &list[i]
		commit = max(commit, m.Commit, m.Applied) // what was applied since it said up to where entries are committed
		if m.Voter {
			voters++
		}
		if m.Voter && m.Role != "" {
			answering++
		}
		if m.Role == "leader" && (leader == nil || m.Term > leader.Term) {
			leader = m
		}
	}
	for i := range list {
		m := &list[i]
		if m.Role == "" {
			continue
		}
		if m.Lag = commit - m.Applied; m.Lag >= worthALag {
			m.Problems = append(m.Problems, fmt.Sprintf("log is %d entries behind", m.Lag))
		}
		if leader != nil && m != leader {
			if m.DiffersAt = differ(leader.Digests, m.Digests); m.DiffersAt != 0 {
				m.Problems = append(m.Problems, fmt.Sprintf("digest differs from the leader's at entry %d", m.DiffersAt))
			}
		}
	}
	majority := voters/2 + 1
	switch {
	case answering < majority:
		e.State = StateNoQuorum
		e.Problems = append(e.Problems, fmt.Sprintf("no quorum: %d of %d voters can be reached, %d are needed", answering, voters, majority))
	case leader == nil:
		e.State = StateNoQuorum
		e.Problems = append(e.Problems, "no leader, though enough voters can be reached")
	case answering == majority && voters > 1 && answering < voters:
		e.Problems = append(e.Problems, fmt.Sprintf("only %d of %d voters: one more failure stops writes", answering, voters))
	}
	if e.State == StateHealthy && (len(e.Problems) > 0 || slices.ContainsFunc(list, func(m MemberStatus) bool { return len(m.Problems) > 0 })) {
		e.State = StateDegraded
	}
	return e
}

// serveStatus answers GET /v1/status. It is 200 whatever the state: whoever asks wants it.
func (s *Server) serveStatus(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.ensembleStatus())
}

// sortedKeys returns the keys of m in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
