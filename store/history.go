package store

import (
	"errors"
	"fmt"
	"iter"

	"github.com/tenure-dev/tenure/znode"
)

// historySegments is into how many segments each bound of the history is divided:
// trimming drops a whole one, so between 63/64 and all of the bound is kept.
const historySegments = 64

// ErrTrimmed is yielded by a range over History if what it was to yield has been
// trimmed since History was called.
var ErrTrimmed = errors.New("store: the history was trimmed meanwhile")

// HistoryEntry is the changes of one transaction.
type HistoryEntry struct {
	Zxid    int64
	Changes []znode.Change
}

// History yields the changes with a zxid above from and up to LastZxid at the time
// of the call, in order. complete is false if the history no longer reaches back to
// from; it then yields what is left. The range may run beside Commit; an error, also
// ErrTrimmed, ends it.
func (s *Store) History(from int64) (changes iter.Seq2[HistoryEntry, error], complete bool) {
	m := s.now.Load()
	floor := max(from, m.counts.HistoryFirst)
	return func(yield func(HistoryEntry, error) bool) {
		over := false
		err := s.eachHistory(floor, m.zxid, func(e HistoryEntry) bool {
			over = !yield(e, nil)
			return !over
		})
		if err != nil && !over {
			yield(HistoryEntry{}, err)
		}
	}, from >= m.counts.HistoryFirst
}

// historyPiece is how many bytes of history are read at a time.
const historyPiece = 256 << 10

// eachHistory calls yield with the changes in (from, to] until it returns false. Nothing is
// locked meanwhile.
func (s *Store) eachHistory(from, to int64, yield func(HistoryEntry) bool) error {
	var piece []HistoryEntry
	for from < to {
		var err error
		if piece, err = s.historyPiece(piece[:0], from, to); err != nil {
			return err
		}
		for _, e := range piece {
			if !yield(e) {
				return nil
			}
		}
		if len(piece) == 0 {
			return nil
		}
		from = piece[len(piece)-1].Zxid
	}
	return nil
}

// historyPiece appends the next changes in (from, to], none if there are no more.
func (s *Store) historyPiece(piece []HistoryEntry, from, to int64) ([]HistoryEntry, error) {
	s.use.RLock()
	defer s.use.RUnlock()
	if s.closed {
		return nil, s.health.err()
	}
	snap := s.db.NewSnapshot()
	m, _, err := readMeta(snap)
	if err == nil && m.counts.HistoryFirst > from {
		err = ErrTrimmed
	}
	if err == nil {
		size := 0
		// A record is found by its last zxid, so the first one may begin before from.
		b := bounds{appendID(nil, tableHistory, from+1), []byte{tableHistory + 1}}
		err = scan(snap, b, func(key, value []byte) error {
			over := false
			err := decodeHistory(key, value, func(e HistoryEntry) bool {
				if over = e.Zxid > to; !over && e.Zxid > from {
					piece = append(piece, e)
				}
				return !over
			})
			if size += len(value); err == nil && (over || size >= historyPiece) {
				err = errStop
			}
			return err
		})
	}
	return piece, errors.Join(err, snap.Close())
}

// writeHistory writes the batch's changes and trims what exceeds the bounds.
func (b *Batch) writeHistory() error {
	if b.historyCount > 0 {
		if err := b.closeSegment(); err != nil {
			return err
		}
		b.buf = appendID(b.buf[:0], tableHistory, b.historyLast)
		if err := b.pebble.Set(b.buf, b.history, nil); err != nil {
			return err
		}
		size := int64(len(b.buf) + len(b.history))
		open, c := &b.meta.open, &b.meta.counts
		if open.count == 0 {
			b.meta.openedMs = b.meta.timeMs
		}
		*open = segment{b.historyLast, open.count + b.historyCount, open.bytes + size, b.meta.timeMs}
		c.HistoryCount += b.historyCount
		c.HistoryBytes += size
	}
	return b.trimHistory()
}

// closeSegment closes the open segment if it is long enough.
func (b *Batch) closeSegment() error {
	o, open := &b.s.o, &b.meta.open
	if open.count == 0 || open.count < o.HistoryCount/historySegments &&
		open.bytes < o.HistoryBytes/historySegments &&
		b.meta.timeMs-b.meta.openedMs < o.HistoryAge.Milliseconds()/historySegments {
		return nil
	}
	b.buf = appendID(b.buf[:0], tableSegment, open.last)
	n := len(b.buf)
	b.buf = appendSegment(b.buf, open)
	b.s.segments = append(b.s.segments, *open)
	*open = segment{}
	return b.pebble.Set(b.buf[:n], b.buf[n:], nil)
}

// trimHistory drops the oldest segments until the bounds hold.
func (b *Batch) trimHistory() error {
	o, c := &b.s.o, &b.meta.counts
	n, before := 0, c.HistoryFirst
	for _, one := range b.s.segments {
		if c.HistoryCount <= o.HistoryCount && c.HistoryBytes <= o.HistoryBytes &&
			b.meta.timeMs-one.lastMs <= o.HistoryAge.Milliseconds() {
			break
		}
		c.HistoryCount -= one.count
		c.HistoryBytes -= one.bytes
		c.HistoryFirst = one.last
		n++
	}
	if n == 0 {
		return nil
	}
	b.s.segments = append(b.s.segments[:0], b.s.segments[n:]...)
	for _, table := range []byte{tableHistory, tableSegment} {
		// From the old floor on: tombstones that do not overlap are cheap.
		begin, end := appendID(nil, table, before), appendID(nil, table, c.HistoryFirst+1)
		if err := b.pebble.DeleteRange(begin, end, nil); err != nil {
			return fmt.Errorf("trim the history: %w", err)
		}
	}
	return nil
}
