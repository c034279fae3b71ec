package recipestest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
)

// scene is one test about a line of candidates: its directory on a backend. Its methods
// end the test if something else happens than they say.
type scene struct {
	t   *testing.T
	h   Harness
	ctx context.Context
	dir string
}

func newScene(t *testing.T, h Harness) scene { return scene{t, h, h.within(t), dir(t)} }

func (s scene) election(store recipes.Store, id string) *recipes.Election {
	s.t.Helper()
	e, err := recipes.NewElection(store, s.dir, recipes.ElectionOptions{Options: recipes.Options{ID: id}})
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

// campaign makes a candidate that goes on in the next session if a busy machine costs it
// one.
func (s scene) campaign(store recipes.Store, id string) <-chan result[*recipes.Tenure] {
	s.t.Helper()
	e := s.election(store, id)
	return async(func() (*recipes.Tenure, error) {
		for {
			tenure, err := e.Campaign(s.ctx)
			if s.h.Fake || !errors.Is(err, recipes.ErrSessionExpired) {
				return tenure, err
			}
		}
	})
}

// led waits until the candidate leads.
func (s scene) led(done <-chan result[*recipes.Tenure], who string) *recipes.Tenure {
	s.t.Helper()
	r := await(s.t, s.h, done, who+" leads")
	if r.err != nil {
		s.t.Fatalf("%s: %v", who, r.err)
	}
	return r.value
}

func (s scene) lead(store recipes.Store, id string) *recipes.Tenure {
	s.t.Helper()
	return s.led(s.campaign(store, id), id)
}

// open makes peers after one of them has led, so that there is a directory.
func (s scene) open(n int) []*Peer {
	s.t.Helper()
	var peers []*Peer
	for range n {
		peers = append(peers, s.h.Open(s.t))
	}
	s.release(s.lead(peers[n-1].Store, "first"))
	return peers
}

// release may be late on a busy machine, but not in fake time.
func (s scene) release(tenure *recipes.Tenure) {
	s.t.Helper()
	err := tenure.Release(s.ctx)
	if err != nil && (s.h.Fake || !errors.Is(err, recipes.ErrUncertain)) {
		s.t.Fatalf("release: %v", err)
	}
}

// names are the children of the directory.
func (s scene) names(store recipes.Store) []string {
	s.t.Helper()
	return children(s.t, s.ctx, store, s.dir)
}

// places waits until there are n children.
func (s scene) places(store recipes.Store, n int) {
	s.t.Helper()
	s.h.eventually(s.t, "the line has the places that it should", func() bool { return len(s.names(store)) == n })
}

// exactly says that there are n children at this moment.
func (s scene) exactly(store recipes.Store, n int) {
	s.t.Helper()
	if names := s.names(store); len(names) != n {
		s.t.Errorf("%d places in the line, want %d: %v", len(names), n, names)
	}
}

// line returns the ids of the candidates in their order.
func (s scene) line(store recipes.Store) (ids []string) {
	s.t.Helper()
	for _, c := range s.view(store).Candidates {
		ids = append(ids, c.ID)
	}
	return ids
}

func (s scene) view(store recipes.Store) recipes.View {
	s.t.Helper()
	for {
		v, err := s.election(store, "observer").View(s.ctx)
		if err == nil {
			return v
		}
		if s.h.Fake || s.ctx.Err() != nil || !errors.Is(err, recipes.ErrSessionExpired) { // of a busy machine
			s.t.Fatalf("view: %v", err)
		}
	}
}

// lined waits until these are the candidates, in this order.
func (s scene) lined(store recipes.Store, ids ...string) {
	s.t.Helper()
	s.h.eventually(s.t, "the candidates stand in their order", func() bool { return slices.Equal(s.line(store), ids) })
}

// waits says that the call is not over after d.
func (s scene) waits(done <-chan result[*recipes.Tenure], d time.Duration, who string) {
	s.t.Helper()
	pause(s.t, d)
	select {
	case r := <-done:
		s.t.Errorf("%s does not wait: %v", who, r.err)
	default:
	}
}

// happens waits for a fault that was armed.
func (s scene) happens(fault <-chan struct{}, what string) {
	s.t.Helper()
	timer := time.NewTimer(s.h.patience())
	defer timer.Stop()
	select {
	case <-fault:
	case <-timer.C:
		s.t.Fatalf("not within %v: %s", s.h.patience(), what)
	}
}

// loseOnce is a store that does not tell what became of its next call of the kind:
// it is made, or not if applied is false.
func loseOnce(store recipes.Store, kind OpKind, applied bool) *Hooked {
	var lost atomic.Bool
	lose := func(c Call) bool { return kind.matches(c.Kind) && lost.CompareAndSwap(false, true) }
	h := &Hooked{Store: store}
	if applied {
		h.After = func(_ context.Context, c Call, err error) error {
			if err == nil && lose(c) {
				return recipes.ErrUncertain
			}
			return err
		}
		return h
	}
	h.Before = func(_ context.Context, c Call) error {
		if lose(c) {
			return recipes.ErrUncertain
		}
		return nil
	}
	return h
}
