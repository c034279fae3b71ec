package recipestest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
)

// Goal: what a leader that was paused writes when it wakes up does not land. Method: 100
// rounds: it is stopped between its Check and its write for three timeouts, in which a
// successor leads and writes; then it wakes.
func TestC077PausedHolderWritesNothing(t *testing.T) {
	onFakes(t, FakeOptions{Members: 3}, func(t *testing.T, f *Fake, h Harness) {
		a, b := f.Open(t), f.Open(t)
		if _, err := a.Store.Create(t.Context(), "/data", nil, recipes.CreateSpec{}); err != nil {
			t.Fatal(err)
		}
		write := func(held *recipes.Tenure, who string, round int) error {
			_, err := held.Txn(t.Context(), recipes.OpSet("/data", fmt.Append(nil, who, round), recipes.Always()))
			return err
		}
		for round := range 100 {
			old := obtained(t, h, mutexAt(t, a.Store, "/c077").Lock)
			if err := write(old, "a", round); err != nil {
				t.Errorf("round %d: the leader's write: %v", round, err)
			}
			resume := a.Pause()
			late := async(func() (struct{}, error) { return struct{}{}, write(old, "late", round) })
			paused := time.Now()
			next := obtained(t, h, mutexAt(t, b.Store, "/c077").Lock)
			succeeded(t, h, old, next)
			if old.Context().Err() == nil {
				t.Errorf("round %d: the paused leader's context goes on", round)
			}
			if err := write(next, "b", round); err != nil {
				t.Errorf("round %d: the successor's write: %v", round, err)
			}
			pause(t, 3*h.Timeout-time.Since(paused))
			resume()
			if r := await(t, h, late, "the paused write"); r.err == nil || errors.Is(r.err, recipes.ErrUncertain) {
				t.Errorf("round %d: the paused leader's write: %v", round, r.err)
			}
			if err := write(old, "later", round); !errors.Is(err, recipes.ErrLost) {
				t.Errorf("round %d: its next write: %v", round, err)
			}
			data, _, err := b.Store.Get(t.Context(), "/data")
			if want := fmt.Sprint("b", round); string(data) != want || err != nil {
				t.Errorf("round %d: written %q, %v", round, data, err)
			}
			released(t, h, old)
			released(t, h, next)
		}
	})
}
