package recipestest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/session"
)

// fakeClient is one client: a recipes.Store. The fake's lock guards it.
type fakeClient struct {
	f       *Fake
	home    *member // connected to, or to try next
	cur     *fakeSession
	closing bool
	freed   bool // the loop was released

	conn               *fakeConn // the present connection or attempt, nil while waiting
	dialAt             time.Duration
	lastSend, lastRecv time.Duration
	timer              uint64 // number of the newest timer: older ones do nothing
	lastZxid           int64  // seen
	pending            []*call
	inflight           []*call // sent, in order
	watches            map[*fakeWatch]bool

	faults         []*fakeFault
	partitioned    bool
	muted          bool
	expiring       int // how many wait, in expire, for the session's end
	delay          time.Duration
	pauses         int
	resumed        chan struct{} // closed when pauses becomes 0
	heldUp         []heldMessage
	heldDown       []heldMessage
	failSetWatches bool
	isolated       []*member // by this client's verb
	lagging        []*member // likewise
	stats          Stats
	wallOffset     atomic.Int64 // of the wall clock, in nanoseconds
}

// schedule sees to it that what the clock demands is done now and in future.
func (c *fakeClient) schedule() {
	c.timer++
	number := c.timer
	next, any := c.tick()
	if any && number == c.timer {
		c.f.at(next, func() {
			if number == c.timer {
				c.schedule()
			}
		})
	}
}

// tick does what is due and returns when to look again.
func (c *fakeClient) tick() (next time.Duration, any bool) {
	s, now, timeout := c.cur, c.f.now(), c.cur.Timeout()
	if s.signaled || c.pauses > 0 {
		return 0, false
	}
	giveUp := c.lastRecv + timeout*4/3
	if s.ID() == 0 {
		giveUp = now + time.Hour
	}
	if now >= giveUp {
		s.end(fmt.Errorf("%w: no contact for %v, by the local clock", recipes.ErrSessionExpired, now-c.lastRecv))
		return 0, false
	}
	switch conn := c.conn; {
	case conn == nil && now < c.dialAt:
		next = c.dialAt
	case conn == nil:
		c.dial()
		next = now + timeout/3
	case !conn.established && now < conn.dialed+timeout/3:
		next = conn.dialed + timeout/3
	case !conn.established, now >= c.lastRecv+timeout*2/3:
		conn.closeByClient()
		if conn.established {
			c.goNext()
		}
		c.disconnected(conn)
		return 0, false // it scheduled
	default:
		if now >= c.lastSend+timeout/3 {
			c.lastSend = now
			conn.up(conn.ping)
		}
		next = min(c.lastSend+timeout/3, c.lastRecv+timeout*2/3)
	}
	return min(next, giveUp), true
}

// goNext makes the next member the one to try.
func (c *fakeClient) goNext() { c.home = c.f.members[(c.home.index+1)%len(c.f.members)] }

// dial begins a connection with its handshake.
func (c *fakeClient) dial() {
	conn := &fakeConn{c: c, m: c.home, dialed: c.f.now(), serverOpen: true, watches: make(map[*fakeWatch]bool)}
	conn.loseWatches = c.failSetWatches
	if !conn.loseWatches {
		for w := range c.watches {
			conn.rearm = append(conn.rearm, w)
		}
		slices.SortFunc(conn.rearm, func(a, b *fakeWatch) int { return int(a.number) - int(b.number) })
	}
	c.conn = conn
	id, seen, timeout := c.cur.id, c.lastZxid, c.f.o.Timeout
	conn.up(func() { conn.handshake(id, seen, timeout) })
}

// connected is the answer to a handshake.
func (c *fakeClient) connected(conn *fakeConn, id session.ID, zxid int64) {
	s := c.cur
	if s.signaled {
		return
	}
	conn.established = true
	c.lastSend, c.lastRecv, c.lastZxid = c.f.now(), c.f.now(), max(c.lastZxid, zxid)
	if conn.loseWatches {
		c.failSetWatches = false
		c.endWatches(recipes.Ended)
	}
	s.set(recipes.Connected, func() { s.id, s.timeout = id, min(s.timeout, c.f.o.timeout()) })
	again, pending := c.inflight, c.pending
	c.inflight, c.pending = nil, nil
	for _, k := range slices.Concat(again, pending) {
		c.send(k)
	}
	c.schedule()
}

// refused is the answer that the session is not known any more.
func (c *fakeClient) refused(conn *fakeConn) {
	conn.closeByClient()
	c.cur.end(recipes.ErrSessionExpired)
}

// disconnected is the loss of a connection: calls and watches take it as the flavour has
// it, then another is made.
func (c *fakeClient) disconnected(conn *fakeConn) {
	if c.conn != conn {
		return
	}
	c.conn = nil
	if !conn.established && !conn.moved {
		c.goNext()
	}
	c.dialAt = c.f.now() + c.f.o.Reconnect + c.f.latency() - c.f.o.RTT/2
	s := c.cur
	if s.signaled {
		return // finish tells all that is left
	}
	if s.ID() != 0 && conn.established {
		s.set(recipes.Suspended, nil)
		if !c.f.o.Exact {
			c.endWatches(recipes.Gap)
			inflight := c.inflight
			c.inflight = nil
			for _, k := range inflight {
				k.finish(k.lost("the connection broke"))
			}
		}
	}
	c.schedule()
}

