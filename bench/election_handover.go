package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

const (
	crashesAtOnce = 10
	crowdSessions = 10 // that the candidates of a crowd are spread over
	costRounds    = 100
	// settlePoll is between looks at a line that is not complete yet.
	settlePoll = 2 * time.Millisecond
	checkEvery = time.Millisecond // of a holder that was cut off
)

// win is a candidate that leads.
type win struct {
	tenure *recipes.Tenure
	at     time.Time
	err    error
	again  chan struct{} // closed when the candidate may go to the end of the line
}

// contest is candidates that hand over to each other. One goroutine uses it.
type contest struct {
	wins chan win
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// newContest lets all candidates campaign; if rejoin, again and again.
func newContest(ctx context.Context, candidates []*recipes.Election, rejoin bool) *contest {
	ctx, stop := context.WithCancel(ctx)
	c := &contest{wins: make(chan win, len(candidates)), stop: stop}
	for _, e := range candidates {
		c.wg.Go(func() {
			for ctx.Err() == nil {
				t, err := e.Campaign(ctx)
				w := win{t, time.Now(), err, make(chan struct{})}
				c.wins <- w // there is room: each candidate has one win out at a time
				if err != nil {
					return
				}
				select {
				case <-w.again:
				case <-ctx.Done():
				}
				if !rejoin {
					return
				}
			}
		})
	}
	return c
}

func (c *contest) next(ctx context.Context) (win, error) {
	select {
	case w := <-c.wins:
		return w, w.err
	case <-ctx.Done():
		return win{}, context.Cause(ctx)
	}
}

// run makes hand-overs, each after settle, and records how long they take: from the call
// of Release to the next candidate's return from Campaign.
func (c *contest) run(ctx context.Context, rounds int, settle func(context.Context) error) (*histogram, error) {
	h := newHistogram()
	holder, err := c.next(ctx)
	if err != nil {
		return nil, err
	}
	for range rounds {
		if err := settle(ctx); err != nil {
			return nil, err
		}
		if err := holder.tenure.Check(); err != nil {
			return nil, fmt.Errorf("before it was released: %w", err)
		}
		var release sync.WaitGroup
		var released error
		began := time.Now()
		release.Go(func() { released = holder.tenure.Release(ctx) })
		next, err := c.next(ctx)
		release.Wait()
		if err := errors.Join(released, err); err != nil {
			return nil, err
		}
		h.record(int64(next.at.Sub(began)))
		close(holder.again)
		holder = next
	}
	return h, holder.tenure.Release(ctx)
}

// end ends all candidacies.
func (c *contest) end() {
	c.stop()
	c.wg.Wait()
}

// inLine waits until n candidates are in the line of an election and what they ask for
// must have been answered: those who come after a hand-over are no part of the next one.
func (r *electionRun) inLine(ctx context.Context, name string, n int) error {
	for {
		names, _, err := r.watcher.Children(ctx, path.Join(r.root, name))
		switch {
		case err != nil && !errors.Is(err, znode.NoNode):
			return err
		case len(names) >= n:
			return r.calm(ctx)
		}
		if err := sleep(ctx, settlePoll); err != nil {
			return err
		}
	}
}

// calm waits for some round trips.
func (r *electionRun) calm(ctx context.Context) error {
	const roundTrips = 5
	return sleep(ctx, time.Duration(roundTrips*r.result.Write.P90*float64(time.Microsecond)))
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// handOvers measures clean hand-overs between candidates with a session each.
func (r *electionRun) handOvers(ctx context.Context) error {
	h, err := r.handOver(ctx, "hand-over", r.Rounds, func(s recipes.Store) recipes.Store { return s })
	if err == nil {
		r.result.HandOver = h.latency()
	}
	return err
}

// requests counts what the candidates of an election ask for, all of them, from one
// hand-over to the next: the one that left is in line again then.
func (r *electionRun) requests(ctx context.Context) error {
	n := &calls{}
	rounds := min(r.Rounds, costRounds)
	_, err := r.handOver(ctx, "requests", rounds, n.counted)
	n.wg.Wait()
	r.result.HandOverCost = n.per(int64(rounds))
	return err
}

// handOver makes hand-overs on stores that wrap makes of sessions of their own.
func (r *electionRun) handOver(ctx context.Context, name string, rounds int, wrap func(recipes.Store) recipes.Store) (h *histogram, err error) {
	clients, closeAll, err := r.clients(ctx, r.Candidates)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ignoreAfter(err, closeAll())) }()
	candidates := make([]*recipes.Election, len(clients))
	for i, c := range clients {
		if candidates[i], err = r.election(wrap(c), name); err != nil {
			return nil, err
		}
	}
	c := newContest(ctx, candidates, true)
	defer c.end()
	return c.run(ctx, rounds, func(ctx context.Context) error { return r.inLine(ctx, name, len(candidates)) })
}

