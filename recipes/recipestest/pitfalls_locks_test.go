package recipestest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
)

// onFakes runs a test on a fake of each flavour, with that as a harness.
func onFakes(t *testing.T, o FakeOptions, test func(t *testing.T, f *Fake, h Harness)) {
	for _, exact := range []bool{true, false} {
		o.Exact = exact
		h := FakeHarness(o)
		t.Run(h.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := NewFake(o)
				h.Open = f.Open
				test(t, f, h)
			})
		})
	}
}

// Goal: a semaphore never has more holders than slots, and never fewer than it could once
// faults end. Method: 20 peers take one, two or three of three slots, waiting or trying,
// for half an hour of cuts, partitions and lost sessions; then all three are taken.
func TestC083SemaphoreUnderFaults(t *testing.T) {
	onFakes(t, FakeOptions{Members: 3}, func(t *testing.T, f *Fake, h Harness) {
		path := "/c083"
		var peers []*Peer
		for range 20 {
			peers = append(peers, f.Open(t))
		}
		s := &storm{workers: 20, steps: 1 << 30, length: 30 * time.Minute, hold: h.Timeout / 4, long: 4, every: h.Timeout / 50,
			b: &believers{excluded: func(shares []int) bool { return sum(shares) > 3 }}}
		s.lock = func(ctx context.Context, rng *rand.Rand, p *Peer) (held *recipes.Tenure, share int, err error) {
			sem, n := slotsAt(t, p.Store, path, 3), 1
			if rng.IntN(5) == 0 {
				n += rng.IntN(3)
			}
			if rng.IntN(3) > 0 {
				held, err = sem.Acquire(ctx, n)
				return held, n, err
			}
			held, _, err = sem.TryAcquire(ctx, n)
			pause(t, h.Timeout/100)
			return held, n, err
		}
		s.fault = func(rng *rand.Rand, p *Peer) {
			if rng.IntN(4) > 0 {
				breakSomething(t, h, rng, p)
				return
			}
			p.Partition()
			time.AfterFunc(time.Duration(rng.Int64N(int64(2*h.Timeout))), p.Heal)
		}
		s.run(t, h, peers, rand.Uint64())
		if s.got.Load() < 200 || s.lost.Load() == 0 {
			t.Errorf("only %d tenures, %d of them lost", s.got.Load(), s.lost.Load())
		}
		for _, p := range peers {
			p.Heal()
		}
		calm := time.Now()
		bound := h.Timeout + 2*time.Second
		if !f.o.Exact { // to a tick, and the hold-off
			bound += h.Timeout/2 + h.Timeout/4
		}
		held := obtained(t, h, acquire(slotsAt(t, f.Open(t).Store, path, 3), 3))
		if took := time.Since(calm); took > bound {
			t.Errorf("all slots were free after %v", took)
		}
		if left := f.Nodes(path); len(left) > 3 { // the directory, its slots, the holder
			t.Errorf("left: %v", left)
		}
		released(t, h, held)
	})
}

