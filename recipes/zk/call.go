package zk

import (
	"context"
	"errors"
	"fmt"

	gozk "github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// callsMax bounds the calls of a session that are in the library at once, and so their
// goroutines; more wait. Those abandoned by their callers count.
const callsMax = 128

// errAgain: a read without an answer, to be asked again.
var errAgain = errors.New("connection lost")

// codes are the library's errors for answers of the server.
var codes = map[error]znode.Error{
	gozk.ErrAPIError: znode.APIError, gozk.ErrNoNode: znode.NoNode, gozk.ErrNoAuth: znode.NoAuth,
	gozk.ErrBadVersion: znode.BadVersion, gozk.ErrNodeExists: znode.NodeExists,
	gozk.ErrNoChildrenForEphemerals: znode.NoChildrenForEphemerals, gozk.ErrNotEmpty: znode.NotEmpty,
	gozk.ErrInvalidACL: znode.InvalidACL, gozk.ErrAuthFailed: znode.AuthFailed,
	gozk.ErrNothing: znode.Nothing, gozk.ErrSessionMoved: znode.SessionMoved,
	gozk.ErrBadArguments: znode.BadArguments, gozk.ErrInvalidPath: znode.BadArguments,
}

// codeOf returns the server's error code in err. The library knows the rarer ones only as
// text.
func codeOf(err error) (znode.Error, bool) {
	if code, ok := codes[err]; ok {
		return code, true
	}
	var code int32
	if _, scan := fmt.Sscanf(err.Error(), "unknown error: %d", &code); scan == nil && code < 0 {
		return znode.Error(code), true
	}
	return 0, false
}

// outcome is what an error of the library says of a call made in s.
func (s *session) outcome(err error, write bool) error {
	if err == nil {
		return nil
	}
	if code, ok := codeOf(err); ok {
		return code
	}
	var unsent unsentError
	switch {
	case errors.Is(err, gozk.ErrSessionExpired):
		s.expired()
		return recipes.ErrSessionExpired
	case errors.Is(err, gozk.ErrShortBuffer):
		return fmt.Errorf("%w: request is longer than the library's buffer", recipes.ErrInvalid)
	case !write && s.Err() != nil:
		return s.Err()
	case !write:
		return errAgain
	case errors.Is(err, gozk.ErrNoServer), errors.As(err, &unsent):
		return fmt.Errorf("%w: %w", recipes.ErrUnavailable, err)
	}
	return s.uncertain(err)
}

// uncertain is a write without an answer. That its session is over is said too.
func (s *session) uncertain(why error) error {
	if over := s.Err(); over != nil {
		return fmt.Errorf("%w: %w", recipes.ErrUncertain, over)
	}
	return fmt.Errorf("%w: %w", recipes.ErrUncertain, why)
}

// answer is what a call of the library returned.
type answer[T any] struct {
	v   T
	err error
}

// once makes one call of the library in s, within ctx.
func once[T any](ctx context.Context, s *session, write bool, f func(*gozk.Conn) (T, error)) (T, error) {
	conn, err := s.enter(ctx)
	if err != nil {
		var none T
		return none, err
	}
	return perform(ctx, s, write, func() (T, error) { return f(conn) })
}

// perform makes the call that enter allowed. The library has no contexts: a call whose
// caller left goes on, and its result is dropped.
func perform[T any](ctx context.Context, s *session, write bool, f func() (T, error)) (T, error) {
	answers, finished := make(chan answer[T], 1), make(chan struct{})
	go func() {
		defer s.leave(finished)
		v, err := f()
		answers <- answer[T]{v, err}
	}()
	var why error
	select {
	case a := <-answers:
		return a.v, s.outcome(a.err, write)
	case <-ctx.Done():
		why = ctx.Err()
	case <-s.done:
		why = s.Err()
	}
	select {
	case a := <-answers: // both at once: the answer says more
		return a.v, s.outcome(a.err, write)
	default:
	}
	var none T
	if !write {
		return none, why
	}
	s.abandon(finished)
	return none, s.uncertain(why)
}

// read is once, again and again while answers are lost, until ctx or the session ends.
func read[T any](ctx context.Context, s *Store, op, path string, f func(*gozk.Conn) (T, error)) (T, error) {
	session := s.session()
	for {
		v, err := once(ctx, session, false, f)
		if err != errAgain {
			return v, describe(op, path, err)
		}
	}
}

// write is once; whether to try again is for the caller to decide.
func write[T any](ctx context.Context, s *Store, op, path string, f func(*gozk.Conn) (T, error)) (T, error) {
	v, err := once(ctx, s.session(), true, f)
	return v, describe(op, path, err)
}

func describe(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", op, path, err)
}

// enter waits until a call may be made: connected, no abandoned write on its way, and
// less than callsMax in the library.
func (s *session) enter(ctx context.Context) (*gozk.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.done:
		return nil, s.Err()
	}
	for {
		conn, wait := s.begin()
		if conn != nil {
			return conn, nil
		}
		var err error
		select {
		case <-wait:
			continue
		case <-ctx.Done():
			err = ctx.Err()
		case <-s.done:
			err = s.Err()
		}
		<-s.slots
		return nil, err
	}
}

// begin counts a call if one may be made now, else it returns what to wait for.
func (s *session) begin() (*gozk.Conn, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for abandoned := range s.mu.abandoned {
		return nil, abandoned
	}
	if s.mu.state != recipes.Connected {
		return nil, s.mu.changed
	}
	s.calls.Add(1)
	return s.mu.conn, nil
}

// leave ends what begin counted.
func (s *session) leave(finished chan struct{}) {
	s.mu.Lock()
	delete(s.mu.abandoned, finished)
	close(finished)
	s.mu.Unlock()
	<-s.slots
	s.calls.Done()
}

// abandon makes later calls wait for a write that nobody waits for any more: it must not
// be overtaken. A Sync behind it then proves that it was applied before or never will be.
func (s *session) abandon(finished chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-finished:
	default:
		s.mu.abandoned[finished] = struct{}{}
	}
}
