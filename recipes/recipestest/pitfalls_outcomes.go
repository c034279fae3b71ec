package recipestest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// pitfallsOfOutcomes are about writes of which nobody can say whether they were applied.
var pitfallsOfOutcomes = []pitfall{
	{1, "OrphanCandidate", []verb{verbCutAfterCommit}, orphanCandidate},
	{2, "AdoptsNodeOfDeadSession", []verb{verbCutAfterCommit, verbExpire}, adoptsDeadSession},
	{3, "MissesItsOwnNode", []verb{verbCutAfterCommit, verbMove, verbLag}, missesOwnNode},
	{4, "RecoveryGivesUp", []verb{verbCutAfterCommit, verbPartition}, recoveryGivesUp},
	{5, "CancelledWaitLeavesNode", []verb{verbPartition}, cancelledWait},
	{6, "CloseDuringCreate", []verb{verbHold}, closeDuringCreate},
	{7, "InterruptedCleanUp", nil, interruptedCleanUp},
	{8, "ConditionalWriteRetried", []verb{verbCutAfterCommit, verbCutBeforeSend}, conditionalWriteRetried},
	{9, "TakenItemLost", []verb{verbCutAfterCommit, verbCutBeforeSend}, takenItemLost},
	{10, "DeleteRetried", []verb{verbCutAfterCommit}, deleteRetried},
	{11, "UnlockFails", []verb{verbCutBeforeSend, verbPartition}, unlockFails},
	{12, "LateRenewalRevives", []verb{verbHold, verbPartition}, lateRenewal},
}

// rounds is how often a fault is played: what is random in it shows in many.
func (h Harness) rounds(fake, real int) int {
	if h.Fake {
		return fake
	}
	return real
}

// Goal: a candidate whose create was applied without an answer knows its node again.
// Method: drop the answer, on the wire and in the client, or the request.
func orphanCandidate(t *testing.T, h Harness) {
	rounds := h.rounds(20, 5)
	orphanedContender(t, h, rounds)
	answerOfCreateLost(t, h, rounds)
	s := newScene(t, h)
	peers := s.open(2)
	for _, applied := range []bool{true, false} {
		held := s.lead(loseOnce(peers[0].Store, Create, applied), "a")
		s.exactly(peers[1].Store, 1)
		s.release(held)
		s.places(peers[1].Store, 0)
	}
}

// orphanedContender drops the answer to the create of the first of two contenders. It
// must have one node and lead, and all that come after it too.
func orphanedContender(t *testing.T, h Harness, rounds int) {
	s := newScene(t, h)
	peers := s.open(3)
	for round := range rounds {
		s.ctx = h.within(t)
		cut := peers[0].CutAfterCommit(Create)
		first := s.campaign(peers[0].Store, "a")
		s.happens(cut, "the answer to the create is dropped")
		start := time.Now()
		held := s.led(first, "a")
		if took := time.Since(start); h.Fake && took > 2*time.Second {
			t.Errorf("round %d: led %v after the answer was lost", round, took)
		}
		s.exactly(peers[2].Store, 1)
		second := s.campaign(peers[1].Store, "b")
		s.places(peers[2].Store, 2)
		s.release(held)
		s.release(s.led(second, "b"))
		s.places(peers[2].Store, 0)
		s.release(s.lead(peers[2].Store, "c"))
	}
}

