package client

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// State says what a session's client knows of it.
type State uint8

// A session begins Connecting, changes between Connected and Suspended, and ends Over.
const (
	Connecting State = iota // not yet opened; its ID is 0
	Connected
	Suspended // no connection; the server may still hold the session
	Over      // expired or closed, for good
)

// String returns the constant's name.
func (s State) String() string {
	switch s {
	case Connecting:
		return "Connecting"
	case Connected:
		return "Connected"
	case Suspended:
		return "Suspended"
	}
	return "Over"
}

// Proof says: the server will not end the session by itself before Sent+TTL. Sent was
// read before the request was written, and carries the monotonic clock.
type Proof struct {
	Sent time.Time
	TTL  time.Duration
}

// Session is one session of a Client; safe for concurrent use.
type Session struct {
	c    *Client
	done chan struct{}

	// Guarded by c.mu.
	id       session.ID
	password [session.PasswordSize]byte
	timeout  time.Duration
	state    State
	err      error
	proof    Proof
	lostAt   time.Time     // when the last connection was lost
	changed  chan struct{} // closed and replaced at each change of state
}

func newSession(c *Client) *Session {
	return &Session{c: c, done: make(chan struct{}), changed: make(chan struct{}), timeout: c.o.Timeout}
}

// ID returns the session's id, 0 while it is Connecting.
func (s *Session) ID() session.ID {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.id
}

// Password returns what a resume must present. Keep it secret.
func (s *Session) Password() []byte {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	p := s.password
	return p[:]
}

// Timeout returns the negotiated timeout; while Connecting the one asked for.
func (s *Session) Timeout() time.Duration {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.timeout
}

// Done is closed when the session is over. Client.Session then already returns its
// successor, unless the client was closed.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns nil while the session is not over, then an error that is
// znode.SessionExpired or ErrClosed to errors.Is.
func (s *Session) Err() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.err
}

// State returns the present state.
func (s *Session) State() State {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.state
}

// States yields the present state and then each change until ctx ends or Over was
// yielded. A slow consumer may miss states in between, never the last.
func (s *Session) States(ctx context.Context) iter.Seq[State] {
	return func(yield func(State) bool) {
		for last, first := Connecting, true; ; first = false {
			s.c.mu.Lock()
			state, changed := s.state, s.changed
			s.c.mu.Unlock()
			if first || state != last {
				if !yield(state) {
					return
				}
			}
			last = state
			if state == Over {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Proof returns the best proof so far, the zero Proof while Connecting.
func (s *Session) Proof() Proof {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.proof
}

// Renew is one round trip to a leader whose leadership is confirmed after the request
// came: it proves that the session lives, and says per held znode OK or NoNode. If the
// session ends first the error is the session's.
func (s *Session) Renew(ctx context.Context, held ...wire.Held) (Proof, []znode.Error, error) {
	full := make([]wire.Held, len(held))
	for i, h := range held {
		full[i] = wire.Held{Path: s.c.full(h.Path), Czxid: h.Czxid}
	}
	cl := s.c.newCall("renew", "", wire.OpRenew, &wire.Renew{Held: full})
	cl.session, cl.proves = s, true
	rep, err := s.c.do(ctx, cl)
	if err != nil {
		return Proof{}, nil, err
	}
	r, ok := rep.Body.(*wire.RenewReply)
	if !ok || len(r.Held) != len(held) {
		return Proof{}, nil, fmt.Errorf("%w: renew answered with %T", errProtocol, rep.Body)
	}
	ttl := min(s.Timeout(), time.Duration(r.TimeoutMs)*time.Millisecond)
	return Proof{Sent: cl.sentAt, TTL: ttl}, r.Held, nil
}

// setState needs c.mu. Over stays.
func (s *Session) setState(state State) {
	if s.state == state || s.state == Over {
		return
	}
	s.state = state
	close(s.changed)
	s.changed = make(chan struct{})
}

// prove needs c.mu. Of two proofs the one that lasts longer is kept.
func (s *Session) prove(p Proof) {
	if p.Sent.Add(p.TTL).After(s.proof.Sent.Add(s.proof.TTL)) {
		s.proof = p
	}
}

// overAt needs c.mu. It returns when a session without a connection is over by the
// local clock: 4/3 of the timeout after the last proof was sent. A connection that
// lived on data alone (one large answer) may be lost long after its last proof; then
// it is T/3 after the loss, which leaves time for one attempt.
func (s *Session) overAt() time.Time {
	at := s.proof.Sent.Add(s.timeout + s.timeout/3)
	if grace := s.lostAt.Add(s.timeout / 3); grace.After(at) {
		return grace
	}
	return at
}
