package server

import (
	"fmt"
	"sync"

	"github.com/tenure-dev/tenure/replica"
	"github.com/tenure-dev/tenure/store"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// pendingCalls are the calls of this process that wait for the log, by proposal id.
type pendingCalls struct {
	mu struct {
		sync.Mutex
		last  uint64
		calls map[uint64]*call
		// since is when calls began to wait, or when the last of them was answered.
		since int64
	}
}

// logStuck is how long the log may answer nothing before it counts as stuck.
const logStuck = int64(100e6)

// stuck reports whether calls wait for a log that does not move, as when its disk hangs,
// or readers for an entry whose application does not end.
func (s *Server) stuck(now int64) bool {
	if began := s.applying.Load(); began != 0 && now-began > logStuck {
		return true
	}
	p := &s.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.calls) > 0 && now-p.mu.since > logStuck
}

// proposalOverhead is about what a proposal has beside the bytes of its request.
const proposalOverhead = 96

// propose hands a run of one connection's writes to the log.
func (s *Server) propose(batch []*call) error {
	size := 0
	for _, k := range batch {
		size += k.bytes + proposalOverhead
	}
	buf := make([]byte, 0, size)
	ends := make([]int, len(batch))
	proposals := make([][]byte, len(batch))
	s.pending.mu.Lock() // also while they are queued: Install tells those before it from those behind it
	defer s.pending.mu.Unlock()
	if len(s.pending.mu.calls) == 0 {
		s.pending.mu.since = s.now()
	}
	first := s.pending.mu.last + 1
	for i, k := range batch {
		s.pending.mu.last++
		s.pending.mu.calls[s.pending.mu.last] = k
		p := wire.Proposal{Origin: s.origin.Load(), ID: s.pending.mu.last, Txn: k.txn()}
		buf = wire.AppendProposal(buf, &p)
		ends[i] = len(buf)
		k.state = callProposed
	}
	for i, start := 0, 0; i < len(batch); i, start = i+1, ends[i] {
		proposals[i] = buf[start:ends[i]:ends[i]]
	}
	err := s.rep.Propose(proposals...)
	if err != nil {
		for i, k := range batch {
			delete(s.pending.mu.calls, first+uint64(i))
			k.state = callWaiting
		}
	}
	return err
}

// proposeOwn hands a transaction of the server itself (expiry, reaping) to the log, if this
// member leads in term. Nobody waits for its result: what it did shows in the state. Under
// another leader it would no longer be right, so it is not carried over.
func (s *Server) proposeOwn(term uint64, op znode.Op) error {
	p := wire.Proposal{Txn: znode.Txn{Op: op}}
	return s.rep.ProposeVolatile(term, wire.AppendProposal(nil, &p))
}

// seal builds a log entry on the leader: here, and only here, time enters.
func (s *Server) seal(dst []byte, proposals [][]byte) []byte {
	stamp := znode.Stamp{TimeMs: s.wallMs(), Rules: znode.Rules{
		NoTTL: s.cfg.NoTTL, EnforceQuota: s.cfg.EnforceQuota, Full: s.full(),
	}}
	return wire.AppendEntry(dst, stamp, proposals)
}

// applied is one transaction between its application and its answer.
type applied struct {
	proposal wire.Proposal
	outcome  store.Outcome
}

// Apply implements replica.Machine. One Pebble batch per entry; then, as one step
// that no reader can straddle: make it visible, tell the watchers, answer.
func (s *Server) Apply(entries []replica.Entry) (own int, err error) {
	for _, e := range entries {
		n, err := s.applyEntry(e)
		if err != nil {
			return 0, fmt.Errorf("apply entry %d: %w", e.Index, err)
		}
		own += n
	}
	return own, nil
}

