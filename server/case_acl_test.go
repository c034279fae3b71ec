package server

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

func (r *rawClient) createACL(path string, acl ...znode.ACL) znode.Error {
	r.t.Helper()
	return r.call(wire.Request{Op: wire.OpCreate, Body: &znode.Create{Path: path, ACL: acl}}).Err
}

func (r *rawClient) acl(path string) ([]znode.ACL, znode.Error) {
	r.t.Helper()
	reply := r.call(wire.Request{Op: wire.OpGetACL, Body: &wire.PathOnly{Path: path}})
	if reply.Err != znode.OK {
		return nil, reply.Err
	}
	return reply.Body.(*wire.ACLReply).ACL, znode.OK
}

func digest(perms int32, user, password string) znode.ACL {
	return znode.ACL{Perms: perms, Scheme: "digest", ID: znode.DigestID(user, password)}
}

// Goal: entries are OR-ed, none is lost, duplicates are kept once, and no list that locks
// everybody out by accident is stored. Method: the row's lists, used by an anonymous
// client, through every door.
func TestC059EntriesAreORed(t *testing.T) {
	s := startServer(t, Config{})
	open, bob := znode.OpenACL[0], digest(znode.PermRead, "bob", "b")
	for _, protocol := range everyDoor {
		r := openAs(t, s, protocol, 0)
		p := r.must("/l-", "", sequential)
		for name, row := range map[string]struct{ given, want []znode.ACL }{
			"both":       {[]znode.ACL{open, bob}, []znode.ACL{open, bob}},
			"reverse":    {[]znode.ACL{bob, open}, []znode.ACL{bob, open}},
			"duplicates": {[]znode.ACL{open, bob, open, bob}, []znode.ACL{open, bob}},
		} {
			path := p + "/" + name
			if e := r.createACL(path, row.given...); e != znode.OK {
				t.Fatal(path, e)
			}
			if got, e := r.acl(path); e != znode.OK || !slices.Equal(got, row.want) {
				t.Errorf("%s: %s: list %v %v, want %v", protocol, name, got, e, row.want)
			}
			if e := r.set(path, "1"); e != znode.OK {
				t.Errorf("%s: set: %v", name, e)
			}
			r.must(path+"/x", "", persistent)
			if e := r.delete(path + "/x"); e != znode.OK {
				t.Errorf("%s: delete: %v", name, e)
			}
			if e := r.call(wire.Request{Op: wire.OpSetACL, Body: &znode.SetACL{Path: path, ACL: row.given, Version: -1}}).Err; e != znode.OK {
				t.Errorf("%s: setACL: %v", name, e)
			}
		}
		if e := r.createACL(p+"/none", znode.ACL{Perms: 0, Scheme: "world", ID: "anyone"}); e != znode.OK {
			t.Errorf("perms 0: %v", e)
		}
		if _, e := r.get(p + "/none"); e != znode.NoAuth {
			t.Errorf("get with perms 0: %v", e)
		}
		for _, bad := range [][]znode.ACL{{}, {{Perms: 31, Scheme: "nonsense", ID: "x"}}, {{Perms: 31, Scheme: "auth"}}, {{Perms: 31, Scheme: "ip", ID: "no"}}} {
			if e := r.createACL(p+"/bad", bad...); e != znode.InvalidACL {
				t.Errorf("%s: create with %v: %v, want InvalidACL", protocol, bad, e)
			}
			if e := r.call(wire.Request{Op: wire.OpSetACL, Body: &znode.SetACL{Path: p, ACL: bad, Version: -1}}).Err; e != znode.InvalidACL {
				t.Errorf("%s: setACL %v: %v, want InvalidACL", protocol, bad, e)
			}
		}
	}
}

// Goal: hashes in access lists show only to who administers the znode. Method: the row's
// list as anonymous, bob and alice.
func TestC061HashesAreMasked(t *testing.T) {
	s := startServer(t, Config{})
	alice, bob := digest(31, "alice", "a"), digest(znode.PermRead, "bob", "b")
	for i, protocol := range everyDoor {
		r := openAs(t, s, protocol, 0)
		path := []string{"/s0", "/s1", "/s2"}[i]
		if e := r.createACL(path, alice, bob); e != znode.OK {
			t.Fatal(e)
		}
		if got, e := r.acl(path); e != znode.NoAuth {
			t.Errorf("anonymous: %v %v", got, e)
		}
		r.auth("digest", "bob:b")
		got, e := r.acl(path)
		if e != znode.OK || len(got) != 2 || got[0].ID != "alice:x" || got[1].ID != "bob:x" {
			t.Errorf("bob: %v %v", got, e)
		}
		who := r.call(wire.Request{Op: wire.OpWhoAmI}).Body.(*wire.IdentitiesReply)
		for _, id := range who.Identities {
			if strings.Contains(id.ID, ":") {
				t.Errorf("whoAmI shows %v", id)
			}
		}
		r.auth("digest", "alice:a")
		if got, e := r.acl(path); e != znode.OK || !slices.Equal(got, []znode.ACL{alice, bob}) {
			t.Errorf("alice: %v %v", got, e)
		}
	}
}

