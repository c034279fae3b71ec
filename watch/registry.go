package watch

import (
	"iter"
	"math/bits"
)

// Registry is the watches of all watchers of one member. Not safe for concurrent use:
// its owner serializes all calls, and no call may be made from within emit or an
// iteration. It does not bound itself: the owner compares Count and CountOf with its
// limits before it adds.
//
// Costs: Add, Remove, Has and all counts do not depend on how much is watched; Match
// costs two map look-ups per change, one more per level above the change while there
// are recursive watches, and one step per event.
type Registry struct {
	paths    map[string]*node
	watchers map[Watcher]*watcher
	count    int // of single watches: (watcher, path, mode)
	active   int // watchers that have at least one
	// recursive counts the Recursive watches, so that nobody pays for a walk up the
	// tree while there are none.
	recursive int
	// serial numbers what is told, so that a watcher is told once.
	serial uint64
}

// node is one watched path.
type node struct {
	path string
	// watchers has one list per mode, in no order that anybody may rely on.
	// Invariant: a node in Registry.paths has at least one non-empty list.
	watchers [modes][]*watcher
}

// watcher is one Watcher, known from its first Add to its Drop.
type watcher struct {
	id    Watcher
	told  uint64 // the last serial that reached it
	count int
	at    map[*node]positions
}

// positions says where a watcher is in the four lists of a node: index + 1, 0 = not.
// Invariant: at least one is not 0.
type positions [modes]uint32

func (p positions) mode() (m Mode) {
	for k, at := range p {
		if at != 0 {
			m |= 1 << k
		}
	}
	return m
}

// NewRegistry returns a Registry without watches.
func NewRegistry() *Registry {
	return &Registry{paths: make(map[string]*node), watchers: make(map[Watcher]*watcher)}
}

// Add sets the watches of all modes in m for w on path. What is there already stays
// as it is. Any path is allowed, also one that no znode can have.
func (r *Registry) Add(w Watcher, path string, m Mode) {
	if m&All == 0 {
		return
	}
	who := r.watchers[w]
	if who == nil {
		who = &watcher{id: w, at: make(map[*node]positions)}
		r.watchers[w] = who
	}
	n := r.paths[path]
	if n == nil {
		n = &node{path: path}
		r.paths[path] = n
	}
	at := who.at[n]
	for k := range modes {
		if m&(1<<k) != 0 && at[k] == 0 {
			n.watchers[k] = append(n.watchers[k], who)
			at[k] = uint32(len(n.watchers[k]))
			r.counted(who, Mode(1<<k), 1)
		}
	}
	who.at[n] = at
}

// Remove removes those watches of w on path whose modes are in m, and returns which
// there were: 0 if none.
func (r *Registry) Remove(w Watcher, path string, m Mode) Mode {
	who, n := r.watchers[w], r.paths[path]
	if who == nil || n == nil {
		return 0
	}
	at := who.at[n]
	removed := at.mode() & m
	if removed == 0 {
		return 0
	}
	r.unlist(who, n, at, removed)
	for k := range modes {
		if removed&(1<<k) != 0 {
			at[k] = 0
		}
	}
	who.store(n, at)
	return removed
}

// Has reports whether w has a watch on path whose mode is in m.
func (r *Registry) Has(w Watcher, path string, m Mode) bool {
	who, n := r.watchers[w], r.paths[path]
	return who != nil && n != nil && who.at[n].mode()&m != 0
}

// Drop forgets w and its watches, at a cost of their number. The owner must call it
// when a watcher that ever had a watch goes.
func (r *Registry) Drop(w Watcher) {
	who := r.watchers[w]
	if who == nil {
		return
	}
	for n, at := range who.at {
		r.unlist(who, n, at, at.mode())
	}
	delete(r.watchers, w)
}

// unlist takes who out of the lists of n whose modes are in m, and n out of the
// registry if that were the last. Where who is in n is left to the caller to correct.
func (r *Registry) unlist(who *watcher, n *node, at positions, m Mode) {
	for k := range modes {
		if m&(1<<k) == 0 {
			continue
		}
		list, last := n.watchers[k], len(n.watchers[k])-1
		if i := at[k] - 1; int(i) != last {
			moved := list[last]
			list[i] = moved
			its := moved.at[n]
			its[k] = at[k]
			moved.at[n] = its
		}
		list[last] = nil
		n.watchers[k] = list[:last]
		r.counted(who, Mode(1<<k), -1)
	}
	r.prune(n)
}

// prune forgets n if nobody watches it any more.
func (r *Registry) prune(n *node) {
	for k := range n.watchers {
		if len(n.watchers[k]) > 0 {
			return
		}
	}
	delete(r.paths, n.path)
}

// store notes that who is in n at these positions.
func (w *watcher) store(n *node, at positions) {
	if at == (positions{}) {
		delete(w.at, n)
	} else {
		w.at[n] = at
	}
}

// counted notes that who got (by = 1) or lost (by = -1) one watch of a single mode.
func (r *Registry) counted(who *watcher, m Mode, by int) {
	before := who.count
	who.count += by
	r.count += by
	if before == 0 || who.count == 0 {
		r.active += by
	}
	if m == Recursive {
		r.recursive += by
	}
}

// Count is the number of watches; each mode of a watcher on a path is one.
func (r *Registry) Count() int { return r.count }

// CountOf is the number of w's watches.
func (r *Registry) CountOf(w Watcher) int {
	if who := r.watchers[w]; who != nil {
		return who.count
	}
	return 0
}

// Watchers is the number of watchers that have a watch.
func (r *Registry) Watchers() int { return r.active }

// WatchedPaths is the number of paths that somebody watches.
func (r *Registry) WatchedPaths() int { return len(r.paths) }

// Paths yields the watched paths in no order. A caller that needs only some of many
// stops early.
func (r *Registry) Paths() iter.Seq[string] {
	return func(yield func(string) bool) {
		for path := range r.paths {
			if !yield(path) {
				return
			}
		}
	}
}

// WatchersOf yields who watches path and how, in no order.
func (r *Registry) WatchersOf(path string) iter.Seq2[Watcher, Mode] {
	return func(yield func(Watcher, Mode) bool) {
		n := r.paths[path]
		if n == nil {
			return
		}
		for k := range modes {
			for _, who := range n.watchers[k] {
				m := who.at[n].mode()
				// One with several modes is in several lists: take it in the first.
				if bits.TrailingZeros8(uint8(m)) == k && !yield(who.id, m) {
					return
				}
			}
		}
	}
}

// PathsOf yields what w watches and how, in no order.
func (r *Registry) PathsOf(w Watcher) iter.Seq2[string, Mode] {
	return func(yield func(string, Mode) bool) {
		who := r.watchers[w]
		if who == nil {
			return
		}
		for n, at := range who.at {
			if !yield(n.path, at.mode()) {
				return
			}
		}
	}
}
