package server

import (
	"testing"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: a client goes from member to member with its session: each cuts the connection on the
// one before, its ephemeral and its writes are there, and what one write did is not done
// twice; who is refused is refused on each member alike, and disturbs nobody. Method: three
// members; every door; a resent write after each move; then attempts with a wrong password, an
// unknown session, and a history that nobody has.
func TestSessionMovesBetweenMembers(t *testing.T) {
	t.Parallel()
	list := startMembers(t, memberConfigs(t, 3))
	for i, protocol := range everyDoor {
		on := list[i]
		was := openAs(t, on, protocol, 20*time.Second)
		path := was.must("/mine-", "", znode.Mode{Kind: znode.Ephemeral, Sequential: true})
		for _, next := range []*Server{list[(i+1)%3], list[(i+2)%3], list[(i+2)%3], on} {
			r := resumeRaw(t, next, protocol, was.session)
			if r.session != was.session {
				t.Fatalf("%s: member %d resumed as %+v, want %+v", protocol, next.cfg.MemberID, r.session, was.session)
			}
			was.wantClosed("the old connection", closeMoved)
			if st := r.stat(path); st == nil || st.EphemeralOwner != r.session.Session {
				t.Errorf("%s: on member %d the ephemeral has %+v", protocol, next.cfg.MemberID, st)
			}
			if e := r.set(path, "again"); e != znode.OK {
				t.Errorf("%s: on member %d: set: %v", protocol, next.cfg.MemberID, e)
			}
			was = r
		}
		refusedEverywhere(t, list, protocol, was.session)
		if st := was.stat(path); st == nil || st.Version != 4 {
			t.Errorf("%s: after the attempts the ephemeral has %+v", protocol, st)
		}
	}
}

// refusedEverywhere tries what must not work with an open session.
func refusedEverywhere(t *testing.T, list []*Server, protocol string, open wire.ConnectReply) {
	t.Helper()
	flipped := open.Password
	flipped[3] ^= 1
	for _, s := range list {
		for what, q := range map[string]wire.ConnectRequest{
			"a wrong password":   {Session: open.Session, Password: flipped[:]},
			"an unknown session": {Session: open.Session + 1<<40, Password: open.Password[:]},
		} {
			r := dialRaw(t, s, protocol)
			if got := r.connect(q); got.Session != 0 {
				t.Errorf("%s: member %d: %s: %+v", protocol, s.cfg.MemberID, what, got)
			}
			r.wantClosed(what, closeSessionOver)
		}
		for _, q := range []wire.ConnectRequest{
			{LastZxid: 1 << 40},
			{LastZxid: 1 << 40, Session: open.Session, Password: open.Password[:]},
		} {
			r := dialRaw(t, s, protocol)
			sessions, behind := s.store.Counts().Sessions, s.metrics.behind.Load()
			r.write(r.codec.AppendConnect(nil, &q))
			r.wantClosed("a client that has seen more", closeBehind)
			if s.store.Counts().Sessions != sessions || s.metrics.behind.Load() != behind+1 {
				t.Errorf("%s: member %d: %d sessions, were %d; %d refused, were %d", protocol, s.cfg.MemberID,
					s.store.Counts().Sessions, sessions, s.metrics.behind.Load(), behind)
			}
		}
	}
}

// Goal: a write that comes behind a resume into the log, of the connection that had the session
// before, is not applied and uses no number: the client resends it on the new connection, and
// there it is applied. Method: nothing is applied while the lock is held, so that the resume
// and then the write wait in the log; every door.
func TestWriteBehindItsSessionsMove(t *testing.T) {
	s := startServer(t, Config{})
	waiting := func() int {
		s.pending.mu.Lock()
		defer s.pending.mu.Unlock()
		return len(s.pending.mu.calls)
	}
	for _, protocol := range everyDoor {
		old := openAs(t, s, protocol, 20*time.Second)
		parent := old.must("/p-", "", sequential)
		q := wire.Request{Op: wire.OpCreate, Body: &znode.Create{Path: parent + "/n-", ACL: znode.OpenACL, Mode: sequential}}
		if protocol != zooKeeper {
			q.Seq = 1
		}
		r := dialRaw(t, s, protocol)

		func() {
			s.state.RLock()
			defer s.state.RUnlock()
			waitFor(t, "what was applied before", 10*time.Second, func() bool { return s.applying.Load() == 0 })
			r.write(r.codec.AppendConnect(nil, &wire.ConnectRequest{Session: old.session.Session, Password: old.session.Password[:]}))
			waitFor(t, "the resume to be applied", 10*time.Second, func() bool { return s.applying.Load() != 0 && waiting() == 0 })
			old.send(q)
			waitFor(t, "the write to wait for the log", 10*time.Second, func() bool { return waiting() == 1 })
		}()

		if code, before := old.closed(); code != old.closeCode(closeMoved) || len(before) != 0 {
			t.Errorf("%s: closed with %d behind %q", protocol, code, before)
		}
		if got, err := r.codec.DecodeConnectReply(r.read()); err != nil || got != old.session {
			t.Fatalf("%s: resumed as %+v (%v)", protocol, got, err)
		}
		if names := r.children(parent); len(names) != 0 {
			t.Errorf("%s: a write of the old connection made %v", protocol, names)
		}
		for range 2 {
			if reply := r.call(q); reply.Err != znode.OK {
				t.Errorf("%s: resent: %v", protocol, reply.Err)
			}
		}
		want := 1
		if q.Seq == 0 {
			want = 2
		}
		if names := r.children(parent); len(names) != want {
			t.Errorf("%s: resent, the write made %v", protocol, names)
		}
	}
}
