package recipestest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// pipeLimit bounds, in bytes, what waits in one direction of a connection; beyond it
	// nothing is read.
	pipeLimit = 4 << 20
	// proxyLinger is how long the client of a connection that was cut is still read from.
	// To close with something unread would be a reset, which loses replies that passed.
	proxyLinger = time.Second
	proxyDial   = 10 * time.Second
)

// proxyConn is one connection through a proxy.
type proxyConn struct {
	p      *Proxy
	client *net.TCPConn
	ctx    context.Context // ends when the connection is to be closed
	cancel context.CancelFunc

	mu     sync.Mutex
	server *net.TCPConn // nil until dialled
	isCut  bool

	// Under Proxy.mu:
	pending []*fault // taken by requests that have no reply yet
	over    bool     // takes no more faults
}

func newProxyConn(p *Proxy, client *net.TCPConn) *proxyConn {
	c := &proxyConn{p: p, client: client}
	c.ctx, c.cancel = context.WithCancel(p.ctx)
	return c
}

// serve runs the connection to its end.
func (c *proxyConn) serve() {
	var readers, writers sync.WaitGroup
	up, down := newPipe(), newPipe()
	readers.Go(func() { up.fill(c.ctx, c.client, newFollower(c.p.protocol, true)) })
	stop := context.AfterFunc(c.p.ctx, func() { c.cut(); c.client.Close() })
	if server := c.dial(up); server != nil {
		readers.Go(func() { down.fill(c.ctx, server, newFollower(c.p.protocol, false)) })
		writers.Go(func() { c.pump(up, server, c.request) })
		writers.Go(func() { c.pump(down, c.client, c.reply) })
	}
	writers.Wait()
	c.cut()
	readers.Wait()
	stop()
	c.client.Close()
	c.p.leave(c)
}

// dial connects to the target when nothing holds it back, or returns nil.
func (c *proxyConn) dial(up *pipe) *net.TCPConn {
	c.p.mu.Lock()
	wait := c.p.partitioned || c.p.muted
	c.p.mu.Unlock()
	if !c.p.pass(c.ctx, time.Time{}, asking) || wait && up.ended() {
		return nil
	}
	c.p.mu.Lock()
	target := c.p.target
	c.p.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.ctx, proxyDial)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", target)
	if err != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server = nc.(*net.TCPConn)
	if c.isCut {
		c.server.Close()
	}
	return c.server
}

// cut closes the connection to the server, and to the client for writing: the client
// reads what was passed on and then the end. Faults that did not happen are armed again
// before that, so that they meet the next connection.
func (c *proxyConn) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		return
	}
	c.isCut = true
	c.p.rearm(c)
	c.cancel()
	if c.server != nil {
		c.server.Close()
	}
	c.client.CloseWrite()
	c.client.SetWriteDeadline(time.Now())
	c.client.SetReadDeadline(time.Now().Add(proxyLinger))
}

// pump passes one direction on until it ends. each is asked about every piece.
func (c *proxyConn) pump(from *pipe, dst *net.TCPConn, each func(message) bool) {
	what, again := asking, asking
	if dst == c.client {
		what, again = answering, dueAnswer
	}
	for {
		piece, err := from.take(c.ctx)
		switch {
		case errors.Is(err, io.EOF) && what == asking && c.p.pass(c.ctx, piece.came, asking):
			dst.CloseWrite() // the answers may be on their way
			return
		case err != nil: // held back like anything else; or ctx is over
			c.p.pass(c.ctx, piece.came, what)
			c.cut()
			return
		}
		if !c.p.pass(c.ctx, piece.came, what) || !each(piece.message) || !c.p.pass(c.ctx, time.Time{}, again) {
			return
		}
		if _, err := dst.Write(piece.data); err != nil {
			c.cut()
			return
		}
	}
}

// request plays the fault of a request and reports whether to pass it on.
func (c *proxyConn) request(m message) bool {
	f := c.p.take(c, m)
	if f == nil || f.verb != cutBeforeSend {
		return true
	}
	c.cut()
	close(f.fired)
	return false
}

// reply plays the fault that waited for a reply and reports whether to pass it on.
func (c *proxyConn) reply(m message) bool {
	f := c.p.answered(c, m)
	if f == nil {
		return true
	}
	if f.verb == cutAfterCommit {
		c.cut()
		close(f.fired)
		return false
	}
	close(f.fired)
	select {
	case <-f.released:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// piece is a part of one direction's traffic.
type piece struct {
	message
	data []byte
	came time.Time
}

// pipe is a queue of pieces from one goroutine to another, bounded in bytes.
type pipe struct {
	mu     sync.Mutex
	pieces []piece
	size   int
	err    error         // set when nothing more comes: io.EOF or why
	came   time.Time     // when err was set
	more   chan struct{} // capacity 1: pieces or err changed
	room   chan struct{} // capacity 1: size shrank
}

func newPipe() *pipe {
	return &pipe{more: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// fill reads from src until it ends. When ctx is over it throws away what comes.
func (q *pipe) fill(ctx context.Context, src io.Reader, f follower) {
	chunk := make([]byte, 64<<10)
	var b []byte
	for {
		n, err := src.Read(chunk)
		b = append(b, chunk[:n]...)
		for ctx.Err() == nil && len(b) > 0 {
			n, m := f.next(b)
			if n == 0 {
				break
			}
			q.put(ctx, piece{message: m, data: bytes.Clone(b[:n]), came: time.Now()})
			b = b[n:]
		}
		if ctx.Err() != nil {
			b = nil
		}
		if err != nil {
			if len(b) > 0 { // the beginning of something
				q.put(ctx, piece{data: b, came: time.Now()})
			}
			q.end(err)
			return
		}
	}
}

// put waits for room; a piece that is too big by itself gets it when the pipe is empty.
func (q *pipe) put(ctx context.Context, p piece) {
	for {
		q.mu.Lock()
		if q.size == 0 || q.size+len(p.data) <= pipeLimit {
			q.pieces = append(q.pieces, p)
			q.size += len(p.data)
			q.mu.Unlock()
			signal(q.more)
			return
		}
		q.mu.Unlock()
		select {
		case <-q.room:
		case <-ctx.Done():
			return
		}
	}
}

func (q *pipe) end(err error) {
	q.mu.Lock()
	q.err, q.came = err, time.Now()
	q.mu.Unlock()
	signal(q.more)
}

// ended reports whether nothing more comes.
func (q *pipe) ended() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err != nil
}

// take returns the next piece, or with an error how the direction ended and when.
func (q *pipe) take(ctx context.Context) (piece, error) {
	for {
		q.mu.Lock()
		if len(q.pieces) > 0 {
			p := q.pieces[0]
			q.pieces[0] = piece{}
			q.pieces = q.pieces[1:]
			q.size -= len(p.data)
			q.mu.Unlock()
			signal(q.room)
			return p, nil
		}
		err, came := q.err, q.came
		q.mu.Unlock()
		if err != nil {
			return piece{came: came}, err
		}
		select {
		case <-q.more:
		case <-ctx.Done():
			return piece{}, ctx.Err()
		}
	}
}

// signal makes c ready to receive from.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
