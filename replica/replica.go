// Package replica is one member of the ensemble: Raft over go.etcd.io/raft. It knows
// nothing of znodes: entries are bytes.
package replica

import (
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Entry is one committed log entry with data.
type Entry struct {
	Index, Term uint64
	Data        []byte
}

// Machine is the state machine that entries are applied to.
type Machine interface {
	// Apply is called from one goroutine with committed entries in index order. An
	// error stops the replica.
	Apply(entries []Entry) error
	// Applied is the index that the machine starts from; called once, at Open.
	Applied() uint64
	// Flush makes what is applied durable and returns the index; the log below may go.
	// Called from a goroutine of its own.
	Flush() (uint64, error)
}

// Options configures Open.
type Options struct {
	ID      uint64 // this member, default 1
	FS      vfs.FS
	Log     *slog.Logger
	Machine Machine
	// Seal builds the data of one entry from all proposals that waited. Called on the
	// leader only, from one goroutine; it may keep nothing.
	Seal func(dst []byte, proposals [][]byte) []byte
	// Failed is called once if the replica stops by itself (disk failure).
	Failed                         func(error)
	Tick                           time.Duration // default 100 ms
	MaxEntryBytes, MaxWaitingBytes int
}

type Replica struct{}

func Open(dir string, o Options) (*Replica, error) { panic("stub") }

// Propose queues proposals, in order, to be sealed into an entry. Never blocks.
// Errors: ErrStopped, ErrBusy (bound reached), ErrNoLeader.
func (r *Replica) Propose(proposals ...[]byte) error { panic("stub") }

// Barrier calls done(nil) once leadership has been confirmed after the call and this
// member has applied everything committed at that time; done may run on the caller's
// goroutine before Barrier returns. done(err) if that can't be had.
func (r *Replica) Barrier(done func(error)) { panic("stub") }

// BarrierNow reports whether a barrier would be satisfied right now without waiting: sole voter and leader.
func (r *Replica) BarrierNow() bool { panic("stub") }

type Status struct {
	ID, Leader, Term                uint64
	IsLeader                        bool
	First, Last, Committed, Applied uint64
	LogBytes                        int64
}

func (r *Replica) Status() Status { panic("stub") }
func (r *Replica) Close() error   { panic("stub") }
