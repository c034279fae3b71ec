package recipes

import "context"

// RWMutex is a lock that many readers or one writer have, in the order of asking: a
// reader waits for writers that asked before it, a writer for all that did. It is safe for
// concurrent use and not reentrant; a writer cannot become a reader. Tokens are of one
// series, and each holder has its own: a fence that has seen the token of one reader
// refuses those that came before it and hold beside it. So fence what writers do.
type RWMutex struct{ read, write *line }

// NewRWMutex makes a read-write lock of the directory path, which is created when it is
// needed.
func NewRWMutex(s Store, path string, o Options) (*RWMutex, error) {
	read, err := newLine(s, path, o, readWrite{}, kindReader)
	if err != nil {
		return nil, err
	}
	write := *read
	write.kind = kindWriter
	return &RWMutex{read: read, write: &write}, nil
}

// Lock waits until the lock is held for writing. It fails as Mutex.Lock does.
func (m *RWMutex) Lock(ctx context.Context) (*Tenure, error) { return m.write.hold(ctx, false) }

// RLock waits until the lock is held for reading. It fails as Mutex.Lock does.
func (m *RWMutex) RLock(ctx context.Context) (*Tenure, error) { return m.read.hold(ctx, false) }

// TryLock is Lock without waiting for others.
func (m *RWMutex) TryLock(ctx context.Context) (*Tenure, bool, error) {
	return tried(m.write.hold(ctx, true))
}

// TryRLock is RLock without waiting for others.
func (m *RWMutex) TryRLock(ctx context.Context) (*Tenure, bool, error) {
	return tried(m.read.hold(ctx, true))
}
