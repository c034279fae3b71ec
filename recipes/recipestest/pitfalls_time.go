package recipestest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
)

// pitfallsOfTime are those of deadlines and clocks; leases' are in pitfalls_time_lease.go.
var pitfallsOfTime = []pitfall{
	{number: 36, name: "CountedFromReceipt", needs: []verb{verbDelay, verbPartition}, run: countedFromReceipt},
	{number: 37, name: "SharedSendTime", needs: []verb{verbHold}, run: sharedSendTime},
	{number: 38, name: "SendTimeOfAnotherTry", needs: []verb{verbCutAfterCommit, verbCutBeforeSend, verbPartition}, run: sendTimeOfAnotherTry},
	{number: 39, name: "ClocksReadInOrder", needs: []verb{verbJumpWall, verbHold, verbPartition}, run: clocksReadInOrder},
	{number: 40, name: "BudgetInsteadOfDeadline", needs: []verb{verbDelay, verbPartition}, run: budgetInsteadOfDeadline},
	{number: 41, name: "CheckIgnoresDeadline", needs: []verb{verbPause}, run: checkIgnoresDeadline},
	{number: 42, name: "ExpiryByCoarseTimer", needs: []verb{verbPartition}, run: expiryByCoarseTimer},
	{number: 43, name: "WallClockUsed", needs: []verb{verbJumpWall, verbPartition}, run: wallClockUsed},
	{number: 44, name: "MonotonicClockStops", needs: []verb{verbJumpWall}, run: monotonicClockStops},
	{number: 45, name: "PingsOfCutOffFollower", needs: []verb{verbIsolate, verbPartition}, run: pingsOfCutOffFollower},
	{number: 46, name: "SyncIsNoProof", needs: []verb{verbIsolate}, run: syncIsNoProof},
	{number: 47, name: "DeposedLeaderRenews", needs: []verb{verbIsolate, verbRestart, verbPartition, verbFake}, run: deposedLeaderRenews},
	{number: 48, name: "UnitsTruncated", needs: []verb{verbPartition}, run: unitsTruncated},
	{number: 49, name: "DurationsOfTwoSides", needs: []verb{verbPartition}, run: durationsOfTwoSides},
	{number: 50, name: "NoJitter", run: noJitter},
	{number: 51, name: "CheckThenAct", run: checkThenAct},
}

// obtains is how a process gets a tenure of one name.
type obtains func(t *testing.T, p *Peer, path string) func(context.Context) (*recipes.Tenure, error)

// byMutex and byLease are the two ways to believe: by a session and by a record.
func byMutex(t *testing.T, p *Peer, path string) func(context.Context) (*recipes.Tenure, error) {
	return mutexAt(t, p.Store, path+"/mutex").Lock
}

func (h Harness) byLease(t *testing.T, p *Peer, path string) func(context.Context) (*recipes.Tenure, error) {
	return leaseAt(t, p.Store, path+"/lease", recipes.LeaseOptions{Duration: h.Timeout}).Acquire
}

// moves waits until proofs have moved the deadline by at least d.
func moves(t *testing.T, h Harness, held *recipes.Tenure, d time.Duration) {
	t.Helper()
	if err := moved(t, h, held, d); err != nil {
		t.Fatalf("the deadline has not moved: %v", err)
	}
}

// moved is moves, and returns why the tenure is over if that comes first, as on a busy machine.
func moved(t *testing.T, h Harness, held *recipes.Tenure, d time.Duration) (over error) {
	t.Helper()
	from := held.Deadline()
	h.eventually(t, "the deadline to move", func() bool {
		over = held.Err()
		return over != nil || held.Deadline().Sub(from) >= d
	})
	return over
}

// Goal: a deadline is counted from the sending of what was proved, however late the
// answer. Method: answers take a tenth of the timeout; then none comes; the deadline is
// not after the moment a successor has the lock.
func countedFromReceipt(t *testing.T, h Harness) {
	for _, by := range []obtains{byMutex, h.byLease} {
		h.calmly(t, func() error {
			path, a, b := dir(t), h.Open(t), h.Open(t)
			old := obtained(t, h, by(t, a, path))
			a.Delay(h.Timeout / 10)
			if err := moved(t, h, old, h.Timeout/2); err != nil {
				return err
			}
			a.Partition()
			pause(t, h.Timeout/50) // what had arrived is taken in
			last := old.Deadline()
			next := obtained(t, h, by(t, b, path))
			at := time.Now()
			succeeded(t, h, old, next)
			if last.After(at) {
				t.Errorf("the deadline was %v after the successor's beginning", last.Sub(at))
			}
			a.Delay(0)
			a.Heal()
			released(t, h, next)
			return nil
		})
	}
}

