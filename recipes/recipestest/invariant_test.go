package recipestest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// belief is a Holder that says what it is told to.
type belief struct {
	name  string
	token recipes.Token
	over  bool
}

func (b *belief) Name() string         { return b.name }
func (b *belief) Token() recipes.Token { return b.token }
func (b *belief) Check() error {
	if b.over {
		return recipes.ErrLost
	}
	return nil
}

const ms = time.Millisecond

// span is a tenure with checks from one time to another, each taking no time.
type span struct {
	token       recipes.Token
	first, last time.Duration
}

// record notes spans of the election /e.
func record(i *Invariant, spans ...span) {
	for _, s := range spans {
		h := i.Hold(fmt.Sprint("peer", s.token), &belief{name: "/e", token: s.token})
		h.Checked(s.first, s.first)
		h.Checked(s.last, s.last)
	}
}

// Goal: the largest overlap of any pair is found, is a number also where there is none,
// and only a positive one is a violation. Method: spans whose answer is known.
func TestInvariantOverlap(t *testing.T) {
	for name, c := range map[string]struct {
		spans   []span
		overlap time.Duration
		broken  string // rules
	}{
		"apart":         {[]span{{1, 0, 10 * ms}, {2, 12 * ms, 20 * ms}, {3, 25 * ms, 30 * ms}}, -2 * ms, ""},
		"touching":      {[]span{{1, 0, 10 * ms}, {2, 10 * ms, 20 * ms}}, 0, ""},
		"overlapping":   {[]span{{1, 0, 10 * ms}, {2, 7 * ms, 20 * ms}}, 3 * ms, "I1"},
		"not neighbour": {[]span{{1, 0, 25 * ms}, {2, 30 * ms, 30 * ms}, {3, 20 * ms, 21 * ms}}, 10 * ms, "I1 I2"},
		"one within":    {[]span{{1, 0, 50 * ms}, {2, 10 * ms, 20 * ms}}, 40 * ms, "I1"},
		"backwards":     {[]span{{2, 0, 10 * ms}, {1, 20 * ms, 30 * ms}}, 30 * ms, "I1 I2"},
	} {
		i := NewInvariant(77)
		record(i, c.spans...)
		i.Hold("other", &belief{name: "/other", token: 1}).Checked(0, time.Hour) // of no concern
		r, err := i.Verify()
		if r.Overlap != c.overlap {
			t.Errorf("%s: overlap %v, want %v", name, r.Overlap, c.overlap)
		}
		for _, rule := range []string{"I1", "I2", "I3"} {
			if got := strings.Contains(fmt.Sprint(err), rule); got != strings.Contains(c.broken, rule) {
				t.Errorf("%s: %s is told: %t, want the other (%v)", name, rule, got, err)
			}
		}
		if err != nil && !strings.Contains(err.Error(), "seed 77") {
			t.Errorf("%s: the error does not name the seed: %v", name, err)
		}
	}
}

// Goal: what is not certain is not held against anybody. Method: two checks that may have
// been in either order, because each took some time.
func TestInvariantTakesOnlyWhatIsCertain(t *testing.T) {
	i := NewInvariant(1)
	i.Hold("a", &belief{name: "/e", token: 1}).Checked(0, 10*ms)
	i.Hold("b", &belief{name: "/e", token: 2}).Checked(5*ms, 6*ms)
	if r, err := i.Verify(); err != nil || r.Overlap != -6*ms {
		t.Errorf("overlap %v, %v, want -6ms: the first may have been at once", r.Overlap, err)
	}
}

// Goal: a token given twice is told, and so is a guarded write of a former holder behind
// one of its successor. Method: both; writes acknowledged out of order are none.
func TestInvariantTokensAndWrites(t *testing.T) {
	i := NewInvariant(1)
	one := i.Hold("a", &belief{name: "/e", token: 1})
	two := i.Hold("b", &belief{name: "/e", token: 2})
	two.Wrote(20)
	one.Wrote(10)
	one.Wrote(19)
	if r, err := i.Verify(); err != nil || r.Writes != 3 {
		t.Errorf("%d writes, %v, want 3 and no violation", r.Writes, err)
	}
	one.Wrote(21)
	if _, err := i.Verify(); !strings.Contains(fmt.Sprint(err), "I3") {
		t.Errorf("a write of token 1 landed behind one of token 2: %v", err)
	}
	two.Saw(2)
	two.Saw(3)
	if _, err := i.Verify(); strings.Contains(err.Error(), "landed behind") {
		t.Errorf("what was seen is its own or newer: %v", err)
	}
	two.Saw(1)
	if _, err := i.Verify(); !strings.Contains(err.Error(), "landed behind") {
		t.Errorf("token 2 was written before and then token 1 seen: %v", err)
	}
	i = NewInvariant(1)
	lost := &belief{name: "/e", token: 1, over: true}
	h := i.Hold("a", lost)
	if h.Check() == nil {
		t.Error("a Check passed that fails")
	}
	lost.over = false
	if err := h.Check(); err != nil {
		t.Error(err)
	}
	if _, err := i.Verify(); !strings.Contains(fmt.Sprint(err), "after one had failed") {
		t.Errorf("token 1 came back: %v", err)
	}
	i = NewInvariant(1)
	record(i, span{5, 0, ms}, span{5, 2 * ms, 3 * ms})
	if _, err := i.Verify(); !strings.Contains(fmt.Sprint(err), "given twice") {
		t.Errorf("token 5 was given twice: %v", err)
	}
}

