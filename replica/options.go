package replica

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Entry is one committed log entry.
type Entry struct {
	Index, Term uint64
	// Data is what Options.Seal built. It is nil for entries that are the log's own
	// (a leader's first, a change of membership): they have no effect, but the machine
	// must remember their index. It may be kept but not changed.
	Data []byte
}

// Machine is the state machine that entries are applied to.
type Machine interface {
	// Apply is called with committed entries in index order, without a hole, never
	// concurrently with itself, but not always from the same goroutine. It returns how
	// many of the proposals in them came from this process's Propose. An error stops the
	// replica.
	Apply(entries []Entry) (own int, err error)
	// Recover returns the index of the last entry that the machine has; called once, by Open.
	// Entries from the next one on are applied, again if need be. begins is the last entry
	// that the log does not have any more: if the machine has received a state as of just
	// that entry, and was stopped before Install was through, that state is the one to take.
	Recover(begins uint64) (applied uint64, err error)
	// Flush makes what is applied durable and returns the index; the log below may
	// go. It is called concurrently with Apply, but never with itself. An error stops
	// the replica.
	Flush() (uint64, error)
	// Snapshot returns the state as of the last entry applied, to be sent to other members.
	// It runs concurrently with Apply and Flush.
	Snapshot() (SnapshotSource, error)
	// Incoming begins to receive the state as of entry applied, beside the present one.
	// What an earlier one has received is dropped: there is one at a time. It runs
	// concurrently with Apply and Flush.
	Incoming(applied uint64) (SnapshotSink, error)
	// Install makes the state that was received as of entry applied the present one. Nothing
	// of Apply, Flush and Recover runs meanwhile. What this process proposed before is
	// forgotten: whatever the machine gives to Propose after its call of restarted has the
	// new origin, and what it gave before has not. An error stops the replica; after a
	// crash Recover decides.
	Install(applied uint64, restarted func(origin uint64)) error
}

// SnapshotSource is the state of a machine at one moment. It belongs to one goroutine.
type SnapshotSource interface {
	// Applied is the index of the last entry in it.
	Applied() uint64
	// Write writes the state to w, from the beginning or from the Position of a sink on.
	// The end can be told from what was written. Apply does not wait for w.
	Write(w io.Writer, from []byte) error
	Close() error
}

// SnapshotSink builds a state that is received. It belongs to one goroutine at a time.
type SnapshotSink interface {
	// Position is what the sender has to go on from, nil for the beginning.
	Position() []byte
	// Receive reads a state from Position to the end. It succeeds only if all of it is right
	// and durable. After an error what is right so far is kept, and it may be called again
	// with what the same source writes from Position on.
	Receive(r io.Reader) error
	// Discard drops what was received.
	Discard() error
}

// Options configures Open. The zero value of a field means what its comment says.
type Options struct {
	ID      uint64 // of this member; 0 means 1
	Cluster uint64 // of a new log, see Replica.Cluster; 0 draws one
	// Members are the addresses of the founding voters by id, this member among them. Only a new
	// log looks at it, but for an address that the log does not have. Empty means that this
	// member is alone.
	Members map[uint64]string
	// Join lets a new log belong to a member of nothing, which waits until the others, Members,
	// add it and send it what they have.
	Join bool
	// Network reaches the other members; nil means that there can be none.
	Network Network
	// Connect, if set, makes Network once the log has told which ensemble and which instance
	// this member is.
	Connect func(cluster, instance uint64) (Network, error)
	// Origin tells this process's proposals from those of others and of itself before a
	// restart; 0 means that one is drawn.
	Origin  uint64
	FS      vfs.FS       // nil means the real one
	Log     *slog.Logger // nil means no messages
	Machine Machine      // required
	// Seal appends the data of one entry to dst, built from all proposals that
	// waited, and returns it. Required. It is called while this member is the leader,
	// never concurrently with itself; it may keep nothing.
	Seal func(dst []byte, proposals [][]byte) []byte
	// Failed is called once if the replica stops by itself, because of a disk or the
	// machine. No call of Machine.Apply begins after it. It must not call Close, which waits for the
	// goroutine that Failed runs on. May be nil.
	Failed func(error)
	// RoleChanged is called when role, leader, term or Leads changed. It must not block and
	// must not call into the Replica. May be nil.
	RoleChanged func(Status)
	// Ask appends what goes with a question to the leader, which a member that does not lead
	// asks whenever a Barrier waits, and each tick. An ask may be lost; the next one then has to
	// say it again. Asked takes it on the leader, and what it returns goes with the answer, once
	// it is confirmed that this member still leads. Answered takes that, before the barriers of
	// this question are released. If either returns an error the question counts as lost. They
	// must not block and must not call into the Replica. May be nil.
	Ask      func(dst []byte) []byte
	Asked    func(from uint64, payload []byte) ([]byte, error)
	Answered func(reply []byte) error
	// Serve answers a peer's Call, on a goroutine of its own. May be nil.
	Serve func(from uint64, payload []byte) ([]byte, error)
	// Now is a monotonic clock; nil means the process's own.
	Now func() time.Duration
	// Observe receives measurements. May be nil, also field by field.
	Observe Observe

	Tick              time.Duration // of Raft's clock; 0 means 100 ms
	MaxEntryBytes     int           // of proposals in one entry, unless a single one is larger; 0 means 1 MiB
	MaxEntryProposals int           // in one entry; 0 means 4096
	MaxWaitingBytes   int           // of proposals not yet in an entry, and of entries not yet applied; 0 means 64 MiB
	FlushBytes        int64         // of log between two calls of Machine.Flush; 0 means 16 MiB
	KeepBytes         int64         // of log that truncation leaves in any case; 0 means 1 MiB
	// LagBytes bounds the log that a leader keeps for members that lack it: one that is
	// further behind is sent a snapshot. 0 means 128 MiB.
	LagBytes int64
	// SnapshotRate bounds the bytes per second that this member sends in snapshots, to all
	// together; 0 means 32 MiB, less than 0 no bound.
	SnapshotRate int64
}

