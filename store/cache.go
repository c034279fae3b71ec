package store

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	"github.com/tenure-dev/tenure/znode"
)

const (
	cacheShards = 16
	// cachedNamesMax is the largest number of children whose names are kept.
	cachedNamesMax = 128
	// entryOverhead is what an entry costs beside its path, data and names: the
	// entry, its Node, map and ring slots, rounded up.
	entryOverhead = 384
)

// cache keeps decoded hot znodes, bounded in bytes. Only committed state is in it.
// Any number of goroutines may use it; but a reader may only put what it loaded
// while no Commit runs, which the Store's owner guarantees.
//
// Replacement is CLOCK: a look-up costs a flag, not a list operation.
type cache struct {
	seed   maphash.Seed
	shards [cacheShards]cacheShard
}

type cacheShard struct {
	mu       sync.Mutex
	entries  map[string]*cacheEntry
	ring     []*cacheEntry
	hand     int
	bytes    int
	bytesMax int
}

type cacheEntry struct {
	path     string
	node     *znode.Node
	children znode.Children
	names    []string // of all children; nil if not known
	bytes    int
	pos      int // in ring
	used     bool
}

func newCache(bytesMax int64) *cache {
	c := &cache{seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].entries = make(map[string]*cacheEntry)
		c.shards[i].bytesMax = int(bytesMax / cacheShards)
	}
	return c
}

func (c *cache) shard(path string) *cacheShard {
	return &c.shards[maphash.String(c.seed, path)%cacheShards]
}

// get returns what is known of path; node is nil if nothing is.
func (c *cache) get(path string) (*znode.Node, znode.Children) {
	s := c.shard(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[path]
	if e == nil {
		return nil, znode.Children{}
	}
	e.used = true
	return e.node, e.children
}

// names returns the names of all children of path, false if they are not known.
func (c *cache) names(path string) ([]string, bool) {
	s := c.shard(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[path]
	if e == nil || e.names == nil {
		return nil, false
	}
	e.used = true
	return e.names, true
}

// put stores what path is. Names stay if the counters are the same.
func (c *cache) put(path string, node *znode.Node, children znode.Children) {
	s := c.shard(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[path]
	if e == nil {
		if nodeBytes(path, node) > s.bytesMax/4 {
			return
		}
		e = &cacheEntry{path: path, pos: len(s.ring)}
		s.entries[path] = e
		s.ring = append(s.ring, e)
	}
	if e.children != children {
		e.names = nil
	}
	e.node, e.children, e.used = node, children, true
	s.account(e)
}

// putNames stores the names of all children of path, if path itself is known.
func (c *cache) putNames(path string, names []string) {
	s := c.shard(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[path]; e != nil {
		e.names = names
		if names == nil {
			e.names = []string{}
		}
		s.account(e)
	}
}

// remove forgets path.
func (c *cache) remove(path string) {
	s := c.shard(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[path]; e != nil {
		s.drop(e)
	}
}

// account sets e's size and makes room.
func (s *cacheShard) account(e *cacheEntry) {
	size := nodeBytes(e.path, e.node)
	for _, name := range e.names {
		size += len(name) + 16
	}
	s.bytes += size - e.bytes
	e.bytes = size
	for s.bytes > s.bytesMax && len(s.ring) > 0 {
		if s.hand >= len(s.ring) {
			s.hand = 0
		}
		if victim := s.ring[s.hand]; victim.used {
			victim.used = false
			s.hand++
		} else {
			s.drop(victim)
		}
	}
}

func (s *cacheShard) drop(e *cacheEntry) {
	last := s.ring[len(s.ring)-1]
	s.ring[e.pos], last.pos = last, e.pos
	s.ring = slices.Delete(s.ring, len(s.ring)-1, len(s.ring))
	delete(s.entries, e.path)
	s.bytes -= e.bytes
}

func nodeBytes(path string, n *znode.Node) int {
	size := entryOverhead + len(path) + len(n.Data)
	if !isOpenACL(n.ACL) {
		for i := range n.ACL {
			size += 40 + len(n.ACL[i].Scheme) + len(n.ACL[i].ID)
		}
	}
	return size
}

// page returns up to limit (0 = all) of the sorted names after after.
func page(names []string, after string, limit int) []string {
	i, found := slices.BinarySearchFunc(names, after, strings.Compare)
	if found {
		i++
	}
	names = names[i:]
	if limit > 0 && limit < len(names) {
		names = names[:limit]
	}
	return names[:len(names):len(names)]
}