// Goal: identities belong to the connection: a resumed session has none until it logs in
// again, and a login counts for what is pipelined behind it. Method: protected reads
// right behind the handshake, with and without a login between.
func TestC063LoginPrecedesRequests(t *testing.T) {
	s := startServer(t, Config{})
	for i, protocol := range everyDoor {
		r := openAs(t, s, protocol, 30*time.Second)
		path := []string{"/z0", "/z1", "/z2"}[i]
		r.auth("digest", "bob:b")
		if e := r.createACL(path, znode.ACL{Perms: 31, Scheme: "auth"}); e != znode.OK {
			t.Fatal(e)
		}
		for _, login := range []bool{true, false} {
			next := dialRaw(t, s, protocol)
			next.write(next.codec.AppendConnect(nil, &wire.ConnectRequest{Session: r.session.Session, Password: r.session.Password[:], TimeoutMs: 30_000}))
			want := znode.NoAuth
			if login {
				next.send(wire.Request{Op: wire.OpAuth, Body: &wire.Auth{Scheme: "digest", Data: []byte("bob:b")}})
				want = znode.OK
			}
			for range 50 {
				next.send(wire.Request{Op: wire.OpGetData, Body: &wire.PathWatch{Path: path}})
				next.send(wire.Request{Op: wire.OpSetData, Body: &znode.SetData{Path: path, Version: -1}})
			}
			if got, err := next.codec.DecodeConnectReply(next.read()); err != nil || got.Session != r.session.Session {
				t.Fatalf("resume: %+v %v", got, err)
			}
			if login {
				next.next()
			}
			for range 100 {
				if reply := next.next(); reply.Err != want {
					t.Fatalf("%s: login %v: %v is answered %v", protocol, login, reply.Op, reply.Err)
				}
			}
		}
	}
}

// Goal: each way to log in gives what it should, and a failed one is told and ends the
// connection. Method: a znode that nobody may touch, and sessions to kill.
func TestC065LoginAndKill(t *testing.T) {
	s := startServer(t, Config{SuperDigest: Secret(znode.DigestID("super", "top"))})
	victim := openRaw(t, s)
	if e := victim.createACL("/closed", znode.ACL{Scheme: "world", ID: "anyone"}); e != znode.OK {
		t.Fatal(e)
	}
	for _, protocol := range protocols {
		for _, row := range []struct {
			scheme, data string
			super        bool
		}{
			{"digest", "super:top", true}, {"token", adminTokenOf(t, s), true},
			{"digest", "super:wrong", false}, {"digest", "bob:b", false}, {"ip", "127.0.0.1", false},
		} {
			r := openAs(t, s, protocol, 0)
			if e := r.auth(row.scheme, row.data); e != znode.OK {
				t.Errorf("%s %s: %v", protocol, row.scheme, e)
			}
			want, wantKill := znode.NoAuth, znode.NoAuth
			if row.super {
				want, wantKill = znode.OK, znode.OK
			}
			if _, e := r.get("/closed"); e != want {
				t.Errorf("%s: get as %s: %v, want %v", protocol, row.scheme, e, want)
			}
			if e := r.set("/closed", "x"); e != want {
				t.Errorf("%s: set as %s: %v, want %v", protocol, row.scheme, e, want)
			}
			r.sendKill(victim.session.Session)
			if e := r.next().Err; e != wantKill {
				t.Errorf("%s: kill as %s: %v, want %v", protocol, row.scheme, e, wantKill)
			}
			if row.super {
				victim.wantClosed("killed", closeSessionOver)
				victim = openRaw(t, s)
				r.sendKill(1 << 40)
				if e := r.next().Err; e == znode.OK {
					t.Errorf("%s: an unknown session was killed", protocol)
				}
			}
		}
		for _, wrong := range [][2]string{{"token", "0123"}, {"token", ""}, {"sasl", "x"}, {"world", "anyone"}, {"super", ""}} {
			r := openAs(t, s, protocol, 0)
			if e := r.auth(wrong[0], wrong[1]); e != znode.AuthFailed {
				t.Errorf("%s: auth %q: %v, want AuthFailed", protocol, wrong, e)
			}
			r.wantClosed("a failed login", closePolicy)
		}
	}
	victim.must("/alive", "", ephemeral) // nobody could kill this one
}

// Goal: who may not read a znode is not told of it (CVE-2024-23944), judged by who one is
// when it happens. Method: protected znodes below a watched tree; a watcher that logs in
// in the middle, one that never does, and both catching up later.
func TestACLAtDelivery(t *testing.T) {
	s := startServer(t, Config{})
	secret := znode.ACL{Perms: 31, Scheme: "digest", ID: znode.DigestID("bob", "b")}
	for i, protocol := range protocols {
		root := []string{"/t0", "/t1"}[i]
		w := openRaw(t, s)
		w.auth("digest", "bob:b")
		w.must(root, "", persistent)
		if e := w.createACL(root+"/hidden", secret); e != znode.OK {
			t.Fatal(e)
		}
		stranger, bob := openAs(t, s, protocol, 0), openAs(t, s, protocol, 0)
		for _, c := range []*rawClient{stranger, bob} {
			c.addWatch(root, 1)
			c.addWatch(root+"/hidden", 0)
			c.watched(wire.OpExists, root+"/hidden/a")
		}
		since := s.store.LastZxid()
		w.createACL(root+"/hidden/a", secret)
		stranger.wantTold("create")
		bob.wantTold("create")
		bob.auth("digest", "bob:b")
		w.set(root+"/hidden/a", "1")
		w.set(root, "1")
		w.delete(root + "/hidden/a")
		stranger.wantTold("later", "changed "+root)
		bob.wantTold("later", "changed "+root+"/hidden/a", "changed "+root, "deleted "+root+"/hidden/a", "children "+root+"/hidden")
		again := wire.Request{Op: wire.OpRewatch, Body: &wire.SetWatches{RelZxid: since, Recursive: []string{root}, Persistent: []string{root + "/hidden"}}}
		stranger.call(again)
		stranger.wantTold("catching up", "changed "+root)
		bob.call(again)
		bob.wantTold("catching up", "created "+root+"/hidden/a", "children "+root+"/hidden", "changed "+root+"/hidden/a",
			"changed "+root, "deleted "+root+"/hidden/a", "children "+root+"/hidden")
	}
}
