package server

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// watchKind is one way to watch dir/n.
type watchKind struct {
	name    string
	oneShot bool
	set     func(r *rawClient, dir string)
	// told is what an event is for it, as %s of dir, in order: [created deleted changed].
	told [3][]string
}

const (
	onCreate = iota
	onDelete
	onChange
)

var (
	created, gone, changed = "created %s/n", "deleted %s/n", "changed %s/n"
	kids                   = "children %s"
)

// watchKinds are all of them. The data and children of a znode that does not exist yet
// can't be watched; whoever watches its children learns only that it goes.
var watchKinds = []watchKind{
	{"exists", true, func(r *rawClient, d string) { r.watched(wire.OpExists, d+"/n") }, [3][]string{{created}, {gone}, {changed}}},
	{"data", true, func(r *rawClient, d string) { r.watched(wire.OpGetData, d+"/n") }, [3][]string{nil, {gone}, {changed}}},
	{"children of it", true, func(r *rawClient, d string) { r.watched(wire.OpGetChildren, d+"/n") }, [3][]string{nil, {gone}, nil}},
	{"children of parent", true, func(r *rawClient, d string) { r.watched(wire.OpGetChildren2, d) }, [3][]string{{kids}, {kids}, nil}},
	{"persistent", false, func(r *rawClient, d string) { r.addWatch(d+"/n", 0) }, [3][]string{{created}, {gone}, {changed}}},
	{"persistent parent", false, func(r *rawClient, d string) { r.addWatch(d, 0) }, [3][]string{{kids}, {kids}, nil}},
	{"recursive parent", false, func(r *rawClient, d string) { r.addWatch(d, 1) }, [3][]string{{created}, {gone}, {changed}}},
	{"recursive root", false, func(r *rawClient, _ string) { r.addWatch("/", 1) }, [3][]string{{created}, {gone}, {changed}}},
}

// Goal: whether somebody is told of a change is judged when it happens: READ on the znode
// (as created, or as it was before it went), READ on the parent for what concerns the
// parent's children, by the connection's logins of that moment. Who may not read is told
// nothing, and a one-shot watch is used up all the same. Method: every kind of watch and
// every change, with either list, neither or both closed between setting and firing, for a
// stranger and for somebody who logs in between; then the same znode once more, open.
func TestZooKeeperReadIsAskedAtDelivery(t *testing.T) {
	s := startServer(t, Config{})
	admin := adminOf(t, s)
	for i, change := range []string{"create", "delete", "set", "session end"} {
		event := []int{onCreate, onDelete, onChange, onDelete}[i]
		for closed := range 4 {
			d := delivery{t: t, s: s, admin: admin, change: change, event: event, closed: closed}
			d.run(fmt.Sprintf("/d%d%d", i, closed))
		}
	}
}

// delivery is one change under one choice of closed lists.
type delivery struct {
	t      *testing.T
	s      *Server
	admin  *rawClient
	change string
	event  int
	closed int // bit 0: the znode's list, bit 1: the parent's
}

const nodeClosed, parentClosed = 1, 2

var secret = digest(znode.PermRead, "bob", "b")

func (d *delivery) run(dir string) {
	owner := openZK(d.t, d.s)
	d.admin.must(dir, "", persistent)
	if d.event != onCreate {
		owner.must(dir+"/n", "", map[bool]znode.Mode{true: ephemeral}[d.change == "session end"])
	}
	strangers, bobs := d.watchers(dir), d.watchers(dir)
	for _, r := range bobs {
		r.auth("digest", "bob:b")
	}
	d.close(dir)
	d.fire(owner, dir)
	for i, k := range watchKinds {
		due := k.due(d.event, dir)
		name := fmt.Sprintf("%s, closed %d, %s", d.change, d.closed, k.name)
		bobs[i].wantTold(name+", bob", due...)
		visible := slices.DeleteFunc(slices.Clone(due), func(e string) bool {
			if e == fmt.Sprintf(kids, dir) {
				return d.closed&parentClosed != 0
			}
			return d.closed&nodeClosed != 0
		})
		strangers[i].wantTold(name+", stranger", visible...)
	}
	d.again(dir, strangers)
}

// watchers are one client of each kind.
func (d *delivery) watchers(dir string) (list []*rawClient) {
	for _, k := range watchKinds {
		r := openZK(d.t, d.s)
		k.set(r, dir)
		list = append(list, r)
	}
	return list
}

