package differ

import (
	"slices"
	"testing"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: a deliberate difference excuses itself and nothing beside it. Method: for each a
// pair that it explains, and the same pair with one thing more or less.
func TestDeliberateDifferencesAreNarrow(t *testing.T) {
	answer := func(q Request, e znode.Error, body any) Frame {
		return Frame{Request: &q, Reply: &wire.Reply{Op: q.Op, Err: e, Zxid: 9, Body: body}}
	}
	acl := func(entries ...int) Frame {
		b := &wire.ACLReply{}
		for _, i := range entries {
			b.ACL = append(b.ACL, []znode.ACL{
				{Perms: 31, Scheme: "digest", ID: "a:1"}, {Perms: 31, Scheme: "digest", ID: "b:2"}, {Perms: 1, Scheme: "ip", ID: "1.2.3.4"},
			}[i])
		}
		return answer(Request{Op: wire.OpGetACL, Path: "~/a"}, znode.OK, b)
	}
	result := func(e znode.Error, sub ...znode.Result) *znode.Result {
		return &znode.Result{Kind: znode.ResultMulti, Err: e, Sub: sub}
	}
	event := func(zxid int64, path string) Frame {
		return Frame{Kind: KindEvent, Event: &wire.Event{Type: znode.EventCreated, Path: path, Zxid: zxid}}
	}
	exists := Request{Op: wire.OpExists, Path: "~/a"}
	unreadable := answer(exists, znode.OK, &wire.StatReply{})
	unreadable.Unreadable = true
	multi := func(q Request) Request { return Request{Op: wire.OpMulti, Sub: []Request{q}} }
	badFlags, create2 := multi(Request{Op: wire.OpCreate, Flags: 7}), multi(Request{Op: wire.OpCreate2})
	refused := answer(badFlags, znode.MarshallingError, nil)
	refused.Raw = append(make([]byte, replyHeader), multiEnd...)
	granted := func(ms int32) Frame { return Frame{Kind: KindConnect, Connect: &wire.ConnectReply{TimeoutMs: ms}} }
	bad := result(znode.BadArguments, znode.Result{Err: znode.BadArguments})
	one := result(znode.OK, znode.Result{Kind: znode.ResultCreate, Path: "/a"})
	two := result(znode.OK, znode.Result{Kind: znode.ResultCreateStat, Path: "/a"})
	other := result(znode.OK, znode.Result{Kind: znode.ResultCreateStat, Path: "/b"})
	for _, x := range []struct {
		id                string
		left, right, more Frame // more is in place of right, or of left if leftMore
		leftMore          bool
	}{
		{"event-zxid", event(-1, "/a"), event(7, "/a"), event(7, "/b"), false},
		{"multi-create2", answer(create2, 0, one), answer(create2, 0, two), answer(create2, 0, other), false},
		{"multi-flags", answer(badFlags, 0, bad), answer(badFlags, -5, nil), answer(create2, 0, bad), true},
		{"multi-refused", refused, answer(badFlags, -5, nil), answer(badFlags, -8, nil), false},
		{"resume-timeout", granted(500000), granted(timeouts[0]), granted(4000), false},
		{"acl-duplicates", acl(0, 2, 0), acl(0, 2), acl(0), false},
		{"auth-order", acl(2, 1, 0), acl(2, 0, 1), acl(0, 2, 1), false},
		{"exists-read", unreadable, answer(exists, -102, nil), answer(exists, 0, &wire.StatReply{}), true},
		{"empty-path", answer(Request{Op: wire.OpExists}, 0, &wire.StatReply{}), answer(Request{Op: wire.OpExists}, -101, nil), answer(Request{Op: wire.OpExists}, -102, nil), false},
	} {
		for _, more := range []bool{false, true} {
			l, r := x.left, x.right
			switch {
			case more && x.leftMore:
				l = x.more
			case more:
				r = x.more
			}
			c := comparer{left: &Transcript{Frames: []Frame{l}}, right: &Transcript{Frames: []Frame{r}}, explained: map[string]int{}}
			if _, what := c.compare(); (what == "") == more || !more && c.explained[x.id] != 1 {
				t.Errorf("%s, more %v: %q, explained %v", x.id, more, what, c.explained)
			}
		}
		if !slices.ContainsFunc(Deliberate, func(d Difference) bool { return d.ID == x.id && d.adapt != nil }) {
			t.Errorf("no difference %s", x.id)
		}
	}
	adapts := slices.DeleteFunc(slices.Clone(Deliberate), func(d Difference) bool { return d.adapt == nil })
	if len(adapts) != 9 {
		t.Errorf("%d differences are adapted, not those of this test", len(adapts))
	}
}
