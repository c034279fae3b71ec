package replica

import "sync"

const (
	// barriersMax bounds the calls of Barrier that wait.
	barriersMax = 1 << 16
	// framesBytesMax is from how many bytes of frames on their readers wait.
	framesBytesMax = 64 << 20
)

// inbox is how everybody reaches the loop goroutine.
type inbox struct {
	// wake holds a token if there may be something to take.
	wake chan struct{}
	mu   struct {
		sync.Mutex
		work
		bytes, bytesMax int // of proposals that are not applied yet
		framesBytes     int
		room            *sync.Cond // for frames
	}
}

// work is what the loop took out of its inbox in one go.
type work struct {
	proposals [][]byte
	volatile  []volatile
	frames    []inbound
	barriers  []func(error)
	done      []completion
	tasks     []func()
	closed    bool // nothing more is accepted but completions
	failed    bool // and the loop is to end at once
}

// completion says that an append or apply job is carried out.
type completion struct {
	append *appendJob
	apply  *applyJob
}

// volatile is a proposal that is only good for one term.
type volatile struct {
	term uint64
	data []byte
}

// inbound is a frame of a peer.
type inbound struct {
	from uint64
	kind byte
	body any
	size int
}

func (w *work) empty() bool {
	return len(w.proposals)+len(w.volatile)+len(w.frames)+len(w.barriers)+len(w.done)+len(w.tasks) == 0
}

// reset forgets the content but keeps the memory.
func (w *work) reset() {
	clear(w.proposals)
	clear(w.volatile)
	clear(w.frames)
	clear(w.barriers)
	clear(w.done)
	clear(w.tasks)
	*w = work{proposals: w.proposals[:0], volatile: w.volatile[:0], frames: w.frames[:0], barriers: w.barriers[:0],
		done: w.done[:0], tasks: w.tasks[:0]}
}

func (b *inbox) init(bytesMax int) {
	b.wake = make(chan struct{}, 1)
	b.mu.bytesMax = bytesMax
	b.mu.room = sync.NewCond(&b.mu)
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

// settled takes n bytes of proposals off the account, as they were applied.
func (b *inbox) settled(n int) {
	b.mu.Lock()
	b.mu.bytes -= n
	b.mu.Unlock()
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

// frame queues a frame of a peer; it waits while too much waits already. The caller pokes the
// loop.
func (b *inbox) frame(f inbound) {
	b.mu.Lock()
	for b.mu.framesBytes > framesBytesMax && !b.mu.closed {
		b.mu.room.Wait()
	}
	if !b.mu.failed {
		b.mu.frames = append(b.mu.frames, f)
		b.mu.framesBytes += f.size
	}
	b.mu.Unlock()
}

// complete queues the end of a job. The caller pokes the loop.
func (b *inbox) complete(c completion) {
	b.mu.Lock()
	b.mu.done = append(b.mu.done, c)
	b.mu.Unlock()
}

// task lets the loop run f. False: the member is closed, f does not run.
func (b *inbox) task(f func()) bool {
	return b.put(func(w *work) { w.tasks = append(w.tasks, f) })
}

// put changes what waits, unless the member is closed.
func (b *inbox) put(change func(*work)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.closed {
		return false
	}
	change(&b.mu.work)
	b.signal()
	return true
}

// restart forgets the proposals that wait, and lets the loop run f before it takes those
// that come from now on.
func (b *inbox) restart(f func()) {
	b.put(func(w *work) {
		for _, p := range w.proposals {
			b.mu.bytes -= len(p)
		}
		clear(w.proposals)
		w.proposals = w.proposals[:0]
		w.tasks = append(w.tasks, f)
	})
}

// close ends input; failed ends the loop as well.
func (b *inbox) close(failed bool) {
	b.mu.Lock()
	b.mu.closed = true
	b.mu.failed = b.mu.failed || failed
	b.mu.room.Broadcast()
	b.mu.Unlock()
	b.signal()
}

// waiting returns the number of proposals that wait.
func (b *inbox) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.mu.proposals)
}

// take swaps what waits with w, which is empty.
func (b *inbox) take(w *work) {
	b.mu.Lock()
	defer b.mu.Unlock()
	closed, failed := b.mu.closed, b.mu.failed
	*w, b.mu.work = b.mu.work, *w
	w.closed, w.failed = closed, failed
	b.mu.closed, b.mu.failed = closed, failed
	if b.mu.framesBytes > framesBytesMax {
		b.mu.room.Broadcast()
	}
	b.mu.framesBytes = 0
}
