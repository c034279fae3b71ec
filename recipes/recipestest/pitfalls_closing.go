package recipestest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// pitfallsOfClosing are about the code of users, ends, and what is left behind.
var pitfallsOfClosing = []pitfall{
	{52, "UserCodeBlocksRenewals", nil, userCodeBlocks},
	{53, "ReleasedBeforeWorkEnded", []verb{verbPartition}, releasedBeforeWorkEnded},
	{54, "StoppedWithoutStarted", []verb{verbExpire}, stoppedWithoutStarted},
	{55, "OneShotElector", []verb{verbExpire}, oneShotElector},
	{56, "ElectionDiesQuietly", nil, electionDiesQuietly},
	{57, "RequeueLost", nil, requeueLost},
	{58, "CloseHangsWithoutNetwork", []verb{verbPartition}, closeHangs},
	{59, "DoubleClose", nil, doubleClose},
	{60, "Leaks", nil, leaks},
	{61, "EventsDropped", []verb{verbBreak}, eventsDropped},
	{62, "ReleaseWipesOthersLease", []verb{verbExpire, verbPartition}, releaseWipesOthers},
	{63, "StopWithoutReason", []verb{verbPartition, verbExpire}, stopWithoutReason},
}

// hooked makes a candidate with hooks.
func (s scene) hooked(store recipes.Store, id string, hooks recipes.Hooks) *recipes.Election {
	s.t.Helper()
	e, err := recipes.NewElection(store, s.dir, recipes.ElectionOptions{Options: recipes.Options{ID: id, Hooks: hooks}})
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

// Goal: hooks that block hold up nothing but later hooks. Method: they block for many
// session timeouts; the tenure goes on, and ends.
func userCodeBlocks(t *testing.T, h Harness) {
	h.calmly(t, func() error {
		s, a := newScene(t, h), h.Open(t)
		blocked, lost := make(chan struct{}), make(chan struct{})
		var renewals atomic.Int64
		block := func() { <-blocked }
		e := s.hooked(a.Store, "a", recipes.Hooks{
			Acquired: func(string, recipes.Token) { block() },
			Renewed:  func(string, time.Duration, time.Duration) { renewals.Add(1) },
			Lost:     func(string, recipes.Token, error) { close(lost) },
		})
		held, err := e.Campaign(s.ctx)
		if err != nil {
			close(blocked)
			return err
		}
		pause(t, h.Timeout*time.Duration(h.rounds(10, 2)))
		err = held.Check()
		s.release(held)
		select {
		case <-lost:
			t.Error("Lost came before Acquired returned")
		default:
		}
		if n := renewals.Load(); n != 0 {
			t.Errorf("%d hooks beside the one that blocks", n)
		}
		close(blocked)
		s.happens(lost, "the hook Lost")
		return err
	})
}

// Goal: nobody leads while the work of the one before goes on, unless its time is up.
// Method: work that does not heed its context, with a session that goes on, and with one
// that is cut off.
func releasedBeforeWorkEnded(t *testing.T, h Harness) {
	for _, cutOff := range []bool{false, true} {
		s, a, b := newScene(t, h), h.Open(t), h.Open(t)
		ctx, cancel := context.WithCancel(s.ctx)
		leads, finish := make(chan *recipes.Tenure, 1), make(chan struct{})
		var ended atomic.Bool
		e := s.election(a.Store, "a")
		ran := async(func() (any, error) {
			return nil, e.Run(ctx, func(_ context.Context, held *recipes.Tenure) error {
				leads <- held
				<-finish
				ended.Store(true)
				return nil
			})
		})
		held := <-leads
		waiting := s.campaign(b.Store, "b")
		s.places(b.Store, 2)
		cancel()
		s.happens(held.Context().Done(), "the work is told to end")
		if cutOff {
			a.Partition()
		} else {
			s.waits(waiting, h.Timeout/4, "b, while a works,")
			close(finish)
		}
		next := s.led(waiting, "b")
		if !ended.Load() && held.Check() == nil {
			t.Error("b leads while a does, and works")
		}
		if h.Fake && cutOff == ended.Load() {
			t.Errorf("cut off: %v, and the work has ended: %v", cutOff, ended.Load())
		}
		if cutOff {
			a.Heal()
			close(finish)
		}
		if r := await(t, h, ran, "Run ends"); r.err != nil {
			t.Error(r.err)
		}
		s.owns(b.Store, next, "b")
		s.release(next)
	}
}

// Goal: exactly one Lost for each Acquired. Method: give up waiting, then lead and end in
// each of three ways.
func stoppedWithoutStarted(t *testing.T, h Harness) {
	s, a, b := newScene(t, h), h.Open(t), h.Open(t)
	var mu sync.Mutex
	acquired, lost := map[recipes.Token]int{}, map[recipes.Token]int{}
	note := func(in map[recipes.Token]int, token recipes.Token) {
		mu.Lock()
		defer mu.Unlock()
		in[token]++
	}
	e := s.hooked(b.Store, "b", recipes.Hooks{
		Acquired: func(_ string, token recipes.Token) { note(acquired, token) },
		Lost:     func(_ string, token recipes.Token, _ error) { note(lost, token) },
	})
	first := s.lead(a.Store, "a")
	ctx, cancel := context.WithCancel(s.ctx)
	waiting := async(func() (*recipes.Tenure, error) { return e.Campaign(ctx) })
	s.places(a.Store, 2)
	cancel()
	if r := await(t, h, waiting, "the wait ends"); !errors.Is(r.err, context.Canceled) {
		t.Errorf("given up: %v", r.err)
	}
	s.release(first)
	ends := []func(*recipes.Tenure){
		func(held *recipes.Tenure) { s.release(held) },
		func(held *recipes.Tenure) { s.release(held); s.release(held) },
		func(held *recipes.Tenure) { b.Expire(t); _ = held.Release(s.ctx) },
	}
	for n, end := range ends {
		held, err := e.Campaign(s.ctx)
		if err != nil {
			t.Fatal(err)
		}
		end(held)
		h.eventually(t, "the hooks have told of all", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(acquired) == n+1 && len(lost) == n+1
		})
	}
	mu.Lock()
	defer mu.Unlock()
	for token, n := range acquired {
		if n != 1 || lost[token] != 1 {
			t.Errorf("token %d: acquired %d times, lost %d times", token, n, lost[token])
		}
	}
}