// handOvers has n wait for one name in a known order, each on the next of the peers, and
// returns what all did in the hand-overs from each to the next.
func handOvers(t *testing.T, f *Fake, h Harness, peers []*Peer, n int, lock func(s recipes.Store) (*recipes.Tenure, error)) Stats {
	t.Helper()
	turns := make(chan int, n)
	goOn := make(chan struct{})
	for i := range n {
		go func() {
			held, err := lock(peers[i%len(peers)].Store)
			if err != nil {
				t.Error(err)
			}
			turns <- i
			<-goOn
			if err := held.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(50 * time.Millisecond) // the first one makes the directory
	}
	if first := <-turns; first != 0 {
		t.Errorf("%d was the first", first)
	}
	time.Sleep(h.Timeout) // nobody has anything to do
	before, begun := f.Stats(), time.Now()
	for i := 1; i < n; i++ {
		goOn <- struct{}{}
		if next := <-turns; next != i {
			t.Errorf("%d came after %d", next, i-1)
		}
		time.Sleep(10 * time.Millisecond) // until the one behind knows
	}
	after, took := f.Stats(), time.Since(begun)
	goOn <- struct{}{}
	time.Sleep(h.Timeout)
	if n := f.Watches(); n != 0 {
		t.Errorf("%d watches are left", n)
	}
	t.Logf("%d hand-overs in %v: %+v to %+v", n-1, took, before, after)
	return Stats{Reads: after.Reads - before.Reads, Writes: after.Writes - before.Writes, Events: after.Events - before.Events}
}

// frugal fails unless each hand-over cost one event for the release and one for the claim,
// which tells the next in line how to take over, and at most five reads.
func frugal(t *testing.T, s Stats, n int) {
	t.Helper()
	if s.Events > 2*n || s.Reads > 5*n || s.Writes > 3*n {
		t.Errorf("%d hand-overs cost %+v", n, s)
	}
}

// Goal: a release wakes the next in line and nobody else, in the order of asking. Method:
// 500 wait for a lock, each in a session of its own, then all in one and in five.
func TestC085Herd(t *testing.T) {
	for _, sessions := range []int{500, 1, 5} {
		t.Run(fmt.Sprint(sessions), func(t *testing.T) {
			onFakes(t, FakeOptions{}, func(t *testing.T, f *Fake, h Harness) {
				var peers []*Peer
				for range sessions {
					peers = append(peers, f.Open(t))
				}
				frugal(t, handOvers(t, f, h, peers, 500, func(s recipes.Store) (*recipes.Tenure, error) {
					return mutexAt(t, s, "/herd").Lock(t.Context())
				}), 499)
			})
		})
	}
}

// Goal: what a hand-over costs does not depend on how many wait. Method: 10 candidates of
// one election, then 1 000.
func TestHandOverAmongManyCandidates(t *testing.T) {
	onFakes(t, FakeOptions{}, func(t *testing.T, f *Fake, h Harness) {
		var peers []*Peer
		for range 10 {
			peers = append(peers, f.Open(t))
		}
		for _, n := range []int{10, 1000} {
			path := fmt.Sprint("/election", n)
			frugal(t, handOvers(t, f, h, peers, n, func(s recipes.Store) (*recipes.Tenure, error) {
				e, err := recipes.NewElection(s, path, recipes.ElectionOptions{})
				if err != nil {
					return nil, err
				}
				return e.Campaign(t.Context())
			}), n-1)
		}
	})
}

// Goal: all tenures of a session are proved by one renewal per period. Method: 1 000 locks
// for a minute.
func TestRenewalsOfManyTenures(t *testing.T) {
	onFakes(t, FakeOptions{}, func(t *testing.T, f *Fake, h Harness) {
		p := f.Open(t)
		var all []*recipes.Tenure
		for i := range 1000 {
			all = append(all, obtained(t, h, mutexAt(t, p.Store, fmt.Sprint("/many/", i)).Lock))
		}
		time.Sleep(h.Timeout)
		before := f.StatsOf(p.Store)
		time.Sleep(time.Minute)
		after := f.StatsOf(p.Store)
		worth := 0.98 * h.Timeout.Seconds()
		if !f.o.Exact {
			worth = 0.4 * h.Timeout.Seconds()
		}
		periods := 60 / (worth / 3)
		n := float64(after.Renewals - before.Renewals)
		t.Logf("%v renewals in %.1f periods", n, periods)
		if n < 0.85*periods || n > 1.15*periods+1 || after.Reads != before.Reads || after.Writes != before.Writes {
			t.Errorf("from %+v to %+v in %.1f periods", before, after, periods)
		}
		for _, held := range all {
			if err := held.Check(); err != nil {
				t.Fatal(err)
			}
		}
		released(t, h, all[0])
	})
}
