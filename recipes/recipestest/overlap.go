package recipestest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// OverlapOptions configures Overlap. The zero value of a field means its default.
type OverlapOptions struct {
	Seed       uint64
	Names      int // elections at a time, default 4
	Candidates int // of each, on as many peers, default 3
	Peers      int // over which candidates are spread, at least and by default Candidates
	HandOvers  int // how many there must be, default 2000; the first tenth without faults
	// Plan is the faults of the rest, one round after the other, each with the next seed.
	// Its Peers are those above; the default of Length is ten session timeouts, of Longest two,
	// of MeanGap a quarter of one, of Verbs all that there are but VerbExpire, which is a
	// long partition and nothing new.
	Plan PlanOptions
	// Only, if set, is played instead, once: to repeat or to shrink a plan.
	Only *Plan
	// Bound is how soon after the last fault there must be a leader, and then only the
	// nodes of candidates; default two session timeouts and 2 s.
	Bound time.Duration
	// Limit ends a run that does not come to its hand-overs, default 15 min.
	Limit time.Duration
	// Tick is between Checks of a holder, default 1 ms.
	Tick time.Duration
	// Long is how many of the tenures are held for up to two session timeouts, so that
	// faults find them, in place of 20 ticks; default 0.1.
	Long float64
	// Watches counts the backend's watches, if it can.
	Watches func() int
	Timing  recipes.Timing

	believe func(*recipes.Tenure) Holder // for tests of Overlap: what leaders go by
}

func (o OverlapOptions) withDefaults(timeout time.Duration) OverlapOptions {
	setDefault(&o.Names, 4)
	setDefault(&o.Candidates, 3)
	o.Peers = max(o.Peers, o.Candidates)
	setDefault(&o.HandOvers, 2000)
	setDefault(&o.Bound, 2*timeout+2*time.Second)
	setDefault(&o.Limit, 15*time.Minute)
	setDefault(&o.Tick, time.Millisecond)
	setDefault(&o.Long, 0.1)
	setDefault(&o.Plan.Length, 10*timeout)
	setDefault(&o.Plan.Longest, 2*timeout)
	setDefault(&o.Plan.MeanGap, timeout/4)
	o.Plan.Peers = o.Peers
	if o.believe == nil {
		o.believe = func(t *recipes.Tenure) Holder { return t }
	}
	return o
}

// OverlapReport is what came out. A plain value.
type OverlapReport struct {
	Record
	Plans []Plan          // that were played
	Quiet []time.Duration // until there was a leader after the last fault, of each election
	Err   error           // violations of I1 to I6; nil if it is as it must be
}

// String returns lines of figures.
func (r OverlapReport) String() string {
	return fmt.Sprintf("%v; %d rounds of faults; led again after %v", r.Record, len(r.Plans), r.Quiet)
}

// Overlap runs elections on h under random faults and verifies that no two leaders
// overlap. Each leader calls Check in a tight loop, with guarded writes beside it, and
// keeps on until it is lost or, mostly, releases soon. In the end, without faults, it
// awaits a leader (I5), exactly the nodes of the candidates and then none (I4), and that
// nothing has leaked (I6). With a failure it prints the plans.
//
// Call it in a test that h.Run runs.
func Overlap(t testing.TB, h Harness, o OverlapOptions) OverlapReport {
	t.Helper()
	o = o.withDefaults(h.Timeout)
	r := &overlapRun{t: t, h: h, o: o, inv: NewInvariant(o.Seed), dir: fmt.Sprintf("/overlap-%d", o.Seed)}
	ctx, cancel := context.WithTimeout(context.Background(), o.Limit)
	defer cancel()
	for range o.Peers {
		r.peers = append(r.peers, h.Open(t))
	}
	r.prepare(ctx)
	before := TakeFootprint(o.Watches)
	r.start(ctx)
	r.calm(ctx)
	r.faults(ctx)
	report := OverlapReport{Plans: r.plans}
	var errs []error
	report.Quiet, errs = r.quiet(context.WithoutCancel(ctx))
	var broken error
	report.Record, broken = r.inv.Verify()
	errs = append(errs, broken)
	if err := before.Flat(context.WithoutCancel(ctx), o.Watches, 4*o.Peers+4, o.Bound); err != nil {
		errs = append(errs, err)
	}
	if n := report.HandOvers(); o.Only == nil && n < o.HandOvers {
		errs = append(errs, fmt.Errorf("seed %d: %d hand-overs after %v, want %d; a candidate's last error: %v",
			o.Seed, n, o.Limit, o.HandOvers, r.last.Load()))
	}
	report.Err = errors.Join(errs...)
	if report.Err != nil {
		for _, p := range r.plans {
			t.Logf("plan: %v", p)
		}
	}
	return report
}

