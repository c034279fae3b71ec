package differ

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// pair is what both servers sent at the same place.
type pair struct{ left, right *Frame }

// comparer walks two transcripts side by side.
type comparer struct {
	left, right *Transcript
	zxids       pairing
	// newest is the largest zxid of a change that was seen so far: no reply may be from
	// before it, since steps are taken one at a time.
	newest [2]int64
	// explained counts what Deliberate explains, by id.
	explained map[string]int
}

// compare returns where the transcripts differ first: the index of a frame, and what is
// different, "" if nothing is.
func (c *comparer) compare() (at int, what string) {
	l, r := c.left.Frames, c.right.Frames
	for i := range min(len(l), len(r)) {
		p := pair{&l[i], &r[i]}
		what := c.frames(&p)
		if what == "" {
			continue
		}
		p, ids := adapted(p)
		if len(ids) > 0 {
			what = c.frames(&p)
		}
		for _, id := range ids {
			c.explained[id]++
		}
		if what == "" {
			continue
		}
		return i, what
	}
	if len(l) != len(r) {
		return min(len(l), len(r)), "one side has more frames"
	}
	return 0, ""
}

func (c *comparer) frames(p *pair) string {
	l, r := p.left, p.right
	switch {
	case l.Step != r.Step || l.Session != r.Session:
		return "step or session"
	case l.Kind != r.Kind:
		return "kind of frame"
	case !bytes.Equal(l.behindHeader(), r.behindHeader()):
		return "a frame that is not as it should be"
	}
	switch l.Kind {
	case KindEvent:
		return differing(l.Event, r.Event)
	case KindConnect:
		return c.connects(l.Connect, r.Connect)
	case KindReply:
		if l.Reply == nil { // not decoded on either side
			return ""
		}
		return c.replies(l.Request, l.Reply, r.Reply)
	}
	return ""
}

func differing(l, r *wire.Event) string {
	if *l != *r {
		return "event"
	}
	return ""
}

// replyHeader is the size of xid, zxid and error.
const replyHeader = 16

// behindHeader is the record of a frame that package wire would not have written.
func (f *Frame) behindHeader() []byte {
	if len(f.Raw) < replyHeader {
		return f.Raw
	}
	return f.Raw[replyHeader:]
}

// connects compares all but the password and the id, of which only whether there is one.
func (c *comparer) connects(l, r *wire.ConnectReply) string {
	switch {
	case l.TimeoutMs != r.TimeoutMs:
		return "timeout"
	case c.left.owners[l.Session] != c.right.owners[r.Session]:
		return "session"
	case (l.Password == [16]byte{}) != (r.Password == [16]byte{}):
		return "password"
	case !reflect.DeepEqual(l.ReadOnly, r.ReadOnly):
		return "read-only flag"
	}
	return ""
}

func (c *comparer) replies(q *Request, l, r *wire.Reply) string {
	switch {
	case l.Xid != r.Xid:
		return "xid"
	case l.Op != r.Op:
		return "operation"
	case l.Err != r.Err:
		return "error"
	case (l.Zxid > 0) != (r.Zxid > 0) || l.Zxid <= 0 && l.Zxid != r.Zxid:
		return "zxid of the reply"
	}
	lb, ls := bare(q, l.Body)
	rb, rs := bare(q, r.Body)
	if !reflect.DeepEqual(lb, rb) || len(ls) != len(rs) {
		return "body"
	}
	for i := range ls {
		if what := c.stats(&ls[i], &rs[i], q.outside()); what != "" {
			return what
		}
	}
	for side, reply := range []*wire.Reply{l, r} {
		if reply.Zxid > 0 && reply.Zxid < c.newest[side] {
			return "a reply from before a change that was seen"
		}
	}
	return ""
}

// stats compares two Stats. Those of znodes that all plays share have counters that others
// move.
func (c *comparer) stats(l, r *znode.Stat, shared bool) string {
	plain := func(s *znode.Stat) [6]int32 {
		v := [6]int32{s.Version, s.Aversion, s.DataLength}
		if !shared {
			v[3], v[4] = s.Cversion, s.NumChildren
		}
		return v
	}
	for _, s := range []*znode.Stat{l, r} {
		if s.Mtime < s.Ctime || s.Czxid == s.Mzxid && s.Mtime != s.Ctime {
			return "times"
		}
	}
	switch {
	case plain(l) != plain(r):
		return "stat"
	case c.left.owners[l.EphemeralOwner] != c.right.owners[r.EphemeralOwner] ||
		(l.EphemeralOwner == 0) != (r.EphemeralOwner == 0):
		return "owner"
	case shared:
		return ""
	}
	for i, z := range [][2]int64{{l.Czxid, r.Czxid}, {l.Mzxid, r.Mzxid}, {l.Pzxid, r.Pzxid}} {
		if !c.zxids.add(z[0], z[1]) {
			return [...]string{"czxid", "mzxid", "pzxid"}[i]
		}
		c.newest = [2]int64{max(c.newest[0], z[0]), max(c.newest[1], z[1])}
	}
	return ""
}

