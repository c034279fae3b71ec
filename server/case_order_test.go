package server

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/store"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: promise P2: replies come in the order of the requests, each read sees exactly the
// session's writes before it, and zxids never go back. Method: bursts of sets, gets of
// all kinds, pings and logins in random order, with wide and narrow bounds on what may
// be in flight, while another session moves the zxid.
func TestPromise2Order(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, outstanding := range []int{3, 2048} {
		s := startServer(t, Config{MaxOutstanding: outstanding})
		noise := openRaw(t, s)
		noise.must("/noise", "", persistent)
		for i, protocol := range everyDoor {
			r := openAs(t, s, protocol, 20*time.Second)
			path := r.must(fmt.Sprintf("/x%d", i), "0", persistent)
			random := rand.New(rand.NewPCG(seed, uint64(outstanding*3+i)))
			for range 2 {
				burst(t, r, noise, random, path)
			}
		}
	}
}

// expectation is what one request of a burst must be answered with.
type expectation struct {
	xid  int32
	op   wire.Op
	want string // the data that a read must show
}

func burst(t *testing.T, r, noise *rawClient, random *rand.Rand, path string) {
	t.Helper()
	var list []expectation
	value := ""
	add := func(q wire.Request) { list = append(list, expectation{r.send(q), q.Op, value}) }
	set := func() {
		value = fmt.Sprint(random.Int64())
		add(wire.Request{Op: wire.OpSetData, Body: &znode.SetData{Path: path, Data: []byte(value), Version: -1}})
	}
	set()
	for range 200 {
		switch random.IntN(8) {
		case 0, 1:
			set()
		case 2, 3:
			add(wire.Request{Op: wire.OpGetData, Body: &wire.PathWatch{Path: path}})
		case 4:
			add(wire.Request{Op: wire.OpGetData, Body: &wire.PathWatch{Path: path}, Stale: !r.zooKeeper()})
		case 5:
			add(wire.Request{Op: wire.OpMultiRead, Body: &wire.MultiRead{Ops: []wire.ReadOp{{Op: wire.OpGetData, Path: path}}}})
		case 6:
			add(wire.Request{Op: wire.OpPing})
		case 7:
			add(wire.Request{Op: wire.OpAuth, Body: &wire.Auth{Scheme: "digest", Data: []byte("a:b")}})
			noise.send(wire.Request{Op: wire.OpSetData, Body: &znode.SetData{Path: "/noise", Version: -1}})
		}
	}
	zxid := int64(0)
	for _, e := range list {
		reply := r.next()
		if reply.Xid != e.xid || reply.Err != znode.OK {
			t.Fatalf("reply %d %v, want %d (%v)", reply.Xid, reply.Err, e.xid, e.op)
		}
		got := e.want
		switch b := reply.Body.(type) {
		case *wire.DataReply:
			got = string(b.Data)
		case *wire.MultiReadReply:
			got = string(b.Results[0].Data.Data)
		}
		if got != e.want {
			t.Fatalf("%v at xid %d read %s, want %s", e.op, e.xid, got, e.want)
		}
		if e.op == wire.OpAuth {
			continue // has no zxid
		}
		if reply.Zxid < zxid {
			t.Fatalf("zxid %d behind %d", reply.Zxid, zxid)
		}
		zxid = reply.Zxid
	}
	for len(noise.sent) > 0 {
		noise.next()
	}
}

// numbered is a sequential create that is applied once.
func numbered(seq, acked int64) wire.Request {
	return wire.Request{Op: wire.OpCreate, Seq: seq, Acked: acked,
		Body: &znode.Create{Path: "/w/n-", ACL: znode.OpenACL, Mode: sequential}}
}

// Goal: a numbered write is applied once, however often and wherever it is sent again,
// and its answer is always the same. Method: repeat it on one connection, on the next
// and behind a restart, success and failure alike; count the znodes.
func TestC037NumberedWritesApplyOnce(t *testing.T) {
	for _, protocol := range protocols {
		s := startServer(t, Config{})
		r := openAs(t, s, protocol, 30*time.Second)
		r.must("/w", "", persistent)
		failing := wire.Request{Op: wire.OpDelete, Seq: 2, Body: &znode.Delete{Path: "/w/n-0000000001", Version: -1}}
		ask := func() (path string, e znode.Error) {
			t.Helper()
			first := r.call(numbered(1, 0))
			if first.Err != znode.OK {
				t.Fatal(first.Err)
			}
			return first.Body.(*znode.Result).Path, r.call(failing).Err
		}
		check := func(when string) {
			t.Helper()
			if path, e := ask(); path != "/w/n-0000000000" || e != znode.NoNode {
				t.Errorf("%s, %s: %s %v", protocol, when, path, e)
			}
		}
		check("at first")
		check("again")
		// What was refused stays refused, even if it could succeed now.
		r.must("/w/", "", sequential)
		check("while it would succeed")
		r = resumeRaw(t, s, protocol, r.session)
		check("on the next connection")
		s = restart(t, s)
		r = resumeRaw(t, s, protocol, r.session)
		check("after a restart")
		if third := r.call(numbered(3, 2)); third.Err != znode.OK {
			t.Errorf("%s: the next write: %v", protocol, third.Err)
		}
		if old := r.call(numbered(2, 0)); old.Err != znode.BadArguments {
			t.Errorf("%s: an acknowledged write: %v, want BadArguments", protocol, old.Err)
		}
		if n := len(r.children("/w")); n != 3 || s.store.Counts().Results != 1 {
			t.Errorf("%s: %d children and %d kept results, want 3 and 1", protocol, n, s.store.Counts().Results)
		}
	}
}

