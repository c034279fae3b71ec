package replica

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

const (
	// appendsMax bounds the entries sealed and not yet on disk: one that is being
	// synced and one that is ready when the sync is over.
	appendsMax = 2
	// pipelineMin is from how many proposals on an entry is built before the one before it
	// is on disk.
	pipelineMin = 256
	// gatherMin is how many proposals an entry had if gather waits before the next, gatherPart
	// which part of a sync it waits at most, gatherMax in any case, and gatherSpinsMax where
	// the clock stands still.
	gatherMin       = 4
	gatherPart      = 4
	gatherMax       = 300 * time.Microsecond
	gatherSpinsMax  = 10_000
	gatherMissesMax = 8
	// inlineBytesMax is up to how much the loop writes or applies by itself.
	inlineBytesMax = 4 << 10
	// retryKept bounds the memory that is kept for building the next entry.
	retryKept = 1 << 20
)

// loop is the goroutine that owns Raft. It drains all inputs, lets Raft decide, and
// hands writes to the append goroutine and committed entries to the apply goroutine, so
// that the next entry is built while the one before it is synced.
//
// A change of goroutines costs several microseconds, a sync of a small write not much
// more than a hundred. So if nothing is in flight, nothing else waits, and the member
// is alone, so that no peer's message can be kept waiting, the loop does a small write
// or apply by itself. The roles, append and apply, then are the loop's for that long.
type loop struct {
	r        *Replica
	core     *core
	barriers barriers
	work     work
	e        effects
	entries  []Entry // for applying inline

	answered     int // proposals in the last entry
	gatherMisses int // how often in a row gather waited for nobody
	gatherSkips  int // how many entries it does not wait for
	appending    int // jobs at the append goroutine
	entryJobs    int // those of them with entries
	applying     int // jobs at the apply goroutine
	unapplied    int // bytes of entries appended and not yet applied, about
	sealed       bool
	retry        []byte // the last sealed entry; Raft did not take it for now if retryCount > 0
	retryCount   int    // proposals in it
	flushedBytes int64  // log.mu.appended when a flush was last asked for
}

func newLoop(r *Replica, c *core) *loop {
	return &loop{r: r, core: c, barriers: newBarriers(r.o.ID)}
}

// run is the loop goroutine.
func (l *loop) run() {
	defer l.r.wg.Done()
	if err := l.serve(); err != nil {
		l.r.failed(err)
	}
	l.r.leads.Store(false)
	l.r.open.Store(false)
	l.r.in.close(false)
	l.work.reset()
	l.r.in.take(&l.work, 1<<62, 1<<62)
	l.r.stats.dropped.Add(int64(len(l.work.proposals) + l.retryCount))
	call(l.work.barriers, ErrStopped)
	l.barriers.end(ErrStopped)
	l.r.appends.close()
	l.r.applies.close()
	close(l.r.flushes)
}

// serve runs until the inbox is closed and everything is done, or until an error.
func (l *loop) serve() (err error) {
	defer func() {
		// Raft panics if it cannot read its log.
		if p := recover(); p != nil {
			if err = l.r.log.readFailure(); err == nil {
				panic(p)
			}
		}
	}()
	ticker := time.NewTicker(l.r.o.Tick)
	defer ticker.Stop()
	if l.core.sole() {
		if err := l.core.campaign(); err != nil {
			return fmt.Errorf("replica: campaigning: %w", err)
		}
	}
	for {
		if err := l.carryOut(); err != nil {
			return err
		}
		l.work.reset()
		l.gather()
		l.r.in.take(&l.work, l.room(), l.r.o.MaxEntryBytes)
		if l.work.failed || l.work.closed && l.work.empty() && l.idle() {
			return nil
		}
		if l.work.empty() {
			select {
			case <-l.r.in.wake:
			case <-ticker.C:
				l.tick()
			}
			continue
		}
		select {
		case <-ticker.C:
			l.tick()
		default:
		}
		if err := l.input(); err != nil {
			return err
		}
	}
}

