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
)

func slotsAt(t *testing.T, s recipes.Store, path string, slots int) *recipes.Semaphore {
	t.Helper()
	sem, err := recipes.NewSemaphore(s, path, slots, recipes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return sem
}

// acquire is Acquire of n as a method that waits.
func acquire(sem *recipes.Semaphore, n int) func(context.Context) (*recipes.Tenure, error) {
	return func(ctx context.Context) (*recipes.Tenure, error) { return sem.Acquire(ctx, n) }
}

func sum(shares []int) (n int) {
	for _, s := range shares {
		n += s
	}
	return n
}

// storm is many who lock, hold and release at random, on several peers whose connections
// and sessions break.
type storm struct {
	workers, steps int
	length         time.Duration // ends it too, if it is set
	hold           time.Duration // the most that most tenures last
	long           int           // one in so many lasts for up to two session timeouts
	// lock obtains a tenure in one of several ways, nil if it was too late or ctx ended;
	// share is the believers'.
	lock func(ctx context.Context, rng *rand.Rand, p *Peer) (held *recipes.Tenure, share int, err error)
	b    *believers
	// fault breaks something, every so often.
	fault func(rng *rand.Rand, p *Peer)
	every time.Duration

	done, got, lost atomic.Int64
}

// run returns when all steps are done. A step is an attempt or a release.
func (s *storm) run(t *testing.T, h Harness, peers []*Peer, seed uint64) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	begun := time.Now()
	var workers, faults sync.WaitGroup
	for i := range s.workers {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		workers.Go(func() {
			for s.done.Load() < int64(s.steps) && (s.length == 0 || time.Since(begun) < s.length) {
				s.once(t, h, rng, peers[rng.IntN(len(peers))])
			}
		})
	}
	faults.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 1<<32))
		for ctx.Err() == nil {
			timer := time.NewTimer(time.Duration(float64(s.every) * (0.5 + rng.Float64())))
			select {
			case <-timer.C:
				s.fault(rng, peers[rng.IntN(len(peers))])
			case <-ctx.Done():
			}
			timer.Stop()
		}
	})
	workers.Wait()
	stop()
	faults.Wait()
	s.b.verify(t)
	t.Logf("seed %d: %d steps, %d tenures, %d of them lost", seed, s.done.Load(), s.got.Load(), s.lost.Load())
}

func (s *storm) once(t *testing.T, h Harness, rng *rand.Rand, p *Peer) {
	ctx, cancel := context.WithCancel(t.Context())
	if rng.IntN(10) == 0 { // gives up
		ctx, cancel = context.WithTimeout(t.Context(), time.Duration(rng.Int64N(int64(h.Timeout/50))))
	}
	defer cancel()
	s.done.Add(1)
	held, share, err := s.lock(ctx, rng, p)
	switch {
	case err != nil && ctx.Err() == nil && !errors.Is(err, recipes.ErrSessionExpired):
		t.Errorf("lock: %v", err)
		return
	case held == nil:
		return
	}
	s.got.Add(1)
	s.b.enter(held, share)
	hold := s.hold
	if rng.IntN(s.long) == 0 {
		hold = 2 * h.Timeout
	}
	pause(t, time.Duration(rng.Int64N(int64(hold))))
	if held.Check() != nil {
		s.lost.Add(1)
	}
	s.b.leave(held)
	s.done.Add(1)
	if err := held.Release(t.Context()); err != nil && !errors.Is(err, recipes.ErrUncertain) {
		t.Errorf("release: %v", err)
	}
}

// badRW: writers have share 1, readers 0.
func badRW(shares []int) bool { return sum(shares) > 0 && len(shares) > 1 }

// Goal: readers wait for writers before them and writers for all, in the order of asking,
// also when some in the middle give up or die. Method: an order that is known, then a
// storm with broken connections and lost sessions and a checker of beliefs.
func readLockOrder(t *testing.T, h Harness) {
	path, peers := dir(t), []*Peer{h.Open(t), h.Open(t), h.Open(t)}
	readLockLine(t, h, path+"/line", peers)
	s := &storm{workers: 12, steps: 300, hold: h.Timeout / 1000, long: 500, every: h.Timeout / 2}
	s.b = &believers{excluded: badRW}
	if h.Fake {
		s.steps, s.every = 50_000, h.Timeout/100 // 10^5 on both fakes
		if raceDetector {
			s.steps = 5_000
		}
	}
	s.lock = func(ctx context.Context, rng *rand.Rand, p *Peer) (held *recipes.Tenure, share int, err error) {
		m := rwAt(t, p.Store, path+"/storm")
		switch k := rng.IntN(10); {
		case k < 3:
			held, err = m.Lock(ctx)
			return held, 1, err
		case k < 4:
			held, _, err = m.TryLock(ctx)
			return held, 1, err
		case k < 5:
			held, _, err = m.TryRLock(ctx)
			return held, 0, err
		default:
			held, err = m.RLock(ctx)
			return held, 0, err
		}
	}
	s.fault = func(rng *rand.Rand, p *Peer) { breakSomething(t, h, rng, p) }
	s.run(t, h, peers, rand.Uint64())
	last := obtained(t, h, rwAt(t, peers[0].Store, path+"/storm").Lock)
	released(t, h, last)
	h.eventually(t, "no place to be left", func() bool { return places(t, h.within(t), peers[1].Store, path+"/storm") == 0 })
}

