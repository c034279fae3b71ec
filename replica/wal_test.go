package replica

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
	"go.etcd.io/raft/v3/raftpb"
)

// The tests of this file damage the write-ahead log of a member that was cut off from
// power, and open it again.

// newestWAL returns the path of the newest write-ahead log in dir.
func newestWAL(t *testing.T, fs vfs.FS, dir string) string {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	best, path := wal.NumWAL(0), ""
	for _, name := range names {
		if num, _, ok := wal.ParseLogFilename(name); ok && num >= best {
			best, path = num, fs.PathJoin(dir, name)
		}
	}
	return path
}

func mustRead(t *testing.T, fs vfs.FS, path string) []byte {
	t.Helper()
	data, err := readFile(fs, path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// overwrite gives path a new, synced content. In race builds the file system in memory
// spoils what was written, to find callers that use it on, so it gets a copy.
func overwrite(t *testing.T, fs vfs.FS, path string, data []byte) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(slices.Clone(data))
	}
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// crashed runs a member that writes n acknowledged proposals of size bytes, one entry
// each, and returns what a power cut leaves of its disk.
func crashed(t *testing.T, n, size int) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewCrashableMem()
	m := newMachine()
	r := mustOpen(t, "dir", Options{FS: fs, Machine: m, Tick: 1 << 40})
	defer r.Close()
	for i := range n {
		propose(t, r, proposal(i, size))
		m.wait(func(got []string) bool { return len(got) == i+1 })
	}
	return fs.CrashClone(vfs.CrashCloneCfg{})
}

func proposal(i, size int) string {
	s := fmt.Sprintf("proposal %d ", i)
	return s + strings.Repeat("x", max(0, size-len(s)))
}

// reopen opens the member on fs with an empty machine and returns what it applied.
func reopen(t *testing.T, fs vfs.FS) ([]string, error) {
	t.Helper()
	m := newMachine()
	r, err := Open("dir", Options{FS: fs, Machine: m, Seal: sealTest, Tick: 1 << 40})
	if err != nil {
		return nil, err
	}
	if err := barrier(r); err != nil {
		t.Fatal(err)
	}
	got := m.snapshot()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return got, nil
}

// checkPrefix fails unless got is the proposals from 0 on.
func checkPrefix(t *testing.T, got []string, size int) {
	t.Helper()
	for i, p := range got {
		if p != proposal(i, size) {
			t.Fatalf("proposal %d of %d is %.30q", i, len(got), p)
		}
	}
}

// lastRecord returns the offset at which the last record in data starts.
func lastRecord(t *testing.T, data []byte, logNum uint32) (start, end int) {
	t.Helper()
	s, err := scanWAL(data, logNum, 0)
	if err != nil {
		t.Fatal(err)
	}
	for cut := s.end - 1; ; cut-- {
		c, err := scanWAL(data[:cut], logNum, 0)
		if err != nil {
			t.Fatal(err)
		}
		if c.end < s.end {
			return c.end, s.end
		}
	}
}

func walNumber(t *testing.T, fs vfs.FS, path string) uint32 {
	t.Helper()
	num, _, ok := wal.ParseLogFilename(fs.PathBase(path))
	if !ok {
		t.Fatalf("%s is no log", path)
	}
	return uint32(num)
}

