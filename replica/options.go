package replica

import (
	"errors"
	"fmt"
	"log/slog"
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
	// concurrently with itself, but not always from the same goroutine. An error stops
	// the replica.
	Apply(entries []Entry) error
	// Applied is the index that the machine starts from; called once, by Open.
	// Entries from the next one on are applied, again if need be.
	Applied() uint64
	// Flush makes what is applied durable and returns the index; the log below may
	// go. It is called concurrently with Apply, but never with itself. An error stops
	// the replica.
	Flush() (uint64, error)
}

// Options configures Open. The zero value of a field means what its comment says.
type Options struct {
	ID      uint64       // of this member; 0 means 1
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
	// RoleChanged is called when role, leader or term changed. It must not block and
	// must not call into the Replica. May be nil.
	RoleChanged func(Status)
	// Observe receives measurements. May be nil, also field by field.
	Observe Observe

	Tick              time.Duration // of Raft's clock; 0 means 100 ms
	MaxEntryBytes     int           // of proposals in one entry, unless a single one is larger; 0 means 1 MiB
	MaxEntryProposals int           // in one entry; 0 means 4096
	MaxWaitingBytes   int           // of proposals not yet in an entry, and of entries not yet applied; 0 means 64 MiB
	FlushBytes        int64         // of log between two calls of Machine.Flush; 0 means 16 MiB
	KeepBytes         int64         // of log that truncation leaves for members that lag; 0 means 1 MiB
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
	o.MaxEntryBytes = or(o.MaxEntryBytes, 1<<20)
	o.MaxEntryProposals = or(o.MaxEntryProposals, 4096)
	o.MaxWaitingBytes = or(o.MaxWaitingBytes, 64<<20)
	o.FlushBytes = or(o.FlushBytes, 16<<20)
	o.KeepBytes = or(o.KeepBytes, 1<<20)
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
	case o.Tick < 0:
		return fmt.Errorf("replica: Options.Tick is %v, must not be negative", o.Tick)
	case o.MaxEntryBytes < 0 || o.MaxEntryProposals < 0 || o.MaxWaitingBytes < 0:
		return fmt.Errorf("replica: a bound is negative: MaxEntryBytes %d, MaxEntryProposals %d, MaxWaitingBytes %d",
			o.MaxEntryBytes, o.MaxEntryProposals, o.MaxWaitingBytes)
	case o.FlushBytes < 0 || o.KeepBytes < 0:
		return fmt.Errorf("replica: a size is negative: FlushBytes %d, KeepBytes %d", o.FlushBytes, o.KeepBytes)
	}
	return nil
}

// or returns v, or otherwise if v is zero.
func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
