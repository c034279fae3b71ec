package peer

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/replica"
)

// checkOrder reports frames that are not numbered upwards; all: and without a gap.
func checkOrder(t *testing.T, frames [][]byte, all bool) {
	t.Helper()
	next := uint64(0)
	for i, f := range frames {
		switch n := binary.BigEndian.Uint64(f); {
		case n < next:
			t.Fatalf("frame %d at place %d, behind %d", n, i, next-1)
		case all && n > next:
			t.Fatalf("frame %d at place %d: %d is missing", n, i, next)
		default:
			next = n + 1
		}
	}
}

// Goal: frames arrive complete and in order within their class, whatever their size, and
// both ends count them. Method: both classes both ways at once, from one byte above the
// number to larger than what is gathered and than a chunk, over TCP and over TLS.
func TestFramesInOrder(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	for name, files := range map[string]*TLS{"plain": nil, "tls": ca.member(t, hostOf("127.0.0.1"))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := pair(t, func(c *Config) { c.TLS = files })
			const count = 3000
			var bytes atomic.Uint64
			for from, m := range map[*member]*member{a: b, b: a} {
				for class := range replica.Classes {
					go func() {
						for n := range count {
							size := 9 + rand.N(2000)
							if class == replica.Bulk && n%500 == 0 {
								size = gatherSize + rand.N(2*chunkSize)
							}
							bytes.Add(uint64(size))
							mustSend(t, from, m.id, class, numbered(n, size))
						}
					}()
				}
			}
			for class := range replica.Classes {
				waitFor(t, "all frames", func() bool {
					return len(a.got(2, class)) == count && len(b.got(1, class)) == count
				})
				checkOrder(t, a.got(2, class), true)
				checkOrder(t, b.got(1, class), true)
			}
			waitFor(t, "counters", func() bool {
				x, y := a.Stats()[2], b.Stats()[1]
				return x.SentFrames+y.SentFrames == 4*count && x.ReceivedFrames+y.ReceivedFrames == 4*count &&
					x.SentBytes+y.SentBytes == bytes.Load() && x.ReceivedBytes+y.ReceivedBytes == bytes.Load() &&
					x.QueuedBytes+y.QueuedBytes == 0
			})
			if s := a.Stats()[2]; !s.Connected || s.Version != "v2" || s.Features != 1<<2 || s.Reconnects != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Goal: any broken connection is told to both ends within milliseconds, once, and a new
// link follows, without setting each other off; no frame overtakes another. Method: reset
// either of the two connections of the link in turn under load.
func TestBrokenConnectionIsToldAndMadeAgain(t *testing.T) {
	t.Parallel()
	var dialed connLog
	a := newMember(t, 1, func(c *Config) {
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			if err == nil {
				dialed.add(conn)
			}
			return conn, err
		}
	})
	b := newMember(t, 2, nil)
	serve(a, b)
	waitWhole(t, a, b)
	n, expect := 0, "+"
	for round := range 6 {
		for range 200 {
			a.Send(2, replica.Bulk, numbered(n, 20<<10))
			a.Send(2, replica.Control, numbered(n, 100))
			n++
		}
		began := time.Now()
		dialed.reset(t, round%2)
		expect += " -"
		for _, m := range []*member{a, b} {
			waitFor(t, "told", func() bool { s, _ := m.told(); return strings.Count(s, "-") == round+1 })
		}
		t.Logf("told after %v", time.Since(began))
		waitWhole(t, a, b)
		expect += " +"
	}
	mustSend(t, a, 2, replica.Control, numbered(n, 8))
	mustSend(t, a, 2, replica.Bulk, numbered(n, 8))
	for class := range replica.Classes {
		waitFor(t, "last frame", func() bool {
			frames := b.got(1, class)
			return len(frames) > 0 && binary.BigEndian.Uint64(frames[len(frames)-1]) == uint64(n)
		})
		checkOrder(t, b.got(1, class), false)
	}
	for _, m := range []*member{a, b} {
		other := string(rune('0' + 3 - m.id))
		want := "[" + strings.ReplaceAll(strings.ReplaceAll(expect, "+", "+"+other), "-", "-"+other) + "]"
		if events, _ := m.told(); events != want {
			t.Errorf("member %d was told %s, want %s", m.id, events, want)
		}
	}
	if s := a.Stats()[2]; s.Reconnects != 6 || s.LastError == "" {
		t.Errorf("%+v", s)
	}
	waitFor(t, "a round trip is measured", func() bool { return a.Stats()[2].RTT > 0 })
	if s := b.Stats()[1]; s.Reconnects != 0 {
		t.Errorf("the other link was made %d times again, though nothing broke it", s.Reconnects)
	}
}

// Goal: a member that ends is noticed at once, and found again when it is back. Method:
// close one of three, and open it again at its address.
func TestMemberEndsAndReturns(t *testing.T) {
	t.Parallel()
	a, b, c := newMember(t, 1, nil), newMember(t, 2, nil), newMember(t, 3, nil)
	serve(a, b, c)
	waitWhole(t, a, b)
	waitWhole(t, a, c)
	waitWhole(t, b, c)
	began := time.Now()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*member{a, b} {
		waitFor(t, "told", func() bool { s, _ := m.told(); return strings.Contains(s, "-3") })
		_, at := m.told()
		t.Logf("told after %v", at.Sub(began))
		waitFor(t, "no frame is taken", func() bool { return !m.Send(3, replica.Control, []byte("x")) })
	}
	again := newMember(t, 3, func(cfg *Config) { cfg.Listener = listen(t, c.address) })
	began = time.Now()
	again.SetMembers(map[uint64]string{1: a.address, 2: b.address})
	again.Serve(&again.recorder)
	waitWhole(t, a, again)
	waitWhole(t, b, again)
	t.Logf("connected after %v", time.Since(began))
}

// Goal: who is no member any more is cut off, and told why when it tries again; who moves
// is found at its new address. Method: SetMembers on one side.
func TestSetMembersCutsAndMoves(t *testing.T) {
	t.Parallel()
	a, b := pair(t, nil)
	a.SetMembers(map[uint64]string{1: a.address})
	waitFor(t, "told", func() bool { s, _ := b.told(); return s == "[+1 -1]" })
	waitFor(t, "the reason", func() bool {
		return strings.Contains(b.Stats()[1].LastError, "it refuses this member: member 2 is not a member")
	})
	if a.Send(2, replica.Control, []byte("x")) || len(a.Stats()) != 0 {
		t.Error("the member is still known")
	}
	waitFor(t, "its log says so", func() bool { return strings.Contains(a.logged.String(), "member 2 is not a member") })

	moved := newMember(t, 2, nil)
	moved.SetMembers(map[uint64]string{1: a.address})
	moved.Serve(&moved.recorder)
	a.SetMembers(map[uint64]string{2: "127.0.0.1:1"})
	waitFor(t, "nobody there", func() bool { return strings.Contains(a.Stats()[2].LastError, "refused") })
	a.SetMembers(map[uint64]string{2: moved.address})
	waitWhole(t, a, moved)
	mustSend(t, a, 2, replica.Bulk, []byte("to the new place"))
	waitFor(t, "frame", func() bool { return len(moved.got(1, replica.Bulk)) == 1 })

	// Whoever is at the old place is the member no more, though it still answers.
	again := newMember(t, 2, nil)
	again.SetMembers(map[uint64]string{1: a.address})
	again.Serve(&again.recorder)
	a.SetMembers(map[uint64]string{2: again.address})
	waitFor(t, "frame at the newest place", func() bool {
		a.Send(2, replica.Bulk, []byte("to the newest place"))
		return len(again.got(1, replica.Bulk)) > 0
	})
}

// Goal: nobody is a member before SetMembers says so. Method: one that calls before and after.
func TestNobodyIsAMemberAtFirst(t *testing.T) {
	t.Parallel()
	a, b := newMember(t, 1, nil), newMember(t, 2, nil)
	b.Serve(&b.recorder)
	a.SetMembers(map[uint64]string{2: b.address})
	a.Serve(&a.recorder)
	waitFor(t, "the reason", func() bool {
		return strings.Contains(a.Stats()[2].LastError, "it refuses this member: member 1 is not a member")
	})
	b.SetMembers(map[uint64]string{1: a.address})
	waitWhole(t, a, b)
}

// Goal: Send refuses what it must not take: empty, too large, for a stranger, of no class.
// Method: each once, and the largest that is allowed.
func TestSendRefuses(t *testing.T) {
	t.Parallel()
	a, b := pair(t, func(c *Config) { c.ControlFrameMax = 1000 })
	for name, sent := range map[string]bool{
		"empty": a.Send(2, replica.Control, nil), "too large": a.Send(2, replica.Control, make([]byte, 1001)),
		"stranger": a.Send(9, replica.Control, []byte("x")), "this member": a.Send(1, replica.Control, []byte("x")),
		"no class": a.Send(2, replica.Classes, []byte("x")),
	} {
		if sent {
			t.Errorf("%s: was taken", name)
		}
	}
	mustSend(t, a, 2, replica.Control, make([]byte, 1000))
	waitFor(t, "frame", func() bool { return len(b.got(1, replica.Control)) == 1 })
	if d := a.Stats()[2].Dropped; d != 2 {
		t.Errorf("%d frames were counted as dropped, want 2", d)
	}
}

// Goal: Close ends everything and delivers nothing behind it. Method: goroutines are back
// to what they were, and the receiver's events and frames stay as they are, with frames,
// a stream, an unfinished handshake and a dial under way.
func TestCloseEndsEverything(t *testing.T) {
	base := runtime.NumGoroutine()
	a, b := newMember(t, 1, nil), newMember(t, 2, nil)
	streaming := make(chan struct{})
	b.onStream = func(_ uint64, s replica.Stream) {
		close(streaming)
		_, _ = s.Read(make([]byte, 1))
	}
	serve(a, b)
	waitWhole(t, a, b)
	b.SetMembers(map[uint64]string{1: a.address, 3: "127.0.0.1:1"})
	half, err := net.Dial("tcp", b.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = half.Close() }()
	if _, err := half.Write([]byte("tnr")); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Stream(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	<-streaming
	for n := range 1000 {
		a.Send(2, replica.Bulk, numbered(n, 4096))
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	events, _ := b.told()
	frames := len(b.got(1, replica.Bulk))
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= base })
	if after, _ := b.told(); after != events || len(b.got(1, replica.Bulk)) != frames || events != "[+1]" {
		t.Errorf("delivered behind Close: %s, then %s", events, after)
	}
	if a.Send(2, replica.Control, []byte("x")) {
		t.Error("a closed transport takes frames")
	}
	if _, err := a.Stream(t.Context(), 2); err == nil {
		t.Error("a closed transport opens streams")
	}
}

// Goal: a frame that the receiver refuses ends the link, with the reason, and the next one
// serves. Method: one among others.
func TestRefusedFrameEndsTheLink(t *testing.T) {
	t.Parallel()
	a, b := newMember(t, 1, nil), newMember(t, 2, nil)
	b.refuse = "nonsense"
	a.SetMembers(map[uint64]string{2: b.address})
	b.SetMembers(map[uint64]string{1: a.address})
	a.Serve(&a.recorder)
	b.Serve(&b.recorder)
	waitWhole(t, a, b)
	mustSend(t, a, 2, replica.Bulk, []byte("nonsense"))
	waitFor(t, "the reason", func() bool {
		return strings.Contains(b.Stats()[1].LastError, `a frame of 8 bytes: "nonsense" makes no sense`)
	})
	waitFor(t, "the next link", func() bool { return a.Stats()[2].Reconnects == 1 && a.Send(2, replica.Bulk, []byte("sense")) })
	waitFor(t, "a frame over it", func() bool { return len(b.got(1, replica.Bulk)) > 0 })
}

// Goal: a new link replaces the old one, and its frames wait for those that the old one
// has brought already. Method: by hand, a second link while the receiver is busy with a
// frame of the first.
func TestNewLinkReplacesTheOld(t *testing.T) {
	t.Parallel()
	m := newMember(t, 1, nil)
	busy, release := make(chan struct{}), make(chan struct{})
	m.onFrame = func(_ uint64, _ replica.Class, frame []byte) {
		if string(frame) == "old" {
			close(busy)
			<-release
		}
	}
	m.SetMembers(map[uint64]string{2: "127.0.0.1:1"})
	m.Serve(&m.recorder)
	first, second := validHello(), validHello()
	second.link = 8
	old := greeted(t, m.address, first)
	if _, err := old.Write([]byte("\x00\x00\x00\x03old\x00\x00\x00\x05older")); err != nil {
		t.Fatal(err)
	}
	<-busy
	late := greeted(t, m.address, second)
	if _, err := late.Write([]byte("\x00\x00\x00\x03new")); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if got := readAll(old); got != "" || time.Since(began) > patience/2 {
		t.Errorf("the old connection said %q and was closed after %v", got, time.Since(began))
	}
	<-time.After(50 * time.Millisecond) // for a frame that comes too early
	if got := m.got(2, replica.Control); len(got) != 0 {
		t.Errorf("%q overtook a frame of the old link", got)
	}
	close(release)
	waitFor(t, "the new frame", func() bool {
		got := m.got(2, replica.Control)
		return len(got) == 3 && string(got[0]) == "old" && string(got[2]) == "new"
	})
}
