package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"
)

const (
	// logMemTable is small so that Pebble soon reuses log files: overwriting a file
	// that has its size already makes a sync about half as long.
	logMemTable = 8 << 20
	logCache    = 1 << 20
	// logTailMax bounds the entries kept in memory.
	logTailMax = 8 << 20
)

// log is the Raft log of one member: entries, hard state, configuration and identity
// in a Pebble database of its own, with the newest entries in memory. It implements
// raft.Storage.
//
// write and truncate may be called concurrently with each other and with the methods
// of raft.Storage.
type log struct {
	db    *pebble.DB
	lock  *pebble.Lock
	fatal *fatalLogger
	identity

	// peers has the instances of the members that have been met.
	peers struct {
		sync.Mutex
		instances map[uint64]uint64
	}

	// wmu is held while a batch is built and committed, so that batches carry
	// their numbers in the order in which they are in the write-ahead log.
	wmu struct {
		sync.Mutex
		head    head
		pending bool // head.Commit moved on without being written
		key     []byte
		rec     []byte
	}

	// mu guards what raft.Storage and truncation read. It is never held over I/O
	// except for reads of entries that are no longer in memory.
	mu struct {
		sync.Mutex
		truncIndex, truncTerm uint64
		last                  uint64
		tail                  tail
		conf                  conf
		lag                   lag
		bytes                 int64 // cost of the entries; an estimate after truncation
		appended              int64 // cost of the entries written since the log was opened
		err                   error // first failed read; raft turns it into a panic, which the loop catches
	}
	// applied is the index that the state machine starts from; raft starts from it.
	applied uint64
}

// anyMember opens the log of whatever member it is.
const anyMember = 0

