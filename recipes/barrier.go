package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-dev/tenure/znode"
)

// Barrier holds back everybody who waits while it is raised. It is one persistent znode:
// raised is that it exists, so it outlives whoever raised it. It is safe for concurrent
// use and starts no goroutine.
type Barrier struct {
	store Store
	path  string
}

// NewBarrier returns the barrier at path.
func NewBarrier(s Store, path string) (*Barrier, error) {
	if err := validateDir(path); err != nil {
		return nil, err
	}
	return &Barrier{store: s, path: path}, nil
}

// Raise raises the barrier; one that is raised already stays so. If an answer is lost it
// raises again, so the barrier was raised at some instant of the call, whoever lowered it.
func (b *Barrier) Raise(ctx context.Context) error {
	err := insist(ctx, nil, func() error {
		_, err := b.store.Create(ctx, b.path, nil, CreateSpec{})
		switch {
		case errors.Is(err, znode.NodeExists):
			return nil
		case errors.Is(err, znode.NoNode):
			parent, _ := znode.Split(b.path)
			if err := ensureDir(ctx, b.store, parent, znode.Container); err != nil {
				return err
			}
			return errAgain
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("raise barrier %s: %w", b.path, err)
	}
	return nil
}

// Lower lowers the barrier; one that is not raised stays so. A barrier that was raised
// anew while an answer was lost is left alone.
func (b *Barrier) Lower(ctx context.Context) error {
	var czxid int64 // of the barrier that is lowered
	err := insist(ctx, nil, func() error {
		if err := b.store.Sync(ctx, b.path); err != nil {
			return err
		}
		_, stat, err := b.store.Get(ctx, b.path)
		if err == nil && (czxid == 0 || czxid == stat.Czxid) {
			czxid = stat.Czxid
			err = b.store.Delete(ctx, b.path, Always())
		}
		if errors.Is(err, znode.NoNode) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("lower barrier %s: %w", b.path, err)
	}
	return nil
}

// Wait returns nil once a read, which sees whatever was committed before Wait was called,
// says that the barrier is not raised. Lost connections and ended sessions do not end it:
// otherwise it ends with ctx, with the store, or with an error that trying again does not
// cure.
func (b *Barrier) Wait(ctx context.Context) error {
	err := insist(ctx, nil, func() error {
		// A new session, or a server that lags, may be behind what is known already.
		if err := b.store.Sync(ctx, b.path); err != nil {
			return err
		}
		_, raised, watch, err := b.store.ExistsW(ctx, b.path)
		if err != nil {
			return err
		}
		defer watch.Cancel()
		if !raised {
			return nil
		}
		select {
		case <-watch.C: // says nothing by itself: read again
			return errAgain
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if err != nil {
		return fmt.Errorf("wait at barrier %s: %w", b.path, err)
	}
	return nil
}

// What a try may return to be tried again.
var (
	errAgain    = errors.New("again")                   // at once
	errConflict = errors.New("changed by others again") // after a wait
)

// insist does an idempotent try until it succeeds or fails for good. The waits after a
// failure back off. What no session owns goes on in the next session; for what one owns,
// sess is that session and its end is the end.
func insist(ctx context.Context, sess Session, try func() error) error {
	var wait backoff
	for {
		err := try()
		if err != nil && sess != nil && sess.Err() != nil {
			return fmt.Errorf("%w: %w", sess.Err(), err)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return outOfTime(ctx, err)
		case errors.Is(err, errAgain):
			wait = backoff{}
			continue
		case !transient(err) && !errors.Is(err, errConflict) && (sess != nil || !errors.Is(err, ErrSessionExpired)):
			return err
		}
		if pause(ctx, wait.next()) != nil {
			return outOfTime(ctx, err)
		}
	}
}

// outOfTime is the error of a call whose ctx ended when its last try had failed with err,
// which is kept if it says that something may have been written.
func outOfTime(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if errors.Is(err, ErrUncertain) && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	if errors.Is(err, ErrUncertain) {
		return err
	}
	return cause
}
