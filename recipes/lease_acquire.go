package recipes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// leaseSight is since when the present record has been seen. It is safe for concurrent
// use. The clock of the record's writer never matters.
type leaseSight struct {
	mu    sync.Mutex
	mzxid int64
	since int64 // monotonic
}

// age notes that the record with this zxid was seen at now, and returns for how long it
// has been.
func (s *leaseSight) age(mzxid, now int64) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if mzxid != s.mzxid {
		s.mzxid, s.since = mzxid, now
	}
	return time.Duration(now - s.since)
}

// Acquire waits until the lease is free or has run out, and takes it. If it returns an
// error it holds nothing: what it may have written without an answer is released in the
// background, or runs out.
func (l *Lease) Acquire(ctx context.Context) (*Tenure, error) {
	c := &challenger{lease: l, nonce: newGUID()}
	defer c.unwatch()
	var t *Tenure
	err := insist(ctx, nil, func() (err error) {
		var wait time.Duration
		if t, wait, err = c.step(ctx); err != nil || t != nil {
			return err
		}
		if err := c.watchHolder(ctx); err != nil {
			return err
		}
		return c.wait(ctx, wait)
	})
	if err != nil {
		c.giveUp()
		return nil, fmt.Errorf("acquire lease %s: %w", l.path, err)
	}
	return t, nil
}

// TryAcquire takes the lease if it is free or has run out, and reports whether it did.
// Whether it has run out is known by having looked before: this Lease remembers since
// when it has seen the present record.
func (l *Lease) TryAcquire(ctx context.Context) (*Tenure, bool, error) {
	c := &challenger{lease: l, nonce: newGUID()}
	var t *Tenure
	err := insist(ctx, nil, func() (err error) {
		// There is no second look for who is answered by a member that lags.
		if err := l.store.Sync(ctx, l.path); err != nil {
			return err
		}
		t, _, err = c.step(ctx)
		return err
	})
	if err != nil {
		c.giveUp()
		return nil, false, fmt.Errorf("acquire lease %s: %w", l.path, err)
	}
	return t, t != nil, nil
}

// challenger is one call of Acquire. All its tries bear one nonce: whichever is applied
// is known again.
type challenger struct {
	lease   *Lease
	nonce   string
	seen    LeaseRecord // at the last look
	wrote   bool        // something that may be, or become, applied
	orphan  bool        // the znode of the former tenure is missing
	watched string      // nonce of the tenure whose znode is watched
	watch   Watch
	record  Watch // of the record, if we are the preferred holder
}

// step looks, and takes the lease if it may. Otherwise it returns how long until it may if
// nothing changes.
func (c *challenger) step(ctx context.Context) (*Tenure, time.Duration, error) {
	l := c.lease
	r, stat, err := c.look(ctx)
	if errors.Is(err, znode.NoNode) {
		return nil, 0, again(l.ensure(ctx))
	}
	if err != nil {
		return nil, 0, err
	}
	if r.Nonce == c.nonce {
		return c.confirmed(ctx, r, stat.Version)
	}
	mono, _ := l.clock()
	age := l.sight.age(stat.Mzxid, mono)
	var patience time.Duration
	if r.held() {
		patience = r.duration()
	}
	if r.Preferred != "" && r.Preferred != l.o.ID {
		patience += l.o.RetryPeriod
	}
	if wait := patience - age; wait > 0 {
		c.seen = r
		return nil, wait, nil
	}
	t, err := c.take(ctx, r, stat)
	return t, 0, err
}

// look reads. After a write of unknown outcome it must see that.
func (c *challenger) look(ctx context.Context) (LeaseRecord, znode.Stat, error) {
	if c.wrote {
		return c.lease.reread(ctx)
	}
	return c.lease.read(ctx)
}

// take writes the record of our tenure in place of what was read. The token is known
// before that: it is above the former token and above the zxid of what is replaced, but not
// above the zxid of the write itself. So it grows within the life of the znode, and over
// its deletion, since what is made anew has a higher zxid than all former writes.
func (c *challenger) take(ctx context.Context, old LeaseRecord, stat znode.Stat) (*Tenure, error) {
	l := c.lease
	next := LeaseRecord{
		Holder: l.o.ID, Data: l.o.Data, DurationMS: l.o.Duration.Milliseconds(), Nonce: c.nonce,
		Transitions: old.Transitions + 1, Token: max(old.Token+1, old.Floor+1, Token(stat.Mzxid)+1), Floor: old.Floor,
		RenewedAt: time.Now().UTC().Round(0),
	}
	if l.o.Preferred != l.o.ID {
		next.Preferred = l.o.Preferred
	}
	ops := []Op{
		OpSet(l.path, next.encode(), IfVersion(stat.Version)),
		OpCreate(l.holder(c.nonce), nil, CreateSpec{}),
	}
	if old.held() && !c.orphan {
		ops = append(ops, OpDelete(l.holder(old.Nonce), Always()))
	}
	sent := l.now()
	c.wrote = true
	results, err := l.store.Multi(ctx, ops...)
	if refused, ok := errors.AsType[*MultiError](err); ok {
		c.orphan = refused.Index == 2 // deleted by hand
		l.o.Log.Debug("lease not taken", "path", l.path, "id", l.o.ID, "err", err)
		return nil, errConflict
	}
	if err != nil {
		return nil, err // the next look tells
	}
	return c.won(ctx, next, results[0].Stat.Version, sent)
}

