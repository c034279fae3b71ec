package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: a failed transaction says which step failed and leaves nothing behind. Method:
// the failing step in the middle, first and last, through every door.
func TestC053FailedMultiLeavesNothing(t *testing.T) {
	s := startServer(t, Config{})
	for _, protocol := range everyDoor {
		r, tree := openAs(t, s, protocol, 0), openAs(t, s, protocol, 0)
		p := r.must("/p-", "", sequential)
		r.must(p+"/s-", "", sequential)
		tree.addWatch("/", 1)
		before := *r.stat(p)
		a := &znode.Create{Path: p + "a", ACL: znode.OpenACL}
		seq := &znode.Create{Path: p + "/s-", ACL: znode.OpenACL, Mode: sequential}
		bad := &znode.Delete{Path: "/none", Version: -1}
		c := &znode.Create{Path: p + "c", ACL: znode.OpenACL}
		for _, row := range []struct {
			ops  []znode.Op
			want []znode.Error
		}{
			{[]znode.Op{a, seq, bad, c}, []znode.Error{0, 0, -101, -2}},
			{[]znode.Op{bad, a, seq, c}, []znode.Error{-101, -2, -2, -2}},
			{[]znode.Op{a, seq, c, bad}, []znode.Error{0, 0, 0, -101}},
		} {
			res := r.multi(row.ops...)
			var got []znode.Error
			for _, sub := range res.Sub {
				got = append(got, sub.Err)
			}
			if !slices.Equal(got, row.want) {
				t.Errorf("%s: results %v, want %v", protocol, got, row.want)
			}
		}
		if r.stat(p+"a") != nil || r.stat(p+"c") != nil || *r.stat(p) != before {
			t.Errorf("%s: something is left: %+v, want %+v", protocol, *r.stat(p), before)
		}
		tree.wantTold("failed transactions")
		if got := r.must(p+"/s-", "", sequential); got != p+"/s-0000000001" {
			t.Errorf("%s: the next number went to %s", protocol, got)
		}
		if res := r.multi(); len(res.Sub) != 0 || res.Err != znode.OK {
			t.Errorf("%s: an empty transaction: %+v", protocol, res)
		}
	}
}

// Goal: a read that fails in a batch is one result of it. Method: good, missing,
// forbidden and good again, through every door.
func TestC055MultiRead(t *testing.T) {
	s := startServer(t, Config{})
	for _, protocol := range everyDoor {
		r := openAs(t, s, protocol, 0)
		p := r.must("/ok-", "data", sequential)
		r.must(p+"/child", "", persistent)
		secret := p + "/secret"
		r.call(wire.Request{Op: wire.OpCreate, Body: &znode.Create{Path: secret, ACL: []znode.ACL{{Perms: znode.PermWrite, Scheme: "world", ID: "anyone"}}}})
		reply := r.call(wire.Request{Op: wire.OpMultiRead, Body: &wire.MultiRead{Ops: []wire.ReadOp{
			{Op: wire.OpGetData, Path: p}, {Op: wire.OpGetData, Path: "/none"}, {Op: wire.OpGetData, Path: secret}, {Op: wire.OpGetChildren, Path: p}}}})
		if reply.Err != znode.OK {
			t.Fatal(reply.Err)
		}
		res := reply.Body.(*wire.MultiReadReply).Results
		if len(res) != 4 || string(res[0].Data.Data) != "data" || res[1].Err != znode.NoNode || res[2].Err != znode.NoAuth ||
			!slices.Equal(res[3].Children.Names, []string{"child", "secret"}) {
			t.Errorf("%s: %+v", protocol, res)
		}
	}
}

