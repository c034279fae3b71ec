package peer

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/replica"
)

// pipeNet is a network in memory, for tests with a fake clock. It can turn into a black
// hole: what is written is lost, nothing arrives, and nobody is told.
type pipeNet struct {
	hole atomic.Bool
	mu   sync.Mutex
	at   map[string]*pipeListener
}

type pipeListener struct {
	address string
	conns   chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

type pipeAddr string

func (a pipeAddr) Network() string { return "pipe" }
func (a pipeAddr) String() string  { return string(a) }

func (n *pipeNet) listen(address string) *pipeListener {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.at == nil {
		n.at = map[string]*pipeListener{}
	}
	n.at[address] = &pipeListener{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
	return n.at[address]
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr(l.address) }

func (n *pipeNet) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.at[address]
	n.mu.Unlock()
	if n.hole.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	near, far := net.Pipe()
	select {
	case l.conns <- pipeConn{far, n}:
		return pipeConn{near, n}, nil
	case <-l.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pipeConn is one end of a connection; what it writes may vanish.
type pipeConn struct {
	net.Conn
	n *pipeNet
}

func (c pipeConn) Write(b []byte) (int, error) {
	if c.n.hole.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (n *pipeNet) member(t *testing.T, id uint64, address string) *member {
	return newMember(t, id, func(c *Config) {
		c.Listener, c.Dial, c.SilenceTimeout = n.listen(address), n.dial, 0 // its default
	})
}

// Goal: ends that are silent are given up after the timeout, not before, by both; an idle
// connection is none of them; when the way is open again they find each other. Method: a
// fake clock and a network that swallows everything for a while.
func TestSilentConnectionIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n pipeNet
		a, b := n.member(t, 1, "a:1"), n.member(t, 2, "b:1")
		serve(a, b)
		time.Sleep(10 * time.Minute)
		for m, want := range map[*member]string{a: "[+2]", b: "[+1]"} {
			if events, _ := m.told(); events != want {
				t.Fatalf("idle: %s, want %s", events, want)
			}
		}
		began := time.Now()
		n.hole.Store(true)
		time.Sleep(7 * time.Second)
		for m, want := range map[*member]string{a: "[+2 -2]", b: "[+1 -1]"} {
			events, at := m.told()
			if after := at.Sub(began); events != want || after < 4*time.Second || after > 5*time.Second+500*time.Millisecond {
				t.Errorf("%s after %v, want %s after 4.5 s to 5.5 s", events, after, want)
			}
		}
		time.Sleep(time.Minute)
		n.hole.Store(false)
		time.Sleep(10 * time.Second) // an attempt's timeout and two waits
		for m, want := range map[*member]string{a: "[+2 -2 +2]", b: "[+1 -1 +1]"} {
			if events, _ := m.told(); events != want {
				t.Errorf("%s, want %s", events, want)
			}
		}
		if s := a.Stats()[2]; s.Reconnects != 1 || s.LastError == "" {
			t.Errorf("%+v", s)
		}
		closeAll(t, a, b)
	})
}

// Goal: an end that takes everything but answers no ping is given up after the silence
// timeout; one that answers but takes no bulk, after the stall timeout. Method: member 2
// by hand, on a fake clock.
func TestUnresponsiveEndIsGivenUp(t *testing.T) {
	t.Parallel()
	for want, answers := range map[time.Duration]bool{5 * time.Second: false, 30 * time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			var n pipeNet
			a := n.member(t, 1, "a:1")
			ln := n.listen("b:1")
			go acceptByHand(ln, answers)
			a.SetMembers(map[uint64]string{2: "b:1"})
			a.Serve(&a.recorder)
			synctest.Wait()
			if !a.Send(2, replica.Bulk, []byte("not taken")) {
				t.Fatal("not connected")
			}
			time.Sleep(want - time.Millisecond)
			if events, _ := a.told(); events != "[+2]" {
				t.Errorf("%s before %v", events, want)
			}
			time.Sleep(2 * time.Millisecond)
			if events, _ := a.told(); events != "[+2 -2]" {
				t.Errorf("%s after %v", events, want)
			}
			if s := a.Stats()[2]; s.QueuedBytes != 0 {
				t.Errorf("%d bytes wait for nobody", s.QueuedBytes)
			}
			_ = ln.Close()
			closeAll(t, a)
		})
	}
}

