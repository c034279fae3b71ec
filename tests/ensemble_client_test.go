package tests

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/znode"
)

// scaled is one size of a test for every day, and the full one of its case where
// TENURE_FULL=1 asks for it, as `make chaos` does.
func scaled[T any](daily, full T) T {
	if os.Getenv("TENURE_FULL") == "1" {
		return full
	}
	return daily
}

// steering decides which member a client reaches. Its methods may be called by any number
// of goroutines.
type steering struct {
	mu    sync.Mutex
	to    *ensembleMember // nil: whom the client asks for
	conns map[net.Conn]bool
}

// dial is for client.Options.Dial.
func (s *steering) dial(ctx context.Context, network, address string) (net.Conn, error) {
	s.mu.Lock()
	if s.to != nil {
		address = s.to.http
	}
	s.mu.Unlock()
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		s.conns = map[net.Conn]bool{}
	}
	s.conns[c] = true
	return c, nil
}

// steer makes m the only member that is reached, nil all of them, and cuts what is
// connected to another one.
func (s *steering) steer(m *ensembleMember) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = m
	for c := range s.conns {
		if m == nil || c.RemoteAddr().String() != m.http {
			c.Close()
			delete(s.conns, c)
		}
	}
}

// release lets the client reach all members from now on, and cuts nothing.
func (s *steering) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = nil
}

// steered opens a session that is connected to m until it is steered elsewhere.
func (e *ensemble) steered(m *ensembleMember, o client.Options) (*client.Client, *steering) {
	e.t.Helper()
	s := &steering{to: m}
	o.Dial = s.dial
	return e.connect(o), s
}

// ensembleLoad is clients that write one after the other, each to a znode of its own, and
// what they were told. It belongs to the test's goroutine but for what its workers do.
type ensembleLoad struct {
	t    *testing.T
	stop context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex
	writes []timedWrite
	failed error
}

// timedWrite is an acknowledged write.
type timedWrite struct{ sent, acked time.Time }

// startLoad lets each of clients write every interval to path-number.
func startLoad(t *testing.T, path string, interval time.Duration, clients ...*client.Client) *ensembleLoad {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &ensembleLoad{t: t, stop: stop}
	for i, c := range clients {
		own := path + "-" + string(rune('a'+i))
		mustCreate(t, c, own)
		l.work.Go(func() {
			for version := int32(0); ctx.Err() == nil; version++ {
				sent := time.Now()
				call, done := context.WithTimeout(t.Context(), time.Minute)
				stat, err := c.Set(call, own, []byte("x"), version)
				done()
				acked := time.Now()
				if err == nil && stat.Version != version+1 {
					err = fmt.Errorf("%s has version %d, must have %d", own, stat.Version, version+1)
				}
				l.mu.Lock()
				if err == nil {
					l.writes = append(l.writes, timedWrite{sent, acked})
				}
				l.failed = errors.Join(l.failed, err)
				l.mu.Unlock()
				if err != nil {
					return
				}
				<-time.After(interval - time.Since(sent))
			}
		})
	}
	t.Cleanup(stop)
	return l
}

// end stops the load and returns all writes in the order of their acknowledgment. Each must
// have been acknowledged, and applied once.
func (l *ensembleLoad) end() []timedWrite {
	l.t.Helper()
	l.stop()
	l.work.Wait()
	if l.failed != nil {
		l.t.Errorf("a write failed: %v", l.failed)
	}
	slices.SortFunc(l.writes, func(a, b timedWrite) int { return a.acked.Compare(b.acked) })
	return l.writes
}

// latency returns the q-th of how long writes took, and largestGap the longest time without
// an acknowledgment.
func latency(writes []timedWrite, q float64) time.Duration {
	var all []time.Duration
	for _, w := range writes {
		all = append(all, w.acked.Sub(w.sent))
	}
	slices.Sort(all)
	return all[int(q*float64(len(all)-1))]
}

func largestGap(writes []timedWrite) (gap time.Duration) {
	for i := 1; i < len(writes); i++ {
		gap = max(gap, writes[i].acked.Sub(writes[i-1].acked))
	}
	return gap
}

// holdEphemeral creates an ephemeral of c's session.
func holdEphemeral(t *testing.T, c *client.Client, path string) znode.Stat {
	t.Helper()
	_, stat, err := c.Create(t.Context(), path, nil, client.CreateOptions{Mode: znode.Mode{Kind: znode.Ephemeral}})
	if err != nil {
		t.Fatal(err)
	}
	return stat
}

// mustHold wants the ephemeral at path to be exactly what it was.
func mustHold(t *testing.T, c *client.Client, path string, want znode.Stat, when string) {
	t.Helper()
	if _, stat, err := c.Get(t.Context(), path, client.ReadOptions{}); err != nil || stat != want {
		t.Errorf("%s: %v, %s is %+v, must be %+v", when, err, path, stat, want)
	}
}
