package recipes

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// round is one look of a stream at the backend.
type round[V any] struct {
	value   V
	changed bool          // against the round before
	again   time.Duration // look again after this long although nothing woke us; 0 never
}

// looker reads what a stream shows. Its methods are called by one goroutine.
type looker[V any] interface {
	// look reads and arms watches in w. Its error is tried again if it is transient or
	// the end of the session.
	look(ctx context.Context, w *watches) (round[V], error)
}

// stream yields what l sees: first the present value, then the latest after each change,
// and once, with fresh not set, when the connection broke. While it lasts it has one
// goroutine that looks, one that follows the session, and one per armed watch; all have
// ended when it returns.
func stream[V any](ctx context.Context, s Store, path string, l looker[V]) iter.Seq2[shown[V], error] {
	return func(yield func(shown[V], error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		c := &latest[V]{changed: make(chan struct{}, 1)}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.end(follow(ctx, s, path, l, c))
		}()
		defer func() {
			cancel()
			<-done
		}()
		for {
			select {
			case <-c.changed:
			case <-ctx.Done():
				return
			}
			v, news, err := c.take()
			if ctx.Err() != nil {
				return
			}
			if news && !yield(v, nil) {
				return
			}
			if err != nil {
				yield(shown[V]{}, err)
				return
			}
		}
	}
}

// shown is a value and whether it is known to be the present one.
type shown[V any] struct {
	value V
	fresh bool
}

// latest is a value of which the reader gets the last one only. The zero value but for
// changed, which has capacity 1. For one writer, one follower of the session, one reader.
type latest[V any] struct {
	changed chan struct{}

	mu struct {
		sync.Mutex
		shown  shown[V]
		any    bool // something was shown
		unseen bool // something has changed that was not shown
		news   bool // that was not taken
		up     bool // the connection
		epoch  int  // counts its breaks
		err    error
	}
}

// connection notes that the connection is up or not. What was read before it broke is
// not fresh any more.
func (c *latest[V]) connection(up bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.up && !up {
		c.mu.epoch++
	}
	c.mu.up = up
	if !up && c.mu.any && c.mu.shown.fresh {
		c.mu.shown.fresh, c.mu.news = false, true
		wakeup(c.changed)
	}
}

// epoch is to be read before what is then shown.
func (c *latest[V]) epoch() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.epoch
}

// show replaces the value, which was read in the epoch. It does nothing while the
// connection is down, and reports false if it broke since the epoch: the value is to be
// read again.
func (c *latest[V]) show(v V, changed bool, epoch int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.unseen = c.mu.unseen || changed
	if c.mu.epoch != epoch || !c.mu.up {
		return c.mu.epoch == epoch
	}
	if !c.mu.any || c.mu.unseen || !c.mu.shown.fresh {
		c.mu.shown, c.mu.any, c.mu.news = shown[V]{v, true}, true, true
		c.mu.unseen = false
		wakeup(c.changed)
	}
	return true
}

// end says why there will be nothing more.
func (c *latest[V]) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.err = err
	wakeup(c.changed)
}

func (c *latest[V]) take() (v shown[V], news bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	news, c.mu.news = c.mu.news, false
	return c.mu.shown, news, c.mu.err
}

// follow is the goroutine of a stream that looks, over sessions that come and go. It
// returns when ctx ends, the store is closed or the backend refuses.
func follow[V any](ctx context.Context, s Store, path string, l looker[V], c *latest[V]) error {
	w := newWatches()
	defer w.close()
	for {
		sess, err := connected(ctx, s)
		if err != nil {
			return err
		}
		if err := followSession(ctx, s, sess, path, l, c, w); err != nil {
			return err
		}
	}
}

