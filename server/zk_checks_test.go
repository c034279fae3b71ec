package server

import (
	"slices"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// zkCheck is a request that fails by more than one rule, and the rule that comes first.
type zkCheck struct {
	name string
	op   wire.Op
	body any
	want znode.Error
}

var (
	noACL  = []znode.ACL{}
	badACL = []znode.ACL{{Perms: 31, Scheme: "nonsense", ID: "x"}}
)

func zkCreate(path string, acl []znode.ACL, m znode.Mode) *znode.Create {
	return &znode.Create{Path: path, ACL: acl, Mode: m}
}

// zkChecks need the znodes of zkCheckTree.
func zkChecks() []zkCheck {
	open, none := znode.OpenACL, []znode.ACL(nil)
	return []zkCheck{
		{"create: no slash before a bad list", wire.OpCreate, zkCreate("a", noACL, persistent), znode.BadArguments},
		{"create: NUL before a bad list", wire.OpCreate, zkCreate("/a\x00", noACL, persistent), znode.BadArguments},
		{"create: a bad list before a missing parent", wire.OpCreate, zkCreate("/none/a", badACL, persistent), znode.InvalidACL},
		{"create: a bad list before what is there", wire.OpCreate, zkCreate("/k", noACL, persistent), znode.InvalidACL},
		{"create: a null list before an ephemeral parent", wire.OpCreate, zkCreate("/k/e/x", none, persistent), znode.InvalidACL},
		{"create: a missing parent before bad syntax", wire.OpCreate, zkCreate("/k//b", open, persistent), znode.NoNode},
		{"create: a parent that can't be", wire.OpCreate, zkCreate("//a", open, persistent), znode.BadArguments},
		{"create: no right before what is there", wire.OpCreate, zkCreate("/k/closed/x", open, persistent), znode.NoAuth},
		{"create: no right before bad syntax", wire.OpCreate, zkCreate("/k/closed/..", open, persistent), znode.NoAuth},
		{"create: bad syntax", wire.OpCreate, zkCreate("/k/..", open, persistent), znode.BadArguments},
		{"create: what is there before an ephemeral parent", wire.OpCreate, zkCreate("/k", open, persistent), znode.NodeExists},
		{"create: an ephemeral parent", wire.OpCreate, zkCreate("/k/e/x", open, persistent), znode.NoChildrenForEphemerals},
		{"create: the root", wire.OpCreate, zkCreate("/", open, persistent), znode.NodeExists},
		{"create: a slash at the end, parent missing", wire.OpCreate, zkCreate("/none/", open, persistent), znode.NoNode},
		{"create: a slash at the end", wire.OpCreate, zkCreate("/k/", open, persistent), znode.BadArguments},
		{"create: nothing", wire.OpCreate, zkCreate("", open, persistent), znode.BadArguments},

		{"delete: no slash", wire.OpDelete, &znode.Delete{Path: "a", Version: -1}, znode.BadArguments},
		{"delete: NUL", wire.OpDelete, &znode.Delete{Path: "/none/\x00", Version: -1}, znode.BadArguments},
		{"delete: the root", wire.OpDelete, &znode.Delete{Path: "/", Version: 99}, znode.BadArguments},
		{"delete: /zookeeper", wire.OpDelete, &znode.Delete{Path: "/zookeeper", Version: 99}, znode.BadArguments},
		{"delete: the quotas", wire.OpDelete, &znode.Delete{Path: "/zookeeper/quota", Version: 99}, znode.BadArguments},
		{"delete: the configuration", wire.OpDelete, &znode.Delete{Path: "/zookeeper/config", Version: 99}, znode.BadArguments},
		{"delete: syntax is not looked at", wire.OpDelete, &znode.Delete{Path: "/k/", Version: -1}, znode.NoNode},
		{"delete: a missing parent", wire.OpDelete, &znode.Delete{Path: "/none/a", Version: -1}, znode.NoNode},
		{"delete: no right before a missing znode", wire.OpDelete, &znode.Delete{Path: "/k/closed/none", Version: -1}, znode.NoAuth},
		{"delete: a missing znode before its version", wire.OpDelete, &znode.Delete{Path: "/k/none", Version: 9}, znode.NoNode},
		{"delete: the version before children", wire.OpDelete, &znode.Delete{Path: "/k", Version: 9}, znode.BadVersion},
		{"delete: children", wire.OpDelete, &znode.Delete{Path: "/k", Version: 0}, znode.NotEmpty},

		{"setData: syntax before existence", wire.OpSetData, &znode.SetData{Path: "/none/", Version: -1}, znode.BadArguments},
		{"setData: missing before the version", wire.OpSetData, &znode.SetData{Path: "/none", Version: 9}, znode.NoNode},
		{"setData: no right before the version", wire.OpSetData, &znode.SetData{Path: "/k/closed", Version: 9}, znode.NoAuth},
		{"setData: the version", wire.OpSetData, &znode.SetData{Path: "/k", Version: 9}, znode.BadVersion},
		{"setData: a negative version is one like another", wire.OpSetData, &znode.SetData{Path: "/k", Version: -2}, znode.BadVersion},
		{"setData: the configuration", wire.OpSetData, &znode.SetData{Path: "/zookeeper/config", Version: -1}, znode.NoAuth},

		{"setACL: syntax before the list", wire.OpSetACL, &znode.SetACL{Path: "/k/", ACL: noACL, Version: -1}, znode.BadArguments},
		{"setACL: the list before existence", wire.OpSetACL, &znode.SetACL{Path: "/none", ACL: noACL, Version: -1}, znode.InvalidACL},
		{"setACL: missing before the version", wire.OpSetACL, &znode.SetACL{Path: "/none", ACL: open, Version: 9}, znode.NoNode},
		{"setACL: no right before the version", wire.OpSetACL, &znode.SetACL{Path: "/k/closed", ACL: open, Version: 9}, znode.NoAuth},
		{"setACL: the version", wire.OpSetACL, &znode.SetACL{Path: "/k", ACL: open, Version: 9}, znode.BadVersion},

		{"exists: NUL", wire.OpExists, &wire.PathWatch{Path: "/none\x00"}, znode.BadArguments},
		{"exists: syntax is not looked at", wire.OpExists, &wire.PathWatch{Path: "/k/"}, znode.NoNode},
		{"exists: no right", wire.OpExists, &wire.PathWatch{Path: "/k/closed"}, znode.NoAuth},
		{"getData: syntax is not looked at", wire.OpGetData, &wire.PathWatch{Path: "/k//"}, znode.NoNode},
		{"getData: no slash", wire.OpGetData, &wire.PathWatch{Path: "k"}, znode.NoNode},
		{"getData: no right", wire.OpGetData, &wire.PathWatch{Path: "/k/closed"}, znode.NoAuth},
		{"getChildren: syntax is not looked at", wire.OpGetChildren, &wire.PathWatch{Path: "/.."}, znode.NoNode},
		{"getChildren: no right", wire.OpGetChildren, &wire.PathWatch{Path: "/k/closed"}, znode.NoAuth},
		{"getChildren2: no right", wire.OpGetChildren2, &wire.PathWatch{Path: "/k/closed"}, znode.NoAuth},
		{"getAllChildrenNumber: no right", wire.OpGetAllChildrenNumber, &wire.PathOnly{Path: "/k/closed"}, znode.NoAuth},
		{"getAllChildrenNumber: missing", wire.OpGetAllChildrenNumber, &wire.PathOnly{Path: "/none"}, znode.NoNode},
		{"getACL: missing", wire.OpGetACL, &wire.PathOnly{Path: "/none"}, znode.NoNode},
		{"getACL: no right", wire.OpGetACL, &wire.PathOnly{Path: "/k/closed"}, znode.NoAuth},
		{"sync: no right needed", wire.OpSync, &wire.PathOnly{Path: "/k/closed"}, znode.OK},
		{"sync: no path looked at", wire.OpSync, &wire.PathOnly{Path: "x//"}, znode.OK},
	}
}

// zkCheckTree makes what zkChecks need, as the session r.
func zkCheckTree(r *rawClient) {
	r.t.Helper()
	r.must("/k", "", persistent)
	r.must("/k/e", "", ephemeral)
	r.must("/k/closed", "", persistent)
	r.must("/k/closed/x", "", persistent)
	if e := r.call(wire.Request{Op: wire.OpSetACL, Body: &znode.SetACL{Path: "/k/closed", Version: -1,
		ACL: []znode.ACL{{Scheme: "world", ID: "anyone"}}}}).Err; e != znode.OK {
		r.t.Fatal(e)
	}
}

// Goal: of several rules that a request breaks the one is told that ZooKeeper looks at
// first, alone and in a multi. Method: a table of such requests, each alone and, if there
// may be such a one, as the second of a multi.
func TestZooKeeperOrderOfChecks(t *testing.T) {
	s := startServer(t, Config{})
	r := openAs(t, s, zooKeeper, 30*time.Second)
	zkCheckTree(r)
	for _, row := range zkChecks() {
		if e := r.call(wire.Request{Op: row.op, Body: row.body}).Err; e != row.want {
			t.Errorf("%s: %v, want %v", row.name, e, row.want)
		}
		op, write := row.body.(znode.Op)
		if !write || row.op == wire.OpSetACL {
			continue
		}
		res := r.multi(&znode.Check{Path: "/k", Version: 0}, op)
		if len(res.Sub) != 2 || res.Sub[0].Err != znode.OK || res.Sub[1].Err != row.want {
			t.Errorf("%s: in a multi %+v, want %v", row.name, res, row.want)
		}
	}
	for name, row := range map[string]struct {
		check znode.Check
		want  znode.Error
	}{
		"syntax":    {znode.Check{Path: "/k/", Version: -1}, znode.BadArguments},
		"existence": {znode.Check{Path: "/none", Version: 9}, znode.NoNode},
		"the right": {znode.Check{Path: "/k/closed", Version: 9}, znode.NoAuth},
		"version":   {znode.Check{Path: "/k", Version: 9}, znode.BadVersion},
	} {
		if res := r.multi(&row.check); res.Err != row.want {
			t.Errorf("check: %s: %v, want %v", name, res.Err, row.want)
		}
	}
}

// Goal: flags mean what ZooKeeper means by them, for each of the four creates. Method: all
// flags from -1 to 8 and lifetimes around the ends, as records; what the znode is shows in
// its name, its owner and whether it may have children.
func TestZooKeeperCreateFlags(t *testing.T) {
	s := startServer(t, Config{ReapInterval: time.Hour})
	r := openAs(t, s, zooKeeper, 30*time.Second)
	record := func(flags int32, rest ...byte) []byte {
		b := rawInt(rawInt(rawStr(rawStr(nil, "/f"), "d"), 1), 31)
		return append(rawInt(rawStr(rawStr(b, "world"), "anyone"), flags), rest...)
	}
	plain := []string{"persistent", "ephemeral", "sequential", "ephemeral sequential", "persistent"}
	for op, want := range map[wire.Op][]string{wire.OpCreate: plain, wire.OpCreate2: plain,
		wire.OpCreateContainer: {"persistent", "persistent", "sequential", "sequential", "persistent"}, wire.OpCreateTTL: {}} {
		for flags := int32(-1); flags <= 8; flags++ {
			got := kindMade(r, op, record(flags, rawLong(nil, 1000)...))
			expected := "-8"
			switch {
			case op == wire.OpCreateTTL && flags == 5:
				expected = "persistent"
			case op == wire.OpCreateTTL && flags == 6:
				expected = "sequential"
			case flags >= 0 && int(flags) < len(want):
				expected = want[flags]
			}
			if got != expected {
				t.Errorf("%v with flags %d: %s, want %s", op, flags, got, expected)
			}
		}
	}
	for ttl, want := range map[int64]string{1: "persistent", 1<<40 - 1: "persistent", 1 << 40: "-8", 0: "-8", -1: "-8", -1 << 63: "-8"} {
		if got := kindMade(r, wire.OpCreateTTL, record(5, rawLong(nil, ttl)...)); got != want {
			t.Errorf("lifetime %d: %s, want %s", ttl, got, want)
		}
		if got := kindMade(r, wire.OpCreateTTL, record(0, rawLong(nil, ttl)...)); got != "-8" {
			t.Errorf("lifetime %d of a persistent znode: %s", ttl, got)
		}
	}
}

// kindMade creates, says what came of it, and deletes it.
func kindMade(r *rawClient, op wire.Op, record []byte) string {
	r.t.Helper()
	if e := r.rawCall(op, record); e != znode.OK {
		return map[znode.Error]string{znode.BadArguments: "-8"}[e]
	}
	kind := "persistent"
	names := r.children("/")
	name := names[slices.IndexFunc(names, func(n string) bool { return n[0] == 'f' })]
	if len(name) > 1 {
		kind = "sequential"
	}
	st := r.stat("/" + name)
	if st.EphemeralOwner == r.session.Session {
		kind = map[string]string{"persistent": "ephemeral", "sequential": "ephemeral sequential"}[kind]
	}
	if e := r.delete("/" + name); e != znode.OK {
		r.t.Fatal(e)
	}
	return kind
}

// Goal: paths are those of ZooKeeper's clients and servers, character by character.
// Method: each border of the forbidden ranges, and each shape of a path.
func TestZooKeeperPaths(t *testing.T) {
	s := startServer(t, Config{})
	r := openAs(t, s, zooKeeper, 30*time.Second)
	r.must("/d", "", persistent)
	for path, want := range map[string]znode.Error{
		"/d/...": 0, "/d/.a": 0, "/d/ ": 0, "/d/~": 0, "/d/\u00a0": 0, "/d/\ud7ff": 0, "/d/\uf900": 0, "/d/\uffef": 0,
		"/d/.": -8, "/d/..": -8, "/d/": -8, "/d/\x00": -8, "/d/\x01": -8, "/d/\x1f": -8, "/d/\x7f": -8, "/d/\u009f": -8,
		"/d/\ue000": -8, "/d/\uf8ff": -8, "/d/\ufff0": -8, "/d/\uffff": -8, "/d/\U0001f402": -8, "/d/\U00010000": -8,
		"": -8, "d": -8, "d/x": -101, "//": -8, "/./x": -101, "/d/./x": -101, "/d//x": -101,
	} {
		_, e := r.create(path, "", persistent)
		if e != want {
			t.Errorf("create %q: %v, want %v", path, e, want)
		}
		if e == znode.OK {
			r.delete(path)
		}
	}
	for _, path := range []string{"/d/", "/d/..", "/d/."} { // judged with the number
		got, e := r.create(path, "", sequential)
		if e != znode.OK || len(got) != len(path)+10 || got[:len(path)] != path {
			t.Errorf("sequential create of %q: %q %v", path, got, e)
		}
	}
}
