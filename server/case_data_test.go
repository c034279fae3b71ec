package server

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// rawPathOps are requests whose record begins with a path, and what follows it.
func rawPathOps() map[wire.Op][]byte {
	openACL := rawStr(rawStr(rawInt(rawInt(nil, 1), 31), "world"), "anyone")
	createRest := rawInt(append(rawStr(nil, "d"), openACL...), 0)
	return map[wire.Op][]byte{
		wire.OpCreate: createRest, wire.OpCreate2: createRest,
		wire.OpCreateContainer: rawInt(append(rawStr(nil, "d"), openACL...), 4),
		wire.OpCreateTTL:       rawLong(rawInt(append(rawStr(nil, "d"), openACL...), 5), 1000),
		wire.OpDelete:          rawInt(nil, -1), wire.OpSetData: rawInt(rawStr(nil, "d"), -1), wire.OpSetACL: rawInt(openACL, -1),
		wire.OpExists: {0}, wire.OpGetData: {1}, wire.OpGetChildren: {1}, wire.OpGetChildren2: {0},
		wire.OpGetACL: nil, wire.OpSync: nil, wire.OpGetAllChildrenNumber: nil,
		wire.OpAddWatch: rawInt(nil, 1), wire.OpRemoveWatches: rawInt(nil, 3), wire.OpCheckWatches: rawInt(nil, 3),
		wire.OpList: append(rawInt(rawStr(nil, ""), 0), 0),
	}
}

// rawCall sends a request as bytes and returns the code of its answer.
func (r *rawClient) rawCall(op wire.Op, record []byte) znode.Error {
	r.t.Helper()
	r.xid++
	r.sent[r.xid] = op
	r.write(append(rawInt(rawInt(nil, r.xid), int32(op)), record...))
	return r.next().Err
}

// Goal: an empty or null path costs its request an error and nobody anything else, also
// after a restart from the log. Method: every operation with a path in raw frames, then
// the same in JSON, with another session that goes on writing.
func TestC001EmptyAndNullPaths(t *testing.T) {
	s := startServer(t, Config{})
	other := openRaw(t, s)
	other.must("/ok", "0", persistent)
	for _, protocol := range juteDoors {
		emptyAndNullPaths(t, openAs(t, s, protocol, 0))
	}
	j := dialRaw(t, s, subprotocolJSON)
	j.connect(wire.ConnectRequest{})
	for _, op := range []string{"create", "delete", "set", "setACL", "get", "exists", "children", "getACL", "list", "watch", "sync"} {
		for _, path := range []string{`"path":""`, `"path":null`, `"stale":false`} {
			j.xid++
			j.sent[j.xid] = wire.OpDelete
			j.write(fmt.Appendf(nil, `{"xid":%d,"op":%q,%s}`, j.xid, op, path))
			if e := j.next().Err; e == znode.OK && op != "watch" && op != "sync" {
				t.Errorf("%s with %s succeeded", op, path)
			}
		}
	}
	if e := other.set("/ok", "1"); e != znode.OK {
		t.Errorf("another session's write: %v", e)
	}
	znodes := s.store.Counts().Znodes
	s = restart(t, s)
	r := openRaw(t, s)
	if got, e := r.get("/ok"); e != znode.OK || string(got.Data) != "1" || s.store.Counts().Znodes != znodes {
		t.Errorf("after a restart: %v %v, %d znodes, want %d", got, e, s.store.Counts().Znodes, znodes)
	}
}

func emptyAndNullPaths(t *testing.T, r *rawClient) {
	t.Helper()
	empty, null := rawInt(nil, 0), rawInt(nil, -1)
	writes := []wire.Op{wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpDelete, wire.OpSetData, wire.OpSetACL}
	ops := rawPathOps()
	if r.zooKeeper() {
		delete(ops, wire.OpList)
	}
	for op, rest := range ops {
		if e := r.rawCall(op, slices.Concat(empty, rest)); slices.Contains(writes, op) && e != znode.BadArguments {
			t.Errorf("%v of an empty path: %v, want BadArguments", op, e)
		}
		if e := r.rawCall(op, slices.Concat(null, rest)); e != znode.BadArguments && e != znode.MarshallingError {
			t.Errorf("%v of a null path: %v, want BadArguments or MarshallingError", op, e)
		}
	}
	for _, op := range []znode.Op{&znode.Delete{Version: -1}, &znode.SetData{Version: -1}, &znode.Create{ACL: znode.OpenACL}, &znode.Check{Version: -1}} {
		if res := r.multi(&znode.SetData{Path: "/ok", Data: []byte("no"), Version: -1}, op); res.Err == znode.OK {
			t.Errorf("multi with %T of an empty path succeeded", op)
		}
	}
}

