package zk

import (
	"sync"

	gozk "github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/recipes"
)

// watchKey is what a server's watch is on: a znode itself, existing or not, or its
// children.
type watchKey struct {
	path     string // with the chroot
	children bool
}

// watches is the table of a session's watches. The library cannot take one back from the
// server, so all on the same key share one: who comes when the server's watch is armed
// reads without arming another.
//
// It is fed by the library's event callback, not by its channels, and a watch is in the
// table before the read that arms it is sent: an event is never missed, but may be one
// that an earlier read armed. Events only wake.
//
// Its functions never block; safe for concurrent use.
type watches struct {
	mu    sync.Mutex
	ended bool
	epoch int // counts broken connections
	m     map[watchKey]*watched
}

// watched is one key. It is in the table as long as it is in use.
type watched struct {
	waiting map[*watch]struct{}
	armed   bool // the server's watch is there, in this epoch
	fired   int  // events so far
	arming  int  // reads in flight that may arm it
}

// watch is one recipes.Watch.
type watch struct {
	c   chan recipes.EventKind
	on  *watched // nil once it was told or canceled
	key watchKey
}

func newWatches() *watches { return &watches{m: make(map[watchKey]*watched)} }

// add enters a watch on key.
func (w *watches) add(key watchKey) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := &watch{c: make(chan recipes.EventKind, 1), key: key}
	if w.ended {
		tell(x, recipes.Ended)
		return x
	}
	x.on = w.entry(key)
	x.on.waiting[x] = struct{}{}
	return x
}

func (w *watches) entry(key watchKey) *watched {
	e := w.m[key]
	if e == nil {
		e = &watched{waiting: make(map[*watch]struct{})}
		w.m[key] = e
	}
	return e
}

// public is x for its user.
func (w *watches) public(x *watch) recipes.Watch {
	return recipes.Watch{C: x.c, Cancel: func() { w.cancel(x) }}
}

// cancel takes x out of the table, if it is still there.
func (w *watches) cancel(x *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.on != nil {
		delete(x.on.waiting, x)
		w.sweep(x.key, x.on)
		x.on = nil
	}
}

// arm is called before a read of key. If the server's watch is not armed the read must
// arm it, and call done with whether it did when it was answered.
func (w *watches) arm(key watchKey) (armed bool, done func(ok bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entry(key)
	if e.armed {
		return true, func(bool) {}
	}
	e.arming++
	epoch, fired := w.epoch, e.fired
	return false, func(ok bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		e.arming--
		// If something fired since, that may have been this watch.
		if ok && !w.ended && w.epoch == epoch && e.fired == fired {
			e.armed = true
		}
		w.sweep(key, e)
	}
}

// sweep forgets an entry that is not in use. Armed ones are: there is one at most per
// watched path until it fires or the connection breaks.
func (w *watches) sweep(key watchKey, e *watched) {
	if len(e.waiting) == 0 && !e.armed && e.arming == 0 && w.m[key] == e {
		delete(w.m, key)
	}
}

// fire passes on a server's event.
func (w *watches) fire(ev gozk.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	self, children := watchKey{path: ev.Path}, watchKey{path: ev.Path, children: true}
	switch ev.Type {
	case gozk.EventNodeCreated, gozk.EventNodeDataChanged:
		w.wake(self, recipes.Changed)
	case gozk.EventNodeChildrenChanged:
		w.wake(children, recipes.Changed)
	case gozk.EventNodeDeleted:
		w.wake(self, recipes.Changed)
		w.wake(children, recipes.Changed)
	}
}

// wake tells all on key; the server's watch is spent.
func (w *watches) wake(key watchKey, kind recipes.EventKind) {
	e := w.m[key]
	if e == nil {
		return
	}
	e.armed = false
	e.fired++
	for x := range e.waiting {
		tell(x, kind)
	}
	clear(e.waiting)
	w.sweep(key, e)
}

// tell ends a watch with its one value.
func tell(x *watch, kind recipes.EventKind) {
	x.c <- kind // the capacity is 1 and this is the only value
	close(x.c)
	x.on = nil
}

// gap ends all watches: the connection broke.
func (w *watches) gap() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.epoch++
	for key := range w.m {
		w.wake(key, recipes.Gap)
	}
}

// end ends all watches, and those to come.
func (w *watches) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for key := range w.m {
		w.wake(key, recipes.Ended)
	}
}
