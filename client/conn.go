package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// conn is one connection with its reader and its writer. Fields are set before serve
// unless they say who owns them.
type conn struct {
	c    *Client
	s    *Session
	ws   *websocket.Conn
	t    *transport
	ep   endpoint
	beat time.Duration // longest time between two requests that prove

	wake      chan struct{} // capacity 1: there may be something to write
	pong      atomic.Pointer[string]
	confirmed atomic.Bool // something was answered after the connect

	dead chan struct{} // closed when it is over
	once sync.Once
	err  error // why; read after dead

	authLeft int   // identities without an answer; guarded by c.mu
	refusal  error // of what the resume presented, which ends the connection; likewise

	// The writer's.
	batch   []*call
	buf     []byte
	pings   int           // sent by probe since pingsAt
	pingsAt time.Duration // what t.heard was then
}

func newConn(c *Client, s *Session, ws *websocket.Conn, t *transport, ep endpoint) *conn {
	cn := &conn{c: c, s: s, ws: ws, t: t, ep: ep, wake: make(chan struct{}, 1), dead: make(chan struct{})}
	ws.SetReadLimit(c.o.ReplyBytesMax)
	ws.SetPingHandler(func(data string) error {
		cn.pong.Store(&data) // answered by the writer; of several the last will do
		cn.wakeUp()
		return nil
	})
	ws.SetCloseHandler(func(int, string) error { return nil })
	return cn
}

// setTimeout is called once, when the session's timeout is known and before serve. A
// request that proves is sent each third of it, and a connection that is silent for
// two thirds is given up, which leaves a third to find another server.
func (cn *conn) setTimeout(timeout time.Duration) {
	cn.beat = timeout / 3
	cn.t.silence = timeout * 2 / 3
	cn.t.alive = time.Now()
	cn.t.heard.Store(int64(cn.t.alive.Sub(cn.t.began)))
	cn.authLeft = len(cn.c.auth)
}

func (cn *conn) wakeUp() {
	select {
	case cn.wake <- struct{}{}:
	default:
	}
}

func (cn *conn) close() { cn.t.Conn.Close() }

// fail ends the connection; the first reason is kept.
func (cn *conn) fail(err error) {
	cn.once.Do(func() {
		cn.err = err
		close(cn.dead)
		cn.close()
	})
}

// serve runs the connection until it fails or ctx ends, and returns why.
func (cn *conn) serve(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { cn.fail(cn.readLoop()) })
	wg.Go(func() {
		err := cn.writeLoop()
		// Let the reader find the server's close frame, if there is one: it says why, such
		// as that a message is too big.
		timer := time.NewTimer(lastWordsWait)
		defer timer.Stop()
		select {
		case <-cn.dead:
		case <-timer.C:
			cn.fail(err)
		}
	})
	select {
	case <-cn.dead:
	case <-ctx.Done():
		cn.fail(ErrClosed)
	}
	wg.Wait()
	return &connectError{name: cn.ep.name, err: cn.err}
}

func (cn *conn) writeLoop() error {
	timer := time.NewTimer(cn.beat)
	defer timer.Stop()
	var probes <-chan time.Time
	if len(cn.c.endpoints) > 1 {
		ticker := time.NewTicker(probeEvery)
		defer ticker.Stop()
		probes = ticker.C
	}
	proved := time.Now() // when the last request that proves was sent
	for {
		now := time.Now()
		batch := cn.c.takeBatch(cn, now)
		for _, cl := range batch {
			if cl.proves {
				proved = now
			}
			if err := cn.write(&cl.req); err != nil { // the last use: it may be answered at once
				return err
			}
		}
		if now.Sub(proved) >= cn.beat {
			if err := cn.write(cn.c.takeHeartbeat(now)); err != nil {
				return err
			}
			proved = now
		}
		if data := cn.pong.Swap(nil); data != nil {
			if err := cn.ws.WriteControl(websocket.PongMessage, []byte(*data), now.Add(cn.t.silence)); err != nil {
				return err
			}
		}
		if err := cn.t.flush(); err != nil {
			return err
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-cn.wake:
			// The reader has often readied many callers at once, and the first of them has
			// woken this goroutine. Let the others queue theirs: one write then takes all.
			runtime.Gosched()
		case <-timer.C:
			timer.Reset(max(time.Millisecond, cn.beat-time.Since(proved)))
		case <-probes:
			if err := cn.probe(); err != nil {
				return err
			}
		case <-cn.dead:
			return cn.err
		}
	}
}

