package recipestest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: a candidate whose session is over is never told that it leads. Method: its session
// expires and the leader resigns, in turn, at once and while it stands still.
func deadCandidateWins(t *testing.T, h Harness) {
	s, a, b := newScene(t, h), h.Open(t), h.Open(t)
	held := s.lead(a.Store, "a")
	waiting, former := s.once(b.Store), b.Store.Session()
	s.places(a.Store, 2)
	b.Expire(t)
	s.release(held)
	s.sessionLost(waiting, "b")
	s.connected(b.Store, former)
	s.release(s.lead(b.Store, "b"))
	if b.Pause != nil {
		held = s.lead(a.Store, "a")
		waiting = s.once(b.Store)
		s.places(a.Store, 2)
		resume := b.Pause()
		pause(t, h.Timeout/2)
		s.release(held)
		pause(t, 2*h.Timeout)
		resume()
		s.sessionLost(waiting, "b that stood still")
	}
	candidateLosesSession(t, h, h.rounds(40, 4))
}

// sessionLost says that a candidacy ends with its session.
func (s scene) sessionLost(done <-chan result[*recipes.Tenure], who string) {
	s.t.Helper()
	r := await(s.t, s.h, done, who+" is told that its session is over")
	if r.err == nil {
		s.t.Errorf("%s leads, whose session is over: %v", who, r.value.Check())
	} else if !errors.Is(r.err, recipes.ErrSessionExpired) {
		s.t.Errorf("%s: %v", who, r.err)
	}
}

// candidateLosesSession cuts a candidate off and lets the leader resign 0.8 to 1.5 session
// timeouts later, in as many steps as there are rounds. The candidate must be told that
// its session is over or lead with a znode of its own, and it must lead soon.
func candidateLosesSession(t *testing.T, h Harness, rounds int) {
	s, a, b := newScene(t, h), h.Open(t), h.Open(t)
	s.ctx = t.Context()
	for round := range rounds {
		held := s.lead(a.Store, "a")
		waiting := s.once(b.Store)
		s.places(a.Store, 2)
		learns := learned(b.Store.Session())
		b.Partition()
		pause(t, h.Timeout*8/10+time.Duration(round)*h.Timeout*7/10/time.Duration(rounds))
		s.release(held)
		pause(t, time.Duration(round%4)*h.Timeout/8)
		b.Heal()
		healed := time.Now()
		r := await(t, h, waiting, "b leads or has no session")
		switch {
		case r.err == nil:
			s.owns(b.Store, r.value, "b")
		case !errors.Is(r.err, recipes.ErrSessionExpired):
			t.Fatalf("round %d: b: %v", round, r.err)
		default:
			if at := await(t, h, learns, "the session's end").at; h.Fake && r.at.Sub(at) > h.Timeout/10 {
				t.Errorf("round %d: b was told %v after it could know", round, r.at.Sub(at))
			}
			r = await(t, h, s.campaign(b.Store, "b"), "b leads in its next session")
			if r.err != nil {
				t.Fatal(r.err)
			}
			s.owns(b.Store, r.value, "b")
		}
		if took := r.at.Sub(healed); h.Fake && took > h.Timeout/2 {
			t.Errorf("round %d: nobody led for %v", round, took)
		}
		s.release(r.value)
		s.places(a.Store, 0)
	}
}

// learned tells when a session is over.
func learned(sess recipes.Session) <-chan result[any] {
	return async(func() (any, error) {
		<-sess.Done()
		return nil, nil
	})
}

// Goal: a candidate does not wait for others when its own session is over. Method: it
// expires while the leader goes on; Campaign returns, and Run enters again.
func zombieCandidate(t *testing.T, h Harness) {
	s, a, b := newScene(t, h), h.Open(t), h.Open(t)
	held := s.lead(a.Store, "a")
	waiting := s.once(b.Store)
	s.places(a.Store, 2)
	former := b.Store.Session()
	learns := learned(former)
	b.Expire(t)
	r := await(t, h, waiting, "the candidate is told")
	if !errors.Is(r.err, recipes.ErrSessionExpired) {
		t.Errorf("Campaign: %v", r.err)
	}
	if at := await(t, h, learns, "the session's end").at; h.Fake && r.at.Sub(at) > h.Timeout/100 {
		t.Errorf("it was told %v after it could know", r.at.Sub(at))
	}
	s.connected(b.Store, former)
	s.places(a.Store, 1)

	ctx, cancel := context.WithCancel(s.ctx)
	leads := make(chan struct{}, 100)
	e := s.election(b.Store, "b")
	ran := async(func() (any, error) {
		return nil, e.Run(ctx, func(ctx context.Context, _ *recipes.Tenure) error {
			leads <- struct{}{}
			<-ctx.Done()
			return nil
		})
	})
	s.places(a.Store, 2)
	b.Expire(t)
	s.places(a.Store, 2)
	s.release(held)
	s.happens(leads, "Run leads in its next session")
	cancel()
	if r := await(t, h, ran, "Run ends"); r.err != nil {
		t.Error(r.err)
	}
	s.places(a.Store, 0)
}

