package server

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// startInMemory is a server whose disk costs no time.
func startInMemory(t *testing.T) *Server {
	t.Helper()
	s, err := openOn(Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0", ZKListen: "127.0.0.1:0"},
		slog.New(slog.NewTextHandler(t.Output(), nil)), vfs.NewMem())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopServer(t, s) })
	return s
}

// Goal (C033): when a session moves to another connection nothing is written through the
// old one any more, exactly one connection has it, and a request is applied once at most.
// Method: swap back and forth a hundred times between connections, each time with a write
// pipelined on the old one before the move and writes sent on it behind the move.
func TestC033WritesThroughTheOldConnection(t *testing.T) {
	const swaps = 100
	s := startServer(t, Config{})
	reader := openAs(t, s, zooKeeper, 30*time.Second)
	reader.must("/m", "", persistent)
	old := openAs(t, s, zooKeeper, 30*time.Second)
	old.must("/m/owner", "", ephemeral)
	write := func(r *rawClient, name string) {
		// The server may have closed the connection: that is an answer, too.
		op := &znode.Create{Path: "/m/" + name + "-", ACL: znode.OpenACL, Mode: znode.Mode{Kind: znode.Ephemeral, Sequential: true}}
		r.link.WriteMessage(0, r.codec.AppendRequest(nil, &wire.Request{Xid: 1, Op: wire.OpCreate, Body: op}))
	}
	for i := range swaps {
		write(old, fmt.Sprintf("before%d", i))
		next := resumeRaw(t, s, zooKeeper, old.session)
		if next.session.Session != old.session.Session {
			t.Fatalf("swap %d: %+v", i, next.session)
		}
		for range 3 {
			write(old, "late")
		}
		old.wantClosed("the old connection", -1)
		old = next
	}
	if st := old.stat("/m/owner"); st == nil || st.EphemeralOwner != old.session.Session {
		t.Errorf("behind the swaps the ephemeral has %+v", st)
	}
	before := map[string]bool{}
	for _, name := range reader.children("/m") {
		kind := name[:max(0, len(name)-11)]
		switch {
		case kind == "late":
			t.Errorf("%s was written through a connection that had lost its session", name)
		case before[kind]:
			t.Errorf("%s was applied twice", kind)
		}
		before[kind] = true
	}
}

// Goal (C035): clients that have seen more than a server that lost its data are refused
// without a reply, as by ZooKeeper, are counted, and get a new session when they ask as
// newcomers. Method: a session and a zxid of one server taken to an empty one.
func TestC035HistoryLost(t *testing.T) {
	s := startServer(t, Config{})
	r := openAs(t, s, zooKeeper, 30*time.Second)
	r.must("/a", "", ephemeral)
	for range 20 {
		r.set("/a", "")
	}
	seen := s.store.LastZxid()
	stopServer(t, s)
	empty := startServer(t, Config{})
	for range 3 {
		if _, got := answerTo(t, empty, handshake(seen, 30_000, r.session.Session, r.session.Password[:], nil)); got != nil {
			t.Errorf("answered %x", got)
		}
	}
	if n := empty.metrics.behind.Load(); n != 3 {
		t.Errorf("%d refusals were counted, want 3", n)
	}
	if again := resumeRaw(t, empty, zooKeeper, r.session); again.session.Session != 0 {
		t.Errorf("a session that nobody knows was resumed: %+v", again.session)
	}
	openAs(t, empty, zooKeeper, 0).must("/a", "", persistent)
}

// Goal (C037): a create whose reply was lost was applied once or not at all, and what is
// there shows which: a second try is told NodeExists exactly of the session's own. Method:
// the connection is cut right behind the request; the session resumes and tries again.
func TestC037LostReply(t *testing.T) {
	const rounds = 200
	s := startServer(t, Config{})
	r := openAs(t, s, zooKeeper, 30*time.Second)
	r.must("/w", "", persistent)
	applied := 0
	for i := range rounds {
		path := fmt.Sprintf("/w/%d", i)
		r.send(wire.Request{Op: wire.OpCreate, Body: &znode.Create{Path: path, ACL: znode.OpenACL, Mode: ephemeral}})
		r.drop()
		r = resumeRaw(t, s, zooKeeper, r.session)
		there := r.stat(path)
		_, e := r.create(path, "", ephemeral)
		switch {
		case there == nil && e == znode.OK:
		case there != nil && e == znode.NodeExists && there.EphemeralOwner == r.session.Session:
			applied++
		default:
			t.Fatalf("round %d: %+v was there, and the second try was told %v", i, there, e)
		}
	}
	if n := len(r.children("/w")); n != rounds {
		t.Errorf("%d znodes, want %d", n, rounds)
	}
	t.Logf("%d of %d were applied without an answer", applied, rounds)
}

// Goal (C039): behind a sync a session reads what was acknowledged to another before.
// Method: one writes k and says so, the other syncs and reads in one segment, a thousand
// times.
func TestC039SyncThenRead(t *testing.T) {
	s := startInMemory(t)
	w, r := openAs(t, s, zooKeeper, 30*time.Second), openAs(t, s, zooKeeper, 30*time.Second)
	w.must("/y", "0", persistent)
	for k := range 1000 {
		if e := w.set("/y", fmt.Sprint(k)); e != znode.OK {
			t.Fatal(e)
		}
		r.pipeline(wire.Request{Op: wire.OpSync, Body: &wire.PathOnly{Path: "/y"}}, wire.Request{Op: wire.OpGetData, Body: &wire.PathWatch{Path: "/y"}})
		r.sent[1], r.sent[2] = wire.OpSync, wire.OpGetData
		if path := r.next().Body.(*wire.PathReply).Path; path != "/y" {
			t.Fatalf("sync answered %q", path)
		}
		if got := string(r.next().Body.(*wire.DataReply).Data); got != fmt.Sprint(k) {
			t.Fatalf("read %s behind the write of %d", got, k)
		}
	}
}