// acceptByHand accepts whoever calls, reads control connections, and answers pings or not.
func acceptByHand(ln net.Listener, answers bool) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			h, _ := readHello(c)
			_, _ = c.Write(reply{instance: 102, version: "v2"}.encode())
			_, _ = readReply(c)
			if h.class != replica.Control {
				return
			}
			b := make([]byte, lengthSize+pingSize)
			for {
				if _, err := io.ReadFull(c, b); err != nil {
					return
				}
				if answers {
					_, _ = c.Write(b)
				}
			}
		}()
	}
}

func closeAll(t *testing.T, members ...*member) {
	t.Helper()
	for _, m := range members {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Goal: bulk that is not taken delays no control frame, is bounded, and cuts nothing while
// control is alive; nothing of it is lost. Method: a receiver that blocks in Bulk for
// twice the silence timeout, on a fake clock.
func TestBlockedBulkLeavesControlAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit, size = 8 << 20, 64 << 10
		var n pipeNet
		a := newMember(t, 1, func(c *Config) {
			c.Listener, c.Dial, c.SilenceTimeout = n.listen("a:1"), n.dial, 0
			c.BulkQueueMax, c.BulkFrameMax = limit, limit
		})
		b := n.member(t, 2, "b:1")
		release := make(chan struct{})
		b.onFrame = func(_ uint64, class replica.Class, _ []byte) {
			if class == replica.Bulk {
				<-release
			}
		}
		serve(a, b)
		synctest.Wait()
		sent := 0
		for sent < 1000 && a.Send(2, replica.Bulk, numbered(sent, size)) {
			sent++
			synctest.Wait() // the writer takes what it can
		}
		if s := a.Stats()[2]; s.QueuedBytes > limit || s.QueuedBytes <= limit-size || s.Dropped != 1 {
			t.Errorf("%d frames were taken: %+v", sent, s)
		}
		for k := range 10 {
			time.Sleep(time.Second)
			if !a.Send(2, replica.Control, numbered(k, 100)) {
				t.Fatal("a control frame was not taken")
			}
			synctest.Wait() // the clock stands still
			if len(b.got(1, replica.Control)) != k+1 {
				t.Fatalf("control frame %d is late", k)
			}
		}
		close(release)
		synctest.Wait()
		if got := b.got(1, replica.Bulk); len(got) != sent {
			t.Errorf("%d frames of %d came", len(got), sent)
		}
		checkOrder(t, b.got(1, replica.Bulk), true)
		for _, m := range []*member{a, b} {
			if events, _ := m.told(); strings.Contains(events, "-") {
				t.Errorf("member %d: %s", m.id, events)
			}
		}
		closeAll(t, a, b)
	})
}

// Goal: who does not say hello in time is cut off, however it spreads its bytes. Method:
// one silent, one with half a hello, one that sends a byte per second.
func TestSlowHello(t *testing.T) {
	t.Parallel()
	for name, every := range map[string]time.Duration{"silent": time.Hour, "half": time.Hour, "drip": time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var n pipeNet
			m := n.member(t, 1, "a:1")
			m.Serve(&m.recorder)
			c, err := n.dial(t.Context(), "pipe", "a:1")
			if err != nil {
				t.Fatal(err)
			}
			began, greeting := time.Now(), validHello().encode()
			if name == "half" {
				_, _ = c.Write(greeting[:len(greeting)/2])
				greeting = greeting[len(greeting)/2:]
			}
			done := make(chan struct{})
			go func() {
				_, _ = io.ReadAll(c)
				close(done)
			}()
			for sending := true; sending; {
				select {
				case <-done:
					sending = false
				case <-time.After(every):
					_, _ = c.Write(greeting[:1])
					greeting = greeting[1:]
				}
			}
			if after := time.Since(began); after != 5*time.Second {
				t.Errorf("%s: cut off after %v, want 5s", name, after)
			}
			closeAll(t, m)
			if !strings.Contains(m.logged.String(), "no greeting within 5s") {
				t.Errorf("%s: the log does not say why: %s", name, m.logged.String())
			}
		})
	}
}