// Goal: Run leads again. Method: the only candidate's session expires, its work ends, its
// work fails.
func oneShotElector(t *testing.T, h Harness) {
	s, a := newScene(t, h), h.Open(t)
	leads, enough := make(chan *recipes.Tenure, 10), errors.New("enough")
	ends := make(chan error)
	e := s.election(a.Store, "a")
	ran := async(func() (any, error) {
		return nil, e.Run(s.ctx, func(ctx context.Context, held *recipes.Tenure) error {
			leads <- held
			select {
			case err := <-ends:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
	last := recipes.Token(0)
	next := func() {
		t.Helper()
		r := await(t, h, async(func() (*recipes.Tenure, error) { return <-leads, nil }), "it leads again")
		if r.value.Token() <= last {
			t.Errorf("token %d after %d", r.value.Token(), last)
		}
		last = r.value.Token()
	}
	next()
	a.Expire(t)
	next()
	ends <- nil
	next()
	ends <- fmt.Errorf("wrapped: %w", enough)
	if r := await(t, h, ran, "Run returns"); !errors.Is(r.err, enough) {
		t.Errorf("Run: %v", r.err)
	}
}

// Goal: what waiting does not cure ends Run, and nothing else does. Method: a refused
// create and a refused claim; a lost and a refused request of each kind.
func electionDiesQuietly(t *testing.T, h Harness) {
	s, a := newScene(t, h), h.Open(t)
	for _, kind := range []OpKind{Create, Multi} {
		e := s.election(&Hooked{Store: a.Store, Before: func(_ context.Context, c Call) error {
			if c.Kind == kind {
				return znode.NoAuth
			}
			return nil
		}}, "a")
		ran := async(func() (any, error) {
			return nil, e.Run(s.ctx, func(context.Context, *recipes.Tenure) error { return errors.New("led") })
		})
		if r := await(t, h, ran, "Run returns"); !errors.Is(r.err, znode.NoAuth) {
			t.Errorf("%v refused: Run returns %v", kind, r.err)
		}
	}
	enough := errors.New("enough")
	for _, transient := range []error{recipes.ErrUnavailable, recipes.ErrUncertain, znode.ConnectionLoss} {
		for _, kind := range []OpKind{Create, Multi, Get, Children} {
			var failed atomic.Int64
			e := s.election(&Hooked{Store: a.Store, Before: func(_ context.Context, c Call) error {
				if c.Kind == kind && failed.Add(1) <= 3 {
					return transient
				}
				return nil
			}}, "a")
			ran := async(func() (any, error) {
				return nil, e.Run(s.ctx, func(context.Context, *recipes.Tenure) error { return enough })
			})
			if r := await(t, h, ran, "Run leads"); !errors.Is(r.err, enough) {
				t.Errorf("%v fails thrice with %v: Run returns %v", kind, transient, r.err)
			}
		}
	}
	s.places(a.Store, 0)
}

// Goal: ends that meet do not cost a place. Method: work that releases twice at once, and
// returns, in turn with another candidate.
func requeueLost(t *testing.T, h Harness) {
	s, a, b := newScene(t, h), h.Open(t), h.Open(t)
	ctx, cancel := context.WithCancel(s.ctx)
	var turns [2]atomic.Int64
	var ran []<-chan result[any]
	for i, p := range []*Peer{a, b} {
		e := s.election(p.Store, fmt.Sprint("candidate", i))
		ran = append(ran, async(func() (any, error) {
			return nil, e.Run(ctx, func(_ context.Context, held *recipes.Tenure) error {
				turns[i].Add(1)
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() { _ = held.Release(s.ctx) })
				}
				wg.Wait()
				return nil
			})
		}))
	}
	want := int64(h.rounds(100, 10))
	h.eventually(t, "both lead again and again", func() bool { return turns[0].Load() >= want && turns[1].Load() >= want })
	cancel()
	for _, r := range ran {
		if r := await(t, h, r, "Run ends"); r.err != nil {
			t.Error(r.err)
		}
	}
	s.places(a.Store, 0)
}