// Goal (C043): persistent watches are taken up again by setWatches2: of what happened
// meanwhile nothing is told, as in ZooKeeper, so that the client reads again, and then
// everything. Method: a tree that changes while the client is away.
func TestC043StandingWatchesAfterACut(t *testing.T) {
	s := startServer(t, Config{})
	w := openRaw(t, s)
	for _, path := range []string{"/t", "/t/b", "/t/c"} {
		w.must(path, "", persistent)
	}
	r := openAs(t, s, zooKeeper, 30*time.Second)
	r.addWatch("/t", 1)
	r.addWatch("/t", 0)
	seen := r.call(wire.Request{Op: wire.OpPing}).Zxid
	r.drop()
	w.must("/t/a", "", persistent)
	w.set("/t/b", "1")
	w.delete("/t/c")
	r = resumeRaw(t, s, zooKeeper, r.session)
	w.set("/t", "1")
	r.wantTold("the new connection has no watches yet")
	reply := r.call(wire.Request{Op: wire.OpSetWatches2, Body: &wire.SetWatches{RelZxid: seen,
		Data: []string{}, Exist: []string{}, Child: []string{}, Persistent: []string{"/t"}, Recursive: []string{"/t"}}})
	if reply.Err != znode.OK {
		t.Fatal(reply.Err)
	}
	r.wantTold("while away")
	w.delete("/t/a")
	w.must("/t/c", "", persistent)
	r.wantTold("afterwards", "deleted /t/a", "children /t", "created /t/c", "children /t")
}

// Goal (C049): in a connection's stream the event of a change comes before the first reply
// that shows it, in each of 10,000 rounds. Method: one session reads back to back with a
// watch, another writes all the time; the disk costs no time.
func TestC049EventBeforeStateTenThousandTimes(t *testing.T) {
	const rounds = 10_000
	s := startInMemory(t)
	w, r := openAs(t, s, zooKeeper, 30*time.Second), openAs(t, s, zooKeeper, 30*time.Second)
	w.must("/o", "", persistent)
	get := func(watch bool) {
		r.send(wire.Request{Op: wire.OpGetData, Body: &wire.PathWatch{Path: "/o", Watch: watch}})
	}
	for round := range rounds {
		get(true)
		armed := r.next().Body.(*wire.DataReply).Stat.Mzxid
		w.send(wire.Request{Op: wire.OpSetData, Body: &znode.SetData{Path: "/o", Version: -1}})
		for now := armed; now == armed; {
			get(false)
			get(false)
			for range 2 {
				now = r.next().Body.(*wire.DataReply).Stat.Mzxid
				if told := len(r.events) == 1; told != (now > armed) {
					t.Fatalf("round %d: mzxid %x behind %x, and %d events so far", round, now, armed, len(r.events))
				}
			}
		}
		if e := r.events[0]; e.Type != znode.EventDataChanged || e.Path != "/o" {
			t.Fatalf("round %d: %+v", round, e)
		}
		r.events = r.events[:0]
		w.next()
	}
}

// Goal (C105): a path prefix is the client's affair: the server takes and tells whole
// paths, in transactions and events, too. Method: everything below /app, as a client with
// that prefix sends it.
func TestC105WholePaths(t *testing.T) {
	s := startServer(t, Config{})
	r := openAs(t, s, zooKeeper, 30*time.Second)
	r.addWatch("/app", 1)
	r.watched(wire.OpExists, "/app")
	r.must("/app", "", persistent)
	r.watched(wire.OpGetChildren, "/app")
	if got := r.must("/app/s-", "", sequential); got != "/app/s-0000000000" {
		t.Errorf("sequential create: %s", got)
	}
	res := r.multi(&znode.Create{Path: "/app/x", ACL: znode.OpenACL, WantStat: true}, &znode.SetData{Path: "/app/x", Version: -1},
		&znode.Check{Path: "/app/x", Version: 1}, &znode.Create{Path: "/app/q-", ACL: znode.OpenACL, Mode: sequential})
	if res.Err != znode.OK || res.Sub[0].Path != "/app/x" || res.Sub[3].Path != "/app/q-0000000002" {
		t.Errorf("multi: %+v", res)
	}
	if got := r.children("/app"); !slices.Equal(got, []string{"q-0000000002", "s-0000000000", "x"}) {
		t.Errorf("children %q", got)
	}
	r.wantTold("events", "created /app", "created /app/s-0000000000", "children /app", "created /app/x", "changed /app/x", "created /app/q-0000000002")
	if e := r.call(wire.Request{Op: wire.OpRemoveWatches, Body: &wire.RemoveWatches{Path: "/app", Type: wire.WatcherAny}}).Err; e != znode.OK {
		t.Error(e)
	}
	r.set("/app", "")
	r.wantTold("removed")
}
