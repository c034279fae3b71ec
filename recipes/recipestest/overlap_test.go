package recipestest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
)

// overlapHandOvers is how many hand-overs each flavour of the fake must come to.
const overlapHandOvers = 2000

func overlapFake(exact bool) Harness {
	return FakeHarness(FakeOptions{Exact: exact, Members: 3, Timeout: 4 * time.Second, Jitter: time.Millisecond, Seed: 11})
}

// allVerbs are all there are; a plan leaves out what a backend has not.
func allVerbs() (all []Verb) {
	for v := VerbCutAfterCommit; v < verbs; v++ {
		all = append(all, v)
	}
	return all
}

// Goal: no two leaders overlap on either kind of backend, whatever is done to them.
// Method: hand-overs on the fake under all its faults; the seed repeats a run.
func TestOverlapOnFakes(t *testing.T) {
	for _, exact := range []bool{true, false} {
		h := overlapFake(exact)
		t.Run(h.Name, func(t *testing.T) {
			h.Run(t, func(t *testing.T) {
				r := Overlap(t, h, OverlapOptions{
					Seed: 11, HandOvers: overlapHandOvers, Long: 0.1, Tick: 20 * time.Millisecond,
					Plan: PlanOptions{Verbs: allVerbs()},
				})
				t.Log(r)
				if r.Err != nil {
					t.Error(r.Err)
				}
				if r.Overlap > 0 || len(r.Lost) < overlapHandOvers/100 || len(r.Clean) == 0 || r.HandOvers() < overlapHandOvers {
					t.Errorf("overlap %v, %d lost, %d clean of %d, want none, some, some", r.Overlap, len(r.Lost), len(r.Clean), r.HandOvers())
				}
			})
		})
	}
}

// Goal: an answer that comes late prolongs nothing: what a deadline that counts from the
// receipt fails on. Method: leaders that lead until they are lost, answers delayed and then
// the only thing that passes.
func TestOverlapOfLateAnswers(t *testing.T) {
	for _, exact := range []bool{true, false} {
		h := overlapFake(exact)
		t.Run(h.Name, func(t *testing.T) {
			h.Run(t, func(t *testing.T) {
				r := Overlap(t, h, OverlapOptions{
					Seed: 12, HandOvers: 300, Long: 1, Tick: 20 * time.Millisecond,
					Plan: PlanOptions{Verbs: []Verb{VerbMute}, MeanGap: 3 * time.Second},
				})
				t.Log(r)
				if r.Err != nil {
					t.Error(r.Err)
				}
				if r.Overlap > 0 || len(r.Lost) < 30 {
					t.Errorf("overlap %v, %d lost", r.Overlap, len(r.Lost))
				}
			})
		})
	}
}

// gullible believes on after a loss that it was not asked for.
type gullible struct{ *recipes.Tenure }

func (g gullible) Check() error {
	if err := g.Tenure.Check(); errors.Is(err, recipes.ErrReleased) {
		return err
	}
	return nil
}

// Goal: Overlap finds leaders that overlap, names seed and tokens, and FindPlan finds the
// fault that it takes. Method: leaders that do not take a loss for one.
func TestOverlapFindsOverlap(t *testing.T) {
	h := overlapFake(true)
	run := func(only *Plan) (r OverlapReport) {
		h.Run(t, func(t *testing.T) {
			r = Overlap(t, h, OverlapOptions{
				Seed: 3, Names: 1, HandOvers: 40, Long: 1, Tick: 20 * time.Millisecond, Only: only, believe: func(t *recipes.Tenure) Holder { return gullible{t} },
				Plan: PlanOptions{Verbs: []Verb{VerbPartition, VerbMove, VerbDelay, VerbBreak}, Longest: 12 * time.Second, Length: time.Minute},
			})
		})
		return r
	}
	r := run(nil)
	t.Log(r)
	if r.Overlap <= 0 || !strings.Contains(fmt.Sprint(r.Err), "seed 3: I1: /overlap-3/e0: token ") {
		t.Fatalf("not found: overlap %v, %v", r.Overlap, r.Err)
	}
	found := r.FindPlan(func(p Plan) OverlapReport { return run(&p) })
	t.Log(found)
	// A run of a plan repeats another only nearly, so the shortest is not found each time.
	played := 0
	for _, p := range r.Plans {
		played += len(p.Steps)
	}
	if len(found.Steps) > played/2 || !slices.ContainsFunc(found.Steps, func(s Step) bool { return s.Verb == VerbPartition }) {
		t.Errorf("a partition is enough; found %d of %d steps: %v", len(found.Steps), played, found)
	}
}
