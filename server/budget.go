package server

import (
	"container/list"
	"sync"
)

// budget bounds what all connections together have outstanding: a number of requests,
// and the sum of their bytes. Safe for concurrent use. Whoever holds nothing may exceed
// the number, and one the sum if nothing else is held, so that nothing waits forever.
type budget struct {
	mu       sync.Mutex
	room     *sync.Cond // waited on for bytes
	held     int64
	max      int64
	count    int64
	maxCount int64
	waiting  list.List // of *share, for a lower count; the first in line first
}

// share is one connection's part of a budget, whose lock guards it.
type share struct {
	count int64
	// turn is closed when the connection's reader should look again, and place is where it
	// stands in line; nil if it does not wait.
	turn  chan struct{}
	place *list.Element
	// over is set once the connection ends: it waits for nothing any more.
	over bool
}

func newBudget(maxCount, maxBytes int64) *budget {
	b := &budget{max: maxBytes, maxCount: maxCount}
	b.room = sync.NewCond(&b.mu)
	return b
}

// smallRequest is up to what size a request does not wait for room: so that heartbeats
// and closes get through beside large writes. Their number is bounded per connection.
const smallRequest = 1 << 10

// fullLocked is ZooKeeper's rule: a connection that has a request already is not read
// while there are as many as may be.
func (b *budget) fullLocked(of *share) bool {
	return b.count >= b.maxCount && of.count > 0 && !of.over
}

// tooLargeLocked reports whether there is no room for n bytes.
func (b *budget) tooLargeLocked(n int64) bool {
	return n > smallRequest && b.held > 0 && b.held+n > b.max
}

func (b *budget) takeLocked(n int64, of *share) {
	b.held += n
	b.count++
	of.count++
}

// tryAcquire is acquire if it need not wait, else false.
func (b *budget) tryAcquire(n int64, of *share) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fullLocked(of) || b.tooLargeLocked(n) {
		return false
	}
	b.takeLocked(n, of)
	return true
}

// acquire takes a request of n bytes. It waits while the count is full, and then until
// there is room for the bytes unless they are few.
func (b *budget) acquire(n int64, of *share) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.fullLocked(of) {
		turn := make(chan struct{})
		of.turn, of.place = turn, b.waiting.PushBack(of)
		b.mu.Unlock()
		<-turn
		b.mu.Lock()
	}
	for b.tooLargeLocked(n) {
		b.room.Wait()
	}
	b.takeLocked(n, of)
}

// release gives a request of n bytes back.
func (b *budget) release(n int64, of *share) {
	b.mu.Lock()
	defer b.mu.Unlock()
	full := b.held >= b.max/2
	b.held -= n
	b.count--
	of.count--
	if full {
		b.room.Broadcast()
	}
	if of.count == 0 {
		b.wakeLocked(of)
	}
	// Whoever takes the place before the one that is woken sends it to the end of the line,
	// and gives a place back in its time.
	if first := b.waiting.Front(); first != nil && b.count < b.maxCount {
		b.wakeLocked(first.Value.(*share))
	}
}

// abandon lets whoever waits on behalf of a connection that ends go on.
func (b *budget) abandon(of *share) {
	b.mu.Lock()
	defer b.mu.Unlock()
	of.over = true
	b.wakeLocked(of)
}

// wakeLocked lets a reader look again, if it waits.
func (b *budget) wakeLocked(of *share) {
	if of.turn == nil {
		return
	}
	close(of.turn)
	b.waiting.Remove(of.place)
	of.turn, of.place = nil, nil
}

// now returns how much is held, by how many.
func (b *budget) now() (held, count int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held, b.count
}
