package watch_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/watch"
	"github.com/tenure-dev/tenure/znode"
)

const manyWatchers, manyPaths = 1000, 1000

// million returns a Registry with 1,000,000 watches: each watcher on 1,000 paths, its
// own or those of everybody.
func million(shared bool) *watch.Registry {
	r := watch.NewRegistry()
	for w := range manyWatchers {
		for p := range manyPaths {
			if shared {
				r.Add(watch.Watcher(w+1), fmt.Sprintf("/app/services/member-%04d", p), watch.Data)
			} else {
				r.Add(watch.Watcher(w+1), fmt.Sprintf("/app/services/%04d/member-%04d", w, p), watch.Data)
			}
		}
	}
	return r
}

func heapBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Goal: a million watches cost at most 500 bytes each, paths included, and what counts
// them walks nothing. Method: heap before and after; the time of 1,000 counts.
func TestC137MillionWatches(t *testing.T) {
	for _, shared := range []bool{true, false} {
		before := heapBytes()
		r := million(shared)
		each := (heapBytes() - before) / int64(r.Count())
		t.Logf("shared paths %v: %d bytes per watch", shared, each)
		if each > 500 {
			t.Errorf("shared paths %v: %d bytes per watch, want at most 500", shared, each)
		}
		// A thousand walks over a million would take seconds.
		start := time.Now()
		for range 1000 {
			if r.Count() != manyWatchers*manyPaths || r.Watchers() != manyWatchers || r.CountOf(7) != manyPaths || r.WatchedPaths() == 0 {
				t.Fatal("wrong counts")
			}
		}
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("shared paths %v: counting 1000 times takes %v", shared, took)
		}
		for w := range watch.Watcher(manyWatchers + 1) {
			r.Drop(w)
		}
		if r.Count()+r.Watchers()+r.WatchedPaths() != 0 {
			t.Errorf("shared paths %v: watches left after all were dropped", shared)
		}
	}
}

// Goal: watches of connections that ended leave nothing behind. Method: ten rounds of
// 100 watchers with 100 watches of each kind, half dropped before and half after the
// znodes were deleted; counts must be 0 and the heap of the last round that of the second.
func TestC051NoWatchLeft(t *testing.T) {
	r := watch.NewRegistry()
	var second int64
	for round := 1; round <= 10; round++ {
		leakRound(r)
		if r.Count()+r.Watchers()+r.WatchedPaths() != 0 {
			t.Fatalf("round %d: %d watches, %d watchers, %d paths left", round, r.Count(), r.Watchers(), r.WatchedPaths())
		}
		switch now := heapBytes(); {
		case round == 2:
			second = now
		case round == 10 && now > second+second/10:
			t.Errorf("heap after round 10: %d bytes, after round 2: %d", now, second)
		}
	}
	runtime.KeepAlive(r)
}

func leakRound(r *watch.Registry) {
	const watchers, paths = 100, 100
	path := func(w, p int) string { return fmt.Sprintf("/e/%d-%d", w, p) }
	for w := range watchers {
		for p := range paths {
			r.Add(watch.Watcher(w+1), path(w, p), watch.All)
		}
	}
	for w := range watchers / 2 {
		r.Drop(watch.Watcher(w + 1))
	}
	var gone []znode.Change
	for w := range watchers {
		for p := range paths {
			gone = append(gone, znode.Change{Type: znode.EventDeleted, Path: path(w, p)})
		}
	}
	r.Match(gone, func(watch.Event) {})
	for w := watchers / 2; w < watchers; w++ {
		r.Drop(watch.Watcher(w + 1))
	}
}

// Goal: telling 5,000 watchers of one znode allocates nothing per watcher. Method:
// count allocations of a standing and of a one-shot fan-out.
func TestFanOutDoesNotAllocate(t *testing.T) {
	set := []znode.Change{{Type: znode.EventDataChanged, Path: "/hot"}}
	for _, mode := range []watch.Mode{watch.Persistent, watch.Recursive, watch.Data} {
		r := watch.NewRegistry()
		told := 0
		// One run to warm up and one that counts; a one-shot watch needs a path for each.
		allocs := testing.AllocsPerRun(1, func() {
			r.Match(set, func(watch.Event) { told++ })
			if told == 0 {
				for w := range watch.Watcher(5000) {
					r.Add(w+1, "/hot", mode)
				}
			}
		})
		if told != 5000 || allocs > 1 {
			t.Errorf("%s: %v allocations for %d watchers", formatMode(mode), allocs, told)
		}
	}
}

func BenchmarkAddRemove(b *testing.B) {
	r := million(false)
	b.ReportAllocs()
	for b.Loop() {
		r.Add(1, "/some/path", watch.Data)
		r.Remove(1, "/some/path", watch.Data)
	}
}

// BenchmarkMatch is what a change pays, by what is watched elsewhere.
func BenchmarkMatch(b *testing.B) {
	deep := []znode.Change{{Type: znode.EventCreated, Path: "/app/services/0001/not/watched/at/all"}}
	for _, c := range []struct {
		name string
		make func() *watch.Registry
	}{
		{"nothing watched", watch.NewRegistry},
		{"a million one-shot", func() *watch.Registry { return million(false) }},
		{"a million one-shot and a recursive", func() *watch.Registry {
			r := million(false)
			r.Add(1, "/elsewhere", watch.Recursive)
			return r
		}},
	} {
		r := c.make()
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Match(deep, func(watch.Event) {})
			}
		})
	}
}

// BenchmarkFanOut is one change of a znode that 5,000 watchers watch; the one-shot
// ones are set again each time.
func BenchmarkFanOut(b *testing.B) {
	set := []znode.Change{{Type: znode.EventDataChanged, Path: "/hot"}}
	for _, mode := range []watch.Mode{watch.Persistent, watch.Data} {
		b.Run(formatMode(mode), func(b *testing.B) {
			r := watch.NewRegistry()
			for b.Loop() {
				for w := range watch.Watcher(5000) {
					r.Add(w+1, "/hot", mode)
				}
				r.Match(set, func(watch.Event) {})
			}
		})
	}
}
