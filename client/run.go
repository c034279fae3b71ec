package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

const (
	backoffMin   = 50 * time.Millisecond
	backoffMax   = 1200 * time.Millisecond // per endpoint: below one attempt a second on average
	attemptMin   = 500 * time.Millisecond
	confirmAfter = time.Second // a connection that lives so long was a real one
	logEvery     = time.Minute
)

// backoff spaces attempts. It is reset by a confirmed session only: a server that
// accepts and closes again (an ensemble without a leader) must not be hammered. Only
// run uses it.
type backoff struct{ failures int }

// next returns how long to wait before the next attempt: little until all n endpoints
// have had their turn, then doubled with each round; and jittered by half of it either
// way.
func (b *backoff) next(n int) time.Duration {
	b.failures++
	d := backoffMin
	if b.failures%n == 0 {
		d = min(backoffMax*time.Duration(n), backoffMin<<min(b.failures/n-1, 10))
	}
	return d/2 + rand.N(d)
}

// run makes one connection after the other until ctx ends.
func (c *Client) run(ctx context.Context) {
	defer close(c.stopped)
	var b backoff
	var logged time.Time
	wrong := mistakes{}
	for i := 0; ; i++ {
		s := c.session.Load()
		if s.State() == Over { // only while closing: there is no successor
			<-ctx.Done()
			break
		}
		if i%len(c.endpoints) == 0 && i > 0 {
			c.reshuffle()
		}
		ep := c.endpoints[i%len(c.endpoints)]
		err := c.attempt(ctx, s, ep, &b)
		if ctx.Err() != nil {
			break
		}
		if why := wrong.note(ep, err, c.endpoints); why != nil {
			c.reportOpened(why) // which only Connect is told
		}
		if time.Since(logged) >= logEvery || b.failures == 0 {
			logged = time.Now()
			c.o.Log.Warn("no connection", "endpoint", ep.name, "session", s.ID(), "failures", b.failures, "err", err)
		}
		if c.sessionEnded(s, err) {
			continue
		}
		if !c.pause(ctx, s, b.next(len(c.endpoints))) {
			break
		}
	}
	c.endSession(c.closeReason())
}

// reshuffle makes the order of the next round, in which what was tried last is not the first.
func (c *Client) reshuffle() {
	eps := c.endpoints
	last := eps[len(eps)-1]
	swap := func(i, j int) { eps[i], eps[j] = eps[j], eps[i] }
	rand.Shuffle(len(eps), swap)
	if eps[0] == last {
		swap(0, len(eps)-1)
	}
}

// attempt connects to ep and serves the connection until it is lost.
func (c *Client) attempt(ctx context.Context, s *Session, ep endpoint, b *backoff) error {
	cn, err := c.connect(ctx, s, ep, c.attemptLimit(s, b.failures))
	if err != nil {
		c.mu.Lock()
		c.lastErr = err
		c.mu.Unlock()
		return err
	}
	c.o.Log.Debug("connected", "endpoint", ep.name, "session", s.ID(), "timeout", s.Timeout())
	since := time.Now()
	err = cn.serve(ctx)
	if cn.confirmed.Load() || time.Since(since) >= confirmAfter {
		b.failures = 0
	}
	c.suspend(err)
	if isTooBig(err) {
		c.refuseLargest(err)
	}
	return err
}

// attemptLimit returns how long one attempt may take: a share of the third of the
// timeout that is left when a silent server is given up, so that all endpoints get
// their turn, but longer each round in case they are all slow. An open session bounds
// it by its own end.
func (c *Client) attemptLimit(s *Session, failures int) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.endpoints)
	limit := max(s.timeout/time.Duration(3*n), attemptMin) << min(failures/n, 4)
	limit = min(limit, max(s.timeout, attemptMin))
	if s.id != 0 {
		limit = min(limit, max(time.Until(s.overAt()), time.Millisecond))
	}
	return limit
}

// pause waits for d, or until the session is over, and then ends it. It returns false
// when ctx ends.
func (c *Client) pause(ctx context.Context, s *Session, d time.Duration) bool {
	c.mu.Lock()
	if s.id != 0 {
		d = min(d, max(time.Until(s.overAt()), 0))
	}
	c.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		c.sessionEnded(s, nil)
		return true
	case <-ctx.Done():
		return false
	}
}

// sessionEnded ends s if the server has said in err that it is over, or if no server
// was found in time.
func (c *Client) sessionEnded(s *Session, err error) bool {
	c.mu.Lock()
	id, over, last := s.id, s.id != 0 && !time.Now().Before(s.overAt()), c.lastErr
	c.mu.Unlock()
	switch {
	case id == 0 || s.State() == Over:
		return false
	case errors.Is(err, errRefused), errors.Is(err, znode.SessionExpired):
		c.endSession(fmt.Errorf("client: session %v: %w", id, znode.SessionExpired))
	case over:
		c.endSession(fmt.Errorf("client: session %v: %w by the local clock: %w", id, znode.SessionExpired, last))
		// The next session is a new start: what this client has seen need not be in the
		// history of a server that lost its data.
		c.mu.Lock()
		c.zxid, c.watches.lastEvent = 0, 0
		c.mu.Unlock()
	default:
		return false
	}
	c.o.Log.Warn("session over", "session", id, "err", s.Err())
	return true
}

func (c *Client) closeReason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

// refuseLargest fails the largest request that waits to be sent again: it is what the
// server has just refused to read, and would refuse for ever. If it is a numbered write
// a transaction of nothing takes its place, as the numbers behind it count on it.
func (c *Client) refuseLargest(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pending := c.queue.drain()
	var largest *call
	for _, cl := range pending {
		if cl.everSent && cl.size > 0 && (largest == nil || cl.size > largest.size) {
			largest = cl
		}
	}
	for _, cl := range pending {
		switch {
		case cl != largest:
			c.queue.push(cl)
		case cl.write && cl.req.Seq > 0:
			c.queue.push(placeholder(cl.req.Seq))
		}
	}
	if largest != nil {
		largest.fail(largest.error(fmt.Errorf("%w: %d bytes", ErrTooLarge, largest.size), why))
	}
}

// placeholder is a write that changes nothing and uses up seq.
func placeholder(seq int64) *call {
	return &call{op: wire.OpMulti.String(), req: wire.Request{Op: wire.OpMulti, Seq: seq, Body: &znode.Multi{}},
		write: true, everSent: true, abandoned: true}
}

// isClosed reports whether a session ended because its client was closed.
func isClosed(err error) bool { return errors.Is(err, ErrClosed) }
