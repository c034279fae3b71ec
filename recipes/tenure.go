package recipes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// Tenure is what every holder gets: of an election, a lock, a lease, a slot of a
// semaphore, a shard, an item of a queue. It is safe for concurrent use.
//
// It is held from the moment it is returned until Check fails: because it was Released,
// its deadline passed without a proof, its znode is gone, or its session is over. Once
// over it stays over. One that ran out gives its znode up by itself, so that others can
// follow although its work never comes back.
type Tenure struct {
	tenureSpec
	timing tenureTiming

	// limit is until when it is held, nil once it is over. proved is the monotonic time
	// of the last proof's sending.
	limit  atomic.Pointer[stamp]
	proved atomic.Int64

	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}
	news   *hookRunner // nil without hooks
	timer  *time.Timer // brings the news of grace and deadline; no more

	// mu is taken before the upkeep's lock, never after.
	mu struct {
		sync.Mutex
		over     error // *LostError
		last     stamp // the limit when it ended, or that of now
		prior    stamp // with lastButOne: send time of the last proof that counted
		released chan struct{}
		outcome  error // of the release; read it when released is closed
	}
}

// tenureSpec is what a recipe knows of a tenure it has just won. A plain value.
type tenureSpec struct {
	name    string // the recipe's path
	options Options
	token   Token
	tokens  map[string]Token // of LockAll, by path
	store   Store
	session Session // nil if it does not depend on one: the recipe then calls extend
	clock   func() (mono, wall int64)
	held    []Held // what the session's renewals check
	guard   []Op
	// worth overrides the session's timing, for tenures without one.
	worth time.Duration
	// leave gives up what is held in the store; clean says that its work ended before its
	// deadline. It is tried again while its error is transient.
	leave func(ctx context.Context, clean bool) error
	// confirm is Confirm, for tenures without a session.
	confirm func(ctx context.Context) error
}

// tenureTiming is Timing with its defaults for one session.
type tenureTiming struct {
	drift               float64
	worth, renew, grace time.Duration
	exact               bool // worth follows the TTL of each proof
	lastButOne          bool // count from the proof before the last
}

// shorten is how long a clock of ours may run for, so that a clock of theirs has not run
// for d, when both may be wrong by drift.
func shorten(d time.Duration, drift float64) time.Duration {
	return time.Duration(float64(d) * (1 - drift) / (1 + drift))
}

// inexactWorth is D as a part of the session timeout where expiry is not exact: short,
// since a successor waits for as long after a crash.
const inexactWorth = 0.4

// proofsApart is which part of the session timeout proofs must lie apart to count where the
// last but one is believed: ZooKeeper's members tell their leader every half tickTime whom
// they heard, which is often enough for session timeouts of four tickTimes or more.
const proofsApart = 8

// resolve gives the timing of tenures on a session with this timeout.
func (t Timing) resolve(c Caps, timeout time.Duration) tenureTiming {
	r := tenureTiming{drift: t.Drift, exact: c.ExactExpiry}
	longest := shorten(timeout, t.Drift)
	switch {
	case c.ExactExpiry:
		r.worth = longest
	case t.HoldOff.kind == holdOffNone:
		r.worth, r.lastButOne = longest, true
	default:
		r.worth = time.Duration(inexactWorth * float64(timeout))
	}
	if t.Worth > 0 {
		r.worth = min(t.Worth, longest)
	}
	return r.withDefaults(t, r.first(timeout))
}

// first is how long the first proof in a session with this timeout is worth. There is none
// before it to count from.
func (r tenureTiming) first(timeout time.Duration) time.Duration {
	if r.lastButOne {
		return min(r.worth, shorten(time.Duration(inexactWorth*float64(timeout)), r.drift))
	}
	return r.worth
}

// withDefaults has the renewal behind the first proof, and all others, come in time.
func (r tenureTiming) withDefaults(t Timing, first time.Duration) tenureTiming {
	r.grace = first / 5
	if t.Grace > 0 {
		r.grace = min(t.Grace, first*9/10)
	}
	// One renewal may be lost before the context ends.
	r.renew = min(first/3, (first-r.grace)*2/5)
	if t.Renew > 0 {
		r.renew = min(t.Renew, (first-r.grace)/2)
	}
	return r
}

