package replica

import (
	"errors"
	"testing"
)

// Goal: barriers share requests, wait for the index that was confirmed to them, ignore
// answers to requests that were renewed, and fail when nobody answers. Method: the
// steps of the loop, by hand.
func TestBarriers(t *testing.T) {
	b := newBarriers(1)
	var got []error
	wait := func() { b.next = append(b.next, func(err error) { got = append(got, err) }) }
	expect := func(n int) {
		t.Helper()
		if len(got) != n {
			t.Fatalf("%d barriers were answered, want %d", len(got), n)
		}
	}
	if b.request() != nil || !b.empty() {
		t.Fatal("a request for nobody")
	}
	wait()
	wait()
	first := b.request()
	wait()
	if first == nil || b.request() != nil {
		t.Fatal("not exactly one request is outstanding")
	}
	second := b.renew()
	b.confirm(first, 1)
	b.release(10)
	expect(0)
	b.confirm(second, 12)
	third := b.request()
	if third == nil || string(third) == string(second) || string(second) == string(first) {
		t.Fatal("contexts are not unique")
	}
	b.release(11)
	expect(0)
	b.release(12)
	expect(2)
	for range electionTicks {
		b.tick(electionTicks)
		expect(2)
	}
	b.tick(electionTicks)
	expect(3)
	if got[0] != nil || got[1] != nil || !errors.Is(got[2], ErrNoLeader) {
		t.Fatalf("answers %v", got)
	}
	b.confirm(third, 1)
	wait()
	b.end(ErrStopped)
	expect(4)
	if !errors.Is(got[3], ErrStopped) || !b.empty() {
		t.Fatalf("answers %v", got)
	}
}
