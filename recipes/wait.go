package recipes

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff is a sequence of waits that double up to a bound, with full jitter: each is
// random between nothing and its bound, so that those who failed together do not try
// again together. The zero value begins at backoffMin. Not for concurrent use.
type backoff struct{ bound time.Duration }

const (
	backoffMin = 20 * time.Millisecond
	backoffMax = 2 * time.Second
)

// next returns the next wait.
func (b *backoff) next() time.Duration {
	b.bound = min(max(2*b.bound, backoffMin), backoffMax)
	return time.Duration(rand.Int64N(int64(b.bound))) + time.Millisecond
}

// pause waits for d or the end of ctx, whose cause it then returns.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// jitter is d with up to 10 % more or less, so that what began together drifts apart.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(d/5)+1))
}

// connected returns the store's session once it is Connected, and takes the next one if
// that ends first.
func connected(ctx context.Context, s Store) (Session, error) {
	for {
		sess := s.Session()
		for state := range sess.States(ctx) {
			if state == Connected {
				return sess, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-sess.Done(): // the next one is current by now
		}
		if next := s.Session(); next == sess {
			return nil, sess.Err() // closed for good
		}
	}
}
