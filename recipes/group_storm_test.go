package recipes_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/znode"
)

// stubborn is a Store on a client whose calls cannot be given up: whoever no longer
// waits leaves the request on its way, and it may be applied much later.
type stubborn struct{ recipes.Store }

// outlive waits for f until ctx ends, and gives what comes later to late.
func outlive[T any](ctx context.Context, giveUp error, f func(context.Context) (T, error), late func(T, error)) (v T, err error) {
	type answer struct {
		v   T
		err error
	}
	answers := make(chan answer)
	go func() {
		v, err := f(context.WithoutCancel(ctx))
		select {
		case answers <- answer{v, err}:
		case <-ctx.Done():
			late(v, err)
		}
	}()
	select {
	case a := <-answers:
		return a.v, a.err
	case <-ctx.Done():
		if giveUp != nil {
			return v, fmt.Errorf("%w: %w", giveUp, ctx.Err())
		}
		return v, ctx.Err()
	}
}

func forget[T any](T, error) {}

func (s stubborn) Create(ctx context.Context, path string, data []byte, spec recipes.CreateSpec) (string, error) {
	return outlive(ctx, recipes.ErrUncertain, func(ctx context.Context) (string, error) {
		return s.Store.Create(ctx, path, data, spec)
	}, forget)
}

func (s stubborn) Set(ctx context.Context, path string, data []byte, c recipes.Cond) (znode.Stat, error) {
	return outlive(ctx, recipes.ErrUncertain, func(ctx context.Context) (znode.Stat, error) {
		return s.Store.Set(ctx, path, data, c)
	}, forget)
}

func (s stubborn) Delete(ctx context.Context, path string, c recipes.Cond) error {
	_, err := outlive(ctx, recipes.ErrUncertain, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.Store.Delete(ctx, path, c)
	}, forget)
	return err
}

func (s stubborn) Multi(ctx context.Context, ops ...recipes.Op) ([]recipes.OpResult, error) {
	return outlive(ctx, recipes.ErrUncertain, func(ctx context.Context) ([]recipes.OpResult, error) {
		return s.Store.Multi(ctx, ops...)
	}, forget)
}

func (s stubborn) Sync(ctx context.Context, path string) error {
	_, err := outlive(ctx, nil, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.Store.Sync(ctx, path)
	}, forget)
	return err
}

// found is what a read returns.
type found struct {
	data   []byte
	names  []string
	stat   znode.Stat
	exists bool
	watch  recipes.Watch
}

func (s stubborn) read(ctx context.Context, f func(context.Context) (found, error)) (found, error) {
	return outlive(ctx, nil, f, func(v found, err error) {
		if err == nil && v.watch.Cancel != nil {
			v.watch.Cancel()
		}
	})
}

func (s stubborn) Get(ctx context.Context, path string) ([]byte, znode.Stat, error) {
	v, err := s.read(ctx, func(ctx context.Context) (v found, err error) {
		v.data, v.stat, err = s.Store.Get(ctx, path)
		return v, err
	})
	return v.data, v.stat, err
}

func (s stubborn) GetW(ctx context.Context, path string) ([]byte, znode.Stat, recipes.Watch, error) {
	v, err := s.read(ctx, func(ctx context.Context) (v found, err error) {
		v.data, v.stat, v.watch, err = s.Store.GetW(ctx, path)
		return v, err
	})
	return v.data, v.stat, v.watch, err
}

func (s stubborn) ExistsW(ctx context.Context, path string) (znode.Stat, bool, recipes.Watch, error) {
	v, err := s.read(ctx, func(ctx context.Context) (v found, err error) {
		v.stat, v.exists, v.watch, err = s.Store.ExistsW(ctx, path)
		return v, err
	})
	return v.stat, v.exists, v.watch, err
}

func (s stubborn) ChildrenW(ctx context.Context, path string) ([]string, znode.Stat, recipes.Watch, error) {
	v, err := s.read(ctx, func(ctx context.Context) (v found, err error) {
		v.names, v.stat, v.watch, err = s.Store.ChildrenW(ctx, path)
		return v, err
	})
	return v.names, v.stat, v.watch, err
}

// Goal: whatever happens, after it is over the members are those who want to be, with the
// data they want, each once. Method: a random storm of joins, leaves, updates, breaks,
// partitions, expiries, deletions by strangers and restarts; then quiet.
func TestGroupStorm(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4, 5, 6}
	if s := os.Getenv("TENURE_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{seed}
	}
	for _, seed := range seeds {
		t.Logf("TENURE_SEED=%d", seed)
		flavours(t, func(t *testing.T, f *recipestest.Fake) {
			stormGroup(t, f, rand.New(rand.NewPCG(seed, 0)))
		})
	}
}

func stormGroup(t *testing.T, f *recipestest.Fake, rng *rand.Rand) {
	const peers, steps = 4, 300
	var p [peers]*recipestest.Peer
	var stores [peers]recipes.Store
	var member [peers]*recipes.Membership
	var want [peers]string
	for i := range p {
		p[i] = f.Open(t)
		stores[i] = stubborn{p[i].Store}
	}
	admin := stubborn{f.Open(t).Store}
	log := watchGroup(t, newGroup(t, stores[0], recipes.GroupOptions{}))
	for step := range steps {
		i := rng.IntN(peers)
		id, data := fmt.Sprintf("m%d", i), strconv.Itoa(step)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(3000))*time.Millisecond)
		switch n := rng.IntN(16); {
		case n < 4 && member[i] == nil:
			if m, err := newGroup(t, stores[i], recipes.GroupOptions{}).Join(ctx, id, []byte(data)); err == nil {
				member[i], want[i] = m, data
			}
		case n < 6 && member[i] != nil:
			_ = member[i].Leave(ctx)
			member[i] = nil
		case n < 10 && member[i] != nil:
			_ = member[i].SetData(ctx, []byte(data))
			want[i] = data
		case n == 10:
			p[i].Break()
		case n == 11:
			p[i].Partition()
		case n == 12:
			p[i].Heal()
		case n == 13 && slices.Contains(f.Sessions(), p[i].Store.Session().ID()):
			p[i].Expire(t)
		case n == 14:
			_ = admin.Delete(ctx, groupPath+"/"+id, recipes.Always())
		case n == 15 && rng.IntN(8) == 0:
			f.Restart(time.Duration(rng.IntN(20)) * time.Second)
		}
		cancel()
		nap(time.Duration(rng.IntN(2000)) * time.Millisecond)
	}
	for i := range p {
		p[i].Heal()
	}
	settle(2 * time.Minute)
	var words []string
	for i, m := range member {
		if m != nil {
			words = append(words, fmt.Sprintf("m%d=%s", i, want[i]))
		}
	}
	viewIs(t, newGroup(t, admin, recipes.GroupOptions{}), strings.Join(words, " "))
	log.last(t, strings.Join(words, " "))
	for _, m := range member {
		if m != nil {
			leave(t, m)
		}
	}
	log.stop()
	settle(time.Second)
	if nodes, w := f.Nodes(groupPath+"/"), f.Watches(); len(nodes) > 0 || w > 0 {
		t.Errorf("left behind: %v and %d watches", nodes, w)
	}
}
