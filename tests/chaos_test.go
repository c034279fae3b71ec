package tests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tenure-dev/tenure/client"
)

const (
	// chaosEpoch is for how long faults are played before all is compared.
	chaosEpoch = 12 * time.Second
	// chaosEpochLong is the same where TENURE_CHAOS asks for more than a few epochs.
	chaosEpochLong = 45 * time.Second
	// chaosDefault is for how long faults are played without TENURE_CHAOS.
	chaosDefault = 2 * chaosEpoch
	// chaosJudgeMax bounds what it takes after the faults until everybody has been answered and
	// told.
	chaosJudgeMax = 2 * time.Minute
	// chaosHistory is the history of changes that each member keeps: enough for all of an
	// epoch, so that watches must not have a gap.
	chaosHistory = 1_000_000
)

// Goal: whatever happens to the members, the network between them, their disks and the
// connections of their clients, an ensemble keeps what it promises (P1 to P7 and P9).
// Method: real processes under load of all doors; a seeded schedule of kill -9, stops in
// good order, SIGSTOP, partitions of all kinds, slow links and slow, hanging and failing
// disks for TENURE_CHAOS (24s), in epochs. After each all faults end, there must be a
// leader soon, and then: every history is linearizable; every watch has told every change
// once and in order; no session was lost, none expired before the end of what was promised
// to it, and those that fell silent are gone; no two leaders of an election overlapped;
// every acknowledged write is there, once, with its exact Stat; all members have the same
// digest.
func TestChaos(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	length, epoch := chaosLength(t)
	t.Logf("and for as long: TENURE_CHAOS=%v", length)
	r := &chaosRun{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), played: map[string]int{}}
	r.e = startEnsemble(t, ensembleOptions{links: true, faults: true, args: []string{"--history-count", fmt.Sprint(chaosHistory)}})
	for _, m := range r.e.members {
		p := newProxy(t, seed+uint64(m.id), m.dial)
		p.setFaulty(true)
		r.proxies = append(r.proxies, p)
	}
	r.c = r.e.connect(client.Options{})
	load := newCrashLoad(t, r.connect, seed, 3, 4)
	load.pause = 10 * time.Millisecond
	began := time.Now()
	load.run(func() {
		for n := 0; time.Duration(n)*epoch < length && !t.Failed(); n++ {
			r.epoch(n, epoch)
			watchdog := time.AfterFunc(chaosJudgeMax, func() { load.cancel(errors.New("the load stands still without faults")) })
			load.quiet(func(ctx context.Context) {
				load.verify(ctx, fmt.Sprintf("epoch %d", n))
				r.e.sameState()
			})
			watchdog.Stop()
		}
	})
	t.Logf("in %v faults %v; %d writes acknowledged, %v", time.Since(began), r.played, load.acknowledged.Load(), load.resent())
}

// chaosLength returns for how long to play faults, and for how long in each epoch.
func chaosLength(t *testing.T) (length, epoch time.Duration) {
	t.Helper()
	text := os.Getenv("TENURE_CHAOS")
	if text == "" {
		return chaosDefault, chaosEpoch
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("TENURE_CHAOS=%q must be a duration, as 1h", text)
	}
	if length > 4*chaosEpochLong {
		return length, chaosEpochLong
	}
	return length, chaosEpoch
}

// chaosRun is an ensemble, what is done to it and what its clients see. It belongs to the
// goroutine of the test.
type chaosRun struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand // of the faults
	e       *ensemble
	proxies []*proxy // that spoil connections of clients, one per member
	c       *client.Client
	played  map[string]int // faults by name
	busy    map[*ensembleMember]bool
}

// connect opens a session through the proxies for every second client.
func (r *chaosRun) connect(o client.Options) *client.Client {
	r.t.Helper()
	if r.rng.IntN(2) == 0 {
		return r.e.connect(o)
	}
	for _, p := range r.proxies {
		o.Endpoints = append(o.Endpoints, p.listener.Addr().String())
	}
	return r.e.connect(o)
}

// below is connect to a chroot.
func (r *chaosRun) below(chroot string) *client.Client {
	r.t.Helper()
	var o client.Options
	for i, m := range r.e.members {
		address := m.http
		if r.rng.IntN(2) == 0 {
			address = r.proxies[i].listener.Addr().String()
		}
		o.Endpoints = append(o.Endpoints, address+chroot)
	}
	return r.e.connect(o)
}

// epoch plays faults for that long under load, ends them and judges what was seen.
func (r *chaosRun) epoch(n int, length time.Duration) {
	chroot := fmt.Sprintf("/epoch-%d", n)
	mustCreate(r.t, r.c, chroot)
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	l := &chaosLoad{r: r, ctx: ctx, seed: r.seed + uint64(n)*1000, chroot: chroot, length: length}
	l.start()
	r.faults(length)
	<-time.After(time.Second) // without faults, so that some of each part is seen then, too
	l.elected.goesOn()
	cancel()
	l.judge()
}

// chaosLoad is what the clients of one epoch do.
type chaosLoad struct {
	r      *chaosRun
	ctx    context.Context // ends with the faults
	seed   uint64
	chroot string
	length time.Duration

	h        *history
	work     *sync.WaitGroup // of sources of h
	closers  []func() error
	watched  *chaosWatches
	sessions *chaosSessions
	elected  *chaosElection
}

// start starts all parts.
func (l *chaosLoad) start() {
	r := l.r
	l.h = newHistory(r.t, r.below(l.chroot))
	var clients []*client.Client
	for range 3 {
		clients = append(clients, r.below(l.chroot))
	}
	const pause = 20 * time.Millisecond
	l.work = new(sync.WaitGroup)
	source := func(c treeClient, i int) {
		s := l.h.source(c, l.seed, uint64(i))
		s.pause = pause
		l.work.Go(func() { s.work(l.ctx, int(l.length/time.Millisecond)) })
	}
	for i, c := range clients {
		l.closers = append(l.closers, c.Close)
		source(nativeTree{r.t, c}, 2*i)
		source(nativeTree{r.t, c}, 2*i+1)
	}
	servers := r.e.servers()
	for i := range 2 {
		z := newGoZKTree(r.t, servers, l.chroot)
		l.closers = append(l.closers, func() error { z.c.Close(); return nil })
		source(z, 100+i)
	}
	python := kazooPython(r.t)
	l.work.Go(func() { l.h.kazoo(r.t.Context(), python, servers, l.chroot, l.seed, 2, l.length) })
	l.watched = newChaosWatches(l)
	l.sessions = newChaosSessions(l)
	l.elected = newChaosElection(l)
}

// judge waits for all parts and judges what they saw.
func (l *chaosLoad) judge() {
	var all errgroup.Group
	all.Go(func() error { l.work.Wait(); l.h.mustBeLinearizable(); return nil })
	all.Go(l.watched.judge)
	all.Go(l.sessions.judge)
	all.Go(l.elected.judge)
	if err := all.Wait(); err != nil {
		l.r.t.Error(err)
	}
	for _, c := range l.closers {
		c() // that of a client whose session is over has an error
	}
}
