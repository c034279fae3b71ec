package recipestest

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// member is one server of the ensemble. The fake's lock guards it.
type member struct {
	f       *Fake
	index   int
	tree    *znode.Tree
	pending []pendingDelta // committed, not applied here yet
	lag     time.Duration
	timed   bool // catchUp will be called for pending
	// isolated: no link to the others. down: not running. cutOff: isolated for so long
	// that it serves nobody.
	isolated, down, cutOff bool
	isolations             int // counts, so that an old timer knows that it is old
	conns                  []*fakeConn
	waiting                []*fakeConn // of conns, those with calls that could not be answered
	parked                 []func()    // handshakes that need the leader
	watches                map[watchKey][]*fakeWatch
	touched                map[session.ID]bool // heard of, not reported to the leader yet
}

type pendingDelta struct {
	d  znode.Delta
	at time.Duration
}

// change is one entry of the history.
type change struct {
	zxid int64
	znode.Change
}

// historyMax bounds the history. Whoever was away for longer is told that there is a gap.
const historyMax = 1 << 14

// serverSession is a session as the leader knows it.
type serverSession struct {
	id        session.ID
	conn      *fakeConn // nil while there is none
	lastTouch time.Duration
	over      chan struct{} // closed at its end
}

// reaches reports whether m can ask the leader.
func (m *member) reaches() bool {
	return m.f.leader != nil && !m.down && (m == m.f.leader || !m.isolated)
}

// newest returns the member that has all that was committed.
func (f *Fake) newest() *member {
	return slices.MaxFunc(f.members, func(a, b *member) int {
		return int(a.tree.LastZxid() - b.tree.LastZxid())
	})
}

// commit lets the leader, which must exist, judge and apply one transaction.
func (f *Fake) commit(id session.ID, op znode.Op) znode.Result {
	stamp := znode.Stamp{TimeMs: time.Now().UnixMilli()}
	tree := f.leader.tree
	if !f.o.Exact {
		op = wrapCounters(tree, op)
	}
	r, d := znode.Apply(tree, stamp, &znode.Txn{Session: id, Op: op})
	if d.Zxid != 0 {
		f.publish(d)
	}
	return r
}

// publish applies a committed change everywhere, at lagging and isolated members later.
func (f *Fake) publish(d znode.Delta) {
	for _, c := range d.Changes {
		f.history = append(f.history, change{d.Zxid, c})
	}
	if over := len(f.history) - historyMax; over > historyMax/4 {
		f.forgot = f.history[over-1].zxid
		f.history = slices.Delete(f.history, 0, over)
	}
	f.reapLater(&d)
	f.leader.apply(&d)
	for _, m := range f.members {
		if m == f.leader {
			continue
		}
		at := f.now() + m.lag
		if n := len(m.pending); n > 0 {
			at = max(at, m.pending[n-1].at)
		}
		m.pending = append(m.pending, pendingDelta{d, at})
		m.catchUp()
	}
}

// catchUp applies what is due at m.
func (m *member) catchUp() {
	for len(m.pending) > 0 && !m.isolated && !m.down {
		if at := m.pending[0].at; at > m.f.now() {
			if !m.timed {
				m.timed = true
				m.f.at(at, func() {
					m.timed = false
					m.catchUp()
				})
			}
			return
		}
		d := m.pending[0].d
		m.pending = slices.Delete(m.pending, 0, 1)
		m.apply(&d)
	}
}

// apply makes a change visible at m: events first, then the end of sessions, then the
// answers that waited for it.
func (m *member) apply(d *znode.Delta) {
	m.tree.Update(d)
	for _, c := range d.Changes {
		m.trigger(c, d.Zxid)
	}
	for _, e := range d.Sessions {
		if e.Session != nil {
			continue
		}
		for _, conn := range slices.Clone(m.conns) {
			if conn.s.id == e.ID {
				conn.closeByServer()
			}
		}
	}
	m.answerWaiting()
}

