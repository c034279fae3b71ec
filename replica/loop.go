package replica

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
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

// loop owns Raft. It drains all inputs, lets Raft decide, and hands writes to the append
// goroutine and committed entries to the apply goroutine, so that the next entry is built
// while the one before it is synced. Whoever holds mu is the loop: a goroutine of its own,
// or one that brings a message of a peer or the end of a job, see poke.
//
// A change of goroutines costs several microseconds, a sync of a small write not much
// more than a hundred. So if nothing is in flight, nothing else waits, and the member is
// alone or follows, so that nobody misses it meanwhile, the loop does a small write or
// apply by itself. The roles, append and apply, then are the loop's for that long.
type loop struct {
	mu        sync.Mutex
	over      bool  // nothing is to be done any more
	err       error // why, nil if the member was closed
	r         *Replica
	core      *core
	asks      asks
	proposing proposing
	election  election
	told      told
	changing  changing
	// deaf is until when messages of Raft from a peer are dropped, as the connection broke.
	deaf      map[uint64]time.Duration
	heard     map[uint64]time.Duration // when a message of Raft last came from each peer
	departing map[uint64]departing
	farewell  int // ticks until the departing are disconnected
	beyond    beyond
	work      work
	e         effects
	outgoing  map[uint64]*outgoing // snapshots for others
	sends     []*outgoing          // with Manual: those to be sent
	offered   bool                 // Raft was offered a snapshot that was received
	entries   []Entry              // for applying inline
	batch     [][]byte             // for building an entry

	lastSealed   int           // proposals in the last entry
	gatherMisses int           // how often in a row gather waited for nobody
	gatherSkips  int           // how many entries it does not wait for
	appending    int           // jobs at the append goroutine
	entryJobs    int           // those of them with entries
	appendSince  time.Duration // when the oldest of them became the oldest
	applying     int           // jobs at the apply goroutine
	lastIndex    uint64        // of the last entry that was handed to the log
	ledSince     time.Duration // when the term began here
	appliedTerm  uint64        // of the last entry that was applied
	unapplied    int           // bytes of entries appended and not yet applied, about
	sealed       bool
	retry        []byte // the last sealed entry; Raft did not take it for now if retryCount > 0
	retryCount   int    // proposals in it
	flushedBytes int64  // log.mu.appended when a flush was last asked for
}

func newLoop(r *Replica, c *core, appliedTerm uint64) *loop {
	l := &loop{r: r, core: c, asks: newAsks(r.o.ID), proposing: newProposing(r.o.Origin), appliedTerm: appliedTerm,
		heard: map[uint64]time.Duration{}, deaf: map[uint64]time.Duration{}, departing: map[uint64]departing{}, outgoing: map[uint64]*outgoing{}}
	l.proposing.begin(c.term)
	l.openProposing()
	return l
}

