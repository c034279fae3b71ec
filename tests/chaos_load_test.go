package tests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/native"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/znode"
)

// chaosWatches is P4: every watch tells every change once and in order.
type chaosWatches struct {
	l        *chaosLoad
	c        *client.Client
	giveUp   context.CancelFunc
	all      changes
	told     [3][]change
	writers  sync.WaitGroup
	watchers sync.WaitGroup
}

func newChaosWatches(l *chaosLoad) *chaosWatches {
	t := l.r.t
	ctx, giveUp := context.WithCancel(t.Context())
	w := &chaosWatches{l: l, c: l.r.below(l.chroot), giveUp: giveUp}
	_, stat, err := w.c.Create(t.Context(), "/tree", nil, client.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range w.told {
		c := l.r.below(l.chroot)
		l.closers = append(l.closers, c.Close)
		w.watchers.Go(func() { w.told[i] = collect(ctx, t, c, stat.Czxid) })
	}
	const pause = 40 * time.Millisecond // 20 on average
	for i := range 2 {
		c := l.r.below(l.chroot)
		l.closers = append(l.closers, c.Close)
		rng := rand.New(rand.NewPCG(l.seed, uint64(200+i)))
		w.writers.Go(func() {
			makeChanges(ctx, t, c, rng, i, &w.all, int(l.length/(pause/2)), pause)
		})
	}
	return w
}

func (w *chaosWatches) judge() error {
	defer w.giveUp()
	defer time.AfterFunc(chaosJudgeMax, w.giveUp).Stop()
	w.writers.Wait()
	_, end, err := w.c.Create(w.l.r.t.Context(), "/tree/end", nil, client.CreateOptions{})
	if err != nil {
		return fmt.Errorf("the end of the watches: %w", err)
	}
	w.all.add(change{end.Czxid, 0, znode.EventCreated, "/tree/end"})
	w.watchers.Wait()
	want := w.all.sorted()
	var errs []error
	for i, got := range w.told {
		if !slices.Equal(got, want) {
			errs = append(errs, fmt.Errorf("watcher %d was told %d changes of %d; %s", i, len(got), len(want), parting(got, want)))
		}
	}
	w.l.r.t.Logf("%d changes watched by %d", len(want), len(w.told))
	return errors.Join(append(errs, w.c.Close())...)
}

// chaosSessions is P6 and P7: sessions with a short timeout at random members, which send
// heartbeats more or less in time and fall silent.
type chaosSessions struct {
	l    *chaosLoad
	dir  string
	gone *deletions
	runs sync.WaitGroup

	mu   sync.Mutex
	held map[string]*bareSession // by the path of the session's ephemeral
}

// chaosSessionTimeout is shorter than many faults are long.
const chaosSessionTimeout = 2 * time.Second

func newChaosSessions(l *chaosLoad) *chaosSessions {
	t := l.r.t
	s := &chaosSessions{l: l, dir: l.chroot + "/sessions", held: map[string]*bareSession{}}
	mustCreate(t, l.r.c, s.dir)
	s.gone = observe(t, l.r.c, s.dir)
	for i := range 6 {
		rng := rand.New(rand.NewPCG(l.seed, uint64(300+i)))
		s.runs.Go(func() {
			for n := 0; l.ctx.Err() == nil; n++ {
				s.live(rng, fmt.Sprintf("%s/%d-%d", s.dir, i, n))
			}
		})
	}
	return s
}

// live is the life of one session.
func (s *chaosSessions) live(rng *rand.Rand, path string) {
	m := s.l.r.e.members[rng.IntN(len(s.l.r.e.members))]
	ctx, cancel := context.WithTimeout(s.l.ctx, 2*time.Second)
	defer cancel()
	b, err := openBareSession(ctx, m.dial, chaosSessionTimeout)
	if err != nil {
		pauseUpTo(rng, 200*time.Millisecond)
		return
	}
	stuck := time.AfterFunc(chaosSessionTimeout, func() { b.conn.NetConn().Close() })
	err = b.createEphemerals(path)
	if stuck.Stop(); err == nil {
		s.mu.Lock()
		s.held[path] = b
		s.mu.Unlock()
		beatAtRandom(b, rng, chaosSessionTimeout)
	}
	b.close()
}

func (s *chaosSessions) judge() error {
	s.runs.Wait()
	c := s.l.r.c
	var names []string
	for deadline := time.Now().Add(10 * chaosSessionTimeout); ; <-time.After(eventuallyPoll) {
		var err error
		if names, _, err = c.Children(s.l.r.t.Context(), s.dir, client.ReadOptions{}); err != nil {
			return err
		}
		if len(names) == 0 || time.Now().After(deadline) {
			break
		}
	}
	var errs []error
	for path, b := range s.held {
		at, _ := s.gone.of(path)
		sent, _, _ := b.proven()
		for wait := time.Now().Add(time.Second); at.IsZero() && time.Now().Before(wait); at, _ = s.gone.of(path) {
			<-time.After(eventuallyPoll) // its event is on the way
		}
		switch lived := at.Sub(sent); {
		case slices.Contains(names, strings.TrimPrefix(path, s.dir+"/")): // told below
		case at.IsZero():
			errs = append(errs, fmt.Errorf("session %v: nobody was told that its ephemeral %s went", b.id, path))
		case lived < chaosSessionTimeout:
			errs = append(errs, fmt.Errorf("session %v: its ephemeral %s went %v after the sending of an answered heartbeat, the timeout is %v",
				b.id, path, lived, chaosSessionTimeout))
		}
	}
	if len(names) > 0 {
		errs = append(errs, fmt.Errorf("ephemerals of sessions that fell silent are still there: %v", names))
	}
	s.l.r.t.Logf("%d sessions fell silent", len(s.held))
	return errors.Join(errs...)
}

// chaosElection is the recipes on top: no two leaders at once, tokens that grow, guarded
// writes in their order.
type chaosElection struct {
	l     *chaosLoad
	inv   *recipestest.Invariant
	turns atomic.Int64 // how often somebody was elected
	runs  sync.WaitGroup
}

// chaosElectionTimeout is the session timeout of candidates.
const chaosElectionTimeout = 3 * time.Second

func newChaosElection(l *chaosLoad) *chaosElection {
	t := l.r.t
	e := &chaosElection{l: l, inv: recipestest.NewInvariant(l.seed)}
	e.inv.Faults(true)
	mustCreate(t, l.r.c, l.chroot+"/log")
	for i := range 3 {
		s, err := native.Connect(t.Context(), client.Options{Endpoints: l.r.e.endpoints(l.chroot), Timeout: chaosElectionTimeout})
		if err != nil {
			t.Fatal(err)
		}
		l.closers = append(l.closers, s.Close)
		election, err := recipes.NewElection(s, "/election", recipes.ElectionOptions{Options: recipes.Options{ID: strconv.Itoa(i)}})
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(l.seed, uint64(400+i)))
		e.runs.Go(func() {
			for l.ctx.Err() == nil {
				tenure, err := election.Campaign(l.ctx)
				if err != nil {
					pauseUpTo(rng, 20*time.Millisecond)
					continue
				}
				e.lead(strconv.Itoa(i), tenure, rng)
			}
		})
	}
	return e
}

