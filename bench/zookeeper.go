package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// ZooKeeper measures servers that speak ZooKeeper's own protocol, for comparison. Its
// connections do nothing but pipeline requests: no reconnects, no retries, so that
// they cost the machine less than any client library. Its fields are not changed after
// the first use.
type ZooKeeper struct {
	// Addrs are host:port of each server. A connection goes to the one that has the fewest,
	// the first of them if there are several.
	Addrs []string
	// PIDs are the servers' processes on this machine; none if their usage is not to be read.
	PIDs []int

	mu   sync.Mutex
	open map[string]int // connections by address
}

// zkTimeout is the session timeout asked for; zkFrameMax bounds a frame that is read.
const (
	zkTimeout  = 30 * time.Second
	zkFrameMax = 64 << 20
)

// Name implements Target.
func (z *ZooKeeper) Name() string { return "ZooKeeper's protocol at " + strings.Join(z.Addrs, ",") }

// ErrorKind implements Target.
func (z *ZooKeeper) ErrorKind(err error) string {
	if code, ok := errors.AsType[znode.Error](err); ok {
		return code.Name()
	}
	return "other"
}

// Usage implements Target from what the kernel knows of the processes.
func (z *ZooKeeper) Usage(context.Context) (u Usage, ok bool) {
	for _, pid := range z.PIDs {
		one, ok := processUsage(pid)
		if !ok {
			return Usage{}, false
		}
		u = u.Plus(one)
	}
	return u, len(z.PIDs) > 0
}

func processUsage(pid int) (u Usage, ok bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, false
	}
	// The name, in brackets, may hold anything; user and system time are fields 14 and
	// 15 in steps of 10 ms, the resident pages field 24.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 22 {
		return u, false
	}
	number := func(field int) float64 {
		n, _ := strconv.ParseFloat(fields[field-3], 64)
		return n
	}
	return Usage{CPUSeconds: (number(14) + number(15)) / 100, ResidentBytes: number(24) * float64(os.Getpagesize())}, true
}

// take returns the address for the next connection, release gives one back.
func (z *ZooKeeper) take() string {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.open == nil {
		z.open = map[string]int{}
	}
	addr := slices.MinFunc(z.Addrs, func(a, b string) int { return z.open[a] - z.open[b] })
	z.open[addr]++
	return addr
}

func (z *ZooKeeper) release(addr string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.open[addr]--
}

// Connect implements Target.
func (z *ZooKeeper) Connect(ctx context.Context, _ int) (_ Conn, err error) {
	addr := z.take()
	defer func() {
		if err != nil {
			z.release(addr)
		}
	}()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &zkConn{release: func() { z.release(addr) }, nc: nc, r: bufio.NewReaderSize(nc, 32<<10), wake: make(chan struct{}, 1), ended: make(chan struct{})}
	c.mu.watches = map[string]chan struct{}{}
	readOnly := false
	hello := wire.Jute{}.AppendConnect(make([]byte, 4), &wire.ConnectRequest{TimeoutMs: int32(zkTimeout.Milliseconds()),
		Password: make([]byte, 16), ReadOnly: &readOnly})
	binary.BigEndian.PutUint32(hello, uint32(len(hello)-4))
	if _, err := nc.Write(hello); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	msg, err := c.frame(nil)
	if err == nil {
		_, err = wire.Jute{}.DecodeConnectReply(msg)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to %s: %w", addr, err), nc.Close())
	}
	c.loops.Go(c.readLoop)
	c.loops.Go(c.writeLoop)
	return c, nil
}

// zkConn is one session: requests are appended to a buffer that the write loop sends
// whole, and answered in order.
type zkConn struct {
	release func() // gives its place at the server back

	nc    net.Conn
	r     *bufio.Reader
	wake  chan struct{} // holds a token if there is something to write
	ended chan struct{} // closed when the connection is of no more use
	loops sync.WaitGroup

	mu struct {
		sync.Mutex
		xid     int32
		out     []byte
		pending []*zkCall
		watches map[string]chan struct{} // data watches, closed when they fire
		err     error
	}
}

type zkCall struct {
	xid   int32
	op    wire.Op
	reply *wire.Reply
	done  chan struct{}
}

