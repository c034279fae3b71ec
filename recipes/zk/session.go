package zk

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/recipes"
)

const (
	// goodbyeMax bounds the wait for the server's answer when a session is closed, and
	// drainMax that for calls on their way before it.
	goodbyeMax = time.Second
	drainMax   = 100 * time.Millisecond
	// refusedPause is between sessions when one ended before it could be used.
	refusedPause = time.Second
)

// link is the latest that the library said of its connection.
type link uint8

const (
	linkDown link = iota
	linkUp
	linkExpired // for good
)

// session is one session with the library's handle of its own.
type session struct {
	store   *Store
	o       Options
	line    *line
	watches *watches
	upkeep  *recipes.Upkeep

	slots    chan struct{}  // one per call in the library
	renewing chan struct{}  // holds the transaction that only checks, see renew
	calls    sync.WaitGroup // calls in the library
	wake     chan struct{}  // something changed for run
	closing  chan struct{}  // closed by Store.Close
	done     chan struct{}  // closed when it is over

	mu struct {
		sync.Mutex
		link      link
		state     recipes.ConnState
		changed   chan struct{} // closed and replaced with state
		err       error         // why it is over
		conn      *gozk.Conn
		abandoned map[chan struct{}]struct{} // writes on their way without a caller
	}
}

func newSession(s *Store) *session {
	x := &session{
		store: s, o: s.o, line: newLine(s.o), watches: newWatches(),
		slots: make(chan struct{}, callsMax), renewing: make(chan struct{}, 1),
		wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{}),
	}
	x.mu.changed = make(chan struct{})
	x.mu.abandoned = make(map[chan struct{}]struct{})
	x.upkeep = recipes.NewUpkeep(x)
	return x
}

// event is called on the library's goroutines and must not block.
func (s *session) event(ev gozk.Event) {
	if ev.Type != gozk.EventSession {
		s.watches.fire(ev)
		return
	}
	switch ev.State {
	case gozk.StateDisconnected:
		s.watches.gap()
		s.note(linkDown)
	case gozk.StateHasSession:
		s.note(linkUp)
	case gozk.StateExpired:
		s.expired()
	}
}

// expired keeps the library from going on with a new session, and tells run.
func (s *session) expired() {
	s.line.cut()
	s.note(linkExpired)
}

func (s *session) note(l link) {
	s.mu.Lock()
	if s.mu.link != linkExpired {
		s.mu.link = l
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run is the session's life. It owns the library's handle and its state.
func (s *session) run(after time.Duration) {
	if !s.pause(after) {
		s.over(recipes.ErrSessionClosed)
		s.upkeep.Wait()
		return
	}
	conn, events, err := gozk.Connect(s.o.Servers, s.o.Timeout,
		gozk.WithDialer(s.line.open), gozk.WithHostProvider(s.line), gozk.WithEventCallback(s.event),
		gozk.WithLogger(logger{s.o.Log}), gozk.WithLogInfo(false), gozk.WithMaxBufferSize(replyBytesMax))
	if err != nil {
		s.over(fmt.Errorf("%w: %w", recipes.ErrSessionClosed, err))
		s.upkeep.Wait()
		return
	}
	s.over(s.watch(conn))
	s.hangUp(conn, events)
}

// pause reports whether the session may begin after d.
func (s *session) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.closing:
		return false
	}
}

// watch follows the session until it is over and returns why.
func (s *session) watch(conn *gozk.Conn) error {
	var presented int // of o.Auth
	var presenting chan error
	timer := time.NewTimer(s.o.Timeout)
	defer timer.Stop()
	for {
		select {
		case <-s.closing:
			return recipes.ErrSessionClosed
		case <-s.wake:
		case <-timer.C:
		case err := <-presenting:
			presenting = nil
			if err == nil {
				presented++
			} else if code, ok := codeOf(err); ok {
				return fmt.Errorf("%w: auth %v: %w", recipes.ErrSessionClosed, s.o.Auth[presented], code)
			}
		}
		now, left := s.latest()
		switch {
		case now == linkExpired:
			return recipes.ErrSessionExpired
		case left <= 0:
			return fmt.Errorf("%w: by the local clock: no word from the ensemble for 4/3 of its timeout", recipes.ErrSessionExpired)
		case now == linkDown:
			s.publish(recipes.Suspended, nil)
		case presented == len(s.o.Auth):
			s.publish(recipes.Connected, conn)
		case presenting == nil:
			presenting = s.present(conn, s.o.Auth[presented])
		}
		timer.Reset(left)
	}
}

