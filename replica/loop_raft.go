package replica

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

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
		if e.conf != nil {
			if err := l.confChanged(e.conf, e.restored); err != nil {
				return err
			}
		}
		if e.role {
			l.roleChanged()
		}
		l.send(e.messages)
		for _, rs := range e.reads {
			l.answer(l.asks.confirm(rs.RequestCtx, rs.Index), rs.Index)
		}
		if err := l.append(e.appends); err != nil {
			return err
		}
		if err := l.apply(e.applies); err != nil {
			return err
		}
		if e.role || e.conf != nil {
			l.publish()
		}
		l.ask(l.asks.request(false))
	}
	if l.offered {
		l.snapshotRefused()
	}
	l.r.committed.Store(l.core.commit)
	l.changing.settle(l.core)
	l.release()
	return nil
}

// release answers barriers and opens the fast path once enough is applied.
func (l *loop) release() {
	applied := l.r.applied.Load()
	leads := uint64(0)
	if l.core.settled() && applied >= l.core.ownStart && l.r.failure() == nil {
		leads = l.core.term
	}
	l.r.open.Store(leads != 0 && l.core.sole())
	if l.r.leads.Swap(leads) != leads {
		l.publish()
	}
	l.asks.release(applied)
}

// append writes msgs or lets them be written.
func (l *loop) append(msgs []*raftpb.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	bytes := dataBytes(msgs)
	l.unapplied += bytes
	for _, m := range msgs {
		if n := len(m.GetEntries()); n > 0 {
			l.lastIndex = m.GetEntries()[n-1].GetIndex()
		}
	}
	install := snapshotOf(msgs) != nil
	if install {
		l.offered = false
	}
	if l.appending == 0 && !install && (!l.r.log.needsSync(msgs) || l.inline(bytes)) {
		if err := l.r.write(msgs, false); err != nil {
			return err
		}
		l.maybeFlush()
		return l.stored(msgs)
	}
	job := &appendJob{msgs: slices.Clone(msgs)}
	job.entries = slices.ContainsFunc(msgs, func(m *raftpb.Message) bool { return len(m.GetEntries()) > 0 })
	l.startAppend(job)
	l.maybeFlush()
	return nil
}

// apply applies msgs or lets them be applied.
func (l *loop) apply(msgs []*raftpb.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	if l.applying == 0 && l.inline(dataBytes(msgs)) {
		clear(l.entries)
		l.entries = appendEntries(l.entries[:0], msgs)
		settled, err := l.r.apply(l.entries)
		if err != nil {
			return err
		}
		return l.appliedAll(msgs, settled)
	}
	l.applying++
	l.r.applies.put(&applyJob{msgs: slices.Clone(msgs)})
	return nil
}

// inline reports whether a job of as many bytes is the loop's own. A leader with followers
// must go on to be heard while its disk is busy.
func (l *loop) inline(bytes int) bool {
	return (l.core.sole() || !l.core.isLeader()) && bytes <= inlineBytesMax && l.proposing.waiting() == 0 && l.r.in.waiting() == 0
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
	l.r.status.Store(&roleStatus{leader: c.leader, term: c.term, role: c.role, conf: c.conf})
	l.r.committed.Store(c.commit)
	close(*l.r.changed.Swap(new(make(chan struct{}))))
	if f := l.r.o.RoleChanged; f != nil {
		f(l.r.Status())
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