// Goal: each renewal has its own send time. Method: two overlap, the first one's answer
// comes after the second was sent.
func sharedSendTime(t *testing.T, h Harness) {
	p, ctx := h.Open(t), h.within(t)
	sess := p.Store.Session()
	renew := func() (recipes.Proof, error) {
		proof, _, err := sess.Renew(ctx)
		return proof, err
	}
	begun := time.Now()
	held, release := p.Hold(Renew)
	first := async(renew)
	select {
	case <-held:
	case <-ctx.Done():
		t.Fatal("the renewal was not held back")
	}
	between := time.Now()
	pause(t, h.Timeout/50)
	second := async(renew)
	pause(t, h.Timeout/50)
	release()
	one, two := await(t, h, first, "the first answer"), await(t, h, second, "the second answer")
	if err := errors.Join(one.err, two.err); err != nil {
		t.Fatal(err)
	}
	if one.value.Sent.Before(begun) || one.value.Sent.After(between) {
		t.Errorf("the first was sent %v after the second was begun", one.value.Sent.Sub(between))
	}
	if two.value.Sent.After(two.at) || two.value.Sent.Before(begun) {
		t.Errorf("the second was sent %v after its answer", two.value.Sent.Sub(two.at))
	}
}

// Goal: the send time is that of a try which was answered, or of an earlier one. Method:
// renewals lose their answers and their connections; then none is answered.
func sendTimeOfAnotherTry(t *testing.T, h Harness) {
	path, a, b := dir(t), h.Open(t), h.Open(t)
	old, ctx := obtained(t, h, byMutex(t, a, path)), h.within(t)
	for _, cut := range []func(OpKind) <-chan struct{}{a.CutBeforeSend, a.CutAfterCommit, a.CutAfterCommit} {
		select {
		case <-cut(Renew):
		case <-ctx.Done():
			t.Fatal("no renewal came")
		}
		moves(t, h, old, h.Timeout/20)
	}
	select {
	case <-a.CutAfterCommit(Renew):
	case <-ctx.Done():
		t.Fatal("no renewal came")
	}
	a.Partition()
	next := obtained(t, h, byMutex(t, b, path))
	succeeded(t, h, old, next)
	a.Heal()
	released(t, h, next)
}

// Goal: a deadline does not depend on the order in which two clocks are read. Method: the
// wall clock jumps back while a renewal is under way, then all answers fail to come.
func clocksReadInOrder(t *testing.T, h Harness) {
	path, a, b := dir(t), h.Open(t), h.Open(t)
	old := obtained(t, h, byMutex(t, a, path))
	held, release := a.Hold(Renew)
	select {
	case <-held:
	case <-h.within(t).Done():
		t.Fatal("no renewal came")
	}
	at := time.Now()
	a.JumpWall(-time.Hour)
	pause(t, h.Timeout/50)
	release()
	pause(t, h.Timeout/50)
	if left := old.Deadline().Sub(at); left > h.Timeout {
		t.Errorf("the deadline is %v after the renewal", left)
	}
	a.Partition()
	next := obtained(t, h, byMutex(t, b, path))
	succeeded(t, h, old, next)
	a.Heal()
	released(t, h, next)
}

// Goal: Check goes by the clock and not by events. Method: the holder's process cannot
// reach its store for two timeouts, in which nothing is told to it.
func checkIgnoresDeadline(t *testing.T, h Harness) {
	for _, by := range []obtains{byMutex, h.byLease} {
		path, a, b := dir(t), h.Open(t), h.Open(t)
		old := obtained(t, h, by(t, a, path))
		pause(t, h.Timeout)
		if err := old.Check(); err != nil {
			t.Errorf("a tenure that is renewed: %v", err)
		}
		resume, begun := a.Pause(), time.Now()
		last := old.Deadline()
		next := obtained(t, h, by(t, b, path))
		succeeded(t, h, old, next)
		if last.Sub(begun) > h.Timeout {
			t.Errorf("the deadline is %v away", last.Sub(begun))
		}
		pause(t, 2*h.Timeout-time.Since(begun))
		if err := old.Check(); !errors.Is(err, recipes.ErrLost) {
			t.Errorf("after two timeouts: %v", err)
		}
		resume()
		if err := next.Confirm(h.within(t)); err != nil {
			t.Errorf("the successor: %v", err)
		}
		released(t, h, old)
		released(t, h, next)
	}
}

