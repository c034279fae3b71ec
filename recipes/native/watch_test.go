package native

import (
	"context"
	"runtime"
	"testing"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/server"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// watches sets one of each kind: on /w, on its children, and on what is missing.
func watches(t testing.TB, s recipes.Store) map[string]recipes.Watch {
	t.Helper()
	all := map[string]recipes.Watch{}
	_, _, w, err := s.GetW(t.Context(), "/w")
	if err != nil {
		t.Fatal(err)
	}
	all["get"] = w
	if _, _, w, err = s.ChildrenW(t.Context(), "/w"); err != nil {
		t.Fatal(err)
	}
	all["children"] = w
	_, there, w, err := s.ExistsW(t.Context(), "/w/new")
	if err != nil || there {
		t.Fatalf("a missing znode exists: %v, %v", there, err)
	}
	all["exists"] = w
	return all
}

// change fires the watches by what another client does.
func change(t testing.TB, b *backend) {
	t.Helper()
	if _, _, err := b.watching.Create(t.Context(), "/w/new", nil, client.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.watching.Set(t.Context(), "/w", nil, -1); err != nil {
		t.Fatal(err)
	}
}

// wantTold checks that each watch tells want and nothing behind it.
func wantTold(t testing.TB, all map[string]recipes.Watch, want recipes.EventKind) {
	t.Helper()
	for name, w := range all {
		if kind, ok := receive(t, "the "+name+" watch", w.C); !ok || kind != want {
			t.Errorf("the %s watch told %d (%v), want %d", name, kind, ok, want)
		}
		if kind, ok := receive(t, "the end of the "+name+" watch", w.C); ok {
			t.Errorf("the %s watch told %d besides", name, kind)
		}
		w.Cancel()
		w.Cancel()
	}
}

// Goal: a watch tells one change, also one that came while its client was away, and also
// where the server's history does not reach back so far. Method: changes by another
// client in an open connection, in a partition, over a restart, and behind a history of
// one change.
func TestWatchTellsChanges(t *testing.T) {
	t.Parallel()
	b := startBackend(t, func(c *server.Config) { c.HistoryCount = 1 })
	long := b.store(t, client.Options{})
	p := b.peer(t, patience)
	for _, row := range []struct {
		name  string
		store recipes.Store
		play  func()
	}{
		{"connected", p.Store, func() { change(t, b) }},
		{"broken", p.Store, func() { p.Partition(); p.Break(); change(t, b); p.Heal() }},
		{"restarted", long, func() { change(t, b); b.restart(t, 0) }},
	} {
		stat := create(t, p.Store, "/w", znode.Persistent)
		all := watches(t, row.store)
		row.play()
		if from := b.figure(t, "history from zxid"); int64(from) <= stat.Czxid {
			t.Errorf("%s: the history reaches back to %d, before the change", row.name, from)
		}
		wantTold(t, all, recipes.Changed)
		for _, path := range []string{"/w/new", "/w"} {
			if err := long.Delete(t.Context(), path, recipes.Always()); err != nil {
				t.Fatalf("%s: %v", row.name, err)
			}
		}
	}
	if kind := kindOf(wire.Event{Type: wire.EventGap}); kind != recipes.Gap {
		t.Errorf("missing events are told as %d, want Gap", kind)
	}
}

// Goal: a watch ends with its session, by expiry and by Close, and says so; one that was
// cancelled says nothing. Method: each kind over each end.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	b := startBackend(t, nil)
	p, closing := b.peer(t, shortTimeout), b.peer(t, shortTimeout)
	create(t, p.Store, "/w", znode.Persistent)

	cancelled := watches(t, p.Store)
	for name, w := range cancelled {
		w.Cancel()
		if kind, ok := receive(t, "the end of a cancelled watch", w.C); ok {
			t.Errorf("the cancelled %s watch told %d", name, kind)
		}
	}
	all := watches(t, p.Store)
	p.Expire(t)
	wantTold(t, all, recipes.Ended)

	all = watches(t, closing.Store)
	if err := closing.Store.Close(); err != nil {
		t.Fatal(err)
	}
	wantTold(t, all, recipes.Ended)
	if _, _, _, err := closing.Store.GetW(t.Context(), "/w"); err == nil {
		t.Error("a watch was set after Close")
	}
}

// Goal: watches cost no goroutine while they wait and leave nothing when they are
// cancelled, neither here nor on the server. Method: 10 000 at once, then 10 000 one
// after the other; count goroutines, and watches by the server's own figure.
func TestWatchesAreFlat(t *testing.T) {
	b := startBackend(t, nil)
	s := b.store(t, client.Options{})
	create(t, s, "/w", znode.Persistent)
	const n = 10_000
	base := runtime.NumGoroutine()
	flat := func(when string, watches int) {
		t.Helper()
		await(t, "watches and goroutines to settle "+when, func(context.Context) (bool, error) {
			return runtime.NumGoroutine() <= base+2 && b.figure(t, "watches") == watches, nil
		})
	}
	open := make([]recipes.Watch, 0, n)
	for range n {
		_, _, w, err := s.GetW(t.Context(), "/w")
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, w)
	}
	flat("with all of them open", 1) // one registration serves all of one path
	for _, w := range open {
		w.Cancel()
	}
	flat("when all are cancelled", 0)
	for range n {
		_, _, w, err := s.GetW(t.Context(), "/w")
		if err != nil {
			t.Fatal(err)
		}
		w.Cancel()
	}
	flat("after as many cycles", 0)
}

// Goal: a cancelled watch does not take another one of the same znode with it. Method:
// two of a path, one cancelled while the other's answer is held back.
func TestCancelLeavesOthers(t *testing.T) {
	t.Parallel()
	b := startBackend(t, nil)
	p := b.peer(t, patience)
	create(t, p.Store, "/w", znode.Persistent)
	_, _, first, err := p.Store.GetW(t.Context(), "/w")
	if err != nil {
		t.Fatal(err)
	}
	held, release := p.Hold(recipestest.Get)
	second := make(chan recipes.Watch, 1)
	go func() {
		defer close(second)
		if _, _, w, err := p.Store.GetW(context.Background(), "/w"); err == nil {
			second <- w
		}
	}()
	receive(t, "a held answer", held)
	first.Cancel()
	release()
	w, ok := receive(t, "the second watch", second)
	if !ok {
		t.Fatal("the second watch was not set")
	}
	if _, err := b.watching.Set(t.Context(), "/w", nil, -1); err != nil {
		t.Fatal(err)
	}
	if kind, ok := receive(t, "the second watch's event", w.C); !ok || kind != recipes.Changed {
		t.Errorf("the second watch told %d (%v)", kind, ok)
	}
}
