package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
)

// Goal: P97b, P97c: a guard admits a token iff it is at least the highest seen at that
// key, says by which it was beaten, and refuses what is no key and no token. Method: a
// table, in order, on one guard.
func TestP97FenceGuardAdmits(t *testing.T) {
	g := recipes.NewFenceGuard(&recipes.MemoryHighWater{})
	for _, c := range []struct {
		key   string
		token recipes.Token
		want  error
	}{
		{"/a", 5, nil},
		{"/a", 5, nil}, // one tenure acts many times
		{"/a", 4, &recipes.StaleTokenError{Key: "/a", Token: 4, Highest: 5}},
		{"/b", 1, nil}, // keys have nothing to do with each other
		{"/a", 1<<64 - 1, nil},
		{"/a", 1<<64 - 2, &recipes.StaleTokenError{Key: "/a", Token: 1<<64 - 2, Highest: 1<<64 - 1}},
		{"/a", 0, recipes.ErrInvalid},
		{"", 7, recipes.ErrInvalid},
		{"\xff", 7, recipes.ErrInvalid},
		{"a\x00b", 7, recipes.ErrInvalid},
		{"line\nbreak", 7, recipes.ErrInvalid},
		{strings.Repeat("k", 513), 7, recipes.ErrInvalid},
		{strings.Repeat("k", 512), 7, nil},
		{"ключ, 鍵; \"x\"", 7, nil},
	} {
		err := g.Admit(t.Context(), c.key, c.token)
		if stale, isStale := c.want.(*recipes.StaleTokenError); isStale {
			got, ok := errors.AsType[*recipes.StaleTokenError](err)
			if !ok || *got != *stale || !errors.Is(err, recipes.ErrStaleToken) {
				t.Errorf("Admit(%q, %d): %v, want %v", c.key, c.token, err, c.want)
			}
		} else if !errors.Is(err, c.want) {
			t.Errorf("Admit(%q, %d): %v, want %v", c.key, c.token, err, c.want)
		}
	}
}

// failing is a HighWater that cannot be reached.
type failing struct{ error }

func (f failing) Raise(context.Context, string, recipes.Token) (recipes.Token, error) {
	return 0, f.error
}

// Goal: P97d: where the mark cannot be raised, nothing is admitted. Method: a memory of
// tokens that fails; the effect must not run.
func TestP97FenceGuardFailsClosed(t *testing.T) {
	broken := errors.New("disk on fire")
	err := recipes.NewFenceGuard(failing{broken}).Do(t.Context(), "/a", 1, func(context.Context) error {
		t.Error("the effect ran")
		return nil
	})
	if !errors.Is(err, broken) || errors.Is(err, recipes.ErrStaleToken) {
		t.Errorf("%v, want the HighWater's error", err)
	}
}

