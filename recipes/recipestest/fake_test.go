package recipestest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

var (
	seqEphemeral = recipes.CreateSpec{Kind: znode.Ephemeral, Sequential: true}
	ephemeral    = recipes.CreateSpec{Kind: znode.Ephemeral}
	persistent   = recipes.CreateSpec{}
)

// flavours runs test in a bubble for both flavours.
func flavours(t *testing.T, o FakeOptions, test func(t *testing.T, f *Fake)) {
	for _, exact := range []bool{true, false} {
		o.Exact = exact
		name := map[bool]string{true: "tenure", false: "zookeeper"}[exact]
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, NewFake(o)) })
		})
	}
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// gets waits for the end of w and reports what it told, if anything.
func gets(w recipes.Watch) (recipes.EventKind, bool) {
	e, ok := <-w.C
	return e, ok
}

// Goal: the plain calls do what a Store's do. Method: each once, with its error codes.
func TestFakeTree(t *testing.T) {
	flavours(t, FakeOptions{}, func(t *testing.T, f *Fake) {
		s, ctx := f.Open(t).Store, t.Context()
		must(s.Create(ctx, "/a", []byte("x"), persistent))(t)
		if _, err := s.Create(ctx, "/a", nil, persistent); !errors.Is(err, znode.NodeExists) {
			t.Errorf("second create: %v", err)
		}
		if _, err := s.Create(ctx, "/b/c", nil, persistent); !errors.Is(err, znode.NoNode) {
			t.Errorf("create without parent: %v", err)
		}
		if p := must(s.Create(ctx, "/a/n-", nil, seqEphemeral))(t); p != "/a/n-0000000000" {
			t.Errorf("sequential: %s", p)
		}
		must(s.Create(ctx, "/a/other", nil, persistent))(t)
		if p := must(s.Create(ctx, "/a/n-", nil, seqEphemeral))(t); p != "/a/n-0000000002" {
			t.Errorf("the counter counts every child: %s", p)
		}
		names, stat, err := s.Children(ctx, "/a")
		check(t, err)
		slices.Sort(names)
		if !slices.Equal(names, []string{"n-0000000000", "n-0000000002", "other"}) || stat.Cversion != 3 {
			t.Errorf("children %v, cversion %d", names, stat.Cversion)
		}
		if err := s.Delete(ctx, "/a", recipes.Always()); !errors.Is(err, znode.NotEmpty) {
			t.Errorf("delete a parent: %v", err)
		}
		if st := must(s.Set(ctx, "/a", []byte("y"), recipes.IfVersion(0)))(t); st.Version != 1 || st.Mzxid <= st.Czxid {
			t.Errorf("set: %+v", st)
		}
		if _, err := s.Set(ctx, "/a", nil, recipes.IfVersion(0)); !errors.Is(err, znode.BadVersion) {
			t.Errorf("set an old version: %v", err)
		}
		if _, err := s.Set(ctx, "/a", nil, recipes.Cond{}); !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("zero Cond: %v", err)
		}
		for _, kind := range []znode.Kind{znode.TTL, 99} {
			_, err := s.Create(ctx, "/kind", nil, recipes.CreateSpec{Kind: kind})
			_, merr := s.Multi(ctx, recipes.OpCreate("/kind", nil, recipes.CreateSpec{Kind: kind}))
			if !errors.Is(err, recipes.ErrInvalid) || !errors.Is(merr, recipes.ErrInvalid) {
				t.Errorf("create a znode of kind %d: %v, in a transaction: %v", kind, err, merr)
			}
		}
		data, st, err := s.Get(ctx, "/a")
		check(t, err)
		if string(data) != "y" || st.Version != 1 {
			t.Errorf("get: %q %+v", data, st)
		}
		check(t, s.Sync(ctx, "/"))
	})
}

// Goal: a transaction is applied whole or not at all, and says where it failed. Method:
// one of each.
func TestFakeMulti(t *testing.T) {
	flavours(t, FakeOptions{}, func(t *testing.T, f *Fake) {
		s, ctx := f.Open(t).Store, t.Context()
		r, err := s.Multi(ctx, recipes.OpCreate("/a", nil, persistent), recipes.OpSet("/a", []byte("x"), recipes.IfVersion(0)),
			recipes.OpCreate("/a/n-", nil, seqEphemeral), recipes.OpCheck("/a", recipes.IfVersion(1)))
		check(t, err)
		if r[0].Path != "/a" || r[1].Stat.Version != 1 || r[2].Path != "/a/n-0000000000" {
			t.Errorf("results %+v", r)
		}
		_, err = s.Multi(ctx, recipes.OpDelete("/a/n-0000000000", recipes.Always()), recipes.OpCheck("/none", recipes.Always()))
		me, ok := errors.AsType[*recipes.MultiError](err)
		if !ok || me.Index != 1 || !errors.Is(err, znode.NoNode) {
			t.Errorf("refused: %v", err)
		}
		if got := f.Nodes("/a"); !slices.Equal(got, []string{"/a", "/a/n-0000000000"}) {
			t.Errorf("nodes %v", got)
		}
	})
}

