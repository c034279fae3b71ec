package recipestest

import (
	"context"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

var _ recipes.Store = (*Hooked)(nil)

// around does one call between Before and After.
func (h *Hooked) around(ctx context.Context, c Call, do func() error) error {
	if h.Before != nil {
		if err := h.Before(ctx, c); err != nil {
			return err
		}
	}
	err := do()
	if h.After != nil {
		err = h.After(ctx, c, err)
	}
	return err
}

// watched is around for a call that sets a watch, which goes if After replaced success
// by an error: who gets an error has no watch to cancel.
func (h *Hooked) watched(ctx context.Context, c Call, w *recipes.Watch, do func() error) error {
	c.Watch = true
	err := h.around(ctx, c, do)
	if err != nil && w.Cancel != nil {
		w.Cancel()
		*w = recipes.Watch{}
	}
	return err
}

// Create implements recipes.Store.
func (h *Hooked) Create(ctx context.Context, path string, data []byte, s recipes.CreateSpec) (made string, err error) {
	c := Call{Kind: Create, Path: path, Ops: []recipes.Op{recipes.OpCreate(path, data, s)}}
	err = h.around(ctx, c, func() (err error) {
		made, err = h.Store.Create(ctx, path, data, s)
		return err
	})
	return made, err
}

// Get implements recipes.Store.
func (h *Hooked) Get(ctx context.Context, path string) (data []byte, st znode.Stat, err error) {
	err = h.around(ctx, Call{Kind: Get, Path: path}, func() (err error) {
		data, st, err = h.Store.Get(ctx, path)
		return err
	})
	return data, st, err
}

// GetW implements recipes.Store.
func (h *Hooked) GetW(ctx context.Context, path string) (data []byte, st znode.Stat, w recipes.Watch, err error) {
	err = h.watched(ctx, Call{Kind: Get, Path: path}, &w, func() (err error) {
		data, st, w, err = h.Store.GetW(ctx, path)
		return err
	})
	return data, st, w, err
}

// ExistsW implements recipes.Store.
func (h *Hooked) ExistsW(ctx context.Context, path string) (st znode.Stat, found bool, w recipes.Watch, err error) {
	err = h.watched(ctx, Call{Kind: Exists, Path: path}, &w, func() (err error) {
		st, found, w, err = h.Store.ExistsW(ctx, path)
		return err
	})
	return st, found, w, err
}

// Children implements recipes.Store.
func (h *Hooked) Children(ctx context.Context, path string) (names []string, st znode.Stat, err error) {
	err = h.around(ctx, Call{Kind: Children, Path: path}, func() (err error) {
		names, st, err = h.Store.Children(ctx, path)
		return err
	})
	return names, st, err
}

// ChildrenW implements recipes.Store.
func (h *Hooked) ChildrenW(ctx context.Context, path string) (names []string, st znode.Stat, w recipes.Watch, err error) {
	err = h.watched(ctx, Call{Kind: Children, Path: path}, &w, func() (err error) {
		names, st, w, err = h.Store.ChildrenW(ctx, path)
		return err
	})
	return names, st, w, err
}

// Set implements recipes.Store.
func (h *Hooked) Set(ctx context.Context, path string, data []byte, cond recipes.Cond) (st znode.Stat, err error) {
	c := Call{Kind: Set, Path: path, Ops: []recipes.Op{recipes.OpSet(path, data, cond)}}
	err = h.around(ctx, c, func() (err error) {
		st, err = h.Store.Set(ctx, path, data, cond)
		return err
	})
	return st, err
}

// Delete implements recipes.Store.
func (h *Hooked) Delete(ctx context.Context, path string, cond recipes.Cond) error {
	c := Call{Kind: Delete, Path: path, Ops: []recipes.Op{recipes.OpDelete(path, cond)}}
	return h.around(ctx, c, func() error { return h.Store.Delete(ctx, path, cond) })
}

// Multi implements recipes.Store.
func (h *Hooked) Multi(ctx context.Context, ops ...recipes.Op) (results []recipes.OpResult, err error) {
	c := Call{Kind: Multi, Ops: ops}
	if len(ops) > 0 {
		c.Path = ops[0].Path
	}
	err = h.around(ctx, c, func() (err error) {
		results, err = h.Store.Multi(ctx, ops...)
		return err
	})
	return results, err
}

// Sync implements recipes.Store.
func (h *Hooked) Sync(ctx context.Context, path string) error {
	return h.around(ctx, Call{Kind: Sync, Path: path}, func() error { return h.Store.Sync(ctx, path) })
}

// SessionOpen implements recipes.Store. Its Call has the kind Probe and no path.
func (h *Hooked) SessionOpen(ctx context.Context, id int64) (open bool, err error) {
	err = h.around(ctx, Call{Kind: Probe}, func() (err error) {
		open, err = h.Store.SessionOpen(ctx, id)
		return err
	})
	return open, err
}
