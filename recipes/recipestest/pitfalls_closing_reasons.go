package recipestest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
)

// Goal: a release that comes late is nobody else's. Method: lose an election and a lease,
// let another take over, release, and compare what is stored.
func releaseWipesOthers(t *testing.T, h Harness) {
	s, a, b := newScene(t, h), h.Open(t), h.Open(t)
	held := s.lead(a.Store, "a")
	a.Expire(t)
	next := s.lead(b.Store, "b")
	before, stat, err := b.Store.Get(s.ctx, s.dir)
	if err != nil {
		t.Fatal(err)
	}
	s.release(held)
	s.answered(a.Store)
	s.answered(b.Store)
	after, now, err := b.Store.Get(s.ctx, s.dir)
	if err != nil || next.Check() == nil && (string(after) != string(before) || now.Version != stat.Version) {
		t.Errorf("the record was %s and is %s: %v", before, after, err)
	}
	s.owns(b.Store, next, "b")
	s.release(next)

	lease := func(p *Peer, id string) *recipes.Lease {
		l, err := recipes.NewLease(p.Store, s.dir+"-lease", recipes.LeaseOptions{Options: recipes.Options{ID: id}, Duration: h.Timeout.Truncate(time.Millisecond)})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first, err := lease(a, "a").Acquire(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	a.Partition()
	second, err := lease(b, "b").Acquire(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	a.Heal()
	s.answered(a.Store)
	_ = first.Release(s.ctx) // it is lost: what it returns says so
	if err := second.Confirm(s.ctx); err != nil && (h.Fake || !errors.Is(err, recipes.ErrLost)) {
		t.Errorf("after the release of the former holder: %v", err)
	}
	_ = second.Release(s.ctx)
}

// Goal: whoever is told to stop is told why. Method: each way to lose a tenure.
func stopWithoutReason(t *testing.T, h Harness) {
	s, a, b := newScene(t, h), h.Open(t), h.Open(t)
	over := func(held *recipes.Tenure, whys ...error) {
		t.Helper()
		s.lost(held, "the holder")
		err, cause := held.Err(), context.Cause(held.Context())
		var known, told bool
		for _, why := range whys {
			known = known || errors.Is(err, why)
			told = told || errors.Is(cause, why)
		}
		var lost *recipes.LostError
		if !errors.Is(err, recipes.ErrLost) || !errors.As(err, &lost) || lost.Token != held.Token() || lost.Name != s.dir || !known {
			t.Errorf("Err is %v, want one of %v", err, whys)
		}
		if !told && !errors.Is(cause, recipes.ErrGrace) {
			t.Errorf("the context's cause is %v, want one of %v", cause, whys)
		}
	}
	// Also what is lost is released, to say that its work has ended: its session may go on.
	held := s.lead(a.Store, "a")
	s.release(held)
	over(held, recipes.ErrReleased)

	held = s.lead(a.Store, "a")
	if err := b.Store.Delete(s.ctx, held.Guard()[0].Path, recipes.Always()); err != nil && h.Fake {
		t.Fatal(err)
	}
	late := []error{recipes.ErrDeadline, recipes.ErrSessionExpired} // of a busy machine
	if h.Fake {
		late = nil
	}
	over(held, append(late, recipes.ErrGone)...)

	held = s.lead(a.Store, "a")
	a.Partition()
	s.happens(held.Context().Done(), "the context ends")
	if cause := context.Cause(held.Context()); h.Fake && (!errors.Is(cause, recipes.ErrGrace) || held.Check() != nil) {
		t.Errorf("in the grace: %v, %v", cause, held.Check())
	}
	over(held, append(late, recipes.ErrDeadline)...)
	a.Heal()
	s.answered(a.Store)
	_ = held.Release(s.ctx) // its session may be over

	s.unhealthy(a.Store)
	held = s.lead(a.Store, "a")
	_ = a.Store.Close() // a busy machine may not confirm it
	over(held, append(late, recipes.ErrSessionClosed)...)
}

// unhealthy says that work is told to stop because of its health.
func (s scene) unhealthy(store recipes.Store) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	led := make(chan struct{})
	e, err := recipes.NewElection(store, s.dir, recipes.ElectionOptions{
		Options: recipes.Options{ID: "a"},
		Health: &recipes.Health{
			Check: func(context.Context) error {
				select {
				case <-led:
					return errors.New("sick")
				default:
					return nil
				}
			},
			Failures: 1, Every: s.h.Timeout / 10, Cooldown: s.h.patience(),
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	causes := make(chan error, 1)
	ran := async(func() (any, error) {
		return nil, e.Run(ctx, func(ctx context.Context, _ *recipes.Tenure) error {
			close(led)
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil
		})
	})
	r := await(s.t, s.h, async(func() (error, error) { return <-causes, nil }), "work is told to end")
	if !errors.Is(r.value, recipes.ErrUnhealthy) && s.h.Fake {
		s.t.Errorf("the cause of a failed health check is %v", r.value)
	}
	cancel()
	if r := await(s.t, s.h, ran, "Run ends"); r.err != nil {
		s.t.Error(r.err)
	}
}
