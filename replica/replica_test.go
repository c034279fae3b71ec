package replica

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// Goal: proposals are applied once, in order, across restarts, and no goroutine is left
// after Close. Method: run a member in a bubble, which fails if a goroutine is left.
func TestReplicaRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, m := vfs.NewMem(), newMachine()
		for round := range 3 {
			start := time.Now()
			r := mustOpen(t, "dir", Options{FS: fs, Machine: m, Tick: time.Second})
			if err := barrier(r); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(start); waited > 0 {
				t.Fatalf("it took %v to become leader alone", waited)
			}
			if s := r.Status(); !s.IsLeader || s.Leader != 1 || s.Term < uint64(round)+2 || !r.BarrierNow() {
				t.Fatalf("round %d: %+v", round, s)
			}
			for i := range 100 {
				propose(t, r, fmt.Sprint(round*100+i))
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			if err := r.Propose(nil); !errors.Is(err, ErrStopped) && !errors.Is(err, ErrNoLeader) {
				t.Fatalf("proposal after Close: %v", err)
			}
			if err := barrier(r); !errors.Is(err, ErrStopped) {
				t.Fatalf("barrier after Close: %v", err)
			}
			got := m.snapshot()
			if len(got) != (round+1)*100 {
				t.Fatalf("round %d: %d proposals", round, len(got))
			}
			for i, p := range got {
				if p != fmt.Sprint(i) {
					t.Fatalf("proposal %d is %q", i, p)
				}
			}
			m = m.restarted()
		}
	})
}

// slowMachine is a machine whose Apply can be held up.
type slowMachine struct {
	*memoryMachine
	gate chan struct{}
}

func (m *slowMachine) Apply(entries []Entry) (int, error) {
	for _, e := range entries {
		if e.Data != nil {
			<-m.gate
		}
	}
	return m.memoryMachine.Apply(entries)
}

// Goal: what waits is bounded also if the machine stands still, nothing accepted is
// lost, and what is refused is refused as a whole. Method: hold the machine, propose
// until ErrBusy, let go.
func TestReplicaIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound, size = 100 << 10, 1000
		m := &slowMachine{newMachine(), make(chan struct{})}
		r := mustOpen(t, "dir", Options{FS: vfs.NewMem(), Machine: m, MaxWaitingBytes: bound, MaxEntryBytes: 8 << 10})
		if err := barrier(r); err != nil {
			t.Fatal(err)
		}
		accepted := 0
		for range 3 {
			for {
				err := tell(r, proposal(accepted, size), proposal(accepted+1, size))
				if err != nil {
					if !errors.Is(err, ErrBusy) {
						t.Fatal(err)
					}
					break
				}
				accepted += 2
			}
			synctest.Wait() // until the loop has taken what it takes
		}
		if bytes := accepted * size; bytes <= bound-2*size || bytes > bound {
			t.Fatalf("%d bytes were accepted, the bound is %d", bytes, bound)
		}
		close(m.gate)
		m.wait(func(got []string) bool { return len(got) == accepted })
		checkPrefix(t, m.snapshot(), size)
		if s := r.Stats(); s.Proposals != int64(accepted) || s.Entries < int64(accepted*size/(8<<10)) {
			t.Fatalf("%+v for %d proposals", s, accepted)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Goal: what waits during a sync becomes one entry. Method: block the disk's sync, let
// 100 proposals wait, and count entries.
func TestReplicaGroupsCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if slow.Load() && strings.HasSuffix(op.Path, ".log") && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) {
				time.Sleep(time.Second) // of the bubble
			}
			return nil
		}))
		m := newMachine()
		r := mustOpen(t, "dir", Options{FS: fs, Machine: m, Tick: time.Hour})
		if err := barrier(r); err != nil {
			t.Fatal(err)
		}
		slow.Store(true)
		start := time.Now()
		propose(t, r, "first")
		synctest.Wait()
		for i := range 100 {
			propose(t, r, fmt.Sprint(i))
		}
		m.wait(func(got []string) bool { return len(got) == 101 })
		if s := r.Stats(); s.Entries != 2 || time.Since(start) != 2*time.Second {
			t.Fatalf("%d entries in %v, want 2 in 2 s", s.Entries, time.Since(start))
		}
		slow.Store(false)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Goal: a failing disk or machine stops the member, Failed is called once, and nothing
