package recipestest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// randomRuns is how many seeds a random test plays. One that fails prints its seed.
const randomRuns = 25

// plagued runs test in bubbles, for both flavours and some seeds, while random faults
// befall its peers. At the end all faults are over.
func plagued(t *testing.T, test func(t *testing.T, f *Fake, peers []*Peer, ctx context.Context)) {
	for seed := range uint64(randomRuns) {
		for _, exact := range []bool{true, false} {
			t.Run(fmt.Sprintf("exact=%v/seed=%d", exact, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := NewFake(FakeOptions{Exact: exact, Members: 3, Seed: seed, Jitter: 20 * time.Millisecond})
					var peers []*Peer
					for range 3 {
						peers = append(peers, f.Open(t))
					}
					ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
					defer stop()
					var wg sync.WaitGroup
					wg.Go(func() { plague(ctx, rand.New(rand.NewPCG(seed, 1)), peers) })
					test(t, f, peers, ctx)
					wg.Wait()
				})
			})
		}
	}
}

// plague plays random faults until ctx ends, and then ends them.
func plague(ctx context.Context, rng *rand.Rand, peers []*Peer) {
	some := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
	for ctx.Err() == nil {
		p := peers[rng.IntN(len(peers))]
		undo := func() {}
		switch rng.IntN(9) {
		case 0:
			p.Break()
		case 1:
			p.Move()
		case 2:
			p.CutAfterCommit(OpKind(1 + rng.IntN(int(Probe))))
		case 3:
			p.CutBeforeSend(OpKind(1 + rng.IntN(int(Probe))))
		case 4:
			_, undo = p.Hold(AnyWrite)
		case 5:
			p.Partition()
			undo = p.Heal
		case 6:
			p.Lag(some(3 * time.Second))
			undo = func() { p.Lag(0) }
		case 7:
			p.Isolate()
			undo = p.Rejoin
		case 8:
			undo = p.Pause()
		}
		timer := time.NewTimer(some(12 * time.Second))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		undo()
	}
}

// Goal: whatever happens, an acknowledged renewal is kept where expiry is exact: the
// session is open until Sent+TTL. Method: renew all the time; look at the sessions right
// before each proof ends.
func TestFakeRandomProofs(t *testing.T) {
	plagued(t, func(t *testing.T, f *Fake, peers []*Peer, ctx context.Context) {
		var wg sync.WaitGroup
		for _, p := range peers {
			wg.Go(func() {
				for ctx.Err() == nil {
					s := p.Store.Session()
					proof, _, err := s.Renew(ctx)
					if err != nil {
						time.Sleep(100 * time.Millisecond)
						continue
					}
					id := s.ID()
					left := time.Until(proof.Sent.Add(proof.TTL)) - time.Nanosecond
					if left < 0 {
						continue // it came too late to be worth anything
					}
					wg.Go(func() {
						time.Sleep(left)
						if open := f.isOpen(id); !open && f.o.Exact {
							t.Errorf("session %d did not last until its proof's end", id)
						}
					})
					time.Sleep(300 * time.Millisecond)
				}
			})
		}
		wg.Wait()
	})
}

// isOpen reports whether the leader has the session.
func (f *Fake) isOpen(id int64) bool {
	for _, open := range f.Sessions() {
		if open == id {
			return true
		}
	}
	return false
}

// Goal: outcomes are what they say: a success was applied once, a definite error and
// ErrUnavailable never, an uncertain one at most once; where the client resends nothing
// is uncertain but for the end of a session. Method: sequential creates under names of
// their own.
func TestFakeRandomOutcomes(t *testing.T) {
	plagued(t, func(t *testing.T, f *Fake, peers []*Peer, ctx context.Context) {
		var mu sync.Mutex
		outcome := map[string]error{}
		var wg sync.WaitGroup
		for i, p := range peers {
			wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					path := fmt.Sprintf("/p%d-%04d-", i, n)
					made, err := p.Store.Create(context.WithoutCancel(ctx), path, nil, recipes.CreateSpec{Sequential: true})
					if f.o.Exact && errors.Is(err, recipes.ErrUncertain) && !errors.Is(err, recipes.ErrSessionExpired) {
						t.Errorf("%s: %v", path, err)
					}
					if err == nil && made[:len(path)] != path {
						t.Errorf("%s: made %s", path, made)
					}
					mu.Lock()
					outcome[path] = err
					mu.Unlock()
					time.Sleep(200 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		count := map[string]int{}
		for _, node := range f.Nodes("/p") {
			count[node[:len(node)-10]]++
		}
		for path, err := range outcome {
			n := count[path]
			if err == nil && n != 1 || n > 1 || err != nil && !errors.Is(err, recipes.ErrUncertain) && n != 0 {
				t.Errorf("%s: made %d times, outcome %v", path, n, err)
			}
		}
	})
}

// Goal: whoever reads again at each event ends up with the newest state, and each watch
// tells once. Method: a writer that stops, readers that follow it.
func TestFakeRandomWatches(t *testing.T) {
	plagued(t, func(t *testing.T, f *Fake, peers []*Peer, ctx context.Context) {
		last := "0"
		for _, err := peers[0].Store.Create(ctx, "/x", []byte(last), persistent); err != nil; {
			_, err = peers[0].Store.Create(ctx, "/x", []byte(last), persistent)
			if errors.Is(err, znode.NodeExists) {
				break
			}
		}
		var wg sync.WaitGroup
		seen := make([]string, len(peers))
		for i, p := range peers {
			wg.Go(func() { followNode(t, ctx, p.Store, &seen[i]) })
		}
		for n := 1; ctx.Err() == nil; n++ {
			next := fmt.Sprint(n)
			_, err := peers[0].Store.Set(context.WithoutCancel(ctx), "/x", []byte(next), recipes.Always())
			if err == nil {
				last = next
			}
			time.Sleep(500 * time.Millisecond)
		}
		wg.Wait()
		for i, got := range seen {
			data, _, err := peers[i].Store.Get(t.Context(), "/x")
			if err == nil && got != string(data) {
				t.Errorf("peer %d saw %s at last, but there is %s", i, got, data)
			}
		}
		if n := f.Watches(); n != 0 {
			t.Errorf("%d watches left", n)
		}
	})
}

// followNode reads /x at each event until a minute after ctx.
func followNode(t *testing.T, ctx context.Context, s recipes.Store, seen *string) {
	end := time.NewTimer(3 * time.Minute)
	version := int32(-1)
	for {
		data, st, w, err := s.GetW(context.WithoutCancel(ctx), "/x")
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if s.Caps().ExactExpiry && st.Version < version {
			t.Errorf("travelled back from %d to %d", version, st.Version)
		}
		*seen, version = string(data), st.Version
		select {
		case _, ok := <-w.C:
			if _, more := <-w.C; !ok || more {
				t.Error("a watch told nothing, or twice")
			}
		case <-end.C:
			w.Cancel()
			return
		}
	}
}
