package recipestest

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	// maxArmed bounds the faults that wait for their request.
	maxArmed = 4096
	// maxProxyConns bounds the connections of a proxy; more are closed at once.
	maxProxyConns = 1024
)

// Proxy passes the connections of one client on to a server and plays faults on them. It
// is the verbs of a Peer on a real server. Its methods may be called from any goroutine.
//
// Each request takes one fault at most: of those that are armed for its kind the one
// that was armed first. If the connection of that request is lost before the fault has
// happened, the fault waits for the next request of the kind.
type Proxy struct {
	t        testing.TB
	protocol Protocol
	listener net.Listener
	ctx      context.Context // ends with the proxy
	cancel   context.CancelFunc
	wg       sync.WaitGroup // all goroutines

	mu          sync.Mutex
	target      string
	partitioned bool
	muted       bool
	delay       time.Duration
	changed     chan struct{} // closed and replaced when one of the two above changes
	armed       []*fault      // in the order of arming
	conns       map[*proxyConn]struct{}
}

// NewProxy listens on a free port of loopback in front of the server at target, a
// host:port. It is closed with the test.
func NewProxy(t testing.TB, target string, p Protocol) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x := &Proxy{
		t: t, protocol: p, listener: l, target: target,
		changed: make(chan struct{}), conns: make(map[*proxyConn]struct{}),
	}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	x.wg.Go(x.accept)
	t.Cleanup(x.Close)
	return x
}

// Addr returns the host:port to connect to instead of the target.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close closes all connections and waits for all goroutines. It may be called again.
func (p *Proxy) Close() {
	p.cancel()
	p.listener.Close()
	p.wg.Wait()
}

// SetTarget makes addr the server of later connections and breaks those that there are:
// the client moves.
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	p.target = addr
	p.mu.Unlock()
	p.Break()
}

// Fill sets the verbs of peer that a proxy can do. Move takes other members to move to:
// make it of SetTarget.
func (p *Proxy) Fill(peer *Peer) {
	peer.CutAfterCommit, peer.CutBeforeSend, peer.Hold = p.CutAfterCommit, p.CutBeforeSend, p.Hold
	peer.Disarm, peer.Break, peer.Delay = p.Disarm, p.Break, p.Delay
	peer.Partition, peer.Heal, peer.Mute, peer.Unmute = p.Partition, p.Heal, p.Mute, p.Unmute
}

// CutAfterCommit is Peer.CutAfterCommit. Replies before the one that is dropped pass.
func (p *Proxy) CutAfterCommit(kind OpKind) (done <-chan struct{}) {
	return p.arm(cutAfterCommit, kind).fired
}

// CutBeforeSend is Peer.CutBeforeSend. Requests before it pass, their replies may not.
func (p *Proxy) CutBeforeSend(kind OpKind) (done <-chan struct{}) {
	return p.arm(cutBeforeSend, kind).fired
}

// Hold is Peer.Hold. To release what is not held yet disarms it; release may be called
// again.
func (p *Proxy) Hold(kind OpKind) (held <-chan struct{}, release func()) {
	f := p.arm(hold, kind)
	return f.fired, sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		close(f.released)
		p.armed = slices.DeleteFunc(p.armed, func(a *fault) bool { return a == f })
	})
}

// Disarm is Peer.Disarm.
func (p *Proxy) Disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = nil
	for c := range p.conns {
		c.pending = nil
	}
}

