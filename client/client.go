package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
)

// codec is the only encoding that the client speaks.
var codec wire.ClientCodec = wire.Jute{}

// Client holds one session after the other. It is safe for concurrent use.
//
// One goroutine runs for the life of the client and makes one connection at a time;
// each connection has a reader and a writer, which that goroutine waits for.
type Client struct {
	o         Options
	endpoints []endpoint
	chroot    string

	session atomic.Pointer[Session] // written with mu held
	cancel  context.CancelFunc
	stopped chan struct{} // closed when run has returned

	// calls are those that nobody refers to. It is not global because a channel must not
	// leave the synctest bubble of its client.
	calls sync.Pool

	// opened gets the first session's success, or why there will be none.
	opened chan error

	// mu guards all below, the fields of sessions and calls that say so, and watches.
	// Nothing blocks while it is held.
	mu sync.Mutex
	// queue holds what is to be sent, inflight what was sent on conn, both in order.
	// inflight is bounded by Options.Window and what each connection adds by itself,
	// queue by the number of callers that wait.
	queue, inflight fifo[*call]
	withdrawn       int // in queue
	conn            *conn
	xid             int32 // last one used on conn
	seq             int64 // last one given to a write of the session
	acked           int64 // highest answered one. Invariant: all below are answered too
	zxid            int64 // highest of a reply: all events up to it have come
	auth            []Auth
	watches         watches
	closing         error // why no new call is taken; nil while open
	lastErr         error // of the last attempt or connection
	stats           Stats
}

// Stats counts what the client did since Connect, for tools.
type Stats struct {
	Connects int64 // connections that had a session
	Resumes  int64 // of these, with the session of the one before
	Expiries int64 // sessions that ended without Close
	Resent   int64 // requests sent again after a reconnect
	Requests int64 // calls made
}

