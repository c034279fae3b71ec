package store

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
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
		FS:                          o.FS,
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
