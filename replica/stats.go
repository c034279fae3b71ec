package replica

import "sync/atomic"

// Stats are counts since Open.
type Stats struct {
	Entries   int64 // sealed by this member
	Proposals int64 // in those entries
	Dropped   int64 // proposals that were accepted and lost, because the leader changed or the member stopped
	Syncs     int64 // of the log
	LogBytes  int64 // written in synced batches
	Applied   int64 // entries that the machine applied
	Flushes   int64 // of the machine
}

// counters is Stats while it is counted.
type counters struct {
	entries, proposals, dropped, syncs, logBytes, applied, flushes atomic.Int64
}

// Stats returns the counts. They may be of slightly different moments.
func (r *Replica) Stats() Stats {
	c := &r.stats
	return Stats{
		Entries:   c.entries.Load(),
		Proposals: c.proposals.Load(),
		Dropped:   c.dropped.Load(),
		Syncs:     c.syncs.Load(),
		LogBytes:  c.logBytes.Load(),
		Applied:   c.applied.Load(),
		Flushes:   c.flushes.Load(),
	}
}