// Goal: a write whose number is not the next is not applied and ends the connection; the
// session goes on from where it was. Method: leave one out, alone and in a burst.
func TestC037GapInNumbersCloses(t *testing.T) {
	s := startServer(t, Config{})
	for _, protocol := range protocols {
		r := openAs(t, s, protocol, 30*time.Second)
		if r.stat("/w") == nil {
			r.must("/w", "", persistent)
		}
		before := len(r.children("/w"))
		if e := r.call(numbered(1, 0)).Err; e != znode.OK {
			t.Fatal(e)
		}
		for _, seq := range []int64{3, 4, 2} {
			r.send(numbered(seq, 0))
		}
		r.wantClosed("a gap", closeBadRequest)
		r = resumeRaw(t, s, protocol, r.session)
		for seq := int64(2); seq <= 4; seq++ {
			if e := r.call(numbered(seq, 0)).Err; e != znode.OK {
				t.Errorf("%s: write %d behind the gap: %v", protocol, seq, e)
			}
		}
		if n := len(r.children("/w")) - before; n != 4 {
			t.Errorf("%s: %d znodes, want 4", protocol, n)
		}
	}
}

// Goal: a numbered write that cannot be decoded uses up its number, so that those
// behind it go on; sent again it is refused again. Method: broken records in both
// encodings amid good ones, in one burst.
func TestC037RefusedWriteUsesItsNumber(t *testing.T) {
	s := startServer(t, Config{})
	openRaw(t, s).must("/w", "", persistent)
	jute := func(xid int32, seq int64) []byte {
		b := rawInt(rawInt(rawInt(nil, xid), int32(wire.OpWith)), 0)
		return rawInt(rawInt(rawLong(rawLong(b, seq), 0), int32(wire.OpCreate)), 1<<30)
	}
	json := func(xid int32, seq int64) []byte {
		return fmt.Appendf(nil, `{"xid":%d,"op":"create","path":"/w/a","mode":"perhaps","seq":"%d"}`, xid, seq)
	}
	for i, protocol := range protocols {
		r := openAs(t, s, protocol, 30*time.Second)
		broken := []func(int32, int64) []byte{jute, json}[i]
		for again := range 2 {
			r.send(numbered(1, 0))
			r.xid++
			r.sent[r.xid] = wire.OpCreate
			r.write(broken(r.xid, 2))
			r.send(numbered(3, 0))
			for seq := 1; seq <= 3; seq++ {
				reply := r.next()
				refused := reply.Err == znode.MarshallingError || reply.Err == znode.BadArguments
				if seq == 2 && !refused || seq != 2 && reply.Err != znode.OK {
					t.Errorf("%s: time %d: write %d: %v", protocol, again, seq, reply.Err)
				}
			}
		}
		if n := len(r.children("/w")); n != 2*(i+1) {
			t.Errorf("%s: %d znodes, want %d", protocol, n, 2*(i+1))
		}
	}
}

// Goal: a numbered request that may not be sent at all is told so and ends its
// connection as it would without a number. Method: an unknown operation and a failed
// login, with and without a number.
func TestC037RefusedForGoodCloses(t *testing.T) {
	s := startServer(t, Config{})
	for _, seq := range []int64{0, 1} {
		r := openRaw(t, s)
		r.xid++
		r.sent[r.xid] = 99
		r.write(rawInt(rawLong(rawLong(rawInt(rawInt(rawInt(nil, r.xid), int32(wire.OpWith)), 0), seq), 0), 99))
		if reply := r.next(); reply.Err != znode.Unimplemented || reply.Zxid != -1 {
			t.Errorf("seq %d: an unknown operation: %+v", seq, reply)
		}
		r.wantClosed("an unknown operation", closeBadRequest)

		r = openRaw(t, s)
		reply := r.call(wire.Request{Op: wire.OpAuth, Seq: seq, Body: &wire.Auth{Scheme: "token", Data: []byte("wrong")}})
		if reply.Err != znode.AuthFailed {
			t.Errorf("seq %d: a failed login: %+v", seq, reply)
		}
		r.wantClosed("a failed login", closePolicy)
	}
}

// Goal: results that the client never acknowledges are bounded: then its connection is
// closed, and it goes on once it acknowledges. Method: one write more than are kept.
func TestC037KeptResultsAreBounded(t *testing.T) {
	s := startServer(t, Config{})
	r := openAs(t, s, subprotocolJute, 40*time.Second)
	write := func(seq, acked int64) {
		r.send(wire.Request{Op: wire.OpDelete, Seq: seq, Acked: acked, Body: &znode.Delete{Path: "/none", Version: -1}})
	}
	for sent, answered := int64(0), int64(0); answered < store.ResultsMax; answered++ {
		for ; sent < min(store.ResultsMax, answered+1000); sent++ {
			write(sent+1, 0)
		}
		if e := r.next().Err; e != znode.NoNode {
			t.Fatalf("write %d: %v", answered+1, e)
		}
	}
	write(store.ResultsMax+1, 0)
	r.wantClosed("one write more", closeBadRequest)
	r = resumeRaw(t, s, subprotocolJute, r.session)
	write(store.ResultsMax+1, store.ResultsMax)
	if e := r.next().Err; e != znode.NoNode || s.store.Counts().Results != 1 {
		t.Errorf("behind the acknowledgement: %v, %d results kept", e, s.store.Counts().Results)
	}
}