// Goal: a bulk connection without its control connection, on which there are no pings, is given
// up. Method: one by hand that is silent, on a fake clock.
func TestBulkAloneIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n pipeNet
		m := n.member(t, 1, "a:1")
		_ = n.listen("b:1").Close() // it cannot be called back
		m.SetMembers(map[uint64]string{2: "b:1"})
		m.Serve(&m.recorder)
		c, err := n.dial(t.Context(), "pipe", "a:1")
		if err != nil {
			t.Fatal(err)
		}
		h := validHello()
		h.class = replica.Bulk
		greet(t, c, h)
		began := time.Now()
		_ = c.SetReadDeadline(began.Add(time.Hour))
		if _, err := c.Read(make([]byte, 1)); err != io.EOF || time.Since(began) != 5*time.Second {
			t.Errorf("%v after %v, want its end after 5s", err, time.Since(began))
		}
		synctest.Wait()
		if want := "no control connection beside its bulk connection within 5s"; !strings.Contains(m.logged.String(), want) {
			t.Errorf("the log does not say %q: %s", want, m.logged.String())
		}
		closeAll(t, m)
	})
}

// Goal: a stream that makes no progress fails after its timeout, on both ends, and one
// that is only slow does not. Method: a receiver that reads a piece every 20 s, and then
// none.
func TestStalledStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n pipeNet
		a, b := n.member(t, 1, "a:1"), n.member(t, 2, "b:1")
		stalled := make(chan struct{})
		b.onStream = func(_ uint64, s replica.Stream) {
			for range 10 {
				time.Sleep(20 * time.Second)
				if _, err := io.ReadFull(s, make([]byte, streamChunk)); err != nil {
					t.Error(err)
				}
			}
			<-stalled
		}
		serve(a, b)
		s, err := a.Stream(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		written, err := s.Write(make([]byte, 11*streamChunk))
		if after := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || written != 10*streamChunk || after != 230*time.Second {
			t.Errorf("%d bytes written, %v after %v", written, err, after)
		}
		began = time.Now()
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 30*time.Second {
			t.Errorf("read: %v after %v", err, time.Since(began))
		}
		close(stalled)
		_ = s.Close()
		closeAll(t, a, b)
	})
}

// Goal: attempts to connect become rarer up to the bound, never stop, and come at once
// when the other end is seen to be there. Method: count attempts on a fake clock.
func TestBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n pipeNet
		var attempts atomic.Int64
		a := newMember(t, 1, func(c *Config) {
			c.Listener = n.listen("a:1")
			c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				attempts.Add(1)
				return n.dial(ctx, network, address)
			}
		})
		_ = n.listen("b:1").Close() // nobody is there
		a.SetMembers(map[uint64]string{2: "b:1"})
		a.Serve(&a.recorder)
		time.Sleep(100 * time.Millisecond)
		if k := attempts.Load(); k < 3 || k > 8 {
			t.Errorf("%d attempts in the first 100 ms", k)
		}
		attempts.Store(0)
		time.Sleep(100 * time.Second)
		if k := attempts.Load(); k < 100 || k > 200 {
			t.Errorf("%d attempts in 100 s", k)
		}
		b := n.member(t, 2, "b:1")
		b.SetMembers(map[uint64]string{1: "a:1"})
		began := time.Now()
		b.Serve(&b.recorder)
		time.Sleep(time.Second)
		if events, at := a.told(); events != "[+2]" || at.Sub(began) > 10*time.Millisecond {
			t.Errorf("%s after %v", events, at.Sub(began))
		}
		closeAll(t, a, b)
	})
}

// Goal: the log says each cause once a minute and never more than a bound, whatever
// strangers make up. Method: causes on a fake clock.
func TestCauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c causes
		said := 0
		say := func(member uint64, text string) { c.tell(member, errors.New(text), func() { said++ }) }
		expect := func(step string, want int) {
			t.Helper()
			if said != want {
				t.Errorf("%s: said %d times, want %d", step, said, want)
			}
		}
		for port := range 100 {
			say(1, "read 127.0.0.1:"+string(rune('0'+port%10)))
		}
		expect("one cause", 1)
		say(2, "read 127.0.0.1:1")
		expect("another member", 2)
		time.Sleep(causesPeriod)
		say(1, "read 127.0.0.1:1")
		expect("a minute later", 3)
		for n := range 1000 {
			say(3, string(rune('a'+n)))
		}
		expect("made up", 3+causesMax-1)
	})
}
