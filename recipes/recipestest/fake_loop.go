package recipestest

import (
	"container/heap"
	"time"
)

// loop runs what is due: every message, timer and expiry of a fake is one event. There
// is a goroutine as long as somebody uses the fake. All but its methods retain and
// release is for whoever holds the fake's lock.
type loop struct {
	base    time.Time
	events  eventHeap
	seq     uint64
	users   int
	kick    chan struct{} // an earlier event came
	stop    chan struct{}
	stopped chan struct{}
}

type event struct {
	at  time.Duration // since base
	seq uint64        // order among those at the same time
	run func()        // under the fake's lock
}

// now returns the monotonic time since the fake was made.
func (l *loop) now() time.Duration { return time.Since(l.base) }

// at runs f at t, or as soon as possible.
func (l *loop) at(t time.Duration, f func()) {
	l.seq++
	heap.Push(&l.events, event{at: t, seq: l.seq, run: f})
	if l.kick != nil && l.events[0].seq == l.seq {
		select {
		case l.kick <- struct{}{}:
		default:
		}
	}
}

// after runs f when d has passed.
func (l *loop) after(d time.Duration, f func()) { l.at(l.now()+d, f) }

// retain keeps the loop running until release.
func (f *Fake) retain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users++; f.users > 1 {
		return
	}
	f.kick, f.stop, f.stopped = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go f.run(f.kick, f.stop, f.stopped)
}

// release ends the loop if nobody uses it any more, and waits for that.
func (f *Fake) release() {
	f.mu.Lock()
	f.users--
	last, stop, stopped := f.users == 0, f.stop, f.stopped
	if last {
		f.kick = nil
		close(stop)
	}
	f.mu.Unlock()
	if last {
		<-stopped
	}
}

func (f *Fake) run(kick, stop, stopped chan struct{}) {
	defer close(stopped)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(f.runDue())
		select {
		case <-timer.C:
		case <-kick:
		case <-stop:
			return
		}
	}
}

// runDue runs all events that are due and returns the time until the next.
func (f *Fake) runDue() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.events) > 0 {
		if wait := f.events[0].at - f.now(); wait > 0 {
			return wait
		}
		heap.Pop(&f.events).(event).run()
	}
	return time.Hour
}

// eventHeap is a container/heap by time and order.
type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *eventHeap) Push(x any) { *h = append(*h, x.(event)) }

// Pop implements heap.Interface.
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}
