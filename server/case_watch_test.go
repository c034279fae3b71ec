package server

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: one-shot watches survive the loss of a connection: what happened meanwhile is
// told once and before the reply, what did not happen is still watched. Method: the
// row's story, with ZooKeeper's setWatches and with rewatch where there is one.
func TestC041RewatchAfterACut(t *testing.T) {
	s := startServer(t, Config{})
	w := openRaw(t, s)
	for _, op := range []wire.Op{wire.OpSetWatches, wire.OpSetWatches2, wire.OpRewatch} {
		for _, protocol := range everyDoor {
			if op == wire.OpRewatch && protocol == zooKeeper {
				continue
			}
			p := w.must("/w-", "", sequential)
			w.must(p+"/a", "", persistent)
			w.must(p+"/c", "", persistent)
			w.must(p+"/d", "", persistent)
			r := openAs(t, s, protocol, 30*time.Second)
			for _, path := range []string{"/a", "/d"} {
				r.watched(wire.OpGetData, p+path)
			}
			r.watched(wire.OpExists, p+"/b")
			r.watched(wire.OpGetChildren, p+"/c")
			r.watched(wire.OpGetChildren, p+"/d")
			seen := r.call(wire.Request{Op: wire.OpExists, Body: &wire.PathWatch{Path: p + "/none"}}).Zxid
			r.drop()
			w.set(p+"/a", "1")
			w.must(p+"/b", "", persistent)
			w.must(p+"/c/x", "", persistent)
			r = resumeRaw(t, s, protocol, r.session)
			want := &wire.SetWatches{RelZxid: seen, Data: []string{p + "/a", p + "/d"}, Exist: []string{p + "/b"}, Child: []string{p + "/c", p + "/d"}}
			if e := r.call(wire.Request{Op: op, Body: want}).Err; e != znode.OK {
				t.Fatal(e)
			}
			var got []string
			for _, e := range r.events {
				got = append(got, fmt.Sprint(e.Type, " ", e.Path))
			}
			r.events = nil
			slices.Sort(got)
			if !slices.Equal(got, []string{"1 " + p + "/b", "3 " + p + "/a", "4 " + p + "/c"}) {
				t.Errorf("%v, %s: before the reply came %q", op, protocol, got)
			}
			r.wantTold("nothing more")
			for range 2 { // the second time nobody watches
				w.set(p+"/a", "2")
				w.set(p+"/b", "2")
				w.must(p+"/c/", "", sequential)
			}
			w.set(p+"/d", "1")
			w.must(p+"/d/x", "", persistent)
			r.wantTold("the one that is left", "changed "+p+"/d", "children "+p+"/d")
		}
	}
}

// Goal: a persistent watch resumes with every event of the time between, or says that
// there is a gap; either way it goes on. Method: a tree that changes while the client is
// away, with a long history and with one that was trimmed.
func TestC043EveryEventOrAGap(t *testing.T) {
	for _, history := range []int64{1_000_000, 128} {
		s := startServer(t, Config{HistoryCount: history})
		w := openRaw(t, s)
		w.must("/t", "", persistent)
		for _, name := range []string{"b", "c", "d"} {
			w.must("/t/"+name, "", persistent)
		}
		for _, protocol := range protocols {
			r := openAs(t, s, protocol, 30*time.Second)
			r.addWatch("/t", 1)
			r.addWatch("/t", 0)
			seen := r.call(wire.Request{Op: wire.OpExists, Body: &wire.PathWatch{Path: "/none"}}).Zxid
			r.drop()
			w.must("/t/a", "", persistent)
			w.set("/t/b", "1")
			w.delete("/t/c")
			w.delete("/t/d")
			w.must("/t/d", "", persistent)
			want := []string{"created /t/a", "children /t", "changed /t/b", "deleted /t/c", "children /t",
				"deleted /t/d", "children /t", "created /t/d", "children /t"}
			if history < 1000 {
				for range 500 {
					w.send(wire.Request{Op: wire.OpSetData, Body: &znode.SetData{Path: "/t/b", Version: -1}})
				}
				for range 500 {
					w.next()
				}
				want = []string{"gap /t", "gap /t"}
			}
			r = resumeRaw(t, s, protocol, r.session)
			reply := r.call(wire.Request{Op: wire.OpRewatch, Body: &wire.SetWatches{RelZxid: seen, Persistent: []string{"/t"}, Recursive: []string{"/t"}}})
			if reply.Err != znode.OK || reply.Body.(*wire.RewatchReply).Complete != (history > 1000) {
				t.Errorf("history %d, %s: reply %+v", history, protocol, reply)
			}
			for i := 1; i < len(r.events); i++ {
				if r.events[i].Zxid < r.events[i-1].Zxid {
					t.Errorf("events out of order: %+v", r.events)
				}
			}
			r.wantTold("while away", want...)
			w.delete("/t/a")
			w.must("/t/c", "", persistent)
			r.wantTold("afterwards", "deleted /t/a", "children /t", "created /t/c", "children /t")
		}
	}
}

