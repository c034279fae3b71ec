package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

const (
	// connectsAtOnce bounds handshakes under way, prepareDepth requests at once while a
	// row is prepared or removed.
	connectsAtOnce = 64
	prepareDepth   = 64
	// deleteBatch is how many nodes one transaction removes.
	deleteBatch = 200
	// removeTime bounds the removal of what a row created.
	removeTime = 5 * time.Minute
)

// Execute measures all rows and returns the report. When ctx ends, or a row fails, the
// report has the rows that were finished; the error is returned with it.
func Execute(ctx context.Context, c Config) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	targets, reports := []Target{c.Target}, []*Report{newReport(c)}
	if c.Versus != nil {
		other := c
		other.Target, other.Label = c.Versus, ""
		targets, reports = append(targets, c.Versus), append(reports, newReport(other))
		reports[0].Versus = reports[1]
	}
	for repetition := range c.Repeat {
		probe, err := MeasureProbe(ctx, c.ProbeDir)
		if err != nil {
			return reports[0], err
		}
		reports[0].Probes = append(reports[0].Probes, probe)
		for i, shape := range c.Rows {
			for turn := range targets {
				// Who goes first changes, so that what drifts hits both.
				t := (turn + i + repetition) % len(targets)
				c.Target = targets[t]
				run, err := c.measure(ctx, shape)
				if err != nil {
					return reports[0].finish(), fmt.Errorf("%v, repetition %d, %s: %w", shape, repetition+1, c.Target.Name(), err)
				}
				reports[t].Rows[i].Runs = append(reports[t].Rows[i].Runs, run)
			}
		}
	}
	return reports[0].finish(), nil
}

// measure runs one row, and removes what it made also if it fails.
func (c Config) measure(ctx context.Context, shape Shape) (run Run, err error) {
	work, err := workloadOf(shape.Workload)
	if err != nil {
		return run, err
	}
	if shape == reference {
		c.Rate = 0 // to be compared with the probe, whatever the other rows do
	}
	r := &row{cfg: c, shape: shape, work: work, value: make([]byte, c.ValueBytes)}
	for i := range r.value {
		r.value[i] = byte('a' + i%26)
	}
	setup, err := c.Target.Connect(ctx, prepareDepth)
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, ignoreAfter(err, setup.Close())) }()
	r.tell("prepare")
	r.parent, err = setup.Create(ctx, join(c.Root, "bench-"), nil, znode.Mode{Sequential: true})
	if err != nil {
		return run, err
	}
	defer func() {
		// The end of ctx is the usual reason to be here early: removing has its own time.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
		defer cancel()
		r.tell("remove")
		err = errors.Join(err, r.remove(clean, setup))
	}()
	return r.run(ctx)
}

// ignoreAfter drops a second error that only follows from the first.
func ignoreAfter(first, second error) error {
	if first != nil {
		return nil
	}
	return second
}

func join(parent, name string) string {
	if parent == "/" {
		return "/" + name
	}
	return parent + "/" + name
}

func (r *row) tell(what string) {
	if r.cfg.Progress != nil {
		r.cfg.Progress(Progress{Shape: r.shape, What: what})
	}
}

// run connects, prepares, warms up and measures.
func (r *row) run(ctx context.Context) (run Run, err error) {
	if r.work.measure != nil {
		return r.work.measure(ctx, r)
	}
	if err := r.connect(ctx, r.shape.Connections, nil); err != nil {
		return run, errors.Join(err, r.close())
	}
	defer func() { err = errors.Join(err, ignoreAfter(err, r.close())) }()
	if r.work.prepare != nil {
		if err := r.work.prepare(ctx, r); err != nil {
			return run, fmt.Errorf("prepare: %w", err)
		}
	}
	r.makeWorkers()
	if r.cfg.Warmup > 0 {
		r.tell("warm up")
		if p := r.phase(ctx, goal{duration: r.cfg.Warmup, rate: r.cfg.Rate}); p.err != nil {
			return run, p.err
		}
	}
	u := r.startUsage(ctx)
	p := r.phase(ctx, goal{count: r.cfg.Count, duration: r.cfg.Duration, rate: r.cfg.Rate})
	run = r.result(p)
	u.finish(ctx, &run)
	return run, p.err
}

