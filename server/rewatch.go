package server

import (
	"errors"
	"iter"

	"github.com/tenure-dev/tenure/store"
	"github.com/tenure-dev/tenure/watch"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// rewatchNear is how many zxids may be left to replay while apply is kept waiting:
// what happened before is replayed while the state moves on.
const rewatchNear = 256

// catchUp sets watches for one connection so that nothing is missed between a zxid
// that the client names and now.
type catchUp struct {
	c    *conn
	k    *call
	want watch.Set
	from int64 // all events up to this zxid have been delivered
	// locked: apply is kept waiting, so nothing may wait for the client.
	locked bool
	// complete is false once the history turned out not to reach back.
	complete bool
}

// rewatchLocked answers an OpRewatch: events first, in zxid order, then the reply. It
// releases and retakes the connection's lock.
func (c *conn) rewatchLocked(k *call) {
	b := k.req.Body.(*wire.SetWatches)
	u := &catchUp{c: c, k: k, from: b.RelZxid, complete: true, want: watch.Set{
		Data: b.Data, Exist: b.Exist, Child: b.Child, Persistent: b.Persistent, Recursive: b.Recursive}}
	c.mu.Unlock()
	err := u.far()
	c.srv.state.RLock()
	u.locked = true
	r := wire.Reply{Xid: k.req.Xid, Op: k.req.Op}
	if err == nil {
		r.Err, err = u.near()
	}
	r.Zxid = c.srv.store.LastZxid()
	if r.Err == znode.OK {
		r.Body = &wire.RewatchReply{Complete: u.complete}
	}
	c.mu.Lock()
	c.popLocked()
	if err != nil {
		c.srv.fail(err)
		c.closeLocked(closeReason{closeTryAgain, "the change history can't be read"})
	} else if c.mu.closing == nil {
		c.appendLocked(func(b []byte) []byte { return c.codec.AppendReply(b, &r) })
	}
	c.srv.state.RUnlock()
	c.account(k, r.Err)
}

// far replays without the state lock, writing out as it goes, until little is left. A
// single change may be large (a session's end), so that the first round is for all.
func (u *catchUp) far() error {
	s := u.c.srv
	for round := 0; u.complete; round++ {
		s.state.RLock()
		now := s.store.LastZxid()
		s.state.RUnlock()
		if behind := now - u.from; behind <= 0 || round > 0 && behind <= rewatchNear {
			return nil
		}
		if err := u.replay(now); err != nil {
			return err
		}
	}
	return nil
}

// near replays the rest and registers what has not fired, in one step with the state.
func (u *catchUp) near() (znode.Error, error) {
	if u.complete {
		if err := u.replay(u.c.srv.store.LastZxid()); err != nil {
			return znode.SystemError, err
		}
	}
	var left []watch.Watch
	if u.complete {
		for path, m := range u.want.All() {
			left = append(left, watch.Watch{Path: path, Mode: m})
		}
	} else {
		var err error
		if left, err = u.compare(); err != nil {
			return znode.SystemError, err
		}
	}
	for _, w := range left {
		if e := u.c.srv.watches.add(u.c, w.Path, w.Mode); e != znode.OK {
			return e, nil
		}
	}
	return znode.OK, nil
}

// replay delivers what the wanted watches missed up to a zxid, and takes those that
// fired off the want list.
func (u *catchUp) replay(upTo int64) error {
	history, complete := u.c.srv.store.History(u.from)
	if !complete {
		u.complete = false
		return nil
	}
	var failed error
	changes := func(yield func(int64, []znode.Change) bool) {
		for h, err := range history {
			if err != nil {
				failed = err
				return
			}
			if h.Zxid > upTo || !yield(h.Zxid, h.Changes) {
				return
			}
		}
	}
	left := watch.Replay(u.c.id, u.want, iter.Seq2[int64, []znode.Change](changes), u.tell)
	u.want = setOf(left)
	if errors.Is(failed, store.ErrTrimmed) {
		u.complete = false
		return nil
	}
	u.from = upTo
	return failed
}

// setOf lists watches again by kind.
func setOf(left []watch.Watch) watch.Set {
	var s watch.Set
	for _, w := range left {
		switch w.Mode {
		case watch.Data:
			s.Data = append(s.Data, w.Path)
		case watch.Child:
			s.Child = append(s.Child, w.Path)
		case watch.Persistent:
			s.Persistent = append(s.Persistent, w.Path)
		case watch.Recursive:
			s.Recursive = append(s.Recursive, w.Path)
		}
	}
	return s
}

// compare is what is left where the history no longer reaches back: the one-shot
// watches as ZooKeeper's setWatches compares them, and a gap for each persistent one.
func (u *catchUp) compare() ([]watch.Watch, error) {
	left, err := u.c.srv.compareWatches(u.c, u.want, u.from, u.c.srv.store.LastZxid())
	for _, w := range left {
		if w.Mode == watch.Persistent || w.Mode == watch.Recursive {
			u.c.event(&wire.Event{Type: wire.EventGap, Path: w.Path, Zxid: u.c.srv.store.LastZxid()})
		}
	}
	return left, err
}

// tell delivers one replayed event, if the client may read what it is about.
func (u *catchUp) tell(zxid int64, e watch.Event) {
	if !znode.AccessRead.Allowed(e.ACL, u.k.ids) {
		return
	}
	u.c.event(&wire.Event{Type: e.Type, Path: e.Path, Zxid: zxid})
	u.c.mu.Lock()
	if !u.locked && u.c.mu.out != nil && len(*u.c.mu.out) >= writeChunk {
		u.c.writeLocked()
	}
	u.c.mu.Unlock()
}

// compareWatches tells c what its watches missed by comparing with the present state,
// and returns those still to be set.
func (s *Server) compareWatches(c *conn, want watch.Set, since, zxid int64) ([]watch.Watch, error) {
	var failed error
	find := func(path string) watch.Found {
		n, kids, err := s.store.Node(path)
		if err != nil {
			failed = err
		}
		if n == nil {
			return watch.Found{}
		}
		st := znode.StatOf(n, kids)
		return watch.Found{Exists: true, Mzxid: st.Mzxid, Pzxid: st.Pzxid, ACL: n.ACL}
	}
	left := watch.Compare(c.id, want, since, find, func(e watch.Event) {
		if znode.AccessRead.Allowed(e.ACL, *c.ids.Load()) {
			c.event(&wire.Event{Type: e.Type, Path: e.Path, Zxid: zxid})
		}
	})
	return left, failed
}

// setWatches answers ZooKeeper's own setWatches, whose events carry no zxid.
func (s *Server) setWatches(c *conn, b *wire.SetWatches) (any, znode.Error) {
	want := watch.Set{Data: b.Data, Exist: b.Exist, Child: b.Child, Persistent: b.Persistent, Recursive: b.Recursive}
	left, err := s.compareWatches(c, want, b.RelZxid, -1)
	if err != nil {
		s.fail(err)
		return nil, znode.SystemError
	}
	for _, w := range left {
		if e := s.watches.add(c, w.Path, w.Mode); e != znode.OK {
			return nil, e
		}
	}
	return nil, znode.OK
}
