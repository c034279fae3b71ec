package store

import "github.com/cockroachdb/pebble/v2"

// DB gives tests what no seam reaches: the records as they are.
func (s *Store) DB() *pebble.DB { return s.db }

// PebbleOptions opens a store's directory as Pebble alone.
func PebbleOptions(o Options) *pebble.Options {
	o = o.withDefaults()
	return pebbleOptions(&o, newHealth())
}

// WriteSize is how many bytes a batch would give to Pebble. The batch is void
// afterwards.
func (b *Batch) WriteSize() (int, error) {
	b.pebble = b.s.db.NewBatch()
	defer func() { b.pebble = nil }()
	err := b.write()
	return b.pebble.Len(), err
}

// Evict empties the cache of decoded records.
func (s *Store) Evict() { s.cache = newCache(s.o.CacheBytes) }

// CacheBytes is what the cache accounts for.
func (s *Store) CacheBytes() (bytes int) {
	for i := range s.cache.shards {
		bytes += s.cache.shards[i].bytes
	}
	return bytes
}
