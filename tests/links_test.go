package tests

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// linkState is what becomes of what is sent from one member to another.
type linkState int

const (
	linkOpen linkState = iota
	linkHeld           // nothing arrives and nothing is refused, as in a black hole
	linkCut            // connections are reset, new ones as well
)

// links is the network between members: each reaches the others through it alone, and
// each direction of each pair can be disturbed by itself. Members are numbered from 1.
// Its methods may be called by any number of goroutines.
type links struct {
	t         *testing.T
	listeners []net.Listener
	targets   []string // where each member really listens
	ctx       context.Context
	wg        sync.WaitGroup

	mu      sync.Mutex
	pairs   map[[2]int]*link // by from and to
	changed chan struct{}    // closed and replaced whenever a link changes
	conns   map[*linkConn]struct{}
}

// link is one direction of a pair.
type link struct {
	state  linkState
	delay  time.Duration // of each piece of data
	jitter time.Duration // up to so much more
}

// linkConn is one connection of two members.
type linkConn struct {
	from, to     int // from has dialed
	dialer, peer *net.TCPConn
}

// linkDialMax bounds how long a connection may take to say whose it is.
const linkDialMax = 10 * time.Second

// newLinks listens at one address in front of each of targets. It ends with the test.
func newLinks(t *testing.T, targets []string) *links {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n := &links{t: t, targets: targets, ctx: ctx, pairs: map[[2]int]*link{}, changed: make(chan struct{}), conns: map[*linkConn]struct{}{}}
	for i := range targets {
		l, err := net.Listen("tcp", quietPort(t))
		if err != nil {
			t.Fatal(err)
		}
		n.listeners = append(n.listeners, l)
		for j := range targets {
			n.pairs[[2]int{i + 1, j + 1}] = &link{}
		}
		n.wg.Go(func() { n.accept(i+1, l) })
	}
	t.Cleanup(func() {
		cancel()
		for _, l := range n.listeners {
			l.Close()
		}
		n.closeConns(func(*linkConn) bool { return true })
		n.wg.Wait()
	})
	return n
}

// address is where the other members reach a member.
func (n *links) address(member int) string { return n.listeners[member-1].Addr().String() }

// set changes one direction.
func (n *links) set(from, to int, change func(*link)) {
	n.mu.Lock()
	change(n.pairs[[2]int{from, to}])
	cut := n.pairs[[2]int{from, to}].state == linkCut
	close(n.changed)
	n.changed = make(chan struct{})
	n.mu.Unlock()
	if cut {
		n.closeConns(func(c *linkConn) bool { return c.from == from && c.to == to || c.from == to && c.to == from })
	}
}

// isolate disturbs all directions to and from one member.
func (n *links) isolate(member int, state linkState) {
	n.deafen(member, state)
	n.mute(member, state)
}

// mute disturbs what a member sends, deafen what is sent to it.
func (n *links) mute(member int, state linkState) {
	for other := 1; other <= len(n.targets); other++ {
		n.set(member, other, func(l *link) { l.state = state })
	}
}

func (n *links) deafen(member int, state linkState) {
	for other := 1; other <= len(n.targets); other++ {
		n.set(other, member, func(l *link) { l.state = state })
	}
}

// slow delays all that a member sends and receives.
func (n *links) slow(member int, delay, jitter time.Duration) {
	for other := 1; other <= len(n.targets); other++ {
		n.set(member, other, func(l *link) { l.delay, l.jitter = delay, jitter })
		n.set(other, member, func(l *link) { l.delay, l.jitter = delay, jitter })
	}
}

// now returns what a direction is like, and a channel that is closed when that changes.
func (n *links) now(from, to int) (link, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return *n.pairs[[2]int{from, to}], n.changed
}

// closeConns resets connections.
func (n *links) closeConns(which func(*linkConn) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if which(c) {
			reset(c.dialer)
			reset(c.peer)
		}
	}
}

func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

func (n *links) accept(to int, l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		n.wg.Go(func() { n.serve(to, c.(*net.TCPConn)) })
	}
}