// call sends a request and waits for its reply. A watched path is registered with the
// request, as its event comes at any time from then on.
func (c *zkConn) call(ctx context.Context, op wire.Op, body any, watched string) (*wire.Reply, chan struct{}, error) {
	k := &zkCall{op: op, done: make(chan struct{})}
	var fired chan struct{}
	c.mu.Lock()
	if err := c.mu.err; err != nil {
		c.mu.Unlock()
		return nil, nil, err
	}
	if watched != "" {
		if fired = c.mu.watches[watched]; fired == nil {
			fired = make(chan struct{})
			c.mu.watches[watched] = fired
		}
	}
	c.mu.xid++
	k.xid = c.mu.xid
	c.mu.pending = append(c.mu.pending, k)
	c.appendLocked(&wire.Request{Xid: k.xid, Op: op, Body: body})
	c.mu.Unlock()
	select {
	case <-k.done:
	case <-c.ended:
		select {
		case <-k.done: // a server ends the connection right behind the answer to a close
		default:
			return nil, nil, c.failure()
		}
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	if k.reply.Err != znode.OK {
		return nil, nil, k.reply.Err
	}
	return k.reply, fired, nil
}

func (c *zkConn) appendLocked(q *wire.Request) {
	at := len(c.mu.out)
	c.mu.out = wire.Jute{}.AppendRequest(append(c.mu.out, 0, 0, 0, 0), q)
	binary.BigEndian.PutUint32(c.mu.out[at:], uint32(len(c.mu.out)-at-4))
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *zkConn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

// fail ends the connection; the first cause is kept.
func (c *zkConn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err == nil {
		c.mu.err = err
		close(c.ended)
		_ = c.nc.Close()
	}
}

// writeLoop sends what has gathered, and a ping while there is nothing to say.
func (c *zkConn) writeLoop() {
	beat := time.NewTicker(zkTimeout / 3)
	defer beat.Stop()
	var out []byte
	for {
		select {
		case <-c.ended:
			return
		case <-beat.C:
			c.mu.Lock()
			c.appendLocked(&wire.Request{Xid: -2, Op: wire.OpPing})
			c.mu.Unlock()
		case <-c.wake:
		}
		c.mu.Lock()
		out, c.mu.out = c.mu.out, out[:0]
		c.mu.Unlock()
		if _, err := c.nc.Write(out); err != nil {
			c.fail(err)
			return
		}
	}
}

// frame reads the next message into buf.
func (c *zkConn) frame(buf []byte) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return buf, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > zkFrameMax {
		return buf, fmt.Errorf("a frame of %d bytes, at most %d", n, zkFrameMax)
	}
	if uint32(cap(buf)) < n {
		buf = make([]byte, n)
	}
	_, err := io.ReadFull(c.r, buf[:n])
	return buf[:n], err
}

func (c *zkConn) readLoop() {
	var buf []byte
	for {
		var err error
		if buf, err = c.frame(buf); err == nil {
			err = c.deliver(buf)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// deliver gives a message to whom it is for. Replies come in the order of the requests.
func (c *zkConn) deliver(msg []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	reply, event, err := wire.Jute{}.DecodeMessage(msg, func(xid int32) (wire.Op, bool) {
		if len(c.mu.pending) == 0 || c.mu.pending[0].xid != xid {
			return 0, false
		}
		return c.mu.pending[0].op, true
	})
	switch {
	case err != nil:
		return err
	case event != nil:
		if fired := c.mu.watches[event.Path]; fired != nil {
			close(fired)
			delete(c.mu.watches, event.Path)
		}
	case reply.Op != wire.OpPing:
		k := c.mu.pending[0]
		c.mu.pending = c.mu.pending[1:]
		k.reply = reply
		close(k.done)
	}
	return nil
}

func (c *zkConn) Create(ctx context.Context, path string, data []byte, mode znode.Mode) (string, error) {
	r, _, err := c.call(ctx, wire.OpCreate, &znode.Create{Path: path, Data: data, ACL: znode.OpenACL, Mode: mode}, "")
	if err != nil {
		return "", err
	}
	return r.Body.(*znode.Result).Path, nil
}

func (c *zkConn) Set(ctx context.Context, path string, data []byte) error {
	_, _, err := c.call(ctx, wire.OpSetData, &znode.SetData{Path: path, Data: data, Version: -1}, "")
	return err
}

func (c *zkConn) Get(ctx context.Context, path string) error {
	_, _, err := c.call(ctx, wire.OpGetData, &wire.PathWatch{Path: path}, "")
	return err
}

func (c *zkConn) Exists(ctx context.Context, path string) error {
	_, _, err := c.call(ctx, wire.OpExists, &wire.PathWatch{Path: path}, "")
	return err
}

func (c *zkConn) List(ctx context.Context, path string) (int, error) {
	r, _, err := c.call(ctx, wire.OpGetChildren2, &wire.PathWatch{Path: path}, "")
	if err != nil {
		return 0, err
	}
	return len(r.Body.(*wire.ChildrenReply).Names), nil
}

func (c *zkConn) Delete(ctx context.Context, path string) error {
	_, _, err := c.call(ctx, wire.OpDelete, &znode.Delete{Path: path, Version: -1}, "")
	return err
}

func (c *zkConn) DeleteAll(ctx context.Context, paths []string) error {
	m := &znode.Multi{}
	for _, path := range paths {
		m.Ops = append(m.Ops, &znode.Delete{Path: path, Version: -1})
	}
	r, _, err := c.call(ctx, wire.OpMulti, m, "")
	if err == nil && r.Body.(*znode.Result).Err != znode.OK {
		err = r.Body.(*znode.Result).Err
	}
	return err
}

func (c *zkConn) Watch(ctx context.Context, path string, armed func()) error {
	_, fired, err := c.call(ctx, wire.OpGetData, &wire.PathWatch{Path: path, Watch: true}, path)
	if err != nil {
		return err
	}
	armed()
	select {
	case <-fired:
		return nil
	case <-c.ended:
		return c.failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends the session and waits for the loops.
func (c *zkConn) Close() error {
	defer c.release()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, _, err := c.call(ctx, wire.OpCloseSession, nil, "")
	c.fail(net.ErrClosed)
	c.loops.Wait()
	return err
}
