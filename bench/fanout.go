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

// fanout is the watch workload: many watchers of one node, a write, and the time
// until all are told. Watchers of one connection share what the server sends it.
type fanout struct {
	row      *row
	node     string
	watchers int
	writer   Conn
	rec      *recorder
}

// measureFanout measures rounds until the goal is reached. Arming the watches is not
// part of a round's latency.
func measureFanout(ctx context.Context, r *row) (run Run, err error) {
	if err := r.connect(ctx, r.shape.Connections, nil); err != nil {
		return run, errors.Join(err, r.close())
	}
	defer func() { err = errors.Join(err, ignoreAfter(err, r.close())) }()
	f := &fanout{row: r, node: r.parent + "/watched", watchers: r.cfg.Watchers, rec: newRecorder(r.work.parts, len(r.conns))}
	if f.watchers == 0 {
		f.watchers = len(r.conns)
	}
	if f.writer, err = r.cfg.Target.Connect(ctx, 1); err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, ignoreAfter(err, f.writer.Close())) }()
	r.paths = append(r.paths, f.node)
	if _, err := f.writer.Create(ctx, f.node, r.value, znode.Mode{}); err != nil {
		return run, err
	}
	u := r.startUsage(ctx)
	began := time.Now()
	rounds := int64(0)
	for ; r.cfg.Count > 0 && rounds < r.cfg.Count || r.cfg.Count == 0 && time.Since(began) < r.cfg.Duration; rounds++ {
		if err := f.round(ctx); err != nil {
			return run, fmt.Errorf("round %d: %w", rounds+1, err)
		}
		f.rec.collect()
		if r.cfg.Progress != nil {
			all := f.rec.total[0].latency()
			r.cfg.Progress(Progress{Shape: r.shape, What: "measure", Rate: float64(rounds+1) / time.Since(began).Seconds(), P50Us: all.P50, P99Us: all.P99})
		}
	}
	return f.result(ctx, u, time.Since(began)), nil
}

// round arms all watchers, writes, and waits until all are told.
func (f *fanout) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerGrace)
	defer cancel()
	var armed, told sync.WaitGroup
	var failure atomic.Pointer[error]
	var wrote atomic.Int64 // nanoseconds since began
	began := time.Now()
	armed.Add(f.watchers)
	for i := range f.watchers {
		told.Go(func() {
			signal := sync.OnceFunc(armed.Done)
			defer signal()
			err := f.row.conns[i%len(f.row.conns)].Watch(ctx, f.node, signal)
			if err != nil {
				failure.CompareAndSwap(nil, &err)
				return
			}
			f.rec.of(i).record(1, time.Since(began)-time.Duration(wrote.Load()))
		})
	}
	armed.Wait()
	wrote.Store(int64(time.Since(began)))
	err := f.writer.Set(ctx, f.node, f.row.value)
	if err != nil {
		cancel()
	}
	told.Wait()
	if first := failure.Load(); err == nil && first != nil {
		err = *first
	}
	if err == nil {
		f.rec.of(0).record(0, time.Since(began)-time.Duration(wrote.Load()))
	}
	return err
}

func (f *fanout) result(ctx context.Context, u usage, elapsed time.Duration) Run {
	all, each := f.rec.total[0].latency(), f.rec.total[1].latency()
	run := Run{Ops: all.Count, Seconds: elapsed.Seconds(), Latency: all, Parts: []Part{{"all", all}, {"each", each}},
		OpsPerSecond: float64(all.Count) / max(elapsed.Seconds(), 1e-9), ErrorKinds: map[string]int64{}}
	u.finish(ctx, &run)
	run.figure("watchers", float64(f.watchers), "")
	return run
}

// measureSessions opens sessions and holds them for the duration, or for a second
// where a count is given.
func measureSessions(ctx context.Context, r *row) (run Run, err error) {
	before, told := r.cfg.Target.Usage(ctx)
	rec := newRecorder(r.work.parts, 1)
	u := r.startUsage(ctx)
	began := time.Now()
	err = r.connect(ctx, r.shape.Connections, rec.of(0))
	elapsed := time.Since(began)
	defer func() { err = errors.Join(err, ignoreAfter(err, r.close())) }()
	if err != nil {
		return run, fmt.Errorf("%d of %d sessions opened: %w", len(r.conns), r.shape.Connections, err)
	}
	rec.collect()
	all := rec.all().latency()
	run = Run{Ops: all.Count, Seconds: elapsed.Seconds(), Latency: all, ErrorKinds: map[string]int64{},
		OpsPerSecond: float64(all.Count) / max(elapsed.Seconds(), 1e-9)}
	u.finish(ctx, &run)
	hold := r.cfg.Duration
	if r.cfg.Count > 0 {
		hold = time.Second
	}
	r.tell("hold")
	if !sleepUntil(ctx, time.Now().Add(hold)) {
		return run, ctx.Err()
	}
	// Each of them answers still, or it was not held.
	err = r.spread(ctx, len(r.conns), func(ctx context.Context, c Conn, _ int) error { return c.Exists(ctx, r.parent) })
	if err != nil {
		return run, fmt.Errorf("after %v: %w", hold, err)
	}
	run.figure("sessions held", float64(len(r.conns)), "")
	if after, ok := r.cfg.Target.Usage(ctx); ok && told {
		run.figure("server resident, sessions held", after.ResidentBytes, "bytes")
		run.figure("server resident per session", (after.ResidentBytes-before.ResidentBytes)/float64(len(r.conns)), "bytes")
	}
	return run, nil
}
