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
)

// keeper is a candidate that leads whenever it can for as long as it can, and asks again
// and again whether it still does.
type keeper struct {
	peer  *Peer
	id    string
	leads atomic.Bool // it has passed a Check that was not followed by one that failed
}

// keepers are the candidates of one scene, and what they believed.
type keepers struct {
	scene
	inv  *Invariant
	all  []*keeper
	stop func() // returns when all have ended
}

// keep starts a candidate on each of the peers. each is for how long it leads at most; 0
// is as long as it can.
func (s scene) keep(each time.Duration, peers ...*Peer) *keepers {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	k := &keepers{scene: s, inv: NewInvariant(0)}
	var wg sync.WaitGroup
	for i, p := range peers {
		one := &keeper{peer: p, id: fmt.Sprintf("keeper%d", i)}
		k.all = append(k.all, one)
		e := s.election(p.Store, one.id)
		wg.Go(func() {
			for ctx.Err() == nil {
				tenure, err := e.Campaign(ctx)
				if err != nil {
					if s.h.Fake && ctx.Err() == nil && !errors.Is(err, recipes.ErrSessionExpired) {
						s.t.Errorf("%s: %v", one.id, err)
					}
					wait(ctx, s.h.Timeout/1000)
					continue
				}
				k.lead(ctx, one, tenure, each)
			}
		})
	}
	k.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	s.t.Cleanup(k.stop)
	return k
}

// lead holds a tenure until it is lost, each has passed, or ctx ends.
func (k *keepers) lead(ctx context.Context, one *keeper, tenure *recipes.Tenure, each time.Duration) {
	held, began := k.inv.Hold(one.id, tenure), time.Now()
	tick := max(k.h.Timeout/400, time.Millisecond)
	for held.Check() == nil {
		one.leads.Store(true)
		if each > 0 && time.Since(began) >= each || !wait(ctx, tick) {
			break
		}
	}
	one.leads.Store(false)
	held.Ended()
	_ = tenure.Release(ctx) // what is not confirmed goes on by itself
	_ = held.Check()
}

// leader waits until one of them leads, for bound at most.
func (k *keepers) leader(bound time.Duration) *keeper {
	k.t.Helper()
	for end := time.Now().Add(bound); ; {
		for _, one := range k.all {
			if one.leads.Load() {
				return one
			}
		}
		if time.Now().After(end) {
			k.t.Fatalf("nobody leads within %v", bound)
		}
		pause(k.t, max(k.h.Timeout/400, time.Millisecond))
	}
}

// verify ends them. No two of them may ever have believed at once, and tokens must have
// grown. It returns what they did.
func (k *keepers) verify() Record {
	k.t.Helper()
	k.stop()
	r, err := k.inv.Verify()
	if err != nil {
		k.t.Error(err)
	}
	k.t.Log(r)
	return r
}

// owns says that the tenure's znode is there, in the store's present session. If it went
// already, with its session, the tenure goes too.
func (s scene) owns(store recipes.Store, tenure *recipes.Tenure, who string) {
	s.t.Helper()
	path := tenure.Guard()[0].Path
	s.answered(store)
	_, stat, err := store.Get(s.ctx, path)
	if id := store.Session().ID(); err == nil && int64(stat.EphemeralOwner) != id && tenure.Check() == nil {
		s.t.Errorf("%s leads in session %#x with %s of session %#x", who, id, path, stat.EphemeralOwner)
	}
	if err != nil {
		s.t.Logf("%s: %s: %v", who, path, err)
		s.happens(tenure.Done(), who+" leads no more without its znode")
	}
}

// once starts one candidacy of b, which ends with its session.
func (s scene) once(store recipes.Store) <-chan result[*recipes.Tenure] {
	s.t.Helper()
	e := s.election(store, "b")
	return async(func() (*recipes.Tenure, error) { return e.Campaign(s.ctx) })
}

// lost says that the tenure is over for good: for Check, Err, Done and its context.
func (s scene) lost(tenure *recipes.Tenure, who string) {
	s.t.Helper()
	s.happens(tenure.Done(), who+" is told that it leads no more")
	if err := tenure.Check(); err == nil {
		s.t.Errorf("%s still passes a Check", who)
	}
	if tenure.Context().Err() == nil || tenure.Err() == nil {
		s.t.Errorf("%s is over, its context has %v and Err %v", who, tenure.Context().Err(), tenure.Err())
	}
}

// connected waits until the store has a session other than old and is connected in it.
func (s scene) connected(store recipes.Store, old recipes.Session) recipes.Session {
	s.t.Helper()
	s.h.eventually(s.t, "the client has a new session", func() bool {
		now := store.Session()
		return now != old && now.State() == recipes.Connected
	})
	return store.Session()
}

// calmly runs what needs a machine that keeps pace. Where time is real that may take
// a few tries: a machine that stands still for a session timeout costs sessions.
func (h Harness) calmly(t *testing.T, try func() error) {
	t.Helper()
	tries := h.rounds(1, 6)
	for n := 1; ; n++ {
		err := try()
		switch {
		case err == nil:
			return
		case n == tries:
			t.Errorf("try %d: %v", n, err)
			return
		}
		t.Logf("try %d: %v", n, err)
	}
}
