package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: an update whose answer is lost is applied once with history, and without it once
// or reported as uncertain, never silently twice. Method: the connection is cut behind or
// before each write of a counter, while another one counts too.
func TestConfigUncertainUpdate(t *testing.T) {
	for _, history := range []int{0, 2} {
		flavours(t, func(t *testing.T, f *recipestest.Fake) {
			p := f.Open(t)
			c, other := newConfig(t, p.Store, history), newConfig(t, f.Open(t).Store, history)
			applied, uncertain := 0, 0
			for i := range 60 {
				var cut <-chan struct{}
				if i%2 == 0 {
					cut = p.CutAfterCommit(recipestest.AnyWrite)
				} else {
					cut = p.CutBeforeSend(recipestest.AnyWrite)
				}
				rival := make(chan error, 1)
				go func() {
					if i%3 == 0 {
						_, err := other.Update(t.Context(), increment)
						rival <- err
						return
					}
					rival <- errors.New("none")
				}()
				_, err := c.Update(t.Context(), increment)
				<-cut
				switch {
				case err == nil:
					applied++
				case errors.Is(err, recipes.ErrUncertain):
					uncertain++
				default:
					t.Fatal(err)
				}
				if <-rival == nil {
					applied++
				}
			}
			v, err := c.Get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			n, err := strconv.Atoi(v.V)
			if err != nil || n < applied || n > applied+uncertain || history > 0 && uncertain > 0 {
				t.Errorf("counted to %s, %v: %d applied, %d uncertain", v.V, err, applied, uncertain)
			}
		})
	}
}

// Goal: Set over a lost answer needs no history: what is stored decides. Method: cut
// behind the set, and behind the create.
func TestConfigUncertainSet(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		c := newConfig(t, p.Store, 0)
		keepNode(t, p.Store, "/cfg/app/other", "") // so that the directory is there
		for i, kind := range []recipestest.OpKind{recipestest.Create, recipestest.Set} {
			cut := p.CutAfterCommit(kind)
			v := setConfig(t, c, "v"+strconv.Itoa(i))
			<-cut
			got, err := c.Get(t.Context())
			if err != nil || got.V != v.V || got.Stat.Mzxid != v.Stat.Mzxid || got.Stat.Version != int32(i) {
				t.Errorf("%v: %+v, %v; set returned %+v", kind, got, err, v)
			}
		}
	})
}

// Goal: a write whose ctx ends says that its outcome is unknown, or that it was not sent.
// Method: partition before the write, and while its answer is held.
func TestConfigWriteGivenUp(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		c := newConfig(t, p.Store, 0)
		setConfig(t, c, "one")
		held, goOn := p.Hold(recipestest.Set)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Set(ctx, "two")
		<-held
		if !errors.Is(err, recipes.ErrUncertain) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("answer held: %v", err)
		}
		goOn()
		settle(time.Second)
		p.Partition()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Set(ctx, "three"); err == nil || errors.Is(err, recipes.ErrConflict) {
			t.Errorf("partitioned: %v", err)
		}
		p.Heal()
		settle(10 * time.Second)
		if v, err := c.Get(t.Context()); err != nil || v.V != "two" {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

// Goal: the last versions are kept, numbered upwards, readable, and can be made current
// again; neither a deletion nor foreign nodes confuse them; bad ones stay behind. Method:
// ten writes with room for three, a deletion, an unknown number.
func TestConfigHistory(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		s := f.Open(t).Store
		c := newConfig(t, s, 3)
		if all, err := c.History(t.Context()); err != nil || len(all) > 0 {
			t.Fatalf("%+v, %v", all, err)
		}
		for i := range 10 {
			setConfig(t, c, fmt.Sprint("v", i))
		}
		if _, err := s.Create(t.Context(), configPath+"-history/notes", nil, recipes.CreateSpec{}); err != nil {
			t.Fatal(err)
		}
		versions := func(want ...string) []recipes.Version[string] {
			t.Helper()
			all, err := c.History(t.Context())
			if err != nil || len(all) != len(want) {
				t.Fatalf("%+v, %v; want %q", all, err, want)
			}
			for i, v := range all {
				if v.V != want[i] || v.Err != nil || v.WrittenAt.IsZero() || i > 0 && v.Number >= all[i-1].Number {
					t.Errorf("version %d is %+v, want %q", i, v, want[i])
				}
			}
			return all
		}
		all := versions("v9", "v8", "v7")
		v, err := c.Revert(t.Context(), all[2].Number)
		if err != nil || v.V != "v7" || v.Stat.Version != 10 {
			t.Errorf("revert: %+v, %v", v, err)
		}
		versions("v7", "v9", "v8")
		if _, err := c.Revert(t.Context(), all[2].Number-1); !errors.Is(err, znode.NoNode) {
			t.Errorf("a number that is not kept: %v", err)
		}
		if err := s.Delete(t.Context(), configPath, recipes.Always()); err != nil {
			t.Fatal(err)
		}
		if v := setConfig(t, c, "new"); v.Stat.Version != 0 || v.Stat.Czxid == 0 {
			t.Errorf("after a deletion: %+v", v)
		}
		versions("new", "v7", "v9")
		strict, err := recipes.NewConfig(s, configPath, recipes.Text{}, recipes.ConfigOptions[string]{
			History:  1,
			Validate: func(v string) error { return map[string]error{"v7": errors.New("too old")}[v] },
		})
		if err != nil {
			t.Fatal(err)
		}
		old, err := strict.History(t.Context())
		if err != nil || old[1].Err == nil {
			t.Errorf("%+v, %v", old, err)
		}
		if _, err := strict.Revert(t.Context(), old[1].Number); !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("revert to what is not valid: %v", err)
		}
		if _, err := strict.Set(t.Context(), "last"); err != nil {
			t.Fatal(err)
		}
		c = strict
		versions("last")
	})
}
