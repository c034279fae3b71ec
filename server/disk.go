//go:build !faults

package server

import "github.com/cockroachdb/pebble/v2/vfs"

// disk is the file system of the databases below a data directory: the real one. Built
// with -tags faults, for tests, it is one that fails on demand.
func disk(string) vfs.FS { return vfs.Default }