// Goal: a torn tail costs at most the incomplete record, and what is written after it
// survives. Method: cut 1..4096 bytes off the newest log of a member that lost power,
// or put zeros or garbage behind it, or empty it; open, write 100 proposals, crash
// again, open.
func TestC125TornTail(t *testing.T) {
	const n, size = 30, 300
	disk := crashed(t, n, size)
	path := newestWAL(t, disk, "dir")
	data := mustRead(t, disk, path)
	garbage := make([]byte, 3000)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range garbage {
		garbage[i] = byte(rng.Uint32())
	}
	type damage struct {
		name string
		data []byte
	}
	damages := []damage{
		{"whole", data},
		{"zeros", append(slices.Clone(data), make([]byte, 40<<10)...)},
		{"garbage", append(slices.Clone(data), garbage...)},
	}
	for cut := 1; cut <= 4096; cut = cut*5/4 + 1 {
		damages = append(damages, damage{fmt.Sprintf("cut %d", cut), data[:len(data)-cut]})
	}
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			fs := disk.CrashClone(vfs.CrashCloneCfg{})
			overwrite(t, fs, path, d.data)
			complete, err := scanWAL(d.data, walNumber(t, fs, path), 0)
			if err != nil {
				t.Fatal(err)
			}
			got, err := reopen(t, fs)
			if err != nil {
				t.Fatal(err)
			}
			checkPrefix(t, got, size)
			if len(d.data) >= len(data) && len(got) != n {
				t.Fatalf("%d proposals are left of %d, nothing was cut", len(got), n)
			}
			whole, _ := scanWAL(data, walNumber(t, fs, path), 0)
			if lost := n - len(got); uint64(lost) > whole.seq-complete.seq {
				t.Fatalf("%d proposals are lost, %d records were cut", lost, whole.seq-complete.seq)
			}
			writeMore(t, fs, len(got), 100, size)
		})
	}
}

// writeMore writes more proposals than the ones that are there, cuts the power and
// checks that all are there.
func writeMore(t *testing.T, fs *vfs.MemFS, there, more, size int) {
	t.Helper()
	m := newMachine()
	r := mustOpen(t, "dir", Options{FS: fs, Machine: m, Tick: 1 << 40})
	for i := range more {
		propose(t, r, proposal(there+i, size))
	}
	m.wait(func(got []string) bool { return len(got) == there+more })
	left := fs.CrashClone(vfs.CrashCloneCfg{})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := reopen(t, left)
	if err != nil {
		t.Fatal(err)
	}
	checkPrefix(t, got, size)
	if len(got) != there+more {
		t.Fatalf("%d proposals after the second start, want %d", len(got), there+more)
	}
}

// Goal: an emptied newest log does not keep the member from starting, and what older
// logs and tables hold is kept. Method: open a crashed member, which moves everything
// into tables, write more, empty the newest log; the first part must be there. If the
// state machine knows more, Open must say so.
func TestC125EmptyNewestLog(t *testing.T) {
	const size = 100
	fs := crashed(t, 10, size)
	m := newMachine()
	r := mustOpen(t, "dir", Options{FS: fs, Machine: m, Tick: 1 << 40})
	for i := range 5 {
		propose(t, r, proposal(10+i, size))
	}
	m.wait(func(got []string) bool { return len(got) == 15 })
	left := fs.CrashClone(vfs.CrashCloneCfg{})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	overwrite(t, left, newestWAL(t, left, "dir"), nil)
	_, err := Open("dir", Options{FS: left, Machine: m, Seal: sealTest})
	if !errors.Is(err, ErrLogBehindState) {
		t.Fatalf("a state beyond the end of the log: %v", err)
	}
	got, err := reopen(t, left)
	if err != nil {
		t.Fatal(err)
	}
	checkPrefix(t, got, size)
	if len(got) != 10 {
		t.Fatalf("%d proposals, want the 10 of the tables", len(got))
	}
	writeMore(t, left, 10, 100, size)
}

