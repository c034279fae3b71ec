package client

import (
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// watchKind is what a server keeps apart: one registration per connection, path and
// kind, whatever the number of watches behind it.
type watchKind uint8

const (
	watchData watchKind = iota // of Get and Exists
	watchChild
	watchPersistent
	watchRecursive
)

// watcherType names a kind in RemoveWatches.
var watcherType = [...]wire.WatcherType{
	watchData: wire.WatcherData, watchChild: wire.WatcherChildren,
	watchPersistent: wire.WatcherPersistent, watchRecursive: wire.WatcherRecursive,
}

type watchKey struct {
	path string // with the chroot
	kind watchKind
}

// watches are the watches of the current session. All of it is guarded by Client.mu.
//
// A watch enters with the reply that set it, in the reader, so that the events that
// follow on the wire find it. References are counted from before the request is sent:
// a cancelled watch must not take away the registration that another request, still
// in flight, is about to share.
//
// Across connections no event is lost or delivered twice: a resume asks for the events
// after the highest zxid that certainly came whole, and whoever already had the first
// events of a change that was cut in the middle skips as many.
type watches struct {
	c        *Client
	data     map[string][]*oneShot // set on an existing znode
	exist    map[string][]*oneShot // set on a missing one
	child    map[string][]*oneShot
	streams  map[watchKey][]*stream // Persistent and Recursive
	catching *catchUp               // the stream whose history is coming, nil if none
	refs     map[watchKey]int
	// lastEvent is the highest zxid of an event.
	lastEvent int64
	// replays counts how often events were asked for again: streams compare it to notice
	// that a zxid which they know comes from its start.
	replays int
}

func (w *watches) init(c *Client) {
	*w = watches{
		c: c, lastEvent: w.lastEvent, replays: w.replays,
		data: map[string][]*oneShot{}, exist: map[string][]*oneShot{}, child: map[string][]*oneShot{},
		streams: map[watchKey][]*stream{}, refs: map[watchKey]int{},
	}
}

// release drops one reference. With the last one the server's registration is taken
// away, unless an event has used it up.
func (w *watches) release(key watchKey, used bool) {
	w.refs[key]--
	if w.refs[key] > 0 {
		return
	}
	delete(w.refs, key)
	if cn := w.c.conn; cn != nil && !used && w.c.closing == nil {
		w.c.queue.push(newBound(wire.OpRemoveWatches, &wire.RemoveWatches{Path: key.path, Type: watcherType[key.kind]}))
		cn.wakeUp()
	}
}

// deliver takes one event of the server. An error ends the connection.
func (c *Client) deliver(e *wire.Event) error {
	if e.Path == "" || e.Path[0] != '/' {
		return fmt.Errorf("%w: event with path %q", errProtocol, e.Path)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if u := c.watches.catching; u != nil {
		return u.hold(&c.watches, e)
	}
	c.watches.dispatch(e)
	return nil
}

// shown returns e as the caller sees it.
func (c *Client) shown(e *wire.Event) wire.Event {
	return wire.Event{Type: e.Type, Path: c.below(e.Path), Zxid: e.Zxid}
}

// dispatch gives e to all it concerns.
func (w *watches) dispatch(e *wire.Event) {
	w.lastEvent = max(w.lastEvent, e.Zxid)
	full, ev := e.Path, w.c.shown(e)
	switch e.Type {
	case znode.EventCreated, znode.EventDataChanged:
		w.fire(w.data, watchKey{full, watchData}, &ev)
		w.fire(w.exist, watchKey{full, watchData}, &ev)
	case znode.EventChildrenChanged:
		w.fire(w.child, watchKey{full, watchChild}, &ev)
	case znode.EventDeleted:
		w.fire(w.data, watchKey{full, watchData}, &ev)
		w.fire(w.exist, watchKey{full, watchData}, &ev)
		w.fire(w.child, watchKey{full, watchChild}, &ev)
	case wire.EventGap:
		for _, kind := range []watchKind{watchPersistent, watchRecursive} {
			for _, st := range w.streams[watchKey{full, kind}] {
				st.append(ev)
			}
		}
		return
	}
	w.feed(watchKey{full, watchPersistent}, &ev)
	if e.Type == znode.EventChildrenChanged {
		return // recursive watches hear of the children themselves
	}
	for path := full; ; path = path[:strings.LastIndexByte(path, '/')] {
		if path == "" {
			path = "/"
		}
		w.feed(watchKey{path, watchRecursive}, &ev)
		if path == "/" {
			return
		}
	}
}

// fire ends the one-shot watches in table that ev concerns. One that was set after the
// change stays: the event is then history that a stream asked for.
func (w *watches) fire(table map[string][]*oneShot, key watchKey, ev *wire.Event) {
	list := table[key.path]
	if len(list) == 0 {
		return
	}
	var rest []*oneShot
	for _, o := range list {
		if ev.Zxid > 0 && ev.Zxid <= o.since {
			rest = append(rest, o)
			continue
		}
		o.end(ev)
		w.release(key, true)
	}
	if len(rest) == 0 {
		delete(table, key.path)
	} else {
		table[key.path] = rest
	}
}

func (w *watches) feed(key watchKey, ev *wire.Event) {
	for _, st := range w.streams[key] {
		st.take(ev, w.replays)
	}
}

// rewatchBytesMax bounds the paths in one OpRewatch.
const rewatchBytesMax = 512 << 10

// resume returns what sets all watches again on a new connection, given the highest
// zxid of a reply. The change of the newest event may have been cut in the middle, so
// it is asked for again unless a reply has confirmed it.
//
// More than rewatchBytesMax of paths take several requests. A change that falls
// between two of them may then be told twice, never not at all.
func (w *watches) resume(replied int64) []*wire.SetWatches {
	since := max(replied, w.lastEvent-1)
	w.replays++
	var all []*wire.SetWatches
	size := rewatchBytesMax
	next := func(path string) *wire.SetWatches {
		if size += len(path) + 4; size > rewatchBytesMax {
			all = append(all, &wire.SetWatches{RelZxid: since})
			size = len(path) + 4
		}
		return all[len(all)-1]
	}
	for path := range w.data {
		req := next(path)
		req.Data = append(req.Data, path)
	}
	for path := range w.exist {
		req := next(path)
		req.Exist = append(req.Exist, path)
	}
	for path := range w.child {
		req := next(path)
		req.Child = append(req.Child, path)
	}
	for key := range w.streams {
		req := next(key.path)
		if key.kind == watchPersistent {
			req.Persistent = append(req.Persistent, key.path)
		} else {
			req.Recursive = append(req.Recursive, key.path)
		}
	}
	return all
}

// suspend forgets what was held back: it comes again on the next connection.
func (w *watches) suspend() { w.catching = nil }

func (w *watches) attach(st *stream) {
	w.streams[st.key] = append(w.streams[st.key], st)
}

// detach leaves the references alone.
func (w *watches) detach(st *stream) {
	list := w.streams[st.key]
	for i, other := range list {
		if other == st {
			list = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if len(list) == 0 {
		delete(w.streams, st.key)
	} else {
		w.streams[st.key] = list
	}
}

// end ends all watches with their session.
func (w *watches) end(why error) {
	for _, table := range []map[string][]*oneShot{w.data, w.exist, w.child} {
		for _, list := range table {
			for _, o := range list {
				o.end(nil)
			}
		}
	}
	for _, list := range w.streams {
		for _, st := range list {
			st.fail(why)
		}
	}
	w.init(w.c)
}
