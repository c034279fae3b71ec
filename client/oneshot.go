package client

import (
	"context"
	"slices"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// OneShot is a watch that tells one change. Any number of goroutines may use it.
type OneShot struct {
	// C gets one event at most and is then closed. It is closed without an event when
	// the session ends or Cancel is called.
	C <-chan wire.Event
	// Cancel gives the watch up. It never blocks and may be called again.
	Cancel func()

	c *Client
	o *oneShot
}

// Notify makes f be called once with what C tells: the event, or ok = false if the watch
// ended without one. It is for those who pass many watches on and want no goroutine for
// each. f may run at once, and runs under the client's lock: it must be short, must not
// block and must not call the client. A second call replaces the function of the first,
// unless that has run.
func (w OneShot) Notify(f func(ev wire.Event, ok bool)) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if w.o.ended {
		f(w.o.event, w.o.fired)
		return
	}
	w.o.notify = f
}

// oneShot is a OneShot as the client keeps it; guarded by Client.mu.
type oneShot struct {
	c     chan wire.Event // capacity 1
	since int64           // zxid of the reply that set it
	ended bool
	// notify, if set, is told what c tells.
	notify func(ev wire.Event, ok bool)
	event  wire.Event // if fired
	fired  bool
}

func (o *oneShot) end(ev *wire.Event) {
	if o.ended {
		return
	}
	o.ended = true
	if ev != nil {
		o.event, o.fired = *ev, true
		o.c <- *ev // never blocks: the only value
	}
	close(o.c)
	if o.notify != nil {
		o.notify(o.event, o.fired)
		o.notify = nil
	}
}

// GetW is Get, linearizable, with a watch for the next change of the data or the
// deletion. On error there is no watch.
func (c *Client) GetW(ctx context.Context, path string) ([]byte, znode.Stat, OneShot, error) {
	rep, watch, err := c.readW(ctx, "get", path, wire.OpGetData, watchData)
	if err != nil {
		return nil, znode.Stat{}, OneShot{}, err
	}
	d, err := bodyOf[*wire.DataReply](rep)
	if err != nil {
		return nil, znode.Stat{}, OneShot{}, err
	}
	return d.Data, d.Stat, watch, nil
}

// ExistsW is Exists, linearizable, with a watch for the creation, the next change of
// the data or the deletion. It watches a missing znode too.
func (c *Client) ExistsW(ctx context.Context, path string) (znode.Stat, bool, OneShot, error) {
	rep, watch, err := c.readW(ctx, "exists", path, wire.OpExists, watchData)
	if err != nil || rep.Err == znode.NoNode {
		return znode.Stat{}, false, watch, err
	}
	s, err := bodyOf[*wire.StatReply](rep)
	if err != nil {
		return znode.Stat{}, false, OneShot{}, err
	}
	return s.Stat, true, watch, nil
}

// ChildrenW is Children, linearizable, with a watch for the next creation or deletion
// of a child and the deletion of the znode. On error there is no watch. If the list is
// longer than a reply, it is read in pages after the watch was set.
func (c *Client) ChildrenW(ctx context.Context, path string) ([]string, znode.Stat, OneShot, error) {
	rep, watch, err := c.readW(ctx, "children", path, wire.OpGetChildren2, watchChild)
	if err == nil {
		r, err := bodyOf[*wire.ChildrenReply](rep)
		if err != nil {
			return nil, znode.Stat{}, OneShot{}, err
		}
		return r.Names, r.Stat, watch, nil
	}
	if !isLongList(err) {
		return nil, znode.Stat{}, OneShot{}, err
	}
	if watch, err = c.watchChildren(ctx, path); err != nil {
		return nil, znode.Stat{}, OneShot{}, err
	}
	names, stat, err := c.Children(ctx, path, ReadOptions{})
	if err != nil {
		watch.Cancel()
		return nil, znode.Stat{}, OneShot{}, err
	}
	return names, stat, watch, nil
}

// readW is one read that sets a watch.
func (c *Client) readW(ctx context.Context, op, path string, wop wire.Op, kind watchKind) (*wire.Reply, OneShot, error) {
	full, err := c.checkedPath(op, path)
	if err != nil {
		return nil, OneShot{}, err
	}
	cl := c.newCall(op, path, wop, &wire.PathWatch{Path: full, Watch: true})
	cl.proves = true
	watch := c.arm(cl, watchKey{full, kind})
	rep, err := c.do(ctx, cl)
	if err != nil && wop == wire.OpExists && rep != nil && rep.Err == znode.NoNode {
		err = nil
	}
	if err != nil {
		return nil, OneShot{}, err
	}
	return rep, watch, nil
}

// watchChildren sets a child watch without reading the list.
func (c *Client) watchChildren(ctx context.Context, path string) (OneShot, error) {
	full := c.full(path)
	c.mu.Lock()
	since := c.zxid
	c.mu.Unlock()
	cl := c.newCall("children", path, wire.OpRewatch, &wire.SetWatches{RelZxid: since, Child: []string{full}})
	watch := c.arm(cl, watchKey{full, watchChild})
	_, err := c.do(ctx, cl)
	return watch, err
}

// arm makes cl set a one-shot watch when its reply comes.
func (c *Client) arm(cl *call, key watchKey) OneShot {
	o := &oneShot{c: make(chan wire.Event, 1)}
	w := &c.watches
	c.mu.Lock()
	w.refs[key]++
	c.mu.Unlock()
	var table map[string][]*oneShot // where it ended up
	cl.settle = func(rep *wire.Reply, wanted bool) {
		switch {
		case rep == nil:
			w.release(key, true) // whatever was set went with its connection, or was never sent
			o.end(nil)
			return
		case rep.Err == znode.NoNode && cl.req.Op == wire.OpExists:
			table = w.exist
		case rep.Err != znode.OK:
			w.release(key, true)
			o.end(nil)
			return
		case key.kind == watchChild:
			table = w.child
		default:
			table = w.data
		}
		if !wanted {
			w.release(key, false)
			return
		}
		o.since = rep.Zxid
		table[key.path] = append(table[key.path], o)
	}
	return OneShot{c: c, o: o, C: o.c, Cancel: func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if o.ended {
			return
		}
		o.end(nil)
		table[key.path] = slices.DeleteFunc(table[key.path], func(other *oneShot) bool { return other == o })
		if len(table[key.path]) == 0 {
			delete(table, key.path)
		}
		w.release(key, false)
	}}
}
