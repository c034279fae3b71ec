package recipes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// historyPrune bounds how many old versions one write removes.
const historyPrune = 16

// Version is one value that a Config had. A plain value.
type Version[T any] struct {
	// Number grows with each write, also if the config was deleted in between.
	Number int64
	V      T
	Err    error // it does not decode or is not valid by today's rules
	// WrittenAt is by the backend's clock, for people.
	WrittenAt time.Time
}

// past is the name of a version: v-<mark of the write>-<number>.
type past struct {
	name, mark string
	number     int64
}

const (
	pastPrefix   = "v-"
	pastNumberAt = len(pastPrefix) + guidLength + 1
)

// parsePast accepts the exact pattern alone.
func parsePast(name string) (past, bool) {
	if len(name) != pastNumberAt+10 || !strings.HasPrefix(name, pastPrefix) || name[pastNumberAt-1] != '-' {
		return past{}, false
	}
	number, err := strconv.ParseUint(name[pastNumberAt:], 10, 31)
	if err != nil {
		return past{}, false
	}
	return past{name: name, mark: name[len(pastPrefix) : pastNumberAt-1], number: int64(number)}, true
}

// History returns the versions that are kept, the newest first. What others than a Config
// with History have written is not among them.
func (c *Config[T]) History(ctx context.Context) ([]Version[T], error) {
	var all []Version[T]
	err := retryRead(ctx, func() error {
		all = nil
		if err := c.store.Sync(ctx, c.historyPath()); err != nil {
			return err
		}
		kept, err := c.kept(ctx)
		if err != nil {
			return err
		}
		for _, p := range slices.Backward(kept) {
			v, err := c.version(ctx, p)
			switch {
			case errors.Is(err, znode.NoNode): // pruned since
			case err != nil:
				return err
			default:
				all = append(all, v)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("history of config %s: %w", c.path, err)
	}
	return all, nil
}

// Revert makes the version of that number the value again, which is a new version. A
// number that is not kept is znode.NoNode, a version that is not valid any more
// ErrInvalid. About the outcome see Set.
func (c *Config[T]) Revert(ctx context.Context, number int64) (Value[T], error) {
	all, err := c.History(ctx)
	if err != nil {
		return Value[T]{}, err
	}
	i := slices.IndexFunc(all, func(v Version[T]) bool { return v.Number == number })
	if i < 0 {
		return Value[T]{}, fmt.Errorf("config %s, version %d is not kept: %w", c.path, number, znode.NoNode)
	}
	if all[i].Err != nil {
		return Value[T]{}, fmt.Errorf("%w: %w", ErrInvalid, all[i].Err)
	}
	return c.Set(ctx, all[i].V)
}

func (c *Config[T]) historyPath() string { return c.path + "-history" }

// kept returns the names of the versions, the oldest first; none if there is no history.
func (c *Config[T]) kept(ctx context.Context) ([]past, error) {
	names, _, err := c.store.Children(ctx, c.historyPath())
	if err != nil && !errors.Is(err, znode.NoNode) {
		return nil, err
	}
	var kept []past
	for _, name := range names {
		if p, ok := parsePast(name); ok {
			kept = append(kept, p)
		}
	}
	slices.SortFunc(kept, func(a, b past) int { return cmp.Compare(a.number, b.number) })
	return kept, nil
}

// version reads one version.
func (c *Config[T]) version(ctx context.Context, p past) (Version[T], error) {
	data, stat, err := c.store.Get(ctx, znode.Join(c.historyPath(), p.name))
	if err != nil {
		return Version[T]{}, err
	}
	v := Version[T]{Number: p.number, WrittenAt: time.UnixMilli(stat.Ctime)}
	v.V, v.Err = c.codec.Decode(data)
	if v.Err == nil && c.o.Validate != nil {
		v.Err = c.o.Validate(v.V)
	}
	return v, nil
}

// writeHistory does op, which writes the value, together with the new version, and
// removes the oldest ones beyond what is kept.
func (c *Config[T]) writeHistory(ctx context.Context, op Op, mark string) (znode.Stat, error) {
	kept, err := c.kept(ctx)
	if err != nil {
		return znode.Stat{}, err
	}
	name := znode.Join(c.historyPath(), pastPrefix+mark+"-")
	ops := []Op{op, OpCreate(name, op.Data, CreateSpec{Sequential: true})}
	surplus := min(max(len(kept)+1-c.o.History, 0), historyPrune)
	for _, p := range kept[:surplus] {
		ops = append(ops, OpDelete(znode.Join(c.historyPath(), p.name), Always()))
	}
	results, err := c.store.Multi(ctx, ops...)
	refused, isRefused := errors.AsType[*MultiError](err)
	switch {
	case err == nil && op.Kind == KindSet:
		return results[0].Stat, nil
	case err == nil:
		return c.created(ctx), nil
	case !isRefused:
		return znode.Stat{}, err
	case refused.Index == 0 && op.Kind == KindCreate && errors.Is(err, znode.NoNode):
		return znode.Stat{}, c.ensureParent(ctx)
	case refused.Index == 0 && !refusal(err):
		return znode.Stat{}, fmt.Errorf("%w: %w", ErrConflict, err)
	case refused.Index == 1 && errors.Is(err, znode.NoNode):
		if err := ensureDir(ctx, c.store, c.historyPath(), znode.Persistent); err != nil {
			return znode.Stat{}, err
		}
		return znode.Stat{}, ErrUnavailable
	case refused.Index > 1 && errors.Is(err, znode.NoNode): // pruned by somebody else
		return znode.Stat{}, ErrUnavailable
	}
	return znode.Stat{}, err
}
