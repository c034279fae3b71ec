package server

import (
	"testing"
	"testing/synctest"
)

// Goal: a reader that waits for its turn goes on exactly when its connection has nothing
// outstanding any more, or when the total is below the bound; the first in line goes first.
// Method: a bound of 3 in a bubble, where it is certain who waits.
func TestBudgetTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(3, 1<<20)
		var shares [3]share
		for i := range shares {
			b.acquire(1, &shares[i])
		}
		var order []int
		wait := func(i int) {
			go func() {
				b.acquire(1, &shares[i])
				order = append(order, i)
			}()
			synctest.Wait()
		}
		want := func(what string, list ...int) {
			t.Helper()
			synctest.Wait()
			if len(order) != len(list) || len(list) > 0 && order[len(list)-1] != list[len(list)-1] {
				t.Fatalf("%s: %v went on, want %v", what, order, list)
			}
		}
		var late share
		b.acquire(1, &late) // has none: is let in above the bound
		wait(0)
		wait(1)
		want("above the bound")
		b.release(1, &shares[1])
		want("its own is answered, the total still at the bound", 1)
		b.release(1, &late)
		want("at the bound", 1)
		wait(2)
		b.release(1, &shares[1])
		want("below the bound", 1, 0)
		b.abandon(&shares[2])
		want("its connection ends", 1, 0, 2)
		if n := b.waiting.Len(); n != 0 {
			t.Errorf("%d are in line still", n)
		}
	})
}
