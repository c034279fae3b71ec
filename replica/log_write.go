package replica

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// written is what a write cost.
type written struct {
	synced bool
	bytes  int
}

// write carries out what the messages for the append thread ask for, in one batch.
// It syncs only if entries, term or vote changed: a commit index alone is only kept in
// memory and rides in the next batch, or in the one that settle writes.
func (l *log) write(msgs []*raftpb.Message) (written, error) {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	h := l.wmu.head
	w := written{synced: mustSync(h, msgs)}
	for _, m := range msgs {
		if s := m.GetSnapshot(); !raft.IsEmptySnap(s) {
			h.Last = s.GetMetadata().GetIndex()
			h.Commit = max(h.Commit, h.Last)
		}
		if m.Term != nil { // the message carries a hard state
			l.wmu.pending = l.wmu.pending || m.GetCommit() > h.Commit
			h.Term, h.Vote, h.Commit = m.GetTerm(), m.GetVote(), max(h.Commit, m.GetCommit())
		}
		if n := len(m.GetEntries()); n > 0 {
			h.Last = m.GetEntries()[n-1].GetIndex()
		}
	}
	if !w.synced {
		l.wmu.head = h
		return w, nil
	}
	b := l.db.NewBatch()
	h.Seq++
	if err := l.setHead(b, h); err != nil {
		return w, err
	}
	last := l.lastIndex()
	for _, m := range msgs {
		err := l.setSnapshot(b, m.GetSnapshot(), &last)
		if err == nil {
			err = l.setEntries(b, m.GetEntries(), &last)
		}
		if err != nil {
			return w, err
		}
	}
	w.bytes = b.Len()
	if err := l.commit(b, pebble.Sync); err != nil {
		return w, fmt.Errorf("replica: writing entries up to %d: %w", h.Last, err)
	}
	h.Synced = h.Seq
	l.wmu.head, l.wmu.pending = h, false
	return w, l.remember(msgs)
}

// mustSync reports whether msgs change more than the commit index of h.
func mustSync(h head, msgs []*raftpb.Message) bool {
	for _, m := range msgs {
		changed := m.Term != nil && (m.GetTerm() != h.Term || m.GetVote() != h.Vote)
		if changed || len(m.GetEntries()) > 0 || !raft.IsEmptySnap(m.GetSnapshot()) {
			return true
		}
	}
	return false
}

// needsSync reports whether writing msgs would need a sync.
func (l *log) needsSync(msgs []*raftpb.Message) bool {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	return mustSync(l.wmu.head, msgs)
}

func (l *log) setHead(b *pebble.Batch, h head) error {
	l.wmu.rec = appendHead(l.wmu.rec[:0], h)
	return b.Set(headKey, l.wmu.rec, nil)
}

// setEntries puts entries into b; those that they replace, up to *last, are deleted.
func (l *log) setEntries(b *pebble.Batch, entries []*raftpb.Entry, last *uint64) error {
	if len(entries) == 0 {
		return nil
	}
	if from := entries[0].GetIndex(); from <= *last {
		err := b.DeleteRange(appendEntryKey(nil, from), appendEntryKey(nil, *last+1), nil)
		if err != nil {
			return err
		}
	}
	for _, e := range entries {
		l.wmu.key = appendEntryKey(l.wmu.key[:0], e.GetIndex())
		op := b.SetDeferred(len(l.wmu.key), entryRecordLen(e))
		copy(op.Key, l.wmu.key)
		putEntry(op.Value, l.wmu.key, e)
		if err := op.Finish(); err != nil {
			return err
		}
		*last = e.GetIndex()
	}
	return nil
}

// setSnapshot lets the log begin behind a snapshot, if there is one: nothing from before is
// kept.
func (l *log) setSnapshot(b *pebble.Batch, s *raftpb.Snapshot, last *uint64) error {
	if raft.IsEmptySnap(s) {
		return nil
	}
	c, err := snapshotConf(s)
	if err != nil {
		return err
	}
	*last = s.GetMetadata().GetIndex()
	return errors.Join(
		setConf(b, c),
		b.Set(truncKey, encodePair(truncKey, *last, s.GetMetadata().GetTerm()), nil),
		b.DeleteRange(appendEntryKey(nil, 0), entryUpperBound(1<<64-1), nil),
	)
}

