package differ

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: a seed names a sequence, and the sequences have every operation and action. Method:
// twenty seeds, made twice.
func TestGenerateRepeatsAndHasEverything(t *testing.T) {
	ops, actions := map[wire.Op]bool{}, map[Action]bool{}
	for seed := range uint64(20) {
		steps := Generate(seed, 2000)
		if !reflect.DeepEqual(steps, Generate(seed, 2000)) {
			t.Fatalf("seed %d gives two sequences", seed)
		}
		if seed > 0 && reflect.DeepEqual(steps, Generate(seed-1, 2000)) {
			t.Fatalf("seeds %d and %d give the same", seed-1, seed)
		}
		for _, s := range steps {
			actions[s.Action] = true
			for _, q := range s.Requests {
				ops[q.Op] = true
				for _, sub := range q.Sub {
					ops[sub.Op] = true
				}
			}
		}
	}
	for op := wire.OpCreate; op <= wire.OpWhoAmI; op++ {
		known := op.String() != fmt.Sprintf("op %d", op)
		if known && !ops[op] && op != wire.OpDeleteContainer {
			t.Errorf("no sequence has %v", op)
		}
	}
	if len(actions) != int(Expire)+1 {
		t.Errorf("the sequences have the actions %v", actions)
	}
}

// Goal: a sequence is shrunk to what matters. Method: a failure that needs one step, a
// request in a burst behind it and an operation in a multi behind that.
func TestShrinkFindsTheShortest(t *testing.T) {
	steps := Generate(1, 500)
	del := Request{Op: wire.OpDelete, Path: "~/needle"}
	steps[30] = Step{Action: Drop, Session: 3}
	steps[90].Requests = []Request{{Op: wire.OpPing}, del, {Op: wire.OpPing}}
	steps[91].Requests = []Request{{Op: wire.OpMulti, Sub: []Request{{Op: wire.OpCheck}, del, {Op: wire.OpCheck}}}}
	isNeedle := func(q Request) bool { return q.Op == wire.OpDelete && q.Path == del.Path }
	fails := func(steps []Step) bool {
		found := 0
		for _, s := range steps {
			switch {
			case found == 0 && s.Action == Drop && s.Session == 3,
				found == 1 && slices.ContainsFunc(s.Requests, isNeedle),
				found == 2 && len(s.Requests) > 0 && slices.ContainsFunc(s.Requests[0].Sub, isNeedle):
				found++
			}
		}
		return found == 3
	}
	got := shrink(steps, fails)
	if len(got) != 3 || len(got[1].Requests) != 1 || len(got[2].Requests[0].Sub) != 1 || !fails(got) {
		t.Errorf("shrunk to %v", got)
	}
}

// transcript is two sessions' sight of a znode's life. Its zxids start at base.
func transcript(base int64) *Transcript {
	owner := session.ID(base)
	stat := func(czxid, mzxid, pzxid int64) znode.Stat {
		return znode.Stat{Czxid: base + czxid, Mzxid: base + mzxid, Pzxid: base + pzxid, Ctime: base, Mtime: base + mzxid - czxid, EphemeralOwner: owner}
	}
	reply := func(xid int32, op wire.Op, zxid int64, body any) Frame {
		return Frame{Request: &Request{Op: op, Path: "~/a"}, Reply: &wire.Reply{Xid: xid, Op: op, Zxid: zxid, Body: body}}
	}
	return &Transcript{owners: map[session.ID]int{owner: 1}, Frames: []Frame{
		{Kind: KindConnect, Connect: &wire.ConnectReply{TimeoutMs: 4000, Session: owner, Password: [16]byte{1}}},
		reply(1, wire.OpCreate2, base+1, &znode.Result{Kind: znode.ResultCreateStat, Path: "/a", Stat: stat(1, 1, 1)}),
		reply(2, wire.OpSetData, base+3, &znode.Result{Kind: znode.ResultSetData, Stat: stat(1, 3, 1)}),
		{Kind: KindEvent, Session: 1, Event: &wire.Event{Type: znode.EventDataChanged, Path: "/a", Zxid: -1}},
		reply(3, wire.OpGetData, base+9, &wire.DataReply{Data: []byte("x"), Stat: stat(1, 3, 1)}),
		reply(4, wire.OpGetChildren2, base+9, &wire.ChildrenReply{Names: []string{"b", "c"}, Stat: stat(1, 3, 5)}),
		reply(5, wire.OpMulti, base+10, &znode.Result{Kind: znode.ResultMulti, Err: znode.NoNode, Sub: []znode.Result{{Err: znode.NoNode}, {Err: znode.RuntimeInconsistency}}}),
		{Kind: KindClosed},
	}}
}