// gather waits a moment for proposals that are likely to come. Clients that wait for each
// answer all send again right behind the sync that answered them, but not in one instant:
// an entry for the first of them alone would cost the others a sync of their own. It
// waits until as many as before are nearly back, at most a part of what that sync takes.
// Where nobody comes back it gives up for ever more entries. It yields instead of
// sleeping, since timers are coarser than what there is to gain.
func (l *loop) gather() {
	n := l.r.in.waiting()
	if l.appending > 0 || n == 0 || l.answered < gatherMin || 2*n >= l.answered {
		return
	}
	if l.gatherSkips > 0 {
		l.gatherSkips--
		return
	}
	limit := min(time.Duration(l.r.syncNs.Load())/gatherPart, gatherMax)
	start := time.Now()
	for spins := 0; spins < gatherSpinsMax && 4*n < 3*l.answered && time.Since(start) < limit; spins++ {
		runtime.Gosched()
		n = l.r.in.waiting()
	}
	if 2*n >= l.answered {
		l.gatherMisses = 0
		return
	}
	l.gatherMisses = min(l.gatherMisses+1, gatherMissesMax)
	l.gatherSkips = 1<<l.gatherMisses - 1
}

// room returns how many proposals may go into an entry now. Of a member that lost the
// lead everything is taken, to be dropped.
func (l *loop) room() int {
	switch {
	case !l.core.isLeader() && !l.core.sole():
		return 1 << 62
	case l.entryJobs > 0 && l.r.in.waiting() < pipelineMin:
		return 0 // more come while the one before it is synced, and building it is quick
	case !l.core.isLeader() || l.retryCount > 0 || l.entryJobs >= appendsMax || l.unapplied >= l.r.o.MaxWaitingBytes:
		return 0
	}
	return l.r.o.MaxEntryProposals
}

// idle reports whether nothing is left that a closed member waits for.
func (l *loop) idle() bool {
	if l.appending+l.applying > 0 {
		return false
	}
	return !l.core.sole() || l.retryCount == 0 && l.barriers.empty() && l.r.in.waiting() == 0
}

func (l *loop) tick() {
	l.core.tick()
	if !l.core.sole() {
		l.barriers.tick(electionTicks)
	}
	l.propose()
	if !l.sealed && l.appending == 0 && l.r.log.unsettled() {
		l.appending++
		l.r.appends.put(&appendJob{settle: true})
	}
	l.sealed = false
}

// input passes what was taken out of the inbox to Raft.
func (l *loop) input() error {
	for _, c := range l.work.done {
		if err := l.complete(c); err != nil {
			return err
		}
	}
	if n := len(l.work.proposals); n > 0 {
		l.seal(n)
	}
	l.propose()
	if len(l.work.barriers) > 0 {
		l.barriers.next = append(l.barriers.next, l.work.barriers...)
	}
	l.ask(l.barriers.request())
	return nil
}

// complete takes note of a job that is carried out.
func (l *loop) complete(c completion) error {
	if job := c.append; job != nil {
		l.appending--
		if job.entries {
			l.entryJobs--
		}
		return l.stored(job.msgs)
	}
	l.applying--
	return l.appliedAll(c.apply.msgs)
}

func (l *loop) stored(msgs []*raftpb.Message) error {
	for _, m := range msgs {
		if err := l.core.stored(m); err != nil {
			return err
		}
	}
	return nil
}

func (l *loop) appliedAll(msgs []*raftpb.Message) error {
	l.unapplied = max(0, l.unapplied-dataBytes(msgs))
	return l.stored(msgs)
}

// seal builds an entry from the n proposals that were taken.
func (l *loop) seal(n int) {
	if !l.core.isLeader() {
		l.r.stats.dropped.Add(int64(n))
		return
	}
	l.answered = n
	l.retry = l.r.o.Seal(l.retry[:0], l.work.proposals)
	l.retryCount = n
}

// propose hands the sealed entry to Raft. While Raft refuses it, because leadership is
// being transferred, it is kept.
func (l *loop) propose() {
	if l.retryCount == 0 {
		return
	}
	r := l.r
	if err := l.core.propose(l.retry); err == nil {
		l.sealed = true
		r.stats.entries.Add(1)
		r.stats.proposals.Add(int64(l.retryCount))
		if f := r.o.Observe.Seal; f != nil {
			f(l.retryCount, len(l.retry))
		}
	} else if l.core.isLeader() && errors.Is(err, raft.ErrProposalDropped) {
		return
	} else {
		r.stats.dropped.Add(int64(l.retryCount))
	}
	// Raft has copied it: the memory serves the next one, unless it is unusually much.
	if l.retryCount = 0; cap(l.retry) > retryKept {
		l.retry = nil
	}
}

