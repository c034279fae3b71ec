package recipestest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// pitfallsOfLocks are those of mutexes and read-write locks; semaphores' are in
// pitfalls_locks_slots.go.
var pitfallsOfLocks = []pitfall{
	{number: 64, name: "ReleasedByFormerHolder", run: releasedByFormerHolder},
	{number: 65, name: "SharedByGoroutines", run: sharedByGoroutines},
	{number: 66, name: "HalfReentrant", run: halfReentrant},
	{number: 67, name: "DowngradeLetsWriterIn", run: downgradeLetsWriterIn},
	{number: 68, name: "ReadLockOrder", run: readLockOrder},
	{number: 69, name: "OverAdmission", run: overAdmission},
	{number: 70, name: "LimitsChange", run: limitsChange},
	{number: 71, name: "NotFreedAfterLoss", run: notFreedAfterLoss},
	{number: 72, name: "DirectoryCleanedUnderWaiter", run: directoryCleanedUnderWaiter},
	{number: 73, name: "ParentOfWrongKind", run: parentOfWrongKind},
	{number: 74, name: "LocksInOtherOrder", run: locksInOtherOrder},
}

func mutexAt(t *testing.T, s recipes.Store, path string, edit ...func(*recipes.Options)) *recipes.Mutex {
	t.Helper()
	var o recipes.Options
	for _, e := range edit {
		e(&o)
	}
	m, err := recipes.NewMutex(s, path, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func rwAt(t *testing.T, s recipes.Store, path string) *recipes.RWMutex {
	t.Helper()
	m, err := recipes.NewRWMutex(s, path, recipes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// obtained waits for a tenure with one of the methods that wait.
func obtained(t *testing.T, h Harness, lock func(context.Context) (*recipes.Tenure, error)) *recipes.Tenure {
	t.Helper()
	held, err := lock(h.within(t))
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// queued begins to wait for a tenure and returns when its place is the n-th in dir, as
// seen from s.
func queued(t *testing.T, h Harness, s recipes.Store, dir string, n int, lock func(context.Context) (*recipes.Tenure, error)) <-chan result[*recipes.Tenure] {
	t.Helper()
	ctx := h.within(t)
	done := async(func() (*recipes.Tenure, error) { return lock(ctx) })
	h.eventually(t, fmt.Sprintf("%d places in %s", n, dir), func() bool { return places(t, ctx, s, dir) == n })
	return done
}

// places counts the children of dir that have a sequence number.
func places(t *testing.T, ctx context.Context, s recipes.Store, dir string) (n int) {
	t.Helper()
	for _, name := range children(t, ctx, s, dir) {
		if name != "slots" {
			n++
		}
	}
	return n
}

// waiting fails the test if what must wait does not.
func waiting(t *testing.T, h Harness, done <-chan result[*recipes.Tenure], what string) {
	t.Helper()
	pause(t, h.Timeout/8)
	select {
	case r := <-done:
		t.Fatalf("%s: must wait, but got %v, %v", what, r.value, r.err)
	default:
	}
}

// granted waits for what was queued.
func granted(t *testing.T, h Harness, done <-chan result[*recipes.Tenure], what string) *recipes.Tenure {
	t.Helper()
	r := await(t, h, done, what)
	if r.err != nil {
		t.Fatalf("%s: %v", what, r.err)
	}
	return r.value
}

func released(t *testing.T, h Harness, held *recipes.Tenure) {
	t.Helper()
	if err := held.Release(h.within(t)); err != nil {
		t.Errorf("release of token %d: %v", held.Token(), err)
	}
}

// succeeded fails the test if a former holder believes when its successor does: both at
// the moment between two Checks of the successor.
func succeeded(t *testing.T, h Harness, old, next *recipes.Tenure) {
	t.Helper()
	before, former, after := next.Check(), old.Check(), next.Check()
	if former == nil && before == nil && after == nil {
		t.Errorf("both believe: tokens %d and %d of %s", old.Token(), next.Token(), old.Name())
	}
	if h.Fake && before != nil {
		t.Errorf("the successor does not hold: %v", before)
	}
	if next.Token() <= old.Token() {
		t.Errorf("token %d after %d", next.Token(), old.Token())
	}
}

// believers notes who holds what share of one thing and finds those who believe together
// though they must not. It is safe for concurrent use.
type believers struct {
	// excluded reports whether the shares are too many together.
	excluded func(shares []int) bool

	mu       sync.Mutex
	held     map[*recipes.Tenure]int
	tokens   map[recipes.Token]bool
	overlaps []error
}

// enter notes a tenure that was just obtained, whose share is not negative.
func (b *believers) enter(held *recipes.Tenure, share int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held == nil {
		b.held, b.tokens = map[*recipes.Tenure]int{}, map[recipes.Token]bool{}
	}
	if b.tokens[held.Token()] {
		b.overlaps = append(b.overlaps, fmt.Errorf("token %d was given twice", held.Token()))
	}
	b.tokens[held.Token()] = true
	b.held[held] = share
	b.look()
}

// look finds those whose Checks all pass now: a moment is between two rounds of Checks,
// and who passes in both did so then.
func (b *believers) look() {
	var now []*recipes.Tenure
	for held := range b.held {
		if held.Check() == nil {
			now = append(now, held)
		}
	}
	var shares []int
	var who []recipes.Token
	for _, held := range now {
		if held.Check() == nil {
			shares, who = append(shares, b.held[held]), append(who, held.Token())
		}
	}
	if b.excluded(shares) && len(b.overlaps) < 10 {
		b.overlaps = append(b.overlaps, fmt.Errorf("tokens %v believe together, with shares %v", who, shares))
	}
}

// leave is called before a release.
func (b *believers) leave(held *recipes.Tenure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.look()
	delete(b.held, held)
}

func (b *believers) verify(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, err := range b.overlaps {
		t.Error(err)
	}
}

// moreThanOne is the rule of an exclusive lock.
func moreThanOne(shares []int) bool { return len(shares) > 1 }

// Goal: only what Lock returned releases, and only its own place. Method: a holder's
// session expires, another takes the lock, the first releases, twice.
func releasedByFormerHolder(t *testing.T, h Harness) {
	path, a, b := dir(t), h.Open(t), h.Open(t)
	old := obtained(t, h, mutexAt(t, a.Store, path).Lock)
	a.Expire(t)
	next := obtained(t, h, mutexAt(t, b.Store, path).Lock)
	succeeded(t, h, old, next)
	for range 2 {
		released(t, h, old)
	}
	if n := places(t, h.within(t), b.Store, path); n != 1 {
		t.Errorf("%d places after the former holder's release", n)
	}
	if err := next.Confirm(h.within(t)); err != nil {
		t.Errorf("the holder after the former one's release: %v", err)
	}
	if third, ok, err := mutexAt(t, a.Store, path).TryLock(h.within(t)); ok || err != nil {
		t.Errorf("a third was let in: %v, %v", third, err)
	}
	released(t, h, next)
}

// Goal: goroutines of one session exclude each other like anybody else. Method: several
// on one Store and one Mutex.
func sharedByGoroutines(t *testing.T, h Harness) {
	path, p := dir(t), h.Open(t)
	m, b := mutexAt(t, p.Store, path), &believers{excluded: moreThanOne}
	ctx := h.within(t)
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for range 3 {
				held, err := m.Lock(ctx)
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
			}
		})
	}
	all.Wait()
	b.verify(t)
	if len(b.tokens) != 18 {
		t.Errorf("%d tenures", len(b.tokens))
	}
}

// Goal: a mutex is not reentrant, not even by half. Method: its holder locks again until
// ctx ends, and tries; it still holds then, and one release frees the lock.
func halfReentrant(t *testing.T, h Harness) {
	path, p := dir(t), h.Open(t)
	m := mutexAt(t, p.Store, path)
	held := obtained(t, h, m.Lock)
	ctx, cancel := context.WithTimeout(t.Context(), h.Timeout/4)
	defer cancel()
	if again, err := m.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("locked again by its holder: %v, %v", again, err)
	}
	if again, ok, err := m.TryLock(h.within(t)); ok || err != nil {
		t.Errorf("tried by its holder: %v, %v", again, err)
	}
	if err := held.Confirm(h.within(t)); err != nil {
		t.Errorf("the holder after that: %v", err)
	}
	h.eventually(t, "one place is left", func() bool { return places(t, h.within(t), p.Store, path) == 1 })
	released(t, h, held)
	next, ok, err := mutexAt(t, h.Open(t).Store, path).TryLock(h.within(t))
	if !ok {
		t.Fatalf("not free after one release: %v", err)
	}
	released(t, h, next)
}

// Goal: whoever holds a write lock and wants to read waits like all others, so that no
// writer comes in beside it. Method: a writer, another behind it, then the first one's
// reader.
func downgradeLetsWriterIn(t *testing.T, h Harness) {
	path, a, b := dir(t), h.Open(t), h.Open(t)
	first := obtained(t, h, rwAt(t, a.Store, path).Lock)
	writer := queued(t, h, a.Store, path, 2, rwAt(t, b.Store, path).Lock)
	reader := queued(t, h, a.Store, path, 3, rwAt(t, a.Store, path).RLock)
	waiting(t, h, reader, "a writer that reads")
	waiting(t, h, writer, "the second writer")
	released(t, h, first)
	second := granted(t, h, writer, "the second writer")
	waiting(t, h, reader, "a reader behind a writer")
	released(t, h, second)
	read := granted(t, h, reader, "the reader")
	if first.Token() >= second.Token() || second.Token() >= read.Token() {
		t.Errorf("tokens %d, %d, %d", first.Token(), second.Token(), read.Token())
	}
	released(t, h, read)
}

// Goal: a lock is free again after its holder is lost, for its own process too. Method:
// the holder's session expires; it locks in its next one. Then others by trying alone.
func notFreedAfterLoss(t *testing.T, h Harness) {
	path, p := dir(t), h.Open(t)
	sem, err := recipes.NewSemaphore(p.Store, path+"/slots", 1, recipes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	one := func(ctx context.Context) (*recipes.Tenure, error) { return sem.Acquire(ctx, 1) }
	for _, lock := range []func(context.Context) (*recipes.Tenure, error){mutexAt(t, p.Store, path+"/lock").Lock, one} {
		session := p.Store.Session()
		old := obtained(t, h, lock)
		p.Expire(t)
		at := time.Now()
		select {
		case <-session.Done():
		case <-h.within(t).Done():
			t.Fatal("the session's end was not told")
		}
		next := obtained(t, h, lock)
		if took := time.Since(at); h.Fake && took > h.Timeout {
			t.Errorf("held again after %v", took)
		}
		succeeded(t, h, old, next)
		released(t, h, old)
		released(t, h, next)
	}
	whoeverTriesSucceeds(t, h, path+"/tried")
}

// whoeverTriesSucceeds takes a lock by trying alone: a new one, and one whose holder died.
func whoeverTriesSucceeds(t *testing.T, h Harness, path string) {
	a, b := h.Open(t), h.Open(t)
	trying := func(m *recipes.Mutex) (held *recipes.Tenure) {
		h.eventually(t, "a try to succeed", func() bool {
			got, ok, err := m.TryLock(h.within(t))
			if err != nil {
				t.Errorf("try: %v", err)
			}
			held = got
			return ok
		})
		return held
	}
	old := trying(mutexAt(t, a.Store, path))
	a.Expire(t)
	next := trying(mutexAt(t, b.Store, path))
	succeeded(t, h, old, next)
	released(t, h, old)
	released(t, h, next)
}

// Goal: a lock's directory may be removed while it is not used, at any moment. Method: it
// is, just before each of the first creates in it, by a reaper and by hand; and a waiter's
// is not, as it is not empty.
func directoryCleanedUnderWaiter(t *testing.T, h Harness) {
	path, p, admin := dir(t), h.Open(t), h.Open(t)
	removals := 0
	hooked := &Hooked{Store: p.Store, Before: func(ctx context.Context, c Call) error {
		if c.Kind != Create || !c.Ops[0].Spec.Sequential || removals == 4 {
			return nil
		}
		removals++
		if h.Reap != nil {
			h.Reap(t)
		}
		if err := admin.Store.Delete(ctx, path, recipes.Always()); err != nil && !errors.Is(err, znode.NoNode) {
			t.Errorf("remove %s: %v", path, err)
		}
		return nil
	}}
	reap := func(o *recipes.Options) { o.Reap = true }
	m := mutexAt(t, hooked, path, reap)
	first := obtained(t, h, m.Lock)
	if removals < 3 {
		t.Errorf("%d removals", removals)
	}
	second := queued(t, h, admin.Store, path, 2, mutexAt(t, admin.Store, path, reap).Lock)
	if h.Reap != nil {
		h.Reap(t)
	}
	waiting(t, h, second, "the second")
	released(t, h, first)
	held := granted(t, h, second, "the second")
	if held.Token() <= first.Token() {
		t.Errorf("token %d after %d", held.Token(), first.Token())
	}
	released(t, h, held)
	if h.Reap == nil {
		return
	}
	h.Reap(t)
	if _, _, err := admin.Store.Get(h.within(t), path); !errors.Is(err, znode.NoNode) {
		t.Errorf("the directory is left: %v", err)
	}
	third := obtained(t, h, m.Lock)
	if third.Token() <= held.Token() {
		t.Errorf("token %d after %d and a removed directory", third.Token(), held.Token())
	}
	released(t, h, third)
}

// Goal: a directory that somebody else made works, of whatever kind can have children,
// and one that cannot is an error and not a wait. Method: one of each kind.
func parentOfWrongKind(t *testing.T, h Harness) {
	path, p := dir(t), h.Open(t)
	released(t, h, obtained(t, h, mutexAt(t, p.Store, path+"/lock").Lock)) // makes the parents
	for name, kind := range map[string]znode.Kind{"persistent": znode.Persistent, "container": znode.Container, "ephemeral": znode.Ephemeral} {
		own := path + "/" + name
		if _, err := p.Store.Create(h.within(t), own, nil, recipes.CreateSpec{Kind: kind}); err != nil {
			t.Fatal(err)
		}
		for _, reap := range []bool{false, true} {
			m := mutexAt(t, p.Store, own, func(o *recipes.Options) { o.Reap = reap })
			held, err := m.Lock(h.within(t))
			switch {
			case kind == znode.Ephemeral && errors.Is(err, znode.NoChildrenForEphemerals):
			case kind == znode.Ephemeral || err != nil:
				t.Errorf("lock in one that is %s: %v", name, err)
			default:
				released(t, h, held)
			}
		}
	}
}
