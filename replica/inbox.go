package replica

import "sync"

// barriersMax bounds the calls of Barrier that wait.
const barriersMax = 1 << 16

// inbox is how everybody reaches the loop goroutine.
type inbox struct {
	// wake holds a token if there may be something to take.
	wake chan struct{}
	mu   struct {
		sync.Mutex
		proposals [][]byte // those before taken are gone
		taken     int
		bytes     int // of proposals
		bytesMax  int
		barriers  []func(error)
		done      []completion
		closed    bool // nothing more is accepted but completions
		failed    bool // and the loop is to end at once
	}
}

// completion says that an append or apply job is carried out.
type completion struct {
	append *appendJob
	apply  *applyJob
}

// work is what the loop took out of its inbox in one go.
type work struct {
	proposals      [][]byte
	barriers       []func(error)
	done           []completion
	closed, failed bool
}

func (w *work) empty() bool { return len(w.proposals)+len(w.barriers)+len(w.done) == 0 }

// reset forgets the content but keeps the memory.
func (w *work) reset() {
	clear(w.proposals)
	clear(w.barriers)
	clear(w.done)
	*w = work{proposals: w.proposals[:0], barriers: w.barriers[:0], done: w.done[:0]}
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *inbox) propose(proposals [][]byte) error {
	n := 0
	for _, p := range proposals {
		n += len(p)
	}
	b.mu.Lock()
	switch {
	case b.mu.closed:
		b.mu.Unlock()
		return ErrStopped
	case b.mu.bytes+n > b.mu.bytesMax:
		b.mu.Unlock()
		return ErrBusy
	}
	b.mu.proposals = append(b.mu.proposals, proposals...)
	b.mu.bytes += n
	b.mu.Unlock()
	b.signal()
	return nil
}

func (b *inbox) barrier(done func(error)) error {
	b.mu.Lock()
	switch {
	case b.mu.closed:
		b.mu.Unlock()
		return ErrStopped
	case len(b.mu.barriers) >= barriersMax:
		b.mu.Unlock()
		return ErrBusy
	}
	b.mu.barriers = append(b.mu.barriers, done)
	b.mu.Unlock()
	b.signal()
	return nil
}

func (b *inbox) complete(c completion) {
	b.mu.Lock()
	b.mu.done = append(b.mu.done, c)
	b.mu.Unlock()
	b.signal()
}

// close ends input; failed ends the loop as well.
func (b *inbox) close(failed bool) {
	b.mu.Lock()
	b.mu.closed = true
	b.mu.failed = b.mu.failed || failed
	b.mu.Unlock()
	b.signal()
}

// waiting returns the number of proposals that wait.
func (b *inbox) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.mu.proposals) - b.mu.taken
}

// take moves what waits into w, which is empty: of the proposals only the first, up
// to countMax of them and sizeMax bytes, but at least one unless countMax is 0.
func (b *inbox) take(w *work, countMax, sizeMax int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.barriers, b.mu.barriers = b.mu.barriers, w.barriers
	w.done, b.mu.done = b.mu.done, w.done
	w.closed, w.failed = b.mu.closed, b.mu.failed
	queue := b.mu.proposals[b.mu.taken:]
	n, size := 0, 0
	for n < min(countMax, len(queue)) && (n == 0 || size+len(queue[n]) <= sizeMax) {
		size += len(queue[n])
		n++
	}
	w.proposals = append(w.proposals, queue[:n]...)
	clear(queue[:n])
	b.mu.bytes -= size
	b.mu.taken += n
	if b.mu.taken*2 >= len(b.mu.proposals) { // keep the array small, at constant cost
		left := copy(b.mu.proposals, b.mu.proposals[b.mu.taken:])
		clear(b.mu.proposals[left:])
		b.mu.proposals, b.mu.taken = b.mu.proposals[:left], 0
	}
}
