package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/znode"
)

// Set makes v the value, whatever it was. If the answer of the write is lost it looks,
// and all is well if v is what is stored; ErrUncertain means that something else is.
func (c *Config[T]) Set(ctx context.Context, v T) (Value[T], error) {
	data, err := c.encode(v)
	if err != nil {
		return Value[T]{}, err
	}
	r, err := c.put(ctx, data)
	return c.written(v, r, err)
}

// CompareAndSet makes v the value if it is still as old was read: the same version of
// the same znode, or none if old.Exists is not set. Otherwise the error is ErrConflict.
// ErrUncertain means that the answer was lost and that it cannot be told whether this
// write or an equal one of somebody else has succeeded; it can with History.
func (c *Config[T]) CompareAndSet(ctx context.Context, old Value[T], v T) (Value[T], error) {
	data, err := c.encode(v)
	if err != nil {
		return Value[T]{}, err
	}
	was := stored{stat: old.Stat, exists: old.Exists}
	now, err := c.read(ctx)
	switch {
	case err != nil:
		return Value[T]{}, fmt.Errorf("config %s: %w", c.path, err)
	case !now.meets(was):
		return Value[T]{}, fmt.Errorf("config %s: %w", c.path, ErrConflict)
	}
	r, err := c.replace(ctx, was, data)
	return c.written(v, r, err)
}

// Update replaces the value by what f makes of it, and does that again with the new one
// if somebody else was faster. f must change nothing else, and gets the zero T if there
// is no value. An error of f is returned as it is. If f returns what there is, nothing is
// written. A stored value that is bad is not given to f: Update returns why. About
// ErrUncertain see CompareAndSet.
func (c *Config[T]) Update(ctx context.Context, f func(T) (T, error)) (Value[T], error) {
	var wait backoff
	for {
		now, err := c.read(ctx)
		if err != nil {
			return Value[T]{}, fmt.Errorf("config %s: %w", c.path, err)
		}
		old := c.value(now)
		if old.Err != nil {
			return old, old.Err
		}
		next, err := f(old.V)
		if err != nil {
			return old, err
		}
		data, err := c.encode(next)
		if err != nil {
			return old, err
		}
		if now.is(data) {
			return old, nil
		}
		r, err := c.replace(ctx, now, data)
		if !errors.Is(err, ErrConflict) {
			return c.written(next, r, err)
		}
		if err := pause(ctx, wait.next()); err != nil {
			return old, fmt.Errorf("config %s: %w", c.path, err)
		}
	}
}

