package replica

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

var _ raft.Storage = (*log)(nil)

// InitialState implements raft.Storage. An entry that was applied had been committed,
// whether or not the commit index was written since.
func (l *log) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	l.mu.Lock()
	c := l.mu.conf
	l.mu.Unlock()
	l.wmu.Lock()
	h := l.wmu.head
	l.wmu.Unlock()
	hs := &raftpb.HardState{Term: new(h.Term), Vote: new(h.Vote), Commit: new(max(h.Commit, l.applied))}
	return hs, c.state, nil
}

// Entries implements raft.Storage.
func (l *log) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lo <= l.mu.truncIndex {
		return nil, raft.ErrCompacted
	}
	if hi > l.mu.last+1 {
		return nil, raft.ErrUnavailable
	}
	var out []*raftpb.Entry
	size := uint64(0)
	// add reports whether there is room for more.
	add := func(e *raftpb.Entry) bool {
		size += uint64(len(e.Data)) + entryOverhead
		if len(out) > 0 && size > maxSize {
			return false
		}
		out = append(out, e)
		return true
	}
	for i := lo; i < hi; i++ {
		if e := l.mu.tail.at(i); e != nil {
			if !add(e) {
				break
			}
			continue
		}
		old, err := l.read(i)
		if err != nil {
			return nil, err
		}
		if !add(old) {
			break
		}
	}
	return out, nil
}

// read reads one entry from the disk. The caller holds mu.
func (l *log) read(index uint64) (*raftpb.Entry, error) {
	var e *raftpb.Entry
	key := appendEntryKey(nil, index)
	err := l.get(key, func(v []byte) (err error) { e, err = decodeEntry(key, v); return err })
	if err != nil {
		err = fmt.Errorf("entry %d: %w", index, err)
		if l.mu.err == nil {
			l.mu.err = err
		}
		return nil, err
	}
	return e, nil
}

// Term implements raft.Storage.
func (l *log) Term(index uint64) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case index == l.mu.truncIndex:
		return l.mu.truncTerm, nil
	case index < l.mu.truncIndex:
		return 0, raft.ErrCompacted
	case index > l.mu.last:
		return 0, raft.ErrUnavailable
	}
	if e := l.mu.tail.at(index); e != nil {
		return e.GetTerm(), nil
	}
	e, err := l.read(index)
	return e.GetTerm(), err
}

// FirstIndex implements raft.Storage.
func (l *log) FirstIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.truncIndex + 1, nil
}

// LastIndex implements raft.Storage.
func (l *log) LastIndex() (uint64, error) { return l.lastIndex(), nil }

func (l *log) lastIndex() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.last
}

// Snapshot implements raft.Storage. Raft asks for one when a follower needs entries
// that were truncated. The state is not part of the log, so what is returned is the
// place where the log begins: loop.sendSnapshot puts what it really sends in its place.
func (l *log) Snapshot() (*raftpb.Snapshot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &raftpb.Snapshot{Data: l.mu.conf.snapshotData(), Metadata: &raftpb.SnapshotMetadata{
		ConfState: l.mu.conf.state,
		Index:     new(l.mu.truncIndex),
		Term:      new(l.mu.truncTerm),
	}}, nil
}

// readFailure returns the error of the first read that failed.
func (l *log) readFailure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.err
}

// span is the extent of the log.
type span struct {
	first, last     uint64
	bytes, appended int64 // see log.mu
}

// fits returns why a state that ends with entry applied does not belong to the log.
func (s span) fits(applied uint64) error {
	switch {
	case applied > s.last:
		return fmt.Errorf("%w: the state ends with entry %d, the log with entry %d", ErrLogBehindState, applied, s.last)
	case applied < s.first-1 && s.first != 2: // entry 1 exists in no log: see bootstrap
		return fmt.Errorf("%w: the state ends with entry %d, the log begins with entry %d", ErrStateBehindLog, applied, s.first)
	}
	return nil
}

func (l *log) span() span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return span{l.mu.truncIndex + 1, l.mu.last, l.mu.bytes, l.mu.appended}
}
