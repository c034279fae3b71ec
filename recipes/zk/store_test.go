package zk_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/zk"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: each call does what recipes.Store says, and definite errors are znode.Errors.
// Method: one znode's life on a real server.
func TestStoreCalls(t *testing.T) {
	t.Parallel()
	s, ctx := peer(t).Store, bounded(t)
	path, err := s.Create(ctx, "/a", []byte("1"), recipes.CreateSpec{})
	if err != nil || path != "/a" {
		t.Fatalf("Create = %q, %v", path, err)
	}
	if _, err := s.Create(ctx, "/a", nil, recipes.CreateSpec{}); !errors.Is(err, znode.NodeExists) {
		t.Errorf("second create: %v, want NodeExists", err)
	}
	if _, err := s.Create(ctx, "/none/b", nil, recipes.CreateSpec{}); !errors.Is(err, znode.NoNode) {
		t.Errorf("create without parent: %v, want NoNode", err)
	}
	path, err = s.Create(ctx, "/a/e-", nil, recipes.CreateSpec{Kind: znode.Ephemeral, Sequential: true})
	if err != nil || path != "/a/e-0000000000" {
		t.Fatalf("sequential create = %q, %v", path, err)
	}
	if _, stat, err := s.Get(ctx, path); err != nil || int64(stat.EphemeralOwner) != s.Session().ID() {
		t.Errorf("owner %#x, %v, want the session %#x", stat.EphemeralOwner, err, s.Session().ID())
	}
	if _, err := s.Create(ctx, path+"/x", nil, recipes.CreateSpec{}); !errors.Is(err, znode.NoChildrenForEphemerals) {
		t.Errorf("child of an ephemeral: %v", err)
	}
	if err := s.Delete(ctx, "/a", recipes.Always()); !errors.Is(err, znode.NotEmpty) {
		t.Errorf("delete of a parent: %v, want NotEmpty", err)
	}
	if _, err := s.Set(ctx, "/a", []byte("2"), recipes.IfVersion(7)); !errors.Is(err, znode.BadVersion) {
		t.Errorf("set of version 7: %v, want BadVersion", err)
	}
	if _, err := s.Set(ctx, "/a", nil, recipes.Cond{}); !errors.Is(err, recipes.ErrInvalid) {
		t.Errorf("set with the zero Cond: %v, want ErrInvalid", err)
	}
	stat, err := s.Set(ctx, "/a", []byte("2"), recipes.IfVersion(0))
	if err != nil || stat.Version != 1 || stat.NumChildren != 1 || stat.Czxid == 0 {
		t.Errorf("set = %+v, %v", stat, err)
	}
	data, got, err := s.Get(ctx, "/a")
	if err != nil || string(data) != "2" || got != stat {
		t.Errorf("get = %q, %+v, %v, want 2, %+v", data, got, err, stat)
	}
	names, _, err := s.Children(ctx, "/a")
	if err != nil || !slices.Equal(names, []string{"e-0000000000"}) {
		t.Errorf("children = %q, %v", names, err)
	}
	if _, _, err := s.Children(ctx, "/none"); !errors.Is(err, znode.NoNode) {
		t.Errorf("children of nothing: %v, want NoNode", err)
	}
	must(t, s.Sync(ctx, "/a"))
	must(t, s.Delete(ctx, path, recipes.IfVersion(0)))
	must(t, s.Delete(ctx, "/a", recipes.Always()))
	if err := s.Delete(ctx, "/a", recipes.Always()); !errors.Is(err, znode.NoNode) {
		t.Errorf("second delete: %v, want NoNode", err)
	}
	if _, err := s.SessionOpen(ctx, 1); !errors.Is(err, recipes.ErrUnsupported) {
		t.Errorf("SessionOpen: %v, want ErrUnsupported", err)
	}
	if _, err := s.Create(ctx, "/a", make([]byte, 2<<20), recipes.CreateSpec{}); !errors.Is(err, recipes.ErrInvalid) {
		t.Errorf("create of 2 MiB: %v, want ErrInvalid", err)
	}
	for _, kind := range []znode.Kind{znode.TTL, 99} {
		_, err := s.Create(ctx, "/kind", nil, recipes.CreateSpec{Kind: kind})
		_, merr := s.Multi(ctx, recipes.OpCreate("/kind", nil, recipes.CreateSpec{Kind: kind}))
		if !errors.Is(err, recipes.ErrInvalid) || !errors.Is(merr, recipes.ErrInvalid) {
			t.Errorf("create of kind %d: %v, in a transaction: %v", kind, err, merr)
		}
	}
	if _, err := s.Create(ctx, "a/../b", nil, recipes.CreateSpec{}); !errors.Is(err, znode.BadArguments) {
		t.Errorf("create of a bad path: %v, want BadArguments", err)
	}
}

