package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// failuresMax ends a row: so many errors in a row of one worker are no measurement.
	failuresMax = 100
	// answerGrace is how long answers are waited for after the end of a phase.
	answerGrace = 30 * time.Second
)

// row is one run of one shape. It is used by one goroutine; workers use what is
// theirs.
type row struct {
	cfg     Config
	shape   Shape
	work    workload
	parent  string   // everything is below it
	paths   []string // what the workload reads and writes
	value   []byte
	conns   []Conn
	workers []*worker
}

// worker makes one request after the other on one connection. It belongs to one
// goroutine at a time.
type worker struct {
	row  *row
	id   int
	conn Conn
	rand *rand.Rand
	made int64  // creates so far, the names of which follow from it
	open string // churn: the node to delete next
}

// makeWorkers makes outstanding workers for each connection.
func (r *row) makeWorkers() {
	for id := range len(r.conns) * r.shape.Outstanding {
		r.workers = append(r.workers, &worker{row: r, id: id, conn: r.conns[id%len(r.conns)],
			rand: rand.New(rand.NewPCG(1, uint64(id)))})
	}
}

// goal says when a phase ends: after count operations, or after duration if count is 0.
type goal struct {
	count    int64
	duration time.Duration
	rate     float64
}

// phaseResult is what one phase of load did.
type phaseResult struct {
	rec     *recorder
	elapsed time.Duration // from the first request to the last answer
	series  []Sample
	late    *histogram // open loop: how long after it was due a request was sent
	err     error      // why it ended early
}

// Sample is one interval of a row.
type Sample struct {
	Second float64 `json:"second"` // end of the interval, since the row's start
	Rate   float64 `json:"ops_per_second"`
	P50    float64 `json:"p50_us"`
	P99    float64 `json:"p99_us"`
}

// phase is the state that the workers of a phase share.
type phase struct {
	r        *row
	goal     goal
	schedule schedule
	rec      *recorder
	start    time.Time
	tickets  atomic.Int64
	stop     atomic.Bool

	mu struct {
		sync.Mutex
		err  error
		late *histogram
	}
}

// phase runs all workers until the goal is reached or ctx ends, and waits for them.
func (r *row) phase(ctx context.Context, g goal) phaseResult {
	p := &phase{r: r, goal: g, schedule: schedule{g.rate}, rec: newRecorder(r.work.parts, len(r.conns))}
	p.mu.late = newHistogram()
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	var grace *time.Timer
	if g.count == 0 {
		grace = time.AfterFunc(g.duration+answerGrace, cancel)
		defer grace.Stop()
	}
	done := make(chan struct{})
	var watcher, workers sync.WaitGroup
	var series []Sample
	p.start = time.Now()
	watcher.Go(func() { series = p.watch(done) })
	for _, w := range r.workers {
		workers.Go(func() { p.work(limited, w) })
	}
	workers.Wait()
	elapsed := time.Since(p.start)
	close(done)
	watcher.Wait()
	err := p.mu.err
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return phaseResult{rec: p.rec, elapsed: elapsed, series: series, late: p.mu.late, err: err}
}

// work is the loop of one worker.
func (p *phase) work(ctx context.Context, w *worker) {
	s := p.rec.of(w.id % len(p.r.conns))
	failures := 0
	for ctx.Err() == nil {
		start, ok := p.next(ctx)
		if !ok {
			return
		}
		part, err := p.r.work.do(ctx, w)
		if err == nil {
			s.record(part, time.Since(start))
			failures = 0
			continue
		}
		s.fail(p.r.cfg.Target.ErrorKind(err), err)
		if failures++; failures >= failuresMax {
			p.fail(fmt.Errorf("%d errors in a row, the last: %w", failures, err))
			return
		}
	}
}

// next waits until a worker may send its next request and returns the time from which
// its latency counts: now in a closed loop, the time it was due in an open one.
func (p *phase) next(ctx context.Context) (start time.Time, ok bool) {
	if p.stop.Load() {
		return start, false
	}
	ticket := int64(0)
	if p.goal.count > 0 || p.goal.rate > 0 {
		ticket = p.tickets.Add(1) - 1
	}
	if p.goal.count > 0 && ticket >= p.goal.count {
		return start, false
	}
	if p.goal.rate == 0 {
		start = time.Now()
		return start, p.goal.count > 0 || start.Sub(p.start) < p.goal.duration
	}
	due := p.schedule.due(ticket)
	if p.goal.count == 0 && due >= p.goal.duration {
		return start, false
	}
	start = p.start.Add(due)
	if !sleepUntil(ctx, start) {
		return start, false
	}
	p.mu.Lock()
	p.mu.late.record(int64(time.Since(start)))
	p.mu.Unlock()
	return start, true
}

// fail ends the phase; the first reason is kept.
func (p *phase) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.err == nil {
		p.mu.err = err
	}
	p.stop.Store(true)
}

// watch collects what the workers record, tells the progress, and returns the course
// of the phase. It returns after the last collect when done is closed.
func (p *phase) watch(done <-chan struct{}) (series []Sample) {
	interval := time.Second
	if p.goal.count == 0 {
		interval = min(max(p.goal.duration/20, 100*time.Millisecond), time.Second)
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	last := p.start
	for {
		ended := false
		select {
		case <-done:
			ended = true
		case <-ticker.C:
		}
		now := time.Now()
		p.rec.collect()
		// What is left at the end of a phase is a fraction of an interval and its rate
		// says little, unless it is all there is.
		if span := now.Sub(last); !ended || span >= interval/2 || len(series) == 0 {
			l := p.rec.interval.latency()
			series = append(series, Sample{Second: now.Sub(p.start).Seconds(),
				Rate: float64(l.Count) / max(span.Seconds(), 1e-9), P50: l.P50, P99: l.P99})
		}
		last = now
		if ended {
			return series
		}
		p.tell(series[len(series)-1], now.Sub(p.start))
	}
}

// tell reports progress.
func (p *phase) tell(s Sample, elapsed time.Duration) {
	if p.r.cfg.Progress == nil {
		return
	}
	var left time.Duration
	if p.goal.count == 0 {
		left = max(p.goal.duration-elapsed, 0)
	}
	p.r.cfg.Progress(Progress{Shape: p.r.shape, What: "measure", Rate: s.Rate,
		P50Us: s.P50, P99Us: s.P99, Errors: p.rec.errors, Left: left})
}

// schedule is the timetable of an open loop.
type schedule struct{ rate float64 }

// due returns when request n is due, from the start. It is computed from n alone, so
// that rounding does not add up and a late request delays none after it.
func (s schedule) due(n int64) time.Duration {
	return time.Duration(float64(n) / s.rate * float64(time.Second))
}

// sleepUntil waits for t. It reports whether it came before the end of ctx.
func sleepUntil(ctx context.Context, t time.Time) bool {
	wait := time.Until(t)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