// Goal: the comparer sees what a client could see, and is blind to what may differ. Method:
// two transcripts with other zxids and ids are equal; each change of one of them is found.
func TestCompareSees(t *testing.T) {
	stat := func(f *Frame) *znode.Stat { return &f.Reply.Body.(*wire.DataReply).Stat }
	changes := map[string]func(f []Frame) []Frame{
		"":                 func(f []Frame) []Frame { return f },
		"order of names":   func(f []Frame) []Frame { slices.Reverse(f[5].Reply.Body.(*wire.ChildrenReply).Names); return f },
		"the event's zxid": func(f []Frame) []Frame { f[3].Event.Zxid = 7; return f },
		"timeout":          func(f []Frame) []Frame { f[0].Connect.TimeoutMs++; return f },
		"read-only flag":   func(f []Frame) []Frame { f[0].Connect.ReadOnly = new(bool); return f },
		"czxid":            func(f []Frame) []Frame { stat(&f[4]).Czxid++; return f },
		"mzxid":            func(f []Frame) []Frame { stat(&f[4]).Mzxid++; return f },
		"pzxid":            func(f []Frame) []Frame { stat(&f[4]).Pzxid = stat(&f[4]).Mzxid; return f },
		"version":          func(f []Frame) []Frame { stat(&f[4]).Version++; return f },
		"aversion":         func(f []Frame) []Frame { stat(&f[4]).Aversion++; return f },
		"cversion":         func(f []Frame) []Frame { stat(&f[4]).Cversion++; return f },
		"children":         func(f []Frame) []Frame { stat(&f[4]).NumChildren++; return f },
		"length":           func(f []Frame) []Frame { stat(&f[4]).DataLength++; return f },
		"owner":            func(f []Frame) []Frame { stat(&f[4]).EphemeralOwner = 0; return f },
		"times":            func(f []Frame) []Frame { stat(&f[4]).Ctime = stat(&f[4]).Mtime + 1; return f },
		"null data":        func(f []Frame) []Frame { f[4].Reply.Body.(*wire.DataReply).Data = nil; return f },
		"path":             func(f []Frame) []Frame { f[1].Reply.Body.(*znode.Result).Path = "/b"; return f },
		"error":            func(f []Frame) []Frame { f[2].Reply.Err = znode.NoAuth; return f },
		"error in a multi": func(f []Frame) []Frame { f[6].Reply.Body.(*znode.Result).Sub[1].Err = znode.OK; return f },
		"xid":              func(f []Frame) []Frame { f[2].Reply.Xid++; return f },
		"zxid of a reply":  func(f []Frame) []Frame { f[2].Reply.Zxid = 0; return f },
		"stale reply":      func(f []Frame) []Frame { f[5].Reply.Zxid -= 8; return f },
		"type of event":    func(f []Frame) []Frame { f[3].Event.Type = znode.EventDeleted; return f },
		"path of event":    func(f []Frame) []Frame { f[3].Event.Path = "/b"; return f },
		"event too early":  func(f []Frame) []Frame { f[2], f[3] = f[3], f[2]; return f },
		"lost event":       func(f []Frame) []Frame { return slices.Delete(f, 3, 4) },
		"lost close":       func(f []Frame) []Frame { return f[:7] },
		"odd bytes":        func(f []Frame) []Frame { f[4].Raw = make([]byte, 20); return f },
	}
	for what, change := range changes {
		right := transcript(5000)
		right.Frames = change(right.Frames)
		c := comparer{left: transcript(100), right: right, explained: map[string]int{}}
		_, found := c.compare()
		blind := slices.Contains([]string{"", "order of names", "the event's zxid"}, what)
		if blind != (found == "") {
			t.Errorf("%q was found as %q", what, found)
		}
	}
}
