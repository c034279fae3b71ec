package recipes_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

func newBarrier(t *testing.T, s recipes.Store, path string) *recipes.Barrier {
	t.Helper()
	b, err := recipes.NewBarrier(s, path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// storm plays everything on p that wakes whoever waits without being the reason for it.
func storm(t *testing.T, p *recipestest.Peer, expire bool) {
	t.Helper()
	for range 20 {
		p.Break()
		time.Sleep(50 * time.Millisecond)
	}
	p.FailSetWatches()
	p.Break()
	time.Sleep(time.Second)
	p.Partition()
	time.Sleep(4 * time.Second)
	p.Heal()
	time.Sleep(time.Second)
	if expire {
		p.Expire(t)
		time.Sleep(time.Second)
	}
}

// Goal: whoever waits passes when the barrier is lowered and not before; raising and
// lowering may be repeated. Method: in fake time, with a barrier deep in a tree that is
// not there.
func TestBarrier(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		a, b := newBarrier(t, f.Open(t).Store, "/a/b/c"), newBarrier(t, f.Open(t).Store, "/a/b/c")
		if err := b.Wait(t.Context()); err != nil {
			t.Errorf("wait at none: %v", err)
		}
		for range 2 {
			for range 2 {
				if err := a.Raise(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			lowered := false
			time.AfterFunc(time.Minute, func() {
				lowered = true
				for range 2 {
					if err := a.Lower(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
			if err := b.Wait(t.Context()); err != nil || !lowered {
				t.Errorf("wait: %v, lowered: %v", err, lowered)
			}
			synctest.Wait()
		}
		if n := f.Watches(); n != 0 {
			t.Errorf("%d watches are left", n)
		}
	})
}

// Goal: Wait returns nil only after a read says that the barrier is lowered. Method:
// breaks, watches that end, a partition and an expired session while it is raised; then
// ends of ctx and of the store, which are errors.
func TestP76BarrierWaitNeedsARead(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		p, other := f.Open(t), newBarrier(t, f.Open(t).Store, "/b")
		b := newBarrier(t, p.Store, "/b")
		if err := other.Raise(t.Context()); err != nil {
			t.Fatal(err)
		}
		outcome := make(chan error, 1)
		go func() { outcome <- b.Wait(t.Context()) }()
		storm(t, p, true)
		select {
		case err := <-outcome:
			t.Fatalf("wait at a raised barrier: %v", err)
		default:
		}
		if err := other.Lower(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-outcome; err != nil {
			t.Errorf("wait at a lowered barrier: %v", err)
		}
		if err := other.Raise(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait for 1 s: %v", err)
		}
		go func() { outcome <- b.Wait(t.Context()) }()
		time.Sleep(time.Second)
		if err := p.Store.Close(); err != nil {
			t.Error(err)
		}
		if err := <-outcome; !errors.Is(err, recipes.ErrSessionClosed) {
			t.Errorf("wait in a closed store: %v", err)
		}
	})
}

// Goal: a barrier that was raised before Wait is waited for, though the member that is
// asked lags. Method: of four followers the waiter's lags.
func TestP76BarrierWaitOnAMemberThatLags(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{Members: 5}, func(t *testing.T, f *recipestest.Fake) {
		raiser, waiter := f.Open(t), f.Open(t)
		if waiter.Lag == nil {
			t.Fatal("the fake's members do not lag")
		}
		waiter.Lag(2 * time.Second)
		if err := newBarrier(t, raiser.Store, "/b").Raise(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := newBarrier(t, waiter.Store, "/b").Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait at a raised barrier: %v", err)
		}
	})
}

// Goal: answers that are lost neither fail nor undo what was asked for. Method: drop the
// answer, and then the request, of each write.
func TestP10BarrierAnswersLost(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		b := newBarrier(t, p.Store, "/dir/b")
		for _, arm := range []func(recipestest.OpKind) <-chan struct{}{p.CutAfterCommit, p.CutBeforeSend} {
			arm(recipestest.Create)
			if err := b.Raise(t.Context()); err != nil {
				t.Errorf("raise: %v", err)
			}
			if nodes := f.Nodes("/dir/b"); len(nodes) != 1 {
				t.Errorf("raised: %v", nodes)
			}
			arm(recipestest.Delete)
			if err := b.Lower(t.Context()); err != nil {
				t.Errorf("lower: %v", err)
			}
			if nodes := f.Nodes("/dir/b"); len(nodes) != 0 {
				t.Errorf("lowered: %v", nodes)
			}
		}
		// Raised anew by another while the answer is lost: that one stays raised.
		if err := b.Raise(t.Context()); err != nil {
			t.Fatal(err)
		}
		cut := p.CutAfterCommit(recipestest.Delete)
		lowered := make(chan error)
		go func() { lowered <- b.Lower(t.Context()) }()
		<-cut
		p.Partition()
		if err := newBarrier(t, f.Open(t).Store, "/dir/b").Raise(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.Heal()
		if err := <-lowered; err != nil || len(f.Nodes("/dir/b")) != 1 {
			t.Errorf("lower: %v, left: %v", err, f.Nodes("/dir/b"))
		}
	})
}
