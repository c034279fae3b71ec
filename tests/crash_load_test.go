package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/session"
)

const (
	sharedCounters = 3 // znodes that are counted up by conditional sets
	sharedPairs    = 3 // pairs of znodes that are only written together
)

// crashLoad is many workers on a few clients, with all that must be true of the tree.
type crashLoad struct {
	t        *testing.T
	clients  []*client.Client
	sessions []session.ID // of clients, at the beginning
	workers  []*crashWorker
	small    bool          // no large data
	pause    time.Duration // the longest between operations of a worker
	kills    int

	ctx    context.Context
	cancel context.CancelCauseFunc

	// gate is held shared during each operation and exclusively while all is compared.
	gate sync.RWMutex

	acknowledged    atomic.Int64
	counted, paired [max(sharedCounters, sharedPairs)]atomic.Int64 // successes
	sequence        struct {
		sync.Mutex
		values  map[int64]string // what was acknowledged, by number
		deleted int64
	}
}

// newCrashLoad prepares a load on what connect connects to.
func newCrashLoad(t *testing.T, connect func(client.Options) *client.Client, seed uint64, clients, workersEach int) *crashLoad {
	t.Helper()
	l := &crashLoad{t: t}
	l.ctx, l.cancel = context.WithCancelCause(t.Context())
	l.sequence.values = map[int64]string{}
	for range clients {
		c := connect(client.Options{})
		l.clients = append(l.clients, c)
		l.sessions = append(l.sessions, c.Session().ID())
		for range workersEach {
			l.workers = append(l.workers, newCrashWorker(l, c, len(l.workers), seed))
		}
	}
	paths := []string{"/sequence"}
	for i := range sharedCounters {
		paths = append(paths, fmt.Sprintf("/counter-%d", i))
	}
	for i := range sharedPairs {
		paths = append(paths, fmt.Sprintf("/pair-%d-a", i), fmt.Sprintf("/pair-%d-b", i))
	}
	for _, w := range l.workers {
		paths = append(paths, w.dir)
	}
	for _, path := range paths {
		if _, _, err := l.clients[0].Create(l.ctx, path, []byte("0"), client.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// run works at full speed while drive drives.
func (l *crashLoad) run(drive func()) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, w := range l.workers {
		wg.Go(func() {
			if err := w.work(stop); err != nil {
				l.t.Errorf("worker %d: %v", w.id, errors.Join(err, context.Cause(l.ctx)))
			}
		})
	}
	defer wg.Wait()
	defer close(stop)
	drive()
}

// quiet calls f while no operation is under way.
func (l *crashLoad) quiet(f func(ctx context.Context)) {
	l.gate.Lock()
	defer l.gate.Unlock()
	f(l.ctx)
}

// resent says how often the exactly-once machinery was needed.
func (l *crashLoad) resent() string {
	var resumes, resent int64
	for _, c := range l.clients {
		s := c.Stats()
		resumes, resent = resumes+s.Resumes, resent+s.Resent
	}
	return fmt.Sprintf("%d resumes, %d requests sent again", resumes, resent)
}

// verify compares all that must be with all that is.
func (l *crashLoad) verify(ctx context.Context, when string) {
	t := l.t
	t.Helper()
	var g errgroup.Group
	for _, w := range l.workers {
		g.Go(func() error { return w.verify(ctx) })
	}
	g.Go(func() error { return l.verifyShared(ctx) })
	g.Go(func() error { return l.verifySequence(ctx) })
	if err := g.Wait(); err != nil {
		t.Errorf("%s: %v", when, errors.Join(err, context.Cause(l.ctx)))
	}
	for i, c := range l.clients {
		if id := c.Session().ID(); id != l.sessions[i] {
			t.Errorf("%s: session %v was lost, the client has %v now", when, l.sessions[i], id)
		}
	}
}

// verifyShared wants each success of a counter or a pair once, and pairs whole.
func (l *crashLoad) verifyShared(ctx context.Context) error {
	c := l.clients[0]
	for i := range sharedCounters {
		data, stat, err := c.Get(ctx, fmt.Sprintf("/counter-%d", i), client.ReadOptions{})
		if err != nil {
			return err
		}
		if want := l.counted[i].Load(); string(data) != fmt.Sprint(want) || int64(stat.Version) != want {
			return fmt.Errorf("counter %d is %s at version %d after %d successful increments", i, data, stat.Version, want)
		}
	}
	for i := range sharedPairs {
		a, statA, errA := c.Get(ctx, fmt.Sprintf("/pair-%d-a", i), client.ReadOptions{})
		b, statB, errB := c.Get(ctx, fmt.Sprintf("/pair-%d-b", i), client.ReadOptions{})
		if err := errors.Join(errA, errB); err != nil {
			return err
		}
		want := l.paired[i].Load()
		if string(a) != string(b) || statA.Mzxid != statB.Mzxid && want > 0 || int64(statA.Version) != want || int64(statB.Version) != want {
			return fmt.Errorf("pair %d is %.40q %+v and %.40q %+v after %d transactions", i, a, statA, b, statB, want)
		}
	}
	return nil
}

// verifySequence wants the numbers of all sequential creates without a hole, and of
// their znodes exactly those that were not deleted.
func (l *crashLoad) verifySequence(ctx context.Context) error {
	l.sequence.Lock()
	defer l.sequence.Unlock()
	count := int64(len(l.sequence.values))
	for n := range count {
		if _, ok := l.sequence.values[n]; !ok {
			return fmt.Errorf("%d sequential creates were acknowledged, but none has the number %d", count, n)
		}
	}
	var want []string
	for _, w := range l.workers {
		want = append(want, w.names("/sequence")...)
	}
	slices.Sort(want)
	names, stat, err := l.clients[0].Children(ctx, "/sequence", client.ReadOptions{})
	if err != nil {
		return err
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		return fmt.Errorf("/sequence has %d children, %d must be there; first difference: %s", len(names), len(want), firstDifference(names, want))
	}
	if changes := count + l.sequence.deleted; int64(stat.Cversion) != changes {
		return fmt.Errorf("/sequence has cversion %d after %d creates and %d deletes", stat.Cversion, count, l.sequence.deleted)
	}
	return nil
}

// numbered notes that a sequential create was acknowledged with a number.
func (l *crashLoad) numbered(n int64, value string) error {
	l.sequence.Lock()
	defer l.sequence.Unlock()
	if other, ok := l.sequence.values[n]; ok {
		return fmt.Errorf("the number %d was given to %s and to %s", n, other, value)
	}
	l.sequence.values[n] = value
	return nil
}

// firstDifference describes where two sorted lists part.
func firstDifference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return "without " + want[i]
		case i >= len(want):
			return "with " + got[i]
		case got[i] < want[i]:
			return "with " + got[i]
		case got[i] > want[i]:
			return "without " + want[i]
		}
	}
	return "none"
}
