package differ

import (
	"slices"
	"time"
)

// shrinkMax bounds how long a sequence is shrunk.
const shrinkMax = 20 * time.Second

// shrink looks for the shortest part of steps for which fails is still true. It is true
// for steps.
func shrink(steps []Step, fails func([]Step) bool) []Step {
	until := time.Now().Add(shrinkMax)
	try := func(candidate []Step) bool {
		return time.Now().Before(until) && fails(candidate)
	}
	// Waiting for the end of a session is what takes longest: without it, if that will do.
	quick := slices.DeleteFunc(slices.Clone(steps), func(s Step) bool { return s.Action == Expire })
	if len(quick) < len(steps) && try(quick) {
		steps = quick
	}
	steps = withoutParts(steps, try)
	for i := range steps {
		steps = simplified(steps, i, try)
	}
	return withoutParts(steps, try)
}

// withoutParts leaves out as many elements as it can, in ever smaller runs.
func withoutParts[T any](all []T, fails func([]T) bool) []T {
	for size := (len(all) + 1) / 2; size > 0 && len(all) > 0; {
		cut := false
		for at := 0; at < len(all); {
			less := slices.Concat(all[:at], all[min(at+size, len(all)):])
			if fails(less) {
				all, cut = less, true
			} else {
				at += size
			}
		}
		if size == 1 && !cut {
			return all
		}
		size = max(1, size/2)
	}
	return all
}

// simplified leaves out requests of a burst, operations of a multi and paths of watches.
func simplified(steps []Step, i int, fails func([]Step) bool) []Step {
	with := func(change func(s *Step)) []Step {
		copied := slices.Clone(steps)
		copied[i].Requests = slices.Clone(copied[i].Requests)
		change(&copied[i])
		return copied
	}
	requests := withoutParts(steps[i].Requests, func(less []Request) bool {
		return (len(less) > 0 || steps[i].Action != Send) && fails(with(func(s *Step) { s.Requests = less }))
	})
	steps = with(func(s *Step) { s.Requests = requests })
	for j := range steps[i].Requests {
		sub := withoutParts(steps[i].Requests[j].Sub, func(less []Request) bool {
			return fails(with(func(s *Step) { s.Requests[j].Sub = less }))
		})
		steps = with(func(s *Step) { s.Requests[j].Sub = sub })
		for k := range steps[i].Requests[j].Watches {
			list := steps[i].Requests[j].Watches[k]
			if list == nil {
				continue
			}
			paths := withoutParts(list, func(less []string) bool {
				return fails(with(func(s *Step) { s.Requests[j].Watches[k] = append([]string{}, less...) }))
			})
			steps = with(func(s *Step) { s.Requests[j].Watches[k] = append([]string{}, paths...) })
		}
	}
	return steps
}
