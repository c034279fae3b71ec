package replica

import "sync/atomic"

// Stats are counts since Open.
type Stats struct {
	Entries   int64 // sealed by this member
	Proposals int64 // in those entries
	Forwarded int64 // proposals sent to the leader, again ones too
	Syncs     int64 // of the log
	LogBytes  int64 // written in synced batches
	Applied   int64 // entries that the machine applied
	Flushes   int64 // of the machine
	// Snapshots that were sent and received whole, and the bytes sent.
	SnapshotsSent, SnapshotsReceived, SnapshotBytes int64

	Asks          int64 // questions to the leader, again ones too
	Elections     int64 // in which this member stood
	LeaderChanges int64 // that this member has seen, the first leader included
}

// counters is Stats while it is counted.
type counters struct {
	entries, proposals, forwarded, syncs, logBytes, applied, flushes atomic.Int64
	snapshotsSent, snapshotsReceived, snapshotBytes                  atomic.Int64
	asks, elections, leaderChanges                                   atomic.Int64
}

// Stats returns the counts. They may be of slightly different moments.
func (r *Replica) Stats() Stats {
	c := &r.stats
	return Stats{
		Entries:   c.entries.Load(),
		Proposals: c.proposals.Load(),
		Forwarded: c.forwarded.Load(),
		Syncs:     c.syncs.Load(),
		LogBytes:  c.logBytes.Load(),
		Applied:   c.applied.Load(),
		Flushes:   c.flushes.Load(),

		SnapshotsSent:     c.snapshotsSent.Load(),
		SnapshotsReceived: c.snapshotsReceived.Load(),
		SnapshotBytes:     c.snapshotBytes.Load(),

		Asks:          c.asks.Load(),
		Elections:     c.elections.Load(),
		LeaderChanges: c.leaderChanges.Load(),
	}
}
