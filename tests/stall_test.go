package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/znode"
)

// deletions notes when an observer was told of the deletion of each znode below a path.
type deletions struct {
	mu struct {
		sync.Mutex
		at   map[string]time.Time
		zxid map[string]int64
	}
	changed chan struct{} // capacity 1
}

// observe watches all below path until the test ends.
func observe(t *testing.T, c *client.Client, path string) *deletions {
	d := &deletions{changed: make(chan struct{}, 1)}
	d.mu.at, d.mu.zxid = map[string]time.Time{}, map[string]int64{}
	ctx, cancel := context.WithCancel(t.Context())
	armed, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for ev, err := range c.Watch(ctx, path, client.WatchOptions{Recursive: true, Armed: func(int64) { close(armed) }}) {
			if err == nil && ev.Type == znode.EventDeleted {
				d.add(ev.Path, ev.Zxid)
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	select {
	case <-armed:
	case <-done:
		t.Fatal("the watch ended at once")
	}
	return d
}

func (d *deletions) add(path string, zxid int64) {
	d.mu.Lock()
	d.mu.at[path], d.mu.zxid[path] = time.Now(), zxid
	d.mu.Unlock()
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// of returns when path was deleted, the zero time if it was not.
func (d *deletions) of(path string) (at time.Time, zxid int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.at[path], d.mu.zxid[path]
}

// await waits until n znodes are gone.
func (d *deletions) await(t *testing.T, n int, limit time.Duration) {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		d.mu.Lock()
		got := len(d.mu.at)
		d.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-d.changed:
		case <-timer.C:
			t.Fatalf("%d of %d znodes are gone after %v", got, n, limit)
		}
	}
}

func mustCreate(t *testing.T, c *client.Client, path string) {
	t.Helper()
	if _, _, err := c.Create(t.Context(), path, nil, client.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// mustOpen opens a bare session with an ephemeral at path.
func mustOpen(t *testing.T, dial dialer, timeout time.Duration, paths ...string) *bareSession {
	t.Helper()
	s, err := openBareSession(t.Context(), dial, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	if err := s.createEphemerals(paths...); err != nil {
		t.Fatal(err)
	}
	return s
}

// Goal: a member that did not run for longer than the session timeouts expires nobody
// who kept sending. Method: SIGSTOP for two to three timeouts and SIGCONT, again and
// again, while sessions send heartbeats into their sockets; no ephemeral may go, no
// connection break, and heartbeats must be answered again. A session that is silent
// must still end afterwards: the stall must not suspend expiry for good.
func TestC025StalledServer(t *testing.T) {
	const timeout = time.Second
	seed := randomSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	m := newMember(t)
	c := m.connect(client.Options{})
	mustCreate(t, c, "/stall")
	gone := observe(t, c, "/stall")
	sessions := make([]*bareSession, 30)
	for i := range sessions {
		sessions[i] = mustOpen(t, m.dial, timeout, fmt.Sprintf("/stall/%d", i))
		keepBeating(t, sessions[i], func() time.Duration { return timeout / 3 })
	}
	for round := range 3 {
		mustOpen(t, m.dial, timeout, fmt.Sprintf("/stall/silent-%d", round))
		d := m.running.Load()
		d.signal(syscall.SIGSTOP)
		<-time.After(2*timeout + upTo(rng, timeout))
		d.signal(syscall.SIGCONT)
		resumed := time.Now()
		gone.await(t, round+1, 2*timeout+3*time.Second)
		for i, s := range sessions {
			path := fmt.Sprintf("/stall/%d", i)
			if at, _ := gone.of(path); !at.IsZero() {
				t.Errorf("round %d: the ephemeral of session %v, which sent heartbeats, went %v after the stall", round, s.id, at.Sub(resumed))
			}
			if sent, _, _ := s.proven(); s.err() != nil || sent.Before(resumed) {
				t.Errorf("round %d: session %v: last answered heartbeat sent %v after the stall, connection: %v", round, s.id, sent.Sub(resumed), s.err())
			}
		}
		if _, stat, err := c.Get(t.Context(), "/stall", client.ReadOptions{}); err != nil || int(stat.NumChildren) != len(sessions) {
			t.Errorf("round %d: %v, %d ephemerals are there, %d must be", round, err, stat.NumChildren, len(sessions))
		}
	}
}

// Goal: the Go client's session survives a stall of the member too, as long as the
// client does not give it up by its own clock, at four thirds of the timeout. Method:
// stalls of one timeout; the session must be the same, its ephemeral untouched.
func TestC025StalledServerGoClient(t *testing.T) {
	const timeout = 2 * time.Second
	m := newMember(t)
	c := m.connect(client.Options{Timeout: timeout})
	id := c.Session().ID()
	_, want, err := c.Create(t.Context(), "/held", nil, client.CreateOptions{Mode: znode.Mode{Kind: znode.Ephemeral}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d := m.running.Load()
		d.signal(syscall.SIGSTOP)
		<-time.After(timeout)
		d.signal(syscall.SIGCONT)
		if _, _, err := c.Session().Renew(t.Context()); err != nil || c.Session().ID() != id {
			t.Fatalf("session %v became %v: %v", id, c.Session().ID(), err)
		}
	}
	if _, stat, err := c.Get(t.Context(), "/held", client.ReadOptions{}); err != nil || stat != want {
		t.Errorf("%v, the ephemeral is %+v, must be %+v", err, stat, want)
	}
}

// keepBeating sends heartbeats until the session's connection or the test ends, whether
// they are answered or not.
func keepBeating(t *testing.T, s *bareSession, interval func() time.Duration) {
	done, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-time.After(interval()):
			case <-s.ended:
				return
			case <-stop:
				return
			}
			if s.beat() != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
}

// Goal: an answered heartbeat is a promise: the session lives for a timeout from when it
// was sent; and it ends soon after the promise does. Method: sessions with random
// heartbeats behind proxies that pause at random, so that some heartbeats are late and
// some sessions expire; then all fall silent. By the observer's clock no ephemeral may
// go before a timeout after the sending of any answered heartbeat.
func TestP6HeartbeatPromise(t *testing.T) {
	const timeout, sessions = time.Second, 60
	seed := randomSeed(t)
	m := newMember(t)
	c := m.connect(client.Options{})
	mustCreate(t, c, "/promise")
	gone := observe(t, c, "/promise")
	rng := rand.New(rand.NewPCG(seed, 0))
	proxies := make([]*proxy, 4)
	for i := range proxies {
		proxies[i] = newProxy(t, seed+uint64(i), m.dial)
	}
	var beating sync.WaitGroup
	all := make([]*bareSession, sessions)
	for i := range all {
		all[i] = mustOpen(t, proxies[i%len(proxies)].dial, timeout, fmt.Sprintf("/promise/%d", i))
		rng := rand.New(rand.NewPCG(seed, uint64(i)+1))
		beating.Go(func() { beatAtRandom(all[i], rng, timeout) })
	}
	for range 12 {
		p := proxies[rng.IntN(len(proxies))]
		p.pause()
		<-time.After(upTo(rng, timeout*6/10))
		p.resume()
	}
	beating.Wait()
	gone.await(t, sessions, 10*timeout)
	var late []time.Duration
	for i, s := range all {
		at, _ := gone.of(fmt.Sprintf("/promise/%d", i))
		sent, answered, open := s.proven()
		if lived := at.Sub(sent); lived < timeout {
			t.Errorf("session %v: its ephemeral went %v after the sending of an answered heartbeat, the timeout is %v", s.id, lived, timeout)
		}
		if open == 0 && answered.Sub(sent) < 20*time.Millisecond {
			late = append(late, at.Sub(sent)-timeout)
		}
	}
	slices.Sort(late)
	if len(late) == 0 {
		t.Fatal("no session fell silent in good order")
	}
	p50, p99 := late[len(late)/2], late[len(late)*99/100]
	t.Logf("%d sessions ended after the end of the promise: p50 %v, p99 %v", len(late), p50, p99)
	if p50 > 250*time.Millisecond || p99 > 2*time.Second {
		t.Errorf("expiry came late: p50 %v (at most 250ms), p99 %v (at most 2s on a busy machine)", p50, p99)
	}
}

// beatAtRandom sends heartbeats for a while, most of them in time.
func beatAtRandom(s *bareSession, rng *rand.Rand, timeout time.Duration) {
	end := time.Now().Add(2*timeout + upTo(rng, 2*timeout))
	for time.Now().Before(end) {
		select {
		case <-time.After(20*time.Millisecond + upTo(rng, timeout*7/10)):
		case <-s.ended:
			return
		}
		if s.beat() != nil {
			return
		}
	}
}
