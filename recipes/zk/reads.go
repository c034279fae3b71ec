package zk

import (
	"context"

	gozk "github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// reading is what any read returns.
type reading struct {
	data   []byte
	names  []string
	exists bool
	stat   *gozk.Stat
}

// reader is a kind of read, alone and as what arms a watch.
type reader struct {
	op       string
	children bool // what the watch is on
	plain    func(c *gozk.Conn, path string) (reading, error)
	arming   func(c *gozk.Conn, path string) (reading, error)
}

var (
	getting = reader{
		op: "get",
		plain: func(c *gozk.Conn, path string) (r reading, err error) {
			r.data, r.stat, err = c.Get(path)
			return r, err
		},
		arming: func(c *gozk.Conn, path string) (r reading, err error) {
			r.data, r.stat, _, err = c.GetW(path)
			return r, err
		},
	}
	probing = reader{
		op: "exists",
		plain: func(c *gozk.Conn, path string) (r reading, err error) {
			r.exists, r.stat, err = c.Exists(path)
			return r, err
		},
		arming: func(c *gozk.Conn, path string) (r reading, err error) {
			r.exists, r.stat, _, err = c.ExistsW(path)
			return r, err
		},
	}
	listing = reader{
		op: "children", children: true,
		plain: func(c *gozk.Conn, path string) (r reading, err error) {
			r.names, r.stat, err = c.Children(path)
			return r, err
		},
		arming: func(c *gozk.Conn, path string) (r reading, err error) {
			r.names, r.stat, _, err = c.ChildrenW(path)
			return r, err
		},
	}
)

// Get is recipes.Store.Get.
func (s *Store) Get(ctx context.Context, path string) ([]byte, znode.Stat, error) {
	r, err := s.read(ctx, getting, path)
	return r.data, statOf(r.stat), err
}

// GetW is recipes.Store.GetW.
func (s *Store) GetW(ctx context.Context, path string) ([]byte, znode.Stat, recipes.Watch, error) {
	r, w, err := s.readW(ctx, getting, path)
	return r.data, statOf(r.stat), w, err
}

// ExistsW is recipes.Store.ExistsW.
func (s *Store) ExistsW(ctx context.Context, path string) (znode.Stat, bool, recipes.Watch, error) {
	r, w, err := s.readW(ctx, probing, path)
	if !r.exists {
		r.stat = nil
	}
	return statOf(r.stat), r.exists, w, err
}

// Children is recipes.Store.Children.
func (s *Store) Children(ctx context.Context, path string) ([]string, znode.Stat, error) {
	r, err := s.read(ctx, listing, path)
	return r.names, statOf(r.stat), err
}

// ChildrenW is recipes.Store.ChildrenW.
func (s *Store) ChildrenW(ctx context.Context, path string) ([]string, znode.Stat, recipes.Watch, error) {
	r, w, err := s.readW(ctx, listing, path)
	return r.names, statOf(r.stat), w, err
}

// stat is the Stat of a znode that must exist.
func (s *Store) stat(ctx context.Context, path string) (znode.Stat, error) {
	r, err := s.read(ctx, probing, path)
	if err == nil && !r.exists {
		err = znode.NoNode
	}
	return statOf(r.stat), err
}

// read reads without a watch.
func (s *Store) read(ctx context.Context, how reader, path string) (reading, error) {
	full, err := s.full(how.op, path)
	if err != nil {
		return reading{}, err
	}
	r, err := read(ctx, s, how.op, path, func(c *gozk.Conn) (reading, error) { return how.plain(c, full) })
	return settled(r, err)
}

// settled has nothing besides an error: the library returns empty Stats.
func settled(r reading, err error) (reading, error) {
	if err != nil {
		return reading{}, err
	}
	return r, nil
}

// readW reads with a watch. Each attempt has a watch of its own: a broken connection,
// which is why there is another attempt, ended the one before.
func (s *Store) readW(ctx context.Context, how reader, path string) (reading, recipes.Watch, error) {
	full, err := s.full(how.op, path)
	if err != nil {
		return reading{}, recipes.Watch{}, err
	}
	session, key := s.session(), watchKey{path: full, children: how.children}
	for {
		w := session.watches.add(key)
		r, err := once(ctx, session, false, func(c *gozk.Conn) (reading, error) {
			armed, done := session.watches.arm(key)
			if armed {
				return how.plain(c, full)
			}
			r, err := how.arming(c, full)
			done(err == nil)
			return r, err
		})
		if err == nil {
			return r, session.watches.public(w), nil
		}
		session.watches.cancel(w)
		if err != errAgain {
			return reading{}, recipes.Watch{}, describe(how.op, path, err)
		}
	}
}