// Goal: P51 inside the resource: an effect that was admitted and then paused cannot land
// behind one with a higher token. Method: hold an effect of token 1; token 2 must wait for
// it, token 1 is refused meanwhile, the held effect is told to stop and why.
func TestP51FenceGuardOrdersEffectsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := recipes.NewFenceGuard(&recipes.MemoryHighWater{})
		var order []string
		var all sync.WaitGroup
		all.Go(func() {
			err := g.Do(t.Context(), "/a", 1, func(ctx context.Context) error {
				<-ctx.Done()
				if stale, ok := errors.AsType[*recipes.StaleTokenError](context.Cause(ctx)); !ok || stale.Highest != 2 {
					t.Errorf("cause of the end: %v", context.Cause(ctx))
				}
				time.Sleep(time.Minute) // it does not stop at once
				order = append(order, "old")
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		all.Go(func() {
			if err := g.Do(t.Context(), "/a", 2, func(context.Context) error {
				order = append(order, "new")
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if err := g.Admit(t.Context(), "/a", 1); !errors.Is(err, recipes.ErrStaleToken) {
			t.Errorf("token 1 while 2 waits: %v", err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Admit(short, "/a", 2); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("sealed while an effect of a lower token is under way: %v", err)
		}
		all.Wait()
		if got := fmt.Sprint(order); got != "[old new]" {
			t.Errorf("order of effects %s", got)
		}
	})
}

// effects is what the resource saw of them, between begin and end.
type effects struct {
	mu    sync.Mutex
	last  recipes.Token // of the effect that began last
	under map[recipes.Token]int
	worst string
}

func (e *effects) begin(t recipes.Token) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t < e.last {
		e.worst = fmt.Sprintf("token %d began behind %d", t, e.last)
	}
	for other := range e.under {
		if other != t {
			e.worst = fmt.Sprintf("tokens %d and %d overlap", t, other)
		}
	}
	e.last = t
	e.under[t]++
}

func (e *effects) end(t recipes.Token) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.under[t]--; e.under[t] == 0 {
		delete(e.under, t)
	}
}

// Goal: guards are linearizable: in the order of admission tokens never go down, and
// effects of different tokens never overlap. Method: many goroutines with random tokens
// around a slowly growing one, on every kind of memory that needs no server.
func TestP97FenceGuardIsLinearizable(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	file := openFile(t, t.TempDir()+"/tokens")
	for name, h := range map[string]recipes.HighWater{"memory": &recipes.MemoryHighWater{}, "file": file} {
		t.Run(name, func(t *testing.T) {
			g, seen := recipes.NewFenceGuard(h), effects{under: map[recipes.Token]int{}}
			var all sync.WaitGroup
			var admitted, refused [8]int
			for worker := range 8 {
				random := rand.New(rand.NewPCG(seed, uint64(worker)))
				all.Go(func() {
					for i := range 150 {
						token := recipes.Token(1 + i/10 + random.IntN(4))
						err := g.Do(t.Context(), "/a", token, func(context.Context) error {
							seen.begin(token)
							defer seen.end(token)
							admitted[worker]++
							return nil
						})
						if errors.Is(err, recipes.ErrStaleToken) {
							refused[worker]++
						} else if err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			if seen.worst != "" {
				t.Error(seen.worst)
			}
			if fmt.Sprint(admitted) == fmt.Sprint([8]int{}) || fmt.Sprint(refused) == fmt.Sprint([8]int{}) {
				t.Errorf("admitted %v, refused %v: nothing was tested", admitted, refused)
			}
		})
	}
}

// Goal: P97f: after the coordination service lost its history its tokens are lower than
// those that the resource has seen: they are refused until they are above. Method: a
// restored service's tokens, the refusal names the floor, a floor is just a Raise.
func TestP97TokensOfARestoredStoreAreRefused(t *testing.T) {
	high := &recipes.MemoryHighWater{}
	g := recipes.NewFenceGuard(high)
	if _, err := high.Raise(t.Context(), "/a", 1000); err != nil { // an operator's floor
		t.Fatal(err)
	}
	err := g.Admit(t.Context(), "/a", 12)
	if stale, ok := errors.AsType[*recipes.StaleTokenError](err); !ok || stale.Highest != 1000 {
		t.Errorf("a token below the floor: %v", err)
	}
	if err := g.Admit(t.Context(), "/a", 1001); err != nil {
		t.Errorf("a token above the floor: %v", err)
	}
}

// register is a resource that can be read and written as a whole.
type register struct {
	guard *recipes.FenceGuard
	value []string
}

func (r *register) write(t *testing.T, token recipes.Token, value []string) error {
	return r.guard.Do(t.Context(), "/a", token, func(context.Context) error {
		r.value = value
		return nil
	})
}

// Goal: P97e: seal before read. Method: the old leader pauses before its write. With the
// seal its write is refused; without, it is admitted and then lost in the new leader's.
func TestP97SealBeforeRead(t *testing.T) {
	for _, seal := range []bool{true, false} {
		r := register{guard: recipes.NewFenceGuard(&recipes.MemoryHighWater{})}
		if err := r.write(t, 1, []string{"a"}); err != nil {
			t.Fatal(err)
		}
		if seal {
			if err := r.guard.Admit(t.Context(), "/a", 2); err != nil {
				t.Fatal(err)
			}
		}
		read := r.value                                // by the new leader
		old := r.write(t, 1, []string{"a", "of old"})  // resumes
		err := r.write(t, 2, append(read, "of new"))   // builds on what it read
		late := r.write(t, 1, []string{"a", "of old"}) // once more
		if err != nil || !errors.Is(late, recipes.ErrStaleToken) {
			t.Errorf("seal %v: write of the new leader %v, of the old behind it %v", seal, err, late)
		}
		lost := old == nil && strings.Join(r.value, ",") == "a,of new"
		if lost == seal || errors.Is(old, recipes.ErrStaleToken) != seal {
			t.Errorf("seal %v: write of the old leader %v, in the end %q", seal, old, r.value)
		}
	}
}