// Goal: a container is one, and the server removes it. Method: give it a child and take
// it away; the server looks twice a second.
func TestContainer(t *testing.T) {
	t.Parallel()
	s, ctx := peer(t).Store, bounded(t)
	for _, path := range []string{"/c", "/c/x"} {
		_, err := s.Create(ctx, path, nil, recipes.CreateSpec{Kind: znode.Container})
		must(t, err)
	}
	must(t, s.Delete(ctx, "/c/x", recipes.Always()))
	for {
		_, exists, w, err := s.ExistsW(ctx, "/c")
		must(t, err)
		if !exists {
			w.Cancel()
			return
		}
		receive(t, w.C)
	}
}

// Goal: a transaction is all or nothing, tells its results, and names its first failure.
// Method: one that holds, one that does not.
func TestMulti(t *testing.T) {
	t.Parallel()
	s, ctx := peer(t).Store, bounded(t)
	results, err := s.Multi(ctx,
		recipes.OpCreate("/m", []byte("1"), recipes.CreateSpec{Kind: znode.Container}),
		recipes.OpCreate("/m/s-", nil, recipes.CreateSpec{Kind: znode.Ephemeral, Sequential: true}),
		recipes.OpSet("/m", []byte("2"), recipes.IfVersion(0)),
		recipes.OpCheck("/m", recipes.IfVersion(1)),
		recipes.OpDelete("/m/s-0000000000", recipes.Always()))
	must(t, err)
	if results[0].Path != "/m" || results[1].Path != "/m/s-0000000000" || results[2].Stat.Version != 1 {
		t.Errorf("results = %+v", results)
	}
	for _, guarded := range []bool{false, true} { // with and without a change
		ops := []recipes.Op{
			recipes.OpCheck("/m", recipes.Always()),
			recipes.OpCheck("/gone", recipes.Always()),
			recipes.OpCheck("/gone", recipes.Always()),
		}
		if guarded {
			ops = append(ops, recipes.OpSet("/m", []byte("3"), recipes.Always()))
		}
		results, err = s.Multi(ctx, ops...)
		var refused *recipes.MultiError
		if !errors.As(err, &refused) || refused.Index != 1 || refused.Op.Path != "/gone" || !errors.Is(err, znode.NoNode) || results != nil {
			t.Errorf("Multi = %+v, %v, want refused at operation 1 with NoNode", results, err)
		}
	}
	if data, _, err := s.Get(ctx, "/m"); err != nil || string(data) != "2" {
		t.Errorf("data %q, %v after a refused transaction, want 2", data, err)
	}
	if _, err := s.Multi(ctx, recipes.Op{Path: "/m"}); !errors.Is(err, recipes.ErrInvalid) {
		t.Errorf("Multi with the zero Op: %v, want ErrInvalid", err)
	}
	if results, err := s.Multi(ctx); err != nil || len(results) != 0 {
		t.Errorf("empty Multi = %v, %v", results, err)
	}
}

