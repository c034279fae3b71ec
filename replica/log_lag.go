package replica

// lag is what of the log others still need. The owner, log, guards it.
type lag struct {
	// from is the first entry that a member lacks which keeps up or may come back, 0 if
	// there is none. It and those behind it are kept up to a bound.
	from uint64
	// snapshots are the last entries of the states that are being sent, by member: each
	// needs all behind it afterwards, or it would need the next snapshot at once.
	snapshots map[uint64]uint64
}

// limit returns up to where the log may be truncated if it could be up to index, and must be
// up to excess unless a snapshot is under way.
func (l *lag) limit(index, excess uint64) uint64 {
	if l.from > 0 {
		index = min(index, max(l.from-1, excess))
	}
	for _, last := range l.snapshots {
		index = min(index, last)
	}
	return index
}

// excess returns, about, up to which entry the log exceeds bytes. The caller holds mu.
func (l *log) excess(bytes int64) uint64 {
	if l.mu.bytes <= bytes {
		return l.mu.truncIndex
	}
	part := 1 - float64(bytes)/float64(l.mu.bytes)
	return l.mu.truncIndex + uint64(part*float64(l.mu.last-l.mu.truncIndex))
}

// lacking keeps the entries from from on for a member that lacks them; 0: nobody does.
func (l *log) lacking(from uint64) {
	l.mu.Lock()
	l.mu.lag.from = from
	l.mu.Unlock()
}

// hold keeps all behind last for a member that is sent the state up to there.
func (l *log) hold(member, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.lag.snapshots == nil {
		l.mu.lag.snapshots = map[uint64]uint64{}
	}
	l.mu.lag.snapshots[member] = last
}

// release ends hold.
func (l *log) release(member uint64) {
	l.mu.Lock()
	delete(l.mu.lag.snapshots, member)
	l.mu.Unlock()
}
