package znode_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/znode"
)

// TestC059EntriesAreORed follows the report: one good entry is enough, whatever the
// others say; duplicates are kept once; nobody can store an empty list, and a list
// that is empty all the same (from old data) denies nothing.
func TestC059EntriesAreORed(t *testing.T) {
	f := newFixture(t)
	f.auth = []znode.Identity{{Scheme: "ip", ID: "10.0.0.1"}}
	world := znode.ACL{Perms: znode.PermAll, Scheme: "world", ID: "anyone"}
	bob := znode.ACL{Perms: znode.PermRead, Scheme: "digest", ID: "bob:H"}
	op := create("/l")
	op.ACL = []znode.ACL{bob, world, bob, world}
	f.must(op)
	if got := f.Node("/l").ACL; !slices.Equal(got, []znode.ACL{bob, world}) {
		t.Errorf("stored %v", got)
	}
	f.must(&znode.SetData{Path: "/l", Version: -1})
	f.must(create("/l/c"))
	f.must(&znode.Delete{Path: "/l/c", Version: -1})
	f.fails(znode.InvalidACL, &znode.SetACL{Path: "/l", ACL: []znode.ACL{}, Version: -1})
	f.must(&znode.SetACL{Path: "/l", ACL: []znode.ACL{bob, {Perms: 0, Scheme: "world", ID: "anyone"}}, Version: -1})
	f.fails(znode.NoAuth, &znode.SetData{Path: "/l", Version: -1})
	if !znode.AccessAdmin.Allowed(nil, nil) {
		t.Error("an empty list denies")
	}
}

// TestC061HashesAreMasked asks for a list as everybody of the report.
func TestC061HashesAreMasked(t *testing.T) {
	list := []znode.ACL{
		{Perms: znode.PermAll, Scheme: "digest", ID: "alice:H"}, {Perms: znode.PermRead, Scheme: "digest", ID: "bob:H"},
	}
	as := func(ids ...znode.Identity) string {
		if !znode.AccessReadACL.Allowed(list, ids) {
			return "NoAuth"
		}
		return znode.FormatACL(znode.MaskACL(list, ids))
	}
	alice, bob := znode.Identity{Scheme: "digest", ID: "alice:H"}, znode.Identity{Scheme: "digest", ID: "bob:H"}
	if got := as(); got != "NoAuth" {
		t.Errorf("anonymous sees %s", got)
	}
	if got := as(bob); got != "digest:alice:x:cdrwa,digest:bob:x:r" {
		t.Errorf("bob sees %s", got)
	}
	if got := as(alice); got != "digest:alice:H:cdrwa,digest:bob:H:r" {
		t.Errorf("alice sees %s", got)
	}
	if got := as(znode.Identity{Scheme: "super"}); !strings.Contains(got, "alice:H") {
		t.Errorf("super sees %s", got)
	}
	if list[0].ID != "alice:H" {
		t.Error("masking changed the list itself")
	}
}

// TestChangesCarryAccessLists checks whose lists a Change has: delivery of events is
// judged by them.
func TestChangesCarryAccessLists(t *testing.T) {
	f := newFixture(t)
	parent := []znode.ACL{{Perms: 29, Scheme: "world", ID: "anyone"}}
	child := []znode.ACL{{Perms: 31, Scheme: "digest", ID: "u:h"}}
	op := create("/p")
	op.ACL = parent
	f.must(op)
	op = create("/p/c")
	op.ACL = child
	_, created := f.do(op)
	f.auth = []znode.Identity{{Scheme: "digest", ID: "u:h"}}
	_, changed := f.do(&znode.SetData{Path: "/p/c", Version: -1})
	_, deleted := f.do(&znode.Delete{Path: "/p/c", Version: -1})
	for _, test := range []struct {
		name       string
		c          znode.Change
		wantParent []znode.ACL
	}{{"created", created.Changes[0], parent}, {"changed", changed.Changes[0], nil}, {"deleted", deleted.Changes[0], parent}} {
		if !slices.Equal(test.c.ACL, child) || !slices.Equal(test.c.ParentACL, test.wantParent) {
			t.Errorf("%s: list %v, parent's %v", test.name, test.c.ACL, test.c.ParentACL)
		}
	}
}

