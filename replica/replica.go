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
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
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
	// Memory of the append and of the apply goroutine for their next jobs.
	appendMsgs   []*raftpb.Message
	applyEntries []Entry
	wg           sync.WaitGroup

	applied atomic.Uint64 // by the machine, in this process or before
	// committed is as far as the loop knows.
	committed atomic.Uint64
	status    atomic.Pointer[roleStatus]
	// open is whether this member is alone, leads, and has applied its own first
	// entry of this term: see BarrierNow.
	open atomic.Bool
	// leads is the term that this member leads and has applied an entry of, else 0.
	leads atomic.Uint64
	// changed is closed when status has changed, and replaced.
	changed atomic.Pointer[chan struct{}]
	calls   calls
	// manual: nothing runs by itself, see Manual.
	manual bool
	// syncNs is what a sync of the log takes, a running mean in nanoseconds. Written by whoever
	// has the append role.
	syncNs atomic.Int64
	stats  counters

	// machine is held exclusively while a snapshot is installed, and shared where the machine
	// or what of the log it may have is used.
	machine   sync.RWMutex
	receiving receiving
	pace      pace
	ctx       context.Context // over when the member is closed
	cancel    context.CancelFunc

	fail struct {
		sync.Mutex
		err     error
		started bool // Open has succeeded; before, it is Open that returns err
	}
	closing sync.Once
	closed  error
}

// Open opens or creates the member in dir. It verifies the whole log. Errors, to be checked with errors.Is: ErrCorrupt,
// ErrLogBehindState, ErrStateBehindLog, ErrIdentity.
func Open(dir string, o Options) (*Replica, error) {
	r, err := build(dir, o, false)
	if err != nil {
		return nil, err
	}
	r.wg.Add(4)
	go r.loop.run()
	go r.appendLoop()
	go r.applyLoop()
	go r.flushLoop()
	return r, nil
}

func build(dir string, o Options, manual bool) (*Replica, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	r := &Replica{o: o, manual: manual, flushes: make(chan struct{}, 1)}
	if manual { // time does not pass by itself
		r.o.SnapshotRate = -1
	}
	r.in.init(o.MaxWaitingBytes)
	r.appends.init()
	r.applies.init()
	r.calls.init()
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.changed.Store(new(make(chan struct{})))
	voters := slices.Sorted(maps.Keys(o.Members))
	if o.Join {
		voters = nil
	}
	l, err := openLog(dir, o.FS, o.ID, o.Cluster, voters, false, o.Log, r.failed)
	if err != nil {
		return nil, err
	}
	r.log = l
	if o.Connect != nil {
		r.o.Network, err = o.Connect(l.cluster, l.instance)
	}
	if err == nil {
		err = r.start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), l.close())
	}
	return r, nil
}

// start checks that log and state fit together and builds the loop.
func (r *Replica) start() error {
	s := r.log.span()
	applied, err := r.o.Machine.Recover(s.first - 1)
	if err != nil {
		return fmt.Errorf("replica: recovering the state: %w", err)
	}
	if err := s.fits(applied); err != nil {
		return err
	}
	r.log.applied = max(applied, s.first-1)
	r.applied.Store(r.log.applied)
	if err := r.learnAddresses(); err != nil {
		return err
	}
	c, err := newCore(r.o.ID, r.log, r.o.Log)
	if err != nil {
		return err
	}
	if !c.sole() && r.o.Network == nil {
		return ErrNoNetwork
	}
	r.fail.Lock()
	r.fail.started = r.fail.err == nil
	r.fail.Unlock()
	if err := r.failure(); err != nil {
		return err
	}
	term, err := r.log.Term(r.log.applied)
	if err != nil {
		return err
	}
	r.loop = newLoop(r, c, term)
	if r.loop.removed() {
		r.loop.sayRemoved() // before anybody can ask for the status
	}
	r.status.Store(&roleStatus{term: c.term, conf: c.conf})
	if n := r.o.Network; n != nil {
		n.SetMembers(r.peers(&c.conf))
	}
	return nil
}

// Propose queues proposals, in order, on any member. Each is applied exactly once and in
// this order, unless this process ends, or is too far behind and gets a snapshot: then the
// fate of those that wait is unknown. It never blocks; the proposals must not be changed
// afterwards. Errors, behind which nothing was queued: ErrStopped, ErrBusy.
func (r *Replica) Propose(proposals ...[]byte) error { return r.in.propose(proposals) }

// ProposeVolatile queues a proposal for the term that this member leads, as Leads has
// returned it. It is dropped when that is over, and Machine.Apply does not count it.
func (r *Replica) ProposeVolatile(term uint64, proposal []byte) error {
	switch {
	case term == 0 || r.leads.Load() != term:
		return ErrNoLeader
	case !r.in.put(func(w *work) { w.volatile = append(w.volatile, volatile{term, proposal}) }):
		return ErrStopped
	}
	return nil
}

// Leads returns the term that this member leads, having applied everything of earlier
// terms; 0 if it does not lead.
func (r *Replica) Leads() uint64 { return r.leads.Load() }

// Barrier calls done(nil) once leadership has been confirmed after the call and this
// member has applied everything committed at that time; done may run on the caller's
// goroutine before Barrier returns, and must not block. done(err) if that can't be had:
// ErrStopped, ErrNoLeader, ErrBusy, ErrRemoved. done is called exactly once.
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
	// IsLeader is whether this member leads, IsLearner whether it has no vote, IsRemoved
	// whether it is no member any more.
	IsLeader, IsLearner, IsRemoved bool
	// Leads is what Replica.Leads returns.
	Leads uint64
	// IsCandidate is whether this member is trying to become the leader.
	IsCandidate bool
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
	role         raft.StateType
	conf         conf
}

// Status returns the current status. Its parts may be of slightly different moments.
func (r *Replica) Status() Status {
	s, p := r.log.span(), r.status.Load()
	st := Status{
		ID: r.o.ID, Leader: p.leader, Term: p.term, IsLeader: p.role == raft.StateLeader, Leads: r.leads.Load(),
		IsLearner: slices.Contains(p.conf.state.GetLearners(), r.o.ID),
		IsRemoved: slices.Contains(p.conf.removed, r.o.ID),
		First:     s.first, Last: s.last, Applied: r.applied.Load(), LogBytes: s.bytes,
	}
	st.IsCandidate = p.role == raft.StateCandidate || p.role == raft.StatePreCandidate
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
	r.leads.Store(0)
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
	r.calls.close()
	r.cancel()
	errReceiving := r.receiving.close()
	r.wg.Wait()
	err := errors.Join(r.failure(), errReceiving)
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
	r.machine.RLock()
	defer r.machine.RUnlock()
	start := time.Now()
	index, err := r.o.Machine.Flush()
	if err != nil {
		return fmt.Errorf("replica: flushing the state: %w", err)
	}
	if last := r.log.lastIndex(); index > last {
		return fmt.Errorf("replica: the machine flushed entry %d, the log ends with entry %d", index, last)
	}
	index = min(index, r.applied.Load()) // the machine may be ahead of what it has returned from
	r.stats.flushes.Add(1)
	if f := r.o.Observe.Flush; f != nil {
		f(time.Since(start))
	}
	return r.log.truncate(index, r.o.KeepBytes, r.o.LagBytes)
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
