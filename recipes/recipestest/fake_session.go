package recipestest

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/session"
)

// fakeSession is one session as its client knows it: a recipes.Session.
type fakeSession struct {
	c      *fakeClient
	upkeep *recipes.Upkeep
	done   chan struct{}
	// ending gets the reason once; stopped is closed when the session's goroutine ended.
	ending   chan error
	signaled bool // of ending; guarded by the fake's lock
	stopped  chan struct{}

	mu      sync.Mutex // a leaf, guards the rest
	id      session.ID
	timeout time.Duration
	state   recipes.ConnState
	err     error
	changed chan struct{} // closed and replaced with each change of state
}

// begin makes the next session. The fake's lock is held.
func (c *fakeClient) begin(wait time.Duration) {
	s := &fakeSession{
		c: c, timeout: c.f.o.Timeout,
		done: make(chan struct{}), ending: make(chan error, 1), stopped: make(chan struct{}),
		changed: make(chan struct{}),
	}
	s.upkeep = recipes.NewUpkeep(s)
	s.upkeep.SetWall(func() int64 { return time.Now().UnixNano() + c.wallOffset.Load() })
	c.cur, c.conn = s, nil
	go s.run()
	c.dialAt = c.f.now() + wait
	c.schedule()
}

// run waits for the end of the session and makes it known in the right order.
func (s *fakeSession) run() {
	defer close(s.stopped)
	why := <-s.ending
	s.upkeep.End(why)
	s.c.goodbye(why)
	s.c.finish(s, why)
	s.upkeep.Wait()
}

// end has the session end because of why. The fake's lock is held.
func (s *fakeSession) end(why error) {
	if !s.signaled {
		s.signaled = true
		s.ending <- why
	}
}

// set changes the state.
func (s *fakeSession) set(state recipes.ConnState, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f != nil {
		f()
	}
	if s.state != state {
		s.state = state
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// ID implements recipes.Session.
func (s *fakeSession) ID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.id)
}

// Timeout implements recipes.Session.
func (s *fakeSession) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout
}

// Done implements recipes.Session.
func (s *fakeSession) Done() <-chan struct{} { return s.done }

// Err implements recipes.Session.
func (s *fakeSession) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// State implements recipes.Session.
func (s *fakeSession) State() recipes.ConnState {
	state, _ := s.peek()
	return state
}

func (s *fakeSession) peek() (recipes.ConnState, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.changed
}

// States implements recipes.Session.
func (s *fakeSession) States(ctx context.Context) iter.Seq[recipes.ConnState] {
	return func(yield func(recipes.ConnState) bool) {
		last := recipes.Over + 1 // none
		for ctx.Err() == nil {
			state, changed := s.peek()
			if state != last && !yield(state) || state == recipes.Over {
				return
			}
			last = state
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}
}

// Renew implements recipes.Session.
func (s *fakeSession) Renew(ctx context.Context, held ...recipes.Held) (recipes.Proof, []error, error) {
	k := &call{kind: Renew, held: held}
	if err := s.c.do(ctx, s, k); err != nil {
		return recipes.Proof{}, nil, err
	}
	return recipes.Proof{Sent: k.sentAt, TTL: s.c.f.o.timeout()}, k.got.held, nil
}

// Upkeep implements recipes.Session.
func (s *fakeSession) Upkeep() *recipes.Upkeep { return s.upkeep }