// crash is what came of one.
type crash struct{ took, nobody time.Duration }

// crashes measures how long it takes until the next leads when nothing is heard of the
// holder any more.
func (r *electionRun) crashes(ctx context.Context) error {
	heirs, closeAll, err := r.clients(ctx, 1)
	if err != nil {
		return err
	}
	all := make([]crash, r.Crashes)
	err = parallel(ctx, r.Crashes, crashesAtOnce, func(i int) (err error) {
		all[i], err = r.crash(ctx, heirs[0], fmt.Sprint("crash-", i))
		return err
	})
	if err = errors.Join(err, ignoreAfter(err, closeAll())); err != nil {
		return err
	}
	h, least := newHistogram(), all[0].nobody
	for _, c := range all {
		h.record(int64(c.took))
		least = min(least, c.nobody)
	}
	r.result.Crash, r.result.NobodyUs = h.latency(), float64(least)/1e3
	bound := crashBound(r.watcher, r.target.Tick)
	r.result.CrashBoundUs = float64(bound)/1e3 + r.result.RoundTrip.P99
	return nil
}

// crashBound is when the next leads at the latest, but for a round trip: when the session
// has expired, and where that is not exact, when the hold-off has passed as well. It is
// that of recipes.Timing's defaults: 0.4 of the session timeout and 1 % of drift.
func crashBound(s recipes.Store, tick time.Duration) time.Duration {
	timeout := s.Session().Timeout()
	if s.Caps().ExactExpiry {
		return timeout
	}
	const worth, drift = 0.4, 0.01
	return timeout + tick + time.Duration(worth*(1+drift)/(1-drift)*float64(timeout))
}

// crash cuts a holder off at a random time between its renewals.
func (r *electionRun) crash(ctx context.Context, heir recipes.Store, name string) (crash, error) {
	victim, err := r.target.open(ctx, r.SessionTimeout)
	if err != nil {
		return crash{}, err
	}
	defer func() {
		victim.link.drop()
		_ = victim.Close() // nothing can confirm it: the session is over, or will expire
	}()
	first, err := r.election(victim, name)
	if err != nil {
		return crash{}, err
	}
	second, err := r.election(heir, name)
	if err != nil {
		return crash{}, err
	}
	tenure, err := first.Campaign(ctx)
	if err != nil {
		return crash{}, err
	}
	c := newContest(ctx, []*recipes.Election{second}, false)
	defer c.end()
	if err := r.inLine(ctx, name, 2); err != nil {
		return crash{}, err
	}
	if err := sleep(ctx, rand.N(r.SessionTimeout/2)); err != nil {
		return crash{}, err
	}
	cut := time.Now()
	victim.link.cut()
	last := cut // when the victim was last seen to believe
	for now := cut; tenure.Check() == nil; now = time.Now() {
		last = now
		if err := sleep(ctx, checkEvery); err != nil {
			return crash{}, err
		}
	}
	next, err := c.next(ctx)
	if err != nil {
		return crash{}, err
	}
	return crash{next.at.Sub(cut), next.at.Sub(last)}, next.tenure.Release(ctx)
}

// crowd measures hand-overs while very many candidates wait.
func (r *electionRun) crowd(ctx context.Context) (err error) {
	const name = "crowd"
	sessions := min(crowdSessions, r.Waiting)
	clients, closeAll, err := r.clients(ctx, sessions)
	if err != nil {
		return err
	}
	n := &calls{}
	candidates := make([]*recipes.Election, r.Waiting)
	for i := range candidates {
		if candidates[i], err = r.election(n.counted(clients[i%sessions]), name); err != nil {
			return errors.Join(err, closeAll())
		}
	}
	began := time.Now()
	c := newContest(ctx, candidates, false)
	// The end of the sessions is the end of the candidacies, at once.
	defer func() {
		err = errors.Join(err, ignoreAfter(err, closeAll()))
		c.end()
		n.wg.Wait()
	}()
	if err := r.inLine(ctx, name, r.Waiting); err != nil {
		return err
	}
	r.result.CrowdEnterUs = float64(time.Since(began)) / 1e3
	n.reset()
	rounds := min(r.Rounds, costRounds, r.Waiting-1)
	h, err := c.run(ctx, rounds, r.calm)
	if err != nil {
		return err
	}
	r.result.Crowd, r.result.CrowdCost = h.latency(), n.per(int64(rounds))
	return nil
}
