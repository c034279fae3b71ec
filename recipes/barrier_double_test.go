package recipes_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

func newDoubleBarrier(t *testing.T, s recipes.Store, n int) *recipes.DoubleBarrier {
	t.Helper()
	b, err := recipes.NewDoubleBarrier(s, "/db", n, recipes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// entered is what an Enter in a goroutine came to.
type entered struct {
	round *recipes.Round
	err   error
}

// enterBarrier begins to enter and waits until all that is going on waits.
func enterBarrier(ctx context.Context, b *recipes.DoubleBarrier) <-chan entered {
	c := make(chan entered, 1)
	go func() {
		r, err := b.Enter(ctx)
		c <- entered{r, err}
	}()
	time.Sleep(time.Second)
	return c
}

// mustEnter waits for the round.
func mustEnter(t *testing.T, c <-chan entered) *recipes.Round {
	t.Helper()
	e := <-c
	if e.err != nil {
		t.Fatal(e.err)
	}
	return e.round
}

// wantWaiting fails if somebody has entered.
func wantWaiting(t *testing.T, entries ...<-chan entered) {
	t.Helper()
	for i, c := range entries {
		select {
		case e := <-c:
			t.Fatalf("party %d entered: %v", i, e)
		default:
		}
	}
}

// Goal: parties begin together, end together and go on to the next round; nothing of a
// round is left. Method: three parties, two rounds.
func TestDoubleBarrier(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		var bs []*recipes.DoubleBarrier
		for range 3 {
			bs = append(bs, newDoubleBarrier(t, f.Open(t).Store, 3))
		}
		var last int64
		for range 2 {
			c0, c1 := enterBarrier(t.Context(), bs[0]), enterBarrier(t.Context(), bs[1])
			wantWaiting(t, c0, c1)
			c2 := enterBarrier(t.Context(), bs[2])
			rounds := []*recipes.Round{mustEnter(t, c0), mustEnter(t, c1), mustEnter(t, c2)}
			if n := rounds[0].Number(); n <= last || n != rounds[1].Number() || n != rounds[2].Number() {
				t.Errorf("rounds %d, %d, %d after %d", n, rounds[1].Number(), rounds[2].Number(), last)
			}
			last = rounds[0].Number()
			begun := time.Now()
			var leavers sync.WaitGroup
			for i, r := range rounds {
				leavers.Go(func() {
					time.Sleep(time.Duration(i) * time.Minute)
					if err := r.Leave(t.Context()); err != nil || time.Since(begun) < 2*time.Minute {
						t.Errorf("party %d left after %v: %v", i, time.Since(begun), err)
					}
				})
			}
			leavers.Wait()
			if nodes := f.Nodes("/db/round/"); len(nodes) != 0 {
				t.Errorf("left: %v", nodes)
			}
		}
		if n := f.Watches(); n != 0 {
			t.Errorf("%d watches are left", n)
		}
	})
}

// Goal: a party that dies after the beginning counts as having left. Method: expire one of
// two; the other leaves.
func TestDoubleBarrierDeadPartyHasLeft(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		dies := f.Open(t)
		c := enterBarrier(t.Context(), newDoubleBarrier(t, dies.Store, 2))
		r := mustEnter(t, enterBarrier(t.Context(), newDoubleBarrier(t, f.Open(t).Store, 2)))
		dead := mustEnter(t, c)
		dies.Partition()
		begun := time.Now()
		if err := r.Leave(t.Context()); err != nil || time.Since(begun) > 15*time.Second {
			t.Errorf("leave: %v after %v", err, time.Since(begun))
		}
		dies.Heal()
		if err := dead.Leave(t.Context()); err != nil {
			t.Errorf("leave of the dead: %v", err)
		}
	})
}

