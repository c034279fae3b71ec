package server

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// stream is the next n messages as they came: "xid err" of a reply, "type path" of an
// event; zxids are those messages' zxids.
func (r *rawClient) stream(n int) (said []string, zxids []int64) {
	r.t.Helper()
	for range n {
		b := r.read()
		xid, zxid, e := int32(binary.BigEndian.Uint32(b)), int64(binary.BigEndian.Uint64(b[4:])), int32(binary.BigEndian.Uint32(b[12:]))
		text := fmt.Sprint(xid, " ", e)
		if xid == -1 && e == 0 && len(b) >= 28 && binary.BigEndian.Uint32(b[20:]) == 3 {
			text = fmt.Sprintf("event %d %s", binary.BigEndian.Uint32(b[16:]), b[28:])
		}
		said, zxids = append(said, text), append(zxids, zxid)
	}
	return said, zxids
}

// sendAs sends a request under an xid of the test's choice.
func (r *rawClient) sendAs(xid int32, op wire.Op, body any) {
	r.t.Helper()
	r.write(r.codec.AppendRequest(nil, &wire.Request{Xid: xid, Op: op, Body: body}))
}

// pipeline sends requests as one segment, with xids from 1 on.
func (r *rawClient) pipeline(list ...wire.Request) {
	r.t.Helper()
	var all []byte
	for i, q := range list {
		q.Xid = int32(i + 1)
		all = appendMessage(all, func(b []byte) []byte { return r.codec.AppendRequest(b, &q) })
	}
	if _, err := r.link.NetConn().Write(all); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rawClient) wantStream(what string, want ...string) []int64 {
	r.t.Helper()
	said, zxids := r.stream(len(want))
	if !slices.Equal(said, want) {
		r.t.Errorf("%s: %q, want %q", what, said, want)
	}
	return zxids
}

// Goal: every xid is echoed, used before or not, and only a ping's answer has its own.
// Method: xids around zero and the ends, those that ZooKeeper's clients reserve, and one
// twice.
func TestZooKeeperXids(t *testing.T) {
	s := startServer(t, Config{})
	r := openAs(t, s, zooKeeper, 30*time.Second)
	for _, xid := range []int32{0, 1, -2, -3, -100, 1<<31 - 1, -1 << 31, 7, 7} {
		r.sendAs(xid, wire.OpExists, &wire.PathWatch{Path: "/none"})
		r.wantStream("exists", fmt.Sprint(xid, " -101"))
		r.sendAs(xid, wire.OpPing, nil)
		r.wantStream("ping", "-2 0")
		r.sendAs(xid, wire.OpAuth, &wire.Auth{Scheme: "digest", Data: []byte("a:b")})
		r.wantStream("auth", fmt.Sprint(xid, " 0"))
		r.sendAs(xid, wire.OpSetWatches, &wire.SetWatches{Data: []string{}, Exist: []string{}, Child: []string{}})
		r.wantStream("setWatches", fmt.Sprint(xid, " 0"))
		r.sendAs(xid, wire.OpCreate, znode.Op(&znode.Create{Path: "/x-", ACL: znode.OpenACL, Mode: sequential}))
		r.wantStream("create", fmt.Sprint(xid, " 0"))
	}
	r.sendAs(-4, wire.OpAuth, &wire.Auth{Scheme: "world", Data: []byte("anyone")})
	r.wantStream("a failed login", "-4 -115")
	r.wantClosed("a failed login", -1)
}

// Goal: a reply's zxid is that of the last change that its server had applied, with reads,
// failures and pings, too; an event's is that of its change, and -1 if setWatches found it.
// Method: two sessions; after each write of the one what the other is told.
func TestZooKeeperZxids(t *testing.T) {
	s := startServer(t, Config{})
	w, r := openAs(t, s, zooKeeper, 30*time.Second), openAs(t, s, zooKeeper, 30*time.Second)
	w.must("/a", "", persistent)
	for range 3 {
		r.watched(wire.OpGetData, "/a")
		w.sendAs(1, wire.OpSetData, &znode.SetData{Path: "/a", Version: -1})
		wrote := w.wantStream("write", "1 0")[0]
		r.sendAs(1, wire.OpSync, &wire.PathOnly{Path: "/"})
		r.sendAs(2, wire.OpGetData, &wire.PathWatch{Path: "/none"})
		r.sendAs(3, wire.OpExists, &wire.PathWatch{Path: "/"})
		r.sendAs(4, wire.OpPing, nil)
		if zxids := r.wantStream("reads", "event 3 /a", "1 0", "2 -101", "3 0", "-2 0"); !slices.Equal(zxids, []int64{wrote, wrote, wrote, wrote, wrote}) {
			t.Errorf("zxids %x behind the write with %x", zxids, wrote)
		}
		r.sendAs(5, wire.OpDelete, &znode.Delete{Path: "/none", Version: -1})
		if zxids := r.wantStream("a write that fails", "5 -101"); zxids[0] < wrote {
			t.Errorf("a failed write has zxid %x, behind %x", zxids[0], wrote)
		}
		r.sendAs(6, wire.OpSetWatches, &wire.SetWatches{Data: []string{"/a"}, Exist: []string{}, Child: []string{}})
		if zxids := r.wantStream("setWatches", "event 3 /a", "6 0"); zxids[0] != -1 || zxids[1] < wrote {
			t.Errorf("setWatches: zxids %x", zxids)
		}
	}
}

