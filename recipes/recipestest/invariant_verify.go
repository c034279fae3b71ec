package recipestest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// maxViolations is how many violations of each kind and name are told.
const maxViolations = 8

// Record is what an Invariant saw. A plain value.
type Record struct {
	Seed   uint64
	Tokens int // tenures that passed a Check
	Checks int // that passed
	Writes int // guarded ones that were acknowledged
	// Overlap is the largest over all pairs of tokens of one name: the last passing Check
	// of the older less the first of the newer. It must not be positive; negative is how
	// long there was nobody at least. If there is no pair it is the lowest Duration.
	Overlap time.Duration
	Closest string // the pair of Overlap
	// How long hand-overs took, in ascending order: from Holding.Ended, or the last passing
	// Check if that was not called, to the first Check of the next.
	Clean     []time.Duration // after a release that was confirmed, without faults
	Disturbed []time.Duration // the same while faults were on
	Lost      []time.Duration // all others
}

// HandOvers returns how many there were.
func (r Record) HandOvers() int { return len(r.Clean) + len(r.Disturbed) + len(r.Lost) }

// String returns one line of figures.
func (r Record) String() string {
	overlap := "none to compare"
	if r.Overlap != math.MinInt64 {
		overlap = fmt.Sprintf("%v (%s)", r.Overlap, r.Closest)
	}
	times := func(sorted []time.Duration) string {
		return fmt.Sprintf("%d p50 %v p99 %v", len(sorted), quantile(sorted, 0.50), quantile(sorted, 0.99))
	}
	return fmt.Sprintf("seed %d: %d tokens, %d checks, %d guarded writes; largest overlap %s; %d hand-overs: clean %s; released under faults %s; lost %s",
		r.Seed, r.Tokens, r.Checks, r.Writes, overlap, r.HandOvers(), times(r.Clean), times(r.Disturbed), times(r.Lost))
}

// quantile returns the q-th of sorted durations, 0 if there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Verify checks I1 to I3 of what was noted until now. It may be called again.
func (i *Invariant) Verify() (Record, error) {
	i.mu.Lock()
	names := make(map[string][]*Holding, len(i.names))
	for name, of := range i.names {
		names[name] = slices.Collect(maps.Values(of))
	}
	errs := slices.Clone(i.broken)
	i.mu.Unlock()
	r := Record{Seed: i.seed, Overlap: math.MinInt64}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var checked, wrote []*Holding
		for _, h := range names[name] {
			s := h.snapshot()
			if s.checks > 0 {
				checked = append(checked, s)
			}
			if s.writes > 0 {
				wrote = append(wrote, s)
			}
			r.Checks, r.Writes = r.Checks+s.checks, r.Writes+s.writes
		}
		r.Tokens += len(checked)
		slices.SortFunc(checked, byToken)
		slices.SortFunc(wrote, byToken)
		errs = append(errs, i.verifyChecks(checked, &r)...)
		errs = append(errs, i.verifyWrites(wrote)...)
		r.handOvers(checked)
	}
	slices.Sort(r.Clean)
	slices.Sort(r.Disturbed)
	slices.Sort(r.Lost)
	return r, errors.Join(errs...)
}

func byToken(a, b *Holding) int { return cmp.Compare(a.token, b.token) }

// violation is an error that says which seed and what.
func (i *Invariant) violation(rule, name, format string, args ...any) error {
	return fmt.Errorf("seed %d: %s: %s: %s", i.seed, rule, name, fmt.Sprintf(format, args...))
}

// verifyChecks is I1 and I2 on the holdings of one name in the order of tokens. Against
// each stands the one with a lower token that went on for longest, or began last.
func (i *Invariant) verifyChecks(of []*Holding, r *Record) (errs []error) {
	var last, late *Holding
	overlaps, disorder := 0, 0
	for _, h := range of {
		if last != nil {
			overlap := last.lastBegin - h.firstEnd
			if overlap > r.Overlap {
				r.Overlap = overlap
				r.Closest = fmt.Sprintf("%s: token %d of %s, last at %v; token %d of %s, first at %v",
					h.name, last.token, last.peer, last.lastBegin, h.token, h.peer, h.firstEnd)
			}
			if overlap > 0 {
				if overlaps++; overlaps <= maxViolations {
					errs = append(errs, i.violation("I1", h.name, "token %d of %s passed a Check at %v, %v after the first Check of token %d of %s at %v",
						last.token, last.peer, last.lastBegin, overlap, h.token, h.peer, h.firstEnd))
				}
			}
		}
		if late != nil && late.firstBegin > h.firstEnd {
			if disorder++; disorder <= maxViolations {
				errs = append(errs, i.violation("I2", h.name, "token %d of %s passed its first Check at %v, after token %d of %s at %v",
					late.token, late.peer, late.firstBegin, h.token, h.peer, h.firstEnd))
			}
		}
		if last == nil || h.lastBegin > last.lastBegin {
			last = h
		}
		if late == nil || h.firstBegin > late.firstBegin {
			late = h
		}
	}
	return errs
}