// Observe receives measurements as they happen. The functions must be quick and may be
// called concurrently with each other.
type Observe struct {
	// Sync is called after each synced write of the log, with its size.
	Sync func(d time.Duration, bytes int)
	// Seal is called for each entry with the number of proposals and the size.
	Seal func(proposals, bytes int)
	// Apply is called after each call of Machine.Apply.
	Apply func(d time.Duration, entries int)
	// Flush is called after each call of Machine.Flush.
	Flush func(d time.Duration)
}

func (o *Options) withDefaults() {
	o.ID = or(o.ID, 1)
	o.Tick = or(o.Tick, 100*time.Millisecond)
	if o.Origin == 0 {
		o.Origin = rand.Uint64()
	}
	if o.Now == nil {
		began := time.Now()
		o.Now = func() time.Duration { return time.Since(began) }
	}
	if len(o.Members) == 0 && !o.Join {
		o.Members = map[uint64]string{o.ID: ""}
	}
	o.MaxEntryBytes = or(o.MaxEntryBytes, 1<<20)
	o.MaxEntryProposals = or(o.MaxEntryProposals, 4096)
	o.MaxWaitingBytes = or(o.MaxWaitingBytes, 64<<20)
	o.FlushBytes = or(o.FlushBytes, 16<<20)
	o.KeepBytes = or(o.KeepBytes, 1<<20)
	o.LagBytes = or(o.LagBytes, 128<<20)
	o.SnapshotRate = or(o.SnapshotRate, 32<<20)
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// validate sets the defaults and names what is wrong with the rest.
func (o *Options) validate() error {
	o.withDefaults()
	switch {
	case o.Machine == nil:
		return errors.New("replica: Options.Machine is missing")
	case o.Seal == nil:
		return errors.New("replica: Options.Seal is missing")
	case !o.Join && !hasKey(o.Members, o.ID):
		return fmt.Errorf("replica: Options.Members does not have member %d itself", o.ID)
	case (o.Join || len(o.Members) > 1) && o.Network == nil && o.Connect == nil:
		return fmt.Errorf("replica: Options.Members has %d members, Join is %v, but there is no Network", len(o.Members), o.Join)
	case o.Tick < 0:
		return fmt.Errorf("replica: Options.Tick is %v, must not be negative", o.Tick)
	case o.MaxEntryBytes < 0 || o.MaxEntryProposals < 0 || o.MaxWaitingBytes < 0:
		return fmt.Errorf("replica: a bound is negative: MaxEntryBytes %d, MaxEntryProposals %d, MaxWaitingBytes %d",
			o.MaxEntryBytes, o.MaxEntryProposals, o.MaxWaitingBytes)
	case o.FlushBytes < 0 || o.KeepBytes < 0 || o.LagBytes < 0:
		return fmt.Errorf("replica: a size is negative: FlushBytes %d, KeepBytes %d, LagBytes %d", o.FlushBytes, o.KeepBytes, o.LagBytes)
	}
	return nil
}

func hasKey[K comparable, V any](m map[K]V, k K) bool {
	_, ok := m[k]
	return ok
}

// or returns v, or otherwise if v is zero.
func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
