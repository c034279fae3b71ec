package zk_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/recipes/zk"
	"github.com/tenure-dev/tenure/znode"
)

// writes are all ways to write /w and its neighbour, with how to see that it was done.
var writes = []struct {
	name string
	kind recipestest.OpKind
	do   func(ctx context.Context, s recipes.Store) error
	done func(data string, names []string) bool
}{
	{"create", recipestest.Create, func(ctx context.Context, s recipes.Store) error {
		_, err := s.Create(ctx, "/w/new", nil, recipes.CreateSpec{Kind: znode.Ephemeral})
		return err
	}, func(_ string, names []string) bool { return slices.Contains(names, "new") }},
	{"set", recipestest.Set, func(ctx context.Context, s recipes.Store) error {
		_, err := s.Set(ctx, "/w", []byte("new"), recipes.Always())
		return err
	}, func(data string, _ []string) bool { return data == "new" }},
	{"delete", recipestest.Delete, func(ctx context.Context, s recipes.Store) error {
		return s.Delete(ctx, "/w/old", recipes.Always())
	}, func(_ string, names []string) bool { return !slices.Contains(names, "old") }},
	{"multi", recipestest.Multi, func(ctx context.Context, s recipes.Store) error {
		_, err := s.Multi(ctx, recipes.OpCheck("/w", recipes.Always()), recipes.OpSet("/w", []byte("new"), recipes.Always()))
		return err
	}, func(data string, _ []string) bool { return data == "new" }},
}

// Goal: a write whose answer is lost is ErrUncertain whether it was applied or not, and
// the session lives on. Method: cut each kind of write before it is sent, and after it
// was committed; a second client looks.
func TestWriteOutcomes(t *testing.T) {
	t.Parallel()
	for _, w := range writes {
		for _, applied := range []bool{false, true} {
			h := harness("one", single, "")
			p, other, ctx := h.Open(t), h.Open(t), bounded(t)
			_, err := p.Store.Multi(ctx, recipes.OpCreate("/w", nil, recipes.CreateSpec{}), recipes.OpCreate("/w/old", nil, recipes.CreateSpec{}))
			must(t, err)
			session := p.Store.Session()
			var cut <-chan struct{}
			if applied {
				cut = p.CutAfterCommit(w.kind)
			} else {
				cut = p.CutBeforeSend(w.kind)
			}
			if err := w.do(ctx, p.Store); !errors.Is(err, recipes.ErrUncertain) || ctx.Err() != nil {
				t.Errorf("%s, applied %v: %v, want ErrUncertain", w.name, applied, err)
			}
			receive(t, cut)
			must(t, other.Store.Sync(ctx, "/w"))
			data, _, err := other.Store.Get(ctx, "/w")
			must(t, err)
			names, _, err := other.Store.Children(ctx, "/w")
			must(t, err)
			if w.done(string(data), names) != applied {
				t.Errorf("%s, applied %v: data %q, children %v", w.name, applied, data, names)
			}
			must(t, p.Store.Sync(ctx, "/w"))
			if p.Store.Session() != session || session.Err() != nil {
				t.Errorf("%s: the session is over: %v", w.name, session.Err())
			}
		}
	}
}

// Goal: a read whose answer is lost is asked again, and so are a Sync and a renewal.
// Method: cut each kind once.
func TestReadsAreRepeated(t *testing.T) {
	t.Parallel()
	p, ctx := peer(t), bounded(t)
	s := p.Store
	for _, r := range []struct {
		kind recipestest.OpKind
		do   func() error
	}{
		{recipestest.Get, func() error { _, _, err := s.Get(ctx, "/"); return err }},
		{recipestest.Get, func() error { _, _, _, err := s.GetW(ctx, "/"); return err }},
		{recipestest.Exists, func() error { _, _, _, err := s.ExistsW(ctx, "/x"); return err }},
		{recipestest.Children, func() error { _, _, err := s.Children(ctx, "/"); return err }},
		{recipestest.Children, func() error { _, _, _, err := s.ChildrenW(ctx, "/"); return err }},
		{recipestest.Sync, func() error { return s.Sync(ctx, "/") }},
		{recipestest.Renew, func() error { _, _, err := s.Session().Renew(ctx); return err }},
	} {
		for _, arm := range []func(recipestest.OpKind) <-chan struct{}{p.CutAfterCommit, p.CutBeforeSend} {
			cut := arm(r.kind)
			if err := r.do(); err != nil {
				t.Errorf("kind %v: %v", r.kind, err)
			}
			receive(t, cut)
		}
	}
}

