package recipestest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: the clean-up after a cancelled wait is finished whatever comes in between. Method:
// its deletes fail, are not sent, and lose their answer, while the caller's parent ctx is
// cancelled too; and a release is called with a ctx that is over.
func interruptedCleanUp(t *testing.T, h Harness) {
	s := newScene(t, h)
	a, b, c := h.Open(t), h.Open(t), h.Open(t)
	held := s.lead(a.Store, "a")
	parent, cancelParent := context.WithCancel(s.ctx)
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	defer cancelParent()
	var deletes atomic.Int32
	faulty := &Hooked{Store: b.Store}
	faulty.Before = func(_ context.Context, call Call) error {
		if call.Kind != Delete {
			return nil
		}
		switch deletes.Add(1) {
		case 1:
			cancelParent()
			return recipes.ErrUnavailable
		case 2:
			return recipes.ErrUncertain
		}
		return nil
	}
	faulty.After = func(_ context.Context, call Call, err error) error {
		if call.Kind == Delete && deletes.Load() == 3 && err == nil {
			return recipes.ErrUncertain
		}
		return err
	}
	e := s.election(faulty, "b")
	call := async(func() (*recipes.Tenure, error) { return e.Campaign(ctx) })
	s.places(a.Store, 2)
	third := s.campaign(c.Store, "c")
	s.places(a.Store, 3)
	cancel()
	if r := await(t, h, call, "the cancelled call returns"); !errors.Is(r.err, context.Canceled) && h.Fake {
		t.Errorf("cancelled: %v", r.err)
	}
	s.places(a.Store, 2)
	s.release(held)
	next := s.led(third, "c")
	if err := next.Release(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("release with a ctx that is over: %v", err)
	}
	s.places(a.Store, 0)
	h.eventually(t, "all faults are met", func() bool { return deletes.Load() > 3 })
}

// mischief plays a random fault before one call in ten: an answer or a request is
// dropped, on the wire, or in the client, where the outcome stays unknown even if the
// backend would tell it to who asks again. It is a Store for one worker.
type mischief struct {
	Hooked
	mu   sync.Mutex
	rng  *rand.Rand
	lose bool // the answer of the present call
}

// newMischief plays faults on the kinds of calls that kind has.
func newMischief(p *Peer, kind OpKind, seed, n uint64) *mischief {
	m := &mischief{rng: rand.New(rand.NewPCG(seed, n))}
	m.Store = p.Store
	m.Before = func(_ context.Context, c Call) error {
		if !kind.matches(c.Kind) {
			return nil
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		switch m.rng.IntN(40) {
		case 0:
			p.CutAfterCommit(kind)
		case 1:
			p.CutBeforeSend(kind)
		case 2:
			return fmt.Errorf("not sent: %w", recipes.ErrUncertain)
		case 3:
			m.lose = true
		}
		return nil
	}
	m.After = func(_ context.Context, c Call, err error) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if kind.matches(c.Kind) && m.lose {
			m.lose = false
			if err == nil {
				return fmt.Errorf("answer lost: %w", recipes.ErrUncertain)
			}
		}
		return err
	}
	return m
}

// Goal: a conditional write whose answer was lost counts once. Method: four adders of 1 on
// two peers, with a fault for one write in ten; all sums differ and the last is exact.
func conditionalWriteRetried(t *testing.T, h Harness) {
	seed, path, each := rand.Uint64(), dir(t), h.rounds(250, 25)
	t.Logf("seed %d", seed)
	peers := []*Peer{h.Open(t), h.Open(t)}
	var mu sync.Mutex
	sums := map[int64]bool{}
	var adders sync.WaitGroup
	for i := range 4 {
		c, err := recipes.NewCounter(newMischief(peers[i%2], AnyWrite, seed, uint64(i)), path)
		if err != nil {
			t.Fatal(err)
		}
		adders.Go(func() {
			for range each {
				sum, err := c.Add(t.Context(), 1)
				for !h.Fake && errors.Is(err, recipes.ErrSessionExpired) && !errors.Is(err, recipes.ErrUncertain) {
					sum, err = c.Add(t.Context(), 1) // a busy machine
				}
				mu.Lock()
				if err != nil || sums[sum] {
					t.Errorf("seed %d: add: %d, %v; seen %v", seed, sum, err, sums[sum])
				}
				sums[sum] = true
				mu.Unlock()
			}
		})
	}
	adders.Wait()
	c, err := recipes.NewCounter(peers[0].Store, path)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := c.Get(h.within(t)); n != int64(4*each) || err != nil {
		t.Errorf("seed %d: the counter is %d after %d additions, %v", seed, n, 4*each, err)
	}
}

