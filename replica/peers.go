package replica

import (
	"cmp"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

const (
	// campaignStep is by how much each of the voters that lost their leader lets the one
	// before it go first, campaignTries how often it tries before it leaves it to Raft's
	// own timeout.
	campaignStep  = 40 * time.Millisecond
	campaignTries = 10
	// slowDiskTicks is how long a write of the leader's log may take before it looks for
	// somebody else to lead.
	slowDiskTicks = electionTicks / 2
)

// election is the campaign of a member that lost its leader: it does not wait for Raft's timeout.
type election struct {
	at    time.Duration // when to campaign, by Options.Now
	left  int           // tries, 0 if there is nothing to do
	after time.Duration // between two of them
	stood uint64        // term in which this member was a candidate when the last try was due
}

func (e *election) due(now time.Duration) bool { return e.left > 0 && now >= e.at }

// in returns how long to wait for the deadline, false if there is none.
func (e *election) in(now time.Duration) (time.Duration, bool) {
	return max(0, e.at-now), e.left > 0
}

// lost is called when the connection to a peer broke. If it is the leader's it is most likely
// dead: this member forgets it, so that it may vote, and campaigns soon. Should it live, its
// next heartbeat is followed again; a campaign disturbs nobody who hears it, since it begins
// with a pre-vote.
func (l *loop) lost(peer uint64) {
	l.deaf[peer] = l.r.o.Now() + electionTicks*l.r.o.Tick
	if peer != l.core.leader || peer == l.core.id {
		return
	}
	l.core.forgetLeader()
	l.r.o.Log.Info("the connection to the leader broke", "leader", peer, "term", l.core.term)
	l.told.lose(l.r.o.Now())
	l.campaignSoon(peer)
}

// met is called when a peer can be reached. Without a leader, as at the start of all members,
// there may be a majority now.
func (l *loop) met(peer uint64) {
	delete(l.deaf, peer)
	switch {
	case peer == l.core.leader:
		l.proposing.again()
		l.forward()
		l.ask(l.asks.renew())
	case l.core.leader == 0 && l.election.left == 0:
		l.campaignSoon(0)
	}
}

// campaignSoon lets this voter campaign without waiting for Raft's timeout; voters with
// smaller ids, but for the one that is lost, go first.
func (l *loop) campaignSoon(lost uint64) {
	var rank time.Duration
	voter := false
	for _, id := range l.core.conf.state.GetVoters() {
		switch {
		case id == l.core.id:
			voter = true
		case id != lost && id < l.core.id:
			rank++
		}
	}
	if voter {
		l.election = election{at: l.r.o.Now() + rank*campaignStep, left: campaignTries, after: (rank + 2) * campaignStep}
	}
}

// campaignIfDue starts an election when its time has come and there still is no leader.
func (l *loop) campaignIfDue() {
	e := &l.election
	if l.core.leader != 0 {
		e.left = 0
	}
	now := l.r.o.Now()
	if !e.due(now) {
		return
	}
	e.left--
	e.at = now + e.after
	if l.core.role == raft.StateCandidate && e.stood != l.core.term {
		e.stood = l.core.term // its votes are on the way, unless others got them
		return
	}
	if err := l.core.campaign(); err != nil {
		l.r.o.Log.Warn("no campaign", "err", err)
	}
}

// tickPeers is the part of tick that an ensemble needs.
func (l *loop) tickPeers() {
	again := l.asks.tick()
	if l.core.isLeader() {
		l.proposing.taken(func(peer uint64, a accepted) { l.r.send(peer, Control, appendAccepted(nil, a)) })
		l.resignIfSlow()
		l.tickSnapshots()
		l.keepLog()
	} else {
		l.proposing.tick()
		l.forward()
		if leader := l.core.leader; leader != 0 && !l.answers(leader) {
			l.core.forgetLeader() // Raft lets only voters do so, and up to an election timeout later
		}
		l.tickAlone()
	}
	switch {
	case again:
		l.ask(l.asks.renew())
	case !l.core.isLeader() && l.core.leader != 0:
		l.ask(l.asks.request(true)) // keeps sessions and the leader's picture of this member fresh
	}
}

// resignIfSlow hands the lead over when the log's disk does not answer.
func (l *loop) resignIfSlow() {
	stuck := l.r.o.Now() - l.appendSince
	if l.appending == 0 || stuck < slowDiskTicks*l.r.o.Tick || l.core.transferring() {
		return
	}
	if to := l.successor(l.core.conf.state.GetVoters()); to != 0 {
		l.r.o.Log.Warn("the log's disk does not answer: handing the lead over", "for_ms", stuck.Milliseconds(), "to", to)
		l.core.transfer(to)
	}
}

// roleChanged takes note of a new role, leader or term.
func (l *loop) roleChanged() {
	if was := l.told.leader; l.core.leader == 0 && was != 0 && was != l.core.id {
		l.campaignSoon(was)
	}
	l.tellRole()
	if l.core.term != l.proposing.term {
		l.retryCount, l.ledSince = 0, l.r.o.Now()
		l.unapplied = 0 // what a new leader replaces is never applied
		// Somebody was voted for: give it time to be heard of.
		l.election.at = max(l.election.at, l.r.o.Now()+l.election.after)
		l.proposing.begin(l.core.term)
		l.openProposing()
	}
	if !l.core.isLeader() {
		l.dropSnapshots()
		l.retryCount = 0
		l.proposing.lose()
		l.asks.lose()
		l.proposing.again()
	}
	l.keepLog()
	l.ask(l.asks.renew())
	l.forward()
}

// ask puts the question that is out to the leader.
func (l *loop) ask(ctx []byte) {
	switch {
	case ctx == nil:
	case l.core.isLeader():
		l.core.readIndex(ctx)
	case l.core.leader != 0:
		l.r.stats.asks.Add(1)
		var payload []byte
		if f := l.r.o.Ask; f != nil {
			payload = f(nil)
		}
		l.sendNote(l.core.leader, frameAsk, note{nonce: l.asks.n, payload: payload})
	}
}

// answer tells peers what they asked for.
func (l *loop) answer(peers []peerAsk, index uint64) {
	for _, p := range peers {
		l.sendNote(p.from, frameAnswer, note{nonce: p.nonce, index: index, payload: p.reply})
	}
}

func (l *loop) sendNote(to uint64, kind byte, n note) {
	l.r.send(to, Control, appendNote(make([]byte, 0, len(n.payload)+24), kind, n))
}

// forward sends what waits to the leader, if that is somebody else.
func (l *loop) forward() {
	p := &l.proposing
	if !p.open || l.core.isLeader() || l.core.leader == 0 {
		return
	}
	for f := p.forward(); f != nil; f = p.forward() {
		size := 64
		for _, one := range f.list {
			size += len(one) + 4
		}
		if !l.r.send(l.core.leader, Bulk, appendProposals(make([]byte, 0, size), f)) {
			p.again()
			return
		}
		l.r.stats.forwarded.Add(int64(len(f.list)))
	}
}

// frame takes a frame of a peer.
func (l *loop) frame(f *inbound) error {
	switch f.kind {
	case frameRaft:
		m := f.body.(*raftpb.Message)
		if l.r.o.Now() < l.deaf[f.from] {
			return nil // sent before the connection broke: it would bring a dead leader back
		}
		m.From, m.To = new(f.from), new(l.core.id)
		l.heardOf(f.from, m)
		if err := l.core.step(m); err != nil {
			l.r.o.Log.Debug("a message was refused", "from", f.from, "type", m.GetType(), "err", err)
		}
	case frameProposals:
		p := f.body.(*proposals)
		if !l.core.isLeader() || p.term != l.core.term {
			return nil
		}
		room := l.r.o.MaxWaitingBytes - l.unapplied
		if a := l.proposing.take(f.from, p, room); a.again {
			l.r.send(f.from, Control, appendAccepted(nil, a))
		}
	case frameAccepted:
		if a := f.body.(accepted); f.from == l.core.leader {
			l.proposing.accepted(a)
		}
	case frameAsk:
		if !l.core.isLeader() {
			return nil
		}
		n := f.body.(note)
		ask := peerAsk{from: f.from, nonce: n.nonce}
		if asked := l.r.o.Asked; asked != nil {
			var err error
			if ask.reply, err = asked(f.from, n.payload); err != nil {
				l.r.o.Log.Warn("a question was refused", "from", f.from, "err", err)
				return nil
			}
		}
		l.asks.next.peers = append(l.asks.next.peers, ask)
	case frameAnswer:
		l.answered(f.from, f.body.(note))
	}
	return nil
}

// answered takes the leader's answer to the question that is out.
func (l *loop) answered(from uint64, n note) {
	if from != l.core.leader || !l.asks.out || n.nonce != l.asks.n {
		return
	}
	if f := l.r.o.Answered; f != nil {
		if err := f(n.payload); err != nil {
			l.r.o.Log.Warn("an answer was refused", "from", from, "err", err)
			return
		}
	}
	l.asks.confirm(l.asks.ctx, n.index)
}

// send passes messages to peers; Raft learns of those that were not sent. Peers that keep up
// get the same entries, which are encoded once.
func (l *loop) send(msgs []*raftpb.Message) {
	var last *raftpb.Message
	var frame []byte
	for i, m := range msgs {
		if m.GetType() == raftpb.MsgSnap {
			l.sendSnapshot(m)
			continue
		}
		if impliedBy(m, msgs[i+1:]) {
			continue
		}
		class := Control
		if m.GetType() == raftpb.MsgApp { // those without entries must not overtake the others
			class = Bulk
		}
		if last == nil || !sameEntries(m, last) {
			last, frame = m, appendMessage(make([]byte, 0, messageSize(m)), m)
		}
		if !l.r.send(m.GetTo(), class, frame) {
			l.core.unreachable(m.GetTo())
		}
	}
}

// impliedBy reports whether m only tells a peer of a commit index that one of the later
// messages tells it, too, with the entries behind.
func impliedBy(m *raftpb.Message, later []*raftpb.Message) bool {
	if m.GetType() != raftpb.MsgApp || len(m.GetEntries()) > 0 {
		return false
	}
	return slices.ContainsFunc(later, func(o *raftpb.Message) bool {
		return o.GetType() == raftpb.MsgApp && o.GetTo() == m.GetTo() && o.GetTerm() == m.GetTerm() &&
			o.GetIndex() == m.GetIndex() && o.GetCommit() >= m.GetCommit()
	})
}

// sameEntries reports whether two messages are the same entries for different peers.
func sameEntries(a, b *raftpb.Message) bool {
	x, y := a.GetEntries(), b.GetEntries()
	return len(x) > 0 && len(x) == len(y) && x[0] == y[0] && x[len(x)-1] == y[len(y)-1] &&
		a.GetType() == b.GetType() && a.GetTerm() == b.GetTerm() && a.GetLogTerm() == b.GetLogTerm() &&
		a.GetIndex() == b.GetIndex() && a.GetCommit() == b.GetCommit()
}

// transfer makes another member the leader.
func (c *core) transfer(to uint64) { c.node.TransferLeader(to) }

// transferring reports whether this leader is handing over.
func (c *core) transferring() bool { return c.node.BasicStatus().LeadTransferee != 0 }

// forgetLeader makes this follower ready to vote for somebody else in its term's successor.
func (c *core) forgetLeader() {
	// It only fails for messages that are dropped, which this is not.
	_ = c.node.ForgetLeader()
	c.leader = c.node.BasicStatus().Lead
	c.forgot = true
}

// successor returns which of the others that are fit for it is best fit to lead next, 0 if
// none is.
func (c *core) successor(fit func(uint64) bool) uint64 {
	type candidate struct{ id, match uint64 }
	var best []candidate
	c.node.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		if id != c.id && typ == raft.ProgressTypePeer && fit(id) && pr.State == tracker.StateReplicate {
			best = append(best, candidate{id, pr.Match})
		}
	})
	if len(best) == 0 {
		return 0
	}
	return slices.MaxFunc(best, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.match, b.match), cmp.Compare(b.id, a.id))
	}).id
}
