package differ

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// Tester plays sequences on two servers. Any number of goroutines may use it. Its fields
// are not changed after the first use.
type Tester struct {
	// Left and Right are the servers, host:port. Right may differ as Deliberate says.
	Left, Right string
	// Name begins the names of the znodes below which it plays. No two Testers of one
	// server have the same.
	Name string

	plays    atomic.Int64
	requests atomic.Int64
	frames   atomic.Int64

	mu        sync.Mutex
	explained map[string]int
}

// Mismatch is the error of a sequence on which the servers differ.
type Mismatch struct {
	Seed  uint64
	Steps []Step // the shortest that was found, or the last of those that differed only once
	// Found is at which step of the whole sequence they differed, At at which of Steps; What
	// is in what, Left and Right what they sent.
	Found, At   int
	What        string
	Left, Right string
}

// Error tells the whole sequence.
func (m *Mismatch) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, step %d: %s\n", m.Seed, m.Found, m.What)
	for i, s := range m.Steps {
		mark := " "
		if i == m.At {
			mark = ">"
		}
		fmt.Fprintf(&b, "%s %3d  %v\n", mark, i, s)
	}
	fmt.Fprintf(&b, "left:  %s\nright: %s", m.Left, m.Right)
	return b.String()
}

// Run plays the sequence of a seed on both servers. Its error is a *Mismatch if they
// differ, with the sequence shrunk.
func (t *Tester) Run(ctx context.Context, seed uint64, requests int) error {
	steps := Generate(seed, requests)
	m, err := t.Play(ctx, steps)
	if m == nil || err != nil {
		return err
	}
	m.Seed, m.Found = seed, m.At
	fails := func(less []Step) bool {
		n, err := t.Play(ctx, less)
		return err == nil && n != nil
	}
	short := steps
	if first := steps[:min(m.At+1, len(steps))]; fails(first) {
		short = first
	}
	if shorter, err := t.Play(ctx, shrink(short, fails)); err == nil && shorter != nil {
		shorter.Seed, shorter.Found = seed, m.Found
		return shorter
	}
	m.What += " (only once)"
	m.Steps, m.At = steps[max(0, m.At-20):min(m.At+1, len(steps))], min(m.At, 20)
	return m
}

// Play plays steps on both servers and returns in what they differ first, nil if in
// nothing. The error is for what is no answer: a server that cannot be reached or is
// silent.
func (t *Tester) Play(ctx context.Context, steps []Step) (*Mismatch, error) {
	root := fmt.Sprintf("/%s-%d/root", t.Name, t.plays.Add(1))
	var right *Transcript
	var rightErr error
	var wg sync.WaitGroup
	wg.Go(func() { right, rightErr = play(ctx, t.Right, root, steps) })
	left, leftErr := play(ctx, t.Left, root, steps)
	wg.Wait()
	c := comparer{left: left, right: right, explained: map[string]int{}}
	at, what := c.compare()
	t.account(&c, steps)
	if what == "" {
		return nil, errors.Join(leftErr, rightErr)
	}
	m := &Mismatch{Steps: steps, What: what, At: len(steps)}
	for _, side := range []struct {
		to   *string
		from []Frame
	}{{&m.Left, left.Frames}, {&m.Right, right.Frames}} {
		*side.to = "nothing"
		if at < len(side.from) {
			f := &side.from[at]
			m.At, *side.to = min(m.At, f.Step), f.String()
		}
	}
	if err := errors.Join(leftErr, rightErr); err != nil {
		m.What += "; " + err.Error()
	}
	return m, nil
}

func (t *Tester) account(c *comparer, steps []Step) {
	n := 0
	for i := range steps {
		n += max(1, len(steps[i].Requests))
	}
	t.requests.Add(int64(n))
	t.frames.Add(int64(len(c.left.Frames)))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.explained == nil {
		t.explained = map[string]int{}
	}
	for id, n := range c.explained {
		t.explained[id] += n
	}
}

// Summary says how much was played and which deliberate differences were met how often.
func (t *Tester) Summary() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%d plays, %d requests, %d frames compared; deliberate differences:%s",
		t.plays.Load(), t.requests.Load(), t.frames.Load(), counts(t.explained))
}