// breakSomething is a fault that sessions survive, and now and then one that they do not.
func breakSomething(t *testing.T, h Harness, rng *rand.Rand, p *Peer) {
	switch {
	case h.Fake && rng.IntN(8) == 0 && p.Store.Session().State() == recipes.Connected:
		p.Expire(t)
	case p.Move != nil && rng.IntN(3) == 0:
		p.Move()
	case p.CutAfterCommit != nil && rng.IntN(3) == 0:
		p.CutAfterCommit(AnyWrite)
	default:
		p.Break()
	}
}

// readLockLine is the order r1 w1 r2 r3 w2 r4, in which w1 and then w2's session ends.
func readLockLine(t *testing.T, h Harness, path string, peers []*Peer) {
	admin, readers, doomed := peers[0].Store, rwAt(t, peers[0].Store, path), peers[1]
	r1 := obtained(t, h, readers.RLock)
	w1 := queued(t, h, admin, path, 2, rwAt(t, peers[2].Store, path).Lock)
	r2 := queued(t, h, admin, path, 3, readers.RLock)
	r3 := queued(t, h, admin, path, 4, readers.RLock)
	w2 := queued(t, h, admin, path, 5, rwAt(t, doomed.Store, path).Lock)
	r4 := queued(t, h, admin, path, 6, readers.RLock)
	waiting(t, h, r2, "a reader behind a writer that waits")
	if _, ok, err := readers.TryRLock(h.within(t)); ok || err != nil {
		t.Errorf("tried past a writer that waits: %v", err)
	}
	released(t, h, r1)
	writer := granted(t, h, w1, "the first writer")
	waiting(t, h, r2, "a reader behind a writer that holds")
	released(t, h, writer)
	second, third := granted(t, h, r2, "a reader"), granted(t, h, r3, "a reader beside it")
	waiting(t, h, w2, "a writer behind readers")
	waiting(t, h, r4, "a reader behind that")
	doomed.Expire(t)
	if r := await(t, h, w2, "the writer whose session expired"); !errors.Is(r.err, recipes.ErrSessionExpired) {
		t.Errorf("the writer whose session expired: %v, %v", r.value, r.err)
	}
	fourth := granted(t, h, r4, "a reader behind a writer that went")
	if h.Fake && errors.Join(second.Check(), third.Check(), fourth.Check()) != nil {
		t.Error("readers do not hold together")
	}
	for _, held := range []*recipes.Tenure{third, second, fourth} {
		released(t, h, held)
	}
}

