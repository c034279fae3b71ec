package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Bounds of what is kept for one session. A client's own window is far smaller; one
// that never acknowledges finds its next write refused with Outcome.Gap until it
// does. They are part of the transition function: all members must have the same.
const (
	ResultsMax      = 8192
	ResultsBytesMax = 8 << 20
)

// window is what makes the writes of one native session exactly-once: the last seq
// applied, and the results of those not acknowledged. It belongs to the writer.
type window struct {
	id          session.ID
	last, acked int64
	kept        []keptResult // of the seqs acked+1 to last
	keptBytes   int64
	// stored are the records of results in Pebble, ascending. A record goes when
	// all of its results are acknowledged.
	stored []seqRange
	hash   uint64 // of the committed window record, 0 if there is none

	// Of the batch going on.
	touched      bool
	closed       bool
	pending      []byte // the record of the results of this batch
	pendingFirst int64  // 0 = none
}

type keptResult struct {
	hash  uint64
	bytes int64
}

type seqRange struct{ first, last int64 }

// admit decides about a write's Seq. It returns the window in which the result is
// to be kept (nil if it is not) or, if the write is not to be applied, what to say.
func (b *Batch) admit(t *znode.Txn) (*window, *Outcome) {
	if s := b.view.Session(t.Session); t.Seq <= 0 || s == nil || !s.OwnedBy(t.Owner) {
		return nil, nil // znode.Apply refuses a session that is over or another connection's
	}
	w := b.s.windows[t.Session]
	if w == nil {
		w = &window{id: t.Session}
	}
	if t.Seq > w.last+1 {
		return nil, &Outcome{Gap: true}
	}
	b.acknowledge(w, t.Acked)
	switch {
	case t.Seq <= w.acked:
		return nil, &Outcome{Result: b.refusal(znode.BadArguments)}
	case t.Seq <= w.last:
		result, err := b.keptResult(w, t.Seq)
		if err != nil {
			b.err = errors.Join(b.err, err)
			return nil, &Outcome{Result: b.refusal(znode.SystemError)}
		}
		return nil, &Outcome{Result: result}
	case len(w.kept) >= ResultsMax || w.keptBytes >= ResultsBytesMax:
		return nil, &Outcome{Gap: true}
	}
	return w, nil
}

// touchWindow makes Commit write w.
func (b *Batch) touchWindow(w *window) {
	if !w.touched {
		w.touched = true
		b.windows = append(b.windows, w)
		b.s.windows[w.id] = w
	}
}

// acknowledge forgets the results up to acked, but none that are not there yet.
func (b *Batch) acknowledge(w *window, acked int64) {
	n := min(acked, w.last) - w.acked
	if n <= 0 {
		return
	}
	for _, k := range w.kept[:n] {
		b.meta.digest -= k.hash
		w.keptBytes -= k.bytes
	}
	b.meta.counts.Results -= n
	w.kept = slices.Delete(w.kept, 0, int(n))
	w.acked += n
	b.touchWindow(w)
}

// keep stores the result of the write seq, which is the window's next, unless that
// write closed its own session.
func (b *Batch) keep(w *window, seq int64, r *znode.Result) {
	if b.view.Session(w.id) == nil {
		return
	}
	b.touchWindow(w)
	b.buf = appendResultKey(b.buf[:0], w.id, seq)
	n := len(b.buf)
	b.buf = wire.AppendResult(b.buf, r)
	k := keptResult{hash: xxhash.Sum64(b.buf), bytes: int64(len(b.buf) - n)}
	if w.pendingFirst == 0 {
		w.pendingFirst = seq
		w.pending = append(b.spareBuffer(), recordVersion)
	}
	w.pending = appendResult(w.pending, b.buf[n:])
	w.kept = append(w.kept, k)
	w.keptBytes += k.bytes
	w.last = seq
	b.meta.digest += k.hash
	b.meta.counts.Results++
}

// keptResult returns the result of seq, which is between acked and last.
func (b *Batch) keptResult(w *window, seq int64) (znode.Result, error) {
	key := appendResultKey(nil, w.id, w.pendingFirst)
	if w.pendingFirst != 0 && seq >= w.pendingFirst {
		return resultAt(key, w.pending, seq)
	}
	i := slices.IndexFunc(w.stored, func(r seqRange) bool { return seq <= r.last })
	if i < 0 || seq < w.stored[i].first {
		return znode.Result{}, &CorruptError{Key: formatKey(appendResultKey(nil, w.id, seq)), What: "no record has the result"}
	}
	key = appendResultKey(nil, w.id, w.stored[i].first)
	value, closer, err := b.s.db.Get(key)
	if err != nil {
		return znode.Result{}, fmt.Errorf("store: read %s: %w", formatKey(key), err)
	}
	result, err := resultAt(key, value, seq)
	return result, errors.Join(err, closer.Close())
}

// resultAt returns the result of seq in a record.
func resultAt(key, value []byte, seq int64) (result znode.Result, err error) {
	at, found := int64(binary.BigEndian.Uint64(key[9:])), false
	walkErr := eachResult(key, value, func(b []byte) {
		if at == seq {
			found = true
			result, err = wire.DecodeResult(b)
		}
		at++
	})
	if walkErr == nil && (err != nil || !found) {
		walkErr = &CorruptError{Key: formatKey(key), What: fmt.Sprintf("no result of seq %d: %v", seq, err)}
	}
	return result, walkErr
}