// Goal: a history that is trimmed while somebody catches up from it is a gap for that
// client and nothing else. Method: a very short history, a busy writer, and clients that
// catch up from further and further back all the time.
func TestC043TrimmedWhileCatchingUp(t *testing.T) {
	s := startServer(t, Config{HistoryCount: 256})
	w := openRaw(t, s)
	w.must("/t", "", persistent)
	readers := []*rawClient{openRaw(t, s), openRaw(t, s), openRaw(t, s)}
	for deadline := time.Now().Add(800 * time.Millisecond); time.Now().Before(deadline); {
		for range 200 {
			w.send(wire.Request{Op: wire.OpSetData, Body: &znode.SetData{Path: "/t", Version: -1}})
		}
		for len(w.sent) > 0 {
			last := s.store.Counts().HistoryFirst
			for i, r := range readers {
				r.send(wire.Request{Op: wire.OpRewatch, Body: &wire.SetWatches{RelZxid: last + int64(i), Recursive: []string{"/t"}}})
			}
			for range 20 {
				if len(w.sent) > 0 {
					w.next()
				}
			}
			for _, r := range readers {
				if reply := r.next(); reply.Err != znode.OK {
					t.Fatalf("rewatch: %v", reply.Err)
				}
			}
		}
	}
	if err := s.Err(); err != nil {
		t.Errorf("the server failed: %v", err)
	}
}

// Goal: watches of all kinds on one path live side by side. Method: the row's story.
func TestC045ModesOnOnePath(t *testing.T) {
	s := startServer(t, Config{})
	w := openRaw(t, s)
	for _, protocol := range everyDoor {
		m := w.must("/m-", "", sequential)
		w.must(m+"/c", "", persistent)
		r, one, p, rec := openAs(t, s, protocol, 0), openAs(t, s, protocol, 0), openAs(t, s, protocol, 0), openAs(t, s, protocol, 0)
		for _, c := range []*rawClient{r, one} {
			c.watched(wire.OpGetData, m)
		}
		for _, c := range []*rawClient{r, p} {
			c.addWatch(m, 0)
		}
		for _, c := range []*rawClient{r, rec} {
			c.addWatch(m, 1)
		}
		r.watched(wire.OpGetChildren, m+"/c")
		one.watched(wire.OpGetChildren, m+"/c")
		w.set(m, "1")
		w.set(m, "2")
		w.must(m+"/c/d", "", persistent)
		// All kinds of one session: each change reaches it once.
		r.wantTold("all kinds", "changed "+m, "changed "+m, "created "+m+"/c/d", "children "+m+"/c")
		one.wantTold("one-shot", "changed "+m, "children "+m+"/c")
		p.wantTold("persistent", "changed "+m, "changed "+m)
		rec.wantTold("recursive", "changed "+m, "changed "+m, "created "+m+"/c/d")
	}
}

// Goal: a transaction that fails fires nothing and uses up nothing. Method: the same
// multi, failing and then succeeding.
func TestC047FailedMultiFiresNothing(t *testing.T) {
	s := startServer(t, Config{})
	w := openRaw(t, s)
	for _, protocol := range everyDoor {
		p := w.must("/p-", "", sequential)
		r, tree := openAs(t, s, protocol, 0), openAs(t, s, protocol, 0)
		r.watched(wire.OpGetData, p)
		r.watched(wire.OpGetChildren, p)
		tree.addWatch("/", 1)
		ops := func(version int32) []znode.Op {
			return []znode.Op{&znode.SetData{Path: p, Data: []byte("1"), Version: -1},
				&znode.Create{Path: p + "/x", ACL: znode.OpenACL}, &znode.Check{Path: p, Version: version}}
		}
		if res := w.multi(ops(9999)...); res.Err != znode.BadVersion {
			t.Fatalf("failing multi: %v", res.Err)
		}
		r.wantTold("a failed multi")
		tree.wantTold("a failed multi")
		if res := w.multi(ops(1)...); res.Err != znode.OK {
			t.Fatalf("good multi: %v", res.Err)
		}
		r.wantTold("a good multi", "changed "+p, "children "+p)
		tree.wantTold("a good multi", "changed "+p, "created "+p+"/x")
	}
}

// Goal: in a connection's stream the event comes before the first reply with the changed
// data. Method: one session reads back to back, another writes; as many rounds as a few
// seconds allow, up to 10,000.
func TestC049EventBeforeState(t *testing.T) {
	s := startServer(t, Config{})
	w := openRaw(t, s)
	w.must("/o", "", persistent)
	var a []*rawClient
	for _, protocol := range everyDoor {
		a = append(a, openAs(t, s, protocol, 0))
	}
	rounds, deadline := 0, time.Now().Add(2*time.Second)
	for ; rounds < 10_000 && time.Now().Before(deadline); rounds++ {
		r := a[rounds%3]
		stale := rounds%3 < 2 && rounds%2 == 0 // ZooKeeper's reads are, and can't say so
		get := func(watch bool) {
			r.send(wire.Request{Op: wire.OpGetData, Stale: stale, Body: &wire.PathWatch{Path: "/o", Watch: watch}})
		}
		get(true)
		armed := r.next().Body.(*wire.DataReply).Stat.Mzxid
		for range 4 {
			get(false)
		}
		w.send(wire.Request{Op: wire.OpSetData, Body: &znode.SetData{Path: "/o", Version: -1}})
		for outstanding := 4; ; outstanding-- {
			if outstanding == 0 {
				get(false)
				outstanding++
			}
			now := r.next().Body.(*wire.DataReply).Stat.Mzxid
			if now > armed && len(r.events) != 1 {
				t.Fatalf("round %d: a reply with the new mzxid came with %d events before it", rounds, len(r.events))
			}
			if now == armed && len(r.events) > 0 {
				t.Fatalf("round %d: old state behind the event", rounds)
			}
			if now > armed {
				break
			}
		}
		for len(r.sent) > 0 {
			r.next()
		}
		r.events = r.events[:0]
		w.next()
	}
	t.Logf("%d rounds", rounds)
}

