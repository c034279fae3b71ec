package watch_test

import (
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/watch"
	"github.com/tenure-dev/tenure/znode"
)

var seedFlag = flag.Uint64("seed", 0, "replay the random tests with this seed only")

// seeds returns the seeds of a random test: -seed, or the first n. TENURE_SEEDS (make
// sim) asks for more.
func seeds(n uint64) []uint64 {
	if *seedFlag != 0 {
		return []uint64{*seedFlag}
	}
	if more, err := strconv.ParseUint(os.Getenv("TENURE_SEEDS"), 10, 64); err == nil {
		n = more
	}
	var all []uint64
	for s := uint64(1); s <= n; s++ {
		all = append(all, s)
	}
	return all
}

// single is one watch of the naive model.
type single struct {
	to   watch.Watcher
	path string
	mode watch.Mode
}

// naive is a Registry written for obviousness: a set that every call walks.
type naive map[single]bool

func (m naive) has(to watch.Watcher, path string, modes watch.Mode) bool {
	for s := range m {
		if s.to == to && s.path == path && s.mode&modes != 0 {
			return true
		}
	}
	return false
}

func (m naive) watchers() []watch.Watcher {
	set := map[watch.Watcher]bool{}
	for s := range m {
		set[s.to] = true
	}
	return slices.Sorted(maps.Keys(set))
}

func (m naive) below(to watch.Watcher, path string) bool {
	for s := range m {
		if s.to == to && s.mode == watch.Recursive &&
			(s.path == path || s.path == "/" || strings.HasPrefix(path, s.path+"/")) {
			return true
		}
	}
	return false
}

// column tells those who are told in one column of the package's table, less but, and
// uses up the one-shot watches of mode once. It returns who was told.
func (m naive) column(path string, once watch.Mode, below bool, but []watch.Watcher, emit func(to watch.Watcher)) (told []watch.Watcher) {
	for _, to := range m.watchers() {
		hit := m.has(to, path, once|watch.Persistent) || below && m.below(to, path)
		delete(m, single{to, path, once})
		if hit && !slices.Contains(but, to) {
			told = append(told, to)
			emit(to)
		}
	}
	return told
}

func (m naive) match(changes []znode.Change, emit func(watch.Event)) {
	for _, c := range changes {
		tell := func(kind znode.EventType, path string) func(watch.Watcher) {
			return func(to watch.Watcher) { emit(watch.Event{To: to, Type: kind, Path: path}) }
		}
		told := m.column(c.Path, watch.Data, true, nil, tell(c.Type, c.Path))
		if c.Type == znode.EventDeleted {
			m.column(c.Path, watch.Child, false, told, tell(c.Type, c.Path))
		}
		if c.Type != znode.EventDataChanged {
			above := c.Path[:max(1, strings.LastIndex(c.Path, "/"))]
			m.column(above, watch.Child, false, nil, tell(znode.EventChildrenChanged, above))
		}
	}
}

// randomPath is one of few paths with shared beginnings, three levels deep.
func randomPath(r *rand.Rand) string {
	names := []string{"a", "b", "ab", "é"}
	path := ""
	for range 1 + r.IntN(3) {
		path += "/" + names[r.IntN(len(names))]
	}
	return path
}

func randomWatchPath(r *rand.Rand) string {
	if r.IntN(6) == 0 {
		return "/"
	}
	return randomPath(r)
}

// randomTxn is what one transaction might have done. That it may create what exists
// does not matter here.
func randomTxn(r *rand.Rand) []znode.Change {
	changes := make([]znode.Change, 1+r.IntN(4)*r.IntN(2))
	for i := range changes {
		changes[i] = znode.Change{Type: znode.EventType(1 + r.IntN(3)), Path: randomPath(r)}
	}
	return changes
}

// collect groups events by watcher: the order between watchers is not promised.
func collect(into map[watch.Watcher][]string) func(watch.Event) {
	return func(e watch.Event) { into[e.To] = append(into[e.To], formatEvent(e)) }
}

func equal(a, b map[watch.Watcher][]string) bool {
	return maps.EqualFunc(a, b, slices.Equal[[]string])
}

// Goal: the Registry gives every watcher the events of the naive model, in order, and
// its counts never drift. Method: random calls on few paths and watchers.
// Replay: go test ./watch -run TestRegistryAgainstModel -seed N.
func TestRegistryAgainstModel(t *testing.T) {
	for _, seed := range seeds(20) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		r, m := watch.NewRegistry(), naive{}
		for step := range 1500 {
			if !modelStep(t, rnd, r, m) {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
		for w := range watch.Watcher(6) {
			r.Drop(w)
		}
		if r.Count()+r.Watchers()+r.WatchedPaths() != 0 {
			t.Fatalf("seed %d: after all were dropped: %d watches, %d watchers, %d paths", seed, r.Count(), r.Watchers(), r.WatchedPaths())
		}
	}
}

func modelStep(t *testing.T, rnd *rand.Rand, r *watch.Registry, m naive) bool {
	to := watch.Watcher(1 + rnd.IntN(5))
	path, mode := randomWatchPath(rnd), watch.Mode(rnd.IntN(16))
	switch rnd.IntN(10) {
	case 0, 1, 2, 3:
		r.Add(to, path, mode)
		for k := range 4 {
			if one := watch.Mode(1 << k); mode&one != 0 {
				m[single{to, path, one}] = true
			}
		}
	case 4:
		if has := r.Has(to, path, mode); has != m.has(to, path, mode) {
			t.Errorf("Has(%d, %s, %s) = %v", to, path, formatMode(mode), has)
		}
		var want watch.Mode
		for k := range 4 {
			s := single{to, path, watch.Mode(1<<k) & mode}
			if m[s] {
				want |= s.mode
				delete(m, s)
			}
		}
		if got := r.Remove(to, path, mode); got != want {
			t.Errorf("Remove(%d, %s, %s) = %s, want %s", to, path, formatMode(mode), formatMode(got), formatMode(want))
		}
	case 5:
		if rnd.IntN(4) == 0 {
			r.Drop(to)
			maps.DeleteFunc(m, func(s single, _ bool) bool { return s.to == to })
		}
	default:
		got, want := map[watch.Watcher][]string{}, map[watch.Watcher][]string{}
		txn := randomTxn(rnd)
		r.Match(txn, collect(got))
		m.match(txn, collect(want))
		if !equal(got, want) {
			t.Errorf("%v gave %v, want %v", txn, got, want)
		}
	}
	return modelCounts(t, r, m)
}

func modelCounts(t *testing.T, r *watch.Registry, m naive) bool {
	paths, byWatcher, listed := map[string]bool{}, map[watch.Watcher]int{}, naive{}
	for s := range m {
		paths[s.path] = true
		byWatcher[s.to]++
	}
	for path := range r.Paths() {
		for to, mode := range r.WatchersOf(path) {
			for k := range 4 {
				if one := watch.Mode(1 << k); mode&one != 0 {
					listed[single{to, path, one}] = true
				}
			}
		}
	}
	if r.Count() != len(m) || r.Watchers() != len(byWatcher) || r.WatchedPaths() != len(paths) || !maps.Equal(listed, m) {
		t.Errorf("%d watches, %d watchers, %d paths, want %d, %d, %d", r.Count(), r.Watchers(), r.WatchedPaths(), len(m), len(byWatcher), len(paths))
	}
	for to := range watch.Watcher(6) {
		if r.CountOf(to) != byWatcher[to] {
			t.Errorf("CountOf(%d) = %d, want %d", to, r.CountOf(to), byWatcher[to])
		}
	}
	return !t.Failed()
}
