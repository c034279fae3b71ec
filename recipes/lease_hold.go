package recipes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// leaseHold renews the record of one tenure and releases it.
type leaseHold struct {
	lease  *Lease
	tenure *Tenure
	joined chan struct{} // closed when run has ended

	// turn holds a value while somebody writes; who does owns all below.
	turn     chan struct{}
	record   LeaseRecord // as known
	version  int32       // of its znode
	renewals uint64      // the highest number that was tried: each try has its own
	unsure   bool        // the record must be read before it is written
	orphan   bool        // the tenure's znode is missing
}

// run is the goroutine that renews, until the tenure's context ends.
func (h *leaseHold) run(sent int64) {
	defer close(h.joined)
	l, ctx := h.lease, h.tenure.Context()
	for {
		mono, _ := l.clock()
		if !h.sleep(ctx, time.Duration(sent-mono)+jitter(l.o.RetryPeriod)) {
			return
		}
		sent, _ = l.clock()
		err := h.renew(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrSessionClosed):
			h.tenure.end(ErrSessionClosed)
			return
		case err != nil:
			l.o.Log.Warn("lease not renewed", "path", l.path, "id", l.o.ID, "token", uint64(h.record.Token), "err", err)
		}
	}
}

// sleep waits for d, and reports whether to go on. The end of a session does not matter,
// that of the store ends the tenure.
func (h *leaseHold) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		sess := h.lease.store.Session()
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		case <-sess.Done():
			if errors.Is(sess.Err(), ErrSessionClosed) {
				h.tenure.end(ErrSessionClosed)
				return false
			}
			if h.lease.store.Session() == sess { // its successor is about to come
				_ = pause(ctx, backoffMin)
			}
		}
	}
}

// lock takes the turn.
func (h *leaseHold) lock(ctx context.Context) error {
	select {
	case h.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *leaseHold) unlock() { <-h.turn }

// renew writes the record once more and takes that as a proof, or ends the tenure if the
// record is another's.
func (h *leaseHold) renew(ctx context.Context) error {
	if err := h.lock(ctx); err != nil {
		return err
	}
	defer h.unlock()
	var sent stamp // of the latest try
	return insist(ctx, nil, func() error {
		if h.unsure {
			done, err := h.settle(ctx, sent)
			if err != nil || done {
				return err
			}
		}
		next := h.record
		h.renewals++
		next.Renewals, next.RenewedAt = h.renewals, time.Now().UTC().Round(0)
		sent = h.lease.now()
		stat, err := h.lease.store.Set(ctx, h.lease.path, next.encode(), IfVersion(h.version))
		if err == nil {
			h.record, h.version = next, stat.Version
			h.proved(sent)
			return nil
		}
		h.unsure = true
		if errors.Is(err, znode.BadVersion) || errors.Is(err, znode.NoNode) {
			return errAgain
		}
		return err
	})
}

// settle reads what the record is after a write of unknown outcome, or after one from
// outside. It reports whether there is nothing left to do: the tenure is over, or the
// latest try, sent at sent, is what is there. Each try has a number of its own, so an
// earlier one is not taken for it.
func (h *leaseHold) settle(ctx context.Context, sent stamp) (bool, error) {
	r, stat, err := h.lease.reread(ctx)
	switch {
	case errors.Is(err, znode.NoNode):
		h.tenure.end(ErrGone)
		return true, nil
	case err != nil && !errors.Is(err, ErrInvalid):
		return false, err
	case err != nil || r.Nonce != h.record.Nonce:
		h.tenure.end(ErrNodeTaken)
		return true, nil
	}
	asked := r.Preferred != h.record.Preferred && r.Preferred != "" && r.Preferred != h.lease.o.ID
	h.record, h.version, h.unsure = r, stat.Version, false
	proved := sent != stamp{} && r.Renewals == h.renewals
	if proved {
		h.proved(sent)
	}
	if asked {
		h.tenure.stop(fmt.Errorf("%s (token %d): %w to %s", h.lease.path, r.Token, ErrHandOver, r.Preferred))
	}
	return proved || asked, nil
}

func (h *leaseHold) proved(sent stamp) {
	h.tenure.extend(sent, h.lease.o.RenewDeadline, time.Duration(h.lease.now().mono-sent.mono))
}

// confirm is Tenure.Confirm: a renewal.
func (h *leaseHold) confirm(ctx context.Context) error {
	if err := h.renew(ctx); err != nil {
		return err
	}
	return h.tenure.Check()
}

// leave is the release: after the last renewal, which could otherwise come later and
// revive what was released. It does not matter whether the deadline has passed: the work
// has ended, and the record is written only if it is still ours.
func (h *leaseHold) leave(ctx context.Context, _ bool) error {
	<-h.joined // its context has ended
	if err := h.lock(ctx); err != nil {
		return err
	}
	defer h.unlock()
	return h.release(ctx)
}

// release frees the record if it names our tenure still.
func (h *leaseHold) release(ctx context.Context) error {
	l, nonce := h.lease, h.record.Nonce
	return insist(ctx, nil, func() error {
		if h.unsure {
			r, stat, err := l.reread(ctx)
			if errors.Is(err, znode.NoNode) || errors.Is(err, ErrInvalid) || err == nil && r.Nonce != nonce {
				return nil
			}
			if err != nil {
				return err
			}
			h.record, h.version = r, stat.Version
		}
		ops := []Op{OpSet(l.path, h.record.released().encode(), IfVersion(h.version))}
		if !h.orphan {
			ops = append(ops, OpDelete(l.holder(nonce), Always()))
		}
		_, err := l.store.Multi(ctx, ops...)
		h.unsure = err != nil
		if refused, ok := errors.AsType[*MultiError](err); ok {
			h.orphan = refused.Index == 1 // deleted by hand
			return errAgain
		}
		return err
	})
}
