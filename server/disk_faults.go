//go:build faults

package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is the real file system with the faults that the file "faults" in the data
// directory asks for. It has a line per fault, and no file means none:
//
//	DIRECTORY OPERATION FAULT
//
// DIRECTORY is log or state, OPERATION is create, write or sync, FAULT is EIO, ENOSPC, EROFS
// or EMFILE, or how long the operation hangs: at most until the line is taken away.
func disk(dataDir string) vfs.FS {
	f := faultyFS{FS: vfs.Default, dir: dataDir, faults: &atomic.Pointer[[]diskFault]{}}
	f.faults.Store(&[]diskFault{})
	go f.follow()
	return f
}

// faultsPoll is how often the file is read.
const faultsPoll = 10 * time.Millisecond

// diskFault is one line of the file.
type diskFault struct {
	dir, operation string
	err            error
	hang           time.Duration
}

// faultyFS is safe for concurrent use.
type faultyFS struct {
	vfs.FS
	dir    string // the data directory
	faults *atomic.Pointer[[]diskFault]
}

// follow reads the file for as long as the process lives.
func (f faultyFS) follow() {
	for range time.Tick(faultsPoll) {
		text, _ := os.ReadFile(filepath.Join(f.dir, "faults")) // none: no faults
		faults, err := parseDiskFaults(string(text))
		if err != nil {
			panic(err) // a mistake of the test
		}
		f.faults.Store(&faults)
	}
}

func parseDiskFaults(text string) (faults []diskFault, err error) {
	codes := map[string]error{"EIO": syscall.EIO, "ENOSPC": syscall.ENOSPC, "EROFS": syscall.EROFS, "EMFILE": syscall.EMFILE}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) != 3 {
			return nil, fmt.Errorf("faults: %q must be DIRECTORY OPERATION FAULT", line)
		}
		fault := diskFault{dir: words[0], operation: words[1], err: codes[words[2]]}
		if fault.err == nil {
			if fault.hang, err = time.ParseDuration(words[2]); err != nil {
				return nil, fmt.Errorf("faults: %q: %w", line, err)
			}
		}
		faults = append(faults, fault)
	}
	return faults, nil
}

// find returns the fault of an operation on a file, nil if there is none.
func (f faultyFS) find(operation, name string) *diskFault {
	path, err := filepath.Rel(f.dir, name)
	if err != nil {
		return nil
	}
	dir, _, _ := strings.Cut(path, string(filepath.Separator))
	for _, fault := range *f.faults.Load() {
		if fault.dir == dir && fault.operation == operation {
			return &fault
		}
	}
	return nil
}

// strike does to an operation what is asked for.
func (f faultyFS) strike(operation, name string) error {
	for began := time.Now(); ; time.Sleep(faultsPoll) {
		fault := f.find(operation, name)
		switch {
		case fault == nil:
			return nil
		case fault.err != nil:
			return &os.PathError{Op: operation, Path: name, Err: fault.err}
		case time.Since(began) >= fault.hang:
			return nil
		}
	}
}

func (f faultyFS) opened(name string, file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return faultyFile{file, f, name}, nil
}

// Create implements vfs.FS.
func (f faultyFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.strike("create", name); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name, c)
	return f.opened(name, file, err)
}

// ReuseForWrite implements vfs.FS.
func (f faultyFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.strike("create", newname); err != nil {
		return nil, err
	}
	file, err := f.FS.ReuseForWrite(oldname, newname, c)
	return f.opened(newname, file, err)
}

// OpenReadWrite implements vfs.FS.
func (f faultyFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, c, o...)
	return f.opened(name, file, err)
}

// OpenDir implements vfs.FS.
func (f faultyFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	return f.opened(name, file, err)
}

// Unwrap implements vfs.FS.
func (f faultyFS) Unwrap() vfs.FS { return f.FS }

// faultyFile is one file of a faultyFS.
type faultyFile struct {
	vfs.File
	fs   faultyFS
	name string
}

// Write implements vfs.File.
func (f faultyFile) Write(p []byte) (int, error) {
	if err := f.fs.strike("write", f.name); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

// Sync implements vfs.File.
func (f faultyFile) Sync() error {
	if err := f.fs.strike("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

// SyncData implements vfs.File.
func (f faultyFile) SyncData() error {
	if err := f.fs.strike("sync", f.name); err != nil {
		return err
	}
	return f.File.SyncData()
}

// SyncTo implements vfs.File.
func (f faultyFile) SyncTo(length int64) (bool, error) {
	if err := f.fs.strike("sync", f.name); err != nil {
		return false, err
	}
	return f.File.SyncTo(length)
}