// belief is for how long of true time after the sending of its last proof a holder with
// this timing may believe in its tenure.
func (r tenureTiming) belief() time.Duration {
	return time.Duration(float64(r.worth)/(1-r.drift)) + time.Millisecond
}

// startTenure begins a tenure whose first proof was sent at sent. ctx gives the values of
// its Context, not its end.
func startTenure(ctx context.Context, spec tenureSpec, sent stamp, ttl time.Duration) (*Tenure, error) {
	t := &Tenure{tenureSpec: spec, done: make(chan struct{})}
	if spec.session != nil {
		t.timing = spec.options.Timing.resolve(spec.store.Caps(), ttl)
		t.clock = spec.session.Upkeep().clock
	} else {
		r := tenureTiming{drift: spec.options.Timing.Drift, worth: spec.worth}
		t.timing = r.withDefaults(spec.options.Timing, r.worth)
	}
	t.ctx, t.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	t.mu.prior = sent
	t.proved.Store(sent.mono)
	limit := t.limitFrom(sent, ttl)
	if t.timing.lastButOne {
		first := int64(t.timing.first(ttl))
		limit = stamp{sent.mono + first, sent.wall + first}
	}
	t.mu.last = limit
	t.limit.Store(&limit)
	t.news = newHookRunner(spec.options.Hooks)
	if spec.session != nil {
		if err := spec.session.Upkeep().add(t); err != nil {
			t.cancel(err)
			return nil, err
		}
	}
	mono, _ := t.clock()
	t.mu.Lock()
	if t.mu.over == nil {
		t.timer = time.AfterFunc(time.Duration(limit.mono-mono)-t.timing.grace, t.tick)
		t.news.start(t)
	}
	t.mu.Unlock()
	spec.options.Log.Info("acquired", "path", t.name, "id", t.options.ID, "token", uint64(t.token))
	return t, nil
}

// limitFrom is until when a proof sent at sent lets a holder believe.
func (t *Tenure) limitFrom(sent stamp, ttl time.Duration) stamp {
	worth := t.timing.worth
	if t.timing.exact || t.timing.lastButOne {
		worth = min(worth, shorten(ttl, t.timing.drift))
	}
	return stamp{sent.mono + int64(worth), sent.wall + int64(worth)}
}

// extend takes a proof. The deadline never goes back. A tenure whose context has ended is
// not extended any more: whoever was told to stop is not told to go on.
func (t *Tenure) extend(sent stamp, ttl, rtt time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.over != nil || t.ctx.Err() != nil {
		return
	}
	t.proved.Store(max(t.proved.Load(), sent.mono))
	base := sent
	if t.timing.lastButOne {
		if sent.mono-t.mu.prior.mono < int64(ttl/proofsApart) {
			return // nobody may have told the leader of the one before
		}
		base, t.mu.prior = t.mu.prior, sent
	}
	limit := t.limitFrom(base, ttl)
	if limit.mono <= t.mu.last.mono {
		return
	}
	t.mu.last = limit
	t.limit.Store(&limit)
	mono, _ := t.clock()
	t.news.renewed(rtt, time.Duration(limit.mono-mono))
}

// tick is the timer: it brings news that Check knows by itself.
func (t *Tenure) tick() {
	t.mu.Lock()
	ended := false
	defer func() {
		t.mu.Unlock()
		t.tellEnd(ended, ErrDeadline)
	}()
	if t.mu.over != nil {
		return
	}
	mono, wall := t.clock()
	left := time.Duration(min(t.mu.last.mono-mono, t.mu.last.wall-wall))
	switch {
	case left <= 0:
		ended = t.endLocked(ErrDeadline)
	case left <= t.timing.grace:
		t.cancel(fmt.Errorf("%s (token %d): %w", t.name, t.token, ErrGrace))
		t.timer.Reset(left)
	default:
		t.timer.Reset(left - t.timing.grace)
	}
}

