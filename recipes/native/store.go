// Package native is the Store of recipes on Tenure itself, over package client.
//
// All that a backend can promise it promises: sessions expire exactly, so that no
// successor ever waits for a hold-off; watches keep every event over reconnects; whether
// another session is open can be asked.
package native

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// Store is a recipes.Store on a client. It is safe for concurrent use.
//
// One goroutine follows the client from session to session until Close.
type Store struct {
	c       *client.Client
	current atomic.Pointer[clientSession]
	close   func() error

	mu struct {
		sync.Mutex
		closing bool
	}
	wg sync.WaitGroup // the follower, and who waits for the upkeeps of ended sessions
}

var _ recipes.Store = (*Store)(nil)

// Connect opens a session as client.Connect does, with the same errors.
func Connect(ctx context.Context, o client.Options) (*Store, error) {
	c, err := client.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	return New(c), nil
}

// New makes a Store of c, which it takes over: c may still be used for what a Store does
// not have, but it is closed by closing the Store and in no other way, because tenures
// must end before their session does. Paths are below the client's chroot.
func New(c *client.Client) *Store {
	s := &Store{c: c}
	s.current.Store(newSession(c.Session()))
	s.close = sync.OnceValue(s.shutDown)
	s.wg.Go(s.follow)
	return s
}

// follow puts one session in the place of the other as they end. Nobody is told that a
// session is over before its tenures have ended, nor finds it as the current one after.
func (s *Store) follow() {
	for {
		old := s.current.Load()
		<-old.c.Done()
		why := sessionError(old.c.Err())
		old.endUpkeep(why)
		s.wg.Go(old.upkeep.Wait)
		next := s.c.Session()
		if next == old.c {
			old.end(why)
			return // the client is closed
		}
		s.succeed(newSession(next))
		old.end(why)
	}
}

// succeed makes next the current session. While the Store is closing it begins without
// the right to tenures.
func (s *Store) succeed(next *clientSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closing {
		next.endUpkeep(recipes.ErrSessionClosed)
	}
	s.current.Store(next)
}

// Caps says that everything is promised.
func (s *Store) Caps() recipes.Caps {
	return recipes.Caps{ExactExpiry: true, SessionProbe: true, Containers: true}
}

// Session returns the current session.
func (s *Store) Session() recipes.Session { return s.current.Load() }

// Create makes a znode that everybody may use.
func (s *Store) Create(ctx context.Context, path string, data []byte, spec recipes.CreateSpec) (string, error) {
	mode, err := modeOf(spec)
	if err != nil {
		return "", err
	}
	path, _, err = s.c.Create(ctx, path, data, client.CreateOptions{Mode: mode})
	return path, s.fail(err)
}

// Get returns a znode's data, nil for null.
func (s *Store) Get(ctx context.Context, path string) ([]byte, znode.Stat, error) {
	data, stat, err := s.c.Get(ctx, path, client.ReadOptions{})
	return data, stat, s.fail(err)
}

// GetW is Get with a watch.
func (s *Store) GetW(ctx context.Context, path string) ([]byte, znode.Stat, recipes.Watch, error) {
	data, stat, w, err := s.c.GetW(ctx, path)
	if err != nil {
		return nil, znode.Stat{}, recipes.Watch{}, s.fail(err)
	}
	return data, stat, watchOf(w), nil
}

// ExistsW reports whether there is a znode, with a watch.
func (s *Store) ExistsW(ctx context.Context, path string) (znode.Stat, bool, recipes.Watch, error) {
	stat, ok, w, err := s.c.ExistsW(ctx, path)
	if err != nil {
		return znode.Stat{}, false, recipes.Watch{}, s.fail(err)
	}
	return stat, ok, watchOf(w), nil
}

// Children returns the names of all children. A list that is longer than a reply is read
// in pages, as client.Client.Children says.
func (s *Store) Children(ctx context.Context, path string) ([]string, znode.Stat, error) {
	names, stat, err := s.c.Children(ctx, path, client.ReadOptions{})
	return names, stat, s.fail(err)
}

// ChildrenW is Children with a watch.
func (s *Store) ChildrenW(ctx context.Context, path string) ([]string, znode.Stat, recipes.Watch, error) {
	names, stat, w, err := s.c.ChildrenW(ctx, path)
	if err != nil {
		return nil, znode.Stat{}, recipes.Watch{}, s.fail(err)
	}
	return names, stat, watchOf(w), nil
}

// Set replaces a znode's data.
func (s *Store) Set(ctx context.Context, path string, data []byte, c recipes.Cond) (znode.Stat, error) {
	version, err := c.Version()
	if err != nil {
		return znode.Stat{}, err
	}
	stat, err := s.c.Set(ctx, path, data, version)
	return stat, s.fail(err)
}

// Delete removes a childless znode.
func (s *Store) Delete(ctx context.Context, path string, c recipes.Cond) error {
	version, err := c.Version()
	if err != nil {
		return err
	}
	return s.fail(s.c.Delete(ctx, path, version))
}

// Multi applies all ops or none. An error that is no *recipes.MultiError, such as
// znode.QuotaExceeded of a server that takes no growth, is about the whole.
func (s *Store) Multi(ctx context.Context, ops ...recipes.Op) ([]recipes.OpResult, error) {
	list := make([]znode.Op, len(ops))
	for i := range ops {
		op, err := opOf(&ops[i])
		if err != nil {
			return nil, fmt.Errorf("operation %d, %v %s: %w", i, ops[i].Kind, ops[i].Path, err)
		}
		list[i] = op
	}
	sub, err := s.c.Multi(ctx, list...)
	if err != nil {
		for i := range sub {
			if code := sub[i].Err; code != znode.OK && i < len(ops) {
				return nil, &recipes.MultiError{Index: i, Op: ops[i], Err: code}
			}
		}
		return nil, s.fail(err)
	}
	if len(sub) != len(ops) {
		return nil, fmt.Errorf("native: %d results of a transaction of %d operations", len(sub), len(ops))
	}
	results := make([]recipes.OpResult, len(ops))
	for i := range sub {
		switch ops[i].Kind {
		case recipes.KindCreate:
			results[i].Path = sub[i].Path
		case recipes.KindSet:
			results[i].Stat = sub[i].Stat
		}
	}
	return results, nil
}

// Sync returns when all that was committed before is visible to later reads. Reads of a
// Store are linearizable without it.
func (s *Store) Sync(ctx context.Context, path string) error {
	return s.fail(s.c.Sync(ctx, path))
}

// SessionOpen reports whether the session with this id is open. The answer is
// linearizable.
func (s *Store) SessionOpen(ctx context.Context, id int64) (bool, error) {
	if id == 0 {
		return false, nil
	}
	page, err := s.c.Sessions(ctx, session.ID(id)-1, 1)
	if err != nil {
		return false, s.fail(err)
	}
	return len(page.Sessions) > 0 && page.Sessions[0].ID == session.ID(id), nil
}

// Close ends all tenures, then the session, and then the client, for which it waits a
// second at most if no server answers. Its error says that the end was not confirmed:
// the session's ephemerals then stay until it expires. A second call waits for the first
// and returns the same.
func (s *Store) Close() error { return s.close() }

func (s *Store) shutDown() error {
	s.mu.Lock()
	s.mu.closing = true
	last := s.current.Load()
	s.mu.Unlock()
	last.endUpkeep(recipes.ErrSessionClosed)
	err := s.c.Close()
	s.wg.Wait()
	return s.fail(err)
}
