package recipestest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
)

// pitfallsOfSessions are about what a connection and a session tell, and what they do not.
var pitfallsOfSessions = []pitfall{
	{25, "LeadsOnNodeOfFormerSession", []verb{verbPartition, verbExpire}, leadsOnFormerNode},
	{26, "ReconnectsInterleave", []verb{verbBreak}, reconnectsInterleave},
	{27, "ResetStorm", []verb{verbBreak}, resetStorm},
	{28, "SuspendedTakenForLost", []verb{verbBreak, verbPartition}, suspendedTakenForLost},
	{29, "CountsFromDisconnect", []verb{verbPartition, verbDelay}, countsFromDisconnect},
	{30, "LossNeverArrives", []verb{verbPartition}, lossNeverArrives},
	{31, "DeadCandidateWins", []verb{verbExpire, verbPartition}, deadCandidateWins},
	{32, "ZombieCandidate", []verb{verbExpire}, zombieCandidate},
	{33, "NewSessionUnderTheSameHandle", []verb{verbExpire}, newSessionRevives},
	{34, "RequestedTimeoutTaken", []verb{verbPartition}, requestedTimeoutTaken},
	{35, "DirectoryGone", nil, directoryGone},
}

// Goal: a node of a former session is no ground to lead. Method: a process starts anew
// while its old session is still open; a session expires while its member is late; a
// leader is away for about its timeout, again and again.
func leadsOnFormerNode(t *testing.T, h Harness) {
	s := newScene(t, h)
	old, again, other := h.Open(t), h.Open(t), h.Open(t)
	first := s.lead(old.Store, "a")
	old.Partition()
	restarted := s.campaign(again.Store, "a")
	second := s.led(restarted, "the restarted a")
	if first.Check() == nil || second.Token() <= first.Token() {
		t.Errorf("the restarted a leads with token %d, the former with %d: %v", second.Token(), first.Token(), first.Check())
	}
	s.owns(again.Store, second, "the restarted a")
	old.Heal()
	s.lost(first, "the former a")
	s.release(second)

	held, former := s.lead(again.Store, "a"), again.Store.Session()
	if again.Lag != nil {
		again.Lag(h.Timeout)
	}
	again.Expire(t)
	s.lost(held, "a of the expired session")
	s.connected(again.Store, former)
	next := s.lead(again.Store, "a")
	if next.Token() <= held.Token() {
		t.Errorf("token %d after %d", next.Token(), held.Token())
	}
	s.owns(again.Store, next, "a in its new session")
	if again.Lag != nil {
		again.Lag(0)
	}
	s.release(next)
	s.places(other.Store, 0)
	awayForATimeout(t, h, h.rounds(30, 3))
}

// awayForATimeout takes the leader away for 0.9 to 1.4 of its session timeout, in as many
// steps as there are rounds. It must know by itself that it leads no more before anybody
// else does, and somebody must lead soon after. In some rounds of a fake all members
// are away instead.
func awayForATimeout(t *testing.T, h Harness, rounds int) {
	s := newScene(t, h)
	s.ctx = t.Context()
	k := s.keep(0, h.Open(t), h.Open(t))
	bound := h.patience()
	if h.Fake { // the rest of a session timeout, what it is rounded up to, the hold-off
		bound = h.Timeout * 2
	}
	k.leader(h.patience())
	for round := range rounds {
		away := h.Timeout*9/10 + time.Duration(round)*h.Timeout/2/time.Duration(rounds)
		leader := k.leader(bound)
		if h.Fake && round%10 == 9 {
			h.Restart(t, away)
			continue
		}
		leader.peer.Partition()
		pause(t, away)
		leader.peer.Heal()
	}
	k.leader(bound)
	if r := k.verify(); r.Tokens < rounds/2 {
		t.Errorf("%d tokens in %d rounds", r.Tokens, rounds)
	}
}

// Goal: what comes in between two reconnects does not make two leaders. Method: three
// candidates that lead shortly, of which one or the other is moved a hundred times.
func reconnectsInterleave(t *testing.T, h Harness) {
	s := newScene(t, h)
	s.ctx = t.Context()
	peers := []*Peer{h.Open(t), h.Open(t), h.Open(t)}
	k := s.keep(h.Timeout/20, peers...)
	k.leader(h.patience())
	rng := rand.New(rand.NewPCG(26, 0)) // one order is as good as another
	for range 100 {
		p := peers[rng.IntN(len(peers))]
		if p.Move != nil {
			p.Move()
		} else {
			p.Break()
		}
		pause(t, time.Duration(rng.Int64N(int64(h.Timeout/50))))
	}
	k.leader(h.patience())
	k.verify()
	s.places(peers[0].Store, 0)
}

// Goal: a reconnect in the same session changes nothing. Method: count the creates of a
// leader and a waiter over twenty of them.
func resetStorm(t *testing.T, h Harness) {
	h.calmly(t, func() error {
		s := newScene(t, h)
		var creates atomic.Int64
		counted := func(p *Peer) *Hooked {
			return &Hooked{Store: p.Store, Before: func(_ context.Context, c Call) error {
				if c.Kind == Create && strings.HasPrefix(c.Path, s.dir+"/") {
					creates.Add(1)
				}
				return nil
			}}
		}
		a, b := h.Open(t), h.Open(t)
		sessions := [2]recipes.Session{a.Store.Session(), b.Store.Session()}
		held := s.lead(counted(a), "a")
		waiting := s.campaign(counted(b), "b")
		s.places(b.Store, 2)
		before := creates.Load()
		for range 20 {
			for _, p := range []*Peer{a, b} {
				p.Break()
				s.answered(p.Store)
			}
		}
		extra, lost := creates.Load()-before, held.Check()
		s.release(held)
		s.release(s.led(waiting, "b"))
		if sessions != [2]recipes.Session{a.Store.Session(), b.Store.Session()} {
			return errors.New("a session was lost")
		}
		if extra != 0 || lost != nil {
			return fmt.Errorf("%d creates on 20 reconnects; the leader: %v", extra, lost)
		}
		return nil
	})
}