func (l *loop) ask(ctx []byte) {
	if ctx != nil {
		l.core.readIndex(ctx)
	}
}

// carryOut does what Raft wants until it wants nothing more.
func (l *loop) carryOut() error {
	for {
		e := &l.e
		e.reset()
		some, err := l.core.ready(e)
		if err != nil {
			return err
		}
		if !some {
			break
		}
		l.send(e.messages)
		if e.conf != nil {
			if err := l.r.log.setConf(*e.conf); err != nil {
				return err
			}
		}
		for _, rs := range e.reads {
			l.barriers.confirm(rs.RequestCtx, rs.Index)
		}
		if e.role {
			l.ask(l.barriers.renew())
		}
		if err := l.append(e.appends); err != nil {
			return err
		}
		if err := l.apply(e.applies); err != nil {
			return err
		}
		if e.role || e.conf != nil {
			l.publish()
			if f := l.r.o.RoleChanged; f != nil {
				f(l.r.Status())
			}
		}
		l.ask(l.barriers.request())
	}
	l.r.committed.Store(l.core.commit)
	l.release()
	return nil
}

// release answers barriers and opens the fast path once enough is applied.
func (l *loop) release() {
	applied := l.r.applied.Load()
	l.barriers.release(applied)
	open := l.core.sole() && l.core.settled() && applied >= l.core.ownStart
	if open != l.r.open.Load() && l.r.failure() == nil {
		l.r.open.Store(open)
	}
}

// send passes messages to peers. This member has connections to none, so Raft learns
// that they are out of reach.
func (l *loop) send(msgs []*raftpb.Message) {
	for _, m := range msgs {
		l.core.unreachable(m.GetTo())
	}
}

// append writes msgs or lets them be written.
func (l *loop) append(msgs []*raftpb.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	bytes := dataBytes(msgs)
	l.unapplied += bytes
	if l.appending == 0 && (!l.r.log.needsSync(msgs) ||
		l.core.sole() && bytes <= inlineBytesMax && l.r.in.waiting() == 0) {
		if err := l.r.write(msgs, false); err != nil {
			return err
		}
		l.maybeFlush()
		return l.stored(msgs)
	}
	job := &appendJob{msgs: slices.Clone(msgs)}
	job.entries = slices.ContainsFunc(msgs, func(m *raftpb.Message) bool { return len(m.GetEntries()) > 0 })
	l.appending++
	if job.entries {
		l.entryJobs++
	}
	l.r.appends.put(job)
	l.maybeFlush()
	return nil
}

// apply applies msgs or lets them be applied.
func (l *loop) apply(msgs []*raftpb.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	if l.applying == 0 && l.core.sole() && dataBytes(msgs) <= inlineBytesMax && l.r.in.waiting() == 0 {
		clear(l.entries)
		l.entries = appendEntries(l.entries[:0], msgs)
		if err := l.r.apply(l.entries); err != nil {
			return err
		}
		return l.appliedAll(msgs)
	}
	l.applying++
	l.r.applies.put(&applyJob{msgs: slices.Clone(msgs)})
	return nil
}

// maybeFlush asks for a flush if enough log has accumulated since the last one.
func (l *loop) maybeFlush() {
	appended := l.r.log.span().appended
	if appended-l.flushedBytes < l.r.o.FlushBytes {
		return
	}
	select {
	case l.r.flushes <- struct{}{}:
		l.flushedBytes = appended
	default: // one is on its way
	}
}

// publish makes role, leader and term visible.
func (l *loop) publish() {
	c := l.core
	l.r.status.Store(&roleStatus{leader: c.leader, term: c.term, isLeader: c.isLeader()})
	l.r.committed.Store(c.commit)
	if l.r.failure() == nil {
		l.r.leads.Store(c.isLeader() || c.sole())
	}
}

func (e *effects) reset() {
	clear(e.appends)
	clear(e.applies)
	clear(e.messages)
	clear(e.reads)
	*e = effects{appends: e.appends[:0], applies: e.applies[:0], messages: e.messages[:0], reads: e.reads[:0]}
}

// dataBytes returns the size of the data of all entries in msgs.
func dataBytes(msgs []*raftpb.Message) int {
	n := 0
	for _, m := range msgs {
		for _, e := range m.GetEntries() {
			n += len(e.Data)
		}
	}
	return n
}
