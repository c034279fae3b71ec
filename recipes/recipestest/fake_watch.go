package recipestest

import (
	"slices"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// watchKey is what a member finds a watch by.
type watchKey struct {
	path  string
	child bool // of the list of children, else of the data or existence
}

// fakeWatch is one watch, at the client and at the member. The fake's lock guards it.
type fakeWatch struct {
	watchKey
	c      *fakeClient
	conn   *fakeConn // where a member knows it, nil if none does
	over   bool
	number uint64 // their order
	ch     chan recipes.EventKind
}

func (c *fakeClient) newWatch(path string, child bool) *fakeWatch {
	c.f.seq++
	return &fakeWatch{watchKey: watchKey{path, child}, c: c, number: c.f.seq, ch: make(chan recipes.EventKind, 1)}
}

// public is what the caller gets.
func (w *fakeWatch) public() recipes.Watch { return recipes.Watch{C: w.ch, Cancel: w.cancel} }

func (w *fakeWatch) cancel() {
	w.c.f.mu.Lock()
	defer w.c.f.mu.Unlock()
	w.end()
}

// fire delivers e, if the watch is not over.
func (w *fakeWatch) fire(e recipes.EventKind) {
	if !w.over && w.c.watches[w] {
		w.ch <- e // there is room for one
		w.c.stats.Events++
	}
	w.end()
}

// end ends the watch on both sides.
func (w *fakeWatch) end() {
	if w.conn != nil {
		w.conn.m.unwatch(w)
	}
	delete(w.c.watches, w)
	if !w.over {
		w.over = true
		close(w.ch)
	}
}

// watch has m remember w.
func (m *member) watch(conn *fakeConn, w *fakeWatch) {
	w.conn = conn
	conn.watches[w] = true
	m.watches[w.watchKey] = append(m.watches[w.watchKey], w)
}

// unwatch has m forget w.
func (m *member) unwatch(w *fakeWatch) {
	left := slices.DeleteFunc(m.watches[w.watchKey], func(o *fakeWatch) bool { return o == w })
	m.watches[w.watchKey] = left
	if len(left) == 0 {
		delete(m.watches, w.watchKey)
	}
	delete(w.conn.watches, w)
	w.conn = nil
}

// keysOf returns the watches that a change concerns.
func keysOf(c znode.Change) []watchKey {
	parent, _ := znode.Split(c.Path)
	switch c.Type {
	case znode.EventCreated:
		return []watchKey{{c.Path, false}, {parent, true}}
	case znode.EventDeleted:
		return []watchKey{{c.Path, false}, {c.Path, true}, {parent, true}}
	}
	return []watchKey{{c.Path, false}}
}

// trigger sends the events of a change that m applied.
func (m *member) trigger(c znode.Change, zxid int64) {
	for _, key := range keysOf(c) {
		for _, w := range slices.Clone(m.watches[key]) {
			m.notify(w.conn, w, recipes.Changed, zxid)
		}
	}
}

// notify sends one event; the watch is used up.
func (m *member) notify(conn *fakeConn, w *fakeWatch, e recipes.EventKind, zxid int64) {
	if w.conn != nil {
		m.unwatch(w)
	}
	conn.down(func() {
		conn.c.lastZxid = max(conn.c.lastZxid, zxid)
		w.fire(e)
	})
}

// watchAgain sets a watch of a client that came back having seen all up to lastZxid, or
// tells it what it missed.
func (m *member) watchAgain(conn *fakeConn, w *fakeWatch, lastZxid int64) {
	f, applied := m.f, m.tree.LastZxid()
	if w.over {
		return
	}
	if lastZxid < f.forgot {
		m.notify(conn, w, recipes.Gap, applied)
		return
	}
	first, _ := slices.BinarySearchFunc(f.history, lastZxid+1, func(c change, z int64) int { return int(c.zxid - z) })
	for _, c := range f.history[first:] {
		if c.zxid <= applied && slices.Contains(keysOf(c.Change), w.watchKey) {
			m.notify(conn, w, recipes.Changed, applied)
			return
		}
	}
	m.watch(conn, w)
}