// run is the loop goroutine.
func (l *loop) run() {
	defer l.r.wg.Done()
	if err := l.serve(); err != nil {
		l.r.failed(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stop()
}

// stop ends the loop's part of the member.
func (l *loop) stop() {
	l.r.leads.Store(0)
	l.r.open.Store(false)
	l.r.in.close(false)
	l.work.reset()
	l.r.in.take(&l.work)
	call(l.work.barriers, ErrStopped)
	l.asks.end(ErrStopped)
	l.changing.end(ErrStopped)
	for _, o := range l.sends {
		o.sending = false
	}
	l.dropSnapshots()
	l.r.appends.close()
	l.r.applies.close()
	close(l.r.flushes)
}

// serve runs until the inbox is closed and everything is done, or until an error.
func (l *loop) serve() error {
	ticker := time.NewTicker(l.r.o.Tick)
	defer ticker.Stop()
	wait := time.NewTimer(0) // for the election's deadline
	defer wait.Stop()
	tick, begun := false, false
	for {
		l.mu.Lock()
		switch {
		case !begun:
			begun, l.err = true, l.begin()
			l.over = l.err != nil
		case tick && !l.over:
			l.tick()
		}
		more := l.drain()
		over, err := l.over, l.err
		d, ok := l.election.in(l.r.o.Now())
		l.mu.Unlock()
		if over {
			return err
		}
		if ok {
			wait.Reset(d)
		}
		tick = false
		if more {
			select {
			case <-ticker.C:
				tick = true
			default:
			}
			continue
		}
		select {
		case <-l.r.in.wake:
		case <-ticker.C:
			tick = true
		case <-wait.C:
		}
	}
}

// drainMax bounds the turns in one go, so that the clock is not kept waiting.
const drainMax = 64

// drain takes turns until there is nothing to do, which it reports with false, or until it
// has taken many. The caller holds mu.
func (l *loop) drain() (more bool) {
	for range drainMax {
		if l.over {
			return false
		}
		var some bool
		if some, l.over, l.err = l.turn(); l.err != nil {
			l.over = true
		}
		if !some {
			return false
		}
	}
	return true
}

// poke lets the loop look into its inbox: on the caller's goroutine if nobody else has the
// loop, which spares a change of goroutines. The caller holds no lock that an answer, or the
// machine, may want.
func (l *loop) poke() {
	if l.r.manual {
		return
	}
	if !l.mu.TryLock() {
		l.r.in.signal()
		return
	}
	again := l.drain() || l.over
	l.mu.Unlock()
	if again {
		l.r.in.signal()
	}
}

// begin starts an election if nobody else can.
func (l *loop) begin() error {
	if !l.core.soleVoter() {
		return nil
	}
	if err := l.core.campaign(); err != nil {
		return fmt.Errorf("replica: campaigning: %w", err)
	}
	return nil
}

// turn does what can be done now. It reports whether there was anything, and whether the
// member was closed and all is done.
func (l *loop) turn() (some, over bool, err error) {
	defer func() {
		// Raft panics if it cannot read its log.
		if p := recover(); p != nil {
			if err = l.r.log.readFailure(); err == nil {
				panic(p)
			}
		}
	}()
	if err := l.carryOut(); err != nil {
		return false, false, err
	}
	l.work.reset()
	l.gather()
	l.r.in.take(&l.work)
	idle := l.work.empty() && l.room() == 0 && !l.election.due(l.r.o.Now())
	if l.work.failed || l.work.closed && idle && l.idle() {
		return false, true, nil
	}
	if idle {
		return false, false, nil
	}
	return true, false, l.input()
}

// gather waits a moment for proposals that are likely to come. Clients that wait for each
// answer all send again right behind the sync that answered them, but not in one instant:
// an entry for the first of them alone would cost the others a sync of their own. It
// waits until as many as before are nearly back, at most a part of what that sync takes.
// Where nobody comes back it gives up for ever more entries. It yields instead of
// sleeping, since timers are coarser than what there is to gain.
func (l *loop) gather() {
	if !l.core.sole() || l.r.manual {
		return
	}
	n := l.proposing.waiting() + l.r.in.waiting()
	if l.appending > 0 || n == 0 || l.lastSealed < gatherMin || 2*n >= l.lastSealed {
		return
	}
	if l.gatherSkips > 0 {
		l.gatherSkips--
		return
	}
	limit := min(time.Duration(l.r.syncNs.Load())/gatherPart, gatherMax)
	start := time.Now()
	for spins := 0; spins < gatherSpinsMax && 4*n < 3*l.lastSealed && time.Since(start) < limit; spins++ {
		runtime.Gosched()
		n = l.proposing.waiting() + l.r.in.waiting()
	}
	if 2*n >= l.lastSealed {
		l.gatherMisses = 0
		return
	}
	l.gatherMisses = min(l.gatherMisses+1, gatherMissesMax)
	l.gatherSkips = 1<<l.gatherMisses - 1
}

// room returns how many proposals may go into an entry now.
func (l *loop) room() int {
	waiting := l.proposing.waiting()
	switch {
	case !l.core.isLeader() || !l.proposing.open || waiting == 0 || l.retryCount > 0:
		return 0
	case l.entryJobs > 0 && waiting < pipelineMin:
		return 0 // more come while the one before it is synced, and building it is quick
	case !l.core.sole() && l.lastIndex > l.core.commit && 2*waiting < l.lastSealed:
		return 0 // an entry costs every member a sync and several messages: let more come
	case l.entryJobs >= appendsMax || l.unapplied >= l.r.o.MaxWaitingBytes:
		return 0
	}
	return l.r.o.MaxEntryProposals
}

// idle reports whether nothing is left that a closed member waits for.
func (l *loop) idle() bool {
	if l.appending+l.applying > 0 {
		return false
	}
	return !l.core.sole() || l.retryCount == 0 && l.asks.idle() && l.proposing.waiting() == 0
}

func (l *loop) tick() {
	l.core.tick()
	if l.tickDeparting(); !l.core.sole() {
		l.tickPeers()
	}
	l.propose()
	if !l.sealed && l.appending == 0 && l.r.log.unsettled() {
		l.startAppend(&appendJob{settle: true})
	}
	l.sealed = false
}

// startAppend hands a job to the append goroutine.
func (l *loop) startAppend(job *appendJob) {
	if l.appending == 0 {
		l.appendSince = l.r.o.Now()
	}
	l.appending++
	if job.entries {
		l.entryJobs++
	}
	l.r.appends.put(job)
}

// input passes what was taken out of the inbox to Raft.
func (l *loop) input() error {
	for _, c := range l.work.done {
		if err := l.complete(c); err != nil {
			return err
		}
	}
	for _, f := range l.work.tasks {
		f()
	}
	for i := range l.work.frames {
		if err := l.frame(&l.work.frames[i]); err != nil {
			return err
		}
	}
	l.proposing.own = append(l.proposing.own, l.work.proposals...)
	for _, v := range l.work.volatile {
		if v.term == l.core.term && l.core.isLeader() {
			l.proposing.foreign = append(l.proposing.foreign, v.data)
		}
	}
	l.campaignIfDue()
	l.seal()
	l.propose()
	l.forward()
	if l.removed() {
		call(l.work.barriers, ErrRemoved)
	} else {
		l.asks.next.done = append(l.asks.next.done, l.work.barriers...)
	}
	l.ask(l.asks.request(false))
	return nil
}

// complete takes note of a job that is carried out.
func (l *loop) complete(c completion) error {
	if job := c.append; job != nil {
		l.appending--
		l.appendSince = l.r.o.Now()
		if job.entries {
			l.entryJobs--
		}
		if s := snapshotOf(job.msgs); s != nil {
			l.snapshotInstalled(s)
		}
		return l.stored(job.msgs)
	}
	l.applying--
	return l.appliedAll(c.apply.msgs, c.apply.settled)
}

func (l *loop) stored(msgs []*raftpb.Message) error {
	for _, m := range msgs {
		if err := l.core.stored(m); err != nil {
			return err
		}
	}
	return nil
}

// appliedAll takes note that msgs were applied, with settled own proposals among them.
func (l *loop) appliedAll(msgs []*raftpb.Message, settled int) error {
	l.unapplied = max(0, l.unapplied-dataBytes(msgs))
	if settled > 0 {
		bytes := 0
		for _, p := range l.proposing.own[:min(settled, len(l.proposing.own))] {
			bytes += len(p)
		}
		if err := l.proposing.settle(settled); err != nil {
			return err
		}
		l.r.in.settled(bytes)
	}
	if last := msgs[len(msgs)-1].GetEntries(); len(last) > 0 {
		l.appliedTerm = max(l.appliedTerm, last[len(last)-1].GetTerm()) // a snapshot may be ahead
		l.openProposing()
	}
	return l.stored(msgs)
}

// openProposing lets proposals be handed over once an entry of this term was applied.
func (l *loop) openProposing() {
	if p := &l.proposing; !p.open && l.appliedTerm == l.core.term {
		p.open, p.settled, p.sent, p.acked = true, 0, 0, 0
	}
}

// seal builds an entry from what waits, if it is time.
func (l *loop) seal() {
	n := l.room()
	if n == 0 {
		return
	}
	l.batch = l.proposing.next(l.batch[:0], n, l.r.o.MaxEntryBytes)
	l.lastSealed, l.retryCount = len(l.batch), len(l.batch)
	l.retry = l.r.o.Seal(l.retry[:0], l.batch)
	clear(l.batch)
}

// propose hands the sealed entry to Raft. While Raft refuses it, because leadership is
// being transferred, it is kept. If the lead is lost it is forgotten: what is in it is
// proposed again by those who wait for it.
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
	}
	// Raft has copied it: the memory serves the next one, unless it is unusually much.
	if l.retryCount = 0; cap(l.retry) > retryKept {
		l.retry = nil
	}
}