// Goal: Check is right at the moment of the deadline, whenever timers fire. Method: it is
// called all the time, with nothing in between where time is real.
func expiryByCoarseTimer(t *testing.T, h Harness) {
	path, a := dir(t), h.Open(t)
	old := obtained(t, h, byMutex(t, a, path))
	a.Partition()
	pause(t, h.Timeout/20)
	last := old.Deadline()
	for {
		begun := time.Now()
		err := old.Check()
		if err == nil && begun.After(last.Add(time.Millisecond)) {
			t.Fatalf("Check passes %v after the deadline", begun.Sub(last))
		}
		if err != nil {
			if !errors.Is(err, recipes.ErrDeadline) {
				t.Errorf("why it is over: %v", err)
			}
			if early := time.Until(last); h.Fake && early > time.Millisecond {
				t.Errorf("Check failed %v before the deadline", early)
			}
			break
		}
		if h.Fake {
			pause(t, 100*time.Microsecond)
		}
	}
	a.Heal()
}

// Goal: what wall clocks say makes nobody take over early, and nobody believe for longer.
// Method: those of a waiter and of the holder jump by an hour, then the holder is cut off.
func wallClockUsed(t *testing.T, h Harness) {
	for _, by := range []obtains{byMutex, h.byLease} {
		path, a, b := dir(t), h.Open(t), h.Open(t)
		old, ctx := obtained(t, h, by(t, a, path)), h.within(t)
		waiter := async(func() (*recipes.Tenure, error) { return by(t, b, path)(ctx) })
		for _, jump := range []time.Duration{time.Hour, -2 * time.Hour} {
			b.JumpWall(jump)
			pause(t, 2*h.Timeout)
			waiting(t, h, waiter, "one whose wall clock jumped")
		}
		a.JumpWall(-time.Hour)
		pause(t, h.Timeout)
		if err := old.Confirm(ctx); err != nil {
			t.Errorf("the holder whose wall clock was set back: %v", err)
		}
		begun := time.Now()
		a.Partition()
		next := granted(t, h, waiter, "the waiter")
		succeeded(t, h, old, next)
		if took := time.Since(begun); took < h.Timeout/4 || took > 2*h.Timeout {
			t.Errorf("taken over after %v", took)
		}
		a.Heal()
		released(t, h, old)
		released(t, h, next)
	}
}

// Goal: what a machine slept through counts. Method: the wall clock goes on by an hour
// in a second of the monotonic one.
func monotonicClockStops(t *testing.T, h Harness) {
	for _, by := range []obtains{byMutex, h.byLease} {
		path, a, b := dir(t), h.Open(t), h.Open(t)
		old := obtained(t, h, by(t, a, path))
		pause(t, h.Timeout/10)
		if err := old.Check(); err != nil {
			t.Errorf("a tenure that is renewed: %v", err)
		}
		a.JumpWall(time.Hour)
		if err := old.Check(); !errors.Is(err, recipes.ErrDeadline) {
			t.Errorf("after an hour's sleep: %v", err)
		}
		if err := old.Confirm(h.within(t)); !errors.Is(err, recipes.ErrLost) {
			t.Errorf("it cannot come back: %v", err)
		}
		if !old.Deadline().IsZero() || context.Cause(old.Context()) == nil {
			t.Errorf("deadline %v, context %v", old.Deadline(), old.Context().Err())
		}
		released(t, h, old)
		next := obtained(t, h, by(t, b, path))
		succeeded(t, h, old, next)
		released(t, h, next)
	}
}

// Goal: a member that cannot reach its leader proves nothing. Method: cut the holder's
// member off; the deadline stands still from then on, and a successor is not too early.
func pingsOfCutOffFollower(t *testing.T, h Harness) {
	path, a, b := dir(t), h.Open(t), h.Open(t)
	old := obtained(t, h, byMutex(t, a, path))
	moves(t, h, old, h.Timeout/2)
	a.Isolate()
	pause(t, h.Timeout/100)
	last, ctx, begun := old.Deadline(), h.within(t), time.Now()
	waiter := async(func() (*recipes.Tenure, error) { return byMutex(t, b, path)(ctx) })
	// Later the client looks for another member, which is right.
	for old.Check() == nil && time.Since(begun) < h.Timeout/2 {
		if now := old.Deadline(); now.After(last.Add(time.Millisecond)) {
			t.Fatalf("the deadline moved by %v after the cut", now.Sub(last))
		}
		pause(t, h.Timeout/200)
	}
	a.Partition()
	next := granted(t, h, waiter, "a successor on another member")
	succeeded(t, h, old, next)
	a.Rejoin()
	a.Heal()
	released(t, h, next)
}

