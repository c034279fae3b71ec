package recipestest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

var pitfallsOfBarriers = []pitfall{
	{75, "TimedEnterPassesAlone", []verb{verbBreak, verbPartition, verbExpire}, enterPassesAlone},
	{76, "WaitSucceedsAsItsWatchDies", []verb{verbBreak, verbPartition, verbExpire}, waitWithoutRead},
	{77, "LeftoversCount", []verb{verbExpire}, leftoversCount},
	{78, "EnterAndLeaveMix", []verb{verbPartition}, enterAndLeaveMix},
	{78, "C091LeaveSpins", nil, leaveSpins},
}

func doubleBarrierAt(t *testing.T, s recipes.Store, path string, n int) *recipes.DoubleBarrier {
	t.Helper()
	b, err := recipes.NewDoubleBarrier(s, path, n, recipes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// enter begins to enter, and enters again if a busy machine costs it its session.
func (h Harness) enter(ctx context.Context, b *recipes.DoubleBarrier) <-chan result[*recipes.Round] {
	return async(func() (*recipes.Round, error) {
		for {
			r, err := b.Enter(ctx)
			if h.Fake || !errors.Is(err, recipes.ErrSessionExpired) {
				return r, err
			}
		}
	})
}

// entered waits for the round.
func entered(t *testing.T, h Harness, done <-chan result[*recipes.Round]) *recipes.Round {
	t.Helper()
	r := await(t, h, done, "a round begins")
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.value
}

// pending ends the test if something that must not have happened yet has.
func pending[T any](t *testing.T, done <-chan result[T], what string) {
	t.Helper()
	select {
	case r := <-done:
		t.Fatalf("%s: %v, %v", what, r.value, r.err)
	default:
	}
}

// entrants returns how many members there are in the rounds of the barrier at path.
func entrants(t *testing.T, h Harness, s recipes.Store, path string) (n int) {
	t.Helper()
	ctx := h.within(t)
	for _, round := range children(t, ctx, s, path+"/round") {
		for _, name := range children(t, ctx, s, path+"/round/"+round) {
			if strings.HasPrefix(name, "m-") {
				n++
			}
		}
	}
	return n
}

// shake plays on p all that wakes whoever waits without being the reason for it.
func shake(t *testing.T, h Harness, p *Peer) {
	t.Helper()
	for range 10 {
		p.Break()
		pause(t, h.Timeout/100)
	}
	if p.FailSetWatches != nil {
		p.FailSetWatches()
		p.Break()
	}
	pause(t, h.Timeout/10)
	p.Partition()
	pause(t, h.Timeout/3)
	p.Heal()
	pause(t, h.Timeout/10)
}

// P75. Goal: nobody passes alone. Method: one party of two under a storm of events, with
// and without a limit of time; its session expires, which is an error; then two pass.
func enterPassesAlone(t *testing.T, h Harness) {
	p, path := h.Open(t), dir(t)
	b := doubleBarrierAt(t, p.Store, path, 2)
	limited, cancel := context.WithTimeout(t.Context(), 2*h.Timeout)
	defer cancel()
	done := h.enter(h.within(t), b)
	alone := h.enter(limited, doubleBarrierAt(t, p.Store, path+"-limited", 2))
	shake(t, h, p)
	pending(t, done, "entered alone, or gave up")
	if r := await(t, h, alone, "the limit"); !errors.Is(r.err, context.DeadlineExceeded) {
		t.Errorf("entered alone, with a limit: %v", r.err)
	}
	expiring := async(func() (*recipes.Round, error) {
		return doubleBarrierAt(t, p.Store, path+"-expired", 2).Enter(h.within(t))
	})
	h.eventually(t, "a member", func() bool { return entrants(t, h, p.Store, path+"-expired") > 0 })
	p.Expire(t)
	if r := await(t, h, expiring, "the end of the session"); !errors.Is(r.err, recipes.ErrSessionExpired) {
		t.Errorf("entered in a session that expired: %v", r.err)
	}
	if h.Fake {
		if r := await(t, h, done, "the end of the session"); !errors.Is(r.err, recipes.ErrSessionExpired) {
			t.Errorf("entered in a session that expired: %v", r.err)
		}
		done = h.enter(h.within(t), b)
	}
	other := h.enter(h.within(t), doubleBarrierAt(t, h.Open(t).Store, path, 2))
	if a, b := entered(t, h, done), entered(t, h, other); a.Number() != b.Number() {
		t.Errorf("rounds %d and %d", a.Number(), b.Number())
	}
}

// endedWatches is a Store whose first watches on existence end at once.
type endedWatches struct {
	recipes.Store
	left atomic.Int32
}

func (e *endedWatches) ExistsW(ctx context.Context, path string) (znode.Stat, bool, recipes.Watch, error) {
	stat, exists, watch, err := e.Store.ExistsW(ctx, path)
	if err != nil || e.left.Add(-1) < 0 {
		return stat, exists, watch, err
	}
	watch.Cancel()
	ended := make(chan recipes.EventKind)
	close(ended)
	return stat, exists, recipes.Watch{C: ended, Cancel: func() {}}, nil
}

// P76. Goal: Wait returns nil only after a read says that the barrier is lowered. Method:
// watches that end, breaks, a partition and an expiry while it is raised; a member that
// lags; then ends of ctx and of the store, which are errors.
func waitWithoutRead(t *testing.T, h Harness) {
	p, path, ctx := h.Open(t), dir(t), h.within(t)
	flaky := &endedWatches{Store: p.Store}
	flaky.left.Store(5)
	b, err := recipes.NewBarrier(flaky, path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := recipes.NewBarrier(h.Open(t).Store, path)
	if err != nil {
		t.Fatal(err)
	}
	raise := func() {
		t.Helper()
		if err := other.Raise(ctx); err != nil {
			t.Fatal(err)
		}
	}
	wait := func(ctx context.Context) <-chan result[struct{}] {
		return async(func() (struct{}, error) { return struct{}{}, b.Wait(ctx) })
	}
	raise()
	done := wait(ctx)
	shake(t, h, p)
	p.Expire(t)
	pause(t, h.Timeout/5)
	pending(t, done, "waited at a raised barrier")
	if err := other.Lower(ctx); err != nil {
		t.Fatal(err)
	}
	if r := await(t, h, done, "the lowered barrier"); r.err != nil {
		t.Errorf("wait at a lowered barrier: %v", r.err)
	}
	if p.Lag != nil {
		p.Lag(h.Timeout / 5)
	}
	raise()
	limited, cancel := context.WithTimeout(ctx, h.Timeout/2)
	defer cancel()
	if r := await(t, h, wait(limited), "the limit"); !errors.Is(r.err, context.DeadlineExceeded) {
		t.Errorf("wait with a limit: %v", r.err)
	}
	done = wait(ctx)
	pause(t, h.Timeout/10)
	if err := p.Store.Close(); err != nil {
		t.Error(err)
	}
	if r := await(t, h, done, "the end of the store"); !errors.Is(r.err, recipes.ErrSessionClosed) {
		t.Errorf("wait in a closed store: %v", r.err)
	}
}

// P77. Goal: a crashed party, one that gave up, and what looks like a leftover are not
// counted. Method: three parties; one crashes while entering, one gives up, others put
// foreign znodes there: exactly three live ones are needed again.
func leftoversCount(t *testing.T, h Harness) {
	crashes, gives, path, ctx := h.Open(t), h.Open(t), dir(t), h.within(t)
	crashed := async(func() (*recipes.Round, error) { return doubleBarrierAt(t, crashes.Store, path, 3).Enter(ctx) })
	limited, cancel := context.WithTimeout(ctx, h.Timeout/3)
	defer cancel()
	gave := h.enter(limited, doubleBarrierAt(t, gives.Store, path, 3))
	h.eventually(t, "a member", func() bool { return entrants(t, h, gives.Store, path) > 0 })
	if r := await(t, h, gave, "the limit"); !errors.Is(r.err, context.DeadlineExceeded) {
		t.Errorf("the party that gave up: %v", r.err)
	}
	crashes.Expire(t)
	if r := await(t, h, crashed, "the crash"); !errors.Is(r.err, recipes.ErrSessionExpired) {
		t.Errorf("the party that crashed: %v", r.err)
	}
	var parties []<-chan result[*recipes.Round]
	for range 2 {
		parties = append(parties, h.enter(ctx, doubleBarrierAt(t, h.Open(t).Store, path, 3)))
	}
	h.eventually(t, "two members", func() bool { return entrants(t, h, gives.Store, path) == 2 })
	rounds := children(t, ctx, gives.Store, path+"/round")
	for _, name := range []string{"ready", "m-1", "m-0123456789abcdef0123456789abcdef-0000000001"} {
		foreign := znode.Join(path+"/round/"+rounds[len(rounds)-1], name)
		if _, err := gives.Store.Create(ctx, foreign, nil, recipes.CreateSpec{}); err != nil {
			t.Fatal(err)
		}
	}
	pause(t, h.Timeout/2)
	for _, done := range parties {
		pending(t, done, "entered though a third was missing")
	}
	third := h.enter(ctx, doubleBarrierAt(t, crashes.Store, path, 3))
	for _, done := range append(parties, third) {
		entered(t, h, done)
	}
}

// P78. Goal: entering and leaving do not disturb each other, and a party that leaves before
// another has noticed the beginning does not take its round away. Method: the last party
// enters while the answers to the first are held back, leaves, and enters the next round
// while the first is still in the one before.
func enterAndLeaveMix(t *testing.T, h Harness) {
	slow, fast, path, ctx := h.Open(t), h.Open(t), dir(t), h.within(t)
	for try := range 5 {
		at := path + strings.Repeat("-again", try)
		first := async(func() (*recipes.Round, error) { return doubleBarrierAt(t, slow.Store, at, 2).Enter(ctx) })
		h.eventually(t, "a member", func() bool { return entrants(t, h, fast.Store, at) == 1 })
		slow.Partition()
		cut := time.Now()
		r1 := entered(t, h, h.enter(ctx, doubleBarrierAt(t, fast.Store, at, 2)))
		left := async(func() (struct{}, error) { return struct{}{}, r1.Leave(ctx) })
		h.eventually(t, "the one that leaves is gone", func() bool { return entrants(t, h, fast.Store, at) == 1 })
		next := h.enter(ctx, doubleBarrierAt(t, fast.Store, at, 2))
		slow.Heal()
		r := await(t, h, first, "the first party")
		if !h.Fake && errors.Is(r.err, recipes.ErrSessionExpired) && time.Since(cut) > h.Timeout/2 {
			continue // the machine was too busy to be in time
		}
		if r.err != nil || r.value.Number() != r1.Number() {
			t.Fatalf("the first party entered %+v, %v, the last round %d", r.value, r.err, r1.Number())
		}
		pending(t, next, "entered the next round alone")
		pending(t, left, "left while the other is in the round")
		if err := r.value.Leave(ctx); err != nil {
			t.Error(err)
		}
		if r := await(t, h, left, "both have left"); r.err != nil {
			t.Error(r.err)
		}
		again := entered(t, h, h.enter(ctx, doubleBarrierAt(t, slow.Store, at, 2)))
		if r2 := entered(t, h, next); r2.Number() != again.Number() || r2.Number() <= r1.Number() {
			t.Errorf("rounds %d and %d after %d", r2.Number(), again.Number(), r1.Number())
		}
		return
	}
	t.Error("the machine is too busy: a session expired each time")
}

// P78 and C091. Goal: leaving with a limit while others stay ends at the limit and does not
// spin, and may be waited for again. Method: three parties; calls are counted.
func leaveSpins(t *testing.T, h Harness) {
	ctx, path := h.within(t), dir(t)
	var calls atomic.Int64
	counted := &Hooked{Store: h.Open(t).Store, Before: func(context.Context, Call) error { calls.Add(1); return nil }}
	stores := []recipes.Store{counted, h.Open(t).Store, h.Open(t).Store}
	var parties []<-chan result[*recipes.Round]
	for _, s := range stores {
		parties = append(parties, h.enter(ctx, doubleBarrierAt(t, s, path, 3)))
	}
	var rounds []*recipes.Round
	for _, done := range parties {
		rounds = append(rounds, entered(t, h, done))
	}
	before, begun := calls.Load(), time.Now()
	limited, cancel := context.WithTimeout(ctx, h.Timeout/10)
	defer cancel()
	err := rounds[0].Leave(limited)
	took, spent := time.Since(begun), calls.Load()-before
	if !errors.Is(err, context.DeadlineExceeded) || took < h.Timeout/10 || h.Fake && took > h.Timeout*13/100 {
		t.Errorf("leave with a limit of %v: %v after %v", h.Timeout/10, err, took)
	}
	if spent > 20 || h.Fake && spent > 6 {
		t.Errorf("%d calls while waiting", spent)
	}
	var left []<-chan result[struct{}]
	for _, r := range rounds {
		left = append(left, async(func() (struct{}, error) { return struct{}{}, r.Leave(ctx) }))
	}
	for _, done := range left {
		if r := await(t, h, done, "all have left"); r.err != nil {
			t.Error(r.err)
		}
	}
}
