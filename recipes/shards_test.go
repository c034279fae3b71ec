package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// sharder is one member and what its owners did.
type sharder struct {
	shards *recipes.Shards
	stop   context.CancelFunc
	done   chan error

	mu      sync.Mutex
	running map[string]bool
	starts  map[string]int
	fail    func(shard string) error // what an owner returns at once, if not nil
	linger  time.Duration            // how long an owner goes on when it is to stop
}

// assignTo gives each shard to the member that a table names.
func assignTo(table *map[string]string) func([]string, []recipes.Member) map[string]string {
	return func([]string, []recipes.Member) map[string]string { return *table }
}

func runSharder(t *testing.T, s recipes.Store, id string, shards []string, o recipes.ShardOptions) *sharder {
	t.Helper()
	o.ID = id
	d := &sharder{done: make(chan error, 1), running: map[string]bool{}, starts: map[string]int{}}
	var err error
	if d.shards, err = recipes.NewShards(s, "/app/shards", shards, o); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	d.stop = stop
	go func() { d.done <- d.shards.Run(ctx, d.own) }()
	return d
}

func (d *sharder) own(ctx context.Context, shard string, _ *recipes.Tenure) error {
	d.mu.Lock()
	d.running[shard] = true
	d.starts[shard]++
	fail := d.fail
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.running, shard)
	}()
	if fail != nil {
		if err := fail(shard); err != nil {
			return err
		}
	}
	<-ctx.Done()
	nap(d.linger)
	return ctx.Err()
}

// has returns the shards that it works on, which must be those that it owns.
func (d *sharder) has(t *testing.T) []string {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	running, owned := slices.Sorted(maps.Keys(d.running)), slices.Sorted(maps.Keys(d.shards.Owned()))
	if !slices.Equal(running, owned) {
		t.Errorf("works on %v, owns %v", running, owned)
	}
	return running
}

func (d *sharder) started() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.starts)
}

func (d *sharder) end(t *testing.T) {
	t.Helper()
	d.stop()
	if err := <-d.done; err != nil {
		t.Errorf("run: %v", err)
	}
	if left := d.has(t); len(left) > 0 {
		t.Errorf("works on %v after the end", left)
	}
}

// Goal: a change of the membership moves what must move and nothing else, after the
// settle time, and the end of a member leaves nothing. Method: three members, a fourth joins,
// one leaves; the starts of work are counted.
func TestShardsMoveLittle(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		_, shards := named(30)
		members, _ := named(4)
		o := recipes.ShardOptions{Settle: time.Second}
		var all []*sharder
		for i := range 3 {
			all = append(all, runSharder(t, f.Open(t).Store, members[i].ID, shards, o))
		}
		check := func(running []recipes.Member, all ...*sharder) {
			t.Helper()
			want := recipes.Rendezvous(shards, running)
			for i, d := range all {
				for _, shard := range d.has(t) {
					if want[shard] != running[i].ID {
						t.Errorf("%s has %s, which is %s's", running[i].ID, shard, want[shard])
					}
					delete(want, shard)
				}
			}
			if len(want) > 0 {
				t.Errorf("without owner: %v", want)
			}
		}
		settle(10 * time.Second)
		check(members[:3], all...)
		before := recipes.Rendezvous(shards, members[:3])
		starts := make([]map[string]int, 3)
		for i, d := range all {
			starts[i] = d.started()
		}
		all = append(all, runSharder(t, f.Open(t).Store, members[3].ID, shards, o))
		settle(10 * time.Second)
		check(members, all...)
		after := recipes.Rendezvous(shards, members)
		for i := range 3 {
			for shard, n := range all[i].started() {
				if before[shard] == after[shard] && before[shard] == members[i].ID && n != starts[i][shard] {
					t.Errorf("%s did not move, but began anew", shard)
				}
			}
		}
		all[0].end(t)
		settle(10 * time.Second)
		check(members[1:], all[1:]...)
		for _, d := range all[1:] {
			d.end(t)
		}
		settle(time.Second)
		if n := f.Watches(); n != 0 {
			t.Errorf("%d watches are left", n)
		}
		for _, s := range shards {
			if nodes := f.Nodes("/app/shards/shards/s:" + s + "/"); len(nodes) > 0 {
				t.Errorf("left: %v", nodes)
			}
		}
	})
}