// end ends the tenure because of why, if it is not over already.
func (t *Tenure) end(why error) {
	t.mu.Lock()
	ended := t.endLocked(why)
	t.mu.Unlock()
	t.tellEnd(ended, why)
}

// endLocked reports whether it was this that ended it.
func (t *Tenure) endLocked(why error) bool {
	if t.mu.over != nil {
		return false
	}
	over := &LostError{Name: t.name, Token: t.token, Why: why}
	t.mu.over = over
	t.limit.Store(nil)
	t.cancel(over)
	if t.timer != nil {
		t.timer.Stop()
	}
	close(t.done)
	if t.session != nil {
		t.session.Upkeep().remove(t)
	}
	return true
}

// tellEnd follows endLocked, without the lock: what a logger does is the user's. A tenure
// that ran out gives up its znode, or whoever never comes back to Release it would keep
// all others from following while its session lives.
func (t *Tenure) tellEnd(ended bool, why error) {
	if !ended {
		return
	}
	t.options.Log.Info("lost", "path", t.name, "id", t.options.ID, "token", uint64(t.token), "why", why)
	if why == ErrDeadline && t.session != nil {
		t.mu.Lock()
		first, released := t.releasing()
		t.mu.Unlock()
		if first {
			t.giveUp(false, released)
		}
	}
}

// releasing needs mu. It reports whether this is the first to give the tenure up, and
// returns what is closed when that is done.
func (t *Tenure) releasing() (first bool, released chan struct{}) {
	first = t.mu.released == nil
	if first {
		t.mu.released = make(chan struct{})
	}
	return first, t.mu.released
}

// stop ends the context because of why and renews no more: the tenure runs out by
// itself, unless it is released before.
func (t *Tenure) stop(why error) { t.cancel(why) }

// Token returns the fencing token.
func (t *Tenure) Token() Token { return t.token }

// Tokens returns the fencing tokens by path: one, but for LockAll.
func (t *Tenure) Tokens() map[string]Token {
	if t.tokens == nil {
		return map[string]Token{t.name: t.token}
	}
	return maps.Clone(t.tokens)
}

// Name returns the path of the recipe.
func (t *Tenure) Name() string { return t.name }

// Holder returns Options.ID.
func (t *Tenure) Holder() string { return t.options.ID }

// Context returns a context that ends when work should end: Timing.Grace before the
// deadline if proofs fail to come (its cause is ErrGrace then), and when the tenure is
// over (a LostError). Once it has ended the tenure is not renewed any more.
func (t *Tenure) Context() context.Context { return t.ctx }

// Deadline returns until when the tenure is held by what is known now; the zero time
// once it is over.
func (t *Tenure) Deadline() time.Time {
	l := t.limit.Load()
	if l == nil {
		return time.Time{}
	}
	mono, wall := t.clock()
	return time.Now().Add(time.Duration(min(l.mono-mono, l.wall-wall)))
}

// Check returns nil if the tenure is held at this moment, else a *LostError. It compares
// two clocks with the deadline: no I/O, no lock, below 100 ns. Call it before every
// action; what happens after it is closed by Guard, Txn or a FenceGuard alone.
func (t *Tenure) Check() error { return t.CheckFor(0) }

// CheckFor returns nil if the tenure will be held for another d whatever happens.
// Otherwise it is ErrDeadline to errors.Is; if d is too long but the tenure is held, it
// stays so.
func (t *Tenure) CheckFor(d time.Duration) error {
	l := t.limit.Load()
	if l == nil {
		return t.overErr()
	}
	mono, wall := t.clock()
	if left := min(l.mono-mono, l.wall-wall); left <= int64(max(d, 0)) {
		return t.short(d, time.Duration(left))
	}
	return nil
}

// short is CheckFor's answer when only left is left.
func (t *Tenure) short(d, left time.Duration) error {
	if left > 0 {
		return fmt.Errorf("%s (token %d): %w in %v, and %v is needed", t.name, t.token, ErrDeadline, left, d)
	}
	t.end(ErrDeadline)
	return t.overErr()
}

func (t *Tenure) overErr() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.over
}