// lead holds for a while or until the tenure is lost, writing under its guard.
func (e *chaosElection) lead(id string, tenure *recipes.Tenure, rng *rand.Rand) {
	h := e.inv.Hold(id, tenure)
	e.turns.Add(1)
	token := []byte(strconv.FormatUint(uint64(tenure.Token()), 10))
	work, cancel := context.WithTimeout(tenure.Context(), upTo(rng, 2*time.Second))
	defer cancel()
	var writer sync.WaitGroup
	writer.Go(func() {
		for ; work.Err() == nil; <-time.After(10 * time.Millisecond) {
			results, err := tenure.Txn(work, recipes.OpSet("/log", token, recipes.Always()))
			if err == nil {
				h.Wrote(results[0].Stat.Mzxid)
			}
		}
	})
	for h.Check() == nil && work.Err() == nil {
		<-time.After(2 * time.Millisecond)
	}
	cancel()
	writer.Wait()
	lost := h.Check() != nil
	h.Ended()
	ctx, done := context.WithTimeout(context.Background(), 2*chaosElectionTimeout)
	defer done()
	if err := tenure.Release(ctx); err == nil && !lost {
		h.Released()
	}
}

// goesOn waits until there was a hand-over that began without faults: sessions that ended in them
// may first have to expire.
func (e *chaosElection) goesOn() {
	e.l.r.t.Helper()
	before := e.turns.Load()
	e.l.r.e.eventually(30*time.Second, "elections go on", func() error {
		if n := e.turns.Load() - before; n < 2 {
			return fmt.Errorf("%d turns without faults", n)
		}
		return nil
	})
}

func (e *chaosElection) judge() error {
	e.runs.Wait()
	record, err := e.inv.Verify()
	e.l.r.t.Log(record)
	return err
}
