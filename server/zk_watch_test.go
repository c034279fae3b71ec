package server

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// zkWatchers are ways to watch a parent p and its child x.
var zkWatchers = []struct {
	kind string
	set  func(r *rawClient, p, x string)
}{
	{"exists", func(r *rawClient, _, x string) { r.watched(wire.OpExists, x) }},
	{"getData", func(r *rawClient, _, x string) { r.watched(wire.OpGetData, x) }},
	{"getChildren", func(r *rawClient, _, x string) { r.watched(wire.OpGetChildren, x) }},
	{"getChildren of the parent", func(r *rawClient, p, _ string) { r.watched(wire.OpGetChildren2, p) }},
	{"every one-shot", func(r *rawClient, p, x string) {
		for _, op := range []wire.Op{wire.OpExists, wire.OpGetData, wire.OpGetChildren, wire.OpGetChildren2} {
			r.watched(op, x)
		}
		r.watched(wire.OpGetChildren, p)
	}},
	{"persistent", func(r *rawClient, _, x string) { r.addWatch(x, 0) }},
	{"recursive", func(r *rawClient, p, _ string) { r.addWatch(p, 1) }},
}

// zkTrigger is a change and what each of zkWatchers is told of it, without p.
type zkTrigger struct {
	name   string
	there  bool // whether x exists
	change func(w *rawClient, p, x string)
	want   [7]string
}

// zkTriggers need another session, owner, to end.
func zkTriggers(owner func() *rawClient) []zkTrigger {
	setACL := func(w *rawClient, _, x string) {
		w.call(wire.Request{Op: wire.OpSetACL, Body: &znode.SetACL{Path: x, ACL: znode.OpenACL, Version: -1}})
	}
	return []zkTrigger{
		{"create", false, func(w *rawClient, _, x string) { w.must(x, "", persistent) },
			[7]string{"created /x", "", "", "children ", "created /x, children ", "created /x", "created /x"}},
		{"setData", true, func(w *rawClient, _, x string) { w.set(x, "1") },
			[7]string{"changed /x", "changed /x", "", "", "changed /x", "changed /x", "changed /x"}},
		{"setData to what it was", true, func(w *rawClient, _, x string) { w.set(x, "") },
			[7]string{"changed /x", "changed /x", "", "", "changed /x", "changed /x", "changed /x"}},
		{"setACL", true, setACL, [7]string{}},
		{"a child of x", true, func(w *rawClient, _, x string) { w.must(x+"/y", "", persistent) },
			[7]string{"", "", "children /x", "", "children /x", "children /x", "created /x/y"}},
		{"delete", true, func(w *rawClient, _, x string) { w.delete(x) },
			[7]string{"deleted /x", "deleted /x", "deleted /x", "children ", "deleted /x, children ", "deleted /x", "deleted /x"}},
		{"failures", true, func(w *rawClient, p, x string) {
			w.setVersion(x, "", 9)
			w.create(x, "", persistent)
			w.delete(p)
			w.multi(&znode.SetData{Path: x, Version: -1}, &znode.Check{Path: x, Version: 9})
		}, [7]string{}},
		{"setData twice in a multi", true, func(w *rawClient, _, x string) {
			w.multi(&znode.SetData{Path: x, Version: -1}, &znode.SetData{Path: x, Version: -1})
		}, [7]string{"changed /x", "changed /x", "", "", "changed /x", "changed /x, changed /x", "changed /x, changed /x"}},
		{"replaced in a multi", true, func(w *rawClient, _, x string) {
			w.multi(&znode.Delete{Path: x, Version: -1}, &znode.Create{Path: x, ACL: znode.OpenACL})
		}, [7]string{"deleted /x", "deleted /x", "deleted /x", "children ", "deleted /x, children ", "deleted /x, created /x", "deleted /x, created /x"}},
		{"an ephemeral and the end of its session", false, func(_ *rawClient, _, x string) {
			owner := owner()
			owner.must(x, "", ephemeral)
			owner.call(wire.Request{Op: wire.OpCloseSession})
		}, [7]string{"created /x", "", "", "children ", "created /x, children ", "created /x, deleted /x", "created /x, deleted /x"}},
	}
}

// Goal: each kind of change fires the watches of ZooKeeper's table and no others, in its
// order. Method: per change a tree of its own and a connection for each kind of watch.
func TestZooKeeperTriggers(t *testing.T) {
	s := startServer(t, Config{})
	w := openAs(t, s, zooKeeper, 30*time.Second)
	for _, row := range zkTriggers(func() *rawClient { return openAs(t, s, zooKeeper, 30*time.Second) }) {
		p := w.must("/p-", "", sequential)
		x := p + "/x"
		if row.there {
			w.must(x, "", persistent)
		}
		var list []*rawClient
		for _, watcher := range zkWatchers {
			r := openAs(t, s, zooKeeper, 30*time.Second)
			watcher.set(r, p, x)
			list = append(list, r)
		}
		row.change(w, p, x)
		for i, r := range list {
			if got := strings.ReplaceAll(strings.Join(r.told(), ", "), p, ""); got != row.want[i] {
				t.Errorf("%s: %s was told %q, want %q", row.name, zkWatchers[i].kind, got, row.want[i])
			}
			r.drop()
		}
	}
}

