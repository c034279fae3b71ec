package replica

import "go.etcd.io/raft/v3/raftpb"

// tail holds the newest entries of the log in memory, without a hole, so that
// replication and apply do not read the disk. The owner, log, guards it.
//
// Invariant: entries[i] has index entries[0].Index+i, and the last one is the last of
// the log, unless the log has no entry that is younger than a restart.
type tail struct {
	entries []*raftpb.Entry
	bytes   int // sum of cost
	max     int // bound of bytes; the newest entry stays whatever its size
}

// entryOverhead is what an entry costs in memory besides its data.
const entryOverhead = 96

func cost(e *raftpb.Entry) int { return len(e.Data) + entryOverhead }

// first returns the index of the oldest entry held, 0 if there is none.
func (t *tail) first() uint64 {
	if len(t.entries) == 0 {
		return 0
	}
	return t.entries[0].GetIndex()
}

// at returns the entry at index, nil if it is not held.
func (t *tail) at(index uint64) *raftpb.Entry {
	first := t.first()
	if first == 0 || index < first || index-first >= uint64(len(t.entries)) {
		return nil
	}
	return t.entries[index-first]
}

// append replaces everything from entries[0] on.
func (t *tail) append(entries []*raftpb.Entry) {
	if len(entries) == 0 {
		return
	}
	from := entries[0].GetIndex()
	switch first := t.first(); {
	case first == 0 || from < first || from-first > uint64(len(t.entries)):
		t.reset(0)
	default:
		t.reset(int(from - first))
	}
	t.entries = append(t.entries, entries...)
	for _, e := range entries {
		t.bytes += cost(e)
	}
	drop := 0
	for t.bytes > t.max && drop < len(t.entries)-1 {
		t.bytes -= cost(t.entries[drop])
		drop++
	}
	t.shift(drop)
}

// reset keeps the n oldest entries.
func (t *tail) reset(n int) {
	for _, e := range t.entries[n:] {
		t.bytes -= cost(e)
	}
	clear(t.entries[n:])
	t.entries = t.entries[:n]
}

// truncate drops the entries up to and including index.
func (t *tail) truncate(index uint64) {
	first := t.first()
	if first == 0 || index < first {
		return
	}
	drop := int(min(index-first+1, uint64(len(t.entries))))
	for _, e := range t.entries[:drop] {
		t.bytes -= cost(e)
	}
	t.shift(drop)
}

// shift drops the n oldest entries, whose cost is accounted for already. append
// moves the slice to a new array once this one is used up, so the front does not leak.
func (t *tail) shift(n int) {
	clear(t.entries[:n])
	t.entries = t.entries[n:]
}
