// Package store keeps the state (znodes, sessions, change history, results) in Pebble.
package store

import (
	"io"
	"iter"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Options configures Open. The zero value means the documented defaults.
type Options struct {
	FS         vfs.FS // nil = the real one
	Log        *slog.Logger
	CacheBytes int64 // decoded hot records, default 64 MiB
	// History bounds what watches can catch up from; whichever is reached first.
	HistoryCount int64         // changes, default 1 000 000
	HistoryBytes int64         // default 256 MiB
	HistoryAge   time.Duration // by the leader's stamps, default 1 h
}

// Store is the state of one member. One goroutine, the writer, calls Begin and the
// Batch's methods; any number may call the read methods. A read must not run while
// Commit runs: the owner holds a lock (shared for reads, exclusive for Commit),
// because what must be atomic with Commit (answers, watch events) is the owner's.
type Store struct{}

func Open(dir string, o Options) (*Store, error) { panic("stub") }
func (s *Store) Close() error                    { panic("stub") } // flushes

// Applied is the index of the last log entry whose effects are visible.
func (s *Store) Applied() uint64 { panic("stub") }

// Durable is the index of the last entry whose effects would survive a power cut now.
func (s *Store) Durable() uint64 { panic("stub") }

// Flush makes everything committed before the call durable and returns Durable.
func (s *Store) Flush() (uint64, error) { panic("stub") }

// Begin starts the batch of the log entry at index. Index must be Applied()+1 or more.
func (s *Store) Begin(index uint64) *Batch { panic("stub") }

// Batch collects the effects of one log entry (or several).
type Batch struct{}

// Outcome is what one transaction led to.
type Outcome struct {
	Result znode.Result
	// Changes are for watches; nil for a duplicate.
	Changes []znode.Change
	// Sessions opened or closed by it, in order.
	Sessions []znode.SessionEffect
	// Gap: the write's Seq is not the next of its session; nothing was done, and the
	// connection that sent it must be closed so that the client resends in order.
	Gap bool
}

// Apply runs one transaction after those applied earlier in the batch.
func (b *Batch) Apply(stamp znode.Stamp, t *znode.Txn) Outcome { panic("stub") }

// Commit writes the batch and makes it visible. An error is fatal to the process.
func (b *Batch) Commit() error { panic("stub") }

func (s *Store) LastZxid() int64 { panic("stub") }

// Node returns znode and counters, nil if there is none.
func (s *Store) Node(path string) (*znode.Node, znode.Children, error) { panic("stub") }

// List returns up to limit (0 = all) names of path's children after after, ascending.
func (s *Store) List(path, after string, limit int) ([]string, error)      { panic("stub") }
func (s *Store) Subtree(path string) (count, bytes int64, err error)       { panic("stub") }
func (s *Store) Ephemerals(id session.ID, prefix string) ([]string, error) { panic("stub") }
func (s *Store) Session(id session.ID) *session.Session                    { panic("stub") }
func (s *Store) Sessions(after session.ID, limit int) []session.Session    { panic("stub") }
func (s *Store) Reapable(nowMs int64, limit int) ([]string, error)         { panic("stub") }

// Counts of the whole state, kept up to date by Commit.
type Counts struct {
	Znodes, Ephemerals, Sessions, DataBytes int64
	HistoryFirst                            int64 // changes after this zxid are all in the history
	HistoryCount, HistoryBytes              int64
	Results                                 int64 // kept for native sessions
}

func (s *Store) Counts() Counts { panic("stub") }

// History yields the changes with a zxid above from, in order. complete is false if
// the history no longer reaches back to from.
func (s *Store) History(from int64) (changes iter.Seq2[HistoryEntry, error], complete bool) {
	panic("stub")
}

type HistoryEntry struct {
	Zxid    int64
	Changes []znode.Change
}

// Digest is a hash of the replicated state: equal on all members at equal Applied.
func (s *Store) Digest() uint64 { panic("stub") }

// SnapshotInfo describes a snapshot.
type SnapshotInfo struct {
	Applied uint64
	Zxid    int64
	Digest  uint64
	Records int64
	Bytes   int64
}

func (s *Store) WriteSnapshot(w io.Writer) (SnapshotInfo, error) { panic("stub") }

var _ wire.Op
