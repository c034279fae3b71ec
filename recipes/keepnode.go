package recipes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// closeMax bounds how long Node.Close and Membership.Leave wait for the deletion. It goes
// on behind their back until it is done or the session is over.
const closeMax = 2 * time.Second

// NodeState is what is known of a znode that is kept. A plain value.
type NodeState struct {
	// Exists: at the last look it was there, it was ours, and that session is not over.
	Exists bool
	// Czxid is its incarnation, 0 while it does not exist.
	Czxid int64
	// Fresh: the connection is up, so that news of it would have come.
	Fresh bool
	// Err says why it does not exist, or why a change of it was not possible: it is
	// znode.NodeExists to errors.Is while somebody else has the path.
	Err error
}

// Node is a znode whose presence is kept: if its session ends or somebody deletes it, it
// is made again with the data that are wanted. What somebody else writes to it stays
// until the next SetData. It is safe for concurrent use, and has one goroutine until
// Close.
type Node struct {
	store Store
	path  string
	spec  CreateSpec
	dir   znode.Kind // of the parent, if it must be made
	log   *slog.Logger
	// takeover reports whether a znode of another session with these data is an older
	// one of ours. May be nil.
	takeover func(data []byte) bool

	stop    context.CancelFunc
	kick    chan struct{} // capacity 1: something is wanted
	done    chan struct{} // the goroutine has ended
	closing atomic.Bool
	closed  chan struct{} // Close has its result
	err     error         // of Close, once closed

	mu struct {
		sync.Mutex
		wanted   []byte
		gen      uint64 // of wanted: counts SetData, from 1
		accepted []byte // what the backend took last
		took     uint64 // its gen
		refused  uint64 // the last gen that the backend refused, because of why
		why      error

		session Session // that state was read in
		state   NodeState
		changed chan struct{} // closed and replaced with each change
	}

	// Of the owner: run, and Close after it has ended.
	czxid   int64     // the last incarnation known to be ours
	tried   bool      // a create was sent and is not accounted for
	triedIn int64     // the session it was sent in
	last    Session   // the one of the last look
	stale   bool      // Sync before the next look
	made    time.Time // of the last create
	wait    backoff   // between failures, and between creates in quick succession
}

// KeepNode makes the znode and keeps it until Close. It returns when the znode exists, or
// when ctx has ended or the backend has refused it, with nothing left behind. Missing
// parents are made as containers.
//
// An ephemeral znode at the path that belongs to another session is waited for: it may be
// gone soon. A persistent spec adopts what is there. spec.Sequential is ErrInvalid: what
// is kept has one name.
func KeepNode(ctx context.Context, s Store, path string, data []byte, spec CreateSpec) (*Node, error) {
	if spec.Sequential {
		return nil, fmt.Errorf("%w: CreateSpec.Sequential of kept node %s: its name would change with each session", ErrInvalid, path)
	}
	if err := spec.Validate(); err != nil {
		return nil, fmt.Errorf("kept node %s: %w", path, err)
	}
	if err := validateDir(path); err != nil {
		return nil, err
	}
	n := newNode(s, path, data, spec, slog.New(slog.DiscardHandler))
	return n, n.start(ctx)
}

func newNode(s Store, path string, data []byte, spec CreateSpec, log *slog.Logger) *Node {
	n := &Node{
		store: s, path: path, spec: spec, dir: znode.Container, log: log.With("recipe", "node", "path", path),
		kick: make(chan struct{}, 1), done: make(chan struct{}), closed: make(chan struct{}),
	}
	n.mu.wanted, n.mu.gen = bytes.Clone(data), 1
	n.mu.changed = make(chan struct{})
	return n
}

// start begins to keep the node and waits until it exists. On error all is undone.
func (n *Node) start(ctx context.Context) error {
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	n.stop = stop
	go n.run(run)
	err := n.await(ctx, func(s NodeState) (bool, error) {
		if refusal(s.Err) {
			return true, s.Err
		}
		return s.Exists, nil
	})
	if err == nil {
		return nil
	}
	if held := n.State().Err; held != nil && !errors.Is(err, held) {
		err = fmt.Errorf("%w; so far: %w", err, held)
	}
	_ = n.Close(ctx) // what it could not delete is deleted later
	return fmt.Errorf("keep %s: %w", n.path, err)
}