// overlapRun is one call of Overlap.
type overlapRun struct {
	t     testing.TB
	h     Harness
	o     OverlapOptions
	inv   *Invariant
	dir   string
	peers []*Peer
	plans []Plan

	led    atomic.Int64 // tenures so far that passed a Check
	frozen atomic.Bool  // holders keep what they hold
	stop   context.CancelFunc
	wg     sync.WaitGroup
	last   atomic.Value // string: the latest error of a campaign
}

func (r *overlapRun) election(name int) string { return r.dir + "/e" + strconv.Itoa(name) }
func (r *overlapRun) log(name int) string      { return r.dir + "/log" + strconv.Itoa(name) }

// prepare makes the logs that leaders write.
func (r *overlapRun) prepare(ctx context.Context) {
	paths := []string{r.dir}
	for name := range r.o.Names {
		paths = append(paths, r.log(name))
	}
	for _, path := range paths {
		_, err := r.peers[0].Store.Create(ctx, path, []byte("0"), recipes.CreateSpec{})
		if err != nil && !errors.Is(err, znode.NodeExists) {
			r.t.Fatalf("creating %s: %v", path, err)
		}
	}
}

// start lets all candidates run until stop is called.
func (r *overlapRun) start(ctx context.Context) {
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	for name := range r.o.Names {
		for index, peer := range r.of(name) {
			c := &overlapCandidate{
				overlapRun: r, name: name, peer: peer, id: fmt.Sprintf("peer%d", slices.Index(r.peers, peer)),
				rng: rand.New(rand.NewPCG(r.o.Seed, uint64(name*1000+index))),
			}
			var err error
			c.election, err = recipes.NewElection(peer.Store, r.election(name),
				recipes.ElectionOptions{Options: recipes.Options{ID: c.id, Timing: r.o.Timing}})
			if err != nil {
				r.t.Fatal(err)
			}
			r.wg.Go(func() { c.run(ctx) })
		}
	}
}

// of returns the peers that have a candidate of the election: neighbours, from another
// one on each time.
func (r *overlapRun) of(name int) (peers []*Peer) {
	for index := range r.o.Candidates {
		peers = append(peers, r.peers[(name+index)%len(r.peers)])
	}
	return peers
}

// handOvers is how many there were at least.
func (r *overlapRun) handOvers() int { return int(r.led.Load()) - r.o.Names }

// calm awaits a tenth of the hand-overs.
func (r *overlapRun) calm(ctx context.Context) {
	for r.handOvers() < r.o.HandOvers/10 && wait(ctx, r.h.Timeout/20) {
	}
}

// faults plays plans until there were enough hand-overs.
func (r *overlapRun) faults(ctx context.Context) {
	r.inv.Faults(true)
	defer r.inv.Faults(false)
	if r.o.Only != nil {
		r.plans = []Plan{*r.o.Only}
		r.o.Only.Run(ctx, r.t, r.h, r.peers)
		return
	}
	if len(r.o.Plan.Verbs) == 0 {
		r.o.Plan.Verbs = slices.DeleteFunc(Verbs(r.h, r.peers[0]), func(v Verb) bool { return v == VerbExpire })
	}
	for round := uint64(0); ctx.Err() == nil && r.handOvers() < r.o.HandOvers; round++ {
		p := NewPlan(r.o.Seed+round, r.o.Plan)
		r.plans = append(r.plans, p)
		round, cancel := context.WithCancel(ctx)
		var enough sync.WaitGroup
		enough.Go(func() { // ends the round early
			for r.handOvers() < r.o.HandOvers && wait(round, r.h.Timeout/20) {
			}
			cancel()
		})
		p.Run(round, r.t, r.h, r.peers)
		cancel()
		enough.Wait()
	}
}

// quiet is the end, without faults.
func (r *overlapRun) quiet(ctx context.Context) (led []time.Duration, errs []error) {
	r.frozen.Store(true)
	for name := range r.o.Names {
		took, err := r.inv.AwaitCheck(ctx, r.election(name), r.o.Bound)
		led, errs = append(led, took), append(errs, err)
	}
	errs = append(errs, r.nodes(ctx, 1))
	r.stop()
	r.wg.Wait()
	return led, append(errs, r.nodes(ctx, 0))
}