// confirmed is for a record of ours whose answer was lost: a renewal, whose send time is
// known, proves that it is still ours.
func (c *challenger) confirmed(ctx context.Context, r LeaseRecord, version int32) (*Tenure, time.Duration, error) {
	l := c.lease
	r.Renewals++
	sent := l.now()
	stat, err := l.store.Set(ctx, l.path, r.encode(), IfVersion(version))
	if errors.Is(err, znode.BadVersion) || errors.Is(err, znode.NoNode) {
		return nil, 0, errConflict
	}
	if err != nil {
		return nil, 0, err
	}
	t, err := c.won(ctx, r, stat.Version, sent)
	return t, 0, err
}

// won begins the tenure and its renewals. If the answer took so long that the tenure
// would begin with its grace, it asks for another look, which proves it once more.
func (c *challenger) won(ctx context.Context, r LeaseRecord, version int32, sent stamp) (*Tenure, error) {
	l := c.lease
	timing := tenureTiming{worth: l.o.RenewDeadline}.withDefaults(l.o.Timing, l.o.RenewDeadline)
	if time.Duration(l.now().mono-sent.mono) >= timing.worth-timing.grace {
		return nil, errAgain
	}
	h := &leaseHold{lease: l, turn: make(chan struct{}, 1), joined: make(chan struct{}), record: r, version: version, renewals: r.Renewals}
	t, err := startTenure(ctx, tenureSpec{
		name: l.path, options: l.o.Options, token: r.Token, store: l.store, clock: l.clock,
		guard: []Op{OpCheck(l.holder(r.Nonce), Always())}, worth: l.o.RenewDeadline,
		leave: h.leave, confirm: h.confirm,
	}, sent, l.o.RenewDeadline)
	if err != nil {
		return nil, err
	}
	h.tenure = t
	go h.run(sent.mono)
	return t, nil
}

// giveUp releases what may have been written.
func (c *challenger) giveUp() {
	if !c.wrote {
		return
	}
	h := &leaseHold{lease: c.lease, record: LeaseRecord{Nonce: c.nonce}, unsure: true}
	c.lease.store.Session().Upkeep().ensure(c.lease.o.Log, "release of "+c.lease.path, h.release, nil)
}

// watchHolder watches the znode of the present tenure, which changes at its end and not at
// its renewals, and asks for another look if it has just begun to. The preferred holder
// watches the record too: to be the first it must see each renewal when it happens.
func (c *challenger) watchHolder(ctx context.Context) error {
	l, r, fresh := c.lease, c.seen, false
	if c.watched != r.Nonce {
		c.unwatch()
		if r.held() {
			_, _, watch, err := l.store.ExistsW(ctx, l.holder(r.Nonce))
			if err != nil {
				return err
			}
			c.watch, c.watched, fresh = watch, r.Nonce, true
		}
	}
	if r.Preferred == l.o.ID && c.record.C == nil {
		_, _, watch, err := l.store.GetW(ctx, l.path)
		if err != nil {
			return err
		}
		c.record, fresh = watch, true
	}
	if fresh {
		return errAgain // what ended before the watch was set
	}
	return nil
}

func (c *challenger) unwatch() {
	if c.watch.C != nil {
		c.watch.Cancel()
	}
	if c.record.C != nil {
		c.record.Cancel()
	}
	c.watch, c.record, c.watched = Watch{}, Watch{}, ""
}

// wait waits for the next look: at most a jittered RetryPeriod.
func (c *challenger) wait(ctx context.Context, until time.Duration) error {
	period := c.lease.o.RetryPeriod
	timer := time.NewTimer(min(until, period+time.Duration(rand.Float64()*leaseJitter*float64(period))))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.watch.C:
		c.unwatch()
	case <-c.record.C:
		c.record = Watch{}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return errAgain
}

// leaseJitter is client-go's JitterFactor: looks are RetryPeriod to 2.2 of it apart.
const leaseJitter = 1.2
