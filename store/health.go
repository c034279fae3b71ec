package store

import (
	"fmt"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// health keeps the first error of Pebble's own goroutines that endangers the state.
// Any number of goroutines may use it.
type health struct {
	first atomic.Pointer[error]
	// broken is closed when first is set. It is needed because Pebble tries a
	// failed flush for ever.
	broken chan struct{}
}

func newHealth() *health { return &health{broken: make(chan struct{})} }

// fail notes err, and reports whether it is the first.
func (h *health) fail(err error) bool {
	first := h.first.CompareAndSwap(nil, &err)
	if first {
		close(h.broken)
	}
	return first
}

// err is nil as long as nothing failed.
func (h *health) err() error {
	if p := h.first.Load(); p != nil {
		return fmt.Errorf("store: the disk failed: %w", *p)
	}
	return nil
}

// flush waits until everything applied to db before is durable, or Pebble failed.
func (h *health) flush(db *pebble.DB) error {
	if err := h.err(); err != nil {
		return err
	}
	done, err := db.AsyncFlush()
	if err != nil {
		return fmt.Errorf("store: flush: %w", err)
	}
	select {
	case <-done:
		return nil
	case <-h.broken:
		return h.err()
	}
}
