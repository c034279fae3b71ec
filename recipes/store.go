package recipes

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// CreateSpec says what Store.Create and OpCreate make. The zero value is a persistent
// znode.
type CreateSpec struct {
	Kind       znode.Kind // Persistent, Ephemeral or Container; a backend without containers makes persistent ones
	Sequential bool       // appends the parent's ten-digit counter to the name
}

// Validate returns ErrInvalid for a kind of znode that recipes do not make, such as
// znode.TTL: not every backend has it, so none takes it here.
func (s CreateSpec) Validate() error {
	switch s.Kind {
	case znode.Persistent, znode.Ephemeral, znode.Container:
		return nil
	}
	return fmt.Errorf("%w: CreateSpec.Kind is %d: it must be Persistent, Ephemeral or Container", ErrInvalid, s.Kind)
}

// EventKind is what a Watch tells.
type EventKind uint8

// An event wakes; what is true must be read.
const (
	Changed EventKind = iota // something may have changed: read again
	Gap                      // the connection broke: events may be missing, read again
	Ended                    // the session is over or the store closed: there will be no event
)

// Watch is one-shot: C has capacity 1, gets one value at most and is then closed. Cancel
// detaches: it is idempotent, never blocks, and must be called by whoever no longer
// waits. Any number of goroutines may use it.
type Watch struct {
	C      <-chan EventKind
	Cancel func()
}

// Caps says what a backend can promise. Recipes know their backend by nothing else.
type Caps struct {
	// ExactExpiry: a renewal is acknowledged by the authority that decides expiry, whose
	// leadership was confirmed after the renewal came. It then does not end the session
	// before Proof.TTL has passed since Proof.Sent.
	ExactExpiry bool
	// SessionProbe: SessionOpen works.
	SessionProbe bool
	// Containers: the backend removes a znode.Container that lost its last child.
	Containers bool
}

// Store is a backend as recipes see it: one client, with one session at a time. It is
// safe for concurrent use.
//
// Paths are absolute. Errors of a call:
//
//   - a definite answer is a znode.Error to errors.Is, such as znode.NoNode;
//   - ErrUnavailable: certainly not applied. Try again;
//   - ErrUncertain: a write was sent and its outcome will not be told. It wraps the
//     ctx's error if that is why;
//   - ErrSessionExpired, ErrSessionClosed: the session the call was made in is over;
//     a write of unknown outcome is ErrUncertain besides;
//   - the ctx's error: a read, or a write that was not sent.
//
// A read of a session is not older than its own writes and earlier reads. A call may
// wait for a connection until its ctx or its session ends.
type Store interface {
	Caps() Caps
	// Session returns the current session. After its end a new value takes its place,
	// Connecting at first; the old one is never revived. After Close it stays Over.
	Session() Session

	// Create makes a znode. It returns its path, which has the number appended if
	// it is sequential; the parent must exist.
	Create(ctx context.Context, path string, data []byte, s CreateSpec) (string, error)
	Get(ctx context.Context, path string) ([]byte, znode.Stat, error)
	// GetW is Get with a watch for the next change of the data or the deletion. On
	// error, znode.NoNode too, there is no watch.
	GetW(ctx context.Context, path string) ([]byte, znode.Stat, Watch, error)
	// ExistsW reports whether there is a znode, with a watch for its creation, change or
	// deletion. That there is none is no error.
	ExistsW(ctx context.Context, path string) (znode.Stat, bool, Watch, error)
	// Children returns the names of all children in no particular order.
	Children(ctx context.Context, path string) ([]string, znode.Stat, error)
	// ChildrenW is Children with a watch for the next creation or deletion of a child
	// and the deletion of the znode itself. On error there is no watch.
	ChildrenW(ctx context.Context, path string) ([]string, znode.Stat, Watch, error)
	Set(ctx context.Context, path string, data []byte, c Cond) (znode.Stat, error)
	Delete(ctx context.Context, path string, c Cond) error
	// Multi applies all ops or none. If the transaction was judged and refused the
	// error is a *MultiError and there are no results.
	Multi(ctx context.Context, ops ...Op) ([]OpResult, error)
	// Sync: later reads see what was committed before it was called.
	Sync(ctx context.Context, path string) error
	// SessionOpen reports whether the session with this id is open, in a state that is
	// not older than any that this client has seen. Without Caps.SessionProbe it returns
	// ErrUnsupported.
	SessionOpen(ctx context.Context, id int64) (bool, error)
	// Close ends all tenures, then the session, so that its ephemerals go at once, and
	// waits for all goroutines; a few seconds at most, also without a server. It may be
	// called again.
	Close() error
}

// Proof is what a renewal gives. Sent was read from the local clock before the first
// byte of the request was written and carries the monotonic clock. The renewal was
// judged by the backend after that. With Caps.ExactExpiry the session does not end
// before Sent+TTL; without it TTL is the session's timeout and promises nothing.
type Proof struct {
	Sent time.Time
	TTL  time.Duration
}

// Held is a znode whose existence a tenure depends on. Czxid is its incarnation; a
// backend that cannot compare it checks that the path exists, which is the same where
// names are never reused.
type Held struct {
	Path  string
	Czxid int64
}

// ConnState is what is known of a session.
type ConnState uint8

// A session begins Connecting, changes between Connected and Suspended, and ends Over.
const (
	Connecting ConnState = iota // not opened yet: its id is 0
	Connected
	Suspended // no connection; it may still be held by the backend
	Over      // for good
)

// String returns the constant's name.
func (s ConnState) String() string {
	return [...]string{"Connecting", "Connected", "Suspended", "Over"}[min(s, Over)]
}

// Session is one session of a Store. It is safe for concurrent use, and two values are
// == exactly if they are the same session.
type Session interface {
	// ID returns the session's id, 0 while it is Connecting.
	ID() int64
	// Timeout returns the negotiated timeout; while Connecting the one asked for.
	Timeout() time.Duration
	// Done is closed when the session is over: the backend said so, it was closed, or by
	// the local clock it cannot be alive any more.
	Done() <-chan struct{}
	// Err returns nil until Done is closed, then ErrSessionExpired or ErrSessionClosed,
	// perhaps with more to say.
	Err() error
	State() ConnState
	// States yields the present state and then each change until ctx ends or Over was
	// yielded. A slow consumer may miss states in between, never the last.
	States(ctx context.Context) iter.Seq[ConnState]
	// Renew is one committed round trip that is conditional on the session: it writes
	// nothing and fires no watch. Each of held is judged: nil or znode.NoNode at its
	// index. An error is about all of them: nothing is proved.
	Renew(ctx context.Context, held ...Held) (Proof, []error, error)
	// Upkeep returns what recipes keep alive on this session. The Session makes it with
	// NewUpkeep and ends it as Upkeep.End says.
	Upkeep() *Upkeep
}