// Goal: with a chroot nothing lands outside, and nothing that is returned shows it.
// Method: a client with the chroot acts, one without looks.
func TestC105Chroot(t *testing.T) {
	t.Parallel()
	plain := peer(t)
	_, err := plain.Store.Create(bounded(t), "/outer", nil, recipes.CreateSpec{})
	must(t, err)
	inside := open(t, zk.Options{Servers: single.Get(t).Addrs(), Chroot: "/app-C105/x"})
	root := open(t, zk.Options{Servers: single.Get(t).Addrs(), Chroot: "/"})
	ctx := bounded(t)
	_, _, self, err := inside.GetW(ctx, "/")
	must(t, err)
	_, _, list, err := inside.ChildrenW(ctx, "/")
	must(t, err)
	_, _, absent, err := inside.ExistsW(ctx, "/m")
	must(t, err)

	path, err := inside.Create(ctx, "/s-", nil, recipes.CreateSpec{Kind: znode.Ephemeral, Sequential: true})
	if err != nil || path != "/s-0000000000" {
		t.Errorf("sequential create = %q, %v", path, err)
	}
	if kind := receive(t, list.C); kind != recipes.Changed {
		t.Errorf("children watch told %v", kind)
	}
	results, err := inside.Multi(ctx, recipes.OpCreate("/m", nil, recipes.CreateSpec{}),
		recipes.OpCreate("/m/s-", nil, recipes.CreateSpec{Sequential: true}),
		recipes.OpSet("/", []byte("root"), recipes.Always()), recipes.OpCheck("/m", recipes.Always()))
	must(t, err)
	if results[0].Path != "/m" || results[1].Path != "/m/s-0000000000" {
		t.Errorf("results show the chroot: %+v", results)
	}
	receive(t, self.C)
	receive(t, absent.C)
	_, errs, err := inside.Session().Renew(ctx, recipes.Held{Path: "/m"}, recipes.Held{Path: "/none"})
	if err != nil || errs[0] != nil || !errors.Is(errs[1], znode.NoNode) {
		t.Errorf("Renew = %v, %v", errs, err)
	}
	for _, path := range []string{"/app-C105/x/s-0000000000", "/app-C105/x/m/s-0000000000"} {
		if _, _, err := root.Get(ctx, path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if data, _, err := root.Get(ctx, "/app-C105/x"); err != nil || string(data) != "root" {
		t.Errorf("the chroot's data is %q, %v", data, err)
	}
	var refused *recipes.MultiError
	if _, err := inside.Multi(ctx, recipes.OpCheck("/none", recipes.Always())); !errors.As(err, &refused) || strings.Contains(err.Error(), "app-C105") {
		t.Errorf("error %v shows the chroot", err)
	}
}

// Goal: identities are presented before any call, and an ACL keeps others out. Method:
// two identities on one znode.
func TestAuthAndACL(t *testing.T) {
	t.Parallel()
	servers, ctx := single.Get(t).Addrs(), bounded(t)
	auth := []zk.Auth{{Scheme: "digest", Secret: "ann:secret"}}
	acl := []znode.ACL{{Perms: znode.PermAll, Scheme: "digest", ID: znode.DigestID("ann", "secret")}}
	ann := open(t, zk.Options{Servers: servers, Auth: auth, ACL: acl})
	_, err := ann.Create(ctx, "/auth-e", nil, recipes.CreateSpec{Kind: znode.Ephemeral})
	must(t, err)
	if _, _, err := ann.Get(ctx, "/auth-e"); err != nil {
		t.Errorf("get as ann: %v", err)
	}
	bob := open(t, zk.Options{Servers: servers})
	if _, _, err := bob.Get(ctx, "/auth-e"); !errors.Is(err, znode.NoAuth) {
		t.Errorf("get as nobody: %v, want NoAuth", err)
	}
	if text := auth[0].String(); strings.Contains(text, "secret:") || strings.Contains(text, "ann") {
		t.Errorf("Auth prints %q", text)
	}
	_, err = zk.Connect(ctx, zk.Options{Servers: servers, Auth: []zk.Auth{{Scheme: "none", Secret: "x"}}})
	if !errors.Is(err, znode.AuthFailed) {
		t.Errorf("Connect with an unknown scheme: %v, want AuthFailed", err)
	}
}
