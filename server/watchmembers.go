package server

import (
	"context"
	"time"
)

const (
	// watchMembersEvery is how often the leader asks how the others are doing: one that is
	// gone is out of the figures within a few seconds.
	watchMembersEvery = time.Second
	// syncedLag is from how many missing entries on a member does not count as synced.
	syncedLag = 1024
)

// memberFigures are what the leader knows of the others.
type memberFigures struct {
	// Followers and Learners answer; of them the synced ones have nearly all of the log.
	Followers, SyncedFollowers, Learners, SyncedLearners int64
	Voters                                               int64 // whether they answer or not
	// Differing are members whose state is not the leader's.
	Differing int64
}

// watchMembers keeps the figures of the other members while this one leads, and compares
// their digests with its own. It stops nobody: what to do about a state that differs is for
// people to decide.
func (s *Server) watchMembers(ctx context.Context) {
	tick := time.NewTicker(watchMembersEvery)
	defer tick.Stop()
	told := map[uint64]bool{}
	for {
		if s.rep.Leads() != 0 {
			e := s.ensembleStatus()
			s.memberFigures.Store(countMembers(e))
			s.tellDiffering(e, told)
		} else {
			s.memberFigures.Store(nil)
			clear(told)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// countMembers counts the members besides the one that was asked, which leads.
func countMembers(e *EnsembleStatus) *memberFigures {
	f := &memberFigures{}
	for i := range e.Members {
		m := &e.Members[i]
		if m.Voter {
			f.Voters++
		}
		synced := int64(0)
		if m.Lag < syncedLag {
			synced = 1
		}
		switch {
		case m.ID == e.AskedOf || m.Role == "":
		case m.Voter:
			f.Followers++
			f.SyncedFollowers += synced
		default:
			f.Learners++
			f.SyncedLearners += synced
		}
		if m.DiffersAt != 0 {
			f.Differing++
		}
	}
	return f
}

// tellDiffering logs once of each member whose state differs.
func (s *Server) tellDiffering(e *EnsembleStatus, told map[uint64]bool) {
	for i := range e.Members {
		if m := &e.Members[i]; m.DiffersAt != 0 && !told[m.ID] {
			told[m.ID] = true
			s.log.Error("the state of a member differs from the leader's: remove one of them and add it anew", "member", m.ID, "at_entry", m.DiffersAt)
		}
	}
}
