package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// flavours runs test in a bubble per kind of backend: as Tenure, and as ZooKeeper.
func flavours(t *testing.T, test func(t *testing.T, f *recipestest.Fake)) {
	for _, exact := range []bool{true, false} {
		t.Run(map[bool]string{true: "exact", false: "inexact"}[exact], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test(t, recipestest.NewFake(recipestest.FakeOptions{Exact: exact, Members: 3}))
			})
		})
	}
}

func newElection(t *testing.T, s recipes.Store, o recipes.ElectionOptions) *recipes.Election {
	t.Helper()
	e, err := recipes.NewElection(s, "/app/leader", o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func campaign(t *testing.T, e *recipes.Election) *recipes.Tenure {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tenure, err := e.Campaign(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return tenure
}

func release(t *testing.T, tenure *recipes.Tenure) {
	t.Helper()
	if err := tenure.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Goal: a clean hand-over costs one round trip, wakes one waiter, and the token grows.
// Method: five candidates in line; the requests of all after the release are counted.
func TestElectionCleanHandOver(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		first := campaign(t, newElection(t, f.Open(t).Store, recipes.ElectionOptions{}))
		won := make(chan *recipes.Tenure)
		for range 4 {
			e := newElection(t, f.Open(t).Store, recipes.ElectionOptions{})
			go func() {
				tenure, err := e.Campaign(t.Context())
				if err != nil && t.Context().Err() == nil {
					t.Error(err)
				}
				won <- tenure
			}()
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		for range 4 {
			time.Sleep(50 * time.Millisecond) // until the next in line knows of the claim
			before, at := f.Stats(), time.Now()
			release(t, first)
			next := <-won
			if took := time.Since(at); took > 2*time.Millisecond {
				t.Errorf("hand-over took %v: the release's round trip and the claim's are 2 ms", took)
			}
			if next.Token() <= first.Token() {
				t.Errorf("token %d after %d", next.Token(), first.Token())
			}
			time.Sleep(50 * time.Millisecond)
			after := f.Stats()
			if reads, events := after.Reads-before.Reads, after.Events-before.Events; reads > 2 || events > 2 {
				t.Errorf("a hand-over cost %d reads and %d events", reads, events)
			}
			first = next
		}
		release(t, first)
	})
}

// Goal: after a crash the next leader begins when the old one has stopped to believe, and
// not much later. Method: partition the leader and look at both on one clock.
func TestElectionAfterACrash(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		a, b := f.Open(t), f.Open(t)
		old := campaign(t, newElection(t, a.Store, recipes.ElectionOptions{}))
		type result struct {
			*recipes.Tenure
			at time.Time
		}
		won := make(chan result)
		go func() {
			next, err := newElection(t, b.Store, recipes.ElectionOptions{}).Campaign(t.Context())
			if err != nil {
				t.Error(err)
			}
			won <- result{next, time.Now()}
		}()
		time.Sleep(5 * time.Second)
		cut := time.Now()
		a.Partition()
		<-old.Done()
		lost := time.Now()
		if !errors.Is(old.Err(), recipes.ErrDeadline) {
			t.Errorf("old: %v", old.Err())
		}
		next := <-won
		t.Logf("lost after %v, won after %v", lost.Sub(cut), next.at.Sub(cut))
		if next.at.Before(lost) {
			t.Errorf("overlap of %v", lost.Sub(next.at))
		}
		if next.at.Sub(cut) > 16*time.Second {
			t.Errorf("nobody led for %v", next.at.Sub(cut))
		}
		a.Heal()
		release(t, next.Tenure)
	})
}

// Goal: Run leads again after every way to lose, and ends with its ctx. Method: expire
// and heal.
func TestElectionRunAgain(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		a := f.Open(t)
		ctx, cancel := context.WithCancel(t.Context())
		var tenures atomic.Int32
		done := make(chan error)
		go func() {
			done <- newElection(t, a.Store, recipes.ElectionOptions{}).Run(ctx, func(ctx context.Context, _ *recipes.Tenure) error {
				tenures.Add(1)
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		for i := range 3 {
			time.Sleep(30 * time.Second)
			if n := tenures.Load(); int(n) != i+1 {
				t.Fatalf("%d tenures after %d sessions", n, i+1)
			}
			a.Expire(t)
		}
		time.Sleep(30 * time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		names, _, err := a.Store.Children(t.Context(), "/app/leader")
		if err != nil || len(names) != 0 {
			t.Errorf("left behind %v, %v", names, err)
		}
	})
}

// Goal: an observer sees the leader, nobody, and the next one. Method: collect the views.
func TestElectionObserve(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		a, b, c := f.Open(t), f.Open(t), f.Open(t)
		ctx, cancel := context.WithCancel(t.Context())
		var seen []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			var last int64
			for v, err := range newElection(t, c.Store, recipes.ElectionOptions{}).Observe(ctx) {
				if err != nil {
					t.Error(err)
				}
				if v.Zxid < last {
					t.Errorf("zxid %d after %d", v.Zxid, last)
				}
				last = v.Zxid
				leader := "nobody"
				if v.Leader != nil {
					leader = v.Leader.ID
				}
				seen = append(seen, fmt.Sprint(leader, len(v.Candidates)))
			}
		}()
		time.Sleep(time.Second)
		first := campaign(t, newElection(t, a.Store, recipes.ElectionOptions{Options: recipes.Options{ID: "a"}}))
		time.Sleep(time.Second)
		won := make(chan *recipes.Tenure)
		go func() {
			won <- campaign(t, newElection(t, b.Store, recipes.ElectionOptions{Options: recipes.Options{ID: "b"}}))
		}()
		time.Sleep(time.Second)
		release(t, first)
		second := <-won
		time.Sleep(time.Second)
		release(t, second)
		time.Sleep(time.Second)
		cancel()
		<-done
		if last := seen[len(seen)-1]; seen[0] != "nobody0" || last != "nobody0" {
			t.Errorf("views %v", seen)
		}
		t.Log(seen)
	})
}

