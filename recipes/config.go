package recipes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/tenure-dev/tenure/znode"
)

// ErrConflict: the value has been changed by somebody else since it was read, and was
// not written.
var ErrConflict = errors.New("changed by somebody else since it was read")

// configHistoryMax bounds ConfigOptions.History: the names of all versions are read with
// each write.
const configHistoryMax = 1000

// ConfigOptions configures a Config. The zero value keeps no history and takes all that
// decodes.
type ConfigOptions[T any] struct {
	// Validate, if not nil, is asked before each write and after each read.
	Validate func(T) error
	// History is how many versions are kept, 0 to 1000. They are written along with the
	// value in one transaction, at the value's path with "-history" appended. With it the
	// outcome of a write is known also if its answer is lost, unless History newer
	// versions have been written since.
	History int
}

// Value is the state of a Config. A plain value.
type Value[T any] struct {
	// V is the value, or the last good one that this Config has seen if Err is set. It is
	// zero if Exists is not set.
	V T
	// Stat is the znode's. Another Czxid is another znode, however alike.
	Stat   znode.Stat
	Exists bool
	// Fresh is false if the connection broke since.
	Fresh bool
	// Err says that what is stored does not decode or is not valid.
	Err error
}

// Config is a typed value that all see change, one znode. What must change together
// belongs into one Config: T may be a struct or a map, and two znodes are never read at
// one moment. It is safe for concurrent use and has no goroutine of its own. The codec
// and Validate are called by the goroutine that called the Config.
type Config[T any] struct {
	store Store
	path  string
	codec Codec[T]
	o     ConfigOptions[T]

	mu struct {
		sync.Mutex
		good   T     // the last that was good
		goodAt int64 // its Mzxid
	}
}

// stored is a value as it is stored.
type stored struct {
	data   []byte
	stat   znode.Stat
	exists bool
}

// NewConfig returns the config at path. It does no I/O. A bad option is ErrInvalid.
func NewConfig[T any](s Store, path string, codec Codec[T], o ConfigOptions[T]) (*Config[T], error) {
	if err := validateDir(path); err != nil {
		return nil, err
	}
	switch {
	case codec == nil:
		return nil, fmt.Errorf("%w: config %s has no codec", ErrInvalid, path)
	case o.History < 0 || o.History > configHistoryMax:
		return nil, fmt.Errorf("%w: ConfigOptions.History is %d: it must be in 0..%d", ErrInvalid, o.History, configHistoryMax)
	}
	return &Config[T]{store: s, path: path, codec: codec, o: o}, nil
}

// Get returns what is stored now, which is not older than anything committed before the
// call. That there is nothing is no error, see Value.Exists, and neither is a bad value,
// see Value.Err.
func (c *Config[T]) Get(ctx context.Context) (Value[T], error) {
	r, err := c.read(ctx)
	if err != nil {
		return Value[T]{}, fmt.Errorf("config %s: %w", c.path, err)
	}
	return c.value(r), nil
}

// Watch yields the present value and then the latest after each change: of the value, of
// Exists, of Fresh. A value that is bad is yielded too, with Err and the last good one.
// Values in between may be missed, the last one is not. It ends silently with ctx, and
// with an error if the store is closed or the backend refuses. Leaving the loop releases
// everything.
func (c *Config[T]) Watch(ctx context.Context) iter.Seq2[Value[T], error] {
	return func(yield func(Value[T], error) bool) {
		var v Value[T]
		var known stored
		first := true
		for r, err := range stream(ctx, c.store, c.path, &configLooker{store: c.store, path: c.path}) {
			if err != nil {
				yield(Value[T]{}, fmt.Errorf("config %s: %w", c.path, err))
				return
			}
			if first || !r.value.same(known) {
				v, known, first = c.value(r.value), r.value, false
			}
			v.Fresh = r.fresh
			if !yield(v, nil) {
				return
			}
		}
	}
}

// value decodes what is stored.
func (c *Config[T]) value(r stored) Value[T] {
	v := Value[T]{Stat: r.stat, Exists: r.exists, Fresh: true}
	if !r.exists {
		return v
	}
	got, err := c.codec.Decode(r.data)
	if err == nil && c.o.Validate != nil {
		err = c.o.Validate(got)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		v.V, v.Err = c.mu.good, fmt.Errorf("config %s, version %d: %w", c.path, r.stat.Version, err)
		return v
	}
	if r.stat.Mzxid >= c.mu.goodAt {
		c.mu.good, c.mu.goodAt = got, r.stat.Mzxid
	}
	v.V = got
	return v
}

// encode is the gate before each write.
func (c *Config[T]) encode(v T) ([]byte, error) {
	if c.o.Validate != nil {
		if err := c.o.Validate(v); err != nil {
			return nil, fmt.Errorf("%w: value of config %s: %w", ErrInvalid, c.path, err)
		}
	}
	data, err := c.codec.Encode(v)
	if err != nil {
		return nil, fmt.Errorf("%w: value of config %s: %w", ErrInvalid, c.path, err)
	}
	return data, nil
}

// read is after all that was committed before.
func (c *Config[T]) read(ctx context.Context) (r stored, err error) {
	err = retryRead(ctx, func() error {
		if err := c.store.Sync(ctx, c.path); err != nil {
			return err
		}
		data, stat, err := c.store.Get(ctx, c.path)
		r = stored{data, stat, err == nil}
		if errors.Is(err, znode.NoNode) {
			r, err = stored{}, nil
		}
		return err
	})
	return r, err
}

// same compares zxids: versions begin anew when a znode is deleted and made again.
func (r stored) same(o stored) bool {
	return r.exists == o.exists && r.stat.Czxid == o.stat.Czxid && r.stat.Mzxid == o.stat.Mzxid
}

// is reports whether the value is stored in these bytes.
func (r stored) is(data []byte) bool { return r.exists && bytes.Equal(r.data, data) }

// configLooker is what a stream of Watch knows. It belongs to the stream's goroutine.
type configLooker struct {
	store Store
	path  string
	last  stored
	any   bool
}

// look reads the znode unless it is watched still.
func (l *configLooker) look(ctx context.Context, w *watches) (round[stored], error) {
	if w.has(l.path) {
		return round[stored]{value: l.last}, nil
	}
	data, stat, exists, watch, err := readW(ctx, l.store, l.path)
	if err != nil {
		return round[stored]{}, err
	}
	if l.any && exists && stat.Mzxid < l.last.stat.Mzxid {
		watch.Cancel()
		return round[stored]{}, errors.Join(l.store.Sync(ctx, l.path),
			fmt.Errorf("%s is behind what was read before: %w", l.path, ErrUnavailable))
	}
	w.arm(l.path, watch)
	r := stored{data, stat, exists}
	changed := !l.any || !r.same(l.last)
	l.last, l.any = r, true
	return round[stored]{value: r, changed: changed}, nil
}