// Goal: a shard whose member does not take it is taken by another after two settle times,
// by one who keeps it, and given back when its member comes. Method: an assignment to
// somebody who is not there, three volunteers, then he comes.
func TestShardsVolunteers(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		table := map[string]string{"s": "absent"}
		o := recipes.ShardOptions{Settle: time.Second, Assign: assignTo(&table)}
		var all []*sharder
		for i := range 3 {
			all = append(all, runSharder(t, f.Open(t).Store, fmt.Sprint("m", i), []string{"s"}, o))
		}
		owners := func() (owners, starts int) {
			for _, d := range all {
				owners += len(d.has(t))
				starts += d.started()["s"]
			}
			return owners, starts
		}
		settle(1500 * time.Millisecond)
		if n, _ := owners(); n != 0 {
			t.Error("taken before its time")
		}
		settle(10 * time.Second)
		settle(5 * time.Minute)
		if n, starts := owners(); n != 1 || starts != 1 {
			t.Errorf("%d volunteers own it after %d starts", n, starts)
		}
		absent := runSharder(t, f.Open(t).Store, "absent", []string{"s"}, o)
		settle(10 * time.Second)
		if n, _ := owners(); n != 0 || len(absent.has(t)) != 1 {
			t.Errorf("%d volunteers, the member has %v", n, absent.has(t))
		}
		for _, d := range append(all, absent) {
			d.end(t)
		}
	})
}

// Goal: an error of the work ends Run, with all other work ended before, and the shards are
// taken over; one that says no more than that the tenure is over does not. Method: owners
// that fail, owners that are slow to stop, and an expiry.
func TestShardsEnd(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		_, shards := named(4)
		o := recipes.ShardOptions{Settle: time.Second}
		d := runSharder(t, p.Store, "a", shards, o)
		d.linger = 3 * time.Second
		settle(5 * time.Second)
		if len(d.has(t)) != 4 {
			t.Fatalf("has %v", d.has(t))
		}
		p.Expire(t)
		settle(time.Minute)
		if got := d.has(t); len(got) != 4 || d.started()["s0"] != 2 {
			t.Errorf("after an expiry: has %v, began %v", got, d.started())
		}
		stopped := time.Now()
		d.end(t)
		if took := time.Since(stopped); took < d.linger || took > d.linger+time.Second {
			t.Errorf("the end took %v, the work %v", took, d.linger)
		}

		broken := errors.New("broken")
		d = runSharder(t, p.Store, "a", shards, o)
		d.linger = time.Second
		settle(5 * time.Second)
		d.mu.Lock()
		d.fail = func(shard string) error {
			if shard == "s2" {
				return broken
			}
			return nil
		}
		d.mu.Unlock()
		p.Expire(t) // all begin anew
		if err := <-d.done; !errors.Is(err, broken) {
			t.Errorf("run: %v", err)
		}
		if left := d.has(t); len(left) > 0 {
			t.Errorf("works on %v after the end", left)
		}
		next := runSharder(t, f.Open(t).Store, "b", shards, o)
		settle(30 * time.Second)
		if got := next.has(t); len(got) != 4 {
			t.Errorf("taken over: %v", got)
		}
		next.end(t)
		closed := runSharder(t, p.Store, "c", shards, o)
		settle(5 * time.Second)
		if err := p.Store.Close(); err != nil {
			t.Error(err)
		}
		if err := <-closed.done; !errors.Is(err, recipes.ErrSessionClosed) {
			t.Errorf("run in a closed store: %v", err)
		}
	})
}

// Goal: a bad option is refused with its rule. Method: one each.
func TestShardsOptions(t *testing.T) {
	for name, test := range map[string]struct {
		shards []string
		o      recipes.ShardOptions
	}{
		"none":   {nil, recipes.ShardOptions{}},
		"empty":  {[]string{"a", ""}, recipes.ShardOptions{}},
		"twice":  {[]string{"a", "a"}, recipes.ShardOptions{}},
		"settle": {[]string{"a"}, recipes.ShardOptions{Settle: -1}},
	} {
		if _, err := recipes.NewShards(nil, "/x", test.shards, test.o); !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
