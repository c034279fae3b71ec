package replica

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
)

// barriers are the calls of Barrier that wait. All that wait together share one read
// request, and only one is outstanding. The loop goroutine owns it.
type barriers struct {
	id, start, n uint64 // make contexts unique over members, restarts and requests
	next         []func(error)
	asked        []func(error) // by the request with context ctx
	ctx          []byte
	age          int         // of the request, in ticks
	confirmed    []confirmed // by index
}

// confirmed are calls whose read index is known.
type confirmed struct {
	index uint64
	done  []func(error)
}

func newBarriers(id uint64) barriers {
	var start [8]byte
	rand.Read(start[:]) // never fails
	return barriers{id: id, start: binary.BigEndian.Uint64(start[:])}
}

// request returns the context of a new read request, nil if none is needed now.
func (b *barriers) request() []byte {
	if len(b.asked) > 0 || len(b.next) == 0 {
		return nil
	}
	b.asked, b.next = b.next, nil
	b.age = 0
	return b.renew()
}

// renew returns a new context for the calls whose request may have been lost.
func (b *barriers) renew() []byte {
	if len(b.asked) == 0 {
		return nil
	}
	b.n++
	b.ctx = appendReadContext(nil, b.id, b.start, b.n)
	return b.ctx
}

// confirm takes the answer to a request; answers to earlier contexts are dropped.
func (b *barriers) confirm(ctx []byte, index uint64) {
	if len(b.asked) == 0 || !bytes.Equal(ctx, b.ctx) {
		return
	}
	b.confirmed = append(b.confirmed, confirmed{index, b.asked})
	b.asked = nil
}

// release answers the calls that waited for entries up to applied.
func (b *barriers) release(applied uint64) {
	n := 0
	for ; n < len(b.confirmed) && b.confirmed[n].index <= applied; n++ {
		call(b.confirmed[n].done, nil)
	}
	b.confirmed = append(b.confirmed[:0], b.confirmed[n:]...)
}

// tick lets time pass; calls that nobody confirmed within ageMax ticks fail.
func (b *barriers) tick(ageMax int) {
	if len(b.asked) == 0 {
		return
	}
	if b.age++; b.age > ageMax {
		call(b.asked, ErrNoLeader)
		b.asked = nil
	}
}

// end answers everything with err.
func (b *barriers) end(err error) {
	for _, c := range b.confirmed {
		call(c.done, err)
	}
	call(b.asked, err)
	call(b.next, err)
	b.confirmed, b.asked, b.next = nil, nil, nil
}

func (b *barriers) empty() bool { return len(b.confirmed)+len(b.asked)+len(b.next) == 0 }

func call(done []func(error), err error) {
	for _, f := range done {
		f(err)
	}
}
