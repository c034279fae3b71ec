package replica

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"
)

// load reads and verifies everything: identity, head, configuration, truncation, and
// every entry: no hole, terms that never go back, the end where the head says.
func (l *log) load(id uint64, readOnly bool) error {
	var c conf
	var format uint64
	err := errors.Join(
		l.get(identityKey, func(v []byte) (err error) { l.identity, format, err = decodeIdentity(v); return err }),
		l.get(headKey, func(v []byte) (err error) { l.wmu.head, err = decodeHead(v); return err }),
		l.get(confKey, func(v []byte) (err error) { c, err = decodeConf(v); return err }),
		l.get(truncKey, func(v []byte) (err error) {
			l.mu.truncIndex, l.mu.truncTerm, err = decodePair(truncKey, v)
			return err
		}),
	)
	switch {
	case err != nil:
		return err
	case l.member != id && id != anyMember:
		return fmt.Errorf("%w: it was written by member %d, not %d", ErrIdentity, l.member, id)
	}
	l.mu.conf = c
	if err := errors.Join(l.loadPeers(), l.loadEntries()); err != nil {
		return err
	}
	h := &l.wmu.head
	switch {
	case l.mu.last != h.Last:
		return fmt.Errorf("%w: the last entry is %d, the last write says %d", ErrCorrupt, l.mu.last, h.Last)
	case h.Commit > h.Last || h.Commit < l.mu.truncIndex:
		return fmt.Errorf("%w: committed is entry %d, the log holds %d to %d", ErrCorrupt, h.Commit, l.mu.truncIndex+1, h.Last)
	}
	if term, err := l.Term(l.mu.last); err != nil || term > h.Term {
		return errors.Join(err, fmt.Errorf("%w: the last entry has term %d, the hard state term %d", ErrCorrupt, term, h.Term))
	}
	// What could be read is on disk: Open flushed what it read from the write-ahead log.
	h.Synced = h.Seq
	if format < identityFormat && !readOnly {
		return l.upgradeIdentity()
	}
	return nil
}

// get reads one record that must exist.
func (l *log) get(key []byte, decode func([]byte) error) error {
	v, closer, err := l.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return fmt.Errorf("%w: record %q is missing", ErrCorrupt, key)
	}
	if err != nil {
		return l.readError(err)
	}
	return errors.Join(decode(v), closer.Close())
}

// loadEntries verifies all entries and keeps the newest in memory.
func (l *log) loadEntries() error {
	index, term := l.mu.truncIndex, l.mu.truncTerm
	var batch []*raftpb.Entry
	err := l.scan(0, 1<<64-1, func(e *raftpb.Entry) error {
		if e.GetIndex() <= l.mu.truncIndex || e.GetIndex() != index+1 {
			return fmt.Errorf("%w: entry %d follows entry %d", ErrCorrupt, e.GetIndex(), index)
		}
		if e.GetTerm() < term {
			return fmt.Errorf("%w: entry %d has term %d, the one before has %d", ErrCorrupt, e.GetIndex(), e.GetTerm(), term)
		}
		index, term = e.GetIndex(), e.GetTerm()
		l.mu.bytes += int64(cost(e))
		batch = append(batch[:0], e)
		l.mu.tail.append(batch)
		return nil
	})
	l.mu.last = index
	return err
}

// scan calls f with the entries in [lo, hi) that are in the database.
func (l *log) scan(lo, hi uint64, f func(*raftpb.Entry) error) error {
	it, err := l.db.NewIter(&pebble.IterOptions{
		LowerBound: appendEntryKey(nil, lo),
		UpperBound: entryUpperBound(hi),
	})
	if err != nil {
		return l.readError(err)
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var v []byte
		if v, err = it.ValueAndErr(); err == nil {
			var e *raftpb.Entry
			if e, err = decodeEntry(it.Key(), v); err == nil {
				err = f(e)
			}
		}
	}
	if errClose := it.Close(); err == nil {
		err = errClose
	}
	if err != nil {
		return l.readError(err)
	}
	return nil
}

func entryUpperBound(hi uint64) []byte {
	if hi == 1<<64-1 {
		return []byte{entryEnd}
	}
	return appendEntryKey(nil, hi)
}

// readError marks what Pebble calls corruption with this package's error.
func (l *log) readError(err error) error {
	if pebble.IsCorruptionError(err) && !errors.Is(err, ErrCorrupt) {
		return fmt.Errorf("%w: reading: %w", ErrCorrupt, err)
	}
	return fmt.Errorf("replica: reading the log: %w", err)
}

// confChanges returns the configuration changes among the entries in (after, upto]: a
// state machine that applied them may be ahead of the configuration on disk, which is
// not synced on its own.
func (l *log) confChanges(after, upto uint64) ([]*raftpb.Entry, error) {
	var changes []*raftpb.Entry
	err := l.scan(after+1, upto+1, func(e *raftpb.Entry) error {
		if isConfChange(e) {
			changes = append(changes, e)
		}
		return nil
	})
	return changes, err
}

func isConfChange(e *raftpb.Entry) bool {
	return e.GetType() == raftpb.EntryConfChange || e.GetType() == raftpb.EntryConfChangeV2
}
