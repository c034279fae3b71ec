package bench

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// calls counts what a Store was asked for. It is safe for concurrent use.
type calls struct {
	reads, writes, events atomic.Int64
	wg                    sync.WaitGroup // of watches
}

// countingStore is a Store that counts its calls and the events of its watches.
type countingStore struct {
	recipes.Store
	n *calls
}

// counted returns s with its calls counted in n.
func (n *calls) counted(s recipes.Store) recipes.Store { return &countingStore{s, n} }

// per returns the counts over count hand-overs.
func (n *calls) per(count int64) Cost {
	over := func(v *atomic.Int64) float64 { return float64(v.Load()) / float64(max(count, 1)) }
	return Cost{over(&n.reads), over(&n.writes), over(&n.events)}
}

func (n *calls) reset() {
	n.reads.Store(0)
	n.writes.Store(0)
	n.events.Store(0)
}

// Create implements recipes.Store.
func (s *countingStore) Create(ctx context.Context, path string, data []byte, spec recipes.CreateSpec) (string, error) {
	s.n.writes.Add(1)
	return s.Store.Create(ctx, path, data, spec)
}

// Set implements recipes.Store.
func (s *countingStore) Set(ctx context.Context, path string, data []byte, c recipes.Cond) (znode.Stat, error) {
	s.n.writes.Add(1)
	return s.Store.Set(ctx, path, data, c)
}

// Delete implements recipes.Store.
func (s *countingStore) Delete(ctx context.Context, path string, c recipes.Cond) error {
	s.n.writes.Add(1)
	return s.Store.Delete(ctx, path, c)
}

// Multi implements recipes.Store.
func (s *countingStore) Multi(ctx context.Context, ops ...recipes.Op) ([]recipes.OpResult, error) {
	s.n.writes.Add(1)
	return s.Store.Multi(ctx, ops...)
}

// Get implements recipes.Store.
func (s *countingStore) Get(ctx context.Context, path string) ([]byte, znode.Stat, error) {
	s.n.reads.Add(1)
	return s.Store.Get(ctx, path)
}

// GetW implements recipes.Store.
func (s *countingStore) GetW(ctx context.Context, path string) ([]byte, znode.Stat, recipes.Watch, error) {
	s.n.reads.Add(1)
	data, stat, w, err := s.Store.GetW(ctx, path)
	return data, stat, s.watch(w), err
}

// ExistsW implements recipes.Store.
func (s *countingStore) ExistsW(ctx context.Context, path string) (znode.Stat, bool, recipes.Watch, error) {
	s.n.reads.Add(1)
	stat, ok, w, err := s.Store.ExistsW(ctx, path)
	return stat, ok, s.watch(w), err
}

// Children implements recipes.Store.
func (s *countingStore) Children(ctx context.Context, path string) ([]string, znode.Stat, error) {
	s.n.reads.Add(1)
	return s.Store.Children(ctx, path)
}

// ChildrenW implements recipes.Store.
func (s *countingStore) ChildrenW(ctx context.Context, path string) ([]string, znode.Stat, recipes.Watch, error) {
	s.n.reads.Add(1)
	names, stat, w, err := s.Store.ChildrenW(ctx, path)
	return names, stat, s.watch(w), err
}

// Sync implements recipes.Store.
func (s *countingStore) Sync(ctx context.Context, path string) error {
	s.n.reads.Add(1)
	return s.Store.Sync(ctx, path)
}

// SessionOpen implements recipes.Store.
func (s *countingStore) SessionOpen(ctx context.Context, id int64) (bool, error) {
	s.n.reads.Add(1)
	return s.Store.SessionOpen(ctx, id)
}

// watch passes on what w tells and counts it. Its goroutine ends with the event, Cancel,
// or the session.
func (s *countingStore) watch(w recipes.Watch) recipes.Watch {
	if w.C == nil {
		return w
	}
	c, canceled := make(chan recipes.EventKind, 1), make(chan struct{})
	s.n.wg.Go(func() {
		defer close(c)
		select {
		case kind, told := <-w.C:
			if told {
				c <- kind
			}
			if told && kind == recipes.Changed {
				s.n.events.Add(1)
			}
		case <-canceled:
		}
	})
	return recipes.Watch{C: c, Cancel: sync.OnceFunc(func() {
		close(canceled)
		w.Cancel()
	})}
}
