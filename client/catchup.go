package client

import (
	"fmt"
	"math"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// catchUp is a stream whose history is coming, on a connection that has other watches.
//
// History and news come mixed: the server goes on telling the other watches what
// happens while it sends the history. A ping is sent before the request and nothing in
// between, so that all events between the two replies can be held back without anybody
// noticing, and told apart when the second reply is there: what is no newer than the
// ping's reply is history. Of what is newer, an event that concerns both the stream and
// an older watch came twice, first as news.
type catchUp struct {
	st   *stream
	upTo int64             // zxid of the ping's reply
	old  map[watchKey]bool // persistent watches that the server had then
	held []wire.Event      // newer than upTo; full paths
}

// heldMax bounds what may happen while a history comes; more ends the connection.
const heldMax = 1 << 17

type eventKey struct {
	zxid int64
	kind znode.EventType
	path string
}

func (u *catchUp) hold(w *watches, e *wire.Event) error {
	mine := concerns(map[watchKey]bool{u.st.key: true}, e)
	switch {
	case e.Zxid > u.upTo && e.Type != wire.EventGap:
		if len(u.held) >= heldMax {
			return fmt.Errorf("client: more than %d events while a history came", heldMax)
		}
		u.held = append(u.held, *e)
	case mine || e.Type == wire.EventGap && e.Path == u.st.key.path:
		u.st.append(w.c.shown(e))
	}
	return nil
}

// finish tells apart what was held and gives each its own. The stream then has all up to
// the zxid of the reply.
func (u *catchUp) finish(w *watches, zxid int64) {
	copies := map[eventKey]int{}
	for i := range u.held {
		copies[keyOf(&u.held[i])]++
	}
	told := map[eventKey]int{}
	for i := range u.held {
		e := &u.held[i]
		k := keyOf(e)
		mine := concerns(map[watchKey]bool{u.st.key: true}, e)
		news := !mine || w.concernsOneShot(e)
		if mine && concerns(u.old, e) {
			news = told[k] < copies[k]/2
		}
		if news {
			told[k]++
			w.dispatch(e)
		} else {
			u.st.append(w.c.shown(e))
		}
	}
	u.st.last, u.st.had = zxid, math.MaxInt
}

func keyOf(e *wire.Event) eventKey { return eventKey{e.Zxid, e.Type, e.Path} }

// concerns reports whether one of the persistent watches keys is told of e.
func concerns(keys map[watchKey]bool, e *wire.Event) bool {
	if keys[watchKey{e.Path, watchPersistent}] {
		return true
	}
	if e.Type == znode.EventChildrenChanged {
		return false // recursive watches hear of the children themselves
	}
	for path := e.Path; ; path, _ = znode.Split(path) {
		if keys[watchKey{path, watchRecursive}] {
			return true
		}
		if path == znode.Root {
			return false
		}
	}
}

// concernsOneShot reports whether e fires a one-shot watch.
func (w *watches) concernsOneShot(e *wire.Event) bool {
	var lists [][]*oneShot
	if e.Type != znode.EventChildrenChanged {
		lists = append(lists, w.data[e.Path], w.exist[e.Path])
	}
	if e.Type == znode.EventChildrenChanged || e.Type == znode.EventDeleted {
		lists = append(lists, w.child[e.Path])
	}
	for _, list := range lists {
		for _, o := range list {
			if o.since < e.Zxid {
				return true
			}
		}
	}
	return false
}

// catchUp returns the call that sets st's watch and first delivers what it missed since
// from.
func (c *Client) catchUp(st *stream, path string, from int64) *call {
	w := &c.watches
	req := &wire.SetWatches{RelZxid: from}
	if st.key.kind == watchRecursive {
		req.Recursive = []string{st.key.path}
	} else {
		req.Persistent = []string{st.key.path}
	}
	cl := c.newCall("watch", path, wire.OpRewatch, req)
	cl.barrier = func(rep *wire.Reply, _ bool) {
		if rep == nil {
			return
		}
		st.buf, st.max = nil, catchingMax
		w.catching = &catchUp{st: st, upTo: max(c.zxid, rep.Zxid), old: map[watchKey]bool{}}
		for key := range w.streams {
			w.catching.old[key] = true
		}
	}
	cl.settle = func(rep *wire.Reply, wanted bool) {
		u := w.catching
		if rep == nil || u == nil || u.st != st {
			w.release(st.key, true)
			return
		}
		w.catching = nil
		u.finish(w, rep.Zxid)
		st.max = streamMax
		if wanted && rep.Err == znode.OK {
			w.attach(st)
		} else {
			w.release(st.key, rep.Err != znode.OK)
		}
	}
	return cl
}