// Goal: watches fire once, for the right change, and are gone then. Method: all three
// kinds against creation, change and deletion.
func TestFakeWatches(t *testing.T) {
	flavours(t, FakeOptions{}, func(t *testing.T, f *Fake) {
		a, b, ctx := f.Open(t).Store, f.Open(t).Store, t.Context()
		_, found, w, err := a.ExistsW(ctx, "/x")
		check(t, err)
		if found {
			t.Error("it exists")
		}
		_, _, root, err := a.ChildrenW(ctx, "/")
		check(t, err)
		must(b.Create(ctx, "/x", nil, persistent))(t)
		for _, w := range []recipes.Watch{w, root} {
			if e, ok := gets(w); !ok || e != recipes.Changed {
				t.Errorf("event %v %v", e, ok)
			}
			if _, ok := gets(w); ok {
				t.Error("a second event")
			}
		}
		_, _, data, err := a.GetW(ctx, "/x")
		check(t, err)
		_, _, children, err := a.ChildrenW(ctx, "/x")
		check(t, err)
		must(b.Create(ctx, "/x/y", nil, persistent))(t)
		gets(children)
		synctest.Wait()
		if n := f.Watches(); n != 1 {
			t.Errorf("%d watches, want that of the data", n)
		}
		must(b.Set(ctx, "/x", nil, recipes.Always()))(t)
		gets(data)
		if _, _, _, err := a.GetW(ctx, "/none"); !errors.Is(err, znode.NoNode) {
			t.Errorf("watch nothing: %v", err)
		}
		_, _, c, err := a.GetW(ctx, "/x")
		check(t, err)
		c.Cancel()
		c.Cancel()
		if f.Watches() != 0 || f.StatsOf(a).Events != 4 {
			t.Errorf("%d watches, %d events", f.Watches(), f.StatsOf(a).Events)
		}
	})
}

// Goal: a session ends when its client is gone, not before, and takes its ephemerals
// along. Method: partition, and look from another client.
func TestFakeExpiry(t *testing.T) {
	flavours(t, FakeOptions{}, func(t *testing.T, f *Fake) {
		a, b, ctx := f.Open(t), f.Open(t), t.Context()
		must(a.Store.Create(ctx, "/e", nil, ephemeral))(t)
		time.Sleep(time.Minute)
		if len(f.Nodes("/e")) != 1 {
			t.Fatal("an idle session ended")
		}
		old := a.Store.Session()
		proof, _, err := old.Renew(ctx)
		check(t, err)
		a.Partition()
		_, _, w, err := b.Store.ExistsW(ctx, "/e")
		check(t, err)
		gets(w)
		if gone := time.Since(proof.Sent); gone < proof.TTL || gone > proof.TTL+3*time.Second {
			t.Errorf("gone %v after the renewal was sent", gone)
		}
		<-old.Done()
		if !errors.Is(old.Err(), recipes.ErrSessionExpired) || old.State() != recipes.Over {
			t.Errorf("%v %v", old.State(), old.Err())
		}
		next := a.Store.Session()
		if next == old || next.State() != recipes.Connecting || next.ID() != 0 {
			t.Errorf("the next session is %v", next.State())
		}
		a.Heal()
		must(a.Store.Create(ctx, "/e", nil, ephemeral))(t)
	})
}

// Goal: Close ends the session for all others at once, without leaving goroutines, and
// calls say so. Method: as said; the bubble counts the goroutines.
func TestFakeClose(t *testing.T) {
	flavours(t, FakeOptions{}, func(t *testing.T, f *Fake) {
		a, b, ctx := f.Open(t).Store, f.Open(t).Store, context.Background()
		must(a.Create(ctx, "/e", nil, ephemeral))(t)
		_, _, w, err := a.GetW(ctx, "/")
		check(t, err)
		check(t, a.Close())
		if e, ok := gets(w); !ok || e != recipes.Ended {
			t.Errorf("watch: %v %v", e, ok)
		}
		if len(f.Nodes("/")) != 0 || len(f.Sessions()) != 1 {
			t.Error("the session is still there")
		}
		if _, _, err := a.Get(ctx, "/e"); !errors.Is(err, recipes.ErrSessionClosed) {
			t.Errorf("get: %v", err)
		}
		check(t, a.Close())
		check(t, b.Close())
	})
}
