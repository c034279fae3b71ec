package server

import (
	"slices"
	"testing"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

func (r *rawClient) setACL(path string, acl ...znode.ACL) znode.Error {
	r.t.Helper()
	return r.call(wire.Request{Op: wire.OpSetACL, Body: &znode.SetACL{Path: path, ACL: acl, Version: -1}}).Err
}

// whoAmI lists the connection's identities as "scheme:id".
func (r *rawClient) whoAmI() (list []string) {
	r.t.Helper()
	for _, id := range r.call(wire.Request{Op: wire.OpWhoAmI}).Body.(*wire.IdentitiesReply).Identities {
		list = append(list, id.Scheme+":"+id.ID)
	}
	return list
}

// openZK opens a session through ZooKeeper's door.
func openZK(t *testing.T, s *Server) *rawClient {
	t.Helper()
	return openAs(t, s, zooKeeper, 0)
}

func entry(scheme, id string) znode.ACL {
	return znode.ACL{Perms: znode.PermAll, Scheme: scheme, ID: id}
}

// Goal: access lists are per znode and keep what they were given. Method: bits that nobody
// knows, a list that lets nobody in, children of a closed znode.
func TestZooKeeperACLBelongsToOneZnode(t *testing.T) {
	s := startServer(t, Config{})
	r := openZK(t, s)
	for _, perms := range []int32{0, 31, 95, -1} {
		path := r.must("/n-", "", sequential)
		if e := r.setACL(path, znode.ACL{Perms: perms, Scheme: "world", ID: "anyone"}); e != znode.OK {
			t.Fatalf("perms %d: %v", perms, e)
		}
		got, e := r.acl(path)
		if perms == 0 {
			if e != znode.NoAuth {
				t.Errorf("a list without permissions: %v %v", got, e)
			}
		} else if e != znode.OK || got[0].Perms != perms {
			t.Errorf("perms %d came back as %v %v", perms, got, e)
		}
	}
	r.must("/closed", "", persistent)
	r.must("/closed/child", "old", persistent)
	if e := r.setACL("/closed", shut); e != znode.OK {
		t.Fatal(e)
	}
	if e := r.set("/closed/child", "new"); e != znode.OK {
		t.Errorf("a child of a closed znode: %v", e)
	}
	if e := r.createACL("/closed/other", znode.OpenACL...); e != znode.NoAuth {
		t.Errorf("create below it: %v", e)
	}
	if e := r.delete("/closed/child"); e != znode.NoAuth {
		t.Errorf("delete below it: %v", e)
	}
	if e := r.delete("/closed"); e != znode.NotEmpty { // its own list does not matter
		t.Errorf("delete of it: %v", e)
	}
	if e := r.createACL("/closed/other", znode.ACL{Scheme: "world", ID: "nobody"}); e != znode.InvalidACL {
		t.Errorf("a bad list below it: %v, want InvalidACL before NoAuth", e)
	}
}

// Goal: a connection is its address, and what it proved, once each; another connection of
// the same session is nobody again. Method: whoAmI between logins and behind a resume.
func TestZooKeeperIdentitiesBelongToTheConnection(t *testing.T) {
	s := startServer(t, Config{SuperDigest: Secret(znode.DigestID("super", "admin"))})
	r := openZK(t, s)
	steps := []struct {
		scheme, data string
		want         []string
	}{
		{"ip", "", []string{"ip:127.0.0.1"}},
		{"digest", "bob:b", []string{"ip:127.0.0.1", "digest:bob"}},
		{"digest", "bob:b", []string{"ip:127.0.0.1", "digest:bob"}},
		{"digest", "bob:other", []string{"ip:127.0.0.1", "digest:bob", "digest:bob"}},
		{"digest", "x", []string{"ip:127.0.0.1", "digest:bob", "digest:bob", "digest:x"}},
		{"digest", "super:admin", []string{"ip:127.0.0.1", "digest:bob", "digest:bob", "digest:x", "super:", "digest:super"}},
	}
	for _, step := range steps {
		if e := r.auth(step.scheme, step.data); e != znode.OK {
			t.Fatalf("%s %s: %v", step.scheme, step.data, e)
		}
		if got := r.whoAmI(); !slices.Equal(got, step.want) {
			t.Errorf("behind %s %s: %v, want %v", step.scheme, step.data, got, step.want)
		}
	}
	again := resumeRaw(t, s, zooKeeper, r.session)
	if got := again.whoAmI(); !slices.Equal(got, []string{"ip:127.0.0.1"}) {
		t.Errorf("behind a resume: %v", got)
	}
}

// Goal: lists are stored as ZooKeeper normalises them. Method: what each list becomes for
// somebody with two logins and for somebody with none, by create, setACL and in a multi.
func TestZooKeeperACLIsNormalised(t *testing.T) {
	s := startServer(t, Config{SuperDigest: Secret(znode.DigestID("super", "admin"))})
	nobody, bob, super := openZK(t, s), openZK(t, s), openZK(t, s)
	bob.auth("digest", "bob:b")
	bob.auth("digest", "alice:a")
	super.auth("digest", "super:admin")
	open, b, a := znode.OpenACL[0], digest(31, "bob", "b"), digest(31, "alice", "a")
	read := znode.ACL{Perms: znode.PermRead, Scheme: "auth", ID: "whatever"}
	for name, row := range map[string]struct {
		r           *rawClient
		given, want []znode.ACL // want nil: InvalidACL
	}{
		"empty":             {bob, nil, nil},
		"triple":            {bob, []znode.ACL{open, open, open}, []znode.ACL{open}},
		"order":             {bob, []znode.ACL{a, open, b, a}, []znode.ACL{a, open, b}},
		"auth":              {bob, []znode.ACL{entry("auth", "ignored")}, []znode.ACL{b, a}},
		"auth twice":        {bob, []znode.ACL{a, entry("auth", ""), entry("auth", "")}, []znode.ACL{a, b}},
		"auth perms":        {bob, []znode.ACL{open, read}, []znode.ACL{open, digest(1, "bob", "b"), digest(1, "alice", "a")}},
		"auth of nobody":    {nobody, []znode.ACL{open, entry("auth", "")}, nil},
		"auth of super":     {super, []znode.ACL{entry("auth", "")}, []znode.ACL{digest(31, "super", "admin")}},
		"one bad of many":   {bob, []znode.ACL{open, b, entry("world", "else")}, nil},
		"unknown scheme":    {bob, []znode.ACL{entry("nonsense", "x")}, nil},
		"super":             {super, []znode.ACL{entry("super", "")}, nil},
		"hash is no secret": {bob, []znode.ACL{entry("digest", "carol:notAHash"), open}, []znode.ACL{entry("digest", "carol:notAHash"), open}},
	} {
		made := row.r.must("/l-", "", sequential)
		results := []znode.Error{row.r.createACL("/"+name, row.given...), row.r.setACL(made, row.given...),
			row.r.multi(&znode.Create{Path: "/multi " + name, ACL: row.given}).Sub[0].Err}
		for i, path := range []string{"/" + name, made, "/multi " + name} {
			if want := row.want == nil; (results[i] == znode.InvalidACL) != want || !want && results[i] != znode.OK {
				t.Errorf("%s: %s: %v", name, path, results[i])
			}
			if row.want == nil {
				continue
			}
			if got, e := super.acl(path); e != znode.OK || !slices.Equal(got, row.want) {
				t.Errorf("%s: %s has %v %v, want %v", name, path, got, e, row.want)
			}
		}
	}
}

// Goal: every scheme takes the ids that it should and no others, and lets in whom its ids
// name. Method: one list per id; those that are stored are tried from 127.0.0.1.
func TestZooKeeperACLSchemes(t *testing.T) {
	s := startServer(t, Config{})
	r := openZK(t, s)
	const invalid, denied, allowed = 0, 1, 2
	for id, want := range map[string]int{
		"world:anyone": allowed, "world:anybody": invalid, "world:": invalid,
		"digest:a:b": denied, "digest::b": denied, "digest:a:": invalid, "digest:a:b:c": invalid, "digest:": invalid, "digest::": invalid,
		"ip:127.0.0.1": allowed, "ip:127.0.0.1/32": allowed, "ip:127.0.0.1/0": allowed, "ip:127.9.9.9/8": allowed,
		"ip:127.0.0.2": denied, "ip:10.0.0.0/8": denied, "ip:127.0.0.2/31": denied, "ip:128.0.0.0/1": denied, "ip:1.2.3.4/0": allowed,
		"ip:1.2.3": invalid, "ip:1.2.3.4/33": invalid, "ip:1.2.3.4/-1": invalid, "ip:1.2.3.4/x": invalid, "ip:host.example": invalid, "ip:": invalid,
		"ip:::1": denied, "ip:2001:db8::/32": denied, // ZooKeeper has these since 3.10
		"x509:CN=client,OU=a+O=b": denied, "x509:somebody": invalid, "x509:": invalid,
		"sasl:user/host@REALM": denied, "sasl:": invalid,
		"super:": invalid, "super:admin": invalid, "auth:": invalid, "nonsense:x": invalid,
	} {
		acl, err := znode.ParseACL(id + ":cdrwa")
		if err != nil || len(acl) != 1 {
			t.Fatal(id, err)
		}
		got := denied
		if e := r.createACL("/x", acl...); e == znode.InvalidACL {
			got = invalid
		} else if e != znode.OK {
			t.Fatalf("%s: %v", id, e)
		} else if _, e := r.get("/x"); e == znode.OK {
			got = allowed
		}
		if got != want {
			t.Errorf("%s: %d, want %d (0 invalid, 1 denied, 2 allowed)", id, got, want)
		}
		if got != invalid {
			r.delete("/x")
		}
	}
}

// Goal: a login that fails is told in its turn, with zxid 0, and ends the connection but
// not the session; what is pipelined behind it is not answered. Another password is
// no failure. Method: every scheme that is none, behind a write and before a read.
func TestZooKeeperLoginFailureEndsTheConnection(t *testing.T) {
	s := startServer(t, Config{})
	for _, scheme := range []string{"world", "auth", "foo", "x509", "sasl", "super", ""} {
		r := openAs(t, s, zooKeeper, 0)
		create := r.send(wire.Request{Op: wire.OpCreate, Body: &znode.Create{Path: "/s-", ACL: znode.OpenACL, Mode: sequential}})
		fine := r.send(wire.Request{Op: wire.OpAuth, Body: &wire.Auth{Scheme: "digest", Data: []byte("a:any")}})
		read := r.send(wire.Request{Op: wire.OpExists, Body: &wire.PathWatch{Path: "/"}})
		fails := r.send(wire.Request{Op: wire.OpAuth, Body: &wire.Auth{Scheme: scheme, Data: []byte("x:y")}})
		r.send(wire.Request{Op: wire.OpExists, Body: &wire.PathWatch{Path: "/"}})
		for _, want := range []struct {
			xid int32
			err znode.Error
		}{{create, znode.OK}, {fine, znode.OK}, {read, znode.OK}, {fails, znode.AuthFailed}} {
			reply := r.next()
			isLogin := want.xid == fine || want.xid == fails
			if reply.Xid != want.xid || reply.Err != want.err || (reply.Zxid == 0) != isLogin {
				t.Errorf("%q: reply %+v, want xid %d %v", scheme, reply, want.xid, want.err)
			}
		}
		if code, more := r.closed(); code != -1 || len(more) > 0 {
			t.Errorf("%q: closed with %d behind %d more messages", scheme, code, len(more))
		}
		if again := resumeRaw(t, s, zooKeeper, r.session); again.session.Session != r.session.Session {
			t.Errorf("%q: the session is gone", scheme)
		}
	}
}

// Goal: sasl is answered as by a ZooKeeper without it: no error and no token. Method: the
// first token of a client, and the connection used behind it.
func TestZooKeeperSASLIsNotConfigured(t *testing.T) {
	r := openZK(t, startServer(t, Config{}))
	reply := r.call(wire.Request{Op: wire.OpSASL, Body: &wire.SASL{Token: []byte{}}})
	if body, ok := reply.Body.(*wire.SASLReply); !ok || reply.Err != znode.OK || body.Token != nil {
		t.Errorf("answered %+v", reply)
	}
	if got := r.whoAmI(); !slices.Equal(got, []string{"ip:127.0.0.1"}) {
		t.Errorf("identities %v", got)
	}
}
