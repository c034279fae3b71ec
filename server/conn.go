package server

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/watch"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// door is what differs between the protocols of a connection: how a message is
// framed on the socket. The socket's reader and the worker use it, each alone.
type door interface {
	// Next returns the next message; it is valid until the next call.
	Next() ([]byte, error)
	// Write sends a run of messages, each behind its length in 4 bytes.
	Write(run []byte) error
	// Opened tells that the handshake is done: its deadline no longer holds.
	Opened()
	// Ping sends what keeps proxies from cutting an idle connection.
	Ping() error
	// Close says why, if it can, and makes Next fail soon. The worker's last call.
	Close(why closeReason)
	// Finish lets go of the socket. The reader's last call, behind Close.
	Finish()
	// Abort closes the socket at once, which ends a Write that is stuck.
	Abort()
}

// closeReason is what a connection is told at its end.
type closeReason struct {
	code int // websocket close code
	text string
}

// conn is one client connection: its requests in order, its outbox, its session.
//
// Order. Replies leave in request order. A read is executed when all requests before
// it are answered, and a write is proposed when all reads before it are answered, so
// that each request sees exactly the session's earlier writes. Runs of writes are
// proposed together, runs of reads executed together.
//
// Goroutines. The reader decodes and pushes calls. Executing, proposing and writing
// to the socket is the work of one goroutine at a time, the worker: the reader itself
// when it is about to block, or a goroutine started when apply or a barrier has
// brought something to do; none while there is nothing to do.
//
// Locks. mu is taken inside the server's state lock, never around it.
type conn struct {
	srv    *Server
	door   door
	codec  wire.ServerCodec
	terms  *terms
	id     watch.Watcher
	remote string

	// ids are the identities of the connection: set by the reader, read at delivery.
	ids  atomic.Pointer[[]znode.Identity]
	live atomic.Pointer[liveSession] // the session, nil before the handshake and after a move
	// admitted: it is a client's, and not for a four-letter word.
	admitted atomic.Bool
	// arrivedAt is when the bytes now being decoded came in. Reader only.
	arrivedAt int64
	share     share // of what is outstanding
	// wroteAt is when something was last written, for keep-alives.
	wroteAt atomic.Int64
	began   time.Time
	stats   connStats

	mu struct {
		sync.Mutex
		queue    callQueue
		inFlight int     // how many calls at the head are callProposed
		out      *[]byte // the outbox: messages, each behind its length; nil if empty
		read     int     // how many bytes of it answer reads
		working  bool
		barrier  bool // a barrier is on its way
		ping     bool // a keep-alive is due
		space    *sync.Cond
		// closing is set once the connection is to end: nothing more is executed or
		// proposed, the outbox is still written.
		closing *closeReason
		closed  bool
	}
}

func newConn(s *Server, d door, codec wire.ServerCodec, remote string, ids []znode.Identity) *conn {
	c := &conn{srv: s, door: d, codec: codec, id: watch.Watcher(s.lastConn.Add(1)), remote: remote, began: time.Now()}
	c.ids.Store(&ids)
	c.wroteAt.Store(s.now())
	return c
}

// sessionID is the connection's session, 0 if it has none.
func (c *conn) sessionID() session.ID {
	if l := c.live.Load(); l != nil {
		return l.ID
	}
	return 0
}

// owner is the connection as the replicated state knows it.
func (c *conn) owner() session.Owner {
	return session.Owner{Origin: c.srv.origin.Load(), Bind: uint64(c.id)}
}

