package store

import (
	"errors"
	"slices"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// view is the state that znode.Apply reads: what is committed under what the batch
// changed. A failed read is kept in the batch, whose Commit then fails.
type view struct{ b *Batch }

var _ znode.View = (*view)(nil)

func (v *view) Node(path string) *znode.Node {
	if d := v.b.nodes.get(path); d != nil {
		return d.node
	}
	node, _ := v.b.committed(path)
	return node
}

func (v *view) Children(path string) znode.Children {
	if d := v.b.nodes.get(path); d != nil {
		return d.children
	}
	_, children := v.b.committed(path)
	return children
}

func (v *view) Session(id session.ID) *session.Session {
	if s, ok := v.b.sessions[id]; ok {
		return s
	}
	return v.b.s.sessions[id]
}

func (v *view) Ephemerals(id session.ID, yield func(path string) bool) {
	changed := v.b.ephemerals[id]
	var paths []string
	err := scan(v.b.s.db, ephemeralBounds(id, ""), func(key, _ []byte) error {
		path := string(key[9:])
		if _, ok := changed[path]; ok {
			return nil
		}
		if len(changed) > 0 {
			paths = append(paths, path)
			return nil
		}
		if !yield(path) {
			return errStop
		}
		return nil
	})
	if err != nil {
		v.b.err = errors.Join(v.b.err, err)
		return
	}
	for path, there := range changed {
		if there {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	for _, path := range paths {
		if !yield(path) {
			return
		}
	}
}

// Subtree scans what is committed and corrects it by what the batch changed.
func (v *view) Subtree(path string) (count, bytes int64) {
	count, bytes, err := v.b.s.Subtree(path)
	if err != nil {
		v.b.err = errors.Join(v.b.err, err)
		return 0, 0
	}
	for i := range v.b.nodes.list {
		d := &v.b.nodes.list[i]
		if d.base == d.node || !isAtOrBelow(d.path, path) {
			continue
		}
		if d.base != nil {
			count--
			bytes -= int64(len(d.base.Data))
		}
		if d.node != nil {
			count++
			bytes += int64(len(d.node.Data))
		}
	}
	return count, bytes
}

func isAtOrBelow(path, top string) bool {
	if top == "/" || path == top {
		return true
	}
	return len(path) > len(top) && path[len(top)] == '/' && path[:len(top)] == top
}

func (v *view) LastZxid() int64   { return v.b.meta.zxid }
func (v *view) LastTimeMs() int64 { return v.b.meta.timeMs }