// Connect opens a session. It tries until ctx ends; the error then wraps the last cause
// and names the address tried. It fails at once if an identity of Options.Auth is
// refused, and as soon as every endpoint has proved to be a mistake that no waiting heals:
// TLS to a plain port or the reverse, a certificate that is not to be trusted or of
// another name, a port that is no HTTP server or not Tenure's. The error then names each
// endpoint with its cause. ctx does not bound the life of the client. Once there was a
// session such mistakes are as transient as all else: the client tries on.
func Connect(ctx context.Context, o Options) (*Client, error) {
	o, eps, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(eps), func(i, j int) { eps[i], eps[j] = eps[j], eps[i] })
	c := &Client{
		o: o, endpoints: eps, chroot: eps[0].chroot, auth: o.Auth,
		stopped: make(chan struct{}), opened: make(chan error, 1),
	}
	c.watches.init(c)
	c.session.Store(newSession(c))
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	go c.run(runCtx)
	select {
	case err = <-c.opened:
		if err == nil {
			return c, nil
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.mu.Lock()
	why := []error{err}
	if c.lastErr != nil && !errors.Is(err, c.lastErr) {
		why = append(why, c.lastErr)
	}
	c.mu.Unlock()
	c.stop(ErrClosed, true)
	return nil, &callError{op: "connect", why: why}
}

// closeWait bounds how long Close waits for the server to end the session.
const closeWait = 900 * time.Millisecond

// Close ends the session, so that its ephemerals go at once, and waits for all
// goroutines. Calls that were not sent yet fail with ErrClosed; those that were have
// until the session's end is confirmed, and then fail with ErrClosed and, if they are
// writes, ErrUnknown. It takes a second at most, also without a server, and returns an
// error if the server did not confirm: the session's ephemerals then stay until it
// expires. A second call waits for the first and returns nil.
func (c *Client) Close() error { return c.stop(ErrClosed, true) }

// Detach closes the client without ending the session: its ephemerals stay until it
// expires. Pending calls end as with Close.
func (c *Client) Detach() error { return c.stop(errDetached, false) }

func (c *Client) stop(why error, end bool) error {
	c.mu.Lock()
	if c.closing != nil {
		c.mu.Unlock()
		<-c.stopped
		return nil
	}
	c.closing = why
	c.failUnsent(why)
	var bye *call
	s := c.session.Load()
	if end && s.id != 0 && s.state != Over {
		bye = c.newCall("close", "", wire.OpCloseSession, nil)
		bye.session = s
		c.queue.push(bye)
	}
	cn := c.conn
	c.mu.Unlock()
	var err error
	if bye != nil {
		if cn != nil {
			cn.wakeUp()
		}
		timer := time.NewTimer(closeWait)
		select {
		case <-bye.done:
			_, err = bye.outcome()
		case <-timer.C:
			_, err = c.abandon(bye, fmt.Errorf("not confirmed within %v: %w", closeWait, context.DeadlineExceeded))
		}
		timer.Stop()
	}
	c.cancel()
	<-c.stopped
	return err
}

// failUnsent needs mu. What was sent on an earlier connection stays.
func (c *Client) failUnsent(why error) {
	for _, cl := range c.queue.drain() {
		switch {
		case cl.state == callWithdrawn:
		case cl.everSent || cl.bound:
			c.queue.push(cl)
		default:
			cl.fail(cl.error(ErrUnavailable, why))
		}
	}
	c.withdrawn = 0
}

// Session returns the current session. After an expiry a new one, still Connecting,
// takes its place at once; after Close it stays the last one, which is Over.
func (c *Client) Session() *Session { return c.session.Load() }

// Stats returns what was counted so far.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// endSession ends the current session with the error why, and everything that is
// pending in it. Unless the client is closing, a new session takes its place. Only
// run calls it, while there is no connection.
func (c *Client) endSession(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.session.Load()
	if s.state == Over {
		return
	}
	if c.closing == nil {
		c.stats.Expiries++
		c.session.Store(newSession(c))
	}
	pending := append(c.inflight.drain(), c.queue.drain()...)
	c.withdrawn, c.seq, c.acked = 0, 0, 0
	for _, cl := range pending {
		switch {
		case cl.state == callWithdrawn:
		case cl.req.Op == wire.OpCloseSession && !isClosed(why):
			cl.finish(&wire.Reply{Op: wire.OpCloseSession}) // it is gone: what was asked for
		case !cl.everSent:
			cl.fail(cl.error(ErrUnavailable, why))
		case cl.write:
			cl.fail(cl.error(ErrUnknown, why))
		default:
			cl.fail(cl.error(why))
		}
	}
	c.watches.end(why)
	s.err = why
	s.setState(Over)
	close(s.done)
}

// attach makes cn, which has just been given a session, the connection: first the
// identities are presented, then the watches, then what waits for an answer.
func (c *Client) attach(cn *conn, rep *wire.ConnectReply, sent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := cn.s
	c.stats.Connects++
	if s.id != 0 {
		c.stats.Resumes++
	}
	s.id, s.password = rep.Session, rep.Password
	s.timeout = time.Duration(rep.TimeoutMs) * time.Millisecond
	s.prove(Proof{Sent: sent, TTL: s.timeout})
	cn.setTimeout(s.timeout)
	rest := c.queue.drain()
	for _, a := range c.auth {
		cl := newBound(wire.OpAuth, &wire.Auth{Scheme: a.Scheme, Data: []byte(a.Secret)})
		cl.settle = func(rep *wire.Reply, _ bool) { cn.authenticated(a, rep) }
		c.queue.push(cl)
	}
	for _, w := range c.watches.resume(c.zxid) {
		cl := newBound(wire.OpRewatch, w)
		cl.size = len(codec.AppendRequest(nil, &cl.req))
		cl.settle = func(rep *wire.Reply, _ bool) { cn.rewatched(rep) }
		c.queue.push(cl)
	}
	for _, cl := range rest {
		c.queue.push(cl)
	}
	c.conn, c.xid = cn, 0
	s.setState(Connected)
	if len(c.auth) == 0 {
		c.reportOpened(nil)
	}
}

// reportOpened needs mu or its like: the first report wins, later ones are dropped.
func (c *Client) reportOpened(err error) {
	select {
	case c.opened <- err:
	default:
	}
}

// suspend takes the lost connection away and puts what it left unanswered back into
// the queue: first the writes, then the reads, then what was never sent.
func (c *Client) suspend(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.session.Load()
	c.conn, c.lastErr = nil, err
	s.lostAt = time.Now()
	s.setState(Suspended)
	c.watches.suspend()
	var writes, reads, fresh []*call
	for _, cl := range append(c.inflight.drain(), c.queue.drain()...) {
		switch {
		case cl.state == callWithdrawn:
		case cl.bound || cl.abandoned && !cl.write:
			cl.finish(nil)
		case !cl.everSent:
			fresh = append(fresh, cl)
		case cl.write:
			writes = append(writes, cl)
		default:
			reads = append(reads, cl)
		}
	}
	c.withdrawn = 0
	for _, list := range [][]*call{writes, reads, fresh} {
		for _, cl := range list {
			cl.state = callQueued
			c.queue.push(cl)
		}
	}
}

// connectRequest returns what to present for session s.
func (c *Client) connectRequest(s *Session) wire.ConnectRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	req := wire.ConnectRequest{
		LastZxid:  max(c.zxid, c.watches.lastEvent),
		TimeoutMs: int32(c.o.Timeout.Milliseconds()),
		Session:   s.id,
	}
	if s.id != 0 {
		req.Password = append([]byte(nil), s.password[:]...)
	} else {
		req.Password = make([]byte, session.PasswordSize)
	}
	return req
}