// answered waits until the store answers again.
func (s scene) answered(store recipes.Store) {
	s.t.Helper()
	s.h.eventually(s.t, "there is a connection again", func() bool { return store.Sync(s.ctx, "/") == nil })
}

// Goal: to be without a connection for a while is no loss. Method: break it, right after a
// renewal, for a third of the session timeout.
func suspendedTakenForLost(t *testing.T, h Harness) {
	h.calmly(t, func() error {
		s, a, b := newScene(t, h), h.Open(t), h.Open(t)
		e, renewed := s.noted(a.Store, "a", recipes.Timing{Worth: h.Timeout * 9 / 10})
		held, err := e.Campaign(s.ctx)
		if err != nil {
			return err
		}
		waiting := s.campaign(b.Store, "b")
		s.places(b.Store, 2)
		s.fresh(renewed)
		a.Partition()
		a.Break()
		pause(t, h.Timeout/3)
		state := a.Store.Session().State()
		a.Heal()
		if state != recipes.Suspended {
			return fmt.Errorf("the session is %v without a connection", state)
		}
		select {
		case <-renewed:
		case <-held.Context().Done():
		}
		select {
		case r := <-waiting:
			t.Errorf("the waiter did not wait: %v, while the leader has %v", r.err, held.Check())
		default:
		}
		err = errors.Join(context.Cause(held.Context()), held.Check())
		s.release(held)
		s.release(s.led(waiting, "b"))
		return err
	})
}

// noted makes a candidate that tells of its renewals.
func (s scene) noted(store recipes.Store, id string, timing recipes.Timing) (*recipes.Election, chan struct{}) {
	s.t.Helper()
	renewed := make(chan struct{}, 1)
	e, err := recipes.NewElection(store, s.dir, recipes.ElectionOptions{Options: recipes.Options{
		ID: id, Timing: timing, Hooks: recipes.Hooks{Renewed: func(string, time.Duration, time.Duration) {
			select {
			case renewed <- struct{}{}:
			default:
			}
		}},
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	return e, renewed
}

// fresh waits for the next renewal.
func (s scene) fresh(renewed chan struct{}) {
	s.t.Helper()
	select {
	case <-renewed: // perhaps long ago
	default:
	}
	s.happens(renewed, "a renewal")
}

// Goal: belief is counted from the sending of the last proof, neither from its answer nor
// from what is heard of the connection. Method: answers are late; cut the leader off right
// behind one, and note on one clock what both believe.
func countsFromDisconnect(t *testing.T, h Harness) {
	for round := range h.rounds(8, 2) {
		s, a, b := newScene(t, h), h.Open(t), h.Open(t)
		inv := NewInvariant(uint64(round))
		e, renewed := s.noted(a.Store, "a", recipes.Timing{})
		a.Delay(h.Timeout / 16)
		held, err := e.Campaign(s.ctx)
		if err != nil {
			t.Fatal(err)
		}
		believes := inv.Hold("a", held)
		believed := async(func() (any, error) {
			for believes.Check() == nil && wait(s.ctx, h.Timeout/500) {
			}
			return nil, nil
		})
		waiting := s.campaign(b.Store, "b")
		s.places(b.Store, 2)
		s.renewedOrOver(renewed, held)
		a.Partition()
		cut := time.Now()
		next := s.led(waiting, "b")
		_ = inv.Hold("b", next).Check()
		if r := await(t, h, believed, "the leader knows that it leads no more"); h.Fake && r.at.Sub(cut) > h.Timeout {
			t.Errorf("it believed for %v after its last word from the backend", r.at.Sub(cut))
		}
		if r, err := inv.Verify(); err != nil {
			t.Errorf("%v: %v", r, err)
		}
		a.Delay(0)
		a.Heal()
		s.release(next)
	}
}

// renewedOrOver waits for the next renewal, or the end that comes first on a busy machine.
func (s scene) renewedOrOver(renewed chan struct{}, tenure *recipes.Tenure) {
	s.t.Helper()
	if s.h.Fake {
		s.fresh(renewed)
		return
	}
	select {
	case <-renewed:
	case <-tenure.Done():
	case <-s.ctx.Done():
		s.t.Fatal("neither a renewal nor an end")
	}
}

// Goal: who is cut off knows by its own clock. Method: cut a leader off, for as long as it
// likes.
func lossNeverArrives(t *testing.T, h Harness) {
	s, a := newScene(t, h), h.Open(t)
	held, former := s.lead(a.Store, "a"), a.Store.Session()
	a.Partition()
	cut := time.Now()
	for away := h.Timeout * time.Duration(h.rounds(10, 3)); time.Since(cut) < away; pause(t, h.Timeout/200) {
		asked, over := time.Since(cut), former.Err()
		switch err := held.Check(); {
		case err == nil && asked > h.Timeout:
			t.Fatalf("still led %v after the last word", asked)
		case err == nil && over != nil:
			t.Fatalf("still led after its session: %v", over)
		case err != nil && !errors.Is(err, recipes.ErrLost):
			t.Fatalf("Check says %v", err)
		}
	}
	if err := held.Err(); h.Fake && !errors.Is(err, recipes.ErrDeadline) {
		t.Errorf("the reason: %v", err)
	}
	s.lost(held, "a")
	a.Heal()
	s.connected(a.Store, former)
	s.lost(held, "a")
}
