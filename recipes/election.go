package recipes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Election lets one of several candidates lead: the one that asked first. It is safe for
// concurrent use; each Campaign is a candidate of its own.
type Election struct {
	line   *line
	health *Health
}

// ElectionOptions configures an Election.
type ElectionOptions struct {
	Options
	// Health, if set, keeps a candidate that cannot work from leading: a failing one
	// renews its session as well as any other. Run alone uses it.
	Health *Health
}

// Health says how to tell whether this process can do a leader's work.
type Health struct {
	Check    func(context.Context) error
	Every    time.Duration // between checks, default 5 s
	Timeout  time.Duration // of one check, default Every
	Failures int           // consecutive failures that end a tenure or a candidacy, default 3
	Cooldown time.Duration // without a candidacy after that, default 30 s
}

func (h *Health) withDefaults() (*Health, error) {
	if h == nil {
		return nil, nil
	}
	d := *h
	switch {
	case d.Check == nil:
		return nil, fmt.Errorf("%w: Health.Check is nil: leave Health nil for none", ErrInvalid)
	case d.Every < 0 || d.Timeout < 0 || d.Failures < 0 || d.Cooldown < 0:
		return nil, fmt.Errorf("%w: Health %+v: nothing of it may be negative", ErrInvalid,
			[]any{d.Every, d.Timeout, d.Failures, d.Cooldown})
	}
	if d.Every == 0 {
		d.Every = 5 * time.Second
	}
	if d.Timeout == 0 {
		d.Timeout = d.Every
	}
	if d.Failures == 0 {
		d.Failures = 3
	}
	if d.Cooldown == 0 {
		d.Cooldown = 30 * time.Second
	}
	return &d, nil
}

// NewElection makes an election of the directory path, which is created when it is needed.
func NewElection(s Store, path string, o ElectionOptions) (*Election, error) {
	l, err := newLine(s, path, o.Options, exclusive{}, kindExclusive)
	if err != nil {
		return nil, err
	}
	health, err := o.Health.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Election{line: l, health: health}, nil
}

// Campaign waits until this candidate leads. It fails when ctx ends, with the session that
// was current when it began (ErrSessionExpired, ErrSessionClosed), or for reasons that
// waiting does not cure, such as znode.NoAuth; then nothing is left behind. The end of ctx
// does not end the tenure.
func (e *Election) Campaign(ctx context.Context) (*Tenure, error) { return e.line.hold(ctx, false) }

// Run campaigns, calls lead with Tenure.Context, waits for it to return, releases, and
// begins again, with the next session if one ends, until ctx ends: then it returns nil. If
// lead returns nil, or an error that says no more than that its tenure or its context is
// over (what Check, CheckFor and the context return, and an ErrStaleToken where the tenure
// is lost), it goes to the end of the line; another error ends Run. If campaigning fails for
// a reason that waiting does not cure, Run returns that.
//
// When ctx ends, or health fails, lead's context ends and the tenure is no longer
// renewed. It is released when lead has returned, and never before: if lead does not
// return, the tenure runs out.
func (e *Election) Run(ctx context.Context, lead func(context.Context, *Tenure) error) error {
	var b backoff
	for ctx.Err() == nil {
		r := e.runOnce(ctx, lead)
		switch {
		case r.led && r.err != nil:
			return r.err
		case r.led:
			b = backoff{}
		case ctx.Err() != nil:
			return nil
		case r.sick == nil && (errors.Is(r.err, ErrSessionClosed) || !transient(r.err) && !sessionOver(r.err)):
			return r.err
		}
		switch {
		case r.sick != nil:
			e.line.o.Log.Warn("unhealthy: not a candidate for a while", "recipe", "election",
				"path", e.line.path, "id", e.line.o.ID, "for", e.health.Cooldown, "err", r.sick)
			_ = pause(ctx, e.health.Cooldown)
		case !r.led:
			e.line.o.Log.Debug("candidacy ended", "recipe", "election", "path", e.line.path, "id", e.line.o.ID, "err", r.err)
			_ = pause(ctx, b.next())
		}
	}
	return nil
}

// candidacy is what became of one attempt to lead.
type candidacy struct {
	led  bool
	err  error // of lead if it led, else why it did not
	sick error // what ended it was this process's health
}

func (e *Election) runOnce(ctx context.Context, lead func(context.Context, *Tenure) error) (r candidacy) {
	ctx, cancel := context.WithCancelCause(ctx)
	var health sync.WaitGroup
	health.Go(func() { e.watchHealth(ctx, cancel) })
	defer func() {
		if cause := context.Cause(ctx); errors.Is(cause, ErrUnhealthy) {
			r.sick = cause
		}
		cancel(nil)
		health.Wait()
	}()
	t, err := e.line.hold(ctx, false)
	if err != nil {
		return candidacy{err: err}
	}
	stop := context.AfterFunc(ctx, func() { t.stop(context.Cause(ctx)) })
	defer stop()
	defer func() { // also if lead panics
		// A release that is not confirmed goes on, and the next candidacy waits behind it.
		if err := t.Release(context.WithoutCancel(ctx)); err != nil {
			e.line.o.Log.Info("released", "recipe", "election", "path", e.line.path, "err", err)
		}
	}()
	err = lead(t.Context(), t)
	if saysOver(ctx, t, err) {
		err = nil
	}
	return candidacy{led: true, err: err}
}

// saysOver reports whether an error of t's work says no more than that t or its context is
// over, or soon: that Check, CheckFor or the context said so, or that a resource refused
// its token where it is indeed no longer held.
func saysOver(ctx context.Context, t *Tenure, err error) bool {
	switch ended := t.Context(); {
	case errors.Is(err, ErrLost), errors.Is(err, ErrDeadline):
		return true
	case ended.Err() != nil && (errors.Is(err, ended.Err()) || errors.Is(err, context.Cause(ended))):
		return true
	case errors.Is(err, ErrStaleToken):
		// A fence that refuses the token of who holds is something to be told of.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWait)
		defer cancel()
		return errors.Is(t.Confirm(ctx), ErrLost)
	}
	return false
}

// watchHealth ends ctx after enough consecutive failures. It returns with ctx.
func (e *Election) watchHealth(ctx context.Context, cancel context.CancelCauseFunc) {
	if e.health == nil {
		return
	}
	for failures := 0; ; {
		check, done := context.WithTimeout(ctx, e.health.Timeout)
		err := e.health.Check(check)
		done()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
		default:
			if failures++; failures >= e.health.Failures {
				cancel(fmt.Errorf("%w: %w", ErrUnhealthy, err))
				return
			}
		}
		if pause(ctx, e.health.Every) != nil {
			return
		}
	}
}