// closeWindow forgets everything of a closed session.
func (b *Batch) closeWindow(id session.ID) {
	w := b.s.windows[id]
	if w == nil {
		return
	}
	b.acknowledge(w, w.last)
	b.touchWindow(w)
	w.closed = true
}

// writeWindows puts the windows that changed into the Pebble batch.
func (b *Batch) writeWindows() error {
	for _, w := range b.windows {
		if err := b.writeResults(w); err != nil {
			return err
		}
		b.meta.digest -= w.hash
		b.buf = appendResultKey(b.buf[:0], w.id, 0)
		n := len(b.buf)
		if w.closed {
			if w.hash == 0 {
				continue // it never was there
			}
			if err := b.pebble.Delete(b.buf, nil); err != nil {
				return err
			}
			continue
		}
		b.buf = appendWindow(b.buf, w.last, w.acked)
		w.hash = xxhash.Sum64(b.buf)
		b.meta.digest += w.hash
		if err := b.pebble.Set(b.buf[:n], b.buf[n:], nil); err != nil {
			return err
		}
	}
	return nil
}

// writeResults deletes records whose results are all acknowledged and adds that of
// this batch.
func (b *Batch) writeResults(w *window) error {
	gone := 0
	for gone < len(w.stored) && w.stored[gone].last <= w.acked {
		// A result record is set once and deleted once, so its tombstone may end
		// where it meets it.
		b.buf = appendResultKey(b.buf[:0], w.id, w.stored[gone].first)
		if err := b.pebble.SingleDelete(b.buf, nil); err != nil {
			return err
		}
		gone++
	}
	w.stored = slices.Delete(w.stored, 0, gone)
	if w.pendingFirst == 0 || w.acked >= w.last {
		return nil
	}
	w.stored = append(w.stored, seqRange{w.pendingFirst, w.last})
	b.buf = appendResultKey(b.buf[:0], w.id, w.pendingFirst)
	return b.pebble.Set(b.buf, w.pending, nil)
}

// settleWindows ends the batch in the windows.
func (b *Batch) settleWindows() {
	for _, w := range b.windows {
		if w.pending != nil && len(b.spare) < spareBuffers {
			b.spare = append(b.spare, recycle(w.pending))
		}
		w.touched, w.pendingFirst, w.pending = false, 0, nil
		if w.closed {
			delete(b.s.windows, w.id)
		}
	}
}

// spareBuffers bounds the memory kept for the results of the next batches: that of as
// many sessions.
const spareBuffers = 128

// spareBuffer returns an empty buffer, with memory of an earlier batch if there is some.
func (b *Batch) spareBuffer() []byte {
	if len(b.spare) == 0 {
		return nil
	}
	last := len(b.spare) - 1
	buf := b.spare[last]
	b.spare = b.spare[:last]
	return buf[:0]
}

// loadWindows reads all windows and results.
func (s *Store) loadWindows() error {
	r := windowReader{each: func(w *window) error {
		s.windows[w.id] = w
		return nil
	}}
	if err := scan(s.db, tableBounds(tableResult), r.add); err != nil {
		return err
	}
	return r.end()
}

// windowReader puts windows together from the records of table r in key order.
type windowReader struct {
	each func(*window) error
	w    *window
}

func (r *windowReader) add(key, value []byte) error {
	id, rest, ok := idOfKey(key)
	if !ok || len(rest) != 8 {
		return &CorruptError{Key: formatKey(key), What: "the key has no session and seq"}
	}
	if first := int64(binary.BigEndian.Uint64(rest)); first != 0 {
		if r.w == nil || r.w.id != session.ID(id) {
			return &CorruptError{Key: formatKey(key), What: "the session has no window"}
		}
		return r.w.load(key, value, first)
	}
	if err := r.end(); err != nil {
		return err
	}
	last, acked, err := decodeWindow(key, value)
	if err != nil {
		return err
	}
	r.w = &window{id: session.ID(id), last: last, acked: acked, hash: hashRecord(key, value)}
	return nil
}

// end finishes the window being read: it must have all results it should have.
func (r *windowReader) end() error {
	w := r.w
	if w == nil {
		return nil
	}
	r.w = nil
	if int64(len(w.kept)) != w.last-w.acked {
		return &CorruptError{Key: formatKey(appendResultKey(nil, w.id, 0)),
			What: fmt.Sprintf("%d results are kept, %d are not acknowledged", len(w.kept), w.last-w.acked)}
	}
	return r.each(w)
}

// load adds the record of results that begins with seq first.
func (w *window) load(key, value []byte, first int64) error {
	seq := first
	var decodeErr error
	err := eachResult(key, value, func(b []byte) {
		if seq > w.acked {
			if seq != w.acked+1+int64(len(w.kept)) || seq > w.last {
				decodeErr = fmt.Errorf("seq %d is not the next", seq)
			} else if _, err := wire.DecodeResult(b); err != nil {
				decodeErr = err
			}
			hash := hashRecord(appendResultKey(nil, w.id, seq), b)
			w.kept = append(w.kept, keptResult{hash: hash, bytes: int64(len(b))})
			w.keptBytes += int64(len(b))
		}
		seq++
	})
	if err == nil && decodeErr != nil {
		err = &CorruptError{Key: formatKey(key), What: decodeErr.Error()}
	}
	w.stored = append(w.stored, seqRange{first, seq - 1})
	return err
}

// hashRecord is one summand of the digest.
func hashRecord(key, value []byte) uint64 {
	var d xxhash.Digest
	d.Reset()
	d.Write(key)
	d.Write(value)
	return d.Sum64()
}