// Confirm asks the backend: one committed round trip. It returns nil if the tenure was
// held when the backend judged it, a *LostError if not, and another error if there was
// no answer.
func (t *Tenure) Confirm(ctx context.Context) error {
	if err := t.Check(); err != nil {
		return err
	}
	if t.confirm != nil {
		return t.confirm(ctx)
	}
	u := t.session.Upkeep()
	before := u.now()
	proof, verdicts, err := t.session.Renew(ctx, t.held...)
	if err != nil {
		if over := t.Check(); over != nil {
			return over
		}
		return err
	}
	if err := errors.Join(verdicts...); errors.Is(err, znode.NoNode) {
		t.end(ErrGone)
		return t.overErr()
	} else if err != nil {
		return err
	}
	t.extend(u.sentAt(proof, before), proof.TTL, time.Duration(u.now().mono-before.mono))
	return t.Check()
}

// Guard returns check operations for the caller's own Multi: with them it is applied only
// if the tenure is held at that point of the backend's order.
func (t *Tenure) Guard() []Op { return append([]Op(nil), t.guard...) }

// Txn is Store.Multi of ops under Guard: the effects of a former holder never land. It
// returns the results of ops, a *LostError if the guard refused, and else what Multi
// does, with a MultiError's Index counted in ops.
func (t *Tenure) Txn(ctx context.Context, ops ...Op) ([]OpResult, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	results, err := t.store.Multi(ctx, append(t.Guard(), ops...)...)
	if err == nil {
		return results[len(t.guard):], nil
	}
	if refused, ok := errors.AsType[*MultiError](err); ok {
		if refused.Index < len(t.guard) {
			t.end(ErrGone)
			return nil, t.overErr()
		}
		return nil, &MultiError{Index: refused.Index - len(t.guard), Op: refused.Op, Err: refused.Err}
	}
	return nil, err
}

// Done is closed when the tenure is over. It is news: Check knows earlier.
func (t *Tenure) Done() <-chan struct{} { return t.done }

// Err returns nil while the tenure is held, then a *LostError that says why.
func (t *Tenure) Err() error { return t.Check() }

// releaseWait bounds how long Release waits for the backend.
const releaseWait = 2 * time.Second

// Release gives the tenure up; the caller says that its work has ended. It is over for
// the caller at once. If that is before the deadline the next holder need not wait. It
// may be called again, by several goroutines. If the backend does not confirm within ctx
// and 2 s, Release returns an error and goes on in the background until the session
// ends, which is when the tenure's znode is gone at the latest.
func (t *Tenure) Release(ctx context.Context) error {
	t.mu.Lock()
	mono, wall := t.clock()
	clean := mono < t.mu.last.mono && wall < t.mu.last.wall
	ended := t.endLocked(ErrReleased)
	first, released := t.releasing()
	t.mu.Unlock()
	t.tellEnd(ended, ErrReleased)
	if first {
		t.giveUp(clean, released)
	}
	timer := time.NewTimer(releaseWait)
	defer timer.Stop()
	var why error
	select {
	case <-released:
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.mu.outcome
	case <-timer.C:
		why = context.DeadlineExceeded
	case <-ctx.Done():
		why = context.Cause(ctx)
	}
	return fmt.Errorf("%s (token %d): release not confirmed: %w: %w", t.name, t.token, ErrUncertain, why)
}

// finish ends the tenure whose znodes are gone already, with the work they stood for.
func (t *Tenure) finish() {
	t.mu.Lock()
	ended := t.endLocked(ErrReleased)
	if first, released := t.releasing(); first {
		close(released)
	}
	t.mu.Unlock()
	t.tellEnd(ended, ErrReleased)
}

// giveUp leaves in the background and closes released then.
func (t *Tenure) giveUp(clean bool, released chan struct{}) {
	leave := func(ctx context.Context) error { return t.leave(ctx, clean) }
	finish := func(err error) {
		t.mu.Lock()
		t.mu.outcome = err
		t.mu.Unlock()
		close(released)
	}
	if t.session != nil {
		t.session.Upkeep().ensure(t.options.Log, "release of "+t.name, leave, finish)
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), max(releaseWait, t.timing.worth))
		defer cancel()
		finish(leave(ctx))
	}()
}