// Goal: a ctx that ends tells what is known: a read and a write that was not sent give
// its error alone, a write on its way ErrUncertain too. Method: hold an answer, then break the
// connection for good.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	p, ctx := peer(t), bounded(t)
	_, err := p.Store.Create(ctx, "/c", nil, recipes.CreateSpec{})
	must(t, err)
	_, release := p.Hold(recipestest.Set)
	_, err = p.Store.Set(within(t, 100*time.Millisecond), "/c", nil, recipes.Always())
	if !errors.Is(err, recipes.ErrUncertain) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a write on its way: %v, want ErrUncertain and the ctx's error", err)
	}
	release()
	must(t, p.Store.Sync(ctx, "/"))

	p.Partition()
	p.Break()
	awaitState(t, p.Store.Session(), recipes.Suspended)
	for _, w := range writes {
		err := w.do(within(t, 20*time.Millisecond), p.Store)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, recipes.ErrUncertain) {
			t.Errorf("%s while there is no connection: %v, want the ctx's error alone", w.name, err)
		}
	}
	if _, _, err := p.Store.Get(within(t, 20*time.Millisecond), "/c"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("get while there is no connection: %v", err)
	}
	p.Heal()
	must(t, p.Store.Sync(ctx, "/"))
}

// Goal: what a session sends later does not overtake a write that was abandoned, so that
// a Sync settles what became of it. Method: abandon creates at random moments, Sync, look
// twice: what was not there must not come later.
func TestAbandonedWriteIsSettledBySync(t *testing.T) {
	t.Parallel()
	p, ctx := peer(t), bounded(t)
	for i := range 200 {
		short, cancel := context.WithTimeout(ctx, time.Duration(i)*3*time.Microsecond)
		name, err := p.Store.Create(short, "/n-", nil, recipes.CreateSpec{Sequential: true})
		cancel()
		must(t, p.Store.Sync(ctx, "/"))
		before, _, e := p.Store.Children(ctx, "/")
		must(t, e)
		if err == nil && !slices.Contains(before, name[1:]) {
			t.Fatalf("%s was made and is not there", name)
		}
		if err == nil || !errors.Is(err, recipes.ErrUncertain) {
			continue
		}
		must(t, p.Store.Sync(ctx, "/"))
		if after, _, e := p.Store.Children(ctx, "/"); e != nil || len(after) != len(before) {
			t.Fatalf("%d znodes after Sync, later %d, %v", len(before), len(after), e)
		}
	}
}

// Goal: an abandoned write holds later calls back until it is answered. Method: hold the
// answer of a create whose caller leaves; a later call must not return before it.
func TestLaterCallsWaitForAbandonedWrite(t *testing.T) {
	t.Parallel()
	p, ctx := peer(t), bounded(t)
	held, release := p.Hold(recipestest.Create)
	_, err := p.Store.Create(within(t, 100*time.Millisecond), "/a", nil, recipes.CreateSpec{})
	if !errors.Is(err, recipes.ErrUncertain) {
		t.Fatal(err)
	}
	receive(t, held)
	if err := p.Store.Sync(within(t, 50*time.Millisecond), "/"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Sync while the create is on its way: %v", err)
	}
	release()
	must(t, p.Store.Sync(ctx, "/"))
	if _, _, err := p.Store.Get(ctx, "/a"); err != nil {
		t.Error(err)
	}
}

// Goal: nobody to connect to is an error within ctx, and options are checked. Method: a
// port that nobody listens on.
func TestConnectFails(t *testing.T) {
	t.Parallel()
	start := time.Now()
	_, err := zk.Connect(within(t, 200*time.Millisecond), zk.Options{Servers: []string{"127.0.0.1:1"}})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 3*time.Second {
		t.Errorf("Connect: %v after %v", err, time.Since(start))
	}
	for _, o := range []zk.Options{
		{}, {Servers: []string{""}}, {Servers: []string{"a:1"}, Chroot: "x"},
		{Servers: []string{"a:1"}, Timeout: -1}, {Servers: []string{"::1"}},
	} {
		if _, err := zk.Connect(t.Context(), o); !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("Connect(%+v): %v, want ErrInvalid", o, err)
		}
	}
}
