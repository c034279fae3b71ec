package store

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// Node returns the znode at path and its counters, a nil Node if there is none. path
// need not be valid. The Node is shared and must not be changed.
func (s *Store) Node(path string) (*znode.Node, znode.Children, error) {
	if node, children := s.cache.get(path); node != nil {
		return node, children, nil
	}
	if path == "" || path[0] != '/' {
		return nil, znode.Children{}, nil
	}
	key := appendPathKey(make([]byte, 0, 128), tableNode, path)
	if !s.known.mayExist(key) {
		return nil, znode.Children{}, nil
	}
	node, err := readNode(s.db, key, path)
	if err != nil || node == nil {
		return nil, znode.Children{}, err
	}
	var children znode.Children
	if mayHaveChildren(node) {
		if children, err = readChildren(s.db, path); err != nil {
			return nil, znode.Children{}, err
		}
	}
	s.cache.put(path, node, children)
	return node, children, nil
}

// mayHaveChildren is false where there can be no counters, which saves a look-up.
func mayHaveChildren(n *znode.Node) bool { return n != nil && n.Kind != znode.Ephemeral }

// Stat returns what clients see of the znode at path besides its data and access
// list, false if there is none. It does not read large data.
func (s *Store) Stat(path string) (stat znode.Stat, life znode.Lifetime, ok bool, err error) {
	if node, children := s.cache.get(path); node != nil {
		return znode.StatOf(node, children), node.Lifetime(), true, nil
	}
	if path == "" || path[0] != '/' {
		return stat, life, false, nil
	}
	nodeKey := appendPathKey(make([]byte, 0, 128), tableNode, path)
	if !s.known.mayExist(nodeKey) {
		return stat, life, false, nil
	}
	var h nodeHeader
	ok, err = get(s.db, nodeKey, func(key, value []byte) (err error) {
		h, _, err = decodeNodeHeader(key, value)
		return err
	})
	if err != nil || !ok {
		return stat, life, false, err
	}
	children, err := readChildren(s.db, path)
	stat = znode.StatOf(&h.node, children)
	stat.DataLength = int32(h.dataLen)
	return stat, h.node.Lifetime(), err == nil, err
}

// get calls use with the record at key, which is only valid during the call. ok is
// false if there is none.
func get(r pebble.Reader, key []byte, use func(key, value []byte) error) (ok bool, err error) {
	value, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("store: read %s: %w", formatKey(key), err)
	}
	err = use(key, value)
	return true, errors.Join(err, closer.Close())
}

// readNode reads the znode at path, whose key is key.
func readNode(r pebble.Reader, key []byte, path string) (node *znode.Node, err error) {
	var apart bool
	var size int64
	ok, err := get(r, key, func(key, value []byte) error {
		h, inline, err := decodeNodeHeader(key, value)
		if err != nil {
			return err
		}
		node, apart, size = new(znode.Node), h.apart, h.dataLen
		*node = h.node
		if h.hasData && !h.apart {
			node.Data = append(make([]byte, 0, len(inline)), inline...)
		}
		return nil
	})
	if err != nil || !ok || !apart {
		return node, err
	}
	key = appendPathKey(nil, tableData, path)
	_, err = get(r, key, func(key, value []byte) error {
		data, err := decodeData(key, value)
		node.Data = slices.Clone(data)
		return err
	})
	if err == nil && int64(len(node.Data)) != size {
		err = &CorruptError{Key: formatKey(key), What: fmt.Sprintf("it has %d bytes of data, the znode says %d", len(node.Data), size)}
	}
	return node, err
}

func readChildren(r pebble.Reader, path string) (c znode.Children, err error) {
	_, err = get(r, appendPathKey(make([]byte, 0, 128), tableChildren, path), func(key, value []byte) (err error) {
		c, err = decodeChildren(key, value)
		return err
	})
	return c, err
}