// Goal: a new session of the same client revives nothing. Method: expire a leader, and
// ask and use its tenure in the next session.
func newSessionRevives(t *testing.T, h Harness) {
	s, a, other := newScene(t, h), h.Open(t), h.Open(t)
	held, former := s.lead(a.Store, "a"), a.Store.Session()
	a.Expire(t)
	now := s.connected(a.Store, former)
	if now.ID() == former.ID() || former.State() != recipes.Over {
		t.Errorf("session %#x after %#x, which is %v", now.ID(), former.ID(), former.State())
	}
	s.places(other.Store, 0)
	s.revived(a.Store, held)
	next := s.lead(a.Store, "a")
	if next.Token() <= held.Token() {
		t.Errorf("token %d after %d", next.Token(), held.Token())
	}
	s.revived(a.Store, held)
	if err := held.Release(s.ctx); err != nil {
		t.Errorf("a release after the end: %v", err)
	}
	s.owns(a.Store, next, "a")
	s.release(next)
}

// revived says that the tenure is over, and that nothing is done under its guard.
func (s scene) revived(store recipes.Store, held *recipes.Tenure) {
	s.t.Helper()
	s.lost(held, "a of the former session")
	if err := held.Confirm(s.ctx); !errors.Is(err, recipes.ErrLost) {
		s.t.Errorf("Confirm: %v", err)
	}
	trace := s.dir + "-trace"
	if _, err := held.Txn(s.ctx, recipes.OpCreate(trace, nil, recipes.CreateSpec{})); !errors.Is(err, recipes.ErrLost) {
		s.t.Errorf("Txn: %v", err)
	}
	ops := append(held.Guard(), recipes.OpCreate(trace, nil, recipes.CreateSpec{}))
	if _, err := store.Multi(s.ctx, ops...); !errors.Is(err, znode.NoNode) && (s.h.Fake || !errors.Is(err, recipes.ErrUncertain)) {
		s.t.Errorf("a transaction under its guard: %v", err)
	}
	if _, _, err := store.Get(s.ctx, trace); !errors.Is(err, znode.NoNode) {
		s.t.Errorf("the trace of a former holder: %v", err)
	}
}

// Goal: it is the granted timeout that counts. Method: where time is fake ask for six
// times of what is granted; cut the leader off.
func requestedTimeoutTaken(t *testing.T, h Harness) {
	s, a := newScene(t, h), h.Open(t)
	if h.Fake {
		f := NewFake(FakeOptions{Exact: a.Store.Caps().ExactExpiry, Members: 3, Timeout: 6 * h.Timeout, TimeoutMax: h.Timeout})
		a = f.Open(t)
	}
	if got := a.Store.Session().Timeout(); got != h.Timeout {
		t.Errorf("the session's timeout is %v, granted were %v", got, h.Timeout)
	}
	e, renewed := s.noted(a.Store, "a", recipes.Timing{HoldOff: recipes.HoldOffNone()}) // the longest belief
	held, err := e.Campaign(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.renewedOrOver(renewed, held)
		if left := time.Until(held.Deadline()); left > h.Timeout {
			t.Errorf("believes for another %v", left)
		}
	}
	a.Partition()
	defer a.Heal()
	cut := time.Now()
	for begun := cut; held.Check() == nil; begun = time.Now() {
		if begun.Sub(cut) > h.Timeout {
			t.Fatalf("led %v after the last word", begun.Sub(cut))
		}
		pause(t, h.Timeout/100)
	}
}

// Goal: a directory that somebody removed under the candidates is made again. Method:
// remove all of it, several times, while three run.
func directoryGone(t *testing.T, h Harness) {
	s := newScene(t, h)
	s.ctx = t.Context()
	admin := h.Open(t)
	k := s.keep(0, h.Open(t), h.Open(t), h.Open(t))
	k.leader(h.patience())
	for range h.rounds(5, 2) {
		k.leader(h.patience())
		before := s.token(admin.Store)
		s.wipe(admin.Store, s.dir)
		s.h.eventually(t, "there is a leader with a higher token", func() bool { return s.token(admin.Store) > before })
	}
	k.stop()
	r, err := k.inv.Verify()
	if err != nil && !admin.Store.Caps().ExactExpiry {
		t.Errorf("%v: %v", r, err)
	}
	s.places(admin.Store, 0)
}

// token is that of who leads, 0 if nobody does.
func (s scene) token(store recipes.Store) recipes.Token {
	s.t.Helper()
	if v := s.view(store); v.Leader != nil {
		return v.Leader.Token
	}
	return 0
}

// wipe removes a znode with all that is below it.
func (s scene) wipe(store recipes.Store, path string) {
	s.t.Helper()
	s.h.eventually(s.t, "everything is removed", func() bool {
		for _, name := range children(s.t, s.ctx, store, path) {
			_ = store.Delete(s.ctx, znode.Join(path, name), recipes.Always())
		}
		err := store.Delete(s.ctx, path, recipes.Always())
		return err == nil || errors.Is(err, znode.NoNode)
	})
}
