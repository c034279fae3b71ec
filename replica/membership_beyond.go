package replica

import (
	"context"
	"maps"
	"slices"
)

// A member refuses whom it does not know. So one that was away while others were added, or
// moved, and one that joins and was told of some members only, would refuse a leader that it
// does not know, and with it the entries that tell of it. As long as it hears of no leader it
// asks those that it does know who the members are.

// beyond is what others say of members, as of an entry that was not applied here yet. The loop
// goroutine owns it.
type beyond struct {
	index     uint64
	addresses map[uint64]string
	alone     int // ticks without a leader
}

// tickAlone asks the others, from time to time, who the members are while nobody leads.
func (l *loop) tickAlone() {
	if l.core.leader != 0 {
		l.beyond.alone = 0
		return
	}
	if l.beyond.alone++; l.beyond.alone%electionTicks != 0 || l.r.manual || l.removed() {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(l.peers())) {
		l.r.wg.Go(func() { l.r.askMembers(id) })
	}
}

// askMembers asks a peer who the members are.
func (r *Replica) askMembers(peer uint64) {
	ctx, cancel := context.WithTimeout(r.ctx, leaderPatience)
	defer cancel()
	reply, err := r.call(ctx, peer, frameMembers, appendQuestion(nil, memberQuestion{kind: askList}))
	if err != nil {
		return
	}
	m, err := decodeAnswer(reply)
	if err != nil {
		r.o.Log.Warn("what a member says of the members was refused", "from", peer, "err", err)
		return
	}
	r.in.task(func() { r.loop.learn(m) })
}

// learn takes note of where members listen that were added or moved since.
func (l *loop) learn(m Members) {
	if m.Index <= max(l.core.conf.index, l.beyond.index) {
		return
	}
	l.beyond.index, l.beyond.addresses = m.Index, map[uint64]string{}
	for i := range m.List {
		if e := &m.List[i]; e.Address != "" && e.ID != l.core.id {
			l.beyond.addresses[e.ID] = e.Address
		}
	}
	l.r.o.Log.Info("others know of a change of the members that this one has not applied yet", "index", m.Index, "members", l.beyond.addresses)
	l.setMembers()
}

// peers returns the addresses of the other members, the removed ones that are still to learn
// it and those that were added since among them.
func (l *loop) peers() map[uint64]string {
	peers := l.r.peers(&l.core.conf)
	if l.removed() {
		return peers
	}
	for id, d := range l.departing {
		peers[id] = d.address
	}
	if l.beyond.index > l.core.conf.index {
		maps.Copy(peers, l.beyond.addresses)
	}
	return peers
}
