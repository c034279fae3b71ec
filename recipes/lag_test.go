package recipes_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// Goal: what one asks once sees all that others were told of before, also if it is asked
// through a member that lags. Method: one acts, and right after each act another asks, whose
// member is a second behind.
func TestLagIsNotSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := recipestest.NewFake(recipestest.FakeOptions{Members: 4})
		late, _, acts := f.Open(t), f.Open(t), f.Open(t) // on a follower each; the second lags with the first
		late.Lag(time.Second)
		for name, test := range map[string]func(t *testing.T, acts, late recipes.Store){
			"semaphore": semaphoreSeenLate, "election": electionSeenLate, "queue": queueSeenLate, "lease": leaseSeenLate,
		} {
			test(t, acts.Store, late.Store)
			if t.Failed() {
				t.Fatal(name)
			}
		}
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func semaphoreSeenLate(t *testing.T, acts, late recipes.Store) {
	ctx := t.Context()
	sem, err := recipes.NewSemaphore(acts, "/semaphore", 2, recipes.Options{})
	check(t, err)
	seen, err := recipes.NewSemaphore(late, "/semaphore", 2, recipes.Options{})
	check(t, err)
	held, err := sem.Acquire(ctx, 1)
	check(t, err)
	if free, err := seen.Free(ctx); free != 1 || err != nil {
		t.Errorf("%d slots are free, %v; want 1", free, err)
	}
	check(t, held.Release(ctx))
	if free, err := seen.Free(ctx); free != 2 || err != nil {
		t.Errorf("%d slots are free, %v; want 2", free, err)
	}
}

func electionSeenLate(t *testing.T, acts, late recipes.Store) {
	held := campaign(t, newElection(t, acts, recipes.ElectionOptions{}))
	e := newElection(t, late, recipes.ElectionOptions{})
	v, err := e.View(t.Context())
	if err != nil || v.Leader == nil || v.Leader.Token != held.Token() || !v.Fresh {
		t.Errorf("view %+v, %v", v, err)
	}
	check(t, held.Release(t.Context()))
	if v, err := e.View(t.Context()); err != nil || len(v.Candidates) != 0 || !v.Fresh {
		t.Errorf("view after the release %+v, %v", v, err)
	}
}

func queueSeenLate(t *testing.T, acts, late recipes.Store) {
	o := recipes.QueueOptions{MaxItems: 1}
	q, full := newQueue(t, acts, o), newQueue(t, late, o)
	put(t, q, "a")
	if _, err := full.Put(t.Context(), nil); !errors.Is(err, recipes.ErrQueueFull) {
		t.Errorf("put into a full queue: %v", err)
	}
	ack(t, take(t, q))
	put(t, full, "b")
}

func leaseSeenLate(t *testing.T, acts, late recipes.Store) {
	ctx := t.Context()
	lease := func(s recipes.Store) *recipes.Lease {
		l, err := recipes.NewLease(s, "/lease", recipes.LeaseOptions{})
		check(t, err)
		return l
	}
	held, err := lease(acts).Acquire(ctx)
	check(t, err)
	l := lease(late)
	if held, ok, err := l.TryAcquire(ctx); ok || err != nil {
		t.Errorf("took what is held: %v, %v", held, err)
	}
	check(t, held.Release(ctx))
	held, ok, err := l.TryAcquire(ctx)
	if !ok || err != nil {
		t.Fatalf("did not take what is free: %v, %v", ok, err)
	}
	check(t, held.Release(ctx))
}