// bare returns a body without what is compared apart or has no order, and its Stats.
func bare(q *Request, body any) (any, []znode.Stat) {
	take := func(s *znode.Stat) []znode.Stat {
		t := *s
		*s = znode.Stat{}
		return []znode.Stat{t}
	}
	switch b := body.(type) {
	case *znode.Result:
		return bareResult(b)
	case *wire.DataReply:
		d := *b
		return d, take(&d.Stat)
	case *wire.StatReply:
		d := *b
		return d, take(&d.Stat)
	case *wire.ACLReply:
		d := *b
		return d, take(&d.Stat)
	case *wire.ChildrenReply:
		d := wire.ChildrenReply{Names: slices.Sorted(slices.Values(b.Names)), Stat: b.Stat}
		if q.outside() {
			d.Names = nil
		}
		s := take(&d.Stat)
		if q.Op == wire.OpGetChildren {
			s = nil
		}
		return d, s
	case *wire.PathsReply:
		return wire.PathsReply{Paths: slices.Sorted(slices.Values(b.Paths))}, nil
	case *wire.IdentitiesReply:
		return slices.SortedFunc(slices.Values(b.Identities), func(a, b znode.Identity) int {
			return cmp.Or(strings.Compare(a.Scheme, b.Scheme), strings.Compare(a.ID, b.ID))
		}), nil
	case *wire.MultiReadReply:
		return bareReads(b)
	}
	return body, nil
}

func bareResult(b *znode.Result) (any, []znode.Stat) {
	d := *b
	var all []znode.Stat
	if d.Kind == znode.ResultMulti {
		d.Sub = slices.Clone(d.Sub)
		for i := range d.Sub {
			s, stats := bareResult(&d.Sub[i])
			d.Sub[i] = s.(znode.Result)
			all = append(all, stats...)
		}
	}
	switch d.Kind {
	case znode.ResultCreateStat, znode.ResultSetData, znode.ResultSetACL:
		all = append(all, d.Stat)
	}
	d.Stat = znode.Stat{}
	return d, all
}

func bareReads(b *wire.MultiReadReply) (any, []znode.Stat) {
	d := wire.MultiReadReply{Results: slices.Clone(b.Results)}
	var all []znode.Stat
	for i := range d.Results {
		x := &d.Results[i]
		if x.Op == wire.OpGetData {
			all = append(all, x.Data.Stat)
		}
		x.Data.Stat = znode.Stat{}
		x.Children.Names = slices.Sorted(slices.Values(x.Children.Names))
	}
	return d, all
}

// pairing is a relation of two servers' zxids that is one to one and keeps their order:
// the same changes have happened on both, in the same order.
type pairing struct {
	pairs []zxids // ascending on both sides
}

type zxids struct{ left, right int64 }

// add reports whether left and right can be the same change.
func (p *pairing) add(left, right int64) bool {
	i, found := slices.BinarySearchFunc(p.pairs, left, func(z zxids, left int64) int { return cmp.Compare(z.left, left) })
	if found {
		return p.pairs[i].right == right
	}
	if i > 0 && p.pairs[i-1].right >= right || i < len(p.pairs) && p.pairs[i].right <= right {
		return false
	}
	p.pairs = slices.Insert(p.pairs, i, zxids{left, right})
	return true
}

// String is the frame on one line.
func (f *Frame) String() string {
	text := "nothing"
	switch {
	case f == nil:
		return text
	case f.Kind == KindEvent:
		text = fmt.Sprintf("event %d %q zxid %#x", f.Event.Type, f.Event.Path, f.Event.Zxid)
	case f.Kind == KindConnect:
		text = fmt.Sprintf("connected: session %#x timeout %d", f.Connect.Session, f.Connect.TimeoutMs)
	case f.Kind == KindClosed:
		text = "connection closed"
	case f.Reply != nil:
		text = fmt.Sprintf("reply xid %d zxid %#x err %d", f.Reply.Xid, f.Reply.Zxid, int32(f.Reply.Err))
		if f.Reply.Body != nil {
			text += fmt.Sprintf(" %s", showBody(f.Reply.Body))
		}
	}
	if f.Raw != nil {
		text += fmt.Sprintf(" raw %x", f.Raw)
	}
	return fmt.Sprintf("s%d %s", f.Session, text)
}

// counts lists what was explained, for reports.
func counts(explained map[string]int) string {
	text := ""
	for _, id := range slices.Sorted(maps.Keys(explained)) {
		text += fmt.Sprintf(" %s=%d", id, explained[id])
	}
	return text
}

// showBody leaves out what a result does not have.
func showBody(body any) string {
	res, ok := body.(*znode.Result)
	if !ok {
		return fmt.Sprintf("%+v", reflect.Indirect(reflect.ValueOf(body)))
	}
	if res.Kind == znode.ResultMulti {
		text := "multi"
		for i := range res.Sub {
			text += " [" + showBody(&res.Sub[i]) + "]"
		}
		return text
	}
	return fmt.Sprintf("%d %q %+v", int32(res.Err), res.Path, res.Stat)
}
