package native

import (
	"context"
	"iter"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// clientSession is a recipes.Session: one value per session of the client. It is over
// later than the client's, when its tenures have ended.
type clientSession struct {
	c      *client.Session
	upkeep *recipes.Upkeep
	// endUpkeep is upkeep.End, unless a test looks at when it is called.
	endUpkeep func(why error)
	done      chan struct{}
	err       error // set before done is closed
}

var _ recipes.Session = (*clientSession)(nil)

func newSession(c *client.Session) *clientSession {
	s := &clientSession{c: c, done: make(chan struct{})}
	s.upkeep = recipes.NewUpkeep(s)
	s.endUpkeep = s.upkeep.End
	return s
}

// end tells everybody that the session is over.
func (s *clientSession) end(why error) {
	s.err = why
	close(s.done)
}

// ID implements recipes.Session.
func (s *clientSession) ID() int64 { return int64(s.c.ID()) }

// Timeout implements recipes.Session.
func (s *clientSession) Timeout() time.Duration { return s.c.Timeout() }

// Done implements recipes.Session.
func (s *clientSession) Done() <-chan struct{} { return s.done }

// Err implements recipes.Session.
func (s *clientSession) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// State implements recipes.Session.
func (s *clientSession) State() recipes.ConnState {
	select {
	case <-s.done:
		return recipes.Over
	default:
	}
	return stateOf(s.c.State())
}

// stateOf is what a state of the client's session means. While the tenures of one that
// is over are being ended nobody may be told.
func stateOf(state client.State) recipes.ConnState {
	switch state {
	case client.Connecting:
		return recipes.Connecting
	case client.Connected:
		return recipes.Connected
	}
	return recipes.Suspended
}

// States implements recipes.Session.
func (s *clientSession) States(ctx context.Context) iter.Seq[recipes.ConnState] {
	return func(yield func(recipes.ConnState) bool) {
		for state := range s.c.States(ctx) {
			if state != client.Over {
				if !yield(stateOf(state)) {
					return
				}
				continue
			}
			select {
			case <-s.done:
				yield(recipes.Over)
			case <-ctx.Done():
			}
		}
	}
}

// heldBytesMax bounds the paths in one renewal. Servers take requests of up to 1 MiB
// unless told otherwise.
const heldBytesMax = 256 << 10

// Renew implements recipes.Session. What does not fit one request is asked in several;
// the proof is then that of the first.
func (s *clientSession) Renew(ctx context.Context, held ...recipes.Held) (recipes.Proof, []error, error) {
	var proof recipes.Proof
	verdicts := make([]error, 0, len(held))
	for first := true; first || len(verdicts) < len(held); first = false {
		p, codes, err := s.c.Renew(ctx, nextHeld(held[len(verdicts):])...)
		if err != nil {
			return recipes.Proof{}, nil, s.fail(err)
		}
		if first {
			proof = recipes.Proof{Sent: p.Sent, TTL: p.TTL}
		}
		for _, code := range codes {
			verdicts = append(verdicts, verdict(code))
		}
	}
	return proof, verdicts, nil
}

// fail returns the error of a renewal, once the tenures have ended if the session has.
func (s *clientSession) fail(err error) error {
	if sessionClass(err) != nil && s.c.State() == client.Over {
		<-s.done
	}
	return classify(err)
}

// nextHeld returns as many of held, one at least if there is one, as go into one request.
func nextHeld(held []recipes.Held) []wire.Held {
	const overhead = 12 // czxid and the path's length
	next := make([]wire.Held, 0, len(held))
	size := 0
	for _, h := range held {
		if size += len(h.Path) + overhead; size > heldBytesMax && len(next) > 0 {
			break
		}
		next = append(next, wire.Held{Path: h.Path, Czxid: h.Czxid})
	}
	return next
}

// verdict is what a renewal found of one held znode.
func verdict(code znode.Error) error {
	if code == znode.OK {
		return nil
	}
	return code
}

// Upkeep implements recipes.Session.
func (s *clientSession) Upkeep() *recipes.Upkeep { return s.upkeep }
