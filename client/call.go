package client

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// callState is where a call is. It is guarded by Client.mu.
type callState uint8

const (
	callQueued    callState = iota // waits to be sent, or to be sent again
	callSent                       // on the present connection, unanswered
	callWithdrawn                  // given up before it was sent; the queue skips it
	callDone                       // answered or failed
)

// call is one request with whoever waits for its reply.
type call struct {
	req      wire.Request
	op, path string // for errors, as the caller named them

	// write: changes the tree, so it has a Seq and is sent again until answered.
	write bool
	// proves: its reply shows that the expiry authority heard of the session after it
	// was sent. Stale reads and what a member answers by itself prove nothing.
	proves bool
	// bound: belongs to one connection and dies with it (heartbeats, what a resume
	// presents, removals of watches).
	bound bool
	// session is set if the call is about one session and no other.
	session *Session
	// barrier, if set, makes the writer send a ping before the call, whose settle it is.
	barrier func(rep *wire.Reply, wanted bool)
	// settle, if set, runs exactly once, with Client.mu held, in the order of the
	// replies: rep is nil if there is none, wanted is false if nobody waits any more.
	settle func(rep *wire.Reply, wanted bool)

	// Guarded by Client.mu until done.
	state     callState
	everSent  bool
	abandoned bool // nobody waits
	sentAt    time.Time
	size      int // encoded bytes, 0 unless large
	reply     *wire.Reply
	err       error

	done chan struct{} // gets one value if somebody waits
	// seen: the waiter has its outcome, so that nobody else refers to the call any more.
	seen bool
}

func (c *Client) newCall(op, path string, wop wire.Op, body any) *call {
	cl, ok := c.calls.Get().(*call)
	if !ok {
		cl = &call{done: make(chan struct{}, 1)}
	}
	cl.op, cl.path, cl.req.Op, cl.req.Body = op, path, wop, body
	return cl
}

// free lets cl be used again if nobody refers to it. Only the waiter may call it, once
// it needs cl no more.
func (c *Client) free(cl *call) {
	if cl.seen {
		*cl = call{done: cl.done}
		c.calls.Put(cl)
	}
}

// newBound returns a call that nobody waits for and that ends with its connection.
func newBound(op wire.Op, body any) *call {
	return &call{op: op.String(), req: wire.Request{Op: op, Body: body}, bound: true, abandoned: true}
}

// do sends cl and waits for its outcome. A reply with an error code becomes an *Error.
func (c *Client) do(ctx context.Context, cl *call) (*wire.Reply, error) {
	err := ctx.Err()
	if err != nil {
		err = cl.error(ErrUnavailable, err)
	} else {
		err = c.checkSize(cl)
	}
	if err != nil {
		c.mu.Lock()
		cl.fail(err)
		c.mu.Unlock()
		return nil, err
	}
	limit, err := c.submit(cl)
	if err != nil {
		return nil, err
	}
	if limit == 0 {
		select {
		case <-cl.done:
			return cl.outcome()
		case <-ctx.Done():
			return c.abandon(cl, ctx.Err())
		}
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-cl.done:
		return cl.outcome()
	case <-ctx.Done():
		return c.abandon(cl, ctx.Err())
	case <-timer.C:
		return c.abandon(cl, fmt.Errorf("client: no session could be opened in %v", limit))
	}
}

// submit queues cl. While the session is not even open, a call waits for limit at most,
// because no expiry will end it.
func (c *Client) submit(cl *call) (limit time.Duration, err error) {
	c.mu.Lock()
	s := c.session.Load()
	switch {
	case c.closing != nil:
		err = cl.error(ErrUnavailable, c.closing)
	case cl.session != nil && cl.session != s:
		err = cl.error(ErrUnavailable, cl.session.err)
	}
	if err != nil {
		cl.fail(err)
		c.mu.Unlock()
		return 0, err
	}
	if s.state == Connecting {
		limit = s.timeout
	}
	c.stats.Requests++
	c.queue.push(cl)
	cn := c.conn
	full := c.inflight.len() >= c.o.Window
	c.mu.Unlock()
	if cn != nil && !full {
		cn.wakeUp()
	}
	return limit, nil
}

