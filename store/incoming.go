package store

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// builder makes a new database in dir from a snapshot.
type builder struct {
	dir   string
	o     *Options
	disk  *health
	db    *pebble.DB
	batch *pebble.Batch
	in    snapshotReader
}

// buildBatchBytes is how much a builder gives to Pebble at a time.
const buildBatchBytes = 1 << 20

// newBuilder begins in dir, of which it removes what is there.
func newBuilder(dir string, o *Options) (*builder, error) {
	if err := o.FS.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("store: remove what an earlier attempt left: %w", err)
	}
	b := &builder{dir: dir, o: o, disk: newHealth(), in: snapshotReader{audit: newAudit()}}
	options := pebbleOptions(o, b.disk)
	options.ErrorIfExists = true
	db, err := pebble.Open(dir, options)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	b.db, b.batch = db, db.NewBatch()
	return b, nil
}

// read takes the snapshot in r, or what is still missing of it.
func (b *builder) read(r io.Reader) error {
	return b.in.run(r, func(key, value []byte) error {
		if err := errors.Join(b.batch.Set(key, value, nil), b.disk.err()); err != nil || b.batch.Len() < buildBatchBytes {
			return err
		}
		full := b.batch
		b.batch = b.db.NewBatch()
		return errors.Join(b.db.Apply(full, pebble.NoSync), full.Close())
	})
}

// finish makes what was read the state as of m, durably. The database has no meta record
// before, so that it is taken for a state only if it is whole.
func (b *builder) finish(m meta) error {
	m.counts.HistoryFirst, m.counts.HistoryCount, m.counts.HistoryBytes = m.zxid, 0, 0
	m.open, m.openedMs = segment{}, 0
	if err := b.batch.Set(metaKey, appendMeta(nil, &m), nil); err != nil {
		return err
	}
	if err := b.db.Apply(b.batch, pebble.NoSync); err != nil {
		return err
	}
	return errors.Join(b.disk.flush(b.db), b.close())
}

// close lets go of the database. Further calls do nothing.
func (b *builder) close() error {
	if b.db == nil {
		return nil
	}
	err := errors.Join(b.batch.Close(), b.db.Close())
	b.db = nil
	return err
}

// discard removes it all.
func (b *builder) discard() error { return errors.Join(b.close(), b.o.FS.RemoveAll(b.dir)) }

// move gives the directory from the name to, which does not exist, durably.
func move(on vfs.FS, from, to string) error {
	if err := on.Rename(from, to); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := syncDir(on, on.PathDir(to)); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// Beside the directory of a state there may be:
const (
	partSuffix     = ".receiving" // one that is being received
	incomingSuffix = ".incoming"  // one that was received: whole, checked and durable
	replacedSuffix = ".replaced"  // one that another has taken the place of
)

// ReceivedDir is where the state in dir has a received one beside it that waits to be adopted.
func ReceivedDir(dir string) string { return dir + incomingSuffix }

// Incoming is a state that is being received from another member: it is built beside the
// present one, which it may replace once it is complete. It belongs to one goroutine.
type Incoming struct {
	s       *Store
	applied uint64
	b       *builder
	done    bool
}

// Incoming begins to receive the state as of log entry applied. What was received before is
// removed: there must be no other Incoming in use.
func (s *Store) Incoming(applied uint64) (*Incoming, error) {
	if err := s.DropReceived(); err != nil {
		return nil, fmt.Errorf("store: remove an earlier received state: %w", err)
	}
	b, err := newBuilder(s.dir+partSuffix, &s.o)
	if err != nil {
		return nil, err
	}
	return &Incoming{s: s, applied: applied, b: b}, nil
}

// Position tells the sender where to go on, for Source.Write; nil: from the beginning.
func (i *Incoming) Position() []byte {
	if i.b == nil || i.b.in.spoiled {
		return nil
	}
	return i.b.in.position()
}

// Receive reads the snapshot in r from Position to its end. Without an error the state is
// complete: checked, as VerifySnapshot does, and durable. After one, what was read and
// is sound is kept, and Receive may be called again with what Position asks for.
func (i *Incoming) Receive(r io.Reader) (SnapshotInfo, error) {
	if i.done {
		return SnapshotInfo{}, errors.New("store: the state was received already")
	}
	if i.b == nil || i.b.in.spoiled {
		if err := i.again(); err != nil {
			return SnapshotInfo{}, err
		}
	}
	if err := i.b.read(r); err != nil {
		return SnapshotInfo{}, err
	}
	info, m := i.b.in.info, i.b.in.meta
	if info.Applied != i.applied {
		i.b.in.spoiled = true
		return SnapshotInfo{}, fmt.Errorf("%w: it ends with entry %d, not %d", ErrSnapshot, info.Applied, i.applied)
	}
	err := i.b.finish(m)
	if err == nil {
		err = move(i.s.o.FS, i.s.dir+partSuffix, i.s.dir+incomingSuffix)
	}
	if err != nil {
		i.b.in.spoiled = true
		return SnapshotInfo{}, err
	}
	i.done = true
	return info, nil
}

// again begins anew.
func (i *Incoming) again() (err error) {
	if i.b != nil {
		err = i.b.close()
		i.b = nil
	}
	if err == nil {
		i.b, err = newBuilder(i.s.dir+partSuffix, &i.s.o)
	}
	return err
}

// Discard removes what was received, complete or not, unless it was adopted.
func (i *Incoming) Discard() error {
	var err error
	if i.b != nil {
		err = i.b.discard()
	}
	return errors.Join(err, i.s.DropReceived())
}
