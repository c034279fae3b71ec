package bench

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// ElectionConfig says what to measure of elections. It is not changed during a run. Of
// each number 0 is the default.
type ElectionConfig struct {
	// Targets are measured side by side: one after the other in each part of the run.
	Targets []ElectionTarget
	// SessionTimeout is asked for, default 4 s.
	SessionTimeout time.Duration
	Candidates     int // of the election that is handed over, each with a session, default 3
	Rounds         int // hand-overs, default 500
	Crashes        int // hand-overs after a crash, default 20
	Waiting        int // candidates that wait at once, default 1000
	Tenures        int // held on one session, default 1000

	Label string   // name of the run in reports
	Flags []string // put into the report as they are
	// Progress, if set, is told what is measured next, by one goroutine.
	Progress func(target, part string)
}

func (c ElectionConfig) withDefaults() ElectionConfig {
	for _, d := range []struct {
		field *int
		value int
	}{{&c.Candidates, 3}, {&c.Rounds, 500}, {&c.Crashes, 20}, {&c.Waiting, 1000}, {&c.Tenures, 1000}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.SessionTimeout == 0 {
		c.SessionTimeout = 4 * time.Second
	}
	return c
}

// Validate names every value that breaks a rule.
func (c ElectionConfig) Validate() error {
	c = c.withDefaults()
	var errs []error
	for _, r := range []struct {
		name            string
		value           int
		lowest, highest int
	}{
		{"targets", len(c.Targets), 1, 16},
		{"candidates", c.Candidates, 2, 1000},
		{"rounds", c.Rounds, 1, 1_000_000},
		{"crashes", c.Crashes, 1, 1000},
		{"waiting", c.Waiting, 2, 100_000},
		{"tenures", c.Tenures, 1, 100_000},
	} {
		if r.value < r.lowest || r.value > r.highest {
			errs = append(errs, fmt.Errorf("%s %d: must be from %d to %d", r.name, r.value, r.lowest, r.highest))
		}
	}
	if c.SessionTimeout < 100*time.Millisecond || c.SessionTimeout > time.Hour {
		errs = append(errs, fmt.Errorf("session timeout %v: must be from 100ms to 1h", c.SessionTimeout))
	}
	for _, t := range c.Targets {
		if (t.Tenure == nil) == (t.ZooKeeper == nil) {
			errs = append(errs, fmt.Errorf("target %q: must be one of Tenure and ZooKeeper", t.Name))
		}
	}
	return errors.Join(errs...)
}

// connectTime bounds the wait for a target's first session.
const connectTime = 10 * time.Second

// electionRun is one target being measured, by one goroutine.
type electionRun struct {
	ElectionConfig
	target  *ElectionTarget
	watcher *electionClient // looks on, and cleans up
	root    string
	result  ElectionResult
}

// electionParts are measured in this order, each on all targets before the next, so that
// a machine whose speed drifts does so for all of them.
var electionParts = []struct {
	name    string
	measure func(*electionRun, context.Context) error
}{
	{"round trips", (*electionRun).roundTrips},
	{"hand-overs", (*electionRun).handOvers},
	{"requests of hand-overs", (*electionRun).requests},
	{"crashes", (*electionRun).crashes},
	{"a crowd of candidates", (*electionRun).crowd},
	{"many tenures", (*electionRun).tenures},
}

// ExecuteElection measures elections on all targets. What it made is removed also if it
// fails; there is no report then.
func ExecuteElection(ctx context.Context, c ElectionConfig) (report *ElectionReport, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	runs := make([]*electionRun, len(c.Targets))
	defer func() {
		for _, r := range runs {
			if r != nil {
				err = errors.Join(err, ignoreAfter(err, r.end(ctx)))
			}
		}
	}()
	for i := range c.Targets {
		if runs[i], err = c.begin(ctx, &c.Targets[i]); err != nil {
			return nil, err
		}
	}
	for _, part := range electionParts {
		for _, r := range runs {
			if c.Progress != nil {
				c.Progress(r.target.Name, part.name)
			}
			if err := part.measure(r, ctx); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", r.target.Name, part.name, err)
			}
		}
	}
	report = newElectionReport(c)
	for _, r := range runs {
		report.Results = append(report.Results, r.result)
	}
	return report, nil
}

