package bench

import (
	"os"

	"golang.org/x/sys/unix"
)

// datasync is what a log does to make an append durable.
func datasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }
