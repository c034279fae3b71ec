package client

import (
	"context"
	"iter"
	"math"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// WatchOptions modifies Client.Watch.
type WatchOptions struct {
	// Recursive watches the path and all below it: each creation, deletion and change
	// of data with its own path, but no ChildrenChanged. Without it the path alone is
	// watched, with ChildrenChanged.
	Recursive bool
	// FromZxid, if not 0, first delivers the events after that zxid.
	FromZxid int64
	// Armed, if set, is called once before the first event, on the goroutine of the
	// loop: whatever changes after zxid is delivered. A cache reads the tree then.
	Armed func(zxid int64)
}

const (
	streamMax   = 8192    // events that may wait for their consumer
	catchingMax = 1 << 17 // while the history comes, before the loop begins
)

// stream is one loop over Watch; guarded by Client.mu.
type stream struct {
	key    watchKey
	path   string // as the caller named it
	buf    []wire.Event
	max    int
	err    error // why it ended; after buf
	notify chan struct{}
	// had is how many events of the change last were taken; of earlier changes all.
	last int64
	had  int
	// seen counts the events of last since replay number replay began.
	seen, replay int
}

// take appends ev unless it was taken before. replays is the number of the present
// replay: with a new one the events of a change come from its start again.
func (st *stream) take(ev *wire.Event, replays int) {
	if st.replay != replays {
		st.replay, st.seen = replays, 0
	}
	if ev.Zxid > 0 {
		switch {
		case ev.Zxid < st.last:
			return
		case ev.Zxid > st.last:
			st.last, st.had, st.seen = ev.Zxid, 0, 0
		}
		if st.seen++; st.seen <= st.had {
			return
		}
		st.had = st.seen
	}
	st.append(*ev)
}

// append drops what waits if it is too much: the consumer then finds a gap in its
// place, and reads again. It never blocks.
func (st *stream) append(ev wire.Event) {
	if len(st.buf) >= st.max {
		st.buf = append(st.buf[:0], wire.Event{Type: wire.EventGap, Path: st.path, Zxid: ev.Zxid})
	}
	st.buf = append(st.buf, ev)
	st.wake()
}

func (st *stream) fail(err error) {
	st.err = err
	st.wake()
}

func (st *stream) wake() {
	select {
	case st.notify <- struct{}{}:
	default:
	}
}

// Watch yields events in zxid order until ctx ends (silently), the session ends (an
// error) or the loop breaks. The watch is set when the loop begins.
//
// An event of type wire.EventGap says that events are missing: read again. The server
// sends it where its history does not reach back to the time of a reconnect; the client
// makes one where more than 8192 events waited for the loop.
func (c *Client) Watch(ctx context.Context, path string, o WatchOptions) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		st, zxid, err := c.openStream(ctx, path, o)
		if err != nil {
			if ctx.Err() == nil {
				yield(wire.Event{}, err)
			}
			return
		}
		defer c.closeStream(st)
		if o.Armed != nil {
			o.Armed(zxid)
		}
		var spare []wire.Event
		for ctx.Err() == nil {
			c.mu.Lock()
			events, err := st.buf, st.err
			st.buf = spare[:0]
			c.mu.Unlock()
			for _, ev := range events {
				if !yield(ev, nil) || ctx.Err() != nil {
					return
				}
			}
			spare = events
			switch {
			case len(events) > 0:
				continue
			case err != nil:
				yield(wire.Event{}, err)
				return
			}
			select {
			case <-st.notify:
			case <-ctx.Done():
			}
		}
	}
}

// openStream returns a stream that is set at the server, and the zxid from which on it
// has everything.
func (c *Client) openStream(ctx context.Context, path string, o WatchOptions) (*stream, int64, error) {
	full, err := c.checkedPath("watch", path)
	if err != nil {
		return nil, 0, err
	}
	key, mode := watchKey{full, watchPersistent}, int32(0)
	if o.Recursive {
		key.kind, mode = watchRecursive, 1
	}
	st := &stream{key: key, path: path, max: streamMax, notify: make(chan struct{}, 1), had: math.MaxInt}
	var cl *call
	if o.FromZxid == 0 {
		cl = c.newCall("watch", path, wire.OpAddWatch, &wire.AddWatch{Path: full, Mode: mode})
		cl.settle = func(rep *wire.Reply, wanted bool) { c.watches.added(st, rep, wanted) }
	} else {
		cl = c.catchUp(st, path, o.FromZxid)
	}
	c.mu.Lock()
	c.watches.refs[key]++
	c.mu.Unlock()
	rep, err := c.do(ctx, cl)
	switch {
	case err != nil:
		return nil, 0, err
	case o.FromZxid != 0:
		return st, o.FromZxid, nil
	}
	return st, rep.Zxid, nil
}

// added takes the reply that set the stream's watch.
func (w *watches) added(st *stream, rep *wire.Reply, wanted bool) {
	switch {
	case rep == nil || rep.Err != znode.OK:
		w.release(st.key, true)
	case !wanted:
		w.release(st.key, false)
	default:
		st.last = rep.Zxid
		w.attach(st)
	}
}

func (c *Client) closeStream(st *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.err != nil {
		return // it ended with its session, and all references with it
	}
	c.watches.detach(st)
	c.watches.release(st.key, false)
}
