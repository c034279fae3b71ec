//go:build !linux

package bench

import "os"

// datasync is what a log does to make an append durable.
func datasync(f *os.File) error { return f.Sync() }
