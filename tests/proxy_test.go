package tests

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// proxyFault is what a proxy does to a connection at some moment of its life.
type proxyFault int

const (
	faultNone         proxyFault = iota
	faultLoseReplies             // requests still arrive, replies are thrown away; then closed
	faultLoseRequests            // replies still arrive, requests are thrown away; then closed
	faultCutReply                // a reply is cut in the middle, then closed
	faultReset                   // both sides get a reset
	faultKinds
)

// proxy passes connections on to a server and damages them by a seeded plan. Its methods
// may be called by any number of goroutines.
type proxy struct {
	listener net.Listener
	server   func(ctx context.Context, network, address string) (net.Conn, error)
	ctx      context.Context // ends with the proxy

	mu struct {
		sync.Mutex
		rng     *rand.Rand
		faulty  bool
		resumed chan struct{} // not nil while paused; closed by resume
		faults  [faultKinds]int
	}
	wg sync.WaitGroup // all goroutines of the proxy
}

// newProxy starts a proxy in front of server; seed decides what becomes of each
// connection once faults are on. It ends with the test.
func newProxy(t *testing.T, seed uint64, server func(ctx context.Context, network, address string) (net.Conn, error)) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &proxy{listener: l, server: server, ctx: ctx}
	p.mu.rng = rand.New(rand.NewPCG(seed, 0))
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		cancel()
		l.Close()
		p.wg.Wait()
	})
	return p
}

// dial is for client.Options.Dial.
func (p *proxy) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, p.listener.Addr().String())
}

// setFaulty turns the faults of later connections on or off.
func (p *proxy) setFaulty(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.faulty = on
}

// pause holds all bytes back, both ways, until resume.
func (p *proxy) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.resumed == nil {
		p.mu.resumed = make(chan struct{})
	}
}

func (p *proxy) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.resumed != nil {
		close(p.mu.resumed)
		p.mu.resumed = nil
	}
}

// faults returns how often each fault was played.
func (p *proxy) faults() [faultKinds]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.faults
}

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(c.(*net.TCPConn)) })
	}
}

// proxyPlan is what becomes of one connection.
type proxyPlan struct {
	fault    proxyFault
	after    time.Duration // from its beginning to its fault
	linger   time.Duration // from the fault to the end
	delayMax time.Duration // of each piece of data
	seed     uint64        // of the delays
}

func (p *proxy) plan() proxyPlan {
	p.mu.Lock()
	defer p.mu.Unlock()
	rng := p.mu.rng
	if !p.mu.faulty {
		return proxyPlan{}
	}
	plan := proxyPlan{
		fault:  1 + proxyFault(rng.IntN(int(faultKinds)-1)),
		after:  10*time.Millisecond + upTo(rng, 200*time.Millisecond),
		linger: upTo(rng, 20*time.Millisecond),
		seed:   rng.Uint64(),
	}
	if rng.IntN(3) == 0 {
		plan.delayMax = 4 * time.Millisecond
	}
	p.mu.faults[plan.fault]++
	return plan
}

// proxyConn is one connection through the proxy.
type proxyConn struct {
	p              *proxy
	client, server *net.TCPConn
	plan           proxyPlan
	struck         chan struct{} // closed when the fault begins
}

// serve runs one connection to its end.
func (p *proxy) serve(c *net.TCPConn) {
	defer c.Close()
	s, err := p.server(p.ctx, "tcp", "")
	if err != nil {
		return
	}
	defer s.Close()
	pc := &proxyConn{p: p, client: c, server: s.(*net.TCPConn), plan: p.plan(), struck: make(chan struct{})}
	ended := make(chan struct{}, 2)
	p.wg.Go(func() { pc.copy(pc.server, pc.client, faultLoseRequests, 1); ended <- struct{}{} })
	p.wg.Go(func() { pc.copy(pc.client, pc.server, faultLoseReplies, 2); ended <- struct{}{} })
	var timer <-chan time.Time
	if pc.plan.fault != faultNone {
		timer = time.After(pc.plan.after)
	}
	select {
	case <-timer:
		pc.strike(ended)
	case <-ended:
	case <-p.ctx.Done():
	}
}

// strike plays the fault; the connection ends when it returns.
func (pc *proxyConn) strike(ended <-chan struct{}) {
	close(pc.struck)
	if pc.plan.fault == faultReset {
		pc.client.SetLinger(0)
		pc.server.SetLinger(0)
		return
	}
	select {
	case <-time.After(pc.plan.linger):
	case <-ended:
	case <-pc.p.ctx.Done():
	}
}

// copy moves data until either side ends. From the fault called loses on it throws
// them away; a reply that is being cut loses its second half and ends the connection.
func (pc *proxyConn) copy(dst, src *net.TCPConn, loses proxyFault, side uint64) {
	rng := rand.New(rand.NewPCG(pc.plan.seed, side))
	buf := make([]byte, 16<<10)
	for {
		n, err := src.Read(buf)
		if err != nil || !pc.hold(rng) {
			return
		}
		select {
		case <-pc.struck:
			switch {
			case pc.plan.fault == loses:
				continue
			case pc.plan.fault == faultCutReply && loses == faultLoseReplies:
				dst.Write(buf[:n/2])
				return
			}
		default:
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			return
		}
	}
}

// hold waits for what data must wait for on their way: a delay, the end of a pause.
func (pc *proxyConn) hold(rng *rand.Rand) bool {
	if pc.plan.delayMax > 0 {
		select {
		case <-time.After(upTo(rng, pc.plan.delayMax)):
		case <-pc.p.ctx.Done():
			return false
		}
	}
	pc.p.mu.Lock()
	resumed := pc.p.mu.resumed
	pc.p.mu.Unlock()
	if resumed == nil {
		return true
	}
	select {
	case <-resumed:
		return true
	case <-pc.p.ctx.Done():
		return false
	}
}

// upTo returns a random duration below limit.
func upTo(rng *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(limit)))
}

// pauseUpTo waits for a random duration below limit, not at all if that is 0.
func pauseUpTo(rng *rand.Rand, limit time.Duration) {
	if limit > 0 {
		<-time.After(upTo(rng, limit))
	}
}
