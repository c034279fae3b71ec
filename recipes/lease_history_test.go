package recipes_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// leaseHistory is what all holders of one lease did, on one clock.
type leaseHistory struct {
	t    *testing.T
	seed uint64

	mu      sync.Mutex
	live    map[*recipes.Tenure]string
	token   recipes.Token // the highest that anybody began with
	begun   int
	landed  int // guarded writes
	overlap int
}

func (h *leaseHistory) errorf(format string, args ...any) {
	h.t.Errorf("seed %d: %s", h.seed, fmt.Sprintf(format, args...))
}

// begin notes a tenure: tokens grow in the order of their beginnings. Two can believe at
// once only if one does when the other begins.
func (h *leaseHistory) begin(held *recipes.Tenure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun++
	if held.Token() <= h.token {
		h.errorf("token %d began after %d", held.Token(), h.token)
	}
	h.token = max(h.token, held.Token())
	h.live[held] = held.Holder()
	h.sampleLocked()
}

// sample counts who believes at this instant.
func (h *leaseHistory) sample() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sampleLocked()
}

func (h *leaseHistory) sampleLocked() {
	var who []string
	for held, id := range h.live {
		if held.Check() == nil {
			who = append(who, fmt.Sprintf("%s (token %d)", id, held.Token()))
		} else {
			delete(h.live, held)
		}
	}
	if len(who) > 1 {
		h.overlap++
		h.errorf("at once: %v", who)
	}
}

// play is one process: it acquires, writes under guard, and releases, or forgets to.
func (h *leaseHistory) play(ctx context.Context, l *recipes.Lease, rng *rand.Rand) {
	for ctx.Err() == nil {
		held, err := l.Acquire(ctx)
		if err != nil {
			return
		}
		h.begin(held)
		work := time.Duration(rng.IntN(40)) * time.Second
		for end := time.Now().Add(work); time.Now().Before(end) && held.Check() == nil && ctx.Err() == nil; {
			data := binary.BigEndian.AppendUint64(nil, uint64(held.Token()))
			if _, err := held.Txn(ctx, recipes.OpSet("/effects", data, recipes.Always())); err == nil {
				h.mu.Lock()
				h.landed++
				h.mu.Unlock()
			}
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
		}
		if rng.IntN(3) == 0 { // it hangs, until its deadline or for two minutes
			select {
			case <-held.Done():
			case <-time.After(2 * time.Minute):
			}
		}
		_ = held.Release(ctx) // offline it is not confirmed
	}
}

// disturb plays random faults on one process until ctx ends.
func disturb(ctx context.Context, p *recipestest.Peer, rng *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(rng.IntN(30_000)) * time.Millisecond)
		d := time.Duration(rng.IntN(25_000)) * time.Millisecond
		switch rng.IntN(8) {
		case 0, 1, 2:
			p.Partition()
			time.Sleep(d)
			p.Heal()
		case 3:
			p.Delay(d / 3)
			time.Sleep(d)
			p.Delay(0)
		case 4:
			p.CutAfterCommit(recipestest.AnyWrite)
		case 5:
			resume := p.Pause()
			time.Sleep(d)
			resume()
		case 6:
			p.JumpWall(time.Duration(rng.IntN(7200)-3600) * time.Second)
		case 7:
			_, release := p.Hold(recipestest.AnyWrite)
			time.Sleep(d)
			release()
		}
	}
}

// Goal: of a lease's holders no two believe at once, whatever is delayed, lost, paused or
// jumps; tokens grow; a guarded write of a former holder never lands; and somebody holds
// it again. Method: random histories of twenty minutes with four processes, all beliefs
// looked at on one clock at each beginning and each second; TENURE_SEEDS says how many, TENURE_SEED replays one.
func TestLeaseHistories(t *testing.T) {
	seeds, first := 2, rand.Uint64()
	if n, err := strconv.Atoi(os.Getenv("TENURE_SEEDS")); err == nil {
		seeds = n
	}
	if s, err := strconv.ParseUint(os.Getenv("TENURE_SEED"), 10, 64); err == nil {
		seeds, first = 1, s
	}
	for i := range uint64(seeds) {
		seed := first + i
		onFakes(t, recipestest.FakeOptions{Seed: seed, Members: 3, Jitter: 20 * time.Millisecond}, func(t *testing.T, f *recipestest.Fake) {
			runLeaseHistory(t, f, seed)
		})
	}
}

func runLeaseHistory(t *testing.T, f *recipestest.Fake, seed uint64) {
	h := &leaseHistory{t: t, seed: seed, live: map[*recipes.Tenure]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	observer := f.Open(t).Store
	if _, err := observer.Create(ctx, "/effects", make([]byte, 8), recipes.CreateSpec{}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range uint64(4) {
		p, rng := f.Open(t), rand.New(rand.NewPCG(seed, 2*i))
		l := newLease(t, p.Store, fmt.Sprint("p", i))
		all.Go(func() { h.play(ctx, l, rng) })
		all.Go(func() { disturb(ctx, p, rand.New(rand.NewPCG(seed, 2*i+1))) })
	}
	all.Go(func() { h.watchEffects(ctx, observer) })
	for end := time.Now().Add(20 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		synctest.Wait() // whoever wakes at this moment has begun or ended
		h.sample()
	}
	cancel()
	all.Wait()
	t.Logf("seed %d: %d tenures, %d guarded writes, %d overlaps", seed, h.begun, h.landed, h.overlap)
	if h.begun < 15 || h.landed < 100 {
		h.errorf("only %d tenures and %d guarded writes in 20 minutes", h.begun, h.landed)
	}
}

// watchEffects sees to it that tokens of guarded writes never go back.
func (h *leaseHistory) watchEffects(ctx context.Context, s recipes.Store) {
	var last uint64
	for ctx.Err() == nil {
		data, _, watch, err := s.GetW(ctx, "/effects")
		if err != nil {
			continue
		}
		if token := binary.BigEndian.Uint64(data); token < last {
			h.errorf("a write of token %d landed after one of %d", token, last)
		} else {
			last = token
		}
		select {
		case <-watch.C:
		case <-ctx.Done():
		}
		watch.Cancel()
	}
}
