package recipes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/tenure-dev/tenure/znode"
)

// Counter is a number that many add to, each addition exactly once also if its answer is
// lost. It is safe for concurrent use: additions through one Counter queue up behind each
// other. For high rates Reserve ranges and count within them. It starts no goroutine.
//
// The counter is one persistent znode. Whoever deletes it sets it to 0, and must not do so
// while others add.
type Counter struct {
	store Store
	path  string
	mark  string // knows our additions again

	turn chan struct{} // holds a value while somebody adds
	seq  uint64        // of the latest addition; owned by who adds
}

// countersKept is how many adders' latest additions are kept with the value: an addition of
// unknown outcome can be settled until that many others have added.
const countersKept = 64

// counterValue is the data of the znode.
type counterValue struct {
	N     int64          `json:"n"`
	Added []counterAdded `json:"added"` // the latest last, one for each adder
}

// counterAdded is the latest addition of one adder.
type counterAdded struct {
	By  string `json:"by"`
	Seq uint64 `json:"seq"`
	N   int64  `json:"n"` // the value after it
}

// NewCounter returns the counter at path. One that nobody added to is 0.
func NewCounter(s Store, path string) (*Counter, error) {
	if err := validateDir(path); err != nil {
		return nil, err
	}
	return &Counter{store: s, path: path, mark: newGUID()[:16], turn: make(chan struct{}, 1)}, nil
}

// Get returns the value, with all additions that ended before Get was called.
func (c *Counter) Get(ctx context.Context) (int64, error) {
	var n int64
	err := insist(ctx, nil, func() error {
		v, _, err := c.read(ctx)
		n = v.N
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read counter %s: %w", c.path, err)
	}
	return n, nil
}

// Add adds delta, which may be negative, and returns the value after it. It is done
// exactly once if the error is nil, and not at all if there is an error that is not
// ErrUncertain. ErrUncertain is left where ctx or the store ended before the outcome
// was seen, or where 64 others added before it could be. A sum that int64 cannot hold
// is ErrInvalid.
func (c *Counter) Add(ctx context.Context, delta int64) (int64, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return 0, fmt.Errorf("add to counter %s: %w", c.path, context.Cause(ctx))
	}
	c.seq++
	a := addition{counter: c, delta: delta}
	if err := insist(ctx, nil, func() error { return a.try(ctx) }); err != nil {
		if a.unsettled && !errors.Is(err, ErrUncertain) {
			err = fmt.Errorf("%w: %w", ErrUncertain, err)
		}
		return 0, fmt.Errorf("add to counter %s: %w", c.path, err)
	}
	return a.result, nil
}

// Reserve takes the next n numbers, at least 1, for the caller alone: those above lo up to
// and with hi. Its errors are those of Add.
func (c *Counter) Reserve(ctx context.Context, n int64) (lo, hi int64, err error) {
	if n < 1 {
		return 0, 0, fmt.Errorf("%w: reserve %d numbers: at least 1", ErrInvalid, n)
	}
	hi, err = c.Add(ctx, n)
	if err != nil {
		return 0, 0, err
	}
	return hi - n, hi, nil
}

// read returns the latest value. Where there is none it is zero with a Stat whose Czxid
// is 0. The sync makes it at least as new as a write of ours whose answer was lost.
func (c *Counter) read(ctx context.Context) (counterValue, znode.Stat, error) {
	if err := c.store.Sync(ctx, c.path); err != nil {
		return counterValue{}, znode.Stat{}, err
	}
	data, stat, err := c.store.Get(ctx, c.path)
	if errors.Is(err, znode.NoNode) {
		return counterValue{}, znode.Stat{}, nil
	}
	if err != nil {
		return counterValue{}, znode.Stat{}, err
	}
	var v counterValue
	if err := json.Unmarshal(data, &v); err != nil {
		return v, stat, fmt.Errorf("%w: data of %s is not a counter's: %w", ErrInvalid, c.path, err)
	}
	return v, stat, nil
}

