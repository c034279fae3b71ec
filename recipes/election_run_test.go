package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// Goal: a leader that renews but cannot work gives way after so many failures in a row,
// stays away for the cool-down, and comes back; lead is waited for first. Method: two
// candidates, a check to switch.
func TestElectionHealth(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		var mu sync.Mutex
		var events []string
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, fmt.Sprintf(format, args...))
		}
		sick := false
		check := func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if sick {
				return errors.New("disk is gone")
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		run := func(id string, h *recipes.Health) {
			e := newElection(t, f.Open(t).Store, recipes.ElectionOptions{Options: recipes.Options{ID: id}, Health: h})
			all.Go(func() {
				err := e.Run(ctx, func(ctx context.Context, tenure *recipes.Tenure) error {
					note("%s leads", id)
					<-ctx.Done()
					time.Sleep(500 * time.Millisecond) // the rest of its work
					note("%s stops: %v", id, errors.Is(context.Cause(ctx), recipes.ErrUnhealthy))
					return ctx.Err()
				})
				if err != nil {
					t.Errorf("%s: %v", id, err)
				}
			})
			time.Sleep(10 * time.Second)
		}
		run("a", &recipes.Health{Check: check, Every: time.Second, Failures: 3, Cooldown: time.Minute})
		run("b", nil)
		set := func(to bool) {
			mu.Lock()
			defer mu.Unlock()
			sick = to
		}
		set(true)
		time.Sleep(1500 * time.Millisecond) // one or two failures are none
		set(false)
		time.Sleep(10 * time.Second)
		set(true)
		time.Sleep(10 * time.Second)
		want := []string{"a leads", "a stops: true", "b leads"}
		mu.Lock()
		if !slices.Equal(events, want) {
			t.Errorf("events %q, want %q", events, want)
		}
		mu.Unlock()
		v, err := newElection(t, f.Open(t).Store, recipes.ElectionOptions{}).View(ctx)
		if err != nil || len(v.Candidates) != 1 {
			t.Errorf("%d candidates during the cool-down, %v", len(v.Candidates), err)
		}
		set(false)
		time.Sleep(time.Minute)
		v, err = newElection(t, f.Open(t).Store, recipes.ElectionOptions{}).View(ctx)
		if err != nil || len(v.Candidates) != 2 {
			t.Errorf("%d candidates after the cool-down, %v", len(v.Candidates), err)
		}
		cancel()
		all.Wait()
	})
}

// Goal: options that cannot work are refused with the name of the field. Method: a table.
func TestOptionsAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := recipestest.NewFake(recipestest.FakeOptions{}).Open(t).Store
		for field, o := range map[string]recipes.ElectionOptions{
			"Drift":        {Options: recipes.Options{Timing: recipes.Timing{Drift: -1}}},
			"Worth":        {Options: recipes.Options{Timing: recipes.Timing{Worth: -1}}},
			"Renew":        {Options: recipes.Options{Timing: recipes.Timing{Worth: time.Second, Renew: time.Second}}},
			"Grace":        {Options: recipes.Options{Timing: recipes.Timing{Worth: time.Second, Grace: time.Second}}},
			"HoldOff":      {Options: recipes.Options{Timing: recipes.Timing{HoldOff: recipes.HoldOffFor(-1)}}},
			"Health.Check": {Health: &recipes.Health{}},
			"Health":       {Health: &recipes.Health{Check: func(context.Context) error { return nil }, Every: -1}},
		} {
			_, err := recipes.NewElection(s, "/e", o)
			if !errors.Is(err, recipes.ErrInvalid) {
				t.Errorf("%s: %v", field, err)
			}
		}
	})
}

// Goal: what lead returns ends Run exactly if it says more than that the tenure is over.
// Method: a first tenure that returns each kind of error; a second one shows that Run went
// on.
func TestRunTellsWhatIsAnEnd(t *testing.T) {
	broken := errors.New("broken")
	stale := &recipes.StaleTokenError{Key: "k", Token: 1, Highest: 2}
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		other := f.Open(t).Store
		deleteNode := func(ctx context.Context) {
			names, _, err := other.Children(ctx, "/app/leader")
			if err != nil || len(names) != 1 {
				t.Fatal(names, err)
			}
			if err := other.Delete(ctx, "/app/leader/"+names[0], recipes.Always()); err != nil {
				t.Fatal(err)
			}
		}
		for _, row := range []struct {
			name string
			lead func(context.Context, *recipes.Tenure) error
			ends error
		}{
			{"nil", func(context.Context, *recipes.Tenure) error { return nil }, nil},
			{"CheckFor", func(_ context.Context, held *recipes.Tenure) error { return held.CheckFor(time.Hour) }, nil},
			{"lost", func(ctx context.Context, held *recipes.Tenure) error {
				deleteNode(ctx)
				<-held.Done()
				return fmt.Errorf("write: %w", held.Check())
			}, nil},
			{"stale and lost", func(ctx context.Context, _ *recipes.Tenure) error {
				deleteNode(ctx)
				return fmt.Errorf("write: %w", stale)
			}, nil},
			{"stale and held", func(context.Context, *recipes.Tenure) error { return stale }, recipes.ErrStaleToken},
			{"its own", func(context.Context, *recipes.Tenure) error { return broken }, broken},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			tenures := 0
			err := newElection(t, f.Open(t).Store, recipes.ElectionOptions{}).Run(ctx, func(ctx context.Context, held *recipes.Tenure) error {
				if tenures++; tenures == 1 {
					return row.lead(ctx, held)
				}
				cancel()
				<-ctx.Done()
				return nil
			})
			cancel()
			if want := map[bool]int{true: 2, false: 1}[row.ends == nil]; !errors.Is(err, row.ends) || tenures != want {
				t.Errorf("%s: Run returned %v after %d tenures, want %v", row.name, err, tenures, row.ends)
			}
		}
	})
}

// Goal: a long Grace leaves the renewals their time. Method: hold for an hour with a grace
// of nearly all that a proof is worth.
func TestLongGraceKeepsTheTenure(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		held := campaign(t, newElection(t, f.Open(t).Store, recipes.ElectionOptions{Options: recipes.Options{Timing: recipes.Timing{Grace: 8 * time.Second}}}))
		time.Sleep(time.Hour)
		if err := held.Context().Err(); err != nil {
			t.Errorf("after an hour: %v, %v", err, context.Cause(held.Context()))
		}
		release(t, held)
	})
}
