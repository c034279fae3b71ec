package recipes_test

import (
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
