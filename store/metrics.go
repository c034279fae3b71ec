package store

import "github.com/cockroachdb/pebble/v2"

// Metrics returns Pebble's own figures of the state's database.
func (s *Store) Metrics() *pebble.Metrics { return s.db.Metrics() }
