package server

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

var (
	errSimIO   = errors.New("input/output error (simulated)")
	errSimFull = errors.New("no space left on device (simulated)")
)

// simDisk is the disk of a simulated member: in memory, with a known part of it synced. At
// a chosen sync it takes the image of a crash, or fails. Safe for concurrent use, since
// Pebble writes on goroutines of its own.
type simDisk struct {
	vfs.FS // the calls that need no attention
	mem    *vfs.MemFS
	mu     struct {
		sync.Mutex
		syncs    int        // until the fault, 0 if there is none to come
		fault    simFault   // what happens then
		unsynced int        // percent of the unsynced data that a crash keeps
		seed     uint64     // for which part of it
		image    *vfs.MemFS // of the crash, once it has happened
		failing  error      // what all syncs and writes return
		doing    string     // what of the state is being written, "" if nothing is
		died     string     // what was being written at the crash
	}
}

type simFault uint8

const (
	faultCrashBefore simFault = iota // the power goes before the sync has done anything
	faultCrashAfter                  // or when it has done everything
	faultEIO                         // it fails, and so does everything behind it
	faultFull                        // the disk is full: writes of logs fail
)

func newSimDisk(mem *vfs.MemFS) *simDisk { return &simDisk{FS: mem, mem: mem} }

// arm lets a fault happen at the n-th sync from now.
func (d *simDisk) arm(n int, f simFault, unsynced int, seed uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.syncs, d.mu.fault, d.mu.unsynced, d.mu.seed = n, f, unsynced, seed
}

// What writes the state.
const (
	doingFlush   = "flushing the state"
	doingReceive = "receiving a snapshot"
	doingInstall = "installing a snapshot"
	doingStart   = "starting"
)

// during lets do write the state: its syncs count meanwhile.
func (d *simDisk) during(what string, do func()) {
	set := func(what string) (was string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		was, d.mu.doing = d.mu.doing, what
		return was
	}
	defer set(set(what))
	do()
}

// crashed reports whether the power went: nothing that the member does counts any more.
func (d *simDisk) crashed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.image != nil
}

// crash returns what is left after a power cut: the one that was armed, or one now.
func (d *simDisk) crash(unsynced int, seed uint64) *vfs.MemFS {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crashLocked(unsynced, seed)
	return d.mu.image
}

// crashLocked takes the image of a crash, unless there is one. A directory that is being moved
// has the one name or the other, which what a crash keeps of single files does not know of: then
// it keeps nothing.
func (d *simDisk) crashLocked(unsynced int, seed uint64) {
	if d.mu.image != nil {
		return
	}
	if d.mu.doing == doingReceive || d.mu.doing == doingInstall {
		unsynced = 0
	}
	d.mu.image, d.mu.died = crashImage(d.mem, unsynced, seed), d.mu.doing
}

// sync is called around each sync of a file or directory.
func (f *simFile) sync(do func() error) error {
	d := f.disk
	d.mu.Lock()
	fault, err := d.mu.fault, error(nil)
	// Only those of the log are one behind the other in the same order each time, and a
	// failed sync of the state ends the process, which is no more than a crash. Those of the
	// state count where the simulation waits for what writes it.
	counts := f.log || d.mu.doing != "" && (fault == faultCrashBefore || fault == faultCrashAfter)
	due := counts && d.mu.syncs == 1
	if counts && d.mu.syncs > 0 {
		d.mu.syncs--
	}
	if due && d.mu.image == nil {
		switch fault {
		case faultCrashBefore:
			d.crashLocked(d.mu.unsynced, d.mu.seed)
		case faultEIO:
			d.mu.failing = errSimIO
		case faultFull:
			d.mu.failing = errSimFull
		}
	}
	if f.log {
		err = d.mu.failing
	}
	d.mu.Unlock()
	if err == nil {
		err = do()
	}
	if due && fault == faultCrashAfter {
		d.crash(d.mu.unsynced, d.mu.seed)
	}
	return err
}

// Create implements vfs.FS.
func (d *simDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, c)
	return d.file(name, f, err)
}

// OpenReadWrite implements vfs.FS.
func (d *simDisk) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(name, c, opts...)
	return d.file(name, f, err)
}

// ReuseForWrite implements vfs.FS.
func (d *simDisk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(from, to, c)
	return d.file(to, f, err)
}