// abandon ends the wait of one caller. A call that was never sent, or a read that is
// not on its way, is withdrawn; everything else keeps its place.
func (c *Client) abandon(cl *call, cause error) (*wire.Reply, error) {
	c.mu.Lock()
	if cl.state == callDone {
		c.mu.Unlock()
		<-cl.done
		return cl.outcome()
	}
	defer c.mu.Unlock()
	why := []error{cause}
	switch {
	case !cl.everSent:
		why = []error{ErrUnavailable, cause}
	case cl.write:
		why = []error{ErrUnknown, cause}
	}
	if c.conn == nil && c.lastErr != nil {
		why = append(why, c.lastErr)
	}
	cl.abandoned = true
	if cl.state == callQueued && !(cl.write && cl.everSent) {
		cl.state = callWithdrawn
		if cl.settle != nil {
			cl.settle(nil, false)
		}
		c.withdrawn++
		c.compactQueue()
	}
	return nil, cl.error(why...)
}

// compactQueue needs mu. It drops withdrawn calls once they are half of the queue, so
// that a long outage with impatient callers does not fill the memory.
func (c *Client) compactQueue() {
	if c.withdrawn < 64 || c.withdrawn < c.queue.len()/2 {
		return
	}
	for _, cl := range c.queue.drain() {
		if cl.state != callWithdrawn {
			c.queue.push(cl)
		}
	}
	c.withdrawn = 0
}

// fail needs Client.mu.
func (cl *call) fail(err error) {
	if cl.state == callDone || cl.state == callWithdrawn {
		return
	}
	cl.err = err
	cl.finish(nil)
}

// finish needs Client.mu.
func (cl *call) finish(rep *wire.Reply) {
	cl.state, cl.reply = callDone, rep
	if cl.settle != nil {
		cl.settle(rep, !cl.abandoned)
	}
	if !cl.abandoned {
		cl.done <- struct{}{} // never blocks: the only value
	}
}

// outcome is called by the waiter after done.
func (cl *call) outcome() (*wire.Reply, error) {
	cl.seen = true
	switch {
	case cl.err != nil:
		return nil, cl.err
	case cl.reply.Err != znode.OK:
		return cl.reply, &Error{Op: cl.op, Path: cl.path, Code: cl.reply.Err, Detail: cl.reply.Detail}
	}
	return cl.reply, nil
}

func (cl *call) error(why ...error) error {
	return &callError{op: cl.op, path: cl.path, why: why}
}

// checkSize refuses a request that is over the limit before it takes a place in the
// window. Small ones are told by a cheap upper bound; for the rest only the real
// encoding will do, because the server counts exactly.
func (c *Client) checkSize(cl *call) error {
	if sizeBound(cl.req.Body) <= min(c.o.RequestBytesMax, sizeCheap) {
		return nil
	}
	req := cl.req
	if cl.write {
		req.Seq, req.Acked = 1, 1
	}
	if size, limit := wire.LargestData(cl.req.Body), wire.DataMax(int64(c.o.RequestBytesMax)); size > limit {
		return cl.error(fmt.Errorf("%w: %d bytes of data are over the limit of %d: read back they must fit into a message of %d",
			ErrTooLarge, size, limit, c.o.RequestBytesMax))
	}
	cl.size = len(codec.AppendRequest(nil, &req))
	if cl.size <= c.o.RequestBytesMax {
		return nil
	}
	return cl.error(fmt.Errorf("%w: %d bytes are over the limit of %d", ErrTooLarge, cl.size, c.o.RequestBytesMax))
}

// sizeCheap is up to where requests are only estimated.
const sizeCheap = 16 << 10

// sizeBound returns at least the encoded size of the requests that are frequent, and
// a huge number for the others.
func sizeBound(body any) int {
	const header = 64 // header, OpWith, fixed fields and length prefixes
	switch b := body.(type) {
	case nil:
		return header
	case *wire.PathWatch:
		return header + len(b.Path)
	case *wire.PathOnly:
		return header + len(b.Path)
	case *wire.List:
		return header + len(b.Path) + len(b.After)
	case *znode.SetData:
		return header + len(b.Path) + len(b.Data)
	case *znode.Delete:
		return header + len(b.Path)
	case *znode.Create:
		n := header + len(b.Path) + len(b.Data)
		for i := range b.ACL {
			n += 12 + len(b.ACL[i].Scheme) + len(b.ACL[i].ID)
		}
		return n
	}
	return 1 << 30
}
