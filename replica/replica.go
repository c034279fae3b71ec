// Package replica is one member of the ensemble: Raft over go.etcd.io/raft. It knows
// nothing of znodes: entries are bytes.
//
// Four goroutines: the loop owns Raft (core) and decides, append writes the log (log),
// apply feeds the state machine, flush lets the state machine become durable and
// truncates the log behind it. What Raft does is in core, which has no goroutine and
// no clock. As long as little is asked for, the loop writes and applies by itself,
// which spares the change of goroutines; see loop.
package replica

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Replica is one member. Its methods may be called concurrently.
type Replica struct {
	o    Options
	log  *log
	in   inbox
	loop *loop

	appends queue[*appendJob]
	applies queue[*applyJob]
	flushes chan struct{} // holds a token if enough log has accumulated
	wg      sync.WaitGroup

	applied atomic.Uint64 // by the machine, in this process or before
	// committed is as far as the loop knows.
	committed atomic.Uint64
	status    atomic.Pointer[roleStatus]
	// open is whether this member is alone, leads, and has applied its own first
	// entry of this term: see BarrierNow.
	open atomic.Bool
	// leads is whether Propose is of use.
	leads atomic.Bool
	// syncNs is what a sync of the log takes, a running mean in nanoseconds. Written by whoever
	// has the append role.
	syncNs atomic.Int64
	stats  counters

	fail struct {
		sync.Mutex
		err     error
		started bool // Open has succeeded; before, it is Open that returns err
	}
	closing sync.Once
	closed  error
}

// Open opens or creates the member in dir. A new member is an ensemble of its own. It
// verifies the whole log. Errors, to be checked with errors.Is: ErrCorrupt,
// ErrLogBehindState, ErrStateBehindLog, ErrIdentity.
func Open(dir string, o Options) (*Replica, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	r := &Replica{o: o, flushes: make(chan struct{}, 1)}
	r.in.wake = make(chan struct{}, 1)
	r.in.mu.bytesMax = o.MaxWaitingBytes
	r.appends.init()
	r.applies.init()
	l, err := openLog(dir, o.FS, o.ID, []uint64{o.ID}, false, o.Log, r.failed)
	if err != nil {
		return nil, err
	}
	r.log = l
	if err := r.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), l.close())
	}
	return r, nil
}

// start checks that log and state fit together and starts the goroutines.
func (r *Replica) start() error {
	applied := r.o.Machine.Applied()
	s := r.log.span()
	if err := s.fits(applied); err != nil {
		return err
	}
	r.log.applied = max(applied, s.first-1)
	r.applied.Store(r.log.applied)
	c, err := newCore(r.o.ID, r.log, r.o.Log)
	if err != nil {
		return err
	}
	r.fail.Lock()
	r.fail.started = r.fail.err == nil
	r.fail.Unlock()
	if err := r.failure(); err != nil {
		return err
	}
	r.loop = newLoop(r, c)
	r.loop.publish()
	r.wg.Add(4)
	go r.loop.run()
	go r.appendLoop()
	go r.applyLoop()
	go r.flushLoop()
	return nil
}

// Propose queues proposals, in order, to be sealed into an entry. It never blocks; the
// proposals must not be changed afterwards. That they are accepted does not mean that
// they will be committed: the leader may change or the member stop before. Errors:
// ErrStopped, ErrBusy (nothing was queued), ErrNoLeader (this member does not lead).
func (r *Replica) Propose(proposals ...[]byte) error {
	if !r.leads.Load() {
		return ErrNoLeader
	}
	return r.in.propose(proposals)
}

// Barrier calls done(nil) once leadership has been confirmed after the call and this
// member has applied everything committed at that time; done may run on the caller's
// goroutine before Barrier returns, and must not block. done(err) if that can't be had:
// ErrStopped, ErrNoLeader, ErrBusy. done is called exactly once.
func (r *Replica) Barrier(done func(error)) {
	if r.BarrierNow() {
		done(nil)
	} else if err := r.in.barrier(done); err != nil {
		done(err)
	}
}

// BarrierNow reports whether a read needs no barrier: this member is the whole
// ensemble and leads, and has applied everything that was committed before it started.
// An entry may be committed and not yet applied, but nobody has seen it or been told of
// it, so a read may be ordered before it. It costs one atomic load.
func (r *Replica) BarrierNow() bool { return r.open.Load() }

// Status says where the member is.
type Status struct {
	ID     uint64
	Leader uint64 // 0 if unknown
	Term   uint64
	// IsLeader is whether this member leads.
	IsLeader bool
	// First and Last are the ends of the log; First is Last+1 if it is empty.
	First, Last uint64
	// Committed is known to be committed, Applied what the machine has applied.
	Committed, Applied uint64
	// LogBytes is about what the log's entries take.
	LogBytes int64
}

// roleStatus is the part of Status that the loop publishes.
type roleStatus struct {
	leader, term uint64
	isLeader     bool
}

// Status returns the current status. Its parts may be of slightly different moments.
func (r *Replica) Status() Status {
	s, p := r.log.span(), r.status.Load()
	st := Status{
		ID: r.o.ID, Leader: p.leader, Term: p.term, IsLeader: p.isLeader,
		First: s.first, Last: s.last, Applied: r.applied.Load(), LogBytes: s.bytes,
	}
	st.Committed = max(r.committed.Load(), st.Applied)
	return st
}

// failed stops the member because of err. Only the first call counts.
func (r *Replica) failed(err error) {
	r.fail.Lock()
	first, started := r.fail.err == nil, r.fail.started
	if first {
		r.fail.err = err
	}
	r.fail.Unlock()
	if !first || !started {
		return
	}
	r.leads.Store(false)
	r.open.Store(false)
	r.o.Log.Error("the member stops", "err", err)
	r.in.close(true)
	if r.o.Failed != nil {
		r.o.Failed(err)
	}
}

// failure returns what the member failed with, nil if it did not.
func (r *Replica) failure() error {
	r.fail.Lock()
	defer r.fail.Unlock()
	return r.fail.err
}

// Close stops taking proposals, finishes what was taken if this member is alone, else
// what is committed, lets the machine flush, and waits for all goroutines. It returns
// what the member failed with, if it did. Further calls return the same.
func (r *Replica) Close() error {
	r.closing.Do(func() { r.closed = r.close() })
	return r.closed
}

func (r *Replica) close() error {
	r.in.close(false)
	r.wg.Wait()
	err := r.failure()
	if err == nil {
		err = errors.Join(r.flush(), r.log.settle())
	}
	if errClose := r.log.close(); errClose != nil {
		err = errors.Join(err, fmt.Errorf("replica: closing the log: %w", errClose))
	}
	return err
}

// flush lets the machine become durable and truncates the log.
func (r *Replica) flush() error {
	start := time.Now()
	index, err := r.o.Machine.Flush()
	if err != nil {
		return fmt.Errorf("replica: flushing the state: %w", err)
	}
	if applied := r.applied.Load(); index > applied {
		return fmt.Errorf("replica: the machine flushed entry %d, but only %d were applied", index, applied)
	}
	r.stats.flushes.Add(1)
	if f := r.o.Observe.Flush; f != nil {
		f(time.Since(start))
	}
	return r.log.truncate(index, r.o.KeepBytes)
}

// flushLoop is the flush goroutine.
func (r *Replica) flushLoop() {
	defer r.wg.Done()
	for range r.flushes {
		if r.failure() != nil {
			continue
		}
		if err := r.flush(); err != nil {
			r.failed(err)
		}
	}
}
