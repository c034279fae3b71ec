package watch

import (
	"math/bits"
	"strings"

	"github.com/tenure-dev/tenure/znode"
)

// Match calls emit for each event that one transaction's changes lead to, and uses up
// the one-shot watches that fired. Events come in the order of the changes and, per
// change, of the package's table; the events of one change and table column, which
// differ only in To, come one right after the other, so that the owner can encode
// them once. A failed transaction has no changes and so fires nothing.
//
// A one-shot watch is used up even if the owner then drops its event for want of READ.
func (r *Registry) Match(changes []znode.Change, emit func(Event)) {
	if r.count == 0 {
		return
	}
	for i := range changes {
		r.match(&changes[i], emit)
	}
}

func (r *Registry) match(c *znode.Change, emit func(Event)) {
	n := r.paths[c.Path]
	about := Event{Type: c.Type, Path: c.Path, ACL: c.ACL}
	r.serial++
	if n != nil {
		r.fireOnce(n, Data, about, emit)
		r.fire(n, Persistent, about, emit)
		r.fire(n, Recursive, about, emit)
	}
	above, hasParent := parent(c.Path)
	if r.recursive > 0 {
		for at, ok := above, hasParent; ok; at, ok = parent(at) {
			if ancestor := r.paths[at]; ancestor != nil {
				r.fire(ancestor, Recursive, about, emit)
			}
		}
	}
	if c.Type == znode.EventDeleted && n != nil {
		r.fireOnce(n, Child, about, emit) // the same serial: told are not told again
	}
	if n != nil {
		r.prune(n)
	}
	if c.Type == znode.EventDataChanged || !hasParent {
		return
	}
	if p := r.paths[above]; p != nil {
		r.serial++
		children := Event{Type: znode.EventChildrenChanged, Path: above, ACL: c.ParentACL}
		r.fireOnce(p, Child, children, emit)
		r.fire(p, Persistent, children, emit)
		r.prune(p)
	}
}

// fire tells those who watch n in the single mode m and were not told under the
// current serial.
func (r *Registry) fire(n *node, m Mode, e Event, emit func(Event)) {
	for _, who := range n.watchers[bits.TrailingZeros8(uint8(m))] {
		if who.told != r.serial {
			who.told = r.serial
			e.To = who.id
			emit(e)
		}
	}
}

// fireOnce is fire for a one-shot mode: the watches are used up. n may then have no
// watches left: the caller prunes.
func (r *Registry) fireOnce(n *node, m Mode, e Event, emit func(Event)) {
	k := bits.TrailingZeros8(uint8(m))
	r.fire(n, m, e, emit)
	for _, who := range n.watchers[k] {
		at := who.at[n]
		at[k] = 0
		who.store(n, at)
		r.counted(who, m, -1)
	}
	n.watchers[k] = nil
}

// parent returns the path of the znode above, false for the root.
func parent(path string) (string, bool) {
	switch i := strings.LastIndexByte(path, '/'); {
	case len(path) < 2 || i < 0:
		return "", false
	case i == 0:
		return path[:1], true
	default:
		return path[:i], true
	}
}
