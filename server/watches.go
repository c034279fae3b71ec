package server

import (
	"sync"

	"github.com/tenure-dev/tenure/watch"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// watches is the registry of this member with the connections behind its numbers.
//
// The lock is taken inside the state lock: apply matches under the exclusive one, a
// read registers under the shared one, so that no change falls between a look and the
// watch on it. Removing may do without.
type watches struct {
	sync.Mutex
	cfg      *Config
	registry *watch.Registry
	conns    map[watch.Watcher]*conn
}

// modeOf is the watch that a read sets.
func modeOf(op wire.Op) watch.Mode {
	if op == wire.OpGetChildren || op == wire.OpGetChildren2 {
		return watch.Child
	}
	return watch.Data
}

// add sets a watch for c, within the bounds.
func (w *watches) add(c *conn, path string, m watch.Mode) znode.Error {
	w.Lock()
	defer w.Unlock()
	if w.registry.Count() >= w.cfg.MaxWatches || w.registry.CountOf(c.id) >= w.cfg.MaxWatchesPerConnection {
		return znode.QuotaExceeded
	}
	w.conns[c.id] = c
	w.registry.Add(c.id, path, m)
	return znode.OK
}

// drop forgets all watches of a connection.
func (w *watches) drop(c *conn) {
	w.Lock()
	defer w.Unlock()
	w.registry.Drop(c.id)
	delete(w.conns, c.id)
}

func (w *watches) count() int {
	w.Lock()
	defer w.Unlock()
	return w.registry.Count()
}

func (w *watches) countOf(c *conn) int {
	w.Lock()
	defer w.Unlock()
	return w.registry.CountOf(c.id)
}

// match tells which connection gets which event, leaving out those that may not read
// what the event is about: judged at delivery, by the identities of now
// (CVE-2024-23944). The caller holds the lock.
func (w *watches) match(changes []znode.Change, tell func(*conn, *wire.Event)) {
	var e wire.Event
	w.registry.Match(changes, func(ev watch.Event) {
		c := w.conns[ev.To]
		if znode.AccessRead.Allowed(ev.ACL, *c.ids.Load()) {
			e = wire.Event{Type: ev.Type, Path: ev.Path}
			tell(c, &e)
		}
	})
}

// addWatch sets a persistent watch.
func (s *Server) addWatch(c *conn, b *wire.AddWatch) (any, znode.Error) {
	mode := watch.Persistent
	switch b.Mode {
	case 0:
	case 1:
		mode = watch.Recursive
	default:
		return nil, znode.MarshallingError
	}
	if e := s.watches.add(c, b.Path, mode); e != znode.OK {
		return nil, e
	}
	return &wire.AddWatchReply{}, znode.OK
}

// removeWatches removes what OpRemoveWatches names and only looks for OpCheckWatches.
func (s *Server) removeWatches(c *conn, op wire.Op, b *wire.RemoveWatches) (any, znode.Error) {
	var modes watch.Mode
	switch b.Type {
	case wire.WatcherChildren:
		modes = watch.Child
	case wire.WatcherData:
		modes = watch.Data
	case wire.WatcherPersistent:
		modes = watch.Persistent
	case wire.WatcherRecursive:
		modes = watch.Recursive
	case wire.WatcherAny:
		modes = watch.Data | watch.Child | watch.Persistent | watch.Recursive
	default:
		return nil, znode.MarshallingError
	}
	s.watches.Lock()
	defer s.watches.Unlock()
	had := s.watches.registry.Has(c.id, b.Path, modes)
	if op == wire.OpRemoveWatches {
		s.watches.registry.Remove(c.id, b.Path, modes)
	}
	if !had {
		return nil, znode.NoWatcher
	}
	return nil, znode.OK
}