// answerWaiting answers what can be answered now.
func (m *member) answerWaiting() {
	waiting := m.waiting
	m.waiting = nil
	for _, conn := range waiting {
		conn.answer()
	}
}

// open starts a session.
func (f *Fake) openSession(timeout time.Duration) *serverSession {
	r := f.commit(0, &znode.OpenSession{TimeoutMs: int32(timeout.Milliseconds())})
	s := &serverSession{id: r.Session.ID, lastTouch: f.now(), over: make(chan struct{})}
	f.sessions[s.id] = s
	f.armExpiry(s)
	return s
}

// endSession ends a session and its ephemerals. Its connection is closed by the member
// that has it, as soon as that knows.
func (f *Fake) endSession(s *serverSession, expired bool) {
	delete(f.sessions, s.id)
	close(s.over)
	f.commit(0, &znode.CloseSession{Session: s.id, Expired: expired})
}

// touch notes at member m that the session lives.
func (f *Fake) touch(m *member, s *serverSession) {
	switch {
	case m == f.leader, f.o.Exact && m.reaches():
		s.lastTouch = f.now()
	case !f.o.Exact:
		if len(m.touched) == 0 {
			f.after(f.o.tick()/2, m.report)
		}
		m.touched[s.id] = true
	}
}

// report tells the leader which sessions m has heard of. For the leader they were heard
// of just now.
func (m *member) report() {
	if !m.reaches() {
		if len(m.touched) > 0 {
			m.f.after(m.f.o.tick()/2, m.report)
		}
		return
	}
	for id := range m.touched {
		if s := m.f.sessions[id]; s != nil {
			s.lastTouch = m.f.now()
		}
	}
	clear(m.touched)
}

// expiresAt is when the leader ends the session if it hears nothing more of it.
func (f *Fake) expiresAt(s *serverSession) time.Duration {
	at := s.lastTouch + f.o.timeout()
	if tick := f.o.tick(); !f.o.Exact {
		at = (at + tick - 1) / tick * tick
	}
	return at
}

// armExpiry ends the session when it is time, unless the leadership changes before; the
// new leader arms it again.
func (f *Fake) armExpiry(s *serverSession) {
	leader := f.leader
	f.at(f.expiresAt(s), func() {
		switch {
		case f.sessions[s.id] != s || f.leader != leader:
		case f.now() < f.expiresAt(s):
			f.armExpiry(s)
		default:
			f.endSession(s, true)
		}
	})
}

// reapAfter is how long an empty container stays.
const reapAfter = time.Minute

// reapLater has the containers that lost their last child with d removed.
func (f *Fake) reapLater(d *znode.Delta) {
	for _, e := range d.Children {
		n := f.leader.tree.Node(e.Path)
		if e.Gone || e.Children.Live > 0 || n == nil || n.Kind != znode.Container {
			continue
		}
		f.after(reapAfter, func() {
			if f.leader != nil {
				f.commit(0, &znode.Reap{Path: e.Path})
			}
		})
	}
}

// wrapCounters gives the sequential creates in op their names where the counter does not
// fit 31 bits any more, as ZooKeeper's does, which becomes negative.
func wrapCounters(v znode.View, op znode.Op) znode.Op {
	ops := []znode.Op{op}
	multi, isMulti := op.(*znode.Multi)
	if isMulti {
		ops = slices.Clone(multi.Ops)
	}
	created := make(map[string]int64) // by this transaction, under a parent
	for i, one := range ops {
		create, ok := one.(*znode.Create)
		if !ok {
			continue
		}
		parent, _ := znode.Split(create.Path)
		n := v.Children(parent).Created + created[parent]
		created[parent]++
		if create.Mode.Sequential && n > znode.SequenceMax {
			named := *create
			named.Mode.Sequential = false
			named.Path += fmt.Sprintf("%010d", int32(n))
			ops[i] = &named
		}
	}
	if isMulti {
		return &znode.Multi{Ops: ops}
	}
	return ops[0]
}
