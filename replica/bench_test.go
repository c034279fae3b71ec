package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sys/unix"
)

// countMachine applies nothing and releases whoever waits for a proposal.
type countMachine struct {
	applied uint64
	done    chan struct{}
}

func (m *countMachine) Apply(entries []Entry) (own int, err error) {
	for _, e := range entries {
		m.applied = e.Index
		own += len(e.Data) / benchBytes
		if m.done != nil && e.Data != nil {
			for range len(e.Data) / benchBytes {
				m.done <- struct{}{}
			}
		}
	}
	return own, nil
}
func (m *countMachine) Recover(uint64) (uint64, error)        { return 0, nil }
func (m *countMachine) Snapshot() (SnapshotSource, error)     { return nil, errors.ErrUnsupported }
func (m *countMachine) Incoming(uint64) (SnapshotSink, error) { return nil, errors.ErrUnsupported }
func (m *countMachine) Install(uint64, func(uint64)) error    { return errors.ErrUnsupported }
func (m *countMachine) Flush() (uint64, error)                { return 0, nil }

// benchBytes is the size of a proposal in the benchmarks.
const benchBytes = 128

func concat(dst []byte, proposals [][]byte) []byte {
	for _, p := range proposals {
		dst = append(dst, p...)
	}
	return dst
}

// reportQuantiles adds the median and the 99th percentile to b's result.
func reportQuantiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-us")
}

func benchReplica(b *testing.B) (*Replica, *countMachine) {
	m := &countMachine{done: make(chan struct{}, 1<<16)}
	r, err := Open(filepath.Join(b.TempDir(), "log"), Options{Machine: m, Seal: concat})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { r.Close() })
	if err := barrier(r); err != nil {
		b.Fatal(err)
	}
	return r, m
}

// BenchmarkProposeOne is one client that waits for each proposal to be applied.
func BenchmarkProposeOne(b *testing.B) {
	r, m := benchReplica(b)
	p := make([]byte, benchBytes)
	var took []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		if err := r.Propose(p); err != nil {
			b.Fatal(err)
		}
		<-m.done
		took = append(took, time.Since(start))
	}
	reportQuantiles(b, took)
	b.ReportMetric(float64(r.Stats().Syncs)/float64(b.N), "syncs/op")
}

// BenchmarkProposeMany keeps 16, 256 and 4096 proposals outstanding.
func BenchmarkProposeMany(b *testing.B) {
	for _, outstanding := range []int{16, 256, 4096} {
		b.Run(fmt.Sprint(outstanding), func(b *testing.B) {
			r, m := benchReplica(b)
			p := make([]byte, benchBytes)
			waiting := 0
			b.ReportAllocs()
			for b.Loop() {
				if waiting == outstanding {
					<-m.done
					waiting--
				}
				if err := r.Propose(p); err != nil {
					b.Fatal(err)
				}
				waiting++
			}
			for ; waiting > 0; waiting-- {
				<-m.done
			}
			s := r.Stats()
			b.ReportMetric(float64(s.Proposals)/float64(s.Entries), "proposals/entry")
		})
	}
}

// BenchmarkPebbleSync is what a synced commit of the same size costs in Pebble alone.
func BenchmarkPebbleSync(b *testing.B) {
	db, err := pebble.Open(b.TempDir(), &pebble.Options{FormatMajorVersion: pebble.FormatNewest, Logger: &fatalLogger{log: slog.New(slog.DiscardHandler)}, MemTableSize: logMemTable})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	var took []time.Duration
	p, n := make([]byte, benchBytes), uint64(0)
	for b.Loop() {
		start := time.Now()
		n++
		if err := db.Set(appendEntryKey(nil, n), p, pebble.Sync); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	reportQuantiles(b, took)
}

// BenchmarkRawSync is what the disk costs: 4 KiB written and synced, at the end of a
// growing file and over a file that has its size.
func BenchmarkRawSync(b *testing.B) {
	for _, size := range []int64{0, 64 << 20} {
		b.Run(fmt.Sprintf("preallocated=%dMiB", size>>20), func(b *testing.B) {
			f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt(make([]byte, size), 0); err != nil {
				b.Fatal(err)
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
			var took []time.Duration
			var n atomic.Int64
			block := make([]byte, 4<<10)
			for b.Loop() {
				start := time.Now()
				off := (n.Add(1) - 1) * int64(len(block))
				if size > 0 {
					off %= size
				}
				if _, err := f.WriteAt(block, off); err != nil {
					b.Fatal(err)
				}
				if err := unix.Fdatasync(int(f.Fd())); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			reportQuantiles(b, took)
		})
	}
}