// connect opens n connections, some at a time. opened, if set, gets the time that each
// took.
func (r *row) connect(ctx context.Context, n int, opened *shard) error {
	var mu sync.Mutex
	return parallel(ctx, n, connectsAtOnce, func(int) error {
		start := time.Now()
		c, err := r.cfg.Target.Connect(ctx, r.shape.Outstanding)
		if err != nil {
			return err
		}
		if opened != nil {
			opened.record(0, time.Since(start))
		}
		mu.Lock()
		defer mu.Unlock()
		r.conns = append(r.conns, c)
		return nil
	})
}

// close ends all sessions.
func (r *row) close() error {
	conns := r.conns
	r.conns = nil
	return parallel(context.Background(), len(conns), connectsAtOnce, func(i int) error { return conns[i].Close() })
}

// spread calls do for 0 to n-1, over all connections.
func (r *row) spread(ctx context.Context, n int, do func(ctx context.Context, c Conn, i int) error) error {
	return parallel(ctx, n, prepareDepth, func(i int) error { return do(ctx, r.conns[i%len(r.conns)], i) })
}

// parallel calls do for 0 to n-1 from depth goroutines, and returns the first error,
// which ends it.
func parallel(ctx context.Context, n, depth int, do func(i int) error) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wait sync.WaitGroup
	for range min(n, depth) {
		wait.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				err := ctx.Err()
				if err == nil {
					err = do(i)
				}
				if err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	wait.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// remove deletes everything below the parent, and it. The workers' sessions are over,
// so nothing comes after, and ephemerals are gone.
func (r *row) remove(ctx context.Context, c Conn) error {
	paths := r.paths
	for _, w := range r.workers {
		for n := range w.made {
			paths = append(paths, w.createdPath(n))
		}
	}
	batches := (len(paths) + deleteBatch - 1) / deleteBatch
	err := parallel(ctx, batches, 8, func(i int) error {
		batch := paths[i*deleteBatch : min((i+1)*deleteBatch, len(paths))]
		if c.DeleteAll(ctx, batch) == nil {
			return nil
		}
		// One that was never created fails all: one by one then, and what really stays
		// shows at the parent.
		for _, path := range batch {
			if err := ctx.Err(); err != nil {
				return err
			}
			_ = c.Delete(ctx, path)
		}
		return nil
	})
	if err == nil {
		err = c.Delete(ctx, r.parent)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", r.parent, err)
	}
	return nil
}

// usage is what both sides have used at the start of a measurement.
type usage struct {
	row    *row
	client time.Duration
	server Usage
	told   bool
}

func (r *row) startUsage(ctx context.Context) usage {
	u := usage{row: r}
	u.server, u.told = r.cfg.Target.Usage(ctx)
	u.client = ownCPU()
	return u
}

// finish puts what was used since into run.
func (u usage) finish(ctx context.Context, run *Run) {
	ops := float64(max(run.Ops, 1))
	run.ClientCPUUs = (ownCPU() - u.client).Seconds() * 1e6 / ops
	now, told := u.row.cfg.Target.Usage(context.WithoutCancel(ctx))
	if !told || !u.told {
		return
	}
	cpu := (now.CPUSeconds - u.server.CPUSeconds) * 1e6 / ops
	run.ServerCPUUs = &cpu
	run.ServerResident = now.ResidentBytes
}

// result turns what a phase recorded into a Run.
func (r *row) result(p phaseResult) Run {
	run := Run{Seconds: p.elapsed.Seconds(), Series: p.series}
	all := p.rec.all().latency()
	run.Ops, run.Latency = all.Count, all
	run.OpsPerSecond = float64(all.Count) / max(run.Seconds, 1e-9)
	if len(r.work.parts) > 1 {
		for i, h := range p.rec.total {
			run.Parts = append(run.Parts, Part{r.work.parts[i], h.latency()})
		}
	}
	run.ErrorKinds, run.FirstErrors = p.rec.kinds()
	for _, n := range run.ErrorKinds {
		run.Errors += n
	}
	if p.late.count() > 0 {
		l := p.late.latency()
		run.figure("sent after due p50", l.P50, "us")
		run.figure("sent after due p99", l.P99, "us")
	}
	return run
}
