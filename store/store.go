// Package store keeps the replicated state in Pebble: znodes, sessions, the change
// history and the results that native sessions have not acknowledged yet.
//
// It has no write-ahead log: the Raft log is it. A batch of effects and the index of
// the log entry they come from are one Pebble batch, so after a crash the state is
// that of some earlier entry, never half of one, and the log is replayed from
// Applied on. Apply is deterministic: the state and its Digest at an index are the
// same on all members, however the entries were batched.
//
// The key schema is in keys.go.
package store

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// Defaults of Options.
const (
	DefaultCacheBytes   = 32 << 20
	DefaultHistoryCount = 1_000_000
	DefaultHistoryBytes = 256 << 20
	DefaultHistoryAge   = time.Hour
)

// Options configures Open. The zero value means the documented defaults.
type Options struct {
	FS  vfs.FS       // nil = the real one
	Log *slog.Logger // nil = nothing is logged
	// CacheBytes bounds the decoded hot records in memory, default 32 MiB. The Go
	// heap may be twice that. Pebble's own memory, up to 40 MiB, comes on top.
	CacheBytes int64
	// History bounds what watches can catch up from; whichever is reached first.
	// The newest batch is always kept.
	HistoryCount int64         // changes, default 1 000 000
	HistoryBytes int64         // on disk before compression, default 256 MiB
	HistoryAge   time.Duration // by the leader's stamps, default 1 h
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = DefaultCacheBytes
	}
	if o.HistoryCount == 0 {
		o.HistoryCount = DefaultHistoryCount
	}
	if o.HistoryBytes == 0 {
		o.HistoryBytes = DefaultHistoryBytes
	}
	if o.HistoryAge == 0 {
		o.HistoryAge = DefaultHistoryAge
	}
	return o
}

func (o *Options) validate() error {
	if o.CacheBytes < 0 || o.HistoryCount < 0 || o.HistoryBytes < 0 || o.HistoryAge < 0 {
		return fmt.Errorf("store: negative option: CacheBytes %d, HistoryCount %d, HistoryBytes %d, HistoryAge %s",
			o.CacheBytes, o.HistoryCount, o.HistoryBytes, o.HistoryAge)
	}
	return nil
}

// Store is the state of one member. One goroutine, the writer, calls Begin and the
// Batch's methods; any number may call the read methods. A read must not run while
// Commit runs: the owner holds a lock (shared for reads, exclusive for Commit),
// because what must be atomic with Commit (answers, watch events) is the owner's.
// Applied, LastZxid, Digest, Counts, Durable, Flush, Metrics, Snapshot, WriteSnapshot and
// the methods of a Source, and the range over what History returned, need no lock, nor
// do Incoming and its methods.
type Store struct {
	o   Options
	dir string
	// use is held shared where the database is used without the owner's lock, and
	// exclusively by Adopt, which replaces db and health. Never over anybody else's I/O.
	use    sync.RWMutex
	closed bool // by an Adopt that failed
	db     *pebble.DB
	cache  *cache
	known  presence
	now    atomic.Pointer[meta] // as of the last Commit; never changed in place
	health *health

	// Written by Commit, read by reads and by the writer.
	sessions map[session.ID]*session.Session

	sources struct {
		sync.Mutex
		open map[*Source]struct{}
	}

	// Owned by the writer.
	batch    Batch
	windows  map[session.ID]*window
	segments []segment // closed ones, oldest first
}