// Goal: there are never more holders than slots, however many try at once. Method: 100
// try to take one of three, then all wait for one.
func overAdmission(t *testing.T, h Harness) {
	path, peers := dir(t), []*Peer{h.Open(t), h.Open(t), h.Open(t), h.Open(t)}
	b, ctx := &believers{excluded: func(shares []int) bool { return sum(shares) > 3 }}, h.within(t)
	released(t, h, obtained(t, h, acquire(slotsAt(t, peers[0].Store, path, 3), 1))) // known to be free
	var mu sync.Mutex
	var got []*recipes.Tenure
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			held, ok, err := slotsAt(t, peers[i%len(peers)].Store, path, 3).TryAcquire(ctx, 1)
			if err != nil || ok != (held != nil) {
				t.Errorf("try: %v, %v", ok, err)
			}
			if ok {
				mu.Lock()
				got = append(got, held)
				mu.Unlock()
				b.enter(held, 1)
			}
		})
	}
	all.Wait()
	b.verify(t)
	if len(got) != 3 {
		t.Errorf("%d of 100 got one of 3 slots", len(got))
	}
	h.eventually(t, "three places", func() bool { return places(t, ctx, peers[0].Store, path) == len(got) })
	if free, err := slotsAt(t, peers[0].Store, path, 3).Free(ctx); free != 0 || err != nil {
		t.Errorf("%d free, %v", free, err)
	}
	for i := range 12 {
		all.Go(func() {
			held, err := slotsAt(t, peers[i%len(peers)].Store, path, 3).Acquire(ctx, 1)
			if err != nil {
				t.Error(err)
				return
			}
			b.enter(held, 1)
			pause(t, h.Timeout/500)
			b.leave(held)
			if err := held.Release(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	for _, held := range got {
		b.leave(held)
		released(t, h, held)
	}
	all.Wait()
	b.verify(t)
	if free, err := slotsAt(t, peers[0].Store, path, 3).Free(ctx); free != 3 || err != nil {
		t.Errorf("%d free after all, %v", free, err)
	}
}

// Goal: the number of slots is one for all, those who wait see it raised, and lowering
// it takes nothing from holders. Method: raise while one waits, lower while all is taken,
// then weights, then a holder that dies.
func limitsChange(t *testing.T, h Harness) {
	path, a, b := dir(t), h.Open(t), h.Open(t)
	sem, other := slotsAt(t, a.Store, path, 1), slotsAt(t, b.Store, path, 5)
	first := obtained(t, h, acquire(sem, 1))
	if err := other.SetSlots(h.within(t), 1); err != nil { // the 5 of other do not count
		t.Fatal(err)
	}
	second := queued(t, h, a.Store, path, 2, acquire(other, 1))
	waiting(t, h, second, "a second on one slot")
	if err := other.SetSlots(h.within(t), 2); err != nil {
		t.Fatal(err)
	}
	held := granted(t, h, second, "a second when there are two slots")
	if err := sem.SetSlots(h.within(t), 1); err != nil {
		t.Fatal(err)
	}
	third := queued(t, h, a.Store, path, 3, acquire(sem, 1))
	waiting(t, h, third, "a third")
	for _, holder := range []*recipes.Tenure{first, held} {
		err := holder.Confirm(h.within(t))
		if late := errors.Is(err, recipes.ErrDeadline) || errors.Is(err, recipes.ErrSessionExpired); err != nil && (h.Fake || !late) {
			t.Errorf("lowering took from a holder: %v", err)
		}
	}
	released(t, h, first)
	waiting(t, h, third, "a third beside one holder of one slot")
	released(t, h, held)
	last := granted(t, h, third, "a third when all is free")
	released(t, h, last)
	if free, err := other.Free(h.within(t)); free != 1 || err != nil {
		t.Errorf("%d free, %v", free, err)
	}
	for _, n := range []int{0, -1, recipes.SlotsMax + 1} {
		_, err := sem.Acquire(h.within(t), n)
		if serr := sem.SetSlots(h.within(t), n); !errors.Is(err, recipes.ErrInvalid) || !errors.Is(serr, recipes.ErrInvalid) {
			t.Errorf("%d slots: %v, %v", n, err, serr)
		}
	}
	slotsOfWeight(t, h, path+"-weights", a, b)
	slotsOfGhosts(t, h, path+"-ghosts", a, b)
}

// slotsOfWeight: one that needs two keeps its turn before one that needs one, and one
// that needs more than there are gets it when there are more.
func slotsOfWeight(t *testing.T, h Harness, path string, a, b *Peer) {
	sem, other := slotsAt(t, a.Store, path, 3), slotsAt(t, b.Store, path, 3)
	two := obtained(t, h, acquire(sem, 2))
	next := queued(t, h, a.Store, path, 2, acquire(other, 2))
	small := queued(t, h, a.Store, path, 3, acquire(sem, 1))
	waiting(t, h, next, "two of one free slot")
	waiting(t, h, small, "one behind that")
	released(t, h, two)
	second, third := granted(t, h, next, "two"), granted(t, h, small, "one beside two")
	big := queued(t, h, a.Store, path, 3, acquire(other, 4))
	waiting(t, h, big, "four of three")
	released(t, h, second)
	released(t, h, third)
	waiting(t, h, big, "four of three that are free")
	if err := sem.SetSlots(h.within(t), 4); err != nil {
		t.Fatal(err)
	}
	released(t, h, granted(t, h, big, "four of four"))
}

// slotsOfGhosts: slots of a holder that died are taken when it cannot believe any more, and
// those that were free at once.
func slotsOfGhosts(t *testing.T, h Harness, path string, a, b *Peer) {
	shares := &believers{excluded: func(shares []int) bool { return sum(shares) > 3 }}
	dead := obtained(t, h, acquire(slotsAt(t, a.Store, path, 3), 2))
	shares.enter(dead, 2)
	alive := slotsAt(t, b.Store, path, 3)
	a.Expire(t)
	h.eventually(t, "the dead one's place to go", func() bool { return places(t, h.within(t), b.Store, path) == 0 })
	begun := time.Now()
	one := obtained(t, h, acquire(alive, 1))
	shares.enter(one, 1)
	if took := time.Since(begun); h.Fake && took > h.Timeout/100 {
		t.Errorf("a slot that was free took %v", took)
	}
	two := obtained(t, h, acquire(alive, 2))
	shares.enter(two, 2)
	succeeded(t, h, dead, two)
	shares.verify(t)
	released(t, h, two)
	released(t, h, one)
	released(t, h, dead)
	if n := fmt.Sprint(places(t, h.within(t), b.Store, path)); n != "0" {
		t.Errorf("%s places are left", n)
	}
}