// fill creates n children of parent with the names that name gives, in transactions of
// a thousand that are sent without waiting.
func fill(t *testing.T, r *rawClient, parent string, n int, m znode.Mode, name func(i int) string) {
	t.Helper()
	sent := 0
	for i := 0; i < n; {
		var ops []znode.Op
		for ; i < n && len(ops) < 1000; i++ {
			ops = append(ops, &znode.Create{Path: parent + "/" + name(i), ACL: znode.OpenACL, Mode: m})
		}
		r.send(wire.Request{Op: wire.OpMulti, Body: &znode.Multi{Ops: ops}})
		sent++
	}
	for range sent {
		if res := r.next().Body.(*znode.Result); res.Err != znode.OK {
			t.Fatalf("fill %s: %v", parent, res.Err)
		}
	}
}

// Goal: the end of a session with very many ephemerals is one change that everybody can
// read, watch and replay. Method: 20,000 with long names, half of them through each door,
// watched one level up; close; restart from the log.
func TestC057CloseOfManyEphemerals(t *testing.T) {
	const count = 10_000
	s := startServer(t, Config{})
	r := openRaw(t, s)
	r.must("/e", "", persistent)
	r.addWatch("/e", 1)
	pad := strings.Repeat("n", 50)
	for i, protocol := range juteDoors {
		owner := openAs(t, s, protocol, 40*time.Second)
		fill(t, owner, "/e", count, ephemeral, func(i int) string { return fmt.Sprint(pad, 1_000_000_000+i) })
		if told, st := r.told(), r.stat("/e"); len(told) != count || st.NumChildren != count {
			t.Fatalf("%d ephemerals, %d events", st.NumChildren, len(told))
		}
		began := time.Now()
		if e := owner.call(wire.Request{Op: wire.OpCloseSession}).Err; e != znode.OK {
			t.Fatal(e)
		}
		t.Logf("close took %v", time.Since(began))
		if told := r.told(); len(told) != count {
			t.Errorf("%d events, want %d", len(told), count)
		}
		if st := r.stat("/e"); st.NumChildren != 0 || int(st.Cversion) != 2*count*(i+1) || s.store.Counts().Ephemerals != 0 {
			t.Errorf("behind the close: %+v", st)
		}
	}
	want := *r.stat("/e")
	r = openRaw(t, restart(t, s))
	if got := *r.stat("/e"); got != want {
		t.Errorf("after a restart %+v, want %+v", got, want)
	}
}

// Goal: a transaction that just fits into a message may expand (access lists, Stats)
// without becoming something that cannot be stored, answered or replayed. Method: as many
// creates as fit, each with an access list that stands for many identities.
func TestC057ExpandingMulti(t *testing.T) {
	for _, protocol := range juteDoors {
		expandingMulti(t, protocol)
	}
}

func expandingMulti(t *testing.T, protocol string) {
	const limit = 128 << 10
	s := startServer(t, Config{MaxMessageBytes: limit})
	r := openAs(t, s, protocol, 0)
	for i := range 30 {
		if e := r.auth("digest", fmt.Sprintf("user%d:secret", i)); e != znode.OK {
			t.Fatal(e)
		}
	}
	r.must("/m", "", persistent)
	m := &znode.Multi{}
	size := func() int { return len(r.codec.AppendRequest(nil, &wire.Request{Op: wire.OpMulti, Body: m})) }
	create := &znode.Create{Path: "/m/n-", Mode: sequential, WantStat: true, ACL: []znode.ACL{{Perms: 31, Scheme: "auth"}}}
	empty := size()
	m.Ops = []znode.Op{create}
	m.Ops = slices.Repeat(m.Ops, (limit-empty)/(size()-empty))
	if room := limit - size(); room < 0 || room > 100 {
		t.Fatalf("%d bytes of room", room)
	}
	res := r.multi(m.Ops...)
	t.Logf("%d creates: %v", len(m.Ops), res.Err)
	if res.Err != znode.OK || len(r.children("/m")) != len(m.Ops) {
		t.Fatalf("%v, %d children, want %d", res.Err, len(r.children("/m")), len(m.Ops))
	}
	r = openRaw(t, restart(t, s))
	if names := r.children("/m"); len(names) != len(m.Ops) {
		t.Errorf("after a restart %d children, want %d", len(names), len(m.Ops))
	}
}