// openLog opens or creates the log in dir and verifies all of it. voters is the
// membership of a new log, none if it is to join an ensemble, and cluster its ensemble. With readOnly it must exist, and nothing is written.
func openLog(dir string, fs vfs.FS, id, cluster uint64, voters []uint64, readOnly bool, lg *slog.Logger, background func(error)) (_ *log, err error) {
	if !readOnly {
		if err := mkdir(fs, dir); err != nil {
			return nil, fmt.Errorf("replica: creating %s: %w", dir, err)
		}
	}
	l := &log{fatal: &fatalLogger{log: lg, failed: background}}
	if l.lock, err = pebble.LockDirectory(dir, fs); err != nil {
		return nil, fmt.Errorf("replica: %s is in use: %w", dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	used, err := checkWALs(fs, dir, !readOnly)
	if err != nil {
		return nil, err
	}
	cache := pebble.NewCache(logCache)
	defer cache.Unref()
	o := &pebble.Options{
		FS:                 newGuardFS(fs, l.fatal.fail),
		Lock:               l.lock,
		Cache:              cache,
		MaxOpenFiles:       64,
		MemTableSize:       logMemTable,
		FormatMajorVersion: pebble.FormatNewest,
		Logger:             l.fatal,
		EventListener: &pebble.EventListener{
			BackgroundError: background,
			// Pebble's own reaction is Fatalf.
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				background(fmt.Errorf("%w: %s: %w", ErrCorrupt, info.Path, info.Details))
			},
		},
		// Nobody reads tables but Open. By the time that as many have gathered, most of
		// what is in them was truncated, so compacting them writes little.
		L0CompactionThreshold: 8,
		L0StopWritesThreshold: 64,
		ErrorIfNotExists:      used || readOnly,
		ReadOnly:              readOnly,
	}
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	l.db, err = pebble.Open(dir, o)
	if errFatal := l.fatal.err(); errFatal != nil {
		return nil, errFatal
	}
	if err != nil {
		if pebble.IsCorruptionError(err) || errors.Is(err, pebble.ErrDBDoesNotExist) {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		return nil, fmt.Errorf("replica: opening the log in %s: %w", dir, err)
	}
	l.mu.tail.max = logTailMax
	fresh, err := l.isFresh()
	if err != nil {
		return nil, err
	}
	if fresh && (used || readOnly) {
		return nil, fmt.Errorf("%w: %s has a member's files, but its database is empty", ErrCorrupt, dir)
	}
	if fresh {
		if err := l.bootstrap(id, cluster, voters); err != nil {
			return nil, err
		}
	}
	return l, l.load(id, readOnly)
}

// mkdir creates dir and makes its entry in the parent durable.
func mkdir(fs vfs.FS, dir string) error {
	if _, err := fs.Stat(dir); err == nil {
		return nil
	}
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for parent := fs.PathDir(dir); ; parent = fs.PathDir(parent) {
		if err := syncDir(fs, parent); err != nil || fs.PathDir(parent) == parent {
			return err
		}
	}
}

// isFresh reports whether the database holds nothing at all: bootstrap is one synced
// batch, so anything else means that there was a member here.
func (l *log) isFresh() (bool, error) {
	it, err := l.db.NewIter(nil)
	if err != nil {
		return false, l.readError(err)
	}
	fresh := !it.First()
	if err := it.Close(); err != nil {
		return false, l.readError(err)
	}
	return fresh, nil
}

// bootstrap writes the state of a new ensemble: entry 1 counts as truncated, so that a
// member that joins later with an empty log gets the configuration with a snapshot. Without
// voters it is that member's log, which has nothing at all.
func (l *log) bootstrap(id, cluster uint64, voters []uint64) error {
	first := uint64(1)
	if len(voters) == 0 {
		first = 0
	}
	rec, err := encodeConf(conf{index: first, state: &raftpb.ConfState{Voters: voters}})
	if err != nil {
		return err
	}
	b := l.db.NewBatch()
	h := head{Term: first, Commit: first, Last: first, Seq: 1}
	err = errors.Join(
		b.Set(headKey, appendHead(nil, h), nil),
		b.Set(confKey, rec, nil),
		b.Set(identityKey, encodeIdentity(newIdentity(id, cluster)), nil),
		b.Set(truncKey, encodePair(truncKey, first, first), nil),
	)
	if err == nil {
		err = l.commit(b, pebble.Sync)
	}
	if err != nil {
		return fmt.Errorf("replica: creating the log: %w", err)
	}
	return nil
}

// commit applies b and closes it. Pebble reports a failed commit only to its logger.
func (l *log) commit(b *pebble.Batch, o *pebble.WriteOptions) error {
	if err := l.fatal.err(); err != nil {
		return err
	}
	err := l.db.Apply(b, o)
	if errFatal := l.fatal.err(); errFatal != nil {
		// b may still be referenced by Pebble's commit pipeline.
		return errFatal
	}
	if errClose := b.Close(); err == nil {
		err = errClose
	}
	return err
}

// close closes the database. After a failed commit Pebble's pipeline is stuck, so then
// the database stays open, and the directory locked, until the process ends.
func (l *log) close() error {
	if l.fatal.err() != nil {
		return nil
	}
	var err error
	if l.db != nil {
		err = l.db.Close()
	}
	if l.lock != nil {
		err = errors.Join(err, l.lock.Close())
	}
	return err
}

// fatalLogger receives Pebble's messages. Pebble says that a commit failed, after which
// it accepts the write all the same, by calling Fatalf only; the first such call is
// kept as an error.
type fatalLogger struct {
	log    *slog.Logger
	failed func(error)
	mu     struct {
		sync.Mutex
		err error
	}
}

// Infof implements pebble.Logger.
func (f *fatalLogger) Infof(format string, args ...any) {
	if f.log.Enabled(context.Background(), slog.LevelDebug) {
		f.log.Debug("log database", "msg", fmt.Sprintf(format, args...))
	}
}

// Errorf implements pebble.Logger.
func (f *fatalLogger) Errorf(format string, args ...any) {
	f.log.Warn("log database", "msg", fmt.Sprintf(format, args...))
}

// Fatalf implements pebble.Logger, but returns.
func (f *fatalLogger) Fatalf(format string, args ...any) {
	f.fail(fmt.Errorf("replica: log database: %w", fmt.Errorf(format, args...)))
}

// fail keeps the first failure and passes all on.
func (f *fatalLogger) fail(err error) {
	f.mu.Lock()
	if f.mu.err == nil {
		f.mu.err = err
	}
	f.mu.Unlock()
	f.failed(err)
}

func (f *fatalLogger) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.err
}
