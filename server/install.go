package server

import (
	"cmp"
	"io"
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/replica"
	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/store"
)

// Recover implements replica.Machine. A received state that the log begins behind was
// decided on and not put in place, because the process ended; any other is of no use.
func (s *Server) Recover(begins uint64) (applied uint64, err error) {
	received, ok, err := s.store.Received()
	if err != nil {
		return 0, err
	}
	switch {
	case ok && received == begins:
		s.log.Info("putting a received state in place", "applied", received)
		err = s.adopt(received)
	default:
		err = s.store.DropReceived()
	}
	return s.store.Applied(), err
}

// Snapshot implements replica.Machine.
func (s *Server) Snapshot() (replica.SnapshotSource, error) {
	source, err := s.store.Snapshot()
	return snapshotSource{source}, err
}

// Incoming implements replica.Machine.
func (s *Server) Incoming(applied uint64) (replica.SnapshotSink, error) {
	sink, err := s.store.Incoming(applied)
	return snapshotSink{sink}, err
}

type snapshotSource struct{ *store.Source }

func (x snapshotSource) Write(w io.Writer, from []byte) error {
	_, err := x.Source.Write(w, from)
	return err
}

type snapshotSink struct{ *store.Incoming }

func (x snapshotSink) Receive(r io.Reader) error {
	_, err := x.Incoming.Receive(r)
	return err
}

// Install implements replica.Machine. Clients cannot be told what happened between the old
// state and the new one: all are cut, and resume, here or elsewhere. They get what their
// watches missed from another member's history, or a gap. What they wrote and were not told
// of may have been applied or not; those that number their writes learn it.
func (s *Server) Install(applied uint64, restarted func(origin uint64)) error {
	s.state.Lock()
	defer s.state.Unlock()
	conns := s.conns.all()
	slices.SortFunc(conns, func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
	for _, c := range conns {
		c.close(closeReason{closeRestart, "the member received a snapshot: come back"})
	}
	s.forgetCalls(restarted)
	if err := s.adopt(applied); err != nil {
		s.fail(err) // before anybody may read
		return err
	}
	s.learnPresence.Store(true)
	s.log.Info("a snapshot took the place of the state", "applied", applied, "connections_cut", len(conns))
	return nil
}

// forgetCalls completes all calls that wait for the log without an answer. Their connections
// are closed already.
func (s *Server) forgetCalls(restarted func(origin uint64)) {
	s.pending.mu.Lock()
	calls := s.pending.mu.calls
	s.pending.mu.calls, s.pending.mu.since = map[uint64]*call{}, s.now()
	origin := randomOrigin()
	s.origin.Store(origin)
	restarted(origin)
	s.pending.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(calls)) {
		k := calls[id]
		k.c.completed(k, nil, nil)
		k.c.kick()
	}
}

// adopt puts the received state in place and forgets everything of the other. Called under
// the state lock, or before anybody is served.
func (s *Server) adopt(applied uint64) error {
	if err := s.store.Adopt(applied); err != nil {
		return err
	}
	s.published = s.store.LastZxid()
	s.digests.note(applied, s.store.Digest())
	s.sessions.forget()
	return s.loadSessions()
}

// forget closes all sessions, as nothing is known of them any more.
func (l *liveSessions) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.tracker = session.NewTracker()
	clear(l.mu.open)
	clear(l.mu.heard)
	clear(l.mu.asked)
}