// push queues a decoded call and blocks while the connection has too much in flight.
func (c *conn) push(k *call) {
	if !c.srv.outstanding.tryAcquire(k.size(), &c.share) {
		c.workInline() // what is awaited may be in the connection's own queue
		c.srv.outstanding.acquire(k.size(), &c.share)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.mu.queue.len() >= c.srv.cfg.MaxOutstanding && c.mu.closing == nil {
		if !c.mu.working {
			c.mu.working = true
			c.mu.Unlock()
			c.work()
			c.mu.Lock()
			continue
		}
		c.waitLocked()
	}
	if c.mu.closing != nil {
		c.srv.outstanding.release(k.size(), &c.share)
		return
	}
	c.mu.queue.push(k)
}

// kick makes sure that a worker looks at the connection.
func (c *conn) kick() {
	c.mu.Lock()
	start := c.startLocked()
	c.mu.Unlock()
	if start {
		c.srv.spawn(c)
	}
}

// startLocked claims the worker's place if it is free; the caller then must run work.
func (c *conn) startLocked() bool {
	if c.mu.working || c.mu.closed {
		return false
	}
	c.mu.working = true
	return true
}

// workInline is kick for the reader, which is about to block anyway.
func (c *conn) workInline() {
	c.mu.Lock()
	start := c.startLocked()
	c.mu.Unlock()
	if start {
		c.work()
	}
}

// work executes, proposes and writes until there is nothing to do. The caller has
// set working.
func (c *conn) work() {
	c.mu.Lock()
	for {
		if c.mu.closing == nil && c.advanceLocked() {
			continue
		}
		if c.writeLocked() {
			continue
		}
		break
	}
	c.mu.queue.release()
	if closing := c.mu.closing; closing != nil && !c.mu.closed {
		c.mu.Unlock()
		c.door.Close(*closing)
		c.mu.Lock()
		c.mu.closed = true
	}
	c.mu.working = false
	c.broadcastLocked()
	c.mu.Unlock()
}

// broadcastLocked wakes the reader if it waits: for space, or for the worker's end.
func (c *conn) broadcastLocked() {
	if c.mu.space != nil {
		c.mu.space.Broadcast()
	}
}

// waitLocked waits for a broadcast.
func (c *conn) waitLocked() {
	if c.mu.space == nil {
		c.mu.space = sync.NewCond(&c.mu.Mutex)
	}
	c.mu.space.Wait()
}

// advanceLocked does the next thing that the head of the queue allows and reports
// whether it did something. It may release and retake the lock.
func (c *conn) advanceLocked() bool {
	if c.mu.queue.len() == 0 {
		return false
	}
	head := c.mu.queue.at(0)
	switch {
	case head.state == callProposed, head.isWrite():
		return c.proposeLocked()
	case head.consults():
		return c.consultLocked(head)
	case !head.needsBarrier() || head.cleared || c.srv.rep.BarrierNow():
		if head.req.Op == wire.OpRewatch && head.reply == nil {
			c.rewatchLocked(head)
		} else {
			c.readLocked()
		}
		return true
	case !c.mu.barrier:
		c.barrierLocked()
		return true
	}
	return false
}

// proposeLocked proposes the writes that follow those already proposed. Propose never
// blocks, so it may be called under the lock.
func (c *conn) proposeLocked() bool {
	q := &c.mu.queue
	first := c.mu.inFlight
	if first > 0 && q.at(first-1).connect != nil {
		return false // the session is not known yet
	}
	var batch []*call
	for i := first; i < q.len() && q.at(i).isWrite(); i++ {
		batch = append(batch, q.at(i))
		if q.at(i).connect != nil {
			break
		}
	}
	if len(batch) == 0 {
		return false
	}
	if err := c.srv.propose(batch); err != nil {
		c.closeLocked(closeReason{closeTryAgain, err.Error()})
		return false
	}
	c.mu.inFlight += len(batch)
	return true
}

// barrierLocked asks for a read barrier on behalf of the reads now at the head.
func (c *conn) barrierLocked() {
	var waiting []*call
	for i := 0; i < c.mu.queue.len() && !c.mu.queue.at(i).isWrite(); i++ {
		waiting = append(waiting, c.mu.queue.at(i))
	}
	c.mu.barrier = true
	c.srv.metrics.barriers(1)
	c.mu.Unlock()
	c.srv.rep.Barrier(func(err error) {
		c.mu.Lock()
		c.mu.barrier = false
		for _, k := range waiting {
			k.cleared = err == nil
		}
		if err != nil {
			c.closeLocked(closeReason{closeTryAgain, err.Error()})
		}
		start := c.startLocked()
		c.mu.Unlock()
		if start {
			c.srv.spawn(c)
		}
	})
	c.mu.Lock()
}

// writeLocked writes the outbox to the socket and reports whether there was anything.
func (c *conn) writeLocked() bool {
	run, ping := c.mu.out, c.mu.ping
	if run == nil && !ping || c.mu.closed {
		return false
	}
	c.mu.out, c.mu.read, c.mu.ping = nil, 0, false
	c.mu.Unlock()
	var err error
	if run != nil {
		c.srv.outboxBytes.Add(-int64(len(*run)))
		err = c.door.Write(*run)
		putBuffer(run)
	} else {
		err = c.door.Ping()
	}
	c.wroteAt.Store(c.srv.now())
	c.mu.Lock()
	if err != nil {
		if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
			c.srv.metrics.slowConsumer()
		}
		c.closeLocked(closeReason{closeGoingAway, "write: " + err.Error()})
		c.dropOutLocked()
	}
	return true
}