// Open opens the store in dir, and creates it with znode.Genesis if there is none.
// It reads all sessions and unacknowledged results, but no znodes.
func Open(dir string, o Options) (*Store, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := newStore(o)
	s.dir = dir
	db, err := pebble.Open(dir, pebbleOptions(&o, s.health))
	if err != nil {
		return nil, fmt.Errorf("store: open %s: %w", dir, err)
	}
	s.db, s.known.db = db, db
	if err := errors.Join(s.load(), s.clear()); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func newStore(o Options) *Store {
	s := &Store{
		o:        o,
		health:   newHealth(),
		cache:    newCache(o.CacheBytes),
		sessions: make(map[session.ID]*session.Session),
		windows:  make(map[session.ID]*window),
	}
	s.sources.open = make(map[*Source]struct{})
	s.batch.init(s)
	return s
}

// load reads what is kept in memory, or writes the genesis.
func (s *Store) load() error {
	m, ok, err := readMeta(s.db)
	if err != nil {
		return err
	}
	if !ok {
		return s.genesis()
	}
	s.now.Store(&m)
	if err := s.loadSessions(); err != nil {
		return err
	}
	if err := s.loadWindows(); err != nil {
		return err
	}
	return s.loadSegments()
}

// genesis makes the state that every ensemble starts from. If it is lost in a crash
// it is made again.
func (s *Store) genesis() error {
	empty, err := isEmpty(s.db)
	if err != nil {
		return err
	}
	if !empty {
		return &CorruptError{Key: "meta", What: "the record is missing, but others are there"}
	}
	s.now.Store(&meta{})
	b := s.begin(0)
	delta := znode.Genesis()
	b.merge(&delta)
	return b.Commit()
}

func isEmpty(db *pebble.DB) (bool, error) {
	it, err := db.NewIter(nil)
	if err != nil {
		return false, fmt.Errorf("store: %w", err)
	}
	found := it.First()
	return !found, it.Close()
}

func (s *Store) loadSessions() error {
	return scan(s.db, tableBounds(tableSession), func(key, value []byte) error {
		one, err := decodeSession(key, value)
		if err == nil {
			s.sessions[one.ID] = one
		}
		return err
	})
}

func (s *Store) loadSegments() error {
	return scan(s.db, tableBounds(tableSegment), func(key, value []byte) error {
		one, err := decodeSegment(key, value)
		s.segments = append(s.segments, one)
		return err
	})
}

// Close flushes and closes. No method may be called afterwards, and no range over a
// History may be going on, nor a Source be open.
func (s *Store) Close() error {
	if s.closed {
		return nil
	}
	s.known.close()
	flushErr := s.health.flush(s.db)
	if err := errors.Join(flushErr, s.db.Close()); err != nil {
		return fmt.Errorf("store: close: %w", err)
	}
	return nil
}

// Applied is the index of the last log entry whose effects are visible.
func (s *Store) Applied() uint64 { return s.now.Load().applied }

// LastZxid is the zxid of the newest change, 0 if there was none.
func (s *Store) LastZxid() int64 { return s.now.Load().zxid }

// LastTimeMs is the largest time stamped so far, in milliseconds since 1970.
func (s *Store) LastTimeMs() int64 { return s.now.Load().timeMs }

// Digest is a hash of the replicated state: equal on all members at equal Applied.
// It is the sum of the hashes of all records of znodes, sessions, windows and
// results. It detects accidents, not forgery.
func (s *Store) Digest() uint64 { return s.now.Load().digest }

// Counts of the whole state, kept up to date by Commit.
type Counts struct {
	Znodes, Ephemerals, Sessions, DataBytes int64
	HistoryFirst                            int64 // changes after this zxid are all in the history
	HistoryCount, HistoryBytes              int64
	Results                                 int64 // kept for native sessions
}

// Counts returns the counts as of the last Commit.
func (s *Store) Counts() Counts { return s.now.Load().counts }

// Durable is the index of the last entry whose effects would survive a power cut
// now, 0 if that cannot be told.
func (s *Store) Durable() uint64 {
	s.use.RLock()
	defer s.use.RUnlock()
	index, err := s.durable()
	if err != nil {
		s.o.Log.Error("cannot tell what is durable", "err", err)
		return 0
	}
	return index
}

func (s *Store) durable() (uint64, error) {
	if s.closed {
		return 0, s.health.err()
	}
	it, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: metaKey, UpperBound: []byte{tableMeta + 1}, OnlyReadGuaranteedDurable: true,
	})
	if err != nil {
		return 0, fmt.Errorf("store: %w", err)
	}
	var m meta
	if it.First() {
		m, err = decodeMeta(it.Value())
	}
	return m.applied, errors.Join(err, it.Close())
}

// Flush makes everything committed before the call durable and returns Durable. It
// may run beside Commit.
func (s *Store) Flush() (uint64, error) {
	s.use.RLock()
	defer s.use.RUnlock()
	if err := s.health.flush(s.db); err != nil {
		return 0, err
	}
	return s.durable()
}

// readMeta returns the meta record, false if there is none.
func readMeta(r pebble.Reader) (meta, bool, error) {
	value, closer, err := r.Get(metaKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return meta{}, false, nil
	}
	if err != nil {
		return meta{}, false, fmt.Errorf("store: read meta: %w", err)
	}
	m, err := decodeMeta(value)
	return m, true, errors.Join(err, closer.Close())
}

// errStop ends a scan early without an error.
var errStop = errors.New("stop")

// scan calls each with the records in b in order until it returns an error. Keys and
// values are only valid during the call.
func scan(r pebble.Reader, b bounds, each func(key, value []byte) error) error {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: b.lower, UpperBound: b.upper})
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for valid := it.First(); valid; valid = it.Next() {
		value, err := it.ValueAndErr()
		if err == nil {
			err = each(it.Key(), value)
		}
		if err != nil {
			if err == errStop {
				err = nil
			}
			return errors.Join(err, it.Close())
		}
	}
	if err := it.Close(); err != nil {
		return fmt.Errorf("store: read from %s: %w", formatKey(b.lower), err)
	}
	return nil
}
