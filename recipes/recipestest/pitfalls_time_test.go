package recipestest

import (
	"runtime"
	"testing"
	"time"
)

// Goal: Check is right where timers are late. Method: in real time and on one processor,
// three holders in turn get no answers and keep it busy with their checks, so that a timer
// can only run when one of them is interrupted.
func TestP42CheckOnBusyProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for range 3 {
		p := NewFake(FakeOptions{Exact: true, Timeout: 300 * time.Millisecond}).Open(t)
		held, err := mutexAt(t, p.Store, "/busy").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.Partition()
		last := held.Deadline() // what was under way may move it; nothing can later
		for begun := time.Now(); held.Check() == nil; begun = time.Now() {
			if now := held.Deadline(); now.After(last) && begun.Before(last) {
				last = now
			}
			if begun.After(last.Add(time.Millisecond)) {
				t.Errorf("Check passed %v after the deadline", begun.Sub(last))
				break
			}
		}
		p.Heal()
	}
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