// Goal: no watch outlives its connection or session. Method: rounds of sessions with
// watches of every kind that are closed, killed and cut; also the watched ephemerals go.
func TestC051NoWatchLeft(t *testing.T) {
	const rounds, sessions, each = 5, 12, 20
	s := startServer(t, Config{})
	admin := adminOf(t, s)
	admin.must("/z", "", persistent)
	for range rounds {
		var list []*rawClient
		for i := range sessions {
			r := openAs(t, s, everyDoor[i/3%3], 30*time.Second)
			q := &wire.SetWatches{RelZxid: s.store.LastZxid()}
			var m []znode.Op
			for range each {
				m = append(m, &znode.Create{Path: "/z/n-", ACL: znode.OpenACL, Mode: znode.Mode{Kind: znode.Ephemeral, Sequential: true}})
			}
			for _, sub := range r.multi(m...).Sub {
				path := sub.Path
				q.Data, q.Exist, q.Child = append(q.Data, path), append(q.Exist, path+"-none"), append(q.Child, path)
				q.Persistent, q.Recursive = append(q.Persistent, path), append(q.Recursive, path)
			}
			q.RelZxid = s.store.LastZxid()
			if e := r.call(wire.Request{Op: wire.OpSetWatches2, Body: q}).Err; e != znode.OK {
				t.Fatal(e)
			}
			list = append(list, r)
		}
		if s.watches.count() == 0 {
			t.Fatal("no watches were set")
		}
		for i, r := range list {
			switch i % 3 {
			case 0:
				r.send(wire.Request{Op: wire.OpCloseSession})
				r.wantClosed("close", closeNormal)
			case 1:
				admin.sendKill(r.session.Session)
				admin.next()
				r.wantClosed("kill", closeSessionOver)
			case 2:
				r.drop()
			}
		}
		waitFor(t, "no watch is left", 10*time.Second, func() bool { return s.watches.count() == 0 })
	}
	s.watches.Lock()
	defer s.watches.Unlock()
	if n := len(s.watches.conns); n != 0 {
		t.Errorf("%d connections are kept", n)
	}
}

// Goal: removing and checking watches tell what was there, by kind, and only the named
// kind goes. Method: every type against a connection with all kinds and with none.
func TestC103RemoveAndCheckWatches(t *testing.T) {
	s := startServer(t, Config{})
	w := openRaw(t, s)
	w.must("/a", "", persistent)
	for _, protocol := range everyDoor {
		r := openAs(t, s, protocol, 0)
		ask := func(op wire.Op, typ wire.WatcherType) znode.Error {
			return r.call(wire.Request{Op: op, Body: &wire.RemoveWatches{Path: "/a", Type: typ}}).Err
		}
		for typ := wire.WatcherChildren; typ <= wire.WatcherRecursive; typ++ {
			if e := ask(wire.OpCheckWatches, typ); e != znode.NoWatcher {
				t.Errorf("check of type %d without watches: %v", typ, e)
			}
			if e := ask(wire.OpRemoveWatches, typ); e != znode.NoWatcher {
				t.Errorf("removal of type %d without watches: %v", typ, e)
			}
		}
		r.watched(wire.OpGetData, "/a")
		r.watched(wire.OpGetChildren, "/a")
		r.addWatch("/a", 0)
		r.addWatch("/a", 1)
		for _, typ := range []wire.WatcherType{wire.WatcherData, wire.WatcherPersistent, wire.WatcherRecursive} {
			if e := ask(wire.OpCheckWatches, typ); e != znode.OK {
				t.Errorf("check of type %d: %v", typ, e)
			}
			if e := ask(wire.OpRemoveWatches, typ); e != znode.OK {
				t.Errorf("removal of type %d: %v", typ, e)
			}
			if e := ask(wire.OpCheckWatches, typ); e != znode.NoWatcher {
				t.Errorf("check of type %d behind its removal: %v", typ, e)
			}
		}
		w.set("/a", "1")
		r.wantTold("all but the child watch were removed")
		if e := ask(wire.OpRemoveWatches, wire.WatcherAny); e != znode.OK {
			t.Error(e)
		}
		w.must("/a/", "", sequential)
		r.wantTold("all were removed")
	}
}