// write replaces what read returned with stat, if that is still there.
func (c *Counter) write(ctx context.Context, v counterValue, stat znode.Stat) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if stat.Czxid != 0 {
		_, err = c.store.Set(ctx, c.path, data, IfVersion(stat.Version))
		return err
	}
	_, err = c.store.Create(ctx, c.path, data, CreateSpec{})
	if errors.Is(err, znode.NoNode) {
		parent, _ := znode.Split(c.path)
		if err := ensureDir(ctx, c.store, parent, znode.Container); err != nil {
			return err
		}
		return errAgain
	}
	return err
}

// addition is one call of Add.
type addition struct {
	counter   *Counter
	delta     int64
	result    int64
	unsettled bool       // a write of unknown outcome was not found nor ruled out yet
	base      znode.Stat // what that write replaced, if it did
}

// try reads, and writes unless an earlier try is found to have been applied. All tries
// bear the same mark, so the first of them that is applied is seen by the others.
func (a *addition) try(ctx context.Context) error {
	c := a.counter
	v, stat, err := c.read(ctx)
	if err != nil {
		return err
	}
	if n, found := v.find(c.mark, c.seq); found {
		a.result, a.unsettled = n, false
		return nil
	}
	if err := a.settle(v, stat); err != nil {
		return err
	}
	next, err := v.add(c.mark, c.seq, a.delta)
	if err != nil {
		return fmt.Errorf("%w: counter %s is %d: adding %d: %w", ErrInvalid, c.path, v.N, a.delta, err)
	}
	err = c.write(ctx, next, stat)
	switch {
	case err == nil:
		a.result, a.unsettled = next.N, false
		return nil
	case errors.Is(err, ErrUncertain):
		a.unsettled, a.base = true, stat
	case errors.Is(err, znode.BadVersion), errors.Is(err, znode.NodeExists), errors.Is(err, znode.NoNode):
		return errConflict
	}
	return err
}

// settle decides what became of a write of unknown outcome that left no mark in v. While
// what it would have replaced is still there, it may come yet but then excludes the next
// try. Once that was replaced by others it was not applied and never will be, provided
// that its mark would still be seen.
func (a *addition) settle(v counterValue, stat znode.Stat) error {
	if !a.unsettled || stat.Czxid == a.base.Czxid && stat.Version == a.base.Version {
		return nil
	}
	writes := stat.Version - a.base.Version // since; wraps as versions do
	if a.base.Czxid == 0 {
		writes = stat.Version + 1
	}
	same := stat.Czxid == a.base.Czxid || a.base.Czxid == 0
	kept := len(v.Added) < countersKept || writes > 0 && writes < countersKept
	if !same || !kept {
		return errForgotten
	}
	a.unsettled = false
	return nil
}

// errForgotten: an addition of unknown outcome cannot be settled any more.
var errForgotten = errors.New("too much was added since to tell")

// find returns the value after the addition seq of the adder by, if it is the latest.
func (v counterValue) find(by string, seq uint64) (int64, bool) {
	for _, a := range v.Added {
		if a.By == by && a.Seq == seq {
			return a.N, true
		}
	}
	return 0, false
}

// add returns the value after one more addition.
func (v counterValue) add(by string, seq uint64, delta int64) (counterValue, error) {
	if delta > 0 && v.N > math.MaxInt64-delta || delta < 0 && v.N < math.MinInt64-delta {
		return v, errors.New("int64 overflows")
	}
	next := counterValue{N: v.N + delta}
	for _, a := range v.Added {
		if a.By != by {
			next.Added = append(next.Added, a)
		}
	}
	next.Added = append(next.Added, counterAdded{By: by, Seq: seq, N: next.N})
	next.Added = next.Added[max(0, len(next.Added)-countersKept):]
	return next, nil
}
