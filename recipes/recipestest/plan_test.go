package recipestest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// everyVerb are all of them.
func everyVerb() (all []Verb) {
	for v := VerbCutAfterCommit; v < verbs; v++ {
		all = append(all, v)
	}
	return all
}

// Goal: a plan is the same for the same seed, another for another, and its line reads
// back. Method: plans of all verbs; lines that are wrong.
func TestPlanLine(t *testing.T) {
	o := PlanOptions{Peers: 3, Length: 5 * time.Minute, Verbs: everyVerb()}
	p := NewPlan(7, o)
	if p.String() != NewPlan(7, o).String() || p.String() == NewPlan(8, o).String() {
		t.Error("plans are not a function of the seed")
	}
	if n := len(p.Steps); n < 200 || n > 400 {
		t.Errorf("%d faults in 5 minutes with a mean gap of 1 s", n)
	}
	used := make(map[Verb]bool)
	for _, s := range p.Steps {
		used[s.Verb] = true
	}
	if len(used) != len(everyVerb()) {
		t.Errorf("only these verbs were used: %v", used)
	}
	again, err := ParsePlan(p.String())
	if err != nil || again.String() != p.String() || !slices.Equal(again.Steps, p.Steps) || again.Seed != 7 {
		t.Errorf("read back as %v (%v)\nwas %v", again, err, p)
	}
	for _, bad := range []string{"x", "seed=-1", "1s:0.none()", "1s:0.brake()", "1s:0.break(1s)", "1s:0.hold(1s)", "1s:0.partition()",
		"1s:x.break()", "1:0.break()", "1s:0.hold(none,1s)", "1s:0.break"} {
		if _, err := ParsePlan(bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q was read (%v)", bad, err)
		}
	}
}

// script is a peer that notes what is done to it.
type script struct {
	began time.Time
	mu    sync.Mutex // expiries are played beside the rest
	lines []string
}

func (s *script) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprint(time.Since(s.began), " ", fmt.Sprintf(format, args...)))
}

func (s *script) peer() *Peer {
	return &Peer{
		CutBeforeSend: func(k OpKind) <-chan struct{} { s.note("cut %v", k); return nil },
		Hold: func(k OpKind) (<-chan struct{}, func()) {
			s.note("hold %v", k)
			return nil, func() { s.note("release") }
		},
		Disarm:    func() { s.note("disarm") },
		Break:     func() { s.note("break") },
		Partition: func() { s.note("partition") },
		Heal:      func() { s.note("heal") },
		Delay:     func(d time.Duration) { s.note("delay %v", d) },
		JumpWall:  func(d time.Duration) { s.note("jump %v", d) },
		Pause:     func() func() { s.note("pause"); return func() { s.note("resume") } },
		Expire: func(testing.TB) {
			s.note("expire")
			time.Sleep(10 * time.Second)
			s.note("expired")
		},
	}
}

// Goal: a plan is played at its times; faults of a kind that overlap end with the last, and none stays armed;
// what the peer does not have is left out, and so is an expiry during another one.
// Method: a peer that notes, in fake time.
func TestPlanRun(t *testing.T) {
	p, err := ParsePlan(`1s:0.partition(5s) 2s:0.delay(100ms,1s) 2s:0.hold(set,500ms) 3s:0.partition(1s) 3500ms:0.move()
		4s:0.partition(4s) 5s:0.expire() 6s:0.expire() 6s:0.jumpWall(-2s) 7s:1.break() 7s:0.cutBeforeSend(anyWrite) 8s:0.pause(1s) 9s:0.break()`)
	if err != nil {
		t.Fatal(err)
	}
	want := `1s partition, 2s delay 100ms, 2s hold set, 2.5s release, 3s delay 0s, 3s partition, 4s partition, 5s expire, ` +
		`6s jump -2s, 7s cut anyWrite, 8s heal, 8s pause, 9s resume, 9s break, 15s expired, 15s disarm`
	synctest.Test(t, func(t *testing.T) {
		s := &script{began: time.Now()}
		p.Run(t.Context(), t, Harness{}, []*Peer{s.peer()})
		if got := strings.Join(s.lines, ", "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if d := p.Length(); d != 9*time.Second {
			t.Errorf("length %v, want 9s", d)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := &script{began: time.Now()}
		ctx, cancel := context.WithTimeout(t.Context(), 2200*time.Millisecond)
		defer cancel()
		p.Run(ctx, t, Harness{}, []*Peer{s.peer()})
		got := strings.Join(s.lines, ", ")
		if want := "1s partition, 2s delay 100ms, 2s hold set, 2.2s release, 2.2s delay 0s, 2.2s heal, 2.2s disarm"; got != want {
			t.Errorf("with an end: got %s\nwant %s", got, want)
		}
	})
}

// Goal: a plan repeats exactly. Method: a random one on the fake twice, with a client
// that works meanwhile; what it sees, and when, must be the same.
func TestPlanRepeats(t *testing.T) {
	run := func() (lines []string) {
		h := FakeHarness(FakeOptions{Exact: true, Members: 3, Seed: 5})
		h.Run(t, func(t *testing.T) {
			p := h.Open(t)
			plan := NewPlan(5, PlanOptions{Length: 30 * time.Second, Verbs: Verbs(h, p)})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				plan.Run(ctx, t, h, []*Peer{p})
			}()
			began := time.Now()
			for time.Since(began) < 30*time.Second {
				call, stop := context.WithTimeout(ctx, time.Second)
				_, _, err := p.Store.Get(call, "/")
				stop()
				lines = append(lines, fmt.Sprint(time.Since(began), err))
				time.Sleep(100 * ms)
			}
			cancel()
			<-done
		})
		return lines
	}
	if first, second := run(), run(); !slices.Equal(first, second) || len(first) < 50 {
		t.Errorf("two runs of one plan differ:\n%v\n%v", first, second)
	}
}

// Goal: shrinking finds the few faults that matter and stops in any case.
// Method: plans that fail with two certain steps in this order, with one, and always.
func TestPlanShrink(t *testing.T) {
	p := NewPlan(3, PlanOptions{Peers: 3, Length: 2 * time.Minute, Verbs: everyVerb()})
	one, two := p.Steps[10], p.Steps[90]
	runs := 0
	both := func(q Plan) bool {
		runs++
		at := slices.Index(q.Steps, one)
		return at >= 0 && slices.Contains(q.Steps[at:], two)
	}
	if got := Shrink(p, both); !slices.Equal(got.Steps, []Step{one, two}) || got.Seed != 3 {
		t.Errorf("shrunk to %v, want %v and %v", got, one, two)
	}
	if runs > maxShrinkRuns {
		t.Errorf("%d runs", runs)
	}
	if got := Shrink(p, func(Plan) bool { return true }); len(got.Steps) != 0 {
		t.Errorf("a plan that always fails was shrunk to %v", got)
	}
	if got := Shrink(p, func(q Plan) bool { return len(q.Steps) == len(p.Steps) }); len(got.Steps) != len(p.Steps) {
		t.Errorf("a plan of which nothing can be left out was shrunk to %d of %d", len(got.Steps), len(p.Steps))
	}
}
