package recipestest

import (
	"slices"
	"time"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// fakeConn is one connection of a client to a member. What is sent takes time, and
// arrives in order. Each end closes for itself: what then arrives there is lost.
type fakeConn struct {
	c                        *fakeClient
	m                        *member
	s                        *serverSession // once the handshake was accepted
	dialed                   time.Duration
	upLast, downLast         time.Duration // arrival of the last message
	clientClosed, serverOpen bool
	established              bool // the client had the answer to its handshake
	moved                    bool // it is to another member that the client goes
	holding                  bool // answers wait in held
	held                     []func()
	queue                    []*call // at the server, not answered yet
	watches                  map[*fakeWatch]bool
	rearm                    []*fakeWatch // watches to set in the handshake
	loseWatches              bool         // they are lost in the handshake instead
}

// heldMessage is one that a partition or a pause holds back.
type heldMessage struct {
	conn    *fakeConn
	deliver func()
}

func (f *Fake) latency() time.Duration {
	d := f.o.RTT / 2
	if f.o.Jitter > 0 {
		d += time.Duration(f.rng.Int64N(int64(f.o.Jitter)))
	}
	return d
}

// up sends a message to the member.
func (conn *fakeConn) up(deliver func()) {
	f, c := conn.c.f, conn.c
	conn.upLast = max(conn.upLast, f.now()+f.latency())
	f.at(conn.upLast, func() {
		if c.cutOff() || c.muted {
			c.heldUp = append(c.heldUp, heldMessage{conn, deliver})
			return
		}
		deliver()
	})
}

// down sends a message to the client.
func (conn *fakeConn) down(deliver func()) {
	f, c := conn.c.f, conn.c
	conn.downLast = max(conn.downLast, f.now()+f.latency()+c.delay)
	f.at(conn.downLast, func() {
		if c.cutOff() || c.pauses > 0 {
			c.heldDown = append(c.heldDown, heldMessage{conn, deliver})
			return
		}
		conn.arrive(deliver)
	})
}

// arrive is the arrival of a message at the client.
func (conn *fakeConn) arrive(deliver func()) {
	switch {
	case conn.clientClosed:
	case conn.holding:
		conn.held = append(conn.held, deliver)
	default:
		if conn.established {
			conn.c.lastRecv = conn.c.f.now()
		}
		deliver()
	}
}

// hold makes the client's end keep all that arrives from now on.
func (conn *fakeConn) hold(first func()) {
	conn.holding = true
	conn.held = append(conn.held, first)
}

// unhold delivers what was kept.
func (conn *fakeConn) unhold() {
	held := conn.held
	conn.holding, conn.held = false, nil
	for _, deliver := range held {
		conn.arrive(deliver)
	}
}

// closeByServer closes the member's end and tells the client.
func (conn *fakeConn) closeByServer() {
	conn.detach()
	conn.down(func() { conn.lost() })
}

// closeByClient closes the client's end and tells the member. A handshake that did not
// even leave is taken back.
func (conn *fakeConn) closeByClient() {
	conn.clientClosed, conn.held = true, nil
	c := conn.c
	if !conn.established {
		c.heldUp = slices.DeleteFunc(c.heldUp, func(h heldMessage) bool { return h.conn == conn })
	}
	c.heldDown = slices.DeleteFunc(c.heldDown, func(h heldMessage) bool { return h.conn == conn })
	conn.up(conn.detach)
}

// sever closes both ends at once; what is under way is lost.
func (conn *fakeConn) sever() {
	conn.detach()
	conn.c.heldUp = slices.DeleteFunc(conn.c.heldUp, func(h heldMessage) bool { return h.conn == conn })
	conn.lost()
}

// lost is what the client sees of a connection that was closed.
func (conn *fakeConn) lost() {
	if conn.clientClosed {
		return
	}
	conn.clientClosed, conn.held = true, nil
	conn.c.disconnected(conn)
}

// detach is the member's end of a connection. Nothing of it is executed afterwards.
func (conn *fakeConn) detach() {
	if !conn.serverOpen {
		return
	}
	conn.serverOpen, conn.queue = false, nil
	same := func(o *fakeConn) bool { return o == conn }
	conn.m.conns = slices.DeleteFunc(conn.m.conns, same)
	conn.m.waiting = slices.DeleteFunc(conn.m.waiting, same)
	for w := range conn.watches {
		conn.m.unwatch(w)
	}
	if conn.s != nil && conn.s.conn == conn {
		conn.s.conn = nil
	}
}

// handshake is the arrival of a request to open a session, or to resume id.
func (conn *fakeConn) handshake(id session.ID, lastZxid int64, timeout time.Duration) {
	f, m := conn.c.f, conn.m
	switch {
	case conn.clientClosed, !conn.serverOpen:
		return
	case m.down || m.cutOff:
		conn.closeByServer()
		return
	case !m.reaches():
		m.parked = append(m.parked, func() { conn.handshake(id, lastZxid, timeout) })
		return
	case lastZxid > m.tree.LastZxid(): // what the client has seen is not here yet
		conn.closeByServer()
		return
	}
	s := f.sessions[id]
	switch {
	case id == 0:
		s = f.openSession(timeout)
	case s == nil:
		conn.detach()
		conn.down(func() { conn.c.refused(conn) })
		return
	}
	if s.conn != nil {
		s.conn.closeByServer()
	}
	s.conn, conn.s = conn, s
	m.conns = append(m.conns, conn)
	f.touch(m, s)
	conn.c.stats.Connects++
	zxid := m.tree.LastZxid()
	conn.down(func() { conn.c.connected(conn, s.id, zxid) })
	for _, w := range conn.rearm {
		m.watchAgain(conn, w, lastZxid)
	}
}

// receive is the arrival of a call.
func (conn *fakeConn) receive(k *call) {
	if !conn.serverOpen {
		return
	}
	if ft := conn.c.faultFor(cutBefore, k.kind); ft != nil {
		conn.sever()
		close(ft.done)
		return
	}
	conn.c.f.touch(conn.m, conn.s)
	conn.queue = append(conn.queue, k)
	k.submitted = false
	conn.submit(k)
	conn.answer()
}

// ping is the arrival of a heartbeat.
func (conn *fakeConn) ping() {
	if !conn.serverOpen {
		return
	}
	f, m := conn.c.f, conn.m
	f.touch(m, conn.s)
	if !f.o.Exact || m.reaches() {
		conn.down(func() {})
	}
}

// submit has a call judged by the leader if it must be and can be.
func (conn *fakeConn) submit(k *call) {
	f, m := conn.c.f, conn.m
	switch {
	case k.submitted:
		return
	case !k.needsLeader(f.o.Exact):
		k.submitted, k.waitZxid = true, 0
		return
	case !m.reaches():
		return
	case f.sessions[conn.s.id] != conn.s: // which m may not know yet
		conn.closeByServer()
		return
	}
	k.submitted = true
	if f.o.Exact {
		f.touch(m, conn.s) // it may have waited here since it came
	}
	switch {
	case k.op != nil && !k.judged:
		k.result, k.judged = f.commit(conn.s.id, k.op), true
		conn.c.stats.Writes++
	case k.kind == Renew:
		k.judgeRenewal(f)
		conn.c.stats.Renewals++
	}
	k.waitZxid = f.leader.tree.LastZxid()
	if !conn.serverOpen || k.op == nil {
		return
	}
	if ft := conn.c.faultFor(cutAfter, k.kind); ft != nil {
		conn.sever()
		close(ft.done)
	}
}

// answer answers what can be answered, in order.
func (conn *fakeConn) answer() {
	for conn.serverOpen && len(conn.queue) > 0 {
		k := conn.queue[0]
		if !k.submitted || k.waitZxid > conn.m.tree.LastZxid() {
			if !slices.Contains(conn.m.waiting, conn) {
				conn.m.waiting = append(conn.m.waiting, conn)
			}
			return
		}
		conn.queue = conn.queue[1:]
		if k.read != nil {
			k.read(conn)
			conn.c.stats.Reads++
		}
		conn.reply(k)
	}
}

// reply sends the answer of a call, if no fault prevents it.
func (conn *fakeConn) reply(k *call) {
	if k.op == nil {
		if ft := conn.c.faultFor(cutAfter, k.kind); ft != nil {
			conn.sever()
			close(ft.done)
			return
		}
	}
	zxid, got := conn.m.tree.LastZxid(), k.got
	deliver := func() {
		k.got = got // of this execution, should there have been another
		conn.c.answered(k, zxid)
	}
	ft := conn.c.faultFor(holdAnswer, k.kind)
	if ft == nil {
		conn.down(deliver)
		return
	}
	conn.down(func() {
		if ft.released {
			deliver()
			return
		}
		ft.conn = conn
		conn.hold(deliver)
		close(ft.done)
	})
}

// judgeRenewal looks at the leader's state.
func (k *call) judgeRenewal(f *Fake) {
	k.got.held = make([]error, len(k.held))
	for i, h := range k.held {
		n := f.leader.tree.Node(h.Path)
		if n == nil || f.o.Exact && n.Czxid != h.Czxid {
			k.got.held[i] = znode.NoNode
		}
	}
}