// begin connects and makes the znode below which all happens.
func (c ElectionConfig) begin(ctx context.Context, t *ElectionTarget) (*electionRun, error) {
	bounded, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	watcher, err := t.open(bounded, c.SessionTimeout)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	r := &electionRun{ElectionConfig: c, target: t, watcher: watcher}
	r.root, err = watcher.Create(ctx, "/bench-election-", nil, recipes.CreateSpec{Sequential: true})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", t.Name, err), watcher.Close())
	}
	r.result.Target, r.result.Version = t.Name, t.Version
	r.result.TimeoutMs = watcher.Session().Timeout().Milliseconds()
	return r, nil
}

// end removes all that was made. The end of ctx is a usual reason to be here early:
// removing has its own time.
func (r *electionRun) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	err := r.remove(ctx, r.root)
	if err != nil {
		err = fmt.Errorf("%s: remove %s: %w", r.target.Name, r.root, err)
	}
	return errors.Join(err, r.watcher.Close())
}

// remove deletes a znode and what is below it, of which the last may be going by itself.
func (r *electionRun) remove(ctx context.Context, at string) error {
	for {
		names, _, err := r.watcher.Children(ctx, at)
		if err == nil {
			err = parallel(ctx, len(names), prepareDepth, func(i int) error { return r.remove(ctx, path.Join(at, names[i])) })
		}
		if err == nil {
			err = r.watcher.Delete(ctx, at, recipes.Always())
		}
		if errors.Is(err, znode.NotEmpty) {
			continue
		}
		if errors.Is(err, znode.NoNode) {
			return nil
		}
		return err
	}
}

// clients opens n sessions. The returned function closes them and waits.
func (r *electionRun) clients(ctx context.Context, n int) (all []*electionClient, closeAll func() error, err error) {
	all = make([]*electionClient, n)
	closeAll = func() error {
		return parallel(context.WithoutCancel(ctx), n, connectsAtOnce, func(i int) error {
			if all[i] == nil {
				return nil
			}
			return all[i].Close()
		})
	}
	err = parallel(ctx, n, connectsAtOnce, func(i int) (err error) {
		c, err := r.target.open(ctx, r.SessionTimeout)
		if err == nil {
			all[i] = c
		}
		return err
	})
	if err != nil {
		return nil, nil, errors.Join(err, closeAll())
	}
	return all, closeAll, nil
}

// election makes a candidate's side of the election with this name.
func (r *electionRun) election(s recipes.Store, name string) (*recipes.Election, error) {
	return recipes.NewElection(s, path.Join(r.root, name), recipes.ElectionOptions{})
}

// roundTrips is what all else is compared with: how long the backend takes to confirm
// anything at all, a renewal, which writes nothing, and one write.
func (r *electionRun) roundTrips(ctx context.Context) error {
	held := path.Join(r.root, "round-trips")
	if _, err := r.watcher.Create(ctx, held, nil, recipes.CreateSpec{Kind: znode.Ephemeral}); err != nil {
		return err
	}
	_, stat, err := r.watcher.Get(ctx, held)
	if err != nil {
		return err
	}
	value := make([]byte, 100)
	renew := func() error {
		_, verdicts, err := r.watcher.Session().Renew(ctx, recipes.Held{Path: held, Czxid: stat.Czxid})
		return errors.Join(append(verdicts, err)...)
	}
	set := func() error {
		_, err := r.watcher.Set(ctx, held, value, recipes.Always())
		return err
	}
	for _, m := range []struct {
		into *Latency
		do   func() error
	}{{&r.result.RoundTrip, renew}, {&r.result.Write, set}} {
		h := newHistogram()
		for range r.Rounds {
			began := time.Now()
			if err := m.do(); err != nil {
				return err
			}
			h.record(int64(time.Since(began)))
		}
		*m.into = h.latency()
	}
	return r.watcher.Delete(ctx, held, recipes.Always())
}
