package watch

import (
	"iter"

	"github.com/tenure-dev/tenure/znode"
)

// Replay is the catch-up without a gap: it emits, in zxid order, the events that the
// watches of want would have had for to, had they been registered since before the
// first change of history, and returns those that are still to be registered, each
// once, in the order of want. history yields the changes of one transaction after the
// other, ascending by zxid, from the first after the client's last one; an iterator
// that ends early (an error, a full outbox) makes the outcome worthless.
//
// One-shot watches fire at their first match and are not returned then. Nothing is
// filtered here: see Event.ACL.
func Replay(to Watcher, want Set, history iter.Seq2[int64, []znode.Change], emit func(zxid int64, e Event)) []Watch {
	// The same code that serves a connected client, so that both see the same.
	r := NewRegistry()
	for path, m := range want.All() {
		r.Add(to, path, m)
	}
	for zxid, changes := range history {
		r.Match(changes, func(e Event) { emit(zxid, e) })
		if r.Count() == 0 {
			return nil
		}
	}
	left := make([]Watch, 0, r.Count())
	for path, m := range want.All() {
		if r.Remove(to, path, m) != 0 {
			left = append(left, Watch{path, m})
		}
	}
	return left
}

// Found is what Compare needs to know of a znode. The zero value is a missing one.
type Found struct {
	Exists       bool
	Mzxid, Pzxid int64       // as in znode.Stat
	ACL          []znode.ACL // who may be told
}

// Compare is the catch-up of ZooKeeper's setWatches, which knows the present state
// only: it emits what the difference to the state at zxid since tells, and returns
// the watches that are still to be registered, in the order of want. It cannot tell a
// znode that was deleted and created again from one whose data changed, misses one
// that was created and deleted, and has nothing for persistent and recursive watches:
// Replay can and does. An entry that is listed twice has two events, as in ZooKeeper.
// ZooKeeper does not filter these events by ACL; Found's is passed on for an owner
// that does.
func Compare(to Watcher, want Set, since int64, find func(path string) Found, emit func(Event)) []Watch {
	left := make([]Watch, 0, want.Len())
	compare := func(paths []string, m Mode, missed func(Found) znode.EventType) {
		for _, path := range paths {
			f := find(path)
			if t := missed(f); t != 0 {
				emit(Event{To: to, Type: t, Path: path, ACL: f.ACL})
			} else {
				left = append(left, Watch{path, m})
			}
		}
	}
	compare(want.Data, Data, func(f Found) znode.EventType {
		return changedSince(f, f.Mzxid, since, znode.EventDataChanged)
	})
	compare(want.Exist, Data, func(f Found) znode.EventType {
		if f.Exists {
			return znode.EventCreated
		}
		return 0
	})
	compare(want.Child, Child, func(f Found) znode.EventType {
		return changedSince(f, f.Pzxid, since, znode.EventChildrenChanged)
	})
	standing := Set{Persistent: want.Persistent, Recursive: want.Recursive}
	for path, m := range standing.All() {
		left = append(left, Watch{path, m})
	}
	return left
}

// changedSince returns what a watch of an existing znode missed, 0 if nothing.
func changedSince(f Found, zxid, since int64, changed znode.EventType) znode.EventType {
	switch {
	case !f.Exists:
		return znode.EventDeleted
	case zxid > since:
		return changed
	default:
		return 0
	}
}