func (c *conn) dropOutLocked() {
	if c.mu.out != nil {
		c.srv.outboxBytes.Add(-int64(len(*c.mu.out)))
		putBuffer(c.mu.out)
		c.mu.out, c.mu.read = nil, 0
	}
}

// closeLocked makes the worker end the connection behind what is in the outbox.
func (c *conn) closeLocked(why closeReason) {
	if c.mu.closing == nil {
		c.mu.closing = &why
		c.broadcastLocked()
		c.srv.outstanding.abandon(&c.share)
	}
}

// close ends the connection behind what is in the outbox. It never blocks.
func (c *conn) close(why closeReason) {
	c.mu.Lock()
	c.closeLocked(why)
	start := c.startLocked()
	c.mu.Unlock()
	if start {
		c.srv.spawn(c)
	}
}

// account closes the books on a call that was answered.
func (c *conn) account(k *call, code znode.Error) {
	now := c.srv.now()
	c.srv.outstanding.release(k.size(), &c.share)
	c.srv.metrics.observe(k.req.Op, code, now-k.start)
	c.countAnswered(k, now)
}

// popLocked takes the answered head off the queue.
func (c *conn) popLocked() {
	if c.mu.space != nil {
		c.mu.space.Signal()
	}
	c.mu.queue.pop()
}

// appendLocked appends one message behind its length to the outbox and returns its size.
func (c *conn) appendLocked(encode func([]byte) []byte) int {
	if c.mu.closed {
		return 0
	}
	if c.mu.out == nil {
		c.mu.out = writeBuffers.Get().(*[]byte)
	}
	before := len(*c.mu.out)
	*c.mu.out = appendMessage(*c.mu.out, encode)
	c.srv.outboxBytes.Add(int64(len(*c.mu.out) - before))
	size := len(*c.mu.out) - before - lengthBytes
	c.countSent(size)
	return size
}

// lengthBytes is what the length before a message takes.
const lengthBytes = 4

// appendMessage appends one message behind its length.
func appendMessage(b []byte, encode func([]byte) []byte) []byte {
	at := len(b)
	b = encode(append(b, 0, 0, 0, 0))
	n := len(b) - at - 4
	b[at], b[at+1], b[at+2], b[at+3] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
	return b
}

// event tells the connection of a change. Called under the state lock (exclusive by
// apply, shared by a rewatch of its own). It reports whether the connection must be
// kicked afterwards.
func (c *conn) event(e *wire.Event) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closing != nil {
		return false
	}
	size := c.appendLocked(func(b []byte) []byte { return c.codec.AppendEvent(b, e) })
	c.srv.traffic.eventBytes.Add(int64(size))
	if len(*c.mu.out)-c.mu.read > c.srv.cfg.OutboxBytes {
		c.overflowLocked()
	}
	return true
}

// overflowLocked ends a connection whose peer does not read. Its session lives on and
// resumes from the last zxid that it saw.
func (c *conn) overflowLocked() {
	c.closeLocked(closeReason{closePolicy, "outbox full: the client does not read its events"})
	c.dropOutLocked()
	c.srv.metrics.slowConsumer()
	if c.mu.working {
		c.door.Abort() // the worker is stuck in Write
	}
}

// completed answers a write. Called by apply under the exclusive state lock, in log
// order, which for one connection is the order of its queue.
func (c *conn) completed(k *call, r *wire.Reply, end *closeReason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.inFlight == 0 || c.mu.queue.at(0) != k {
		panic("server: a write was answered out of order")
	}
	c.popLocked()
	c.mu.inFlight--
	code := znode.OK
	if r != nil {
		code = r.Err
		if c.mu.closing == nil {
			c.appendLocked(func(b []byte) []byte { return c.codec.AppendReply(b, r) })
		}
	}
	c.account(k, code)
	if end != nil {
		c.closeLocked(*end)
	}
}
