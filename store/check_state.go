package store

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// storedState is what is on disk as a znode.State: znodes and counters merged by
// key. Records that do not decode are skipped; they are reported elsewhere.
type storedState struct {
	c   *check
	err error
}

var _ znode.State = (*storedState)(nil)

func (s *storedState) LastZxid() int64   { return s.c.meta.zxid }
func (s *storedState) LastTimeMs() int64 { return s.c.meta.timeMs }

func (s *storedState) Sessions(yield func(*session.Session) bool) {
	for _, one := range s.c.sessions {
		if !yield(one) {
			return
		}
	}
}

func (s *storedState) All(yield func(path string, n *znode.Node, c znode.Children) bool) {
	nodes := s.open(tableNode)
	counters := s.open(tableChildren)
	if s.err == nil {
		merge(nodes, counters, yield)
	}
	for _, it := range []*pebble.Iterator{nodes, counters} {
		if it != nil {
			if err := it.Close(); err != nil && s.err == nil {
				s.err = err
			}
		}
	}
}

func (s *storedState) open(table byte) *pebble.Iterator {
	b := tableBounds(table)
	it, err := s.c.db.NewIter(&pebble.IterOptions{LowerBound: b.lower, UpperBound: b.upper})
	if err != nil {
		s.err = err
		return nil
	}
	it.First()
	return it
}

// merge calls yield with what is at each path in both iterators.
func merge(nodes, counters *pebble.Iterator, yield func(path string, n *znode.Node, c znode.Children) bool) {
	for nodes.Valid() || counters.Valid() {
		order := 0
		switch {
		case !counters.Valid():
			order = -1
		case !nodes.Valid():
			order = 1
		default:
			order = bytes.Compare(nodes.Key()[1:], counters.Key()[1:])
		}
		var n *znode.Node
		var c znode.Children
		key := counters.Key()
		ok := true
		if order <= 0 {
			key = nodes.Key()
			h, _, err := decodeNodeHeader(key, nodes.Value())
			n, ok = &h.node, err == nil
		}
		if order >= 0 {
			var err error
			c, err = decodeChildren(counters.Key(), counters.Value())
			ok = ok && err == nil
		}
		if path, valid := pathOfKey(key); valid && ok && !yield(path, n, c) {
			return
		}
		if order <= 0 {
			nodes.Next()
		}
		if order >= 0 {
			counters.Next()
		}
	}
}
