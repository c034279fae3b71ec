package recipes

import (
	"context"
	"fmt"
	"sync"
	"unicode"
	"unicode/utf8"
)

// HighWater is a resource's own memory of the highest fencing token it has seen, per key.
//
// Raise sets the mark of key to the higher of itself and t and returns it. It must be one
// atomic step, and durable before it returns or in the same transaction as the effect
// that it admits: a mark that is kept in memory, or raised behind the effect, guards
// nothing. A t above the result never happens; a t below it is stale, and nothing has
// changed. When Raise fails it may have raised, then or later, which is harmless: the
// token exists and its holder will come. Implementations may be used concurrently.
//
// A floor, set by an operator after the coordination service lost its history and gives
// lower tokens than before, is a Raise like any other.
type HighWater interface {
	Raise(ctx context.Context, key string, t Token) (highest Token, err error)
}

// StaleTokenError says which token was refused, at which fence, because of which higher
// one. It is ErrStaleToken to errors.Is. A plain value.
type StaleTokenError struct {
	Key     string
	Token   Token
	Highest Token
}

// Error names the key and both tokens.
func (e *StaleTokenError) Error() string {
	return fmt.Sprintf("%s: stale fencing token %d: %d has been seen", e.Key, e.Token, e.Highest)
}

// Unwrap returns ErrStaleToken.
func (e *StaleTokenError) Unwrap() error { return ErrStaleToken }

// staleUnless returns a StaleTokenError if highest is above t.
func staleUnless(key string, t, highest Token) error {
	if t < highest {
		return &StaleTokenError{Key: key, Token: t, Highest: highest}
	}
	return nil
}

// Bounds of a fence.
const (
	fenceKeyMax  = 512     // bytes of a key
	fenceKeysMax = 1 << 20 // keys in memory or in one file
)

// validateFence refuses what cannot be a key, and token 0, which is no token: a holder
// that sends it forgot to set it.
func validateFence(key string, t Token) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: the key of a fence is empty", ErrInvalid)
	case len(key) > fenceKeyMax:
		return fmt.Errorf("%w: the key of a fence has %d bytes: at most %d", ErrInvalid, len(key), fenceKeyMax)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w: the key of a fence, %q, is not UTF-8", ErrInvalid, key)
	case t == 0:
		return fmt.Errorf("%w: %s: fencing token 0 is no token", ErrInvalid, key)
	}
	for _, r := range key {
		if unicode.IsControl(r) {
			return fmt.Errorf("%w: the key of a fence, %q, has a control character", ErrInvalid, key)
		}
	}
	return nil
}

// errFenceKeys refuses a key beyond the bound.
func errFenceKeys(key string) error {
	return fmt.Errorf("%w: %s: this fence keeps %d keys already, which is the most", ErrInvalid, key, fenceKeysMax)
}

// FenceGuard keeps former holders out of a resource: each effect comes with the fencing
// token of the tenure it belongs to, and once a token has been admitted no lower one is.
// Equal tokens are admitted as often as they come, for one tenure acts many times.
// It may be used concurrently.
//
// A guard admits; it cannot know what was read before. A new holder therefore seals
// first: it calls Admit with its token at every resource it will use, then reads their
// state, then acts. If it reads first, a former holder whose token is still the highest
// may change what was read, and its change is lost in the write that follows.
//
// Between being admitted and taking effect lies the same gap as between a Check and an
// act, so a guard also orders what is under way: see Do. It can do that for effects that
// pass through this FenceGuard value. Where several processes reach the resource raise
// the mark in the transaction of the effect instead (SQLFence).
type FenceGuard struct {
	high HighWater

	mu     sync.Mutex
	inside map[string]map[*passage]struct{} // what is under way, by key
}

// passage is one call of Do, from before it is admitted until its effect has ended.
type passage struct {
	token  Token
	cancel context.CancelCauseFunc // stops the effect
	done   chan struct{}           // closed when the effect has ended
}