// Goal: an item whose take or acknowledgement was not answered is not lost, and its effect
// in the store happens once. Method: three consumers with a fault for one transaction
// in ten; the effect is the create of a znode with the item's name.
func takenItemLost(t *testing.T, h Harness) {
	seed, s, items := rand.Uint64(), newScene(t, h), h.rounds(1000, 60)
	t.Logf("seed %d", seed)
	l := itemLog{t: t, h: h, effects: znode.Join(s.dir, "effects"), given: map[string]int{}, done: map[string]bool{}}
	options := recipes.QueueOptions{Options: recipes.Options{Timing: recipes.Timing{HoldOff: recipes.HoldOffNone()}}}
	path := znode.Join(s.dir, "queue")
	producer := h.Open(t)
	q, err := recipes.NewQueue(producer.Store, path, options)
	if err != nil {
		t.Fatal(err)
	}
	for i := range items {
		if _, err := q.Put(t.Context(), nil, recipes.ID(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := producer.Store.Create(s.ctx, l.effects, nil, recipes.CreateSpec{}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var consumers sync.WaitGroup
	for i := range 3 {
		q, err := recipes.NewQueue(newMischief(h.Open(t), Multi, seed, uint64(i)), path, options)
		if err != nil {
			t.Fatal(err)
		}
		consumers.Go(func() {
			for ctx.Err() == nil {
				l.consume(ctx, q)
			}
		})
	}
	s.h.eventually(t, "all items are done", func() bool { return len(children(t, t.Context(), producer.Store, l.effects)) == items })
	s.h.eventually(t, "all items are gone", func() bool {
		return len(children(t, t.Context(), producer.Store, znode.Join(path, "items"))) == 0
	})
	stop()
	consumers.Wait()
	for _, d := range []string{"items", "claims", "ids", "dead"} {
		h.eventually(t, "nothing is left in "+d, func() bool {
			return len(children(t, t.Context(), producer.Store, znode.Join(path, d))) == 0
		})
	}
	if len(l.given) != items {
		t.Errorf("seed %d: %d of %d items were given out", seed, len(l.given), items)
	}
}

// itemLog is what consumers did. It is safe for concurrent use.
type itemLog struct {
	t       *testing.T
	h       Harness
	effects string
	mu      sync.Mutex
	given   map[string]int
	done    map[string]bool
}

// consume takes one item and acknowledges it with its effect.
func (l *itemLog) consume(ctx context.Context, q *recipes.Queue) {
	item, err := q.Take(ctx)
	if err != nil {
		if ctx.Err() == nil && (l.h.Fake || !errors.Is(err, recipes.ErrSessionExpired)) {
			l.t.Errorf("take: %v", err)
		}
		return
	}
	l.mu.Lock()
	l.given[item.ID]++
	if l.done[item.ID] {
		l.t.Errorf("item %s was given out after it was done", item.ID)
	}
	l.mu.Unlock()
	err = item.Ack(ctx, recipes.OpCreate(znode.Join(l.effects, item.ID), nil, recipes.CreateSpec{}))
	switch {
	case err == nil:
		l.mu.Lock()
		if l.done[item.ID] {
			l.t.Errorf("item %s is done for the second time", item.ID)
		}
		l.done[item.ID] = true
		l.mu.Unlock()
	case ctx.Err() == nil && (l.h.Fake || !errors.Is(err, recipes.ErrLost) && !errors.Is(err, recipes.ErrUncertain)):
		l.t.Errorf("ack of %s: %v", item.ID, err)
	}
}

// Goal: a delete that was done is not tried for ever. Method: drop the answer to a
// release, on the wire and in the client; count the calls after it has returned.
func deleteRetried(t *testing.T, h Harness) {
	s := newScene(t, h)
	a, b := h.Open(t), h.Open(t)
	for _, wire := range []bool{true, false} {
		var calls atomic.Int64
		counted := &Hooked{Store: a.Store, Before: func(context.Context, Call) error {
			calls.Add(1)
			return nil
		}}
		if wire {
			held := s.lead(counted, "a")
			cut := a.CutAfterCommit(AnyWrite)
			s.releasedOnce(held, &calls)
			s.happens(cut, "the answer to the release is dropped")
		} else {
			counted.Store = &Hooked{Store: a.Store, After: loseRelease()}
			s.releasedOnce(s.lead(counted, "a"), &calls)
		}
		s.exactly(b.Store, 0)
	}
}

// loseRelease loses the answer to the first transaction that deletes.
func loseRelease() func(context.Context, Call, error) error {
	var lost atomic.Bool
	return func(_ context.Context, c Call, err error) error {
		for _, op := range c.Ops {
			if op.Kind == recipes.KindDelete && err == nil && lost.CompareAndSwap(false, true) {
				return recipes.ErrUncertain
			}
		}
		return err
	}
}

// releasedOnce releases twice and says that nothing is called after the first.
func (s scene) releasedOnce(held *recipes.Tenure, calls *atomic.Int64) {
	s.t.Helper()
	if err := held.Release(s.ctx); err != nil {
		s.t.Errorf("release: %v", err)
	}
	before := calls.Load()
	if err := held.Release(s.ctx); err != nil {
		s.t.Errorf("second release: %v", err)
	}
	pause(s.t, s.h.Timeout)
	if after := calls.Load(); after != before {
		s.t.Errorf("%d calls after the release", after-before)
	}
}

// Goal: what could not be unlocked is over for its holder, and does not keep it from the
// next lock. Method: release while cut off, and with the request dropped.
func unlockFails(t *testing.T, h Harness) {
	s := newScene(t, h)
	a := h.Open(t)
	m, err := recipes.NewMutex(a.Store, s.dir, recipes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lock := func() *recipes.Tenure {
		return s.led(async(func() (*recipes.Tenure, error) {
			for {
				tenure, err := m.Lock(s.ctx)
				if h.Fake || !errors.Is(err, recipes.ErrSessionExpired) {
					return tenure, err
				}
			}
		}), "the lock's owner")
	}
	held := lock()
	a.Partition()
	short, cancel := context.WithTimeout(s.ctx, h.Timeout/10)
	defer cancel()
	if err := held.Release(short); !errors.Is(err, recipes.ErrUncertain) {
		t.Errorf("release while cut off: %v", err)
	}
	if err := held.Check(); !errors.Is(err, recipes.ErrReleased) {
		t.Errorf("after a release that was not confirmed: %v", err)
	}
	a.Heal()
	held = lock()
	cut := a.CutBeforeSend(AnyWrite)
	s.release(held)
	s.happens(cut, "the request to release is dropped")
	s.release(lock())
	if m, err = recipes.NewMutex(a.Store, s.dir, recipes.Options{}); err != nil {
		t.Fatal(err)
	}
	s.release(lock())
	s.places(a.Store, 0)
}

// Goal: a renewal that is applied or answered after the release does not revive the lease.
// Method: hold back its answer, or itself, release, let it go; the record stays
// released, and the next has it.
func lateRenewal(t *testing.T, h Harness) {
	a, b := h.Open(t), h.Open(t)
	newScene(t, h).renewLate(a, b, func() (letGo func()) {
		held, letGo := a.Hold(Set)
		timer := time.NewTimer(h.patience())
		defer timer.Stop()
		select {
		case <-held:
		case <-timer.C:
			t.Error("the lease is not renewed")
		}
		return letGo
	})
	newScene(t, h).renewLate(a, b, func() (letGo func()) {
		a.Partition()
		pause(t, h.Timeout*6/10) // a renewal is due each 0.4
		return a.Heal
	})
}

// renewLate releases a lease of a while hold keeps a renewal from its end.
func (s scene) renewLate(a, b *Peer, hold func() (letGo func())) {
	s.t.Helper()
	newLease := func(p *Peer, id string) *recipes.Lease {
		l, err := recipes.NewLease(p.Store, s.dir, recipes.LeaseOptions{
			Options: recipes.Options{ID: id}, Duration: 3 * s.h.Timeout,
		})
		if err != nil {
			s.t.Fatal(err)
		}
		return l
	}
	mine, other := newLease(a, "a"), newLease(b, "b")
	tenure, err := mine.Acquire(s.ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	letGo := hold()
	released := async(func() (struct{}, error) { return struct{}{}, tenure.Release(s.ctx) })
	pause(s.t, s.h.Timeout/20)
	if tenure.Check() == nil {
		s.t.Error("it is held after Release")
	}
	letGo()
	if r := await(s.t, s.h, released, "Release returns"); r.err != nil && s.h.Fake {
		s.t.Errorf("release: %v", r.err)
	}
	free := func() bool {
		r, _, err := other.Record(s.ctx)
		return err == nil && r.Holder == "" && r.Nonce == ""
	}
	s.h.eventually(s.t, "the lease is free", free)
	for end := time.Now().Add(s.h.Timeout * 3 / 2); time.Now().Before(end); pause(s.t, s.h.Timeout/20) {
		if !free() {
			s.t.Fatal("the lease was revived")
		}
	}
	next, ok, err := other.TryAcquire(s.ctx)
	if !ok || err != nil {
		s.t.Fatalf("the next: %v, %v", ok, err)
	}
	s.release(next)
}
