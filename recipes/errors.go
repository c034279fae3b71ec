package recipes

import (
	"errors"
	"fmt"

	"github.com/tenure-dev/tenure/znode"
)

// Outcomes of calls to a Store.
var (
	// ErrUncertain: the write was sent and its answer will not be seen: it may or may not
	// have been applied.
	ErrUncertain = errors.New("outcome unknown")
	// ErrUnavailable: not sent, or refused before it was judged: certainly not applied.
	ErrUnavailable = errors.New("not sent, so certainly not applied")
	// ErrUnsupported: this backend cannot do it.
	ErrUnsupported = errors.New("not supported by this backend")
	// ErrInvalid: an argument or option breaks a rule, which the error names.
	ErrInvalid = errors.New("invalid")
)

// Why a session is over.
var (
	ErrSessionExpired = errors.New("session expired")
	ErrSessionClosed  = errors.New("session closed")
)

// Why a tenure is over; each is the Why of a LostError.
var (
	ErrLost      = errors.New("no longer held")
	ErrReleased  = errors.New("released")
	ErrDeadline  = errors.New("local deadline passed")
	ErrGone      = errors.New("its znode is gone")
	ErrUnhealthy = errors.New("health check failed")
	ErrNodeTaken = errors.New("taken by another")
)

// ErrGrace is the cause of a Tenure's context that ended because its deadline is near and
// no renewal was answered. The tenure itself lasts until the deadline.
var ErrGrace = errors.New("deadline is near")

// ErrQueueFull: the queue has as many items as it may.
var ErrQueueFull = errors.New("queue is full")

// ErrStaleToken: a fencing token is lower than one that the resource has seen.
var ErrStaleToken = errors.New("stale fencing token")

// LostError says that a tenure is over, and why. It is ErrLost and Why to errors.Is.
type LostError struct {
	Name  string // the recipe's path
	Token Token
	Why   error
}

// Error names the recipe, the token and the reason.
func (e *LostError) Error() string {
	return fmt.Sprintf("%s (token %d): no longer held: %v", e.Name, e.Token, e.Why)
}

// Unwrap returns ErrLost and Why.
func (e *LostError) Unwrap() []error { return []error{ErrLost, e.Why} }

// transient reports whether a call that failed with err may succeed later in the same
// session without anybody's doing.
func transient(err error) bool {
	for _, e := range []error{ErrUnavailable, ErrUncertain, znode.ConnectionLoss,
		znode.OperationTimeout, znode.RequestTimeout, znode.ThrottledOp, znode.SessionMoved} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// sessionOver reports whether err says that the session of the call is over.
func sessionOver(err error) bool {
	return errors.Is(err, ErrSessionExpired) || errors.Is(err, ErrSessionClosed)
}