// NewFenceGuard makes the guard of one resource on its memory of tokens.
func NewFenceGuard(h HighWater) *FenceGuard {
	return &FenceGuard{high: h, inside: map[string]map[*passage]struct{}{}}
}

// Admit admits t and raises the mark of key to it. A lower token than has been seen is a
// *StaleTokenError, a bad key or token 0 is ErrInvalid, anything else is the error of the
// HighWater or of ctx: then nothing was admitted. When Admit returns nil every effect of
// a lower token that was under way in Do has ended and none will follow: what is read
// now is what former holders left behind.
func (g *FenceGuard) Admit(ctx context.Context, key string, t Token) error {
	return g.Do(ctx, key, t, func(context.Context) error { return nil })
}

// Do admits t as Admit does, runs effect on the calling goroutine and returns its error.
// Effects of different tokens of one key never overlap: when a higher token comes, the
// context of effects under way ends with the *StaleTokenError as its cause, lower tokens
// are refused from then on, and the higher one waits, bounded by its ctx, until those
// effects have returned. Effects of equal tokens run side by side.
//
// An effect must not call Do or Admit of the same key with a higher token: that waits for
// itself. Effects that take several keys must all take them in the same order.
func (g *FenceGuard) Do(ctx context.Context, key string, t Token, effect func(context.Context) error) error {
	if err := validateFence(key, t); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Entering comes before raising. So whoever is admitted before a higher token is seen
	// by it, and whoever enters after it was raised is refused.
	p := &passage{token: t, cancel: cancel, done: make(chan struct{})}
	g.enter(key, p)
	defer g.leave(key, p)
	highest, err := g.high.Raise(ctx, key, t)
	if err != nil {
		return fmt.Errorf("%s: admit fencing token %d: %w", key, t, err)
	}
	if err := staleUnless(key, t, highest); err != nil {
		return err
	}
	for _, done := range g.expel(key, t) {
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("%s: fencing token %d waits for effects of lower ones: %w", key, t, context.Cause(ctx))
		}
	}
	if ctx.Err() != nil { // a higher token came meanwhile, or the caller left
		return fmt.Errorf("%s: fencing token %d: %w", key, t, context.Cause(ctx))
	}
	return effect(ctx)
}

func (g *FenceGuard) enter(key string, p *passage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside[key] == nil {
		g.inside[key] = map[*passage]struct{}{}
	}
	g.inside[key][p] = struct{}{}
}

func (g *FenceGuard) leave(key string, p *passage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if delete(g.inside[key], p); len(g.inside[key]) == 0 {
		delete(g.inside, key)
	}
	close(p.done)
}

// expel tells the effects of tokens below t to stop and returns what is closed as they
// end.
func (g *FenceGuard) expel(key string, t Token) (ends []<-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.inside[key] {
		if p.token < t {
			p.cancel(&StaleTokenError{Key: key, Token: p.token, Highest: t})
			ends = append(ends, p.done)
		}
	}
	return ends
}

// MemoryHighWater is a HighWater that FORGETS EVERYTHING WHEN THE PROCESS ENDS. It is
// right only for a resource that lives and dies with this very process, such as a cache
// or a connection, and in tests. For anything that outlasts the process it admits former
// holders after a restart: use FileHighWater or SQLFence there. The zero value is ready,
// and may be used concurrently. It keeps at most 1 048 576 keys.
type MemoryHighWater struct {
	mu   sync.Mutex
	high map[string]Token
}

// Raise implements HighWater.
func (m *MemoryHighWater) Raise(_ context.Context, key string, t Token) (Token, error) {
	if err := validateFence(key, t); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if highest := m.high[key]; t <= highest {
		return highest, nil
	}
	if m.high == nil {
		m.high = map[string]Token{}
	}
	if _, known := m.high[key]; !known && len(m.high) == fenceKeysMax {
		return 0, errFenceKeys(key)
	}
	m.high[key] = t
	return t, nil
}
