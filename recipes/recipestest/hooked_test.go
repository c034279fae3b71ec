package recipestest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/tenure-dev/tenure/recipes"
)

// Goal: the hooks see every call that a Store has, with its kind and path, and can
// prevent it or replace its outcome. Method: all calls on a fake, three times.
func TestHooked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFake(FakeOptions{Exact: true})
		refuse, replace := errors.New("not done"), errors.New("not told")
		var before, after []Call
		var prevent, spoil bool
		h := &Hooked{
			Store: f.Open(t).Store,
			Before: func(_ context.Context, c Call) error {
				before = append(before, c)
				if prevent {
					return refuse
				}
				return nil
			},
			After: func(_ context.Context, c Call, err error) error {
				after = append(after, c)
				if spoil {
					return replace
				}
				return err
			},
		}
		for i, err := range everyCall(t.Context(), h) {
			if err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		}
		kinds := []OpKind{Create, Get, Get, Exists, Children, Children, Set, Multi, Delete, Sync, Probe}
		var got []OpKind
		watches := 0
		for _, c := range before {
			got = append(got, c.Kind)
			if c.Watch {
				watches++
			}
			if c.Path != "/a" && c.Kind != Probe {
				t.Errorf("kind %d: path %q", c.Kind, c.Path)
			}
		}
		if !slices.Equal(got, kinds) || watches != 3 || len(after) != len(before) {
			t.Errorf("kinds %v, %d watches, %d after", got, watches, len(after))
		}
		prevent = true
		for i, err := range everyCall(t.Context(), h) {
			if !errors.Is(err, refuse) {
				t.Errorf("prevented call %d: %v", i, err)
			}
		}
		if len(after) != len(kinds) || len(f.Nodes("/")) != 0 {
			t.Error("what was prevented was done")
		}
		prevent, spoil = false, true
		for i, err := range everyCall(t.Context(), h) {
			if !errors.Is(err, replace) {
				t.Errorf("spoiled call %d: %v", i, err)
			}
		}
		if n := f.Watches(); n != 0 {
			t.Errorf("%d watches left behind", n)
		}
	})
}

// everyCall makes each call of a Store once and cancels the watches.
func everyCall(ctx context.Context, s recipes.Store) (errs []error) {
	did := func(err error) { errs = append(errs, err) }
	_, err := s.Create(ctx, "/a", nil, persistent)
	did(err)
	_, _, err = s.Get(ctx, "/a")
	did(err)
	_, _, w1, err := s.GetW(ctx, "/a")
	did(err)
	_, _, w2, err := s.ExistsW(ctx, "/a")
	did(err)
	_, _, err = s.Children(ctx, "/a")
	did(err)
	_, _, w3, err := s.ChildrenW(ctx, "/a")
	did(err)
	for _, w := range []recipes.Watch{w1, w2, w3} {
		cancel(w)
	}
	_, err = s.Set(ctx, "/a", nil, recipes.Always())
	did(err)
	_, err = s.Multi(ctx, recipes.OpCheck("/a", recipes.Always()))
	did(err)
	did(s.Delete(ctx, "/a", recipes.Always()))
	did(s.Sync(ctx, "/a"))
	_, err = s.SessionOpen(ctx, s.Session().ID())
	did(err)
	return errs
}
