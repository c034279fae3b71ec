package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// dataDir is a data directory that belongs to this process alone until close.
type dataDir struct{ lock *os.File }

// lockFile holds the process id of whoever has the directory; the kernel's lock on it
// is what counts, so a file left by a crash is harmless.
const lockFile = "LOCK"

// openDataDir makes the directory if it is missing and locks it. Its parent must
// exist: a missing one is more likely a volume that is not mounted.
func openDataDir(dir string) (*dataDir, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("data-dir = %q: must be a directory that exists or can be made in an existing one: %w", dir, err)
	}
	return lockDataDir(dir)
}

// lockDataDir locks a directory that must exist.
func lockDataDir(dir string) (*dataDir, error) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = errors.New("is not a directory")
	}
	if err != nil {
		return nil, fmt.Errorf("data-dir = %q: must be a directory: %w", dir, err)
	}
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data-dir = %q: must be writable: %w", dir, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 20)) // may be empty
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("data-dir = %q: is in use by process %s; two processes must not share it", dir, strings.TrimSpace(string(holder)))
		}
		return nil, fmt.Errorf("data-dir = %q: lock %s: %w", dir, path, err)
	}
	// The id is only for the message above: on a full disk the server starts without.
	if f.Truncate(0) == nil {
		_, _ = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return &dataDir{f}, nil
}

// close gives the directory up. The file stays: removing it would let two processes
// hold locks on two files of that name.
func (d *dataDir) close() { _ = d.lock.Close() }
