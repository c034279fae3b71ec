package replica

import "github.com/cockroachdb/pebble/v2"

// Metrics returns Pebble's own figures of the log's database.
func (r *Replica) Metrics() *pebble.Metrics { return r.log.db.Metrics() }
