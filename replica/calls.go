package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// servingMax bounds the calls of peers that are served at once.
const servingMax = 64

// calls are what this member asked of peers, and how many of theirs it is serving. Safe for
// concurrent use.
type calls struct {
	mu struct {
		sync.Mutex
		last    uint64
		waiting map[uint64]chan note // by nonce
		closed  bool
	}
	serving chan struct{}
	// ctx ends when the member is closed.
	ctx    context.Context
	cancel context.CancelFunc
}

func (c *calls) init() {
	c.mu.waiting = map[uint64]chan note{}
	c.serving = make(chan struct{}, servingMax)
	c.ctx, c.cancel = context.WithCancel(context.Background())
}

// Call asks a peer, whose Options.Serve answers. Errors: ErrUnreachable, the peer's own
// (as text), ctx's.
func (r *Replica) Call(ctx context.Context, to uint64, payload []byte) ([]byte, error) {
	if to == r.o.ID {
		return r.o.Serve(to, payload)
	}
	return r.call(ctx, to, frameCall, payload)
}

// call is Call with a frame of kind to a peer.
func (r *Replica) call(ctx context.Context, to uint64, kind byte, payload []byte) ([]byte, error) {
	answer := make(chan note, 1)
	r.calls.mu.Lock()
	r.calls.mu.last++
	// The origin tells the answers to this process from those to an earlier one.
	nonce := r.calls.mu.last ^ r.o.Origin
	r.calls.mu.waiting[nonce] = answer
	r.calls.mu.Unlock()
	defer func() {
		r.calls.mu.Lock()
		delete(r.calls.mu.waiting, nonce)
		r.calls.mu.Unlock()
	}()
	if !r.send(to, Control, appendNote(nil, kind, note{nonce: nonce, payload: payload})) {
		return nil, fmt.Errorf("%w: member %d", ErrUnreachable, to)
	}
	select {
	case n := <-answer:
		if n.failed {
			return nil, fmt.Errorf("member %d: %s", to, n.payload)
		}
		return n.payload, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("member %d did not answer: %w", to, ctx.Err())
	}
}

// replied takes the answer to a call; one that nobody waits for is dropped.
func (r *Replica) replied(n note) {
	r.calls.mu.Lock()
	answer := r.calls.mu.waiting[n.nonce]
	delete(r.calls.mu.waiting, n.nonce)
	r.calls.mu.Unlock()
	if answer != nil {
		answer <- n
	}
}

// serve lets do answer a peer's call.
func (r *Replica) serve(from uint64, n note, do func(context.Context, []byte) ([]byte, error)) {
	select {
	case r.calls.serving <- struct{}{}:
	default:
		r.reply(from, n.nonce, nil, errors.New("too many calls at once"))
		return
	}
	r.calls.mu.Lock()
	closed := r.calls.mu.closed
	if !closed {
		r.wg.Add(1)
	}
	r.calls.mu.Unlock()
	if closed {
		<-r.calls.serving
		return
	}
	go func() {
		defer func() {
			<-r.calls.serving
			r.wg.Done()
		}()
		reply, err := do(r.calls.ctx, n.payload)
		r.reply(from, n.nonce, reply, err)
	}()
}

func (r *Replica) reply(to, nonce uint64, payload []byte, err error) {
	n := note{nonce: nonce, payload: payload}
	if err != nil {
		n.failed, n.payload = true, []byte(err.Error())
	}
	r.send(to, Control, appendNote(nil, frameReply, n))
}

// close keeps further calls of peers from being served.
func (c *calls) close() {
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.cancel()
}

// serveQuestion answers what a peer asks about members.
func (r *Replica) serveQuestion(ctx context.Context, payload []byte) ([]byte, error) {
	q, err := decodeQuestion(payload)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, leaderPatience)
	defer cancel()
	m, err := r.answerQuestion(ctx, q)
	return appendAnswer(nil, m, err), nil
}