// nodes waits until each election has the given number of nodes of each peer's session: what
// was seen by looking within the bound counts, however long the answers took.
func (r *overlapRun) nodes(ctx context.Context, each int) error {
	for began := time.Now(); ; {
		late := time.Since(began) > r.o.Bound
		err := r.look(ctx, each)
		if err == nil || late || !wait(ctx, r.h.Timeout/50) {
			return err
		}
	}
}

// look is one look at all elections at once.
func (r *overlapRun) look(ctx context.Context, each int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*r.o.Bound)
	defer cancel()
	errs := make([]error, r.o.Names)
	var all sync.WaitGroup
	for name := range errs {
		want := make(map[int64]int)
		for _, p := range r.of(name) {
			want[p.Store.Session().ID()] += each
		}
		all.Go(func() { errs[name] = ExactlyNodes(ctx, r.peers[0].Store, r.election(name), want) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// overlapCandidate is one candidate. It belongs to one goroutine.
type overlapCandidate struct {
	*overlapRun
	name     int
	peer     *Peer
	id       string
	rng      *rand.Rand
	election *recipes.Election
}

// run campaigns and leads until ctx ends.
func (c *overlapCandidate) run(ctx context.Context) {
	for ctx.Err() == nil {
		tenure, err := c.election.Campaign(ctx)
		if err != nil {
			c.last.Store(err.Error())
			wait(ctx, c.h.Timeout/100)
			continue
		}
		c.lead(ctx, tenure)
	}
}

// lead holds for a while or until the tenure is lost.
func (c *overlapCandidate) lead(ctx context.Context, tenure *recipes.Tenure) {
	h := c.inv.Hold(c.id, c.o.believe(tenure))
	if h.Check() == nil {
		c.led.Add(1)
	}
	work, cancel := context.WithCancel(tenure.Context())
	var writer sync.WaitGroup
	writer.Go(func() { c.write(work, h, tenure) })
	for end := time.Now().Add(c.length()); time.Now().Before(end) || c.frozen.Load(); {
		if h.Check() != nil || !wait(ctx, c.o.Tick) {
			break
		}
	}
	cancel()
	writer.Wait() // a leader releases when its work is done
	lost := h.Check() != nil
	h.Ended()
	release, done := context.WithTimeout(context.WithoutCancel(ctx), 2*c.h.Timeout)
	defer done()
	if err := tenure.Release(release); err == nil && !lost {
		h.Released()
	}
	_ = h.Check() // notes it if it passes: the next may hold already
}

// length is for how long a tenure is to be held: mostly shortly, so that there are many
// hand-overs, and sometimes so long that a fault finds it.
func (c *overlapCandidate) length() time.Duration {
	if c.rng.Float64() < c.o.Long {
		return time.Duration(c.rng.Int64N(2 * int64(c.h.Timeout)))
	}
	return time.Duration(c.rng.Int64N(int64(20 * c.o.Tick)))
}

// write sets the log under the tenure's guard and reads it back.
func (c *overlapCandidate) write(ctx context.Context, h *Holding, tenure *recipes.Tenure) {
	path, token := c.log(c.name), strconv.FormatUint(uint64(tenure.Token()), 10)
	for wait(ctx, 2*c.o.Tick) {
		results, err := tenure.Txn(ctx, recipes.OpSet(path, []byte(token), recipes.Always()))
		if err != nil || len(results) != 1 {
			continue
		}
		h.Wrote(results[0].Stat.Mzxid)
		data, _, err := c.peer.Store.Get(ctx, path)
		if err != nil {
			continue
		}
		seen, err := strconv.ParseUint(string(data), 10, 64)
		if err != nil {
			c.t.Errorf("%s: %q is no token: %v", path, data, err)
			return
		}
		h.Saw(recipes.Token(seen))
	}
}

// FindPlan repeats a failed run of Overlap with fewer and fewer faults and returns the
// shortest plan that fails. run is told what to play, and must do so on a backend of its
// own each time.
func (r OverlapReport) FindPlan(run func(Plan) OverlapReport) Plan {
	all := Plan{Seed: r.Seed}
	at := time.Duration(0)
	for _, p := range r.Plans {
		for _, s := range p.Steps {
			s.At += at
			all.Steps = append(all.Steps, s)
		}
		at += p.Length()
	}
	slices.SortStableFunc(all.Steps, func(a, b Step) int { return int(a.At - b.At) })
	return Shrink(all, func(p Plan) bool { return run(p).Err != nil })
}
