package replica

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// crashSeed replays a run of TestC127CrashAtEverySync:
//
//	go test ./replica -run C127 -crash.seed=N
var crashSeed = flag.Uint64("crash.seed", 0, "seed of the crash test, 0 means a new one")

const crashSize = 9 << 10 // of a proposal: enough for Pebble to change logs and write tables

// changes reports whether op may change what a crash leaves.
func changes(op errorfs.Op) bool {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo,
		errorfs.OpCreate, errorfs.OpRename, errorfs.OpRemove, errorfs.OpReuseForWrite, errorfs.OpLink:
		return true
	}
	return false
}

// crasher opens what a crash at each change of a disk would leave of it.
type crasher struct {
	t       *testing.T
	seed    uint64
	ops     atomic.Uint64
	crashes atomic.Int64
	mu      sync.Mutex // one at a time
}

// hook returns disk with a crash before every operation that changes it. The machine
// stands still meanwhile, so that what it has acknowledged, and flushed, is from the
// same moment as the disk. depth is how many crashes follow each other.
func (c *crasher) hook(disk *vfs.MemFS, m *memoryMachine, depth int) vfs.FS {
	return errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !changes(op) || c.t.Failed() {
			return nil
		}
		rng := rand.New(rand.NewPCG(c.seed, c.ops.Add(1)))
		if depth > 1 && rng.IntN(12) > 0 {
			return nil // a crash within the start after a crash: a sample
		}
		m.mu.Lock()
		acked, flushed := slices.Clone(m.got), m.flushed()
		left := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 10, 50, 90, 100}[rng.IntN(5)], RNG: rng})
		m.mu.Unlock()
		c.crashes.Add(1)
		c.restart(left, flushed, acked, depth)
		return nil
	}))
}

// restart opens what a crash left and checks it.
func (c *crasher) restart(left *vfs.MemFS, m *memoryMachine, acked []string, depth int) {
	if depth == 1 {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	var fs vfs.FS = left
	if depth == 1 {
		fs = c.hook(left, m, depth+1)
	}
	r, err := Open("dir", Options{FS: fs, Machine: m, Seal: sealTest, FlushBytes: 3 * crashSize, KeepBytes: crashSize})
	if err != nil {
		c.t.Errorf("crash %d, depth %d, seed %d: %+v", c.crashes.Load(), depth, c.seed, err)
		return
	}
	err = errors.Join(barrier(r), tell(r, "after"), barrier(r), r.Close())
	got := m.snapshot()
	if n := len(got); n <= len(acked) || !slices.Equal(got[:len(acked)], acked) || got[n-1] != "after" {
		err = errors.Join(err, fmt.Errorf("%d proposals were acknowledged, %d are left, or others", len(acked), n))
	}
	for i, p := range got {
		if p != "after" && p != proposal(i, crashSize) || i > 0 && got[i-1] == "after" && p != "after" {
			err = errors.Join(err, fmt.Errorf("proposal %d is %.20q", i, p))
		}
	}
	if err != nil {
		c.t.Errorf("crash %d, depth %d, seed %d: %v", c.crashes.Load(), depth, c.seed, err)
	}
}

// Goal: a crash at any moment loses no acknowledged proposal, leaves no hole, and never
// keeps the member from starting; that includes the creation of the member, changes of
// log files, truncation and the start after another crash. Method: before every
// operation that changes the disk, open a copy that keeps 0 to 100 % of what was not
// synced, with a machine that starts from its last flush.
func TestC127CrashAtEverySync(t *testing.T) {
	c := &crasher{t: t, seed: *crashSeed}
	if c.seed == 0 {
		c.seed = rand.Uint64()
	}
	t.Logf("replay with -crash.seed=%d", c.seed)
	disk := vfs.NewCrashableMem()
	m := newMachine()
	r := mustOpen(t, "dir", Options{FS: c.hook(disk, m, 1), Machine: m, FlushBytes: 6 * crashSize, KeepBytes: 2 * crashSize})
	for i := range 45 {
		propose(t, r, proposal(i, crashSize))
		if i%7 > 3 { // some wait, some share an entry with the next
			m.wait(func(got []string) bool { return len(got) > i })
		}
	}
	m.wait(func(got []string) bool { return len(got) == 45 })
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if n := r.Stats().Flushes; n == 0 {
		t.Fatal("nothing was flushed")
	}
	if s := r.Status(); s.First < 20 {
		t.Fatalf("truncated up to %d only", s.First)
	}
	if n := c.crashes.Load(); n < 100 {
		t.Fatalf("%d crashes", n)
	}
	t.Logf("%d crashes", c.crashes.Load())
}

// Goal: leftovers of an unfinished start do no harm. Method: put them there.
func TestC127Leftovers(t *testing.T) {
	fs := crashed(t, 3, 50)
	for _, name := range []string{"000077.log" + repairExtension, "000099.dbtmp"} {
		overwrite(t, fs, fs.PathJoin("dir", name), []byte("half"))
	}
	got, err := reopen(t, fs)
	if err != nil || len(got) != 3 {
		t.Fatalf("%d proposals, want 3: %v", len(got), err)
	}
}