// TestAuthenticate uses the hashes that ZooKeeper's documentation and suites use.
func TestAuthenticate(t *testing.T) {
	super := znode.DigestID("super", "test")
	if want := "super:D/InIHSb7yEEbrWz8b9l71RjZJU="; super != want {
		t.Errorf("DigestID %s, want %s", super, want)
	}
	for _, test := range []struct {
		scheme, data string
		want         []znode.Identity
		err          znode.Error
	}{
		{"digest", "user:pw", []znode.Identity{{Scheme: "digest", ID: "user:2Om+GBbT2q/tS6pdvACZbbm7/1A="}}, znode.OK},
		{"digest", "super:admin", []znode.Identity{{Scheme: "digest", ID: "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="}}, znode.OK},
		{"digest", "super:test", []znode.Identity{{Scheme: "super"}, {Scheme: "digest", ID: super}}, znode.OK},
		{"digest", "x", []znode.Identity{{Scheme: "digest", ID: "x:EfatjsUqKYSrqv18O1FlA3hcIHI="}}, znode.OK},
		{"ip", "1.2.3.4", nil, znode.OK},
		{"world", "anyone", nil, znode.AuthFailed},
		{"auth", "", nil, znode.AuthFailed},
		{"super", "", nil, znode.AuthFailed},
		{"x509", "CN=a", nil, znode.AuthFailed},
		{"", "", nil, znode.AuthFailed},
	} {
		got, err := znode.Authenticate(test.scheme, []byte(test.data), super)
		if err != test.err || !slices.Equal(got, test.want) {
			t.Errorf("%s %q: %v, %v; want %v, %v", test.scheme, test.data, got, err, test.want, test.err)
		}
	}
	if got, _ := znode.Authenticate("digest", []byte("super:test"), ""); len(got) != 1 {
		t.Errorf("without a super digest: %v", got)
	}
}

// TestACLBounds checks that neither a long list nor its expansion is taken.
func TestACLBounds(t *testing.T) {
	f := newFixture(t)
	long := func(n int, scheme string) *znode.Create {
		op := create("/l")
		op.ACL = nil
		for i := range n {
			op.ACL = append(op.ACL, znode.ACL{Perms: int32(i), Scheme: scheme, ID: "anyone"})
		}
		return op
	}
	f.fails(znode.InvalidACL, long(znode.ACLEntriesMax+1, "world"))
	f.auth = []znode.Identity{{Scheme: "digest", ID: "a:b"}, {Scheme: "digest", ID: "c:d"}}
	f.fails(znode.InvalidACL, long(znode.ACLEntriesMax/2+1, "auth"))
	f.must(long(znode.ACLEntriesMax, "world"))
}

// TestParseACL checks the text form in both directions and the errors.
func TestParseACL(t *testing.T) {
	for _, s := range []string{
		"world:anyone:cdrwa", "digest:u:h=:rw,ip:10.0.0.0/8:r", "ip:2001:db8::1:c", "auth::a", "x509:CN=a,O=b:cd,world:anyone:",
	} {
		list, err := znode.ParseACL(s)
		if err != nil || znode.FormatACL(list) != s {
			t.Errorf("%s: %v, %v", s, znode.FormatACL(list), err)
		}
	}
	for _, s := range []string{"", "world", "world:anyone", "world:anyone:x", "world:anyone:r,", ":anyone", " ::", "a:b:r,c"} {
		list, err := znode.ParseACL(s)
		if !errors.Is(err, znode.InvalidACL) {
			t.Errorf("%q: %v, %v", s, list, err)
		}
	}
}

// FuzzACL gives lists of any form to all that reads them: nothing may panic, what
// prints must parse to the same, and what a create stores must pass Verify.
func FuzzACL(f *testing.F) {
	for _, s := range []string{"world:anyone:cdrwa", "ip:1.2.3.4/8:r", "x509:CN=\"a,b\"+O=c\\,d:r", "digest::b:r", "auth::r"} {
		f.Add(s, "10.0.0.1")
	}
	f.Fuzz(func(t *testing.T, s, id string) {
		list, err := znode.ParseACL(s)
		if err != nil {
			return
		}
		again, err := znode.ParseACL(znode.FormatACL(list))
		if err != nil || !slices.Equal(list, again) {
			t.Fatalf("%q prints as %q and parses as %v, %v", list, znode.FormatACL(list), again, err)
		}
		var ids []znode.Identity
		for _, scheme := range []string{"ip", "digest", "x509", "sasl"} {
			ids = append(ids, znode.Identity{Scheme: scheme, ID: id})
		}
		znode.AccessRead.Allowed(list, ids)
		znode.MaskACL(list, ids)
		tree := znode.NewTree()
		tree.Apply(znode.Stamp{}, &znode.Txn{Auth: ids, Op: &znode.Create{Path: "/x", ACL: list}})
		for _, p := range znode.Verify(tree) {
			t.Errorf("%q: %v", list, p)
		}
	})
}