// applyEntry returns how many of the entry's transactions were proposed by this process.
func (s *Server) applyEntry(e replica.Entry) (own int, err error) {
	began := s.now()
	s.applying.Store(began)
	defer s.applying.Store(0)
	if s.learnPresence.Swap(false) {
		s.store.LearnPresence() // here, where nothing else is being applied
	}
	batch := s.store.Begin(e.Index)
	done := s.applyScratch[:0]
	if len(e.Data) > 0 {
		stamp, proposals, err := wire.DecodeEntry(e.Data)
		if err != nil {
			return 0, err
		}
		for i := range proposals {
			done = append(done, applied{proposals[i], batch.Apply(stamp, &proposals[i].Txn)})
		}
	}
	calls, own := s.takeCalls(done)
	batch.Prepare()

	s.state.Lock()
	err = batch.Commit()
	if err == nil {
		s.digests.note(e.Index, s.store.Digest())
		for i := range done {
			s.publish(&done[i], calls[i])
		}
	}
	s.state.Unlock()

	for c := range s.kicked {
		c.kick()
	}
	clear(s.kicked)
	for i := range done {
		s.excesses.log(s, done[i].outcome.Excesses)
	}
	clear(done)
	s.applyScratch = done[:0]
	s.metrics.appliedEntry(len(done), s.now()-began)
	return own, err
}

// takeCalls finds who waits for each result, nil where it is another process's, or was
// proposed before a restart, and how many are this process's.
func (s *Server) takeCalls(done []applied) (calls []*call, own int) {
	calls = make([]*call, len(done))
	s.pending.mu.Lock()
	defer s.pending.mu.Unlock()
	s.pending.mu.since = s.now()
	for i := range done {
		if done[i].proposal.Origin == s.origin.Load() {
			calls[i] = s.pending.mu.calls[done[i].proposal.ID]
			delete(s.pending.mu.calls, done[i].proposal.ID)
			own++
		}
	}
	return calls, own
}

// publish makes one transaction known: sessions, then watch events, then its own
// answer, so that a client sees an event before any state that has the change.
// Called by apply under the exclusive state lock.
func (s *Server) publish(a *applied, k *call) {
	for _, e := range a.outcome.Sessions {
		if e.Session != nil {
			if was := s.sessions.bound(e.Session, s.now()); was != nil {
				was.disown(closeReason{closeMoved, movedText})
			}
		} else if l := s.sessions.closed(e.ID); l != nil {
			s.endConn(l, k)
		}
	}
	if len(a.outcome.Changes) > 0 {
		s.tellWatchers(a.outcome.Result.Zxid, a.outcome.Changes)
	}
	s.published = max(s.published, a.outcome.Result.Zxid)
	if k == nil {
		return
	}
	s.kicked[k.c] = struct{}{}
	switch {
	case a.outcome.Gap:
		k.c.completed(k, nil, &closeReason{closeBadRequest, "a write's seq is not the next of its session"})
	case a.outcome.Result.Err == znode.SessionMoved: // the connection was cut when it did
		k.c.completed(k, nil, &closeReason{closeMoved, movedText})
	case k.connect != nil:
		k.c.opened(k, &a.outcome.Result)
	default:
		s.answer(k, &a.outcome.Result)
	}
}

// answer completes a write with its result. The zxid of the reply is that of the
// newest change whose events this connection has: for a resent write, whose own
// change is older, it must not go back, and never may it run ahead of the events.
func (s *Server) answer(k *call, res *znode.Result) {
	r := &wire.Reply{Xid: k.req.Xid, Op: k.req.Op, Zxid: s.published, Err: res.Err}
	if k.reply != nil {
		r.Err, r.Detail = k.reply.Err, k.reply.Detail
		if r.Err == znode.Unimplemented {
			r.Zxid = -1
		}
	} else if res.Err == znode.OK || res.Kind == znode.ResultMulti {
		r.Body = res
	}
	end := k.end
	if k.req.Op == wire.OpCloseSession && res.Err == znode.OK {
		end = &closeReason{closeNormal, "session closed"}
	}
	k.c.completed(k, r, end)
}

// endConn closes the connection of a session that is over, except the one whose own
// close request this is: that one gets its answer first.
func (s *Server) endConn(l *liveSession, k *call) {
	if k != nil && k.c == l.conn.Load() && k.req.Op == wire.OpCloseSession {
		l.conn.Store(nil)
		return
	}
	l.disown(overReason(l.ID))
}

// tellWatchers puts the events of one transaction into the outboxes of those who
// watch and may read.
func (s *Server) tellWatchers(zxid int64, changes []znode.Change) {
	s.watches.Lock()
	defer s.watches.Unlock()
	s.watches.match(changes, func(c *conn, e *wire.Event) {
		e.Zxid = zxid
		if c.event(e) {
			s.kicked[c] = struct{}{}
			s.metrics.eventSent()
		}
	})
}

// Flush implements replica.Machine.
func (s *Server) Flush() (uint64, error) { return s.store.Flush() }