// Goal: Confirm asks those who decide. Method: on a member that is cut off it gets no
// answer, though reads and Sync may have one; when that member is back it does.
func syncIsNoProof(t *testing.T, h Harness) {
	path, a := dir(t), h.Open(t)
	old := obtained(t, h, byMutex(t, a, path))
	moves(t, h, old, h.Timeout/10) // just proved
	a.Isolate()
	ctx, cancel := context.WithTimeout(t.Context(), h.Timeout/10)
	defer cancel()
	serr := a.Store.Sync(ctx, path)
	if err := old.Confirm(ctx); err == nil || errors.Is(err, recipes.ErrLost) {
		t.Errorf("confirmed by a member that is cut off: %v; sync: %v", err, serr)
	}
	a.Rejoin()
	h.eventually(t, "a confirmation", func() bool {
		again, cancel := context.WithTimeout(t.Context(), h.Timeout/20)
		defer cancel()
		err := old.Confirm(again)
		if errors.Is(err, recipes.ErrLost) {
			t.Fatalf("lost by a short cut: %v", err)
		}
		return err == nil
	})
}

// Goal: a change of leaders shortens no session and proves none that it should not.
// Method: a renewal is under way when the holder's member is cut off; later all members
// stop for a moment, then once more when the holder is cut off.
func deposedLeaderRenews(t *testing.T, h Harness) {
	path, a, b := dir(t), h.Open(t), h.Open(t)
	old, ctx := obtained(t, h, byMutex(t, a, path)), h.within(t)
	confirm := async(func() (struct{}, error) { return struct{}{}, old.Confirm(ctx) })
	a.Isolate()
	a.Partition()
	next := obtained(t, h, byMutex(t, b, path))
	succeeded(t, h, old, next)
	a.Rejoin()
	a.Heal()
	await(t, h, confirm, "an answer")
	released(t, h, old)

	third := queued(t, h, a.Store, path+"/mutex", 2, byMutex(t, a, path))
	h.Restart(t, h.Timeout/8)
	waiting(t, h, third, "one that waits when leaders change")
	if err := next.Check(); err != nil {
		t.Errorf("lost when leaders changed: %v", err)
	}
	pause(t, 2*h.Timeout)
	if err := next.Check(); err != nil {
		t.Errorf("lost after leaders changed: %v", err)
	}
	b.Partition()
	h.Restart(t, h.Timeout/8)
	last := granted(t, h, third, "the waiter")
	succeeded(t, h, next, last)
	b.Heal()
	released(t, h, last)
}

// Goal: between Check and a write anything may happen; the write is refused then. Method:
// it is held between the two until another has taken over and written.
func checkThenAct(t *testing.T, h Harness) {
	path, a, b := dir(t), h.Open(t), h.Open(t)
	for _, by := range []obtains{byMutex, h.byLease} {
		reached, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		hooked := &Hooked{Store: a.Store, Before: func(_ context.Context, c Call) error {
			if c.Kind == Multi && c.Ops[len(c.Ops)-1].Path == path+"/data" {
				once.Do(func() {
					close(reached)
					<-goOn
				})
			}
			return nil
		}}
		old := obtained(t, h, by(t, &Peer{Store: hooked}, path))
		if _, err := a.Store.Create(h.within(t), path+"/data", []byte("none"), recipes.CreateSpec{}); err != nil {
			t.Fatal(err)
		}
		ctx := h.within(t)
		write := async(func() ([]recipes.OpResult, error) {
			return old.Txn(ctx, recipes.OpSet(path+"/data", []byte("old"), recipes.Always()))
		})
		<-reached
		expired := a.Store.Session()
		a.Expire(t)
		if a.Partition != nil { // a lease does not end with its session
			a.Partition()
		}
		next := obtained(t, h, by(t, b, path))
		if _, err := next.Txn(ctx, recipes.OpSet(path+"/data", []byte("new"), recipes.Always())); err != nil {
			t.Errorf("the successor's write: %v", err)
		}
		if a.Heal != nil {
			a.Heal()
		}
		h.eventually(t, "another session", func() bool {
			sess := a.Store.Session()
			return sess != expired && sess.State() == recipes.Connected
		})
		close(goOn)
		if r := await(t, h, write, "the former holder's write"); !errors.Is(r.err, recipes.ErrLost) {
			t.Errorf("the former holder's write: %v", r.err)
		}
		if data, _, err := b.Store.Get(ctx, path+"/data"); string(data) != "new" || err != nil {
			t.Errorf("written: %q, %v", data, err)
		}
		fence := recipes.NewFenceGuard(&recipes.MemoryHighWater{})
		if err := fence.Admit(ctx, "data", next.Token()); err != nil {
			t.Error(err)
		}
		if err := fence.Admit(ctx, "data", old.Token()); !errors.Is(err, recipes.ErrStaleToken) {
			t.Errorf("the former token at a fence: %v", err)
		}
		released(t, h, next)
		if err := b.Store.Delete(ctx, path+"/data", recipes.Always()); err != nil {
			t.Error(err)
		}
	}
}
