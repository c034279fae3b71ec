package recipestest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// pitfallsOfOrder are about who is next.
var pitfallsOfOrder = []pitfall{
	{13, "Herd", []verb{verbExpire}, herd},
	{14, "PredecessorVanishes", nil, predecessorVanishes},
	{15, "MiddleDies", []verb{verbExpire}, middleDies},
	{16, "OwnNodeMissing", nil, ownNodeMissing},
	{17, "LeadersNodeDeleted", nil, leadersNodeDeleted},
	{18, "SortedByName", nil, sortedByName},
	{19, "NumbersOverflow", []verb{verbSetCounter}, numbersOverflow},
	{20, "NumbersBeginAnew", []verb{verbReap}, numbersBeginAnew},
	{21, "ForeignChildren", nil, foreignChildren},
	{22, "NumbersWithGaps", nil, numbersWithGaps},
	{23, "LeaderReadTooLate", nil, leaderReadTooLate},
	{24, "ElectedIsNotActing", nil, electedIsNotActing},
}

// Goal: the end of a leader wakes one candidate, which looks a constant number of times.
// Method: 50 candidates on four peers; end the leader's session, then release one after
// another, and count all reads.
func herd(t *testing.T, h Harness) {
	s := newScene(t, h)
	leader, candidates := h.Open(t), h.rounds(50, 20)
	held := s.lead(leader.Store, "leader")
	var reads atomic.Int64
	var stores []recipes.Store
	for range 4 {
		stores = append(stores, &Hooked{Store: h.Open(t).Store, Before: func(_ context.Context, c Call) error {
			if c.Kind == Get || c.Kind == Children || c.Kind == Exists {
				reads.Add(1)
			}
			return nil
		}})
	}
	won := make(chan *recipes.Tenure, candidates)
	for i := range candidates {
		e := s.election(stores[i%4], fmt.Sprint(i))
		go func() {
			if tenure, err := e.Campaign(s.ctx); err == nil {
				won <- tenure
			}
		}()
	}
	s.places(leader.Store, candidates+1)
	pause(t, h.Timeout/4) // until the last has looked for whom it waits
	next := func(step string, end func()) *recipes.Tenure {
		before := reads.Load()
		end()
		select {
		case tenure := <-won:
			pause(t, h.Timeout/20)
			// A busy machine may cost a connection, after which all look again.
			if n := reads.Load() - before; n > 12 && (h.Fake || n > int64(candidates)) {
				t.Errorf("%s: %d reads by %d candidates", step, n, candidates)
			}
			return tenure
		case <-s.ctx.Done():
			t.Fatalf("%s: nobody leads", step)
			return nil
		}
	}
	held = next("the leader's session ends", func() {
		leader.Expire(t)
		if h.Fake && held.Check() == nil {
			pause(t, time.Millisecond)
		}
	})
	for range 5 {
		former := held
		held = next("the leader releases", func() { s.release(former) })
	}
}

// watchLedger is a Store that knows which of its watches nobody has ended.
type watchLedger struct {
	recipes.Store
	mu   sync.Mutex
	open map[*recipes.Watch]string
}