// followSession looks until the session is over, which is no error.
func followSession[V any](ctx context.Context, s Store, sess Session, path string, l looker[V], c *latest[V], w *watches) error {
	ctx, cancel := context.WithCancel(ctx)
	c.connection(sess.State() == Connected)
	var states sync.WaitGroup
	states.Go(func() {
		for state := range sess.States(ctx) {
			c.connection(state == Connected)
			wakeup(w.wake)
		}
	})
	defer states.Wait()
	defer cancel()
	var failures backoff
	synced := false // a new session may be with a member that lags
	seen := c.epoch() - 1
	for {
		epoch := c.epoch()
		if epoch != seen {
			w.disarmAll() // they may have missed something, and tell so late
			seen = epoch
		}
		var r round[V]
		var err error
		if !synced {
			err = s.Sync(ctx, path)
			synced = err == nil
		}
		if err == nil {
			r, err = l.look(ctx, w)
		}
		wait := r.again
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			failures = backoff{}
			c.connection(sess.State() == Connected) // its news may be behind the answer
			if !c.show(r.value, r.changed, epoch) {
				continue
			}
		case transient(err) || sessionOver(err):
			wait = failures.next()
		default:
			return err
		}
		if over, err := awaitWake(ctx, sess, w.wake, wait); over || err != nil {
			return err
		}
	}
}

// awaitWake waits to be woken, for d if it is not 0, and for the end of the session or ctx.
func awaitWake(ctx context.Context, sess Session, wake <-chan struct{}, d time.Duration) (over bool, err error) {
	var due <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-wake:
	case <-due:
	case <-sess.Done():
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	return false, nil
}

// watches are the armed watches of a stream by key. Whichever fires is disarmed and fills
// wake. arm and disarm are for one goroutine, the other methods for any.
type watches struct {
	wake chan struct{} // capacity 1
	wg   sync.WaitGroup
	mu   struct {
		sync.Mutex
		armed map[string]*armed
	}
}

// armed is one watch and the goroutine that waits for it.
type armed struct{ stop chan struct{} }

func newWatches() *watches {
	w := &watches{wake: make(chan struct{}, 1)}
	w.mu.armed = map[string]*armed{}
	return w
}

// arm waits for watch from now on, instead of the one there was under the key.
func (w *watches) arm(key string, watch Watch) {
	w.disarm(key)
	a := &armed{stop: make(chan struct{})}
	w.mu.Lock()
	w.mu.armed[key] = a
	w.mu.Unlock()
	w.wg.Go(func() {
		defer watch.Cancel()
		select {
		case <-watch.C:
		case <-a.stop:
			return
		}
		w.mu.Lock()
		if w.mu.armed[key] == a {
			delete(w.mu.armed, key)
		}
		w.mu.Unlock()
		wakeup(w.wake)
	})
}

// has reports whether a watch is armed under the key and has not fired.
func (w *watches) has(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.armed[key] != nil
}

// disarm gives up the watch, if there is one.
func (w *watches) disarm(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.mu.armed[key]; a != nil {
		close(a.stop)
		delete(w.mu.armed, key)
	}
}

// disarmAll gives up all watches.
func (w *watches) disarmAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, a := range w.mu.armed {
		close(a.stop)
		delete(w.mu.armed, key)
	}
}

// close gives up all watches and waits for the goroutines.
func (w *watches) close() {
	w.disarmAll()
	w.wg.Wait()
}

// count returns how many watches are armed.
func (w *watches) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mu.armed)
}

// retryRead calls f, which writes nothing, until its outcome is definite or ctx ends.
func retryRead(ctx context.Context, f func() error) error {
	var b backoff
	for {
		err := f()
		if err == nil || ctx.Err() != nil || !transient(err) {
			return err
		}
		if pause(ctx, b.next()) != nil {
			return err
		}
	}
}

// readW reads a znode with a watch for whatever changes about it, also where there is
// none yet.
func readW(ctx context.Context, s Store, path string) (data []byte, stat znode.Stat, exists bool, watch Watch, err error) {
	for range reconcileTries {
		data, stat, watch, err = s.GetW(ctx, path)
		if err == nil || !errors.Is(err, znode.NoNode) {
			return data, stat, err == nil, watch, err
		}
		_, exists, watch, err = s.ExistsW(ctx, path)
		if err != nil || !exists {
			return nil, znode.Stat{}, false, watch, err
		}
		watch.Cancel() // it was made in between
	}
	return nil, znode.Stat{}, false, Watch{}, ErrUnavailable
}