// endWatches tells all watches the same and ends them.
func (c *fakeClient) endWatches(e recipes.EventKind) {
	watches := make([]*fakeWatch, 0, len(c.watches))
	for w := range c.watches {
		watches = append(watches, w)
	}
	slices.SortFunc(watches, func(a, b *fakeWatch) int { return int(a.number) - int(b.number) })
	for _, w := range watches {
		w.fire(e)
	}
}

// Session implements recipes.Store.
func (c *fakeClient) Session() recipes.Session {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	return c.cur
}

// Close implements recipes.Store.
func (c *fakeClient) Close() error {
	c.gate()
	c.f.mu.Lock()
	c.closing = true
	s := c.cur
	s.end(recipes.ErrSessionClosed)
	c.f.mu.Unlock()
	<-s.stopped
	c.f.mu.Lock()
	free := !c.freed
	c.freed = true
	c.f.mu.Unlock()
	if free {
		c.f.release()
	}
	return nil
}

// goodbyeWait bounds how long a closing client waits for the leader.
const goodbyeWait = time.Second

// goodbye ends a session that is to be closed at the leader too, if it can.
func (c *fakeClient) goodbye(why error) {
	if !errors.Is(why, recipes.ErrSessionClosed) {
		return
	}
	done := make(chan struct{})
	c.f.mu.Lock()
	conn := c.conn
	ready := conn != nil && conn.established
	if ready {
		conn.up(func() { conn.farewell(done) })
	}
	c.f.mu.Unlock()
	if !ready {
		return
	}
	timer := time.NewTimer(goodbyeWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// farewell is the arrival of a request to end the session.
func (conn *fakeConn) farewell(done chan struct{}) {
	if !conn.serverOpen || !conn.m.reaches() {
		return
	}
	s := conn.s
	conn.c.f.endSession(s, false)
	conn.down(func() {})
	conn.c.f.at(conn.downLast, func() { close(done) })
}

// finish makes the end of a session known, fails what was asked in it and begins the
// next one.
func (c *fakeClient) finish(s *fakeSession, why error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if c.conn != nil && !c.conn.clientClosed {
		c.conn.closeByClient()
	}
	c.conn = nil
	s.set(recipes.Over, func() { s.err = why })
	close(s.done)
	c.endWatches(recipes.Ended)
	calls := slices.Concat(c.inflight, c.pending)
	c.inflight, c.pending = nil, nil
	for _, k := range calls {
		if k.sent && k.op != nil {
			k.finish(errors.Join(recipes.ErrUncertain, why))
		} else {
			k.finish(why)
		}
	}
	if !c.f.o.Exact {
		c.lastZxid = 0
	}
	if !c.closing {
		c.begin(c.f.o.Reconnect)
	}
}

// gate waits while the process is paused.
func (c *fakeClient) gate() {
	for {
		c.f.mu.Lock()
		resumed, paused := c.resumed, c.pauses > 0
		c.f.mu.Unlock()
		if !paused {
			return
		}
		<-resumed
	}
}

// do performs a call in session s, nil being the present one.
func (c *fakeClient) do(ctx context.Context, s *fakeSession, k *call) error {
	c.gate()
	k.done = make(chan struct{})
	c.f.mu.Lock()
	if s == nil {
		s = c.cur
	}
	switch over := s.Err(); {
	case over != nil:
		c.f.mu.Unlock()
		return over
	case ctx.Err() != nil:
		c.f.mu.Unlock()
		return ctx.Err()
	case c.conn != nil && c.conn.established && !s.signaled:
		c.send(k)
	default:
		c.pending = append(c.pending, k)
	}
	c.f.mu.Unlock()
	select {
	case <-k.done:
	case <-ctx.Done():
		c.abandon(k, ctx.Err())
	}
	c.gate()
	return k.err
}

// send sends a call on the present connection.
func (c *fakeClient) send(k *call) {
	if !k.sent {
		k.sent, k.sentAt = true, time.Now()
	}
	c.lastSend = c.f.now()
	c.inflight = append(c.inflight, k)
	conn := c.conn
	conn.up(func() { conn.receive(k) })
}

// abandon ends the wait for a call, unless its answer came just now.
func (c *fakeClient) abandon(k *call, cause error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if k.finished {
		return
	}
	k.abandoned = true
	if !k.sent {
		c.pending = slices.DeleteFunc(c.pending, func(o *call) bool { return o == k })
		k.finish(cause)
		return
	}
	if k.op != nil {
		cause = fmt.Errorf("%w: %w", recipes.ErrUncertain, cause)
	}
	k.finish(cause)
}

// answered is the arrival of an answer.
func (c *fakeClient) answered(k *call, zxid int64) {
	c.lastZxid = max(c.lastZxid, zxid)
	c.inflight = slices.DeleteFunc(c.inflight, func(o *call) bool { return o == k })
	if w := k.got.watch; w != nil {
		if k.abandoned {
			w.end()
		} else {
			c.watches[w] = true
		}
	}
	k.finish(nil)
}