// serve runs one connection to its end.
func (n *links) serve(to int, dialer *net.TCPConn) {
	defer dialer.Close()
	dialer.SetReadDeadline(time.Now().Add(linkDialMax))
	hello, from, err := readHello(dialer)
	if err != nil {
		return // it was given up before it said whose it is
	}
	dialer.SetReadDeadline(time.Time{})
	if from < 1 || from > len(n.targets) || !n.pass(from, to, time.Now()) || !n.pass(to, from, time.Now()) {
		reset(dialer)
		return
	}
	up, err := net.Dial("tcp", n.targets[to-1])
	if err != nil {
		reset(dialer) // as the member's own port refuses
		return
	}
	defer up.Close()
	c := &linkConn{from: from, to: to, dialer: dialer, peer: up.(*net.TCPConn)}
	n.mu.Lock()
	n.conns[c] = struct{}{}
	n.mu.Unlock()
	if n.ctx.Err() != nil {
		return // nobody closes it any more
	}
	defer func() {
		n.mu.Lock()
		delete(n.conns, c)
		n.mu.Unlock()
	}()
	if _, err := up.Write(hello); err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { n.carry(to, from, c.dialer, c.peer) })
	n.carry(from, to, c.peer, c.dialer)
	back.Wait()
}

// readHello reads the greeting with which a member begins a connection, as package peer
// describes it, and who it is from.
func readHello(r io.Reader) (hello []byte, from int, err error) {
	const headSize, tagFrom = 10, 3
	hello = make([]byte, headSize)
	if _, err := io.ReadFull(r, hello); err != nil {
		return nil, 0, err
	}
	fields := make([]byte, binary.BigEndian.Uint16(hello[headSize-2:]))
	if _, err := io.ReadFull(r, fields); err != nil {
		return nil, 0, err
	}
	hello = append(hello, fields...)
	for len(fields) >= 3 {
		tag, size := fields[0], int(binary.BigEndian.Uint16(fields[1:]))
		if fields = fields[3:]; size > len(fields) {
			break
		}
		if tag == tagFrom && size == 8 {
			return hello, int(binary.BigEndian.Uint64(fields)), nil
		}
		fields = fields[size:]
	}
	return nil, 0, errors.New("a greeting that does not say who it is from")
}

// linkPiece is data on the way, and behind them the end, io.EOF or another error.
type linkPiece struct {
	due  time.Time
	data []byte
	end  error
}

// carry moves data in one direction until it ends. The end is on the way as long as data:
// the sender's is passed on, every other one resets the connection.
func (n *links) carry(from, to int, dst, src *net.TCPConn) {
	pieces, done := make(chan linkPiece, 256), make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			p := linkPiece{data: make([]byte, 16<<10)}
			size, err := src.Read(p.data)
			l, _ := n.now(from, to)
			p.due, p.data, p.end = time.Now().Add(l.delay+rand.N(l.jitter+1)), p.data[:size], err
			select {
			case pieces <- p:
			case <-done:
				return
			}
			if err != nil {
				return
			}
		}
	})
	for {
		p := <-pieces
		if !n.pass(from, to, p.due) {
			break
		}
		if _, err := dst.Write(p.data); err != nil || p.end != nil && p.end != io.EOF {
			break
		}
		if p.end == io.EOF {
			dst.CloseWrite()
			reader.Wait()
			return
		}
	}
	reset(dst)
	reset(src)
	close(done)
	reader.Wait()
}

// pass waits until what is due then may arrive, and reports whether it may at all.
func (n *links) pass(from, to int, due time.Time) bool {
	for {
		l, changed := n.now(from, to)
		var wait <-chan time.Time
		switch left := time.Until(due); {
		case l.state == linkCut || n.ctx.Err() != nil:
			return false
		case l.state == linkOpen && left <= 0:
			return true
		case l.state == linkOpen:
			wait = time.After(left)
		}
		select {
		case <-wait:
		case <-changed:
		case <-n.ctx.Done():
		}
	}
}
