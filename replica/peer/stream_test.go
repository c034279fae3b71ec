package peer

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/replica"
)

// echo sends back what it gets, until the other end has written all.
func echo(_ uint64, s replica.Stream) {
	buf := make([]byte, 32<<10)
	for {
		n, err := s.Read(buf)
		if _, werr := s.Write(buf[:n]); err != nil || werr != nil {
			_ = s.CloseWrite()
			return
		}
	}
}

// Goal: a stream carries much in little memory, both ways at once, over TCP and TLS, and
// each side learns that the other has written all. Method: echo of 64 MiB, compared by
// hash, while the heap is watched.
func TestStreamEcho(t *testing.T) {
	ca := newAuthority(t)
	for name, files := range map[string]*TLS{"plain": nil, "tls": ca.member(t, hostOf("127.0.0.1"))} {
		t.Run(name, func(t *testing.T) {
			a, b := newMember(t, 1, func(c *Config) { c.TLS = files }), newMember(t, 2, func(c *Config) { c.TLS = files })
			b.onStream = echo
			serve(a, b)
			waitWhole(t, a, b)
			s, err := a.Stream(t.Context(), 2)
			if err != nil {
				t.Fatal(err)
			}
			sent, received := sha256.New(), sha256.New()
			var writing sync.WaitGroup
			writing.Go(func() { writeMuch(t, s, sent) })
			buf, highest, base := make([]byte, 64<<10), uint64(0), heap()
			for count := 0; err == nil; count++ {
				var n int
				n, err = s.Read(buf)
				received.Write(buf[:n])
				if count%200 == 0 {
					highest = max(highest, heap())
				}
			}
			writing.Wait()
			if err != io.EOF || string(sent.Sum(nil)) != string(received.Sum(nil)) {
				t.Errorf("%v, or not what was sent", err)
			}
			grown := int64(highest) - int64(base)
			t.Logf("heap grew by %d KiB", grown>>10)
			if grown > 8<<20 {
				t.Errorf("heap grew by %d KiB", grown>>10)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// writeMuch writes 64 MiB, changing, and closes its side.
func writeMuch(t *testing.T, s replica.Stream, sum hash.Hash) {
	piece := make([]byte, 1<<20)
	for n := range 64 {
		for i := range piece {
			piece[i] = byte(i*7 + n)
		}
		sum.Write(piece)
		if n, err := s.Write(piece); err != nil || n != len(piece) {
			t.Errorf("%d bytes written, %v", n, err)
			return
		}
	}
	if err := s.CloseWrite(); err != nil {
		t.Error(err)
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Goal: streams end with their context and with membership, are bounded in number, and go
// to members only. Method: streams that nothing happens on.
func TestStreamsEnd(t *testing.T) {
	t.Parallel()
	a, b := newMember(t, 1, nil), newMember(t, 2, func(c *Config) { c.StreamsMax = 2 })
	begun, over := make(chan struct{}, 10), make(chan error, 10)
	b.onStream = func(_ uint64, s replica.Stream) {
		begun <- struct{}{}
		_, err := s.Read(make([]byte, 1))
		over <- err
	}
	serve(a, b)
	waitWhole(t, a, b)
	if _, err := a.Stream(t.Context(), 9); err == nil || !strings.Contains(err.Error(), "member 9 is not a member") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, err := a.Stream(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Stream(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Stream(t.Context(), 2); err == nil || !strings.Contains(err.Error(), "2 streams of member 1 are open already") {
		t.Error(err)
	}
	cancel()
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	expectEnd := func() {
		t.Helper()
		select {
		case <-over:
		case <-time.After(patience):
			t.Fatal("the stream did not end")
		}
	}
	expectEnd()
	waitFor(t, "there is room again", func() bool { _, err := a.Stream(t.Context(), 2); return err == nil })
	waitFor(t, "three were begun", func() bool { return len(begun) == 3 })
	b.SetMembers(map[uint64]string{2: b.address})
	expectEnd()
	expectEnd()
	waitFor(t, "the link is cut too", func() bool { s, _ := a.told(); return strings.HasPrefix(s, "[+2 -2") })
}

// Goal: closing a stream early is an error at the other end, not the end of the data.
// Method: the receiver hangs up while the sender writes.
func TestStreamHungUp(t *testing.T) {
	t.Parallel()
	a, b := pair(t, nil) // its receiver returns at once, which closes
	s, err := a.Stream(t.Context(), b.id)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	waitFor(t, "error", func() bool {
		_, err := s.Write(make([]byte, 100<<10))
		return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	})
}
