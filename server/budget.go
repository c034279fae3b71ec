package server

import "sync"

// budget bounds a sum. Safe for concurrent use. One acquisition may exceed the bound
// if nothing else is held, so that nothing waits forever.
type budget struct {
	mu    sync.Mutex
	room  *sync.Cond
	held  int64
	count int64
	max   int64
}

func newBudget(max int64) *budget {
	b := &budget{max: max}
	b.room = sync.NewCond(&b.mu)
	return b
}

// smallRequest is up to what size a request does not wait for room: so that heartbeats
// and closes get through beside large writes. Their number is bounded per connection.
const smallRequest = 1 << 10

// acquire takes n, waiting until there is room unless it is little.
func (b *budget) acquire(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n > smallRequest && b.held > 0 && b.held+n > b.max {
		b.room.Wait()
	}
	b.held += n
	b.count++
}

// release gives n back.
func (b *budget) release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	full := b.held >= b.max/2
	b.held -= n
	b.count--
	if full {
		b.room.Broadcast()
	}
}

// now returns how much is held, by how many.
func (b *budget) now() (held, count int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held, b.count
}
