package replica

import (
	"fmt"
	"maps"
	"slices"
)

const (
	// forwardBytes and forwardCount bound the proposals in one frame to the leader.
	forwardBytes = 1 << 20
	forwardCount = 4096
	// forwardPatience is after how many ticks without progress proposals are sent again.
	forwardPatience = 3
)

// proposing is what a member does with proposals, its own and those of its peers. The loop
// goroutine owns it.
//
// A member's own proposals stay in own, in order, until the machine says that it has
// applied them. They are handed over in that order: sealed here if this member leads, else
// sent to the leader. Nothing is handed over in a term before an entry of that term was
// applied here. By then all entries of earlier terms that will ever be committed were
// applied, too: whatever was handed over in an earlier term and is still in own is dead,
// and is handed over anew. So every proposal is applied exactly once and in order, as long
// as the process lives.
//
// A peer's proposals have numbers from 1 on within a term, and only the next one is taken,
// so that what is sent twice is taken once. Those that were taken and not sealed when the
// lead is lost are forgotten: the new leader gets them from where they came from.
type proposing struct {
	origin uint64
	term   uint64 // the term that the rest is about
	open   bool   // an entry of term was applied here

	own     [][]byte // neither applied nor dead
	settled uint64   // how many were applied since open: own[0] has the number settled+1
	sent    int      // how many of own were handed over in this term
	acked   int      // how many of those the leader said that it has
	patient int      // ticks since the leader last took some

	foreign [][]byte // those of peers, and volatile ones, to be sealed
	from    map[uint64]*intake
	turn    bool // whether foreign ones go first into the next entry
}

// intake is what a leader remembers of a peer in a term.
type intake struct {
	origin uint64
	next   uint64
	told   uint64   // up to which it was told
	past   []uint64 // origins of earlier lives of the peer
}

func newProposing(origin uint64) proposing {
	return proposing{origin: origin, from: map[uint64]*intake{}}
}

// begin forgets what belongs to an earlier term.
func (p *proposing) begin(term uint64) {
	p.term, p.open, p.settled, p.sent, p.acked, p.patient = term, false, 0, 0, 0, 0
	p.lose()
	clear(p.from)
}

// lose forgets what was taken of peers, as the lead is lost.
func (p *proposing) lose() {
	clear(p.foreign)
	p.foreign = p.foreign[:0]
}

// restart forgets all own proposals: their fate is not known here any more.
func (p *proposing) restart(origin uint64) {
	p.origin, p.own, p.settled, p.sent, p.acked = origin, nil, 0, 0, 0
}

// settle takes note that the first n of own were applied.
func (p *proposing) settle(n int) error {
	if n == 0 {
		return nil
	}
	if n > len(p.own) {
		return fmt.Errorf("replica: the machine met %d proposals of this process, only %d were waiting", n, len(p.own))
	}
	clear(p.own[:n])
	p.own = p.own[n:]
	p.settled += uint64(n)
	p.sent, p.acked = max(0, p.sent-n), max(0, p.acked-n)
	p.patient = 0
	if len(p.own) == 0 {
		p.own = nil // lets go of the array behind a burst
	}
	return nil
}

// waiting is how many proposals are ready to be sealed here.
func (p *proposing) waiting() int { return len(p.own) - p.sent + len(p.foreign) }

// next appends to dst the proposals for the next entry, up to count and bytes but at least
// one if there is any: this member's and the others' take turns in who goes first.
func (p *proposing) next(dst [][]byte, count, bytes int) [][]byte {
	p.turn = !p.turn
	for round := range 2 {
		if (round == 0) == p.turn {
			n := fitting(p.foreign, count-len(dst), &bytes, len(dst) == 0)
			dst = append(dst, p.foreign[:n]...)
			clear(p.foreign[:n])
			if p.foreign = p.foreign[n:]; len(p.foreign) == 0 {
				p.foreign = nil
			}
			continue
		}
		n := fitting(p.own[p.sent:], count-len(dst), &bytes, len(dst) == 0)
		dst = append(dst, p.own[p.sent:p.sent+n]...)
		p.sent += n
	}
	return dst
}

// fitting returns how many of the first of list there is room for, and takes the room.
func fitting(list [][]byte, count int, bytes *int, first bool) int {
	n := 0
	for n < min(count, len(list)) && (first && n == 0 || len(list[n]) <= *bytes) {
		*bytes -= len(list[n])
		n++
	}
	return n
}

// forward returns the next proposals for the leader, nil if all were sent.
func (p *proposing) forward() *proposals {
	if p.sent == len(p.own) {
		return nil
	}
	bytes := forwardBytes
	n := fitting(p.own[p.sent:], forwardCount, &bytes, true)
	f := &proposals{term: p.term, origin: p.origin, first: p.settled + uint64(p.sent) + 1, list: p.own[p.sent : p.sent+n]}
	p.sent += n
	return f
}

// again makes forward start behind what the leader is known to have.
func (p *proposing) again() { p.sent, p.patient = p.acked, 0 }

// accepted takes the leader's answer.
func (p *proposing) accepted(a accepted) {
	if a.term != p.term || a.origin != p.origin {
		return
	}
	if has := int64(a.last - p.settled); has > int64(p.acked) && has <= int64(p.sent) {
		p.acked, p.patient = int(has), 0
	}
	if a.again {
		p.again()
	}
}

// tick lets time pass on a member that forwards.
func (p *proposing) tick() {
	if p.sent == p.acked {
		p.patient = 0
		return
	}
	if p.patient++; p.patient > forwardPatience {
		p.again()
	}
}

// take takes proposals of a peer on the leader. room is how many bytes may be taken. The
// answer need not be given at once, unless it asks for some again.
func (p *proposing) take(peer uint64, f *proposals, room int) accepted {
	in := p.from[peer]
	if in == nil {
		in = &intake{origin: f.origin, next: 1}
		p.from[peer] = in
	}
	if in.origin != f.origin {
		for _, old := range in.past {
			if old == f.origin {
				return accepted{} // of a process that is gone
			}
		}
		*in = intake{origin: f.origin, next: 1, past: append(in.past, in.origin)}
	}
	a := accepted{term: f.term, origin: f.origin}
	for i, one := range f.list {
		number := f.first + uint64(i)
		if number < in.next {
			continue
		}
		if room -= len(one); number > in.next || room < 0 {
			a.again = number > in.next
			break
		}
		p.foreign = append(p.foreign, one)
		in.next++
	}
	a.last = in.next - 1
	return a
}

// taken calls tell with the answers for peers of which something was taken since the last
// call, in order, for a simulation to be able to repeat what it did.
func (p *proposing) taken(tell func(peer uint64, a accepted)) {
	for _, peer := range slices.Sorted(maps.Keys(p.from)) {
		if in := p.from[peer]; in.next-1 > in.told {
			in.told = in.next - 1
			tell(peer, accepted{term: p.term, origin: in.origin, last: in.told})
		}
	}
}