// remember makes what was written visible to the methods of raft.Storage.
func (l *log) remember(msgs []*raftpb.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range msgs {
		if s := m.GetSnapshot(); !raft.IsEmptySnap(s) {
			c, err := snapshotConf(s)
			if err != nil {
				return err
			}
			l.mu.truncIndex, l.mu.truncTerm = s.GetMetadata().GetIndex(), s.GetMetadata().GetTerm()
			l.mu.last, l.mu.conf, l.mu.bytes = l.mu.truncIndex, c, 0
			l.mu.tail.reset(0)
		}
		entries := m.GetEntries()
		if len(entries) == 0 {
			continue
		}
		l.mu.tail.append(entries)
		l.mu.last = entries[len(entries)-1].GetIndex()
		for _, e := range entries {
			l.mu.bytes += int64(cost(e))
			l.mu.appended += int64(cost(e))
		}
	}
	return nil
}

// settle writes and syncs a commit index that waits for the next batch, if there is
// one. The member calls it when it is idle: the batch proves that the one before it
// had been synced, see wal.go.
func (l *log) settle() error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if !l.wmu.pending {
		return nil
	}
	b := l.db.NewBatch()
	h := l.wmu.head
	h.Seq++
	err := l.setHead(b, h)
	if err == nil {
		err = l.commit(b, pebble.Sync)
	}
	if err != nil {
		return fmt.Errorf("replica: writing the commit index %d: %w", h.Commit, err)
	}
	h.Synced = h.Seq
	l.wmu.head, l.wmu.pending = h, false
	return nil
}

// unsettled reports whether settle has something to do.
func (l *log) unsettled() bool {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	return l.wmu.pending
}

// setConf keeps the configuration as of an applied entry. It is not synced: should it
// be lost, the entry is still in the log, because truncate writes it again.
func (l *log) setConf(c conf) error {
	l.mu.Lock()
	l.mu.conf = c
	l.mu.Unlock()
	return l.meta(c.index, pebble.NoSync, func(b *pebble.Batch) error { return setConf(b, c) })
}

func setConf(b *pebble.Batch, c conf) error {
	rec, err := encodeConf(c)
	if err != nil {
		return err
	}
	return b.Set(confKey, rec, nil)
}

// meta writes a batch that appends no entry. The caller knows that the entries up to
// commit are committed, whether or not a message that says so was written.
func (l *log) meta(commit uint64, o *pebble.WriteOptions, fill func(*pebble.Batch) error) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	b := l.db.NewBatch()
	h := l.wmu.head
	h.Seq++
	h.Commit = max(h.Commit, commit)
	if err := errors.Join(l.setHead(b, h), fill(b)); err != nil {
		return err
	}
	if err := l.commit(b, o); err != nil {
		return fmt.Errorf("replica: writing to the log: %w", err)
	}
	if o.Sync {
		h.Synced = h.Seq
	}
	l.wmu.head = h
	return nil
}

// truncate drops the entries up to and including index, but always keeps keepBytes of
// the newest, and what lag says, of which lagBytes is the bound. The caller knows that the
// state machine has all of them on disk, and that no snapshot is written meanwhile.
func (l *log) truncate(index uint64, keepBytes, lagBytes int64) error {
	l.mu.Lock()
	first, c := l.mu.truncIndex+1, l.mu.conf
	index = l.mu.lag.limit(min(index, l.keepFrom(keepBytes)-1), l.excess(lagBytes))
	l.mu.Unlock()
	if index < first {
		return nil
	}
	term, err := l.Term(index)
	if err != nil {
		return err
	}
	err = l.meta(index, pebble.NoSync, func(b *pebble.Batch) error {
		return errors.Join(
			setConf(b, c),
			b.Set(truncKey, encodePair(truncKey, index, term), nil),
			b.DeleteRange(appendEntryKey(nil, 0), appendEntryKey(nil, index+1), nil),
		)
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	kept, all := l.mu.last-index, l.mu.last-l.mu.truncIndex
	l.mu.truncIndex, l.mu.truncTerm = index, term
	l.mu.tail.truncate(index)
	if l.mu.tail.first() == index+1 || kept == 0 {
		l.mu.bytes = int64(l.mu.tail.bytes)
	} else {
		l.mu.bytes = int64(float64(l.mu.bytes) * float64(kept) / float64(all))
	}
	return nil
}

// keepFrom returns the index of the oldest entry among the newest that have bytes
// bytes together. What is not in memory is older than what is kept. The caller holds mu.
func (l *log) keepFrom(bytes int64) uint64 {
	t := &l.mu.tail
	from := l.mu.last + 1
	for i := len(t.entries) - 1; i >= 0 && bytes > 0; i-- {
		bytes -= int64(cost(t.entries[i]))
		from = t.entries[i].GetIndex()
	}
	return from
}