// is acknowledged after it. Method: let one kind of operation fail from some moment on
// while proposals are made.
func TestReplicaStopsOnFailure(t *testing.T) {
	isLog := func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".log") }
	for _, c := range []struct {
		name string
		hit  func(errorfs.Op) bool
		err  error
	}{
		{"write", func(op errorfs.Op) bool { return isLog(op) && op.Kind == errorfs.OpFileWrite }, syscall.EIO},
		{"write, disk full", func(op errorfs.Op) bool { return isLog(op) && op.Kind == errorfs.OpFileWrite }, syscall.ENOSPC},
		{"sync", func(op errorfs.Op) bool {
			return isLog(op) && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData)
		}, syscall.EIO},
		{"table", func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".sst") && op.Kind == errorfs.OpCreate }, syscall.ENOSPC},
		{"machine", nil, errors.New("cannot apply")},
	} {
		t.Run(c.name, func(t *testing.T) {
			var broken atomic.Bool
			fs := errorfs.Wrap(vfs.NewCrashableMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				if broken.Load() && c.hit != nil && c.hit(op) {
					return c.err
				}
				return nil
			}))
			m := newMachine()
			failed := make(chan error, 2)
			r := mustOpen(t, "dir", Options{FS: fs, Machine: m, Failed: func(err error) { failed <- err }})
			propose(t, r, "good")
			m.wait(func(got []string) bool { return len(got) == 1 })
			broken.Store(true)
			if c.hit == nil {
				m.mu.Lock()
				m.applyErr = c.err
				m.mu.Unlock()
			}
			var err error
			for err == nil || err == ErrBusy {
				err = tell(r, string(make([]byte, 5000))) // enough for tables to be written
			}
			if !errors.Is(err, ErrStopped) && !errors.Is(err, ErrNoLeader) {
				t.Fatalf("a proposal after the failure: %v", err)
			}
			if err := <-failed; !strings.Contains(err.Error(), c.err.Error()) {
				t.Fatalf("failed with %v, want %v", err, c.err)
			}
			acked := len(m.snapshot())
			if c.name != "table" && acked != 1 {
				t.Fatalf("%d proposals were applied after the disk failed", acked-1)
			}
			if err := barrier(r); !errors.Is(err, ErrStopped) {
				t.Fatalf("barrier: %v", err)
			}
			if err := r.Close(); err == nil || !strings.Contains(err.Error(), c.err.Error()) {
				t.Fatalf("Close: %v", err)
			}
			if n := len(m.snapshot()); n != acked && c.name != "table" {
				t.Fatalf("%d proposals were applied after Failed", n-acked)
			}
			if len(failed) > 0 {
				t.Fatal("Failed was called twice")
			}
		})
	}
}

// Goal: the log below the machine's durable index goes, nothing above it, and an idle
// member writes its commit index once. Method: a machine that flushes only what it is
// told to.
func TestReplicaTruncatesBelowDurable(t *testing.T) {
	fs, m := vfs.NewMem(), &laggingMachine{memoryMachine: newMachine()}
	r := mustOpen(t, "dir", Options{FS: fs, Machine: m, FlushBytes: 1 << 10, KeepBytes: 1, MaxEntryProposals: 1})
	for i := range 200 {
		propose(t, r, proposal(i, 100))
		if i%20 == 0 {
			m.wait(func(got []string) bool { return len(got) == i+1 })
			m.limit.Store(uint64(i / 2))
		}
		if s, limit := r.Status(), m.flushed.Load(); s.First > max(limit, 1)+1 {
			t.Fatalf("the log begins with %d, the machine is durable up to %d", s.First, limit)
		}
	}
	m.wait(func(got []string) bool { return len(got) == 200 })
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if s := r.Status(); s.First != 91 || s.Last != 202 || s.Committed != 202 || s.Applied != 202 {
		t.Fatalf("%+v", s)
	}
	if _, err := Open("dir", Options{FS: fs, Machine: newMachine(), Seal: sealTest}); !errors.Is(err, ErrStateBehindLog) {
		t.Fatalf("an empty machine on a truncated log: %v", err)
	}
}

// laggingMachine is durable only up to limit.
type laggingMachine struct {
	*memoryMachine
	limit, flushed atomic.Uint64
}

func (m *laggingMachine) Flush() (uint64, error) {
	index := min(m.limit.Load(), m.Applied())
	m.flushed.Store(index)
	return index, nil
}

// Goal: options are checked by name. Method: break one at a time.
func TestOptionsAreChecked(t *testing.T) {
	good := Options{Machine: newMachine(), Seal: sealTest}
	for name, change := range map[string]func(*Options){
		"Machine":       func(o *Options) { o.Machine = nil },
		"Seal":          func(o *Options) { o.Seal = nil },
		"Tick":          func(o *Options) { o.Tick = -1 },
		"MaxEntryBytes": func(o *Options) { o.MaxEntryBytes = -1 },
		"FlushBytes":    func(o *Options) { o.FlushBytes = -1 },
	} {
		o := good
		change(&o)
		if _, err := Open("dir", o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
