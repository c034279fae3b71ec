package store

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"
)

// presence knows of most znodes that do not exist that they do not: a Bloom filter over
// the keys of those that do. A create mostly asks for a znode that is not there, and to
// find that out in Pebble costs more than all the rest of it.
//
// A filter is built from a scan in a goroutine of its own, first when the store's owner
// asks for it and again when as many znodes were added as it has room for (those
// deleted stay in it). Until it is ready every znode may exist. Beyond presenceMax
// znodes there is none.
type presence struct {
	db   *pebble.DB
	stop atomic.Bool
	done sync.WaitGroup

	ready    atomic.Pointer[bloomFilter] // nil = anything may exist
	building atomic.Pointer[bloomFilter] // nil = none is being built
	added    int64                       // to ready since it was built; the writer's
}

const (
	presenceMin = 1 << 19
	presenceMax = 1 << 24
	// A key sets bloomProbes bits in one block of 512: one cache line. With 12 bits
	// per key about 1 in 100 absent keys is looked for in vain.
	bloomProbes = 6
	bloomBits   = 12
	blockWords  = 8
)

// bloomFilter is a blocked Bloom filter. It may be used concurrently.
type bloomFilter struct {
	words  []uint64
	blocks uint64
	room   int64 // for how many keys it was made
}

func newBloomFilter(keys int64) *bloomFilter {
	blocks := (keys*bloomBits + blockWords*64 - 1) / (blockWords * 64)
	return &bloomFilter{words: make([]uint64, blocks*blockWords), blocks: uint64(blocks), room: keys}
}

// add makes has true of the key with this hash.
func (f *bloomFilter) add(hash uint64) {
	block, h := f.block(hash), hash
	for range bloomProbes {
		h = h*0x9e3779b97f4a7c15 + 1
		atomic.OrUint64(&block[h>>61], 1<<(h>>55&63))
	}
}

// has is false only of keys that were never added.
func (f *bloomFilter) has(hash uint64) bool {
	block, h := f.block(hash), hash
	for range bloomProbes {
		h = h*0x9e3779b97f4a7c15 + 1
		if atomic.LoadUint64(&block[h>>61])&(1<<(h>>55&63)) == 0 {
			return false
		}
	}
	return true
}

func (f *bloomFilter) block(hash uint64) []uint64 {
	i, _ := bits.Mul64(hash, f.blocks)
	return f.words[i*blockWords : (i+1)*blockWords]
}

// mayExist reports whether there may be a znode with this key.
func (p *presence) mayExist(key []byte) bool {
	f := p.ready.Load()
	return f == nil || f.has(xxhash.Sum64(key))
}

// created notes a znode. The writer calls it when the znode is in the database, and
// before anybody can ask for it: so a filter that is being built has it from here or
// from its scan.
func (p *presence) created(key []byte, znodes int64) {
	hash := xxhash.Sum64(key)
	if f := p.building.Load(); f != nil {
		f.add(hash)
	}
	f := p.ready.Load()
	if f == nil {
		return
	}
	f.add(hash)
	if p.added++; p.added > f.room {
		p.added = 0
		p.build(znodes)
	}
}

// LearnPresence starts to learn which znodes exist, so that later look-ups of others
// are quick. It reads all keys in the background: call it once, when nothing more
// urgent is to be done, as after recovery.
func (s *Store) LearnPresence() { s.known.build(s.Counts().Znodes) }

// build starts to build a filter with room for as many znodes again as there are, unless
// one is being built.
func (p *presence) build(znodes int64) {
	if znodes > presenceMax {
		p.ready.Store(nil)
		return
	}
	f := newBloomFilter(max(2*znodes, presenceMin))
	if !p.building.CompareAndSwap(nil, f) {
		return
	}
	snapshot := p.db.NewSnapshot()
	p.done.Go(func() {
		err := scan(snapshot, tableBounds(tableNode), func(key, _ []byte) error {
			if p.stop.Load() {
				return pebble.ErrClosed
			}
			f.add(xxhash.Sum64(key))
			return nil
		})
		if snapshot.Close() == nil && err == nil {
			p.ready.Store(f)
		}
		p.building.Store(nil)
	})
}

// close ends a build and waits for it.
func (p *presence) close() {
	p.stop.Store(true)
	p.done.Wait()
}
