package recipes

import (
	"context"
	"errors"
)

// Mutex is a lock that one holder at a time has, in the order of asking. It is safe for
// concurrent use and not reentrant: each Lock is a place of its own, also by goroutines
// of one process, and waits for the one before it. Who needs the lock deeper down passes
// the Tenure on. Only the Tenure can release what it holds.
type Mutex struct{ line *line }

// NewMutex makes a mutex of the directory path, which is created when it is needed.
func NewMutex(s Store, path string, o Options) (*Mutex, error) {
	l, err := newLine(s, path, o, exclusive{}, kindExclusive)
	if err != nil {
		return nil, err
	}
	return &Mutex{l}, nil
}

// Lock waits until the lock is held. It fails when ctx ends, with the session that was
// current when it began (ErrSessionExpired, ErrSessionClosed), or for good reasons that
// waiting does not cure, such as znode.NoAuth; then nothing is left behind.
func (m *Mutex) Lock(ctx context.Context) (*Tenure, error) { return m.line.hold(ctx, false) }

// TryLock takes the lock if nobody has it or waits for it, and nobody may still believe to
// have it. It waits for answers only. Where expiry is not exact it therefore fails at
// first after a crash, and for a path that was never used: the Mutex remembers since when
// it saw that, and a later try succeeds.
func (m *Mutex) TryLock(ctx context.Context) (*Tenure, bool, error) {
	return tried(m.line.hold(ctx, true))
}

// tried makes being too late a value.
func tried(t *Tenure, err error) (*Tenure, bool, error) {
	if errors.Is(err, errBusy) {
		return nil, false, nil
	}
	return t, err == nil, err
}
