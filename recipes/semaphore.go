package recipes

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/tenure-dev/tenure/znode"
)

// SlotsMax bounds the slots of a Semaphore. Its record names every holder and must fit a
// znode.
const SlotsMax = 1000

// Semaphore has slots that holders take, in the order of asking. It is safe for concurrent
// use. Its places are their own count: a slot is a position in the line. Each holder has a
// token of its own: one fence for all slots refuses those who hold beside a later one.
type Semaphore struct{ line *line }

// NewSemaphore makes a semaphore of the directory path, which is created when it is
// needed. slots is how many there are until somebody calls SetSlots, 1..SlotsMax.
func NewSemaphore(s Store, path string, slots int, o Options) (*Semaphore, error) {
	if err := validateSlots(slots); err != nil {
		return nil, err
	}
	l, err := newLine(s, path, o, slotted{}, kindSlots)
	if err != nil {
		return nil, err
	}
	l.slots, l.weight = slots, 1
	return &Semaphore{l}, nil
}

func validateSlots(n int) error {
	if n < 1 || n > SlotsMax {
		return fmt.Errorf("%w: %d slots: it must be 1..%d", ErrInvalid, n, SlotsMax)
	}
	return nil
}

// Acquire waits until n slots are held together. It fails as Mutex.Lock does. If there are
// fewer than n slots in all it waits until there are more.
func (s *Semaphore) Acquire(ctx context.Context, n int) (*Tenure, error) {
	if err := validateSlots(n); err != nil {
		return nil, err
	}
	return s.of(n).hold(ctx, false)
}

// TryAcquire is Acquire without waiting for others.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) (*Tenure, bool, error) {
	if err := validateSlots(n); err != nil {
		return nil, false, err
	}
	return tried(s.of(n).hold(ctx, true))
}

func (s *Semaphore) of(n int) *line {
	l := *s.line
	l.weight = n
	return &l
}

// limitPath is where the number of slots is stored: not in the record, so that it can be
// watched without being woken by every claim.
func (l *line) limitPath() string { return l.join("slots") }

// SetSlots stores how many slots there are, for all. It takes nothing from holders: after
// lowering it there are fewer holders as they release.
func (s *Semaphore) SetSlots(ctx context.Context, n int) error {
	if err := validateSlots(n); err != nil {
		return err
	}
	l, data := s.line, []byte(strconv.Itoa(n))
	if err := ensureDir(ctx, l.store, l.path, l.directory()); err != nil {
		return err
	}
	if err := ensureDir(ctx, l.store, l.limitPath(), znode.Persistent); err != nil {
		return err
	}
	_, err := l.store.Set(ctx, l.limitPath(), data, Always())
	return err
}

// slotsNow reads how many slots there are, with a watch in until.
func (l *line) slotsNow(ctx context.Context, until *wake) (int, error) {
	if l.slots == 0 {
		return 0, nil
	}
	data, _, _, watch, err := readW(ctx, l.store, l.limitPath())
	if err != nil {
		return 0, err
	}
	until.limit = watch
	return l.parseSlots(data)
}

func (l *line) parseSlots(data []byte) (int, error) {
	if len(data) == 0 {
		return l.slots, nil
	}
	n, err := strconv.Atoi(string(data))
	if err == nil {
		err = validateSlots(n)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %q", l.limitPath(), ErrInvalid, data)
	}
	return n, nil
}

// Free returns how many slots nobody has or waits for, as of a moment during the call.
func (s *Semaphore) Free(ctx context.Context) (int, error) {
	l, slots, taken := s.line, 0, 0
	err := retryRead(ctx, func() error {
		if err := l.store.Sync(ctx, l.path); err != nil {
			return err
		}
		data, _, err := l.store.Get(ctx, l.limitPath())
		if err != nil && !errors.Is(err, znode.NoNode) {
			return err
		}
		if slots, err = l.parseSlots(data); err != nil {
			return err
		}
		names, _, err := l.store.Children(ctx, l.path)
		if errors.Is(err, znode.NoNode) {
			err = nil
		}
		taken = weigh(parseLine(names))
		return err
	})
	if err != nil {
		return 0, err
	}
	return max(0, slots-taken), nil
}