// probe asks a server that owes an answer whether it runs at all: a pong needs neither the
// log nor a leader. Where there are other servers, one that leaves several pings unanswered is
// given up long before two thirds of the session timeout have passed. It counts pings and not time: if
// this process stood still, or had nothing to ask, that says nothing of the server.
func (cn *conn) probe() error {
	heard := time.Duration(cn.t.heard.Load())
	if heard != cn.pingsAt {
		cn.pings, cn.pingsAt = 0, heard
	}
	silent := time.Since(cn.t.began) - heard
	if silent < probeEvery {
		return nil
	}
	requests, bytes := cn.c.owed()
	// Pings come behind what is on its way already.
	patience := probePatience + time.Duration(bytes)*time.Second/slowLink
	switch waited := time.Duration(cn.pings) * probeEvery; {
	case requests == 0:
		return nil
	case waited >= patience:
		return fmt.Errorf("%w: not even a ping was answered for %v", errSilent, waited)
	}
	cn.pings++
	return cn.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(cn.t.silence))
}

// owed returns how many requests wait for their answers, and the bytes of the large ones.
func (c *Client) owed() (requests, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.inflight.len() {
		bytes += c.inflight.at(i).size
	}
	return c.inflight.len(), bytes
}

func (cn *conn) write(req *wire.Request) error {
	cn.buf = codec.AppendRequest(cn.buf[:0], req)
	err := cn.ws.WriteMessage(websocket.BinaryMessage, cn.buf)
	if cap(cn.buf) > bufferKept {
		cn.buf = nil
	}
	return err
}

const (
	bufferKept = 1 << 20 // a buffer that has grown beyond is not kept
	batchMax   = 256     // requests encoded between two flushes at most
	pingXid    = -2      // ZooKeeper's: a ping is answered with it whatever it had

	lastWordsWait = 200 * time.Millisecond

	// probeEvery is after how much silence a server is asked whether it runs, and how often
	// then; probePatience is how long it may leave that unanswered, on a link that carries
	// slowLink bytes per second.
	probeEvery    = 400 * time.Millisecond
	probePatience = 800 * time.Millisecond
	slowLink      = 128 << 10
)

// takeBatch moves what may be sent from the queue to inflight and returns it. now was
// read before, so it is a time before each of them is written.
func (c *Client) takeBatch(cn *conn, now time.Time) []*call {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch := cn.batch[:0]
	for c.queue.len() > 0 && c.inflight.len() < c.o.Window && len(batch) < batchMax {
		cl := c.queue.pop()
		if cl.state == callWithdrawn {
			c.withdrawn--
			continue
		}
		if cl.barrier != nil {
			ping := newBound(wire.OpPing, nil)
			ping.settle = cl.barrier
			batch = append(batch, c.send(ping, pingXid, now))
		}
		if cl.write {
			if cl.req.Seq == 0 {
				c.seq++
				cl.req.Seq = c.seq
			}
			cl.req.Acked = c.acked
		}
		if c.xid == 1<<31-1 {
			c.xid = 0
		}
		c.xid++
		batch = append(batch, c.send(cl, c.xid, now))
	}
	cn.batch = batch
	return batch
}