// Goal: a failed Enter leaves no member behind, also where the answer was lost or the
// network is away when it gives up. Method: both, then look once the network is back.
func TestP05DoubleBarrierGivesUp(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		b := newDoubleBarrier(t, p.Store, 2)
		for _, offline := range []bool{false, true} {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			var release func()
			if !offline {
				_, release = p.Hold(recipestest.Multi)
			}
			c := enterBarrier(ctx, b)
			if offline {
				p.Partition()
			}
			if e := <-c; !errors.Is(e.err, context.DeadlineExceeded) {
				t.Errorf("enter: %v", e.err)
			}
			cancel()
			if offline {
				p.Heal()
			} else {
				release()
			}
			time.Sleep(time.Second)
			for _, node := range f.Nodes("/db/round/") {
				if strings.Contains(node, "/m-") {
					t.Errorf("offline %v: left %s", offline, node)
				}
			}
		}
	})
}

// Goal: all name the same number of parties, until nobody is entering. Method: two
// numbers at once, then one after the other.
func TestDoubleBarrierParties(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		p, ctx := f.Open(t), t.Context()
		waits, cancel := context.WithCancel(ctx)
		c := enterBarrier(waits, newDoubleBarrier(t, f.Open(t).Store, 3))
		if _, err := newDoubleBarrier(t, p.Store, 2).Enter(ctx); !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("2 parties where 3 gather: %v", err)
		}
		cancel()
		<-c
		synctest.Wait()
		time.Sleep(time.Second)
		if _, err := newDoubleBarrier(t, p.Store, 1).Enter(ctx); err != nil {
			t.Errorf("1 party where nobody gathers: %v", err)
		}
		for _, n := range []int{0, -1, 1001} {
			if _, err := recipes.NewDoubleBarrier(p.Store, "/db", n, recipes.Options{}); !errors.Is(err, recipes.ErrInvalid) {
				t.Errorf("%d parties: %v", n, err)
			}
		}
	})
}

// Goal: each round has exactly as many parties as named, and ends for none before it has
// ended for all, whatever is lost. Method: six clients take part in rounds of three, with
// random cuts, breaks and limits; the seed is printed.
func TestP77DoubleBarrierRandomRounds(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	onFakes(t, recipestest.FakeOptions{Seed: seed, Members: 3, Jitter: 3 * time.Millisecond}, func(t *testing.T, f *recipestest.Fake) {
		const parties = 3
		var mu sync.Mutex
		inside, took := map[int64]int{}, map[int64]int{} // by round
		play := func(p *recipestest.Peer, rng *rand.Rand, until time.Time) {
			b := newDoubleBarrier(t, p.Store, parties)
			for time.Now().Before(until) {
				switch rng.IntN(8) {
				case 0:
					p.CutAfterCommit(recipestest.AnyWrite)
				case 1:
					p.CutBeforeSend(recipestest.AnyWrite)
				case 2:
					time.AfterFunc(time.Duration(rng.IntN(50))*time.Millisecond, p.Break)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				r, err := b.Enter(ctx)
				cancel()
				if err != nil {
					continue // at the end, with too few
				}
				mu.Lock()
				inside[r.Number()]++
				took[r.Number()]++
				mu.Unlock()
				time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
				mu.Lock()
				inside[r.Number()]--
				mu.Unlock()
				if err := r.Leave(t.Context()); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
				mu.Lock()
				if n := inside[r.Number()]; n != 0 {
					t.Errorf("seed %d: round %d ended with %d inside", seed, r.Number(), n)
				}
				mu.Unlock()
			}
		}
		var players sync.WaitGroup
		until := time.Now().Add(2 * time.Minute)
		for i := range uint64(2 * parties) {
			p, rng := f.Open(t), rand.New(rand.NewPCG(seed, i))
			players.Go(func() { play(p, rng, until) })
		}
		players.Wait()
		for n, members := range took {
			if members != parties {
				t.Errorf("seed %d: round %d had %d parties", seed, n, members)
			}
		}
		if len(took) < 50 {
			t.Errorf("seed %d: %d rounds in 2 minutes", seed, len(took))
		}
	})
}