// List returns up to limit (0 = all) names of path's children after after, in
// ascending order. The znode at path need not exist. The result is shared and must
// not be changed. It costs what it returns, whatever the data of the children.
func (s *Store) List(path, after string, limit int) ([]string, error) {
	if path == "" || path[0] != '/' {
		return nil, nil
	}
	if names, ok := s.cache.names(path); ok {
		return page(names, after, limit), nil
	}
	b := childBounds(tableNode, path)
	skip := len(b.lower)
	if after != "" {
		// NUL is in no name: the first key after that of after.
		b.lower = append(append(b.lower, after...), 0)
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: b.lower, UpperBound: b.upper})
	if err != nil {
		return nil, fmt.Errorf("store: list %s: %w", path, err)
	}
	var text []byte
	var ends []int
	valid := it.First()
	for ; valid && (limit <= 0 || len(ends) < limit); valid = it.Next() {
		text = append(text, it.Key()[skip:]...)
		ends = append(ends, len(text))
	}
	if err := it.Close(); err != nil {
		return nil, fmt.Errorf("store: list %s: %w", path, err)
	}
	names := cut(string(text), ends)
	if !valid && after == "" && len(names) <= cachedNamesMax {
		s.cache.putNames(path, names)
	}
	return names, nil
}

// cut divides text at ends: one allocation for all names.
func cut(text string, ends []int) []string {
	names := make([]string, len(ends))
	begin := 0
	for i, end := range ends {
		names[i], begin = text[begin:end], end
	}
	return names
}

// Subtree returns how many znodes and bytes of data there are at and below path. It
// reads all of their records, but no large data.
func (s *Store) Subtree(path string) (count, bytes int64, err error) {
	if path == "" || path[0] != '/' {
		return 0, 0, nil
	}
	add := func(key, value []byte) error {
		h, _, err := decodeNodeHeader(key, value)
		count, bytes = count+1, bytes+h.dataLen
		return err
	}
	if _, err = get(s.db, appendPathKey(nil, tableNode, path), add); err != nil {
		return 0, 0, err
	}
	for _, b := range []bounds{childBounds(tableNode, path), belowBounds(tableNode, path)} {
		if err := scan(s.db, b, add); err != nil {
			return 0, 0, err
		}
	}
	return count, bytes, nil
}

// Ephemerals returns the paths of up to limit (0 = all) of id's ephemerals that begin
// with prefix, in ascending order.
func (s *Store) Ephemerals(id session.ID, prefix string, limit int) (paths []string, err error) {
	err = scan(s.db, ephemeralBounds(id, prefix), func(key, _ []byte) error {
		paths = append(paths, string(key[9:]))
		if limit > 0 && len(paths) == limit {
			return errStop
		}
		return nil
	})
	return paths, err
}

// Session returns the open session id, nil if there is none.
func (s *Store) Session(id session.ID) *session.Session { return s.sessions[id] }

// Sessions returns up to limit (0 = all) open sessions with an id above after, in
// ascending order.
func (s *Store) Sessions(after session.ID, limit int) (all []session.Session) {
	for id, one := range s.sessions {
		if id > after {
			all = append(all, *one)
		}
	}
	slices.SortFunc(all, func(a, b session.Session) int { return int(min(1, max(-1, a.ID-b.ID))) })
	if limit > 0 && limit < len(all) {
		all = all[:limit]
	}
	return all
}

// Reapable returns the paths of up to limit (0 = all) znodes that a Reap at nowMs
// would delete, in milliseconds since 1970, those due first.
func (s *Store) Reapable(nowMs int64, limit int) (paths []string, err error) {
	if nowMs < 0 {
		return nil, nil
	}
	b := tableBounds(tableReap)
	b.upper = appendID(nil, tableReap, nowMs+1)
	err = scan(s.db, b, func(key, _ []byte) error {
		_, path, ok := idOfKey(key)
		if !ok {
			return &CorruptError{Key: formatKey(key), What: "the key has no time"}
		}
		paths = append(paths, string(path))
		if limit > 0 && len(paths) >= limit {
			return errStop
		}
		return nil
	})
	return paths, err
}
