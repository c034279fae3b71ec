package bench

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/native"
	"github.com/tenure-dev/tenure/recipes/zk"
)

// ElectionTarget is a backend of recipes: one of Tenure and ZooKeeper is set. A plain
// value, which is not changed during a run.
type ElectionTarget struct {
	Name      string // product and address, for reports
	Version   string // of the server, if it tells
	Tenure    *client.Options
	ZooKeeper *zk.Options
	// Tick is by how much the backend may be late to expire a session: ZooKeeper rounds
	// up to its tickTime.
	Tick time.Duration
}

// electionClient is one session of a backend on connections of its own.
type electionClient struct {
	recipes.Store
	link *link
	// requests returns how many were sent, false if that cannot be seen.
	requests func() (int64, bool)
}

// open connects. The client closes its session with Close.
func (t *ElectionTarget) open(ctx context.Context, timeout time.Duration) (*electionClient, error) {
	l := &link{}
	if t.ZooKeeper != nil {
		o := *t.ZooKeeper
		o.Timeout, o.Dial = timeout, l.dial
		l.frames = o.TLS == nil
		s, err := zk.Connect(ctx, o)
		return &electionClient{Store: s, link: l, requests: func() (int64, bool) { return l.requests.Load(), l.frames }}, err
	}
	o := *t.Tenure
	o.Timeout, o.Dial = timeout, l.dial
	c, err := client.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	return &electionClient{Store: native.New(c), link: l, requests: func() (int64, bool) { return c.Stats().Requests, true }}, nil
}

// link is all connections of one client: it counts what passes and can be cut, so that
// neither side is told. It is safe for concurrent use.
type link struct {
	frames                   bool // what is sent is ZooKeeper's frames
	sent, received, requests atomic.Int64

	mu    sync.Mutex
	dead  bool
	conns []*linkConn
}

func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if l.isDead() {
		<-ctx.Done() // as packets that nobody answers
		return nil, ctx.Err()
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &linkConn{Conn: nc, l: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
	return c, nil
}

func (l *link) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// cut lets nothing pass from now on. The server's side of the connections stays open, as
// when a machine loses its power or its network.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
}

// drop closes what cut left open.
func (l *link) drop() {
	l.mu.Lock()
	conns := slices.Clone(l.conns)
	l.mu.Unlock()
	for _, c := range conns {
		_ = c.Conn.Close() // closed already or not: nobody uses it any more
	}
}

// linkConn is one connection of a link, used as any net.Conn.
type linkConn struct {
	net.Conn
	l       *link
	counter frameCounter // of the writer
	closed  atomic.Bool
}

// Read implements net.Conn. What comes after a cut is lost.
func (c *linkConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if !c.l.isDead() {
			c.l.received.Add(int64(n))
			return n, err
		}
		if c.closed.Load() {
			return 0, net.ErrClosed
		}
		if err != nil {
			return 0, err
		}
	}
}

// Write implements net.Conn. After a cut it seems to succeed.
func (c *linkConn) Write(p []byte) (int, error) {
	if c.l.isDead() {
		return len(p), nil
	}
	n, err := c.Conn.Write(p)
	c.l.sent.Add(int64(n))
	if c.l.frames {
		c.l.requests.Add(c.counter.count(p[:n]))
	}
	return n, err
}

// Close implements net.Conn. After a cut the server must not see it.
func (c *linkConn) Close() error {
	if !c.l.isDead() {
		return c.Conn.Close()
	}
	c.closed.Store(true)
	return c.Conn.SetDeadline(time.Unix(1, 0)) // wakes readers
}

// frameCounter counts the requests in a stream of ZooKeeper's frames: length, xid,
// operation, rest. The first frame opens the session, and pings are none.
type frameCounter struct {
	head   []byte
	skip   int
	opened bool
}

const (
	zkHead    = 12 // bytes up to the operation's end
	zkPing    = 11
	zkLengths = 4
)

func (f *frameCounter) count(p []byte) (requests int64) {
	for len(p) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(p))
			f.skip, p = f.skip-n, p[n:]
			continue
		}
		n := min(zkHead-len(f.head), len(p))
		f.head, p = append(f.head, p[:n]...), p[n:]
		if len(f.head) < zkHead {
			break
		}
		if f.opened && binary.BigEndian.Uint32(f.head[8:]) != zkPing {
			requests++
		}
		f.opened = true
		f.skip = max(int(binary.BigEndian.Uint32(f.head))-(zkHead-zkLengths), 0)
		f.head = f.head[:0]
	}
	return requests
}
