package replica

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// guardFS is the file system under the log's database. It does two things.
//
// Pebble creates a marker file that names the current manifest, removes the older marker,
// and syncs the directory then. Where a directory's changes may become durable in any
// order, a crash could leave a marker without its manifest, or no marker at all, which
// looks like an empty database. guardFS syncs the directory in between.
//
// Pebble answers some failures of
// its write-ahead log, such as a full disk while it starts a new file, with a panic
// that cannot be caught. guardFS reports the first failure and hides it, and
// everything after it, from Pebble: the member then stops in good order. Nothing that
// is written after the failure counts, because log.commit looks for it after each
// write and before anything is acknowledged.
type guardFS struct {
	vfs.FS
	broken *atomic.Bool
	report func(error)
}

func newGuardFS(fs vfs.FS, report func(error)) guardFS {
	return guardFS{FS: fs, broken: new(atomic.Bool), report: report}
}

// Create implements vfs.FS.
func (g guardFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	marker := strings.HasPrefix(g.PathBase(name), "marker.")
	if marker { // what it points to must exist before it
		if err := syncDir(g.FS, g.PathDir(name)); err != nil {
			return nil, err
		}
	}
	f, err := g.FS.Create(name, c)
	if marker && err == nil { // and it must exist before the older one is removed
		err = syncDir(g.FS, g.PathDir(name))
	}
	return g.guard(name, f, err)
}

// OpenDir implements vfs.FS.
func (g guardFS) OpenDir(name string) (vfs.File, error) {
	f, err := g.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &guardFile{File: f, fs: g, name: name}, nil
}

// ReuseForWrite implements vfs.FS.
func (g guardFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := g.FS.ReuseForWrite(oldname, newname, c)
	return g.guard(newname, f, err)
}

// Unwrap implements vfs.FS.
func (g guardFS) Unwrap() vfs.FS { return g.FS }

func (g guardFS) guard(name string, f vfs.File, err error) (vfs.File, error) {
	if !strings.HasSuffix(name, ".log") {
		return f, err
	}
	if err != nil {
		g.fail("creating", name, err)
		f = vfs.NewMemFile(nil) // receives nothing
	}
	return &guardFile{File: f, fs: g, name: name}, nil
}

func (g guardFS) fail(doing, name string, err error) {
	g.broken.Store(true)
	g.report(fmt.Errorf("replica: %s %s: %w", doing, name, err))
}

// guardFile is a write-ahead log, or the directory.
type guardFile struct {
	vfs.File
	fs   guardFS
	name string
}

// try does something to the file unless something has failed before.
func (f *guardFile) try(doing string, do func() error) {
	if f.fs.broken.Load() {
		return
	}
	if err := do(); err != nil {
		f.fs.fail(doing, f.name, err)
	}
}

// Write implements vfs.File.
func (f *guardFile) Write(p []byte) (int, error) {
	f.try("writing", func() error { _, err := f.File.Write(p); return err })
	return len(p), nil
}

// Preallocate implements vfs.File.
func (f *guardFile) Preallocate(offset, length int64) error {
	f.try("preallocating", func() error { return f.File.Preallocate(offset, length) })
	return nil
}

// Sync implements vfs.File.
func (f *guardFile) Sync() error {
	f.try("syncing", f.File.Sync)
	return nil
}

// SyncData implements vfs.File.
func (f *guardFile) SyncData() error {
	f.try("syncing", f.File.SyncData)
	return nil
}

// SyncTo implements vfs.File.
func (f *guardFile) SyncTo(length int64) (full bool, err error) {
	f.try("syncing", func() (err error) { full, err = f.File.SyncTo(length); return err })
	return full, nil
}

// Close implements vfs.File.
func (f *guardFile) Close() error {
	err := f.File.Close()
	f.try("closing", func() error { return err })
	return nil
}
