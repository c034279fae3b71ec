package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// Probe is what the machine allows, measured while the server was idle: the floor
// under the latency of one durable write. Durations are p50 in microseconds.
type Probe struct {
	// SyncGrowingUs is a 4 KiB append to a growing file and its sync; SyncAllocatedUs
	// the same within a file written before, which spares the file system its own log.
	SyncGrowingUs   float64 `json:"sync_growing_us"`
	SyncAllocatedUs float64 `json:"sync_allocated_us"`
	// RoundTripUs is 100 bytes to an echo on loopback TCP and back.
	RoundTripUs float64 `json:"round_trip_us"`
	// LoadNsPerOp is CPU time that the load generator itself costs per operation, with
	// a service that answers at once: part of the client's CPU time in all rows.
	LoadNsPerOp float64 `json:"load_ns_per_op"`
}

const (
	probeBytes = 4 << 10
	// Each part of the probe ends with the first of its count and its time.
	probeSyncs      = 1000
	probeRoundTrips = 5000
	probeTime       = 250 * time.Millisecond
	probeOps        = 200_000
)

// MeasureProbe runs the probe with its files in dir.
func MeasureProbe(ctx context.Context, dir string) (p Probe, err error) {
	if p.SyncGrowingUs, err = probeSync(dir, false); err != nil {
		return p, fmt.Errorf("probe: %w", err)
	}
	if p.SyncAllocatedUs, err = probeSync(dir, true); err != nil {
		return p, fmt.Errorf("probe: %w", err)
	}
	if p.RoundTripUs, err = probeRoundTrip(ctx); err != nil {
		return p, fmt.Errorf("probe: %w", err)
	}
	p.LoadNsPerOp, err = probeLoad(ctx)
	return p, err
}

// repeat calls do up to count times or for probeTime and returns the p50 in us.
func repeat(count int, do func(i int) error) (float64, error) {
	h := newHistogram()
	began := time.Now()
	for i := 0; i < count && time.Since(began) < probeTime; i++ {
		start := time.Now()
		if err := do(i); err != nil {
			return 0, err
		}
		h.record(int64(time.Since(start)))
	}
	return h.latency().P50, nil
}

func probeSync(dir string, allocated bool) (p50 float64, err error) {
	f, err := os.CreateTemp(dir, "tenure-bench-*.probe")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	block := make([]byte, probeBytes)
	if allocated {
		for i := range int64(probeSyncs) {
			if _, err := f.WriteAt(block, i*probeBytes); err != nil {
				return 0, err
			}
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	return repeat(probeSyncs, func(i int) error {
		block[0] = byte(i)
		if _, err := f.WriteAt(block, int64(i)*probeBytes); err != nil {
			return err
		}
		return datasync(f)
	})
}

func probeRoundTrip(ctx context.Context) (p50 float64, err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	var echo sync.WaitGroup
	defer echo.Wait()
	defer l.Close()
	echo.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 4<<10))
	})
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	message := make([]byte, 100)
	return repeat(probeRoundTrips, func(int) error {
		if _, err := c.Write(message); err != nil {
			return err
		}
		_, err := io.ReadFull(c, message)
		return err
	})
}

// probeLoad runs the loop of the workers with a service that does nothing.
func probeLoad(ctx context.Context) (nsPerOp float64, err error) {
	w, err := workloadOf("get")
	if err != nil {
		return 0, err
	}
	r := &row{cfg: Config{Count: probeOps, Keys: 1, Target: &Tenure{}}, shape: Shape{"get", 1, 16}, work: w,
		conns: []Conn{nothing{}}, paths: []string{"/"}}
	r.makeWorkers()
	before := ownCPU()
	p := r.phase(ctx, goal{count: probeOps})
	return float64(ownCPU()-before) / float64(max(p.rec.all().count(), 1)), p.err
}

// nothing is a service that answers at once.
type nothing struct{}

func (nothing) Create(_ context.Context, path string, _ []byte, _ znode.Mode) (string, error) {
	return path, nil
}
func (nothing) Set(context.Context, string, []byte) error             { return nil }
func (nothing) Get(context.Context, string) error                     { return nil }
func (nothing) Exists(context.Context, string) error                  { return nil }
func (nothing) List(context.Context, string) (int, error)             { return 0, nil }
func (nothing) Delete(context.Context, string) error                  { return nil }
func (nothing) DeleteAll(context.Context, []string) error             { return nil }
func (nothing) Watch(_ context.Context, _ string, armed func()) error { armed(); return nil }
func (nothing) Close() error                                          { return nil }
