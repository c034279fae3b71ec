package replica

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// departing is a member that was removed and is still connected.
type departing struct {
	address string
	index   uint64 // of the entry that removed it
	match   uint64 // up to where it is known to have the log, 0 if it is not
}

// confChanged takes note of a new configuration; before is the one that it replaces. One that
// was restored is written with its snapshot.
func (l *loop) confChanged(before *conf, restored bool) error {
	now := &l.core.conf
	if !restored {
		if err := l.r.log.setConf(*now); err != nil {
			return err
		}
	}
	l.r.o.Log.Info("the members changed", "index", now.index, "voters", now.state.GetVoters(), "learners", now.state.GetLearners(),
		"joint", isJoint(now.state), "removed", now.removed)
	progress := l.core.departed
	l.core.departed = nil
	for _, id := range memberIDs(before.state) {
		if !slices.Contains(now.removed, id) || id == l.core.id {
			continue
		}
		l.departing[id] = departing{before.addresses[id], now.index, progress[id]}
		l.farewell = farewellTicks
		l.sayFarewell(id)
	}
	if l.removed() && !slices.Contains(before.removed, l.core.id) {
		l.asks.end(ErrRemoved)
		l.sayRemoved()
	}
	l.setMembers()
	return nil
}

func (l *loop) sayRemoved() {
	l.r.o.Log.Warn("this member was removed from the ensemble: it serves nobody any more, and its directory can be deleted", "id", l.core.id)
}

// removed reports whether this member is no member any more.
func (l *loop) removed() bool { return slices.Contains(l.core.conf.removed, l.core.id) }

// setMembers tells the network who the others are.
func (l *loop) setMembers() {
	if n := l.r.o.Network; n != nil {
		n.SetMembers(l.peers())
	}
}

// sayFarewell lets a removed member learn, from the leader, of the entry that says so and that
// it is committed: Raft does not send it anything more.
func (l *loop) sayFarewell(id uint64) {
	d := l.departing[id]
	if !l.core.isLeader() || d.match == 0 {
		return
	}
	m := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), To: new(id), From: new(l.core.id), Term: new(l.core.term), Commit: new(d.index)}
	if d.match < d.index {
		term, err := l.r.log.Term(d.match)
		entries, errEntries := l.r.log.Entries(d.match+1, d.index+1, messageBytesMax)
		if err != nil || errEntries != nil {
			return // they were cut: it learns it when it is refused
		}
		m.Type, m.Index, m.LogTerm, m.Entries = raftpb.MsgApp.Enum(), new(d.match), new(term), entries
	}
	l.send([]*raftpb.Message{m})
}

// heardOf takes note of a message of Raft.
func (l *loop) heardOf(from uint64, m *raftpb.Message) {
	l.heard[from] = l.r.o.Now()
	d, gone := l.departing[from]
	if gone && m.GetType() == raftpb.MsgAppResp && !m.GetReject() {
		d.match = max(d.match, m.GetIndex())
		l.departing[from] = d
		l.sayFarewell(from)
	}
}

// tickDeparting disconnects removed members some time after.
func (l *loop) tickDeparting() {
	if l.farewell == 0 {
		return
	}
	for id := range l.departing {
		l.sayFarewell(id)
	}
	if l.farewell--; l.farewell == 0 {
		clear(l.departing)
		l.setMembers()
	}
}

// peers returns the addresses of the other members: none of a member that was removed, and
// those that the settings name while the log has nobody, as on a member that is about to
// join.
func (r *Replica) peers(c *conf) map[uint64]string {
	peers := map[uint64]string{}
	ids := memberIDs(c.state)
	switch {
	case slices.Contains(c.removed, r.o.ID):
		return peers
	case len(ids) == 0:
		for id, address := range r.o.Members {
			peers[id] = address
		}
	}
	for _, id := range ids {
		peers[id] = c.addresses[id]
	}
	delete(peers, r.o.ID)
	return peers
}

// learnAddresses takes the addresses that the log does not have from the settings: it begins
// without, and so did programs that knew of none.
func (r *Replica) learnAddresses() error {
	r.log.mu.Lock()
	c := r.log.mu.conf
	r.log.mu.Unlock()
	known := members{addresses: map[uint64]string{}, last: c.last}
	for _, id := range memberIDs(c.state) {
		if c.addresses[id] == "" && r.o.Members[id] != "" {
			known.addresses[id] = r.o.Members[id]
		}
	}
	if len(known.addresses) == 0 {
		return nil
	}
	var err error
	if c.members, err = c.members.next(appendMembers(nil, known), c.state, c.state); err != nil {
		return err
	}
	return r.log.setConf(c)
}

// judgeMember refuses a member that was removed.
func (r *Replica) judgeMember(id uint64) error {
	if p := r.status.Load(); p != nil && slices.Contains(p.conf.removed, id) {
		return fmt.Errorf("%w: member %d; ids are never used again: add it under a new one, with an empty data directory", ErrRemoved, id)
	}
	return nil
}
