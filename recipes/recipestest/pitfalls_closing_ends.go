package recipestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// closeMax is a few seconds, and some for a busy machine where time is real.
func (h Harness) closeMax() time.Duration {
	if h.Fake {
		return 5 * time.Second
	}
	return 20 * time.Second
}

// Goal: no end waits for a network that is not there. Method: cut off, give up a campaign,
// end a Run, release, and close.
func closeHangs(t *testing.T, h Harness) {
	s, a, b := newScene(t, h), h.Open(t), h.Open(t)
	held := s.lead(a.Store, "a")
	other, err := recipes.NewElection(a.Store, s.dir+"-other", recipes.ElectionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	ranLeads := make(chan struct{}, 100)
	ran := async(func() (any, error) {
		return nil, other.Run(ctx, func(ctx context.Context, _ *recipes.Tenure) error {
			ranLeads <- struct{}{}
			<-ctx.Done()
			return nil
		})
	})
	s.happens(ranLeads, "Run leads")
	e := s.election(a.Store, "waiter")
	waiting := async(func() (*recipes.Tenure, error) { return e.Campaign(ctx) })
	s.places(b.Store, 2)
	a.Partition()
	begun := time.Now()
	within := func(what string) {
		t.Helper()
		if took := time.Since(begun); took > h.closeMax() {
			t.Errorf("%s took %v without a network", what, took)
		}
		begun = time.Now()
	}
	cancel()
	if r := await(t, h, waiting, "the wait ends"); r.err == nil {
		t.Error("leads without a network")
	}
	within("giving up")
	if r := await(t, h, ran, "Run ends"); r.err != nil {
		t.Error(r.err)
	}
	within("the end of Run")
	if err := held.Release(s.ctx); err == nil && h.Fake {
		t.Error("a release was confirmed without a network")
	}
	within("Release")
	_ = a.Store.Close() // it cannot be confirmed
	within("Close")
	s.lost(held, "a")
	a.Heal()
	s.places(b.Store, 0)
}

// Goal: ends may come twice. Method: release and close, at once and again.
func doubleClose(t *testing.T, h Harness) {
	s, a, b := newScene(t, h), h.Open(t), h.Open(t)
	held := s.lead(a.Store, "a")
	kept, err := recipes.NewElection(a.Store, s.dir+"-other", recipes.ElectionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	open, err := kept.Campaign(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	twice := func(end func() error) {
		t.Helper()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := end(); err != nil && (h.Fake || !errors.Is(err, recipes.ErrUncertain)) {
					t.Errorf("an end among others: %v", err)
				}
			})
		}
		wg.Wait()
		_ = end()
	}
	twice(func() error { return held.Release(s.ctx) })
	s.places(b.Store, 0)
	twice(a.Store.Close)
	s.lost(open, "a of a closed store")
	if _, err := kept.Campaign(s.ctx); !errors.Is(err, recipes.ErrSessionClosed) {
		t.Errorf("a campaign on a closed store: %v", err)
	}
	if err := open.Release(s.ctx); err != nil {
		t.Errorf("a release after Close: %v", err)
	}
}

// watchCounter counts the watches that were not given back.
type watchCounter struct {
	recipes.Store
	open atomic.Int64
}

func (c *watchCounter) counted(w recipes.Watch, err error) recipes.Watch {
	if err != nil {
		return w
	}
	c.open.Add(1)
	cancel := w.Cancel
	once := sync.OnceFunc(func() { c.open.Add(-1) })
	w.Cancel = func() {
		once()
		cancel()
	}
	return w
}

// GetW implements recipes.Store.
func (c *watchCounter) GetW(ctx context.Context, path string) ([]byte, znode.Stat, recipes.Watch, error) {
	data, stat, w, err := c.Store.GetW(ctx, path)
	return data, stat, c.counted(w, err), err
}

// ExistsW implements recipes.Store.
func (c *watchCounter) ExistsW(ctx context.Context, path string) (znode.Stat, bool, recipes.Watch, error) {
	stat, found, w, err := c.Store.ExistsW(ctx, path)
	return stat, found, c.counted(w, err), err
}

// ChildrenW implements recipes.Store.
func (c *watchCounter) ChildrenW(ctx context.Context, path string) ([]string, znode.Stat, recipes.Watch, error) {
	names, stat, w, err := c.Store.ChildrenW(ctx, path)
	return names, stat, c.counted(w, err), err
}

