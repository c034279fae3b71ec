package replica

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
)

const (
	// askPatience is after how many ticks an ask that was not answered is sent again at first.
	askPatience = 2
	// askAgeMax is after how many ticks without an answer those that wait are told that there
	// is no leader: three election timeouts, so that a fail-over goes unnoticed.
	askAgeMax = 3 * electionTicks
)

// asks are the calls of Barrier that wait. All that wait together share one question to the
// leader, and only one is outstanding; on the leader, that of its peers too. The loop
// goroutine owns it.
type asks struct {
	id, start, n uint64 // make contexts unique over members, restarts and questions; n is random at first, too
	next, asked  party  // who waits for the next question, and for the one with context ctx
	ctx          []byte
	out          bool        // asked is outstanding: also with nobody waiting
	age, silent  int         // of the question, and since it was last sent, in ticks
	confirmed    []confirmed // by index
}

// party is who waits for one question.
type party struct {
	done  []func(error)
	peers []peerAsk
}

// peerAsk is a question of a peer, to be answered with reply once it is confirmed that this
// member leads.
type peerAsk struct {
	from, nonce uint64
	reply       []byte
}

// confirmed are calls whose read index is known.
type confirmed struct {
	index uint64
	done  []func(error)
}

func newAsks(id uint64) asks {
	var random [16]byte
	rand.Read(random[:]) // never fails
	return asks{id: id, start: binary.BigEndian.Uint64(random[:]), n: binary.BigEndian.Uint64(random[8:])}
}

func (p *party) empty() bool { return len(p.done)+len(p.peers) == 0 }

// request returns the context of a new question, nil if none is needed now. With force one
// is asked though nobody waits.
func (b *asks) request(force bool) []byte {
	if b.out || b.next.empty() && !force {
		return nil
	}
	b.asked, b.next, b.out, b.age = b.next, party{}, true, 0
	return b.renew()
}

// renew returns a new context for the question that is out, which may have been lost.
func (b *asks) renew() []byte {
	if !b.out {
		return nil
	}
	b.n++
	b.silent = 0
	b.ctx = appendReadContext(nil, b.id, b.start, b.n)
	return b.ctx
}

// confirm takes the answer to a question and returns whom of the peers to answer; answers
// to earlier contexts are dropped.
func (b *asks) confirm(ctx []byte, index uint64) []peerAsk {
	if !b.out || !bytes.Equal(ctx, b.ctx) {
		return nil
	}
	if len(b.asked.done) > 0 {
		b.confirmed = append(b.confirmed, confirmed{index, b.asked.done})
	}
	peers := b.asked.peers
	b.asked, b.out = party{}, false
	return peers
}

// lose forgets the questions of peers, as the lead is lost: they ask the next leader.
func (b *asks) lose() { b.asked.peers, b.next.peers = nil, nil }

// release answers the calls that waited for entries up to applied.
func (b *asks) release(applied uint64) {
	n := 0
	for ; n < len(b.confirmed) && b.confirmed[n].index <= applied; n++ {
		call(b.confirmed[n].done, nil)
	}
	b.confirmed = append(b.confirmed[:0], b.confirmed[n:]...)
}

// tick lets time pass and reports whether to ask again. Calls that nobody confirmed within
// askAgeMax fail.
func (b *asks) tick() bool {
	if !b.out {
		return false
	}
	if b.age++; b.age > askAgeMax {
		call(b.asked.done, ErrNoLeader)
		b.asked, b.out = party{}, false
		return false
	}
	b.silent++
	// Answers to what was sent earlier do not count: on a slow link it must wait ever longer.
	return b.silent >= max(askPatience, b.age/2)
}

// end answers everything with err.
func (b *asks) end(err error) {
	for _, c := range b.confirmed {
		call(c.done, err)
	}
	call(b.asked.done, err)
	call(b.next.done, err)
	b.confirmed, b.asked, b.next, b.out = nil, party{}, party{}, false
}

// idle reports whether no call of Barrier waits.
func (b *asks) idle() bool {
	return len(b.confirmed)+len(b.asked.done)+len(b.next.done) == 0
}

func call(done []func(error), err error) {
	for _, f := range done {
		f(err)
	}
}
