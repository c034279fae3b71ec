package recipestest

import (
	"context"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
)

// Harness is one backend under test. Conformance runs on it what it has the verbs for.
// A nil verb is one that this backend does not have.
type Harness struct {
	Name string
	// Timeout is the session timeout that peers are granted.
	Timeout time.Duration
	// Open makes a peer: a client with a connection and a session of its own, Connected.
	// It is closed with the test.
	Open func(t testing.TB) *Peer
	// Run runs one test: in a synctest bubble where time is fake, else as it is.
	Run func(t *testing.T, test func(t *testing.T))
	// Fake says that time is fake, so that waits cost nothing.
	Fake bool

	// Restart stops the backend and starts it again with its data, down in between.
	Restart func(t testing.TB, down time.Duration)
	// SetCounter makes n the number that the next sequential child of path gets.
	SetCounter func(t testing.TB, path string, n int32)
	// Reap removes every container below which nobody is left, at once.
	Reap func(t testing.TB)
}

// Peer is one process as the backend sees it: a Store, and the faults that can be played
// on its connection. Verbs may be called from any goroutine.
type Peer struct {
	Store recipes.Store

	// CutAfterCommit arms a fault for the next request of the kind: the backend performs
	// it, its answer is dropped and the connection closed. done is closed when it has
	// happened. The client reconnects by itself.
	CutAfterCommit func(kind OpKind) (done <-chan struct{})
	// CutBeforeSend arms a fault: the connection is closed instead of passing on the next
	// request of the kind.
	CutBeforeSend func(kind OpKind) (done <-chan struct{})
	// Hold arms a fault: the next request of the kind is performed but its answer, and
	// all behind it, held back until release is called. held is closed when it waits.
	Hold func(kind OpKind) (held <-chan struct{}, release func())
	// Disarm takes back the faults of the three above that have not happened.
	Disarm func()
	// Break closes the connection; the client may reconnect at once.
	Break func()
	// Partition holds back everything in both directions, also of new connections, until
	// Heal. Nothing is closed.
	Partition func()
	Heal      func()
	// Mute holds back what the client sends, also of new connections, until Unmute.
	// What was sent to it still arrives: late answers, while nothing can be asked.
	Mute   func()
	Unmute func()
	// Delay holds back every answer for d from now on; 0 ends it.
	Delay func(d time.Duration)
	// Expire ends the session as an expiry does and returns when it is over for all
	// others. It may take a few session timeouts.
	Expire func(t testing.TB)

	// What only a fake can do.

	// Move makes the client reconnect to another member with the same session.
	Move func()
	// Lag makes the member this client is on, or will Move to, apply what is committed
	// only d later; 0 ends it.
	Lag func(d time.Duration)
	// Isolate cuts the member that the client is on from the rest of the ensemble.
	Isolate func()
	// Rejoin ends Isolate.
	Rejoin func()
	// FailSetWatches makes the next reconnect lose the watches: they end.
	FailSetWatches func()
	// JumpWall moves the wall clock of this process, not its monotonic one.
	JumpWall func(d time.Duration)
	// Pause stops the clients' goroutines at their next call of the Store until resume.
	Pause func() (resume func())
}

// OpKind is a kind of request to play a fault on.
type OpKind uint8

// The kinds of requests. AnyWrite is the first four of them. Renew is Session.Renew,
// and on a real ZooKeeper the check-only transaction that stands for it. Probe is
// Store.SessionOpen.
const (
	Create OpKind = iota + 1
	Set
	Delete
	Multi
	AnyWrite
	Get
	Children
	Exists
	Renew
	Sync
	Probe
)

// Hooked is a Store that calls a function before and after each call of another one: to
// count, to hold at a gate, to let fail. Set its functions before it is used.
type Hooked struct {
	recipes.Store
	// Before is called with what is about to be done; an error is returned instead of
	// doing it.
	Before func(ctx context.Context, c Call) error
	// After is called with what was done and may replace its error.
	After func(ctx context.Context, c Call, err error) error
}

// Call is one call of a Store.
type Call struct {
	Kind  OpKind
	Path  string // of a Multi the first one's
	Watch bool   // GetW, ExistsW, ChildrenW
	Ops   []recipes.Op
}
