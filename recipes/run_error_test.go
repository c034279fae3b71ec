package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

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