// note adds a watch.
func (l *watchLedger) note(path string, w recipes.Watch, err error) recipes.Watch {
	if err != nil {
		return w
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	inner := w
	l.open[&inner] = path
	w.Cancel = func() {
		l.mu.Lock()
		delete(l.open, &inner)
		l.mu.Unlock()
		inner.Cancel()
	}
	return w
}

func (l *watchLedger) GetW(ctx context.Context, path string) ([]byte, znode.Stat, recipes.Watch, error) {
	data, stat, w, err := l.Store.GetW(ctx, path)
	return data, stat, l.note(path, w, err), err
}

func (l *watchLedger) ExistsW(ctx context.Context, path string) (znode.Stat, bool, recipes.Watch, error) {
	stat, found, w, err := l.Store.ExistsW(ctx, path)
	return stat, found, l.note(path, w, err), err
}

func (l *watchLedger) ChildrenW(ctx context.Context, path string) ([]string, znode.Stat, recipes.Watch, error) {
	names, stat, w, err := l.Store.ChildrenW(ctx, path)
	return names, stat, l.note(path, w, err), err
}

// left are the paths of the watches that nobody has cancelled and that have not fired.
func (l *watchLedger) left() (paths []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w, path := range l.open {
		select {
		case <-w.C:
		default:
			paths = append(paths, path)
		}
	}
	return paths
}

// gate is a Store whose calls that stop chooses wait, once, before they are made or
// after.
type gate struct {
	Hooked
	stopped chan struct{} // closed when a call waits
	goOn    chan struct{} // to be closed
	once    sync.Once
}

func newGate(store recipes.Store, after bool, stop func(Call) bool) *gate {
	g := &gate{stopped: make(chan struct{}), goOn: make(chan struct{})}
	g.Store = store
	hold := func(ctx context.Context, c Call) {
		if !stop(c) {
			return
		}
		g.once.Do(func() {
			close(g.stopped)
			select {
			case <-g.goOn:
			case <-ctx.Done():
			}
		})
	}
	if after {
		g.After = func(ctx context.Context, c Call, err error) error { hold(ctx, c); return err }
	} else {
		g.Before = func(ctx context.Context, c Call) error { hold(ctx, c); return nil }
	}
	return g
}

// Goal: a candidate does not wait for one that went while it looked. Method: stop it
// between list and watch, release the leader meanwhile; no watch is left afterwards.
func predecessorVanishes(t *testing.T, h Harness) {
	s := newScene(t, h)
	a, b := h.Open(t), h.Open(t)
	held := s.lead(a.Store, "a")
	ledger := &watchLedger{Store: b.Store, open: map[*recipes.Watch]string{}}
	g := newGate(ledger, true, func(c Call) bool { return c.Kind == Children && c.Path == s.dir })
	second := s.campaign(g, "b")
	s.happens(g.stopped, "the candidate has the list")
	s.release(held)
	s.exactly(a.Store, 1)
	start := time.Now()
	close(g.goOn)
	held = s.led(second, "b")
	if took := time.Since(start); h.Fake && took > 20*time.Millisecond {
		t.Errorf("led %v after it went on", took)
	}
	s.release(held)
	if left := ledger.left(); len(left) > 0 {
		t.Errorf("watches that nobody waits for: %v", left)
	}
}

// Goal: a candidate leads when all before it are gone, and not when one is. Method: end the
// second of three.
func middleDies(t *testing.T, h Harness) {
	h.calmly(t, func() error {
		s := newScene(t, h)
		a, b, c := h.Open(t), h.Open(t), h.Open(t)
		held := s.lead(a.Store, "a")
		second := s.once(b.Store)
		s.lined(a.Store, "a", "b")
		third := s.campaign(c.Store, "c")
		s.lined(a.Store, "a", "b", "c")
		b.Expire(t)
		if r := await(t, h, second, "the second's campaign fails"); !errors.Is(r.err, recipes.ErrSessionExpired) {
			t.Errorf("second: %v", r.err)
		}
		h.eventually(t, "the second has no place", func() bool { return !slices.Contains(s.line(a.Store), "b") })
		pause(t, h.Timeout/4)
		ended := len(third) > 0
		if err := held.Check(); err != nil {
			return fmt.Errorf("first: %w", err)
		}
		if ended {
			t.Error("the third does not wait")
		}
		s.release(held)
		s.release(s.led(third, "c"))
		return nil
	})
}

// Goal: a candidate whose node somebody deletes goes to the end of the line. Method: an
// operator deletes the second of three; it stays a candidate, with one node, the last.
func ownNodeMissing(t *testing.T, h Harness) {
	s := newScene(t, h)
	a, b, c := h.Open(t), h.Open(t), h.Open(t)
	held := s.lead(a.Store, "a")
	second := s.campaign(b.Store, "b")
	s.lined(a.Store, "a", "b")
	third := s.campaign(c.Store, "c")
	s.lined(a.Store, "a", "b", "c")
	s.deleteNode(a.Store, "b")
	s.lined(a.Store, "a", "c", "b")
	s.waits(second, h.Timeout/10, "the second")
	s.exactly(a.Store, 3)
	s.release(held)
	next := s.led(third, "c")
	s.waits(second, h.Timeout/10, "the second")
	s.release(next)
	s.release(s.led(second, "b"))
	s.exactly(a.Store, 0)
}

// deleteNode deletes the candidate's node, as an operator does.
func (s scene) deleteNode(store recipes.Store, id string) {
	s.t.Helper()
	for _, c := range s.view(store).Candidates {
		if c.ID == id {
			if err := store.Delete(s.ctx, znode.Join(s.dir, c.Node), recipes.Always()); err != nil {
				s.t.Fatal(err)
			}
			return
		}
	}
	s.t.Fatalf("%s is not a candidate", id)
}

// Goal: a leader whose node is deleted stops to lead before another begins. Method: an
// operator deletes it; when the next leads, the old one's Check fails, and its guarded
// write does.
func leadersNodeDeleted(t *testing.T, h Harness) {
	s := newScene(t, h)
	a, b := h.Open(t), h.Open(t)
	old := s.lead(a.Store, "a")
	e := s.election(b.Store, "b")
	var overlap atomic.Pointer[error]
	second := async(func() (*recipes.Tenure, error) {
		for {
			next, err := e.Campaign(s.ctx)
			if checked := old.Check(); err == nil {
				overlap.Store(&checked)
			}
			if h.Fake || !errors.Is(err, recipes.ErrSessionExpired) {
				return next, err
			}
		}
	})
	s.places(a.Store, 2)
	s.deleteNode(b.Store, "a")
	if _, err := a.Store.Multi(s.ctx, append(old.Guard(), recipes.OpCreate(s.dir+"-effect", nil, recipes.CreateSpec{}))...); err == nil {
		t.Error("a guarded write landed after the node was deleted")
	}
	next := s.led(second, "b")
	if err := *overlap.Load(); !errors.Is(err, recipes.ErrLost) {
		t.Errorf("the old one's Check when the new one leads: %v", err)
	}
	if next.Token() <= old.Token() {
		t.Errorf("token %d after %d", next.Token(), old.Token())
	}
	s.release(next)
	s.exactly(b.Store, 0)
}

var placeName = regexp.MustCompile(`^(.*)([0-9a-f]{32})-(-?[0-9]+)$`)

// Goal: order is that of creation, whatever random part the names have. Method: nodes whose
// names sort the other way, before and behind a candidate.
func sortedByName(t *testing.T, h Harness) {
	s := newScene(t, h)
	a, b := h.Open(t), h.Open(t)
	held := s.lead(a.Store, "a")
	parts := placeName.FindStringSubmatch(s.names(a.Store)[0])
	if parts == nil {
		t.Fatalf("a place is called %v", s.names(a.Store))
	}
	put := func(digit string) string {
		path := znode.Join(s.dir, parts[1]+strings.Repeat(digit, 32)+"-")
		made, err := b.Store.Create(s.ctx, path, nil, recipes.CreateSpec{Kind: znode.Ephemeral, Sequential: true})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	before := put("f")
	second := s.campaign(a.Store, "second")
	s.places(a.Store, 3)
	behind := put("0")
	s.release(held)
	s.waits(second, h.Timeout/10, "the candidate behind another")
	if err := b.Store.Delete(s.ctx, before, recipes.Always()); err != nil {
		t.Fatal(err)
	}
	s.release(s.led(second, "second"))
	_, name := znode.Split(behind)
	if names := s.names(a.Store); !slices.Equal(names, []string{name}) {
		t.Errorf("left in the line: %v", names)
	}
}