// written is what a write returns.
func (c *Config[T]) written(v T, r stored, err error) (Value[T], error) {
	if err != nil {
		return Value[T]{}, fmt.Errorf("config %s: %w", c.path, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.stat.Mzxid >= c.mu.goodAt {
		c.mu.good, c.mu.goodAt = v, r.stat.Mzxid
	}
	return Value[T]{V: v, Stat: r.stat, Exists: true, Fresh: true}, nil
}

// put writes data over whatever there is.
func (c *Config[T]) put(ctx context.Context, data []byte) (stored, error) {
	var wait backoff
	for {
		now, err := c.read(ctx)
		if err != nil {
			return stored{}, err
		}
		r, err := c.replace(ctx, now, data)
		if errors.Is(err, ErrUncertain) && ctx.Err() == nil {
			now, readErr := c.read(ctx)
			if readErr == nil && now.is(data) {
				return now, nil
			}
		}
		if !errors.Is(err, ErrConflict) {
			return r, err
		}
		if err := pause(ctx, wait.next()); err != nil {
			return stored{}, err
		}
	}
}

// meets reports whether the condition to replace old is met. A version alone does not
// tell a znode from another that was made in its place.
func (r stored) meets(old stored) bool {
	return r.exists == old.exists &&
		(!r.exists || r.stat.Czxid == old.stat.Czxid && r.stat.Version == old.stat.Version)
}

// replace writes data if what is stored is still old, which was read just now. What is
// certainly not applied is tried again.
func (c *Config[T]) replace(ctx context.Context, old stored, data []byte) (stored, error) {
	var wait backoff
	mark := newGUID()
	for {
		sess := c.store.Session()
		stat, err := c.write(ctx, old, data, mark)
		if errors.Is(err, ErrUncertain) {
			stat, err = c.settle(ctx, sess, old, data, mark, err)
		}
		switch {
		case err == nil && old.exists && stat.Czxid != old.stat.Czxid:
			return stored{}, fmt.Errorf("written over a znode of the same version that was made at this moment: %w", ErrUncertain)
		case err == nil:
			return stored{data, stat, true}, nil
		case errors.Is(err, ErrUncertain) || !transient(err):
			return stored{}, err
		}
		if err := pause(ctx, wait.next()); err != nil {
			return stored{}, err
		}
	}
}

// write is one conditional write: ErrConflict if the condition is not met.
func (c *Config[T]) write(ctx context.Context, old stored, data []byte, mark string) (znode.Stat, error) {
	op := OpCreate(c.path, data, CreateSpec{})
	if old.exists {
		op = OpSet(c.path, data, IfVersion(old.stat.Version))
	}
	if c.o.History > 0 {
		return c.writeHistory(ctx, op, mark)
	}
	if old.exists {
		stat, err := c.store.Set(ctx, c.path, data, op.Cond)
		if errors.Is(err, znode.BadVersion) || errors.Is(err, znode.NoNode) {
			err = fmt.Errorf("%w: %w", ErrConflict, err)
		}
		return stat, err
	}
	_, err := c.store.Create(ctx, c.path, data, op.Spec)
	switch {
	case err == nil:
		return c.created(ctx), nil
	case errors.Is(err, znode.NodeExists):
		err = fmt.Errorf("%w: %w", ErrConflict, err)
	case errors.Is(err, znode.NoNode):
		return znode.Stat{}, c.ensureParent(ctx)
	}
	return znode.Stat{}, err
}

// ensureParent makes the parent, and returns that nothing else was done.
func (c *Config[T]) ensureParent(ctx context.Context) error {
	parent, _ := znode.Split(c.path)
	if err := ensureDir(ctx, c.store, parent, znode.Container); err != nil {
		return err
	}
	return ErrUnavailable
}

// created returns the Stat that the znode had when we made it, for which backends have
// no answer. If it is gone by now, so that none is known, it is one that meets nothing.
func (c *Config[T]) created(ctx context.Context) znode.Stat {
	_, stat, err := c.store.Get(ctx, c.path)
	if err != nil {
		return znode.Stat{}
	}
	return znode.Stat{
		Czxid: stat.Czxid, Mzxid: stat.Czxid, Pzxid: stat.Czxid, Ctime: stat.Ctime, Mtime: stat.Ctime,
		DataLength: stat.DataLength,
	}
}

// settle finds out whether a write of unknown outcome was applied: nil if it was,
// ErrUnavailable if it was not, ErrConflict if it was not and will not be, and ErrUncertain.
func (c *Config[T]) settle(ctx context.Context, sess Session, old stored, data []byte, mark string, lost error) (znode.Stat, error) {
	now, err := c.read(ctx)
	if err != nil {
		return znode.Stat{}, fmt.Errorf("%w, and looking: %w", lost, err)
	}
	version := old.stat.Version + 1
	if !old.exists {
		version = 0
	}
	sameNode := now.exists && (!old.exists || now.stat.Czxid == old.stat.Czxid)
	next := sameNode && now.stat.Version == version
	found, known := false, false
	if c.o.History > 0 {
		kept, err := c.kept(ctx)
		if err != nil {
			return znode.Stat{}, fmt.Errorf("%w, and looking: %w", lost, err)
		}
		found = slices.ContainsFunc(kept, func(p past) bool { return p.mark == mark })
		// It is not there: was it never, or has it been removed again?
		known = len(kept) < c.o.History || sameNode && int(now.stat.Version-version) < c.o.History
	}
	switch {
	case found && next:
		return now.stat, nil
	case found: // and overwritten since, so that a Stat of this version meets nothing
		return znode.Stat{Czxid: old.stat.Czxid, Version: version}, nil
	case c.store.Session() != sess:
		return znode.Stat{}, lost // it may still be on its way
	case now.meets(old):
		return znode.Stat{}, ErrUnavailable
	case known, next && !now.is(data):
		return znode.Stat{}, ErrConflict
	}
	return znode.Stat{}, lost
}