// Goal: a floor raises the tokens and takes nothing from the holder. Method: raise it
// while somebody leads.
func TestSetFloor(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		a := f.Open(t)
		e := newElection(t, a.Store, recipes.ElectionOptions{})
		first := campaign(t, e)
		if err := recipes.SetFloor(t.Context(), a.Store, "/app/leader", 1<<40); err != nil {
			t.Fatal(err)
		}
		if err := first.Confirm(t.Context()); err != nil {
			t.Error(err)
		}
		release(t, first)
		if next := campaign(t, e); next.Token() <= 1<<40 {
			t.Errorf("token %d", next.Token())
		}
		if _, err := recipes.NewElection(a.Store, "/", recipes.ElectionOptions{}); !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("path /: %v", err)
		}
		if err := recipes.SetFloor(t.Context(), a.Store, "nope", 1); !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("path nope: %v", err)
		}
	})
}

// Goal: a leader whose work hangs does not keep others from leading for ever, although its
// session lives. Method: work that ignores its context; the next one begins only when
// Check of the first has failed.
func TestElectionOfAHungLeader(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		ctx, cancel := context.WithCancel(t.Context())
		hung, back := make(chan *recipes.Tenure, 1), make(chan struct{})
		done := make(chan error)
		go func() {
			done <- newElection(t, f.Open(t).Store, recipes.ElectionOptions{}).Run(ctx, func(_ context.Context, tenure *recipes.Tenure) error {
				hung <- tenure
				<-back
				return nil
			})
		}()
		first := <-hung
		cancel()
		second := campaign(t, newElection(t, f.Open(t).Store, recipes.ElectionOptions{}))
		if first.Check() == nil || !errors.Is(first.Err(), recipes.ErrDeadline) {
			t.Errorf("the second leads, and the first: %v", first.Err())
		}
		close(back)
		if err := <-done; err != nil {
			t.Error(err)
		}
		release(t, second)
	})
}
