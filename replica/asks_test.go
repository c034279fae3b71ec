package replica

import (
	"errors"
	"testing"
)

// Goal: barriers share requests, wait for the index that was confirmed to them, ignore
// answers to requests that were renewed, and fail when nobody answers. Method: the
// steps of the loop, by hand.
func TestAsks(t *testing.T) {
	b := newAsks(1)
	var got []error
	wait := func() { b.next.done = append(b.next.done, func(err error) { got = append(got, err) }) }
	expect := func(n int) {
		t.Helper()
		if len(got) != n {
			t.Fatalf("%d barriers were answered, want %d", len(got), n)
		}
	}
	if b.request(false) != nil || !b.idle() {
		t.Fatal("a request for nobody")
	}
	wait()
	wait()
	first := b.request(false)
	wait()
	if first == nil || b.request(false) != nil {
		t.Fatal("not exactly one request is outstanding")
	}
	second := b.renew()
	b.confirm(first, 1)
	b.release(10)
	expect(0)
	b.confirm(second, 12)
	third := b.request(false)
	if third == nil || string(third) == string(second) || string(second) == string(first) {
		t.Fatal("contexts are not unique")
	}
	b.release(11)
	expect(0)
	b.release(12)
	expect(2)
	for range askAgeMax {
		b.tick()
		expect(2)
	}
	b.tick()
	expect(3)
	if got[0] != nil || got[1] != nil || !errors.Is(got[2], ErrNoLeader) {
		t.Fatalf("answers %v", got)
	}
	b.confirm(third, 1)
	wait()
	b.end(ErrStopped)
	expect(4)
	if !errors.Is(got[3], ErrStopped) || !b.idle() {
		t.Fatalf("answers %v", got)
	}
}

// Goal: a question over a link that is slower than the first wait is answered, though answers to
// what was sent before the last time do not count. Method: each sending is answered after five ticks.
func TestAskOverASlowLink(t *testing.T) {
	b := newAsks(1)
	var err error
	answered := false
	b.next.done = append(b.next.done, func(e error) { answered, err = true, e })
	type answer struct {
		ctx []byte
		due int
	}
	onTheWay := []answer{{b.request(false), 5}}
	for tick := 1; !answered && tick <= 2*askAgeMax; tick++ {
		for _, a := range onTheWay {
			if a.due == tick {
				b.confirm(a.ctx, 0)
			}
		}
		b.release(0)
		if b.tick() {
			onTheWay = append(onTheWay, answer{b.renew(), tick + 5})
		}
	}
	if !answered || err != nil {
		t.Errorf("answered %v, %v", answered, err)
	}
}