var profileCount = regexp.MustCompile(`(?m)^(\d+) @ `)

// labelled counts the goroutines that descend from one with this label: other tests run
// beside.
func labelled(label string) (n int) {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1) // to memory
	for _, group := range strings.Split(b.String(), "\n\n") {
		if !strings.Contains(group, strconv.Quote(label)) {
			continue
		}
		if m := profileCount.FindStringSubmatch(group); m != nil {
			count, _ := strconv.Atoi(m[1])
			n += count
		}
	}
	return n
}

// Goal: a candidacy leaves nothing behind. Method: thousands that wait and are given up at
// any moment, some that lead; then count goroutines, watches and znodes.
func leaks(t *testing.T, h Harness) {
	s, a, b := newScene(t, h), h.Open(t), h.Open(t)
	s.ctx = t.Context()
	cycles, workers := h.rounds(10_000, 300), h.rounds(20, 4)
	store := &watchCounter{Store: b.Store}
	pprof.Do(s.ctx, pprof.Labels("leaks", s.dir), func(context.Context) {
		held := s.lead(a.Store, "a")
		before := labelled(s.dir) // with the upkeep of a
		var given atomic.Int64
		var wg sync.WaitGroup
		for worker := range workers {
			e := s.election(store, fmt.Sprint("worker", worker))
			wg.Go(func() {
				for n := given.Add(1); n <= int64(cycles); n = given.Add(1) {
					ctx, cancel := context.WithTimeout(s.ctx, time.Duration(n%8)*h.Timeout/2000)
					if tenure, err := e.Campaign(ctx); err == nil {
						_ = tenure.Release(s.ctx)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		s.release(held)
		s.release(s.led(s.campaign(store, "last"), "the last"))
		s.places(a.Store, 0)
		h.eventually(t, "all watches are given back", func() bool { return store.open.Load() == 0 })
		h.eventually(t, "all goroutines have ended", func() bool { return labelled(s.dir) <= before })
		if c, ok := b.Store.(*fakeClient); ok && c.f.Watches() != 0 {
			t.Errorf("%d watches of the backend", c.f.Watches())
		}
	})
}

// Goal: who looks late sees the last of what was, not the first. Method: readers that
// stand still for a thousand breaks of the connection and for many hand-overs.
func eventsDropped(t *testing.T, h Harness) {
	s, a, b := newScene(t, h), h.Open(t), h.Open(t)
	s.ctx = t.Context()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	first, stalled := make(chan struct{}), make(chan struct{})
	var last atomic.Int64
	var once sync.Once
	states := async(func() (any, error) {
		for state := range a.Store.Session().States(ctx) {
			last.Store(int64(state))
			once.Do(func() {
				close(first)
				<-stalled
			})
		}
		return nil, nil
	})
	seen, watched := make(chan recipes.View, 1), make(chan struct{})
	var onceViewed sync.Once
	views := async(func() (any, error) {
		for v, err := range s.election(b.Store, "observer").Observe(ctx) {
			if err != nil {
				return nil, err
			}
			onceViewed.Do(func() {
				close(watched)
				<-stalled
			})
			select {
			case <-seen:
			default:
			}
			seen <- v
		}
		return nil, nil
	})
	s.happens(first, "a first state")
	s.happens(watched, "a first view")
	for range h.rounds(1000, 40) {
		a.Break()
		s.answered(a.Store)
	}
	for range h.rounds(50, 5) {
		s.release(s.lead(b.Store, "b"))
	}
	held := s.lead(b.Store, "b")
	close(stalled)
	h.eventually(t, "the reader of states sees the last", func() bool {
		return recipes.ConnState(last.Load()) == a.Store.Session().State() || a.Store.Session().ID() == 0
	})
	h.eventually(t, "the reader of views sees the last", func() bool {
		select {
		case v := <-seen:
			return v.Leader != nil && v.Leader.Token == held.Token()
		default:
			return held.Check() != nil && !h.Fake
		}
	})
	s.release(held)
	cancel()
	await(t, h, states, "the states end")
	if r := await(t, h, views, "the views end"); r.err != nil {
		t.Error(r.err)
	}
}
