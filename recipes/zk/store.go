package zk

import (
	"context"
	"errors"
	"fmt"
	"sync"

	gozk "github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// Store is a recipes.Store on ZooKeeper. Make it with Connect. It is safe for concurrent
// use.
type Store struct {
	o   Options
	acl []gozk.ACL
	wg  sync.WaitGroup // sessions that are not hung up

	mu struct {
		sync.Mutex
		session *session
		closed  bool
	}
}

var _ recipes.Store = (*Store)(nil)

// Connect returns a Store whose session is Connected, or why there is none before ctx
// ends. ctx bounds Connect only.
func Connect(ctx context.Context, o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{o: o}
	for _, a := range o.ACL {
		s.acl = append(s.acl, gozk.ACL{Perms: a.Perms, Scheme: a.Scheme, ID: a.ID})
	}
	first := newSession(s)
	s.mu.session = first
	s.wg.Go(func() { first.run(0) })
	if err := s.ready(ctx, first); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to ZooKeeper at %v: %w", o.Servers, err), s.Close())
	}
	return s, nil
}

// ready waits for the first session and makes the chroot.
func (s *Store) ready(ctx context.Context, first *session) error {
	for state := range first.States(ctx) {
		switch state {
		case recipes.Connected:
			return s.makeChroot(ctx)
		case recipes.Over:
			return first.Err()
		}
	}
	return ctx.Err()
}

// makeChroot creates the chroot's missing znodes.
func (s *Store) makeChroot(ctx context.Context) error {
	if s.o.Chroot == "" {
		return nil
	}
	_, err := s.stat(ctx, znode.Root)
	if !errors.Is(err, znode.NoNode) {
		return err
	}
	for end := 1; end <= len(s.o.Chroot); end++ {
		if end < len(s.o.Chroot) && s.o.Chroot[end] != '/' {
			continue
		}
		for {
			_, err := write(ctx, s, "create chroot", s.o.Chroot[:end], func(c *gozk.Conn) (string, error) {
				return c.Create(s.o.Chroot[:end], nil, gozk.FlagPersistent, s.acl)
			})
			if err == nil || errors.Is(err, znode.NodeExists) {
				break
			}
			retry := errors.Is(err, recipes.ErrUncertain) || errors.Is(err, recipes.ErrUnavailable)
			if !retry || ctx.Err() != nil || s.session().Err() != nil {
				return err
			}
		}
	}
	return nil
}

// Caps is recipes.Store.Caps.
func (s *Store) Caps() recipes.Caps { return recipes.Caps{Containers: true} }

// Session is recipes.Store.Session.
func (s *Store) Session() recipes.Session { return s.session() }

func (s *Store) session() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.session
}

// succeed makes the session after old, unless the store is closed.
func (s *Store) succeed(old *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return
	}
	pause := refusedPause
	if old.State() != recipes.Connecting {
		pause = 0
	}
	next := newSession(s)
	s.mu.session = next
	s.wg.Go(func() { next.run(pause) })
}

// Close is recipes.Store.Close.
func (s *Store) Close() error {
	s.mu.Lock()
	if !s.mu.closed {
		s.mu.closed = true
		close(s.mu.session.closing)
	}
	s.mu.Unlock()
	s.wg.Wait()
	return nil
}

// SessionOpen is recipes.Store.SessionOpen: there is no such question to ZooKeeper.
func (s *Store) SessionOpen(context.Context, int64) (bool, error) {
	return false, fmt.Errorf("%w: ZooKeeper does not tell which sessions are open", recipes.ErrUnsupported)
}

// Sync is recipes.Store.Sync.
func (s *Store) Sync(ctx context.Context, path string) error {
	full, err := s.full("sync", path)
	if err != nil {
		return err
	}
	_, err = read(ctx, s, "sync", path, func(c *gozk.Conn) (string, error) { return c.Sync(full) })
	return err
}

// statOf is the library's Stat as ours. There is none with an error.
func statOf(s *gozk.Stat) znode.Stat {
	if s == nil {
		return znode.Stat{}
	}
	stat := znode.Stat{
		Czxid: s.Czxid, Mzxid: s.Mzxid, Pzxid: s.Pzxid, Ctime: s.Ctime, Mtime: s.Mtime,
		Version: s.Version, Cversion: s.Cversion, Aversion: s.Aversion,
		DataLength: s.DataLength, NumChildren: s.NumChildren,
	}
	setInt(&stat.EphemeralOwner, s.EphemeralOwner)
	return stat
}

// setInt converts to a type of integer that needs no import.
func setInt[T ~int64](to *T, v int64) { *to = T(v) }
