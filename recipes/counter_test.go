package recipes_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// onFakes runs test in a bubble on both flavours of the backend in memory.
func onFakes(t *testing.T, o recipestest.FakeOptions, test func(t *testing.T, f *recipestest.Fake)) {
	for _, exact := range []bool{true, false} {
		o.Exact = exact
		name := map[bool]string{true: "tenure", false: "zookeeper"}[exact]
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, recipestest.NewFake(o)) })
		})
	}
}

// newCounter is a counter through a client of its own.
func newCounter(t *testing.T, s recipes.Store, path string) *recipes.Counter {
	t.Helper()
	c, err := recipes.NewCounter(s, path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantCount fails unless the counter is n.
func wantCount(t *testing.T, c *recipes.Counter, n int64) {
	t.Helper()
	if got, err := c.Get(t.Context()); got != n || err != nil {
		t.Errorf("counter is %d, %v; want %d", got, err, n)
	}
}

// Goal: an addition of unknown outcome is settled though others added since, as long as
// that can be told, and is ErrUncertain afterwards; it never counts twice. Method: the
// client is away after a write whose answer (or itself) is lost, while many small or 70
// different adders go on.
func TestP08CounterIsSettledLate(t *testing.T) {
	for _, tc := range []struct {
		name               string
		applied            bool
		adders, each       int64
		uncertain          bool
		wantSum, wantCount int64
	}{
		{"applied, 5 adders", true, 5, 40, false, 1, 201},
		{"not applied, 5 adders", false, 5, 40, false, 201, 201},
		{"applied, 70 adders", true, 70, 1, true, 0, 71},
		{"not applied, 70 adders", false, 70, 1, true, 0, 70},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := recipestest.NewFake(recipestest.FakeOptions{})
				p, other := f.Open(t), f.Open(t)
				c := newCounter(t, p.Store, "/counter")
				if _, err := c.Add(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
				arm := p.CutBeforeSend
				if tc.applied {
					arm = p.CutAfterCommit
				}
				cut := arm(recipestest.Set)
				var sum int64
				var err error
				added := make(chan struct{})
				go func() {
					defer close(added)
					sum, err = c.Add(t.Context(), 1)
				}()
				<-cut
				p.Partition()
				for range tc.adders {
					adder := newCounter(t, other.Store, "/counter")
					for range tc.each {
						if _, err := adder.Add(t.Context(), 1); err != nil {
							t.Fatal(err)
						}
					}
				}
				p.Heal()
				<-added
				if sum != tc.wantSum || errors.Is(err, recipes.ErrUncertain) != tc.uncertain || !tc.uncertain && err != nil {
					t.Errorf("add: %d, %v; want %d, uncertain %v", sum, err, tc.wantSum, tc.uncertain)
				}
				wantCount(t, c, tc.wantCount)
			})
		})
	}
}

// Goal: an addition whose ctx ends says whether it may have counted. Method: end ctx
// while the answer is held back, and while nothing can be sent.
func TestP08CounterOutOfTime(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		c := newCounter(t, p.Store, "/counter")
		if _, err := c.Add(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		_, release := p.Hold(recipestest.Set)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := c.Add(ctx, 1)
		cancel()
		if !errors.Is(err, recipes.ErrUncertain) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("add that may have counted: %v", err)
		}
		release()
		wantCount(t, c, 2)
		p.Partition()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		_, err = c.Add(ctx, 1)
		cancel()
		if errors.Is(err, recipes.ErrUncertain) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("add that did not count: %v", err)
		}
		p.Heal()
		wantCount(t, c, 2)
	})
}

// Goal: those who lose a race do not race again together. Method: 50 clients add at
// once. With full jitter most of the tries succeed, so there are few for each.
func TestP50CounterBacksOff(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		var adders sync.WaitGroup
		for range 50 {
			c := newCounter(t, f.Open(t).Store, "/counter")
			adders.Go(func() {
				if _, err := c.Add(t.Context(), 1); err != nil {
					t.Error(err)
				}
			})
		}
		adders.Wait()
		if writes := f.Stats().Writes; writes > 50*8 {
			t.Errorf("%d writes for 50 additions", writes)
		}
	})
}

// Goal: ranges are disjoint and gapless; what int64 cannot hold is refused and changes
// nothing; so is a znode that is not a counter's. Method: reserve, and add at the edges.
func TestCounterReserveAndBounds(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		s, ctx := f.Open(t).Store, t.Context()
		c := newCounter(t, s, "/counter")
		wantCount(t, c, 0)
		for i := range int64(3) {
			if lo, hi, err := c.Reserve(ctx, 100); lo != 100*i || hi != 100*(i+1) || err != nil {
				t.Errorf("reserve: (%d, %d], %v", lo, hi, err)
			}
		}
		if _, _, err := c.Reserve(ctx, 0); !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("reserve 0: %v", err)
		}
		for _, delta := range []int64{math.MaxInt64 - 300, math.MinInt64, math.MinInt64 + 1} {
			if _, err := c.Add(ctx, delta); err != nil {
				t.Errorf("add %d: %v", delta, err)
			}
		}
		wantCount(t, c, math.MaxInt64-300+300+math.MinInt64+math.MinInt64+1)
	})
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		s, ctx := f.Open(t).Store, t.Context()
		c := newCounter(t, s, "/counter")
		for _, edge := range []int64{math.MaxInt64, math.MinInt64} {
			n, err := c.Get(ctx)
			if err == nil {
				_, err = c.Add(ctx, -n)
			}
			if err == nil {
				_, err = c.Add(ctx, edge)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Add(ctx, edge/math.MaxInt64); !errors.Is(err, recipes.ErrInvalid) {
				t.Errorf("beyond %d: %v", edge, err)
			}
			wantCount(t, c, edge)
		}
		if _, err := s.Create(ctx, "/other", []byte("text"), recipes.CreateSpec{}); err != nil {
			t.Fatal(err)
		}
		if _, err := newCounter(t, s, "/other").Add(ctx, 1); !errors.Is(err, recipes.ErrInvalid) || errors.Is(err, recipes.ErrUncertain) {
			t.Errorf("add to text: %v", err)
		}
		if _, err := recipes.NewCounter(s, "/"); !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("counter at /: %v", err)
		}
	})
}