// Goal: hand-over times are those from the end to the next check, clean ones apart.
// Method: three tenures in fake time.
func TestInvariantHandOvers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := NewInvariant(3)
		hold := func(token recipes.Token) *Holding {
			h := i.Hold("p", &belief{name: "/e", token: token})
			if err := h.Check(); err != nil {
				t.Fatal(err)
			}
			return h
		}
		first := hold(1)
		first.Ended()
		first.Released()
		time.Sleep(2 * ms)
		first.Ended() // too late
		second := hold(2)
		time.Sleep(ms)
		if err := second.Check(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(7 * ms)
		last := hold(3)
		i.Faults(true)
		last.Ended()
		last.Released()
		time.Sleep(3 * ms)
		hold(4)
		r, err := i.Verify()
		got := fmt.Sprint(r.Clean, r.Disturbed, r.Lost, err)
		if want := fmt.Sprint("[2ms] [3ms] [7ms] ", nil); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
		if r.HandOvers() != 3 || r.Checks != 5 || r.Overlap != -2*ms {
			t.Errorf("got %v", r)
		}
	})
}

// Goal: AwaitCheck returns at the first Check of a new holder, or at once while there is
// one, and fails at its bound. Method: fake time.
func TestInvariantAwaitCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := NewInvariant(3)
		b := &belief{name: "/e", token: 1}
		go func() {
			time.Sleep(30 * ms)
			i.Hold("p", b).Check()
		}()
		if took, err := i.AwaitCheck(t.Context(), "/e", time.Second); err != nil || took != 30*ms {
			t.Errorf("took %v, %v, want 30ms", took, err)
		}
		time.Sleep(ms)
		if took, err := i.AwaitCheck(t.Context(), "/e", time.Second); err != nil || took != 0 {
			t.Errorf("took %v, %v, want nothing", took, err)
		}
		b.over = true
		if took, err := i.AwaitCheck(t.Context(), "/e", time.Second); err == nil || took != time.Second {
			t.Errorf("took %v, %v, want a second and an error", took, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), ms)
		defer cancel()
		if _, err := i.AwaitCheck(ctx, "/e", time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
	})
}

// Goal: a node too many, one too few and one of a stranger are told; persistent ones are
// of no concern. Method: two sessions on the fake.
func TestInvariantNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFake(FakeOptions{Exact: true})
		a, b := f.Open(t), f.Open(t)
		ctx := t.Context()
		create := func(p *Peer, path string, kind znode.Kind) {
			t.Helper()
			if _, err := p.Store.Create(ctx, path, nil, recipes.CreateSpec{Kind: kind}); err != nil {
				t.Fatal(err)
			}
		}
		want := map[int64]int{a.Store.Session().ID(): 2}
		if err := ExactlyNodes(ctx, a.Store, "/e", nil); err != nil {
			t.Errorf("no directory, none wanted: %v", err)
		}
		create(a, "/e", znode.Persistent)
		create(a, "/e/p", znode.Persistent)
		if err := ExactlyNodes(ctx, b.Store, "/e", want); err == nil {
			t.Error("none of two nodes is there: no error")
		}
		create(a, "/e/1", znode.Ephemeral)
		if err := ExactlyNodes(ctx, b.Store, "/e", want); err == nil {
			t.Error("one of two nodes is there: no error")
		}
		create(a, "/e/2", znode.Ephemeral)
		if err := ExactlyNodes(ctx, b.Store, "/e", want); err != nil {
			t.Error(err)
		}
		create(b, "/e/3", znode.Ephemeral)
		if err := ExactlyNodes(ctx, b.Store, "/e", want); err == nil {
			t.Error("a node of another session: no error")
		}
	})
}

// Goal: what leaks is told, and what only takes a while to go is not.
// Method: one goroutine more, in fake time, and one watch.
func TestFootprint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watches := 0
		before := TakeFootprint(func() int { return watches })
		stop := make(chan struct{})
		go func() { <-stop }()
		if err := before.Flat(t.Context(), nil, 0, time.Second); err == nil {
			t.Error("a goroutine more: no error")
		}
		if err := before.Flat(t.Context(), nil, 1, time.Second); err != nil {
			t.Error(err)
		}
		go func() { time.Sleep(500 * ms); close(stop) }()
		if err := before.Flat(t.Context(), nil, 0, time.Second); err != nil {
			t.Error(err)
		}
		watches = 1
		if err := before.Flat(t.Context(), func() int { return watches }, 0, time.Second); err == nil {
			t.Error("a watch more: no error")
		}
	})
}

// BenchmarkInvariantCheck: what a noted Check costs.
func BenchmarkInvariantCheck(b *testing.B) {
	h := NewInvariant(1).Hold("p", &belief{name: "/e", token: 1})
	for b.Loop() {
		if err := h.Check(); err != nil {
			b.Fatal(err)
		}
	}
}