// close closes what closed says; setACL is no event.
func (d *delivery) close(dir string) {
	if d.closed&parentClosed != 0 {
		d.admin.setACL(dir, secret)
	}
	if d.closed&nodeClosed != 0 && d.event != onCreate {
		d.admin.setACL(dir+"/n", secret)
	}
}

// fire makes the change.
func (d *delivery) fire(owner *rawClient, dir string) {
	d.t.Helper()
	e := znode.OK
	switch d.change {
	case "create":
		list := znode.OpenACL
		if d.closed&nodeClosed != 0 {
			list = []znode.ACL{secret}
		}
		e = d.admin.createACL(dir+"/n", list...)
	case "delete":
		e = d.admin.delete(dir + "/n")
	case "set":
		e = d.admin.set(dir+"/n", "x")
	case "session end":
		e = owner.call(wire.Request{Op: wire.OpCloseSession}).Err
	}
	if e != znode.OK {
		d.t.Fatalf("%s: %v", d.change, e)
	}
}

// again opens both lists and changes the znode twice: one-shot watches that were due are
// gone, whether they told anything or not, and the others tell of both.
func (d *delivery) again(dir string, strangers []*rawClient) {
	d.admin.setACL(dir, znode.OpenACL...)
	if d.event != onDelete {
		d.admin.setACL(dir+"/n", znode.OpenACL...)
		d.admin.delete(dir + "/n")
	}
	d.admin.must(dir+"/n", "", persistent)
	for i, k := range watchKinds {
		was := k.due(d.event, dir)
		got := strangers[i].told()
		if k.oneShot && len(was) > 0 && len(got) > 0 {
			d.t.Errorf("%s, closed %d: the watch on %s was not used up: %q", d.change, d.closed, k.name, got)
		}
		if !k.oneShot && len(got) == 0 {
			d.t.Errorf("%s, closed %d: the watch on %s is gone", d.change, d.closed, k.name)
		}
	}
}

// due is what the kind is told of an event by who may read everything.
func (k *watchKind) due(event int, dir string) (list []string) {
	for _, e := range k.told[event] {
		list = append(list, fmt.Sprintf(e, dir))
	}
	return list
}

// Goal: a read that was refused sets no watch, nor does one of a znode that is not there,
// but for exists. Method: refused and failed reads, then changes that all may see.
func TestZooKeeperRefusedReadSetsNoWatch(t *testing.T) {
	s := startServer(t, Config{})
	admin, r := adminOf(t, s), openZK(t, s)
	admin.createACL("/n", secret)
	for _, op := range []wire.Op{wire.OpExists, wire.OpGetData, wire.OpGetChildren, wire.OpGetChildren2} {
		if e := r.watched(op, "/n"); e != znode.NoAuth {
			t.Errorf("%v: %v, want NoAuth", op, e)
		}
		if e := r.watched(op, "/none"); e != znode.NoNode {
			t.Errorf("%v: %v, want NoNode", op, e)
		}
	}
	admin.setACL("/n", znode.OpenACL...)
	admin.set("/n", "x")
	admin.must("/n/child", "", persistent)
	admin.must("/none", "", persistent)
	admin.must("/none/child", "", persistent)
	r.wantTold("changes behind refused reads", "created /none")
}

// Goal: catching up asks, too: what setWatches finds changed is told to those who may read
// it now, which a login pipelined before it decides. Method: a client that was away while a
// znode was closed and changed.
func TestZooKeeperSetWatchesAsksForRead(t *testing.T) {
	s := startServer(t, Config{})
	r := openAs(t, s, zooKeeper, 30*time.Second)
	r.must("/n", "", persistent)
	since := s.store.LastZxid()
	r.setACL("/n", secret)
	adminOf(t, s).set("/n", "x")
	for _, login := range []bool{false, true} {
		again := resumeRaw(t, s, zooKeeper, r.session)
		var want []string
		if login {
			again.send(wire.Request{Op: wire.OpAuth, Body: &wire.Auth{Scheme: "digest", Data: []byte("bob:b")}})
			want = []string{"changed /n"}
		}
		again.send(wire.Request{Op: wire.OpSetWatches, Body: &wire.SetWatches{RelZxid: since, Data: []string{"/n"}}})
		if login {
			again.next()
		}
		again.next()
		again.wantTold(fmt.Sprintf("login %v", login), want...)
	}
}
