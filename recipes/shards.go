package recipes

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// ShardOptions configures Shards. The zero value of a field means its default.
type ShardOptions struct {
	Options
	// Settle is how long the membership must be quiet before shards move, default 1 s, so
	// that a rolling restart does not move each of them many times.
	Settle time.Duration
	// Assign says which member should own which shard, by ID. It must be pure: all members
	// compute it by themselves. Default Rendezvous.
	Assign func(shards []string, members []Member) map[string]string
}

// Shards divides shards among the members that Run, each with a tenure and a token of its
// own. The assignment is advice that all compute alike; the truth is each shard's own
// election. It is safe for concurrent use.
type Shards struct {
	store     Store
	path      string
	o         ShardOptions
	group     *Group
	shards    []string
	elections map[string]*Election

	mu struct {
		sync.Mutex
		owned map[string]*Tenure
	}
}

// NewShards makes a division of the named shards in the directory path. Names may be any
// text but the empty one.
func NewShards(s Store, path string, shards []string, o ShardOptions) (*Shards, error) {
	if err := validateDir(path); err != nil {
		return nil, err
	}
	options, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	o.Options = options
	switch {
	case len(shards) == 0:
		return nil, fmt.Errorf("%w: Shards of nothing", ErrInvalid)
	case o.Settle < 0:
		return nil, fmt.Errorf("%w: ShardOptions.Settle is %v: it must not be negative", ErrInvalid, o.Settle)
	case o.Settle == 0:
		o.Settle = time.Second
	}
	if o.Assign == nil {
		o.Assign = Rendezvous
	}
	d := &Shards{store: s, path: path, o: o, shards: shards, elections: map[string]*Election{}}
	d.mu.owned = map[string]*Tenure{}
	d.group, err = NewGroup(s, znode.Join(path, "members"), GroupOptions{Options: o.Options, Debounce: o.Settle})
	if err != nil {
		return nil, err
	}
	for _, shard := range shards {
		if shard == "" || d.elections[shard] != nil {
			return nil, fmt.Errorf("%w: shard %q is empty or given twice", ErrInvalid, shard)
		}
		dir := znode.Join(znode.Join(path, "shards"), "s:"+url.PathEscape(shard))
		if d.elections[shard], err = NewElection(s, dir, ElectionOptions{Options: o.Options}); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Owned returns the shards that this process owns now, with their tokens.
func (d *Shards) Owned() map[string]Token {
	d.mu.Lock()
	defer d.mu.Unlock()
	owned := make(map[string]Token, len(d.mu.owned))
	for shard, t := range d.mu.owned {
		if t.Check() == nil {
			owned[shard] = t.Token()
		}
	}
	return owned
}

// Run takes part until ctx ends, and then returns nil. For each shard that it owns it calls
// own, on a goroutine of its own, with what Election.Run gives: a context that ends when
// the shard is to move or is lost, and the shard's tenure. The shard moves when own has
// returned. If own returns an error that says more than that its tenure or context is
// over, Run stops all and returns it.
func (d *Shards) Run(parent context.Context, own func(ctx context.Context, shard string, t *Tenure) error) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	membership, err := d.group.Join(ctx, d.o.ID, d.o.Data)
	switch {
	case parent.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	r := shardRun{Shards: d, own: own, fail: cancel, work: map[string]*shardWork{}, unowned: map[string]time.Time{}}
	views := make(chan GroupView, 1)
	var watching sync.WaitGroup
	watching.Go(func() {
		for v, err := range d.group.Members(ctx) {
			if err != nil {
				cancel(err)
				return
			}
			select { // the latest alone
			case <-views:
			default:
			}
			views <- v
		}
	})
	r.follow(ctx, views)
	watching.Wait()
	r.candidacies.Wait()
	if err := membership.Leave(context.WithoutCancel(ctx)); err != nil {
		d.o.Log.Info("left", "recipe", "shards", "path", d.path, "err", err)
	}
	if parent.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// shardRun is what one Run has going. It belongs to one goroutine.
type shardRun struct {
	*Shards
	own     func(context.Context, string, *Tenure) error
	fail    context.CancelCauseFunc
	work    map[string]*shardWork
	unowned map[string]time.Time // since when a shard was seen without anybody
	// candidacies has those too that were cancelled and are still to end.
	candidacies sync.WaitGroup
}

// shardWork is this member's candidacy for a shard.
type shardWork struct {
	cancel    context.CancelFunc
	volunteer bool // it is assigned to another, who did not take it
}

// follow starts and stops work until ctx ends.
func (r *shardRun) follow(ctx context.Context, views <-chan GroupView) {
	patrol := time.NewTicker(jitter(2 * r.o.Settle))
	defer patrol.Stop()
	var assigned map[string]string
	for {
		select {
		case <-ctx.Done():
			return
		case v := <-views:
			// What is not fresh is no reason to move anything, and where this member
			// itself is not in the view it is about to be.
			if v.Fresh && len(v.Members) > 0 {
				assigned = r.o.Assign(r.shards, v.Members)
				r.assign(ctx, assigned)
			}
		case <-patrol.C:
			if assigned != nil {
				r.patrol(ctx, assigned)
			}
		}
	}
}

// assign starts what is to be this member's and stops what is not.
func (r *shardRun) assign(ctx context.Context, assigned map[string]string) {
	for _, shard := range r.shards {
		mine, w := assigned[shard] == r.o.ID, r.work[shard]
		switch {
		case mine && w == nil:
			r.start(ctx, shard, false)
		case mine:
			w.volunteer = false
		case w != nil && !w.volunteer:
			w.cancel()
			delete(r.work, shard) // it ends by itself; the next owner waits in line
		}
	}
}

// patrol takes shards that nobody has or wants for two settle times although they are
// assigned, and gives back those that need no volunteer any more.
func (r *shardRun) patrol(ctx context.Context, assigned map[string]string) {
	for _, shard := range r.shards {
		w := r.work[shard]
		if assigned[shard] == r.o.ID || w != nil && !w.volunteer {
			delete(r.unowned, shard)
			continue
		}
		v, err := r.elections[shard].View(ctx)
		if err != nil {
			continue // the next patrol is soon
		}
		since, noted := r.unowned[shard]
		switch {
		case w != nil && !needed(v, r.o.ID, assigned[shard]):
			w.cancel()
			delete(r.work, shard)
		case w != nil:
		case len(v.Candidates) > 0:
			delete(r.unowned, shard)
		case !noted:
			r.unowned[shard] = time.Now()
		case time.Since(since) >= 2*r.o.Settle:
			delete(r.unowned, shard)
			r.start(ctx, shard, true)
		}
	}
}

// needed reports whether the volunteer me is to stay: the member that the shard is
// assigned to is not there, and no other volunteer came before.
func needed(v View, me, assigned string) bool {
	for _, c := range v.Candidates {
		if c.ID == assigned {
			return false
		}
	}
	return len(v.Candidates) == 0 || v.Candidates[0].ID == me
}

// start begins a candidacy for the shard.
func (r *shardRun) start(ctx context.Context, shard string, volunteer bool) {
	ctx, cancel := context.WithCancel(ctx)
	r.work[shard] = &shardWork{cancel: cancel, volunteer: volunteer}
	r.candidacies.Go(func() {
		defer cancel()
		err := r.elections[shard].Run(ctx, func(ctx context.Context, t *Tenure) error {
			r.note(shard, t)
			defer r.note(shard, nil)
			return r.own(ctx, shard, t)
		})
		if err != nil {
			r.fail(fmt.Errorf("shard %s: %w", shard, err))
		}
	})
}

// note keeps the list of what is owned.
func (d *Shards) note(shard string, t *Tenure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t == nil {
		delete(d.mu.owned, shard)
		return
	}
	d.mu.owned[shard] = t
}