// verifyWrites is I3.
func (i *Invariant) verifyWrites(of []*Holding) (errs []error) {
	var last *Holding
	for _, h := range of {
		if last != nil && last.lastZxid >= h.firstZxid && len(errs) < maxViolations {
			errs = append(errs, i.violation("I3", h.name, "a write with token %d of %s landed at zxid %d, not before one with token %d of %s at zxid %d",
				last.token, last.peer, last.lastZxid, h.token, h.peer, h.firstZxid))
		}
		if last == nil || h.lastZxid > last.lastZxid {
			last = h
		}
	}
	return errs
}

// handOvers takes the times between neighbours.
func (r *Record) handOvers(of []*Holding) {
	for n := 1; n < len(of); n++ {
		before, h := of[n-1], of[n]
		began := before.lastBegin
		if before.over {
			began = before.ended
		}
		took := max(h.firstEnd-began, 0)
		switch {
		case !before.released:
			r.Lost = append(r.Lost, took)
		case before.disturbed || h.disturbed:
			r.Disturbed = append(r.Disturbed, took)
		default:
			r.Clean = append(r.Clean, took)
		}
	}
}

// AwaitCheck is I5: it waits until a tenure of name that had none before the call passes
// its first Check, or one that has passed some still does, and returns how long that
// took. It fails if that is longer than bound.
func (i *Invariant) AwaitCheck(ctx context.Context, name string, bound time.Duration) (time.Duration, error) {
	began := i.now()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	for {
		i.mu.Lock()
		passed, of := i.passed, slices.Collect(maps.Values(i.names[name]))
		i.mu.Unlock()
		for _, h := range of {
			if h.snapshot().lastBegin >= began || h.t.Check() == nil {
				return i.now() - began, nil
			}
		}
		select {
		case <-passed:
		case <-timer.C:
			return bound, i.violation("I5", name, "nobody passed a Check for %v, from %v on", bound, began)
		case <-ctx.Done():
			return i.now() - began, ctx.Err()
		}
	}
}

// ExactlyNodes is I4: the ephemeral znodes that are children of dir are want of each
// session and no others. Call it at quiescence; a dir that is not there has none. s may
// lag: it syncs first.
func ExactlyNodes(ctx context.Context, s recipes.Store, dir string, want map[int64]int) error {
	if err := s.Sync(ctx, dir); err != nil && !errors.Is(err, znode.NoNode) {
		return err
	}
	names, _, err := s.Children(ctx, dir)
	if err != nil && !errors.Is(err, znode.NoNode) {
		return err
	}
	got := make(map[int64][]string)
	for _, name := range names {
		_, stat, err := s.Get(ctx, path.Join(dir, name))
		switch {
		case errors.Is(err, znode.NoNode):
			continue
		case err != nil:
			return err
		case stat.EphemeralOwner != 0:
			id := int64(stat.EphemeralOwner)
			got[id] = append(got[id], name)
		}
	}
	var errs []error
	for id, names := range got {
		if len(names) != want[id] {
			errs = append(errs, fmt.Errorf("I4: %s: session %#x has %d nodes, want %d: %s", dir, id, len(names), want[id], strings.Join(names, ", ")))
		}
	}
	for id, n := range want {
		if n > 0 && got[id] == nil {
			errs = append(errs, fmt.Errorf("I4: %s: session %#x has no node, want %d", dir, id, n))
		}
	}
	return errors.Join(errs...)
}

// Footprint is what a leak makes grow. A plain value.
type Footprint struct {
	Goroutines int
	Watches    int // 0 where they cannot be counted
}

// TakeFootprint counts. watches may be nil.
func TakeFootprint(watches func() int) Footprint {
	f := Footprint{Goroutines: runtime.NumGoroutine()}
	if watches != nil {
		f.Watches = watches()
	}
	return f
}

// Flat is I6: it waits until there is no more than before, with slack goroutines for those
// that come and go, and fails if that takes longer than bound.
func (before Footprint) Flat(ctx context.Context, watches func() int, slack int, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for {
		now := TakeFootprint(watches)
		if now.Goroutines <= before.Goroutines+slack && now.Watches <= before.Watches {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("I6: %d goroutines and %d watches, before it were %d and %d (and %d goroutines may come and go)",
				now.Goroutines, now.Watches, before.Goroutines, before.Watches, slack)
		case <-time.After(bound / 100):
		}
	}
}