// Goal: watches that stand survive the deletion of what they watch, tell nothing when they
// are set, and the one on the root sees everything. Method: set on nothing; create, delete
// and create again; a change below /zookeeper.
func TestZooKeeperStandingWatches(t *testing.T) {
	s := startServer(t, Config{})
	w := openAs(t, s, zooKeeper, 30*time.Second)
	node, tree, root := openAs(t, s, zooKeeper, 0), openAs(t, s, zooKeeper, 0), openAs(t, s, zooKeeper, 0)
	node.addWatch("/n", 0)
	tree.addWatch("/n", 1)
	root.addWatch("/", 1)
	for range 2 {
		w.must("/n", "", persistent)
		w.must("/n/c", "", persistent)
		w.must("/n/c/d", "", persistent)
		for _, path := range []string{"/n/c/d", "/n/c", "/n"} {
			w.delete(path)
		}
		node.wantTold("persistent", "created /n", "children /n", "children /n", "deleted /n")
		all := []string{"created /n", "created /n/c", "created /n/c/d", "deleted /n/c/d", "deleted /n/c", "deleted /n"}
		tree.wantTold("recursive", all...)
		root.wantTold("the root", all...)
	}
	w.must("/zookeeper/q", "", persistent)
	root.wantTold("below /zookeeper", "created /zookeeper/q")
	tree.wantTold("elsewhere")
	// A child watch beside them is its own: the one change is told as each tells it.
	tree.addWatch("/", 1)
	tree.watched(wire.OpGetChildren, "/")
	w.must("/n", "", persistent)
	tree.wantTold("two kinds", "created /n", "children /")
}

// Goal: setWatches compares each list with the state by its own rule, tells what was
// missed before its reply and watches the rest. Method: the whole table: each list with
// what is missing, changed and unchanged since the zxid that the client names.
func TestZooKeeperSetWatches(t *testing.T) {
	s := startServer(t, Config{})
	w := openAs(t, s, zooKeeper, 30*time.Second)
	for _, op := range []wire.Op{wire.OpSetWatches, wire.OpSetWatches2} {
		p := w.must("/w-", "", sequential)
		for _, name := range []string{"/same", "/new", "/gone"} {
			w.must(p+name, "", persistent)
		}
		seen := w.call(wire.Request{Op: wire.OpExists, Body: &wire.PathWatch{Path: "/none"}}).Zxid
		w.set(p+"/new", "1")
		w.must(p+"/new/c", "", persistent)
		w.delete(p + "/gone")
		paths := func() []string { return []string{p + "/same", p + "/new", p + "/gone"} }
		r := openAs(t, s, zooKeeper, 30*time.Second)
		q := &wire.SetWatches{RelZxid: seen, Data: paths(), Exist: paths(), Child: paths()}
		if op == wire.OpSetWatches2 {
			q.Persistent, q.Recursive = paths(), paths()
		}
		r.sendAs(-8, op, q)
		zxids := r.wantStream(op.String(), "event 3 "+p+"/new", "event 2 "+p+"/gone", "event 1 "+p+"/same", "event 1 "+p+"/new",
			"event 4 "+p+"/new", "event 2 "+p+"/gone", "-8 0")
		if last := len(zxids) - 1; slices.ContainsFunc(zxids[:last], func(z int64) bool { return z != -1 }) || zxids[last] < seen {
			t.Errorf("%v: zxids %x", op, zxids)
		}
		// Left are /same by data and child, /gone by exist, and what stands.
		w.must(p+"/gone", "", persistent)
		w.must(p+"/same/c", "", persistent)
		for _, name := range []string{"/same", "/new"} {
			w.set(p+name, "2")
		}
		want := []string{"created " + p + "/gone", "children " + p + "/same", "changed " + p + "/same"}
		if op == wire.OpSetWatches2 {
			want = []string{"created " + p + "/gone", "created " + p + "/same/c", "children " + p + "/same", "changed " + p + "/same", "changed " + p + "/new"}
		}
		r.wantTold(op.String()+" afterwards", want...)
	}
}

// Goal: checking and removing are by kind; the types of one-shot watches leave standing
// ones alone, and any means all. Method: each type against a connection that has one watch,
// of each kind.
func TestZooKeeperRemoveWatches(t *testing.T) {
	s := startServer(t, Config{})
	r := openAs(t, s, zooKeeper, 30*time.Second)
	r.must("/a", "", persistent)
	kinds := map[wire.WatcherType]func(){
		wire.WatcherChildren: func() { r.watched(wire.OpGetChildren, "/a") }, wire.WatcherData: func() { r.watched(wire.OpGetData, "/a") },
		wire.WatcherPersistent: func() { r.addWatch("/a", 0) }, wire.WatcherRecursive: func() { r.addWatch("/a", 1) },
	}
	ask := func(op wire.Op, path string, typ wire.WatcherType) znode.Error {
		return r.call(wire.Request{Op: op, Body: &wire.RemoveWatches{Path: path, Type: typ}}).Err
	}
	for has, set := range kinds {
		for typ := wire.WatcherChildren; typ <= wire.WatcherRecursive; typ++ {
			set()
			want := znode.NoWatcher
			if typ == has || typ == wire.WatcherAny {
				want = znode.OK
			}
			for _, op := range []wire.Op{wire.OpCheckWatches, wire.OpCheckWatches, wire.OpRemoveWatches} {
				if e := ask(op, "/a", typ); e != want {
					t.Errorf("%v of type %d with a watch of type %d: %v, want %v", op, typ, has, e, want)
				}
				if e := ask(op, "/a/b", typ); e != znode.NoWatcher {
					t.Errorf("%v of type %d elsewhere: %v", op, typ, e)
				}
			}
			if e := ask(wire.OpCheckWatches, "/a", has); (e == znode.NoWatcher) != (want == znode.OK) {
				t.Errorf("a watch of type %d behind the removal of type %d: %v", has, typ, e)
			}
		}
		ask(wire.OpRemoveWatches, "/a", wire.WatcherAny)
	}
	r.set("/a", "1")
	r.wantTold("nothing is watched")
}
