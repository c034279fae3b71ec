package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// memTableBytes trades memory against write amplification: hot records that
	// change again and again die in the memtable.
	memTableBytes = 8 << 20
	// blockCacheBytes is what memtables and cached blocks take together: Pebble
	// takes the memory of memtables, of which one is written, one is flushed and one
	// is kept for reuse, from its cache. What is left is small because decoded
	// records are cached above it, but must hold the filters and indexes of a
	// million znodes.
	blockCacheBytes = 3*memTableBytes + 12<<20
	bloomBitsPerKey = 10
)

// pebbleOptions returns Pebble's options for o. What endangers the state is noted in
// h.
func pebbleOptions(o *Options, h *health) *pebble.Options {
	failed := func(err error) {
		if h.fail(err) {
			o.Log.Error("the store's disk failed", "err", err)
		}
	}
	p := &pebble.Options{
		FS:                          markerFS{o.FS},
		Logger:                      logger{o.Log},
		CacheSize:                   blockCacheBytes,
		MemTableSize:                memTableBytes,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       8,
		// Writes are bounded by the log's syncs; stopping them for level 0 would stop
		// the whole member.
		L0StopWritesThreshold:      64,
		CompactionConcurrencyRange: func() (int, int) { return 1, 2 },
		FormatMajorVersion:         pebble.FormatNewest,
		DisableWAL:                 true, // the Raft log is the write-ahead log
	}
	for i := range p.Levels {
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBitsPerKey)
	}
	p.EventListener = &pebble.EventListener{
		// A failed flush or compaction, or a failed read of a table: the disk cannot
		// be trusted any more, and nothing committed from now on would become durable.
		BackgroundError: failed,
		DataCorruption:  func(info pebble.DataCorruptionInfo) { failed(fmt.Errorf("%s", info)) },
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			o.Log.Warn("the store stalls", "reason", info.Reason)
		},
	}
	return p
}

// markerFS makes what Pebble's marker file names, the current manifest, durable before the
// marker, and the marker before the older one goes: where a directory's changes may become
// durable in any order, a crash could leave a marker without its manifest, or none, which
// looks like an empty database. The log's databases need the same (see package replica).
type markerFS struct{ vfs.FS }

// Create implements vfs.FS.
func (m markerFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if !strings.HasPrefix(m.PathBase(name), "marker.") {
		return m.FS.Create(name, c)
	}
	if err := syncDir(m.FS, m.PathDir(name)); err != nil {
		return nil, err
	}
	f, err := m.FS.Create(name, c)
	if err == nil {
		err = syncDir(m.FS, m.PathDir(name))
	}
	return f, err
}

// Unwrap implements vfs.FS.
func (m markerFS) Unwrap() vfs.FS { return m.FS }

// syncDir makes the entries of dir durable.
func syncDir(on vfs.FS, dir string) error {
	d, err := on.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// logger turns Pebble's messages into structured ones.
type logger struct{ log *slog.Logger }

func (l logger) Infof(format string, args ...any) {
	if !l.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	l.log.Debug("pebble", "msg", fmt.Sprintf(format, args...))
}

func (l logger) Errorf(format string, args ...any) {
	l.log.Error("pebble", "msg", fmt.Sprintf(format, args...))
}

// Fatalf must not return. Pebble calls it where its state in memory and on disk can
// no longer agree, so the process must end.
func (l logger) Fatalf(format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	l.log.Error("pebble cannot go on", "msg", msg)
	panic("pebble: " + msg)
}
