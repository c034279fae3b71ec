package recipestest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
)

var pitfallsOfTokens = []pitfall{
	{number: 97, name: "TokenOfAnotherTenure", run: tokenOfAnotherTenure},
	{number: 98, name: "RenewalWakesTheLine", run: renewalWakesTheLine},
}

// register is a resource outside: a number that holders read, and write on top of what
// they read, each under a fence that is asked at every access.
type register struct {
	fence *recipes.FenceGuard
	mu    sync.Mutex
	value int
}

func newRegister() *register {
	return &register{fence: recipes.NewFenceGuard(&recipes.MemoryHighWater{})}
}

func (r *register) read() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value
}

func (r *register) write(ctx context.Context, token recipes.Token, value int) error {
	return r.fence.Do(ctx, "register", token, func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.value = value
		return nil
	})
}

// Goal: a token is that of one tenure for good; later ones are higher, whatever happens
// to the directory or to the session; a fence keeps former ones out, of reads too if it
// is sealed first; a floor lifts them all. Method: tenures of one name that end in all
// ways, and one register.
func tokenOfAnotherTenure(t *testing.T, h Harness) {
	path, a, b := dir(t), h.Open(t), h.Open(t)
	first := obtained(t, h, mutexAt(t, a.Store, path).Lock)
	token := first.Token()
	a.Expire(t)
	second := obtained(t, h, mutexAt(t, b.Store, path).Lock)
	succeeded(t, h, first, second)
	if first.Token() != token {
		t.Errorf("the token of a tenure changed from %d to %d", token, first.Token())
	}
	var lost *recipes.LostError
	if err := first.Check(); !errors.As(err, &lost) || lost.Token != token || lost.Name != path {
		t.Errorf("what was lost: %v", err)
	}
	sealBeforeRead(t, h, first.Token(), second.Token())
	released(t, h, second)
	if err := b.Store.Delete(h.within(t), path, recipes.Always()); err != nil { // its number and record with it
		t.Fatal(err)
	}
	third := obtained(t, h, mutexAt(t, b.Store, path).Lock)
	if third.Token() <= second.Token() {
		t.Errorf("token %d after %d and a deleted directory", third.Token(), second.Token())
	}
	floor := third.Token() + 1<<40 // as an operator does after a restore
	if err := recipes.SetFloor(h.within(t), a.Store, path, floor); err != nil {
		t.Fatal(err)
	}
	if err := third.Confirm(h.within(t)); err != nil || third.Token() > floor {
		t.Errorf("a holder when a floor is set: token %d, %v", third.Token(), err)
	}
	released(t, h, third)
	fourth := obtained(t, h, mutexAt(t, b.Store, path).Lock)
	if fourth.Token() <= floor {
		t.Errorf("token %d with floor %d", fourth.Token(), floor)
	}
	released(t, h, fourth)
	if err := recipes.SetFloor(h.within(t), a.Store, path, third.Token()); err != nil {
		t.Fatal(err)
	}
	fifth := obtained(t, h, mutexAt(t, a.Store, path).Lock)
	if fifth.Token() <= fourth.Token() {
		t.Errorf("token %d after %d and a lower floor", fifth.Token(), fourth.Token())
	}
	released(t, h, fifth)
}

// sealBeforeRead: a former holder that comes late is refused by what was sealed. What was
// read before it was sealed may have been changed in between.
func sealBeforeRead(t *testing.T, h Harness, former, present recipes.Token) {
	ctx := h.within(t)
	for _, sealed := range []bool{true, false} {
		r := newRegister()
		if err := r.write(ctx, former, 1); err != nil {
			t.Fatal(err)
		}
		if sealed {
			if err := r.fence.Admit(ctx, "register", present); err != nil {
				t.Fatal(err)
			}
		}
		read := r.read()
		late := r.write(ctx, former, 10) // it was paused before it wrote
		if refused := errors.Is(late, recipes.ErrStaleToken); refused != sealed {
			t.Errorf("sealed %v: the former holder's write: %v", sealed, late)
		}
		if err := r.write(ctx, present, read+1); err != nil {
			t.Error(err)
		}
		if err := r.write(ctx, former, 20); !errors.Is(err, recipes.ErrStaleToken) {
			t.Errorf("the former holder after the present one's write: %v", err)
		}
		if r.read() != 2 {
			t.Errorf("the register is %d", r.read())
		}
	}
}

// Goal: a holder's renewals are no news to those who wait. Method: 20 of them, while the
// next in line, and the one behind it, have their calls counted.
func renewalWakesTheLine(t *testing.T, h Harness) {
	path, a := dir(t), h.Open(t)
	var renewals, calls, wakes atomic.Int64
	held := obtained(t, h, mutexAt(t, a.Store, path, func(o *recipes.Options) {
		o.Timing.Renew = h.Timeout / 20
		o.Hooks.Renewed = func(string, time.Duration, time.Duration) { renewals.Add(1) }
	}).Lock)
	var waiters []<-chan result[*recipes.Tenure]
	for i := range 2 {
		hooked := &Hooked{Store: h.Open(t).Store, Before: func(_ context.Context, c Call) error {
			calls.Add(1)
			if c.Kind == Children && strings.HasPrefix(c.Path, path) {
				wakes.Add(1)
			}
			return nil
		}}
		waiters = append(waiters, queued(t, h, a.Store, path, i+2, mutexAt(t, hooked, path).Lock))
	}
	quiet := calls.Load() // until each watches the place before it
	h.eventually(t, "all to wait", func() bool {
		was := quiet
		pause(t, h.Timeout/10)
		quiet = calls.Load()
		return quiet == was
	})
	from, listed := renewals.Load(), wakes.Load()
	h.eventually(t, "20 renewals", func() bool { return renewals.Load() >= from+20 })
	if n := calls.Load() - quiet; n != 0 {
		t.Errorf("those who wait made %d calls, %d of them lists, in 20 renewals", n, wakes.Load()-listed)
	}
	if err := held.Check(); err != nil {
		t.Errorf("the holder: %v", err)
	}
	released(t, h, held)
	for _, waiter := range waiters {
		released(t, h, granted(t, h, waiter, "the next"))
	}
}