// Break closes all connections, partitioned or not, and returns when the client can see
// it. A client may connect again at once.
func (p *Proxy) Break() {
	p.mu.Lock()
	conns := make([]*proxyConn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	p.mu.Unlock()
	for _, c := range conns {
		c.cut()
	}
}

// Partition is Peer.Partition. That a side closes its connection is held back as well. A
// connection that is made meanwhile, and given up again, never reaches the server.
func (p *Proxy) Partition() { p.set(func() { p.partitioned = true }) }

// Heal ends Partition.
func (p *Proxy) Heal() { p.set(func() { p.partitioned = false }) }

// Mute is Peer.Mute.
func (p *Proxy) Mute() { p.set(func() { p.muted = true }) }

// Unmute ends Mute.
func (p *Proxy) Unmute() { p.set(func() { p.muted = false }) }

// Delay is Peer.Delay. It is a latency: answers that came together leave together.
func (p *Proxy) Delay(d time.Duration) { p.set(func() { p.delay = d }) }

// set changes what pass looks at.
func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// traffic is what pass lets pass.
type traffic uint8

const (
	asking traffic = iota
	answering
	dueAnswer // an answer that was delayed already
)

// pass waits while traffic that came at the given time is held back, by a partition, by
// Mute if it is a request, and by the delay if it is an answer. It returns false if ctx
// ended first.
func (p *Proxy) pass(ctx context.Context, came time.Time, what traffic) bool {
	for {
		p.mu.Lock()
		held, delay, changed := p.partitioned || p.muted && what == asking, p.delay, p.changed
		p.mu.Unlock()
		var timer <-chan time.Time
		if !held {
			left := time.Duration(0)
			if what == answering {
				left = delay - time.Since(came)
			}
			if left <= 0 {
				return ctx.Err() == nil
			}
			timer = time.After(left)
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		case <-timer:
		}
	}
}

func (p *Proxy) accept() {
	for {
		nc, err := p.listener.Accept()
		if err != nil {
			select {
			case <-p.ctx.Done():
				return
			case <-time.After(10 * time.Millisecond): // out of descriptors, perhaps
				continue
			}
		}
		c := newProxyConn(p, nc.(*net.TCPConn))
		if !p.enter(c) {
			nc.Close()
			continue
		}
		p.wg.Go(c.serve)
	}
}

// enter makes c one of the connections, false if there are too many.
func (p *Proxy) enter(c *proxyConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.conns) >= maxProxyConns {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) leave(c *proxyConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// rearm arms the faults again that c took and that did not happen. It takes no more.
func (p *Proxy) rearm(c *proxyConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.over = true
	p.armed = slices.Concat(c.pending, p.armed)
	p.armed = slices.DeleteFunc(p.armed, (*fault).isReleased)
	c.pending = nil
}

// faultVerb is what is done to a request.
type faultVerb uint8

const (
	cutAfterCommit faultVerb = iota + 1
	cutBeforeSend
	hold
)

// fault is one fault on one request.
type fault struct {
	verb     faultVerb
	kind     OpKind
	xid      int32         // of the request that took it
	fired    chan struct{} // closed when it has happened
	released chan struct{} // of a hold: closed to end it
}

func (f *fault) matches(kind OpKind) bool {
	return f.kind == kind || f.kind == AnyWrite && kind >= Create && kind < AnyWrite
}

func (f *fault) isReleased() bool {
	select {
	case <-f.released:
		return true
	default:
		return false
	}
}

func (p *Proxy) arm(verb faultVerb, kind OpKind) *fault {
	f := &fault{verb: verb, kind: kind, fired: make(chan struct{}), released: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.armed) >= maxArmed {
		p.t.Errorf("recipestest: Proxy: %d faults wait for their request: that is the most", maxArmed)
		return f
	}
	p.armed = append(p.armed, f)
	return f
}

// take returns the fault for a request that is about to be passed on, or nil. One that
// waits for the reply is pending from now on.
func (p *Proxy) take(c *proxyConn, m message) *fault {
	if m.kind == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.over {
		return nil
	}
	i := slices.IndexFunc(p.armed, func(f *fault) bool { return f.matches(m.kind) })
	if i < 0 {
		return nil
	}
	f := p.armed[i]
	p.armed = slices.Delete(p.armed, i, i+1)
	f.xid = m.xid
	if f.verb != cutBeforeSend {
		c.pending = append(c.pending, f)
	}
	return f
}

// answered returns the fault that the request of this reply took, or nil.
func (p *Proxy) answered(c *proxyConn, m message) *fault {
	if !m.known {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(c.pending, func(f *fault) bool { return f.xid == m.xid })
	if i < 0 {
		return nil
	}
	f := c.pending[i]
	c.pending = slices.Delete(c.pending, i, i+1)
	return f
}