// answerOfCreateLost drops the answers to plain creates of a Store. What it says must be
// true: that it is done, or that it is uncertain, and never that the name was taken.
func answerOfCreateLost(t *testing.T, h Harness, rounds int) {
	s := newScene(t, h)
	a, other := h.Open(t), h.Open(t)
	s.release(s.lead(other.Store, "first"))
	for round := range rounds {
		s.ctx = h.within(t)
		for _, spec := range []recipes.CreateSpec{{}, {Kind: znode.Ephemeral}, {Kind: znode.Ephemeral, Sequential: true}} {
			cut := a.CutAfterCommit(Create)
			made, err := a.Store.Create(s.ctx, znode.Join(s.dir, "made-"), nil, spec)
			s.happens(cut, "the answer to the create is dropped")
			names := s.names(other.Store)
			if err != nil && !errors.Is(err, recipes.ErrUncertain) || len(names) != 1 {
				t.Fatalf("round %d: create %+v: %q, %v; there are %v", round, spec, made, err, names)
			}
			if err == nil && made != znode.Join(s.dir, names[0]) {
				t.Errorf("round %d: create %+v made %q, and there is %v", round, spec, made, names)
			}
			if err := other.Store.Delete(s.ctx, znode.Join(s.dir, names[0]), recipes.Always()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Goal: a candidate does not take over what its former session has made. Method: drop the
// answer to its create and end the session, while the member that it goes to is late.
func adoptsDeadSession(t *testing.T, h Harness) {
	s := newScene(t, h)
	peers := s.open(2)
	a, b := peers[0], peers[1]
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	var latest atomic.Pointer[recipes.Tenure]
	e := s.election(a.Store, "a")
	cut := a.CutAfterCommit(Create)
	ran := async(func() (struct{}, error) {
		return struct{}{}, e.Run(ctx, func(ctx context.Context, tenure *recipes.Tenure) error {
			latest.Store(tenure)
			<-ctx.Done()
			return nil
		})
	})
	s.happens(cut, "the answer to the create is dropped")
	former := a.Store.Session().ID()
	if a.Move != nil {
		a.Move()
	}
	if a.Lag != nil {
		a.Lag(h.Timeout / 2)
	}
	a.Expire(t)
	h.eventually(t, "it leads in its new session", func() bool {
		tenure, id := latest.Load(), a.Store.Session().ID()
		return tenure != nil && tenure.Check() == nil && id != former && s.owner(b.Store) == id
	})
	stop()
	if r := await(t, h, ran, "Run ends"); r.err != nil {
		t.Error(r.err)
	}
	s.places(b.Store, 0)
}

// owner returns the session of the only place in the line, 0 if there is not one.
func (s scene) owner(store recipes.Store) int64 {
	s.t.Helper()
	names := s.names(store)
	if len(names) != 1 {
		return 0
	}
	_, stat, err := store.Get(s.ctx, znode.Join(s.dir, names[0]))
	if err != nil {
		return 0
	}
	return int64(stat.EphemeralOwner)
}

// Goal: a candidate does not believe a late member that its node is not there. Method:
// drop the answer to its create; the member that it goes to is late.
func missesOwnNode(t *testing.T, h Harness) {
	s := newScene(t, h)
	peers := s.open(3) // a and c are on one member, b on the one that a moves to
	a, b, c := peers[0], peers[1], peers[2]
	b.Lag(h.Timeout / 4)
	cut := a.CutAfterCommit(Create)
	first := s.campaign(a.Store, "a")
	s.happens(cut, "the answer to the create is dropped")
	a.Move()
	held := s.led(first, "a")
	s.exactly(c.Store, 1)
	b.Lag(0)
	pause(t, h.Timeout/2)
	s.exactly(c.Store, 1)
	s.release(held)
	s.places(c.Store, 0)
}

// Goal: what a candidate may have made is removed though it has given up. Method: drop the
// answer to its create, cut it off, cancel; look after it is back.
func recoveryGivesUp(t *testing.T, h Harness) {
	s := newScene(t, h)
	peers := s.open(2)
	a, b := peers[0], peers[1]
	e := s.election(a.Store, "a")
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	cut := a.CutAfterCommit(Create)
	call := async(func() (*recipes.Tenure, error) { return e.Campaign(ctx) })
	s.happens(cut, "the answer to the create is dropped")
	a.Partition()
	pause(t, h.Timeout/10)
	cancel()
	switch r := await(t, h, call, "the cancelled call returns"); {
	case r.err == nil && h.Fake:
		t.Error("it leads though it was cut off")
	case r.err == nil: // it was faster than the partition
		go func() { _ = r.value.Release(s.ctx) }()
	}
	pause(t, h.Timeout*7/10)
	if h.Fake {
		s.exactly(b.Store, 1)
	}
	a.Heal()
	healed := time.Now()
	s.places(b.Store, 0)
	if took := time.Since(healed); h.Fake && took > time.Second {
		t.Errorf("its node was there for another %v", took)
	}
	s.release(s.lead(b.Store, "b"))
}

// Goal: who no longer waits does not stand in the line. Method: cancel a wait, connected
// and cut off; the next in line leads at once.
func cancelledWait(t *testing.T, h Harness) {
	for _, offline := range []bool{false, true} {
		s := newScene(t, h)
		peers := s.open(3)
		a, b, c := peers[0], peers[1], peers[2]
		held := s.lead(a.Store, "a")
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		e := s.election(b.Store, "b")
		call := async(func() (*recipes.Tenure, error) { return e.Campaign(ctx) })
		s.places(a.Store, 2)
		third := s.campaign(c.Store, "c")
		s.places(a.Store, 3)
		if offline {
			b.Partition()
		}
		cancel()
		if r := await(t, h, call, "the cancelled call returns"); !errors.Is(r.err, context.Canceled) && h.Fake {
			t.Errorf("offline %v: cancelled: %v", offline, r.err)
		}
		if offline {
			pause(t, h.Timeout/5)
			b.Heal()
		}
		s.places(a.Store, 2)
		released := time.Now()
		s.release(held)
		s.release(s.led(third, "c"))
		if took := time.Since(released); h.Fake && took > 100*time.Millisecond {
			t.Errorf("offline %v: the next leads after %v", offline, took)
		}
		s.places(a.Store, 0)
	}
}

// Goal: a create that is answered after Close leaves nothing. Method: hold its answer,
// close, let it go.
func closeDuringCreate(t *testing.T, h Harness) {
	s := newScene(t, h)
	peers := s.open(2)
	a, b := peers[0], peers[1]
	held, letGo := a.Hold(Create)
	defer letGo()
	call := s.campaign(a.Store, "a")
	s.happens(held, "the answer to the create is held back")
	s.places(b.Store, 1)
	closed := async(func() (struct{}, error) { return struct{}{}, a.Store.Close() })
	pause(t, h.Timeout/20)
	letGo()
	await(t, h, closed, "Close returns")
	if r := await(t, h, call, "the call returns"); !errors.Is(r.err, recipes.ErrSessionClosed) {
		t.Errorf("campaign after Close: %v", r.err)
	}
	s.places(b.Store, 0)
	s.release(s.lead(b.Store, "b"))
}
