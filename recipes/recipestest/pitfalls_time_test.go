package recipestest

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Goal: Check is right where timers are late. Method: in real time and on one processor,
// which others keep busy, a holder that gets no answers checks all the time.
func TestP42CheckOnBusyProcessor(t *testing.T) {
	f := NewFake(FakeOptions{Exact: true, Timeout: 500 * time.Millisecond})
	p := f.Open(t)
	held, err := mutexAt(t, p.Store, "/busy").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var stop atomic.Bool
	var busy sync.WaitGroup
	p.Partition()
	last := held.Deadline() // what was under way may move it; nothing can later
	for range 4 {
		busy.Go(func() {
			for !stop.Load() { // takes its whole time slice
			}
		})
	}
	for begun := time.Now(); held.Check() == nil; begun = time.Now() {
		if now := held.Deadline(); now.After(last) && begun.Before(last) {
			last = now
		}
		if begun.After(last.Add(time.Millisecond)) {
			t.Errorf("Check passed %v after the deadline", begun.Sub(last))
			break
		}
	}
	stop.Store(true)
	busy.Wait()
	p.Heal()
}

// Goal: Check can be called before every action. Method: it and CheckFor allocate nothing,
// held or not.
func TestCheckAllocatesNothing(t *testing.T) {
	held, err := mutexAt(t, NewFake(FakeOptions{Exact: true}).Open(t).Store, "/check").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		if err := held.Check(); err != nil {
			t.Error(err)
		}
		if err := held.CheckFor(time.Second); err != nil {
			t.Error(err)
		}
	}
	if n := testing.AllocsPerRun(1000, check); n != 0 {
		t.Errorf("%v allocations while it is held", n)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() { _ = held.Check() }); n != 0 {
		t.Errorf("%v allocations when it is over", n)
	}
}