// latest returns the link, and how long the session may live without another word.
func (s *session) latest() (link, time.Duration) {
	s.mu.Lock()
	now := s.mu.link
	s.mu.Unlock()
	last, timeout, open := s.line.contact()
	if !open {
		return now, s.o.Timeout
	}
	return now, time.Until(last.Add(timeout * 4 / 3))
}

// present adds an identity to the connection. The library repeats it on later ones.
func (s *session) present(conn *gozk.Conn, a Auth) chan error {
	presented := make(chan error, 1)
	s.calls.Go(func() { presented <- conn.AddAuth(a.Scheme, []byte(a.Secret)) })
	return presented
}

// publish makes a state known. Suspended follows upon Connected only.
func (s *session) publish(state recipes.ConnState, conn *gozk.Conn) {
	s.mu.Lock()
	if state == recipes.Suspended && s.mu.state != recipes.Connected || s.mu.state == state {
		s.mu.Unlock()
		return
	}
	s.set(state, conn)
	s.mu.Unlock()
	id, timeout := s.line.session()
	s.o.Log.Info("session", "state", state, "id", fmt.Sprintf("%#x", id), "timeout", timeout)
}

// set changes the state; with s.mu.
func (s *session) set(state recipes.ConnState, conn *gozk.Conn) {
	s.mu.state, s.mu.conn = state, conn
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}

// over ends the session for everybody, first for its tenures. The next one is there
// before anybody can know.
func (s *session) over(why error) {
	s.upkeep.End(why)
	s.store.succeed(s)
	s.mu.Lock()
	s.mu.err = why
	s.set(recipes.Over, nil)
	close(s.done)
	s.mu.Unlock()
	s.watches.end()
	s.o.Log.Info("session over", "why", why)
}

// hangUp closes the session at the server, if there is one to tell, and waits for all
// goroutines of the session.
func (s *session) hangUp(conn *gozk.Conn, events <-chan gozk.Event) {
	idle, closed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(idle)
		s.calls.Wait()
	}()
	if now, _ := s.latest(); now == linkUp {
		// Calls on their way get their answers first. The library's CreateContainer looks
		// at an answer that may just arrive when its handle is closed.
		await(idle, drainMax)
	} else {
		s.line.cut()
	}
	go func() {
		defer close(closed)
		conn.Close()
	}()
	await(closed, goodbyeMax)
	s.line.cut()
	<-closed
	for range events { // closed when the library's loop has ended
	}
	<-idle
	s.upkeep.Wait()
}

// await waits until done is closed, d at most.
func await(done <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// ID is recipes.Session.ID.
func (s *session) ID() int64 {
	s.mu.Lock()
	connecting := s.mu.state == recipes.Connecting
	s.mu.Unlock()
	if connecting {
		return 0
	}
	id, _ := s.line.session()
	return id
}

// Timeout is recipes.Session.Timeout.
func (s *session) Timeout() time.Duration {
	_, timeout := s.line.session()
	return timeout
}

// Done is recipes.Session.Done.
func (s *session) Done() <-chan struct{} { return s.done }

// Err is recipes.Session.Err.
func (s *session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.err
}

// State is recipes.Session.State.
func (s *session) State() recipes.ConnState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.state
}

// States is recipes.Session.States.
func (s *session) States(ctx context.Context) iter.Seq[recipes.ConnState] {
	return func(yield func(recipes.ConnState) bool) {
		for last := recipes.Over + 1; ; {
			s.mu.Lock()
			state, changed := s.mu.state, s.mu.changed
			s.mu.Unlock()
			if state != last {
				if last = state; !yield(state) || state == recipes.Over {
					return
				}
				continue
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Upkeep is recipes.Session.Upkeep.
func (s *session) Upkeep() *recipes.Upkeep { return s.upkeep }

// logger passes the library's lines on.
type logger struct{ *slog.Logger }

func (l logger) Printf(format string, args ...any) { l.Debug(fmt.Sprintf(format, args...)) }
