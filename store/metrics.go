package store

import "github.com/cockroachdb/pebble/v2"

// Metrics returns Pebble's own figures of the state's database; zeros once an Adopt failed.
func (s *Store) Metrics() *pebble.Metrics {
	s.use.RLock()
	defer s.use.RUnlock()
	if s.closed {
		return &pebble.Metrics{}
	}
	return s.db.Metrics()
}