// Goal: a connection's messages come in the order of its requests, a change's events
// before any reply that knows of the change, those of one multi in the order of its
// operations. Method: pipelines of one session with watches on what it changes itself.
func TestZooKeeperOrderOfMessages(t *testing.T) {
	s := startServer(t, Config{})
	r := openAs(t, s, zooKeeper, 30*time.Second)
	for _, path := range []string{"/a", "/b", "/c"} {
		r.must(path, "", persistent)
		r.watched(wire.OpGetData, path)
		r.watched(wire.OpGetChildren, path)
	}
	set := func(path string) *znode.SetData { return &znode.SetData{Path: path, Version: -1} }
	r.pipeline(wire.Request{Op: wire.OpSetData, Body: set("/a")},
		wire.Request{Op: wire.OpAuth, Body: &wire.Auth{Scheme: "digest", Data: []byte("a:b")}},
		wire.Request{Op: wire.OpGetData, Body: &wire.PathWatch{Path: "/a", Watch: true}},
		wire.Request{Op: wire.OpPing},
		wire.Request{Op: wire.OpSetData, Body: set("/a")},
		wire.Request{Op: wire.OpMulti, Body: &znode.Multi{Ops: []znode.Op{set("/c"), set("/c"), &znode.Create{Path: "/b/x", ACL: znode.OpenACL}, set("/a"), set("/b")}}})
	r.wantStream("a pipeline", "event 3 /a", "1 0", "2 0", "3 0", "-2 0", "event 3 /a", "5 0",
		"event 3 /c", "event 4 /b", "event 3 /b", "6 0")
	// What setWatches finds comes between the replies before it and its own.
	r.pipeline(wire.Request{Op: wire.OpGetData, Body: &wire.PathWatch{Path: "/c", Watch: true}},
		wire.Request{Op: wire.OpSetWatches, Body: &wire.SetWatches{Data: []string{"/a", "/none"}, Exist: []string{"/a"}, Child: []string{"/b", "/b"}}},
		wire.Request{Op: wire.OpSetData, Body: set("/c")})
	r.wantStream("setWatches in a pipeline", "1 0", "event 3 /a", "event 2 /none", "event 1 /a", "event 4 /b", "event 4 /b", "2 0",
		"event 3 /c", "3 0")
}

// Goal: a record that can't be read is one error, and the connection goes on. Method: each
// operation with its record cut short, and counts below -1, between good requests.
func TestZooKeeperMalformedRecords(t *testing.T) {
	s := startServer(t, Config{})
	r := openAs(t, s, zooKeeper, 30*time.Second)
	records := rawPathOps()
	delete(records, wire.OpList)
	for op, rest := range records {
		records[op] = append(rawStr(nil, "/none/x"), rest...)
	}
	empty := rawInt(rawInt(rawInt(rawLong(nil, 1<<62), 0), 0), 0)
	records[wire.OpSetWatches] = empty
	records[wire.OpSetWatches2] = rawInt(rawInt(slices.Clone(empty), 0), 0)
	records[wire.OpMulti] = append(rawStr(append(rawInt(nil, 2), 0, 255, 255, 255, 255), "/none/x"), rawInt(nil, -1)...)
	for op, record := range records {
		for n := range record {
			if e := r.rawCall(op, record[:n]); e != znode.MarshallingError {
				t.Fatalf("%v with %d of %d bytes: %v", op, n, len(record), e)
			}
		}
		for _, length := range []int32{-2, -1 << 31, 1<<31 - 1} {
			if op == wire.OpMulti {
				continue // has none in front
			}
			if e := r.rawCall(op, slices.Concat(rawInt(nil, length), rawInt(nil, length), rawInt(nil, length), rawInt(nil, length))); e != znode.MarshallingError {
				t.Errorf("%v with length %d: %v", op, length, e)
			}
		}
	}
	if r.stat("/") == nil {
		t.Error("the connection does not go on")
	}
}