// Goal: one flipped bit in synced data is found and named wherever something was
// written behind it. Method: flip every bit (a sample of the bits within payloads) of
// the log before its last record: Open must fail with ErrCorrupt. Pebble alone takes
// most of them for the end of the log, because all are in one block.
func TestC125FlippedBitIsNamed(t *testing.T) {
	const size = 64
	disk := crashed(t, 12, size)
	path := newestWAL(t, disk, "dir")
	data := mustRead(t, disk, path)
	num := walNumber(t, disk, path)
	start, _ := lastRecord(t, data, num)
	for bit := 0; bit < start*8; bit += 3 {
		flipped := slices.Clone(data)
		flipped[bit/8] ^= 1 << (bit % 8)
		if _, err := scanWAL(flipped, num, 0); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("bit %d of byte %d of %d: %v", bit%8, bit/8, len(data), err)
		}
	}
	for _, at := range []int{6, 7, start / 2, start - 1} {
		fs := disk.CrashClone(vfs.CrashCloneCfg{})
		flipped := slices.Clone(data)
		flipped[at] ^= 1
		overwrite(t, fs, path, flipped)
		if _, err := reopen(t, fs); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), path) {
			t.Fatalf("byte %d: %v", at, err)
		}
	}
}

// Goal: say what a flipped bit in the very last record does. Method: flip one there.
// With nothing behind it, it looks like a torn write, and only that record is lost; if
// the state machine has applied it, or the member was idle for a tick, or it was
// closed, Open names it.
func TestC125FlippedBitInLastRecord(t *testing.T) {
	const size = 64
	disk := crashed(t, 12, size)
	path := newestWAL(t, disk, "dir")
	data := mustRead(t, disk, path)
	start, end := lastRecord(t, data, walNumber(t, disk, path))
	data[(start+end)/2] ^= 4
	overwrite(t, disk, path, data)

	ahead := newMachine()
	ahead.applied = 14 // 12 proposals, the bootstrap, and the leader's first entry
	if _, err := Open("dir", Options{FS: disk, Machine: ahead, Seal: sealTest}); !errors.Is(err, ErrLogBehindState) {
		t.Fatalf("the state has the lost entry: %v", err)
	}
	got, err := reopen(t, disk)
	if err != nil {
		t.Fatal(err)
	}
	checkPrefix(t, got, size)
	if len(got) != 11 {
		t.Fatalf("%d proposals are left of 12, want 11", len(got))
	}
}

// Goal: an idle member proves its last record. Method: settle, as a tick does, then
// flip a bit in the record before.
func TestC125SettledRecordIsProven(t *testing.T) {
	fs := vfs.NewCrashableMem()
	l := newTestLog(t, fs)
	appendTest(t, l, 2, 5, 1)
	if _, err := l.write([]*raftpb.Message{{Term: new(uint64(1)), Vote: new(uint64(1)), Commit: new(uint64(5))}}); err != nil {
		t.Fatal(err)
	}
	path := newestWAL(t, fs, "log")
	before := len(mustRead(t, fs, path))
	if err := l.settle(); err != nil {
		t.Fatal(err)
	}
	left := fs.CrashClone(vfs.CrashCloneCfg{})
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	data := mustRead(t, left, path)
	if len(data) <= before {
		t.Fatal("settle wrote nothing")
	}
	data[before-1] ^= 1
	overwrite(t, left, path, data)
	_, err := openLog("log", left, 1, 0, []uint64{1}, false, discard, func(error) {})
	if !errors.Is(err, ErrCorrupt) {
		t.Fatalf("flipped bit in the last entry: %v", err)
	}
}

// Goal: the torn end is cut off for good. Method: tear the first record of a log, so
// that Pebble flushes nothing when it opens; crash right after Open, so that the torn
// log is not the newest any more; open again.
func TestC125TornTwice(t *testing.T) {
	disk := crashed(t, 3, 50)
	if _, err := reopen(t, disk); err != nil { // moves everything into tables
		t.Fatal(err)
	}
	path := newestWAL(t, disk, "dir")
	overwrite(t, disk, path, []byte("torn first record, longer than a header"))
	for range 3 {
		l, err := openLog("dir", disk, 1, 0, []uint64{1}, false, discard, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		left := disk.CrashClone(vfs.CrashCloneCfg{})
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
		disk = left
	}
	got, err := reopen(t, disk)
	if err != nil || len(got) != 3 {
		t.Fatalf("%d proposals, want 3: %v", len(got), err)
	}
}
