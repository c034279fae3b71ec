package recipestest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
)

// division is a number of members that divide shards, as they come and go.
type division struct {
	t       *testing.T
	h       Harness
	path    string
	names   []string
	record  *Invariant
	workers sync.WaitGroup

	mu    sync.Mutex
	owned map[string]map[string]*recipes.Tenure // by shard and member
}

// own is the work of an owner: it believes in its tenure as long as Check passes.
func (d *division) own(member string) func(context.Context, string, *recipes.Tenure) error {
	return func(ctx context.Context, shard string, tenure *recipes.Tenure) error {
		d.mu.Lock()
		if d.owned[shard] == nil {
			d.owned[shard] = map[string]*recipes.Tenure{}
		}
		d.owned[shard][member] = tenure
		d.mu.Unlock()
		holding := d.record.Hold(member, tenure)
		for ctx.Err() == nil && holding.Check() == nil {
			pause(d.t, d.h.Timeout/200)
		}
		holding.Check()
		holding.Ended()
		d.mu.Lock()
		delete(d.owned[shard], member)
		d.mu.Unlock()
		return nil
	}
}

// run makes a member run until stop is called, which waits for it.
func (d *division) run(p *Peer, member string) (stop func()) {
	s, err := recipes.NewShards(p.Store, d.path, d.names, recipes.ShardOptions{
		Options: recipes.Options{ID: member}, Settle: d.h.Timeout / 10,
	})
	if err != nil {
		d.t.Error(err)
		return func() {}
	}
	ctx, cancel := context.WithCancel(d.t.Context())
	done := async(func() (struct{}, error) { return struct{}{}, s.Run(ctx, d.own(member)) })
	return func() {
		cancel()
		if r := <-done; r.err != nil {
			d.t.Errorf("%s: %v", member, r.err)
		}
		if owned := s.Owned(); len(owned) > 0 {
			d.t.Errorf("%s owns %v after its end", member, owned)
		}
	}
}

// assigned reports whether each shard has one owner, and that is the one it should have.
func (d *division) assigned(running []recipes.Member) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for shard, member := range recipes.Rendezvous(d.names, running) {
		tenure := d.owned[shard][member]
		if len(d.owned[shard]) != 1 || tenure == nil || tenure.Check() != nil {
			return false
		}
	}
	return true
}

// P96. Goal: no shard ever has two owners who both pass Check, and soon after the
// members have come to rest each has one. Method: members join, leave, and lose their
// connections at random; afterwards half of them run.
func twoOwnersOrNone(t *testing.T, h Harness) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	d := &division{t: t, h: h, path: dir(t), record: NewInvariant(seed), owned: map[string]map[string]*recipes.Tenure{}}
	for i := range h.clients(30) {
		d.names = append(d.names, fmt.Sprint("shard/", i))
	}
	n := h.clients(20)
	until := time.Now().Add(10 * h.Timeout)
	for i := range n {
		p, rng := h.Open(t), rand.New(rand.NewPCG(seed, uint64(i)))
		d.workers.Go(func() {
			for time.Now().Before(until) {
				stop := d.run(p, fmt.Sprint("m", i))
				for range rng.IntN(3) {
					pause(t, time.Duration(rng.Int64N(int64(2*h.Timeout))))
					breakAWhile(t, h, rng, p)
				}
				stop()
				pause(t, time.Duration(rng.Int64N(int64(h.Timeout))))
			}
		})
	}
	d.workers.Wait()
	var running []recipes.Member
	for i := range (n + 1) / 2 {
		member := fmt.Sprint("m", i)
		running = append(running, recipes.Member{ID: member})
		stop := d.run(h.Open(t), member)
		defer stop()
	}
	quiet := time.Now()
	h.eventually(t, "each shard with its owner", func() bool { return d.assigned(running) })
	if took := time.Since(quiet); h.Fake && took > 4*h.Timeout {
		t.Errorf("owned %v after quiet", took)
	}
	if _, err := d.record.Verify(); err != nil {
		t.Error(err)
	}
}

// breakAWhile breaks the connection, or cuts it for up to two session timeouts.
func breakAWhile(t *testing.T, h Harness, rng *rand.Rand, p *Peer) {
	if rng.IntN(2) == 0 {
		p.Break()
		return
	}
	p.Partition()
	pause(t, time.Duration(rng.Int64N(int64(2*h.Timeout))))
	p.Heal()
}