// Path returns the znode's path.
func (n *Node) Path() string { return n.path }

// State returns what is known of the node. It does no I/O.
func (n *Node) State() NodeState {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.mu.state
	if sess := n.mu.session; sess != nil {
		s.Fresh = sess.State() == Connected
		if n.spec.Kind == znode.Ephemeral && sess.State() == Over {
			s.Exists, s.Czxid = false, 0
		}
	}
	return s
}

// SetData makes data what the node has, now and whenever it is made again. It returns
// when the backend has taken them, or what another SetData called later wants. If ctx
// ends before, which is the error, they stay wanted and are set when that is possible.
// If the backend refuses them, which is the error too, what it had taken before stays
// wanted.
func (n *Node) SetData(ctx context.Context, data []byte) error {
	n.mu.Lock()
	n.mu.gen++
	gen := n.mu.gen
	n.mu.wanted = bytes.Clone(data)
	n.mu.Unlock()
	wakeup(n.kick)
	err := n.await(ctx, func(NodeState) (bool, error) { // mu is held
		switch {
		case n.mu.refused >= gen && n.mu.took <= n.mu.refused:
			return true, n.mu.why
		case n.mu.took >= gen:
			return true, nil
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("set data of %s: %w", n.path, err)
	}
	return nil
}

// Close stops keeping the node and deletes it. It waits for that until ctx ends, unless
// that had ended before, and for two seconds at most. Then it returns ErrUncertain, and
// the deletion goes on until it is done or the session is over. It may be called again,
// which has the same result.
func (n *Node) Close(ctx context.Context) error {
	if n.closing.CompareAndSwap(false, true) {
		n.stop()
		<-n.done
		n.err = n.remove(ctx)
		n.publish(nil, NodeState{Err: ErrReleased})
		close(n.closed)
	}
	<-n.closed
	return n.err
}

// await waits until f, called with mu held, says that it need not wait longer.
func (n *Node) await(ctx context.Context, f func(NodeState) (bool, error)) error {
	for {
		n.mu.Lock()
		enough, err := f(n.mu.state)
		changed, state := n.mu.changed, n.mu.state
		n.mu.Unlock()
		if enough {
			return err
		}
		select {
		case <-changed:
		case <-n.done:
			if state.Err != nil && sessionOver(state.Err) {
				return state.Err
			}
			return ErrReleased
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// publish sets what State returns.
func (n *Node) publish(sess Session, s NodeState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.session, n.mu.state = sess, s
	n.notify()
}

// notify wakes those who wait in await. It needs mu.
func (n *Node) notify() {
	close(n.mu.changed)
	n.mu.changed = make(chan struct{})
}

// want returns what the node shall have.
func (n *Node) want() (data []byte, gen uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.wanted, n.mu.gen
}

// took says that the backend has the data of gen.
func (n *Node) took(data []byte, gen uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.took != gen {
		n.mu.accepted, n.mu.took = data, gen
		n.notify()
	}
}

// refuse says that the backend does not take the data of gen, and goes back to those
// that it took.
func (n *Node) refuse(gen uint64, why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.took == 0 || n.mu.took == gen {
		return // it is not about what was changed
	}
	n.mu.refused, n.mu.why = gen, why
	if n.mu.gen == gen {
		n.mu.wanted, n.mu.took = n.mu.accepted, gen
	}
	n.notify()
}

// wakeup fills a channel of capacity 1.
func wakeup(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// refusal reports whether err is the backend's no, which trying again will not change.
func refusal(err error) bool {
	var code znode.Error
	if !errors.As(err, &code) || transient(err) || sessionOver(err) {
		return false
	}
	switch code {
	case znode.NoNode, znode.NodeExists, znode.BadVersion, znode.NotEmpty:
		return false
	}
	return true
}
