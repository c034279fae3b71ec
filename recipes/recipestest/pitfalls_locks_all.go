package recipestest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: who takes several locks never waits in a circle. Method: two clients take the
// same three, named in reverse, again and again; who gives up half way leaves nothing.
func locksInOtherOrder(t *testing.T, h Harness) {
	path, peers := dir(t), []*Peer{h.Open(t), h.Open(t)}
	rounds, b, ctx := 5, &believers{excluded: moreThanOne}, h.within(t)
	if h.Fake {
		rounds = 100
	}
	var all sync.WaitGroup
	for i, p := range peers {
		order := []string{"/a", "/b", "/c"}
		if i == 1 {
			order = []string{"/c", "/b", "/a"}
		}
		var ms []*recipes.Mutex
		for _, name := range order {
			ms = append(ms, mutexAt(t, p.Store, path+name))
		}
		all.Go(func() {
			for range rounds {
				held, err := recipes.LockAll(ctx, ms...)
				if err != nil {
					t.Error(err)
					return
				}
				b.enter(held, 1)
				pause(t, h.Timeout/2000)
				b.leave(held)
				if err := held.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	b.verify(t)
	lockAllOrNothing(t, h, path, peers)
}

// lockAllOrNothing has LockAll wait for the last of three until its ctx ends, then hold all.
func lockAllOrNothing(t *testing.T, h Harness, path string, peers []*Peer) {
	c := obtained(t, h, mutexAt(t, peers[1].Store, path+"/c").Lock)
	var mu sync.Mutex
	var deleted []string // directories of places
	hooked := &Hooked{Store: peers[0].Store, After: func(_ context.Context, c Call, err error) error {
		mu.Lock()
		defer mu.Unlock()
		for _, op := range c.Ops {
			if op.Kind == recipes.KindDelete && err == nil {
				parent, _ := znode.Split(op.Path)
				deleted = append(deleted, parent)
			}
		}
		return err
	}}
	ms := []*recipes.Mutex{mutexAt(t, hooked, path+"/c"), mutexAt(t, hooked, path+"/a"), mutexAt(t, hooked, path+"/b")}
	ctx, cancel := context.WithTimeout(t.Context(), h.Timeout/4)
	defer cancel()
	if held, err := recipes.LockAll(ctx, ms...); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("locked all beside the holder of one: %v, %v", held, err)
	}
	for _, name := range []string{"/a", "/b"} {
		h.eventually(t, name+" to be free", func() bool { return places(t, h.within(t), peers[1].Store, path+name) == 0 })
	}
	released(t, h, c)
	h.eventually(t, "/c to be free", func() bool { return places(t, h.within(t), peers[1].Store, path+"/c") == 0 })
	held := obtained(t, h, func(ctx context.Context) (*recipes.Tenure, error) { return recipes.LockAll(ctx, ms...) })
	if tokens := held.Tokens(); len(tokens) != 3 || tokens[path+"/a"] != held.Token() || held.Name() != path+"/a" || len(held.Guard()) != 3 {
		t.Errorf("of all three: %s, tokens %v, %d guards", held.Name(), tokens, len(held.Guard()))
	}
	if _, ok, err := mutexAt(t, peers[1].Store, path+"/b").TryLock(h.within(t)); ok || err != nil {
		t.Errorf("/b is free beside LockAll: %v", err)
	}
	mu.Lock()
	deleted = nil
	mu.Unlock()
	released(t, h, held)
	mu.Lock()
	defer mu.Unlock()
	if want := fmt.Sprint([]string{path + "/c", path + "/b", path + "/a"}); fmt.Sprint(deleted) != want {
		t.Errorf("released in the order %v", deleted)
	}
	if _, err := recipes.LockAll(h.within(t), ms[0], mutexAt(t, hooked, path+"/c")); !errors.Is(err, recipes.ErrInvalid) {
		t.Errorf("one lock twice: %v", err)
	}
}
