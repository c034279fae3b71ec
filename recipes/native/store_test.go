package native

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: each write is applied once and its caller told so, whenever the connection is
// lost. Method: every kind of write, its answer cut off, or itself, or held and then
// broken; what was written is counted by another client.
func TestC037WritesOnceOverReconnects(t *testing.T) {
	t.Parallel()
	b := startBackend(t, nil)
	p := b.peer(t, patience)
	ctx := t.Context()
	create(t, p.Store, "/n", znode.Persistent)
	cuts := map[string]func(k recipestest.OpKind) (hit func()){
		"after commit": func(k recipestest.OpKind) func() {
			done := p.CutAfterCommit(k)
			return func() { receive(t, "a cut after commit", done) }
		},
		"before send": func(k recipestest.OpKind) func() {
			done := p.CutBeforeSend(k)
			return func() { receive(t, "a cut before sending", done) }
		},
		"held": func(k recipestest.OpKind) func() {
			held, _ := p.Hold(k)
			return func() { receive(t, "a held answer", held); p.Break() }
		},
	}
	writes := map[recipestest.OpKind]func(dir string) error{
		recipestest.Create: func(dir string) error {
			path, err := p.Store.Create(ctx, dir+"/s-", nil, recipes.CreateSpec{Kind: znode.Ephemeral, Sequential: true})
			return wantPath(path, dir+"/s-0000000001", err)
		},
		recipestest.Set: func(dir string) error {
			stat, err := p.Store.Set(ctx, dir, []byte("new"), recipes.IfVersion(0))
			return wantVersion(stat, 1, err)
		},
		recipestest.Delete: func(dir string) error { return p.Store.Delete(ctx, dir+"/old", recipes.IfVersion(0)) },
		recipestest.Multi: func(dir string) error {
			_, err := p.Store.Multi(ctx, recipes.OpDelete(dir+"/old", recipes.Always()),
				recipes.OpCreate(dir+"/old", []byte("again"), recipes.CreateSpec{}))
			return err
		},
	}
	for kind, write := range writes {
		for name, cut := range cuts {
			dir := fmt.Sprintf("/n/%d-%s", kind, name)
			create(t, p.Store, dir, znode.Persistent)
			create(t, p.Store, dir+"/old", znode.Persistent)
			hit := cut(kind)
			outcome := make(chan error, 1)
			go func() { outcome <- write(dir) }()
			hit()
			if err, _ := receive(t, "the outcome of "+dir, outcome); err != nil {
				t.Errorf("%s: %v", dir, err)
			}
			_, stat, err := b.watching.Get(ctx, dir, client.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := map[recipestest.OpKind][3]int32{
				recipestest.Create: {0, 2, 2}, recipestest.Set: {1, 1, 1},
				recipestest.Delete: {0, 2, 0}, recipestest.Multi: {0, 3, 1},
			}[kind]
			if got := [3]int32{stat.Version, stat.Cversion, stat.NumChildren}; got != want {
				t.Errorf("%s: version, cversion and children are %v, want %v", dir, got, want)
			}
		}
	}
}

func wantPath(got, want string, err error) error {
	if err == nil && got != want {
		return fmt.Errorf("created %s, want %s", got, want)
	}
	return err
}

func wantVersion(s znode.Stat, want int32, err error) error {
	if err == nil && s.Version != want {
		return fmt.Errorf("version %d, want %d", s.Version, want)
	}
	return err
}

// Goal: a transaction tells per operation what became of it, and one that was refused
// which operation was the cause. Method: one of all kinds, then the same with each
// operation spoilt in turn.
func TestMulti(t *testing.T) {
	t.Parallel()
	s := startBackend(t, nil).store(t, client.Options{})
	ctx := t.Context()
	for _, path := range []string{"/m", "/m/set", "/m/check"} {
		create(t, s, path, znode.Persistent)
	}
	ops := func() []recipes.Op {
		return []recipes.Op{
			recipes.OpCheck("/m/check", recipes.IfVersion(0)),
			recipes.OpCreate("/m/new-", []byte("x"), recipes.CreateSpec{Kind: znode.Ephemeral, Sequential: true}),
			recipes.OpSet("/m/set", []byte("y"), recipes.Always()),
			recipes.OpCreate("/m/gone", nil, recipes.CreateSpec{Kind: znode.Container}),
			recipes.OpDelete("/m/gone", recipes.Always()),
		}
	}
	got, err := s.Multi(ctx, ops()...)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 5 || got[1].Path != "/m/new-0000000002" || got[2].Stat.Version != 1 || got[3].Path != "/m/gone" {
		t.Errorf("results %+v", got)
	}
	_, stat, err := s.Get(ctx, got[1].Path)
	if err != nil || int64(stat.EphemeralOwner) != s.Session().ID() {
		t.Errorf("the new znode is owned by %v (%v), want this session", stat.EphemeralOwner, err)
	}
	for i, spoilt := range []struct {
		op   recipes.Op
		code znode.Error
	}{
		{recipes.OpCheck("/m/check", recipes.IfVersion(3)), znode.BadVersion},
		{recipes.OpCreate("/no/new-", nil, recipes.CreateSpec{Sequential: true}), znode.NoNode},
		{recipes.OpSet("/m/no", nil, recipes.Always()), znode.NoNode},
		{recipes.OpCreate("/m/check", nil, recipes.CreateSpec{}), znode.NodeExists},
		{recipes.OpDelete("/m", recipes.Always()), znode.NotEmpty},
	} {
		list := ops()
		list[i] = spoilt.op
		results, err := s.Multi(ctx, list...)
		var m *recipes.MultiError
		if !errors.As(err, &m) || m.Index != i || m.Op.Path != spoilt.op.Path || !errors.Is(err, spoilt.code) || results != nil {
			t.Errorf("operation %d spoilt: results %v, error %v", i, results, err)
		}
	}
	for _, bad := range []recipes.Op{{}, {Kind: 9, Cond: recipes.Always()}, recipes.OpSet("/m", nil, recipes.Cond{}), recipes.OpSet("m", nil, recipes.Always())} {
		_, err := s.Multi(ctx, bad)
		wantClasses(t, fmt.Sprintf("a transaction of %+v", bad), err, "invalid")
	}
	if got, err := s.Multi(ctx); err != nil || len(got) != 0 {
		t.Errorf("a transaction of nothing: %v, %v", got, err)
	}
}

// Goal: reads tell what is there, see the writes of others, and what is null, empty,
// missing or a container stays so. Method: one of each.
func TestReads(t *testing.T) {
	t.Parallel()
	b := startBackend(t, nil)
	s := b.store(t, client.Options{})
	ctx := t.Context()
	stat := create(t, s, "/r", znode.Container)
	if _, err := s.Create(ctx, "/r/empty", []byte{}, recipes.CreateSpec{}); err != nil {
		t.Fatal(err)
	}
	if data, _, err := s.Get(ctx, "/r"); err != nil || data != nil {
		t.Errorf("null data became %v, %v", data, err)
	}
	if data, _, err := s.Get(ctx, "/r/empty"); err != nil || data == nil || len(data) != 0 {
		t.Errorf("empty data became %v, %v", data, err)
	}
	if _, _, err := b.watching.Create(ctx, "/r/other", nil, client.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	names, got, err := s.Children(ctx, "/r")
	if slices.Sort(names); err != nil || !slices.Equal(names, []string{"empty", "other"}) || got.Czxid != stat.Czxid || got.NumChildren != 2 {
		t.Errorf("children %v of %+v, %v", names, got, err)
	}
	found, there, w, err := s.ExistsW(ctx, "/r")
	if err != nil || !there || found.Czxid != stat.Czxid {
		t.Errorf("exists: %+v, %v, %v", found, there, err)
	}
	w.Cancel()
	if err := s.Sync(ctx, "/r"); err != nil {
		t.Error(err)
	}
	if _, life, err := b.watching.Stat(ctx, "/r", client.ReadOptions{}); err != nil || life.Kind != znode.Container {
		t.Errorf("the container is a %v, %v", life.Kind, err)
	}
	for _, name := range names {
		if err := s.Delete(ctx, "/r/"+name, recipes.Always()); err != nil {
			t.Fatal(err)
		}
	}
	b.reap(t)
	if _, there, _, err := s.ExistsW(ctx, "/r"); err != nil || there {
		t.Errorf("the emptied container is still there: %v, %v", there, err)
	}
}

// Goal: below a chroot all paths are those of the caller, in transactions, renewals and
// watches too. Method: the same calls with and without it.
func TestC105Chroot(t *testing.T) {
	t.Parallel()
	b := startBackend(t, nil)
	whole := b.store(t, client.Options{})
	create(t, whole, "/app", znode.Persistent)
	s := b.store(t, client.Options{Endpoints: []string{"ws://" + b.addr() + "/app"}})
	stat := create(t, s, "/x", znode.Ephemeral)
	_, _, w, err := s.ChildrenW(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Multi(t.Context(), recipes.OpCheck("/x", recipes.Always()), recipes.OpCreate("/y-", nil, recipes.CreateSpec{Sequential: true}))
	if err != nil || got[1].Path != "/y-0000000001" {
		t.Errorf("transaction: %+v, %v", got, err)
	}
	if kind, _ := receive(t, "the watch", w.C); kind != recipes.Changed {
		t.Errorf("the watch told %d", kind)
	}
	_, err = s.Multi(t.Context(), recipes.OpDelete("/app", recipes.Always()))
	if m, ok := errors.AsType[*recipes.MultiError](err); !ok || m.Op.Path != "/app" || !errors.Is(err, znode.NoNode) {
		t.Errorf("outside the chroot: %v", err)
	}
	_, verdicts, err := s.Session().Renew(t.Context(), recipes.Held{Path: "/x", Czxid: stat.Czxid})
	if err != nil || verdicts[0] != nil {
		t.Errorf("renewal: %v, %v", verdicts, err)
	}
	names, _, err := whole.Children(context.Background(), "/app")
	if slices.Sort(names); err != nil || !slices.Equal(names, []string{"x", "y-0000000001"}) {
		t.Errorf("below /app: %v, %v", names, err)
	}
}

// Goal: what one client was told is committed, another one reads, with and without a
// Sync before. Method: a counter written by one and read by the other, each time after
// the write was answered.
func TestC039ReadsSeeWhatWasTold(t *testing.T) {
	t.Parallel()
	b := startBackend(t, nil)
	writer, reader := b.store(t, client.Options{}), b.store(t, client.Options{})
	create(t, writer, "/k", znode.Persistent)
	for k := int32(1); k <= 300; k++ {
		stat, err := writer.Set(t.Context(), "/k", nil, recipes.IfVersion(k-1))
		if err := wantVersion(stat, k, err); err != nil {
			t.Fatal(err)
		}
		if k%2 == 0 {
			if err := reader.Sync(t.Context(), "/k"); err != nil {
				t.Fatal(err)
			}
		}
		_, stat, err = reader.Get(t.Context(), "/k")
		if err := wantVersion(stat, k, err); err != nil {
			t.Fatal(err)
		}
	}
	if err := reader.Sync(t.Context(), "/missing"); err != nil {
		t.Errorf("Sync needs no znode: %v", err)
	}
}