// OpenDir implements vfs.FS.
func (d *simDisk) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	return d.file(name, f, err)
}

// Unwrap implements vfs.FS.
func (d *simDisk) Unwrap() vfs.FS { return d.FS }

func (d *simDisk) file(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &simFile{File: f, disk: d, log: strings.Contains(name, "/log")}, nil
}

type simFile struct {
	vfs.File
	disk *simDisk
	log  bool // it is of the log
}

// Write implements vfs.File.
func (f *simFile) Write(b []byte) (int, error) {
	f.disk.mu.Lock()
	err := f.disk.mu.failing
	f.disk.mu.Unlock()
	if f.log && errors.Is(err, errSimFull) {
		return 0, err
	}
	return f.File.Write(b)
}

// Sync implements vfs.File.
func (f *simFile) Sync() error { return f.sync(f.File.Sync) }

// SyncData implements vfs.File.
func (f *simFile) SyncData() error { return f.sync(f.File.SyncData) }

// SyncTo implements vfs.File: what is not synced whole is not promised.
func (f *simFile) SyncTo(int64) (bool, error) { return false, nil }

// simBlock is what a crash keeps or loses as a whole.
const simBlock = 4096

// crashImage returns what of mem a power cut leaves: all that was synced, and of the rest
// the given part. Which part depends on names and places only, so that the same crash
// leaves the same.
func crashImage(mem *vfs.MemFS, unsynced int, seed uint64) *vfs.MemFS {
	image := mem.CrashClone(vfs.CrashCloneCfg{})
	if unsynced == 0 {
		return image
	}
	keeps := func(path string, block int) bool {
		h := fnv.New64a()
		fmt.Fprintf(h, "%d %s %d", seed, path, block)
		return rand.New(rand.NewPCG(h.Sum64(), seed)).IntN(100) < unsynced
	}
	for _, path := range simFiles(mem, "/") {
		_, err := image.Stat(path)
		if err != nil && !keeps(path, -1) {
			continue // its name was not synced
		}
		now, was := simRead(mem, path), []byte(nil)
		if err == nil {
			was = simRead(image, path)
		}
		for i := 0; i < len(now); i += simBlock {
			end := min(i+simBlock, len(now))
			if !keeps(path, i) {
				continue
			}
			if grow := end - len(was); grow > 0 {
				was = append(was, make([]byte, grow)...)
			}
			copy(was[i:], now[i:end])
		}
		simWrite(image, path, was)
	}
	return image
}

// simFiles lists the files below dir.
func simFiles(fs vfs.FS, dir string) (files []string) {
	names, err := fs.List(dir)
	if err != nil {
		return nil
	}
	slices.Sort(names)
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		if info, err := fs.Stat(path); err != nil {
			continue // removed by Pebble just now
		} else if info.IsDir() {
			files = append(files, simFiles(fs, path)...)
		} else {
			files = append(files, path)
		}
	}
	return files
}

func simRead(fs vfs.FS, path string) []byte {
	f, err := fs.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, _ := io.ReadAll(f)
	return b
}

// simWrite makes data the synced content of a file.
func simWrite(fs vfs.FS, path string, data []byte) {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		panic(err)
	}
	f.Write(data)
	f.Sync()
	f.Close()
	if d, err := fs.OpenDir(fs.PathDir(path)); err == nil {
		d.Sync()
		d.Close()
	}
}

// flipBit damages one bit of the newest file of the log or of the state, and returns which, ""
// if there is none. Whether older files are still there depends on when Pebble removes them.
func flipBit(fs vfs.FS, rng *rand.Rand) (what string) {
	path, dir, kind := "", "/data/log/", ".log"
	if rng.IntN(2) == 0 {
		dir, kind = "/data/state/", ".sst"
	}
	for _, file := range simFiles(fs, dir) {
		if strings.HasSuffix(file, kind) {
			path = file
		}
	}
	if path == "" || len(simRead(fs, path)) == 0 {
		return ""
	}
	data := simRead(fs, path)
	at := rng.IntN(len(data))
	data[at] ^= 1 << rng.IntN(8)
	simWrite(fs, path, data)
	return fmt.Sprintf("%s at %d of %d", path, at, len(data))
}