// Goal: names are kept byte for byte or refused, through every door. Method: names of
// several scripts and forms, created through one door and listed through the next.
func TestC003Names(t *testing.T) {
	s := startServer(t, Config{})
	for i, protocol := range everyDoor {
		r := openAs(t, s, protocol, 0)
		back := openAs(t, s, everyDoor[(i+1)%3], 0)
		parent := r.must("/u"+string(rune('0'+i)), "", persistent)
		names := []string{"中文", "\u00e9", "e\u0301", "x\u00a0y", "a b", `q"\`, "<b>&", "%2F", "#?", "\u2028"}
		for _, name := range names {
			r.must(parent+"/"+name, name, persistent)
			if got, e := back.get(parent + "/" + name); e != znode.OK || string(got.Data) != name {
				t.Errorf("%s: get %q: %v %v", protocol, name, got, e)
			}
		}
		for _, name := range []string{"🐂", "\ufff0", "a\x00b", "\x1f", "\u0085", "\ue000", "..", ".", ""} {
			if _, e := r.create(parent+"/"+name, "", persistent); e != znode.BadArguments {
				t.Errorf("%s: create %q: %v, want BadArguments", protocol, name, e)
			}
		}
		slices.Sort(names)
		for _, c := range []*rawClient{r, back} {
			if got := c.children(parent); !slices.Equal(got, names) {
				t.Errorf("%s: children %q, want %q", protocol, got, names)
			}
		}
	}
}

// Goal: null and empty data stay what they are, after a restart and on a member made
// from a snapshot. Method: every way to get there through each door, read through all.
func TestC005NullAndEmptyData(t *testing.T) {
	s := startServer(t, Config{})
	for i, protocol := range everyDoor {
		r := openAs(t, s, protocol, 0)
		put := func(path string, data []byte) {
			reply := r.call(wire.Request{Op: wire.OpCreate, Body: &znode.Create{Path: path + fmt.Sprint(i), Data: data, ACL: znode.OpenACL}})
			if reply.Err != znode.OK {
				t.Fatal(path, reply.Err)
			}
		}
		put("/null", nil)
		put("/empty", []byte{})
		put("/set", []byte("12345"))
		r.call(wire.Request{Op: wire.OpSetData, Body: &znode.SetData{Path: fmt.Sprint("/set", i), Version: -1}})
	}
	check := func(when string, s *Server) {
		for _, protocol := range everyDoor {
			r := openAs(t, s, protocol, 0)
			for i, by := range everyDoor {
				for path, null := range map[string]bool{"/null": true, "/empty": false, "/set": true} {
					got, e := r.get(path + fmt.Sprint(i))
					if e != znode.OK || got.Stat.DataLength != 0 || len(got.Data) != 0 || (got.Data == nil) != null {
						t.Errorf("%s, %s: %s of %s is %#v %v, null %v", when, protocol, path, by, got, e, null)
					}
				}
			}
		}
	}
	check("at first", s)
	s = restart(t, s)
	check("after a restart", s)
	check("from a snapshot", restored(t, s))
}

// Goal: a parent's counters move at ZooKeeper's operations and no others. Method: the
// Stat behind each step, through each door, and once more after a restart.
func TestC007StatOfTheParent(t *testing.T) {
	s := startServer(t, Config{})
	want := map[string]znode.Stat{}
	for i, protocol := range everyDoor {
		p := fmt.Sprint("/p", i)
		want[p] = statOfTheParent(t, s, openAs(t, s, protocol, 0), p)
	}
	r := openRaw(t, restart(t, s))
	for p, want := range want {
		if got := *r.stat(p); got != want {
			t.Errorf("after a restart %+v, want %+v", got, want)
		}
	}
}

func statOfTheParent(t *testing.T, s *Server, r *rawClient, p string) znode.Stat {
	step := func(what string, zxidMoves bool, cversion, numChildren int32, do func() znode.Error) {
		t.Helper()
		before := r.stat(p)
		if e := do(); e != znode.OK {
			t.Fatalf("%s: %v", what, e)
		}
		zxid := s.store.LastZxid()
		after := r.stat(p)
		want := *before
		want.Cversion, want.NumChildren = cversion, numChildren
		if zxidMoves {
			want.Pzxid = zxid
		}
		if *after != want {
			t.Errorf("%s: stat %+v, want %+v", what, *after, want)
		}
	}
	create := func(path string) func() znode.Error {
		return func() znode.Error { _, e := r.create(path, "", persistent); return e }
	}
	r.must(p, "", persistent)
	if st := r.stat(p); st.Cversion != 0 || st.Pzxid != st.Czxid || st.Version != 0 {
		t.Errorf("a new znode: %+v", st)
	}
	step("create a", true, 1, 1, create(p+"/a"))
	step("create b", true, 2, 2, create(p+"/b"))
	step("create c", true, 3, 3, create(p+"/c"))
	step("delete c", true, 4, 2, func() znode.Error { return r.delete(p + "/c") })
	step("set a", false, 4, 2, func() znode.Error { return r.set(p+"/a", "1") })
	step("setACL a", false, 4, 2, func() znode.Error {
		return r.call(wire.Request{Op: wire.OpSetACL, Body: &znode.SetACL{Path: p + "/a", ACL: znode.OpenACL, Version: -1}}).Err
	})
	step("create a/x", false, 4, 2, create(p+"/a/x"))
	step("delete a/x", false, 4, 2, func() znode.Error { return r.delete(p + "/a/x") })
	return *r.stat(p)
}

// Goal: versions wrap as ZooKeeper's do, never to -1, and each step is seen and can be
// the condition of a write. Method: the version of the stored znode is set near the
// ends; then ordinary writes through each door.
func TestC009VersionWrap(t *testing.T) {
	s := startServer(t, Config{})
	openRaw(t, s).must("/v", "", persistent)
	for _, protocol := range everyDoor {
		versionWrap(t, s, openAs(t, s, protocol, 0))
	}
}

func versionWrap(t *testing.T, s *Server, r *rawClient) {
	t.Helper()
	for _, row := range []struct {
		from int32
		want []int32
	}{{2147483646, []int32{2147483647, -2147483648, -2147483647}}, {-2, []int32{0, 1}}} {
		s.state.Lock()
		n, _, err := s.store.Node("/v")
		if err != nil {
			t.Fatal(err)
		}
		n.Version = row.from
		s.state.Unlock()
		version := row.from
		for _, want := range row.want {
			r.watched(wire.OpGetData, "/v")
			if e := r.setVersion("/v", "x", version); e != znode.OK {
				t.Errorf("write at version %d: %v", version, e)
			}
			r.wantTold("the write", "changed /v")
			if version = r.stat("/v").Version; version != want {
				t.Errorf("version %d, want %d", version, want)
			}
		}
		if e := r.setVersion("/v", "x", row.from-1); e != znode.BadVersion {
			t.Errorf("write at an older version: %v", e)
		}
	}
}

// Goal: when its owner ends the parent is empty at once, whatever ended the owner and
// however deep it lies. Method: close, expiry and kill over plain, nested and container
// parents; then delete and create again.
func TestC011ParentOfAVanishedEphemeral(t *testing.T) {
	s := startServer(t, Config{MinSessionTimeout: 100 * time.Millisecond, ZKMinSessionTimeout: 100 * time.Millisecond, ReapInterval: time.Hour})
	for i, how := range []string{"close", "expiry", "kill", "close", "expiry", "kill"} {
		r := openRaw(t, s)
		r.must("/f", "", persistent)
		r.must("/f/g", "", persistent)
		r.must("/f/g/h", "", persistent)
		if e := r.call(wire.Request{Op: wire.OpCreateContainer, Body: &znode.Create{Path: "/f/c", ACL: znode.OpenACL, Mode: container}}).Err; e != znode.OK {
			t.Fatal(e)
		}
		owner := openAs(t, s, juteDoors[i/3], 200*time.Millisecond)
		paths := []string{"/f/e", "/f/g/h/e", "/f/c/e"}
		for _, path := range paths {
			owner.must(path, "", ephemeral)
		}
		switch how {
		case "close":
			owner.call(wire.Request{Op: wire.OpCloseSession})
		case "expiry":
			owner.drop()
			waitFor(t, "expiry", 10*time.Second, func() bool { return s.sessions.get(owner.session.Session) == nil })
		case "kill":
			// An early expiry on a busy machine is as good.
			admin := adminOf(t, s)
			admin.sendKill(owner.session.Session)
			if e := admin.next().Err; e != znode.OK && e != znode.SessionExpired {
				t.Fatal(e)
			}
		}
		zxid := s.store.LastZxid()
		for _, parent := range []string{"/f/g/h", "/f/c"} {
			if st := r.stat(parent); st.NumChildren != 0 || st.Pzxid > zxid || len(r.children(parent)) != 0 {
				t.Errorf("%s: %s has %+v and children %v", how, parent, st, r.children(parent))
			}
		}
		for _, path := range []string{"/f/c", "/f/g/h", "/f/g", "/f"} {
			if e := r.delete(path); e != znode.OK {
				t.Errorf("%s: delete %s: %v", how, path, e)
			}
		}
		r.must("/f", "", persistent)
		if left := r.children("/f"); len(left) != 0 {
			t.Errorf("%s: the new /f has %v", how, left)
		}
		r.delete("/f")
	}
}

// Goal: a container goes soon after its last child, also if the server restarted in
// between; one that never had a child stays, as documented; TTL znodes go when they are
// old and childless. Method: a short interval of looking, and waiting for the state.
func TestC013ContainersAndTTL(t *testing.T) {
	for _, protocol := range juteDoors {
		containersAndTTL(t, protocol)
	}
}

func containersAndTTL(t *testing.T, protocol string) {
	s := startServer(t, Config{ReapInterval: time.Hour})
	r := openAs(t, s, protocol, 0)
	make1 := func(path string, m znode.Mode, ttl int64) {
		op := &znode.Create{Path: path, ACL: znode.OpenACL, Mode: m, TTLMs: ttl, WantStat: true}
		if e := r.call(wire.Request{Op: wire.OpOf(op), Body: op}).Err; e != znode.OK {
			t.Fatal(path, e)
		}
	}
	make1("/c0", container, 0)
	make1("/c1", container, 0)
	r.must("/c1/x", "", persistent)
	r.delete("/c1/x")
	if res := r.multi(&znode.Create{Path: "/c2", ACL: znode.OpenACL, Mode: container}, &znode.Create{Path: "/c2/x", ACL: znode.OpenACL}); res.Err != znode.OK {
		t.Fatal(res)
	}
	make1("/t0", znode.Mode{Kind: znode.TTL}, 1)
	make1("/t1", znode.Mode{Kind: znode.TTL}, 1)
	make1("/t2", znode.Mode{Kind: znode.TTL}, 3_600_000)
	r.must("/t1/x", "", persistent)
	for _, path := range []string{"/c2", "/t2"} {
		if owner := r.stat(path).EphemeralOwner; owner != 0 {
			t.Errorf("%s: ephemeralOwner %v", path, owner)
		}
	}
	stopServer(t, s)
	cfg := s.cfg
	cfg.ReapInterval, cfg.Listen, cfg.ZKListen = 20*time.Millisecond, "127.0.0.1:0", "127.0.0.1:0"
	s = startServer(t, cfg)
	r = openAs(t, s, protocol, 0)
	gone := func(path string) func() bool { return func() bool { return r.stat(path) == nil } }
	waitFor(t, "/c1 is reaped", 10*time.Second, gone("/c1"))
	waitFor(t, "/t0 is reaped", 10*time.Second, gone("/t0"))
	r.must("/mark", "", persistent) // several intervals later
	waitFor(t, "time", 10*time.Second, func() bool {
		r.must("/mark/", "", sequential)
		return len(r.children("/mark")) > 20
	})
	for _, path := range []string{"/c0", "/c2", "/t1", "/t2"} {
		if r.stat(path) == nil {
			t.Errorf("%s was reaped", path)
		}
	}
	r.delete("/t1/x")
	waitFor(t, "/t1 is reaped", 10*time.Second, gone("/t1"))
	r.delete("/c2/x")
	waitFor(t, "/c2 is reaped", 10*time.Second, gone("/c2"))
}