// send needs mu. It notes that cl is about to be written.
func (c *Client) send(cl *call, xid int32, now time.Time) *call {
	if cl.everSent {
		c.stats.Resent++
	}
	cl.req.Xid, cl.sentAt = xid, now
	cl.state, cl.everSent = callSent, true
	c.inflight.push(cl)
	return cl
}

func (c *Client) takeHeartbeat(now time.Time) *wire.Request {
	ping := newBound(wire.OpPing, nil)
	ping.proves = true
	c.mu.Lock()
	defer c.mu.Unlock()
	return &c.send(ping, pingXid, now).req
}

func (cn *conn) readLoop() error {
	c := cn.c
	var buf []byte
	// Replies come in the order of the requests, so only the oldest can be answered.
	opOf := func(xid int32) (wire.Op, bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.inflight.len() == 0 || c.inflight.front().req.Xid != xid {
			return 0, false
		}
		return c.inflight.front().req.Op, true
	}
	for {
		kind, r, err := cn.ws.NextReader()
		if err != nil {
			return err
		}
		if kind != websocket.BinaryMessage {
			return fmt.Errorf("%w: message of type %d", errProtocol, kind)
		}
		if buf, err = readInto(buf[:0], r); err != nil {
			return err
		}
		rep, ev, err := codec.DecodeMessage(buf, opOf)
		if cap(buf) > bufferKept {
			buf = nil
		}
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", errProtocol, err)
		case ev != nil:
			if err := c.deliver(ev); err != nil {
				return err
			}
		default:
			if err := c.complete(cn, rep); err != nil {
				return err
			}
		}
	}
}

// readInto appends all of r to buf.
func readInto(buf []byte, r io.Reader) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err != nil {
			if errors.Is(err, io.EOF) {
				return buf, nil
			}
			return buf, err
		}
	}
}

// complete gives rep to the oldest call in flight. An error ends the connection; the
// call then stays unanswered.
func (c *Client) complete(cn *conn, rep *wire.Reply) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.inflight.front() // opOf has found it
	switch {
	case rep.Err == znode.SessionExpired:
		return rep.Err
	case rep.Err == znode.SessionMoved:
		return errMoved
	case cl.write && (rep.Err == znode.ConnectionLoss || rep.Err == znode.OperationTimeout):
		return rep.Err // the server does not know the outcome: ask again under the same Seq
	}
	c.inflight.pop()
	if !cn.confirmed.Load() {
		cn.confirmed.Store(true)
	}
	c.zxid = max(c.zxid, rep.Zxid)
	if cl.write {
		c.acked = cl.req.Seq
	}
	if cl.proves {
		ttl := cn.s.timeout
		if r, ok := rep.Body.(*wire.RenewReply); ok {
			ttl = min(ttl, time.Duration(r.TimeoutMs)*time.Millisecond)
		}
		cn.s.prove(Proof{Sent: cl.sentAt, TTL: ttl})
	}
	cl.finish(rep)
	if c.queue.len() > 0 && c.inflight.len() <= c.o.Window/2 {
		cn.wakeUp() // not for each that a full window lets through: they are written together
	}
	return cn.refusal
}

// rewatched needs c.mu. Watches that cannot be set again must not die unnoticed.
func (cn *conn) rewatched(rep *wire.Reply) {
	if rep != nil && rep.Err != znode.OK {
		cn.refusal = &Error{Op: "rewatch", Code: rep.Err}
	}
}

// authenticated needs c.mu. It takes the answer to one identity: after the last one
// the session may be used, and a refused one ends the connection.
func (cn *conn) authenticated(a Auth, rep *wire.Reply) {
	if rep == nil {
		return
	}
	if rep.Err != znode.OK {
		cn.refusal = &Error{Op: "auth " + a.Scheme, Code: rep.Err}
		cn.c.reportOpened(cn.refusal)
		return
	}
	if cn.authLeft--; cn.authLeft == 0 {
		cn.c.reportOpened(nil)
	}
}
