package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// event judges one event: exactly the next one that the watch is about.
func (c *simClient) event(e *wire.Event) {
	s := c.sim
	if e.Type == wire.EventGap {
		s.count("gaps told")
		c.since = max(c.since, e.Zxid)
		c.pos = s.model.eventsFrom(e.Zxid)
		return
	}
	s.count("events received")
	if !c.watching {
		s.fail("watches", "client %d got %v of %s at zxid %d, but has no watch", c.id, e.Type, e.Path, e.Zxid)
		return
	}
	if c.pos >= len(s.model.events) || s.model.events[c.pos] != *e {
		want := "none"
		if c.pos < len(s.model.events) {
			want = fmt.Sprint(s.model.events[c.pos])
		}
		s.fail("watches", "client %d got the event %v, should be %s", c.id, *e, want)
		return
	}
	c.pos++
	c.since = max(c.since, e.Zxid-1)
	c.lastZxid = max(c.lastZxid, e.Zxid)
	s.frontier = max(s.frontier, e.Zxid)
}

// reply judges one reply: the next that is due, not behind what the session has seen, behind
// all events that it knows of, and with what the model says.
func (c *simClient) reply(conn *simConn, r *wire.Reply) {
	s := c.sim
	if len(c.sent) == 0 || c.sent[0].req.Xid != r.Xid {
		s.fail("order", "client %d got a reply to %v, xid %d, that is not next", c.id, r.Op, r.Xid)
		return
	}
	op := c.sent[0]
	c.sent = c.sent[1:]
	c.answers++
	c.answeredAt = s.now
	s.count(fmt.Sprintf("answered: %v", op.req.Op))
	s.note("client %d: %v %s answered %v zxid %d", c.id, op.req.Op, op.what, r.Err, r.Zxid)
	if r.Zxid < c.lastZxid {
		s.fail("P2", "client %d has seen zxid %d, and %v is answered at %d", c.id, c.lastZxid, op.req.Op, r.Zxid)
		return
	}
	if c.watching && r.Zxid > 0 {
		if c.pos < len(s.model.events) && s.model.events[c.pos].Zxid <= r.Zxid && op.req.Op != wire.OpRewatch {
			s.fail("watches", "client %d is answered at zxid %d before the event %v", c.id, r.Zxid, s.model.events[c.pos])
			return
		}
		c.since = max(c.since, r.Zxid)
	}
	c.lastZxid = r.Zxid
	c.called(op, r)
	c.judge(conn, op, r)
	s.frontier = max(s.frontier, r.Zxid)
}

func (c *simClient) judge(conn *simConn, op *simOp, r *wire.Reply) {
	s := c.sim
	linearizable := !c.zk && !op.req.Stale || op.req.Op == wire.OpSync || op.req.Op == wire.OpPing
	if linearizable && r.Zxid < op.frontier && r.Err != znode.SessionExpired {
		s.fail("P3", "client %d asked for %v when zxid %d had been seen, and is answered at %d by member %d", c.id, op.req.Op, op.frontier, r.Zxid, conn.m.id)
		return
	}
	switch op.req.Op {
	case wire.OpAddWatch:
		c.watches, c.watching, c.pos, c.since = true, true, s.model.eventsFrom(r.Zxid), r.Zxid
	case wire.OpRewatch:
		if c.pos < len(s.model.events) && s.model.events[c.pos].Zxid <= r.Zxid {
			s.fail("watches", "client %d set its watch again from zxid %d, answered at %d without the event %v", c.id, op.since, r.Zxid, s.model.events[c.pos])
		}
		s.count("watches set again")
	case wire.OpPing, wire.OpRenew:
		if l := s.model.known[c.session]; r.Err == znode.OK {
			l.heard = max(l.heard, op.arrived)
			s.model.judgeExpiry(l)
		}
	case wire.OpGetData:
		c.judgeRead(op, r)
	case wire.OpGetChildren2:
		c.judgeList(op, r)
	case wire.OpSync:
	default:
		c.judgeWrite(conn, op, r)
	}
}

func (c *simClient) judgeRead(op *simOp, r *wire.Reply) {
	path := op.req.Body.(*wire.PathWatch).Path
	want := c.sim.model.at(path, r.Zxid)
	switch {
	case r.Err == znode.NoNode && !want.exists:
		delete(c.known, path)
	case r.Err != znode.OK || !want.exists:
		c.sim.fail("P3", "client %d reads %s at zxid %d: %v, should be %+v", c.id, path, r.Zxid, r.Err, want)
	default:
		d := r.Body.(*wire.DataReply)
		if string(d.Data) != want.data || d.Stat.Version != want.version {
			c.sim.fail("P3", "client %d reads %s at zxid %d: %q version %d, should be %+v", c.id, path, r.Zxid, d.Data, d.Stat.Version, want)
		}
		c.known[path] = d.Stat.Version
	}
}

func (c *simClient) judgeList(op *simOp, r *wire.Reply) {
	s, path := c.sim, op.req.Body.(*wire.PathWatch).Path
	if r.Err == znode.NoNode && !s.model.at(path, r.Zxid).exists {
		return
	}
	var got []string
	if l, ok := r.Body.(*wire.ChildrenReply); ok {
		got = slices.Sorted(slices.Values(l.Names))
	}
	if want := s.model.childrenAt(path, r.Zxid); r.Err != znode.OK || !slices.Equal(got, want) {
		s.fail("P3", "client %d lists %s at zxid %d: %v, %q, should be %q", c.id, path, r.Zxid, r.Err, got, want)
	}
}

func (c *simClient) judgeWrite(conn *simConn, op *simOp, r *wire.Reply) {
	s := c.sim
	if !c.zk {
		if len(c.writes) == 0 || c.writes[0] != op {
			s.fail("order", "client %d: write %d was answered out of order", c.id, op.req.Seq)
			return
		}
		c.writes = c.writes[1:]
	}
	results := s.model.results[conn.owner]
	if conn.answered >= len(results) {
		s.fail("P1", "client %d: %s was acknowledged, but was not applied", c.id, op.what)
		return
	}
	want := results[conn.answered]
	conn.answered++
	got := simResult{err: r.Err}
	if res, ok := r.Body.(*znode.Result); ok {
		got.path, got.version = res.Path, res.Stat.Version
		for _, sub := range res.Sub {
			if got.err == znode.OK && sub.Err != znode.OK && sub.Err != znode.RuntimeInconsistency {
				got.err = sub.Err
			}
			if sub.Kind == znode.ResultCreate && len(res.Sub) > 0 {
				got.path = sub.Path
			}
			if sub.Kind == znode.ResultSetData {
				got.version = sub.Stat.Version
			}
		}
	}
	if got.err != want.err || want.err == znode.OK && (got.path != want.path || got.version != want.version) {
		s.fail("P1", "client %d: %s is answered %v %s %d, should be %v %s %d (%s)", c.id, op.what, got.err, got.path, got.version,
			want.err, want.path, want.version, want.text)
		return
	}
	if want.err == znode.OK && strings.Count(want.path, "/") > 1 && op.req.Op == wire.OpCreate {
		c.made = append(c.made, want.path)
	}
	switch b := op.req.Body.(type) {
	case *znode.SetData:
		if want.err == znode.OK {
			c.known[b.Path] = want.version
		}
	case nil: // the session is closed
		c.session, c.seq, c.writes, c.made, c.watches = 0, 0, nil, nil, false
		clear(c.known)
	}
}
