package zk_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/recipes/zk"
	"github.com/tenure-dev/tenure/znode"
)

// silent fails the test if something was told on c.
func silent(t testing.TB, what string, c <-chan recipes.EventKind) {
	t.Helper()
	select {
	case kind, ok := <-c:
		t.Errorf("%s told %v, %v", what, kind, ok)
	default:
	}
}

// Goal: each watch tells what it is for, once, to all who share it. Method: two of each
// kind on one znode, changes by the same session, whose answers come after the events.
func TestWatchKinds(t *testing.T) {
	t.Parallel()
	s, ctx := peer(t).Store, bounded(t)
	get := func() recipes.Watch { _, _, w, err := s.GetW(ctx, "/w"); must(t, err); return w }
	exists := func() recipes.Watch { _, _, w, err := s.ExistsW(ctx, "/w"); must(t, err); return w }
	children := func() recipes.Watch { _, _, w, err := s.ChildrenW(ctx, "/w"); must(t, err); return w }
	create := func() { _, err := s.Create(ctx, "/w", nil, recipes.CreateSpec{}); must(t, err) }
	set := func() { _, err := s.Set(ctx, "/w", nil, recipes.Always()); must(t, err) }
	child := func() { _, err := s.Create(ctx, "/w/c", nil, recipes.CreateSpec{}); must(t, err) }
	remove := func(path string) func() { return func() { must(t, s.Delete(ctx, path, recipes.Always())) } }
	for _, step := range []struct {
		name    string
		change  func()
		waiting []func() recipes.Watch
		told    []bool
	}{
		{"create", create, []func() recipes.Watch{exists, exists}, []bool{true, true}},
		{"set", set, []func() recipes.Watch{get, exists, get, children}, []bool{true, true, true, false}},
		{"child", child, []func() recipes.Watch{get, children, children, exists}, []bool{false, true, true, false}},
		{"child's end", remove("/w/c"), []func() recipes.Watch{get, children}, []bool{false, true}},
		{"delete", remove("/w"), []func() recipes.Watch{get, exists, children}, []bool{true, true, true}},
	} {
		var ws []recipes.Watch
		for _, f := range step.waiting {
			ws = append(ws, f())
		}
		step.change()
		for i, w := range ws {
			if !step.told[i] {
				silent(t, step.name, w.C)
				w.Cancel()
				w.Cancel()
				continue
			}
			if kind := receive(t, w.C); kind != recipes.Changed {
				t.Errorf("%s: watch %d told %v", step.name, i, kind)
			}
			if _, open := <-w.C; open {
				t.Errorf("%s: watch %d told twice", step.name, i)
			}
		}
	}
	if keys, waiting := zk.WatchTable(s.Session()); keys != 0 || waiting != 0 {
		t.Errorf("%d keys, %d watches in the table, want none: the znode is gone", keys, waiting)
	}
}

// Goal: P14: a read that finds nothing leaves no watch behind, except ExistsW. Method:
// look into the table.
func TestP14NoWatchOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	s, ctx := peer(t).Store, bounded(t)
	if _, _, _, err := s.GetW(ctx, "/x"); !errors.Is(err, znode.NoNode) {
		t.Error(err)
	}
	if _, _, _, err := s.ChildrenW(ctx, "/x"); !errors.Is(err, znode.NoNode) {
		t.Error(err)
	}
	if keys, _ := zk.WatchTable(s.Session()); keys != 0 {
		t.Errorf("%d keys in the table", keys)
	}
	_, exists, w, err := s.ExistsW(ctx, "/x")
	if _, waiting := zk.WatchTable(s.Session()); exists || err != nil || waiting != 1 {
		t.Errorf("ExistsW = %v, %v with %d watches", exists, err, waiting)
	}
	w.Cancel()
	// One who comes later shares the armed watch, and must not miss the event.
	_, _, later, err := s.ExistsW(ctx, "/x")
	must(t, err)
	_, err = s.Create(ctx, "/x", nil, recipes.CreateSpec{})
	must(t, err)
	receive(t, later.C)
	silent(t, "a canceled watch", w.C)
}

// Goal: a connection that breaks ends every watch with Gap, and those made afterwards see
// the changes after it and are not missed. Method: break it 20 times.
func TestGap(t *testing.T) {
	t.Parallel()
	h := harness("one", single, "")
	p, other, ctx := h.Open(t), h.Open(t), bounded(t)
	_, err := p.Store.Create(ctx, "/g", nil, recipes.CreateSpec{})
	must(t, err)
	for range 20 {
		_, _, data, err := p.Store.GetW(ctx, "/g")
		must(t, err)
		_, _, list, err := p.Store.ChildrenW(ctx, "/")
		must(t, err)
		p.Break()
		for _, w := range []recipes.Watch{data, list} {
			if kind := receive(t, w.C); kind != recipes.Gap {
				t.Fatalf("told %v, want Gap", kind)
			}
		}
		_, stat, again, err := p.Store.GetW(ctx, "/g")
		must(t, err)
		_, err = other.Store.Set(ctx, "/g", nil, recipes.Always())
		must(t, err)
		for kind := receive(t, again.C); ; kind = receive(t, again.C) {
			_, now, w, err := p.Store.GetW(ctx, "/g")
			must(t, err)
			if now.Version > stat.Version {
				w.Cancel()
				break
			}
			t.Logf("%v and nothing has changed: read too early", kind)
			again = w
		}
	}
}

// Goal: watches end with Ended when the session expires and when the store is closed,
// also those made afterwards. Method: both.
func TestEnded(t *testing.T) {
	t.Parallel()
	for _, end := range []func(*recipestest.Peer){
		func(p *recipestest.Peer) { p.Expire(t) },
		func(p *recipestest.Peer) { must(t, p.Store.Close()) },
	} {
		p := peer(t)
		_, _, w, err := p.Store.ExistsW(bounded(t), "/x")
		must(t, err)
		end(p)
		kind := receive(t, w.C)
		if kind != recipes.Ended && kind != recipes.Gap { // Gap if the connection broke first
			t.Errorf("told %v", kind)
		}
	}
}

// Goal: P60: watches that are made and canceled leave nothing behind, neither in the
// table nor in the library. Method: 10 000 times on one znode, then on many that are
// deleted.
func TestP60WatchesLeaveNothing(t *testing.T) {
	t.Parallel()
	s, ctx := peer(t).Store, bounded(t)
	arms := 0
	for i := range 10_000 {
		_, _, w, err := s.GetW(ctx, "/")
		must(t, err)
		w.Cancel()
		if keys, waiting := zk.WatchTable(s.Session()); keys != 1 || waiting != 0 {
			t.Fatalf("cycle %d: %d keys, %d watches", i, keys, waiting)
		}
	}
	if arms = zk.LibraryWatches(s.Session()); arms != 1 {
		t.Errorf("the library holds %d watches after 10 000 cycles on one znode, want 1", arms)
	}
	for i := range 200 {
		path := fmt.Sprintf("/n%d", i)
		_, err := s.Create(ctx, path, nil, recipes.CreateSpec{})
		must(t, err)
		_, _, w, err := s.GetW(ctx, path)
		must(t, err)
		w.Cancel()
		must(t, s.Delete(ctx, path, recipes.Always()))
	}
	if keys, _ := zk.WatchTable(s.Session()); keys != 1 || zk.LibraryWatches(s.Session()) != 1 {
		t.Errorf("%d keys, %d watches in the library after the znodes are gone, want 1", keys, zk.LibraryWatches(s.Session()))
	}
}
