package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/znode"
)

func newQueue(t *testing.T, s recipes.Store, o recipes.QueueOptions) *recipes.Queue {
	t.Helper()
	q, err := recipes.NewQueue(s, queuePath, o)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func put(t *testing.T, q *recipes.Queue, body string, o ...recipes.PutOption) string {
	t.Helper()
	id, err := q.Put(t.Context(), []byte(body), o...)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func take(t *testing.T, q *recipes.Queue) *recipes.Item {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	item, err := q.Take(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return item
}

func ack(t *testing.T, item *recipes.Item, ops ...recipes.Op) {
	t.Helper()
	if err := item.Ack(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
}

// nothing says that no item is given out now.
func nothing(t *testing.T, q *recipes.Queue) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if item, err := q.Take(ctx); err == nil {
		t.Errorf("took %q", item.Body)
	}
}

// left says that the queue keeps no znode of any item. Receipts of producers are not of one.
func left(t *testing.T, f *recipestest.Fake, want ...string) {
	t.Helper()
	time.Sleep(3 * time.Second) // what goes on in the background
	names := slices.DeleteFunc(f.Nodes("/app/queue/"), func(path string) bool {
		return strings.Count(path, "/") < 4 || strings.Contains(path, "/puts/")
	})
	if !slices.EqualFunc(names, want, strings.HasPrefix) {
		t.Errorf("left are %v, want %v", names, want)
	}
}

// Goal: items are given out by priority, then in the order of Put, each to one consumer,
// and not before their time. Method: put some, take all.
func TestQueueOrder(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		q := newQueue(t, f.Open(t).Store, recipes.QueueOptions{})
		start := time.Now()
		put(t, q, "c")
		put(t, q, "later", recipes.Priority(0), recipes.NotBefore(start.Add(time.Minute)))
		put(t, q, "d", recipes.Priority(100))
		put(t, q, "a", recipes.Priority(7))
		put(t, q, "e", recipes.Priority(65535))
		put(t, q, "b", recipes.Priority(7))
		var held []*recipes.Item
		for _, want := range []string{"a", "b", "c", "d", "e", "later"} {
			item := take(t, q)
			if string(item.Body) != want || item.Attempt != 1 || item.Check() != nil {
				t.Errorf("took %q, attempt %d, %v; want %q", item.Body, item.Attempt, item.Check(), want)
			}
			held = append(held, item)
		}
		if took := time.Since(start); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("the last was given out after %v", took)
		}
		nothing(t, q)
		for _, item := range held {
			ack(t, item)
			if !errors.Is(item.Check(), recipes.ErrReleased) {
				t.Errorf("after Ack: %v", item.Check())
			}
			if err := item.Release(t.Context()); err != nil {
				t.Errorf("release after Ack: %v", err)
			}
		}
		left(t, f)
	})
}

// Goal: an item that is given back keeps its id and its place, and counts its attempts.
// Method: give back at once, and with a delay, while there are others.
func TestQueueNack(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		q, other := newQueue(t, f.Open(t).Store, recipes.QueueOptions{}), newQueue(t, f.Open(t).Store, recipes.QueueOptions{})
		id := put(t, q, "first")
		put(t, q, "second")
		if err := take(t, q).Nack(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		again := take(t, other)
		if again.ID != id || again.Attempt != 2 {
			t.Errorf("took %q, attempt %d; want %q again", again.ID, again.Attempt, id)
		}
		if err := again.Nack(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := again.Ack(t.Context()); !errors.Is(err, recipes.ErrReleased) {
			t.Errorf("ack after nack: %v", err)
		}
		back := time.Now()
		ack(t, take(t, other))
		again = take(t, q)
		if took := time.Since(back); again.ID != id || again.Attempt != 3 || took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("took %q, attempt %d, after %v", again.ID, again.Attempt, took)
		}
		ack(t, again)
		left(t, f)
	})
}

// Goal: an id is in the queue once, and may come again after its Ack. Method: put it twice,
// by two, before and after.
func TestQueueIDs(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		q, other := newQueue(t, f.Open(t).Store, recipes.QueueOptions{}), newQueue(t, f.Open(t).Store, recipes.QueueOptions{})
		for round := range 2 {
			for _, q := range []*recipes.Queue{q, other, q} {
				if id := put(t, q, "x", recipes.ID("order/7 \x00")); id != "order/7 \x00" {
					t.Errorf("put %q", id)
				}
			}
			item := take(t, q)
			if item.ID != "order/7 \x00" {
				t.Errorf("round %d: took %q", round, item.ID)
			}
			put(t, other, "x", recipes.ID(item.ID)) // it is in work still
			nothing(t, other)
			ack(t, item)
			nothing(t, q)
		}
		left(t, f)
	})
}

// Goal: an item that nobody can work on goes aside. Method: give it back until then.
func TestQueueRedeliver(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		q := newQueue(t, f.Open(t).Store, recipes.QueueOptions{Redeliver: 2})
		put(t, q, "bad", recipes.ID("bad"))
		put(t, q, "good")
		for range 2 {
			if item := take(t, q); string(item.Body) != "bad" {
				t.Errorf("took %q", item.Body)
			} else if err := item.Nack(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		item := take(t, q)
		if string(item.Body) != "good" {
			t.Errorf("took %q", item.Body)
		}
		ack(t, item)
		left(t, f, "/app/queue/dead/p00100-")
		put(t, q, "again", recipes.ID("bad"))
		ack(t, take(t, q))
	})
}

// Goal: an Ack whose answer was lost and whose claim is gone is only then a success if it
// was applied. Method: lose the request, or the answer, and delete the claim by hand.
func TestQueueAckOfALostClaim(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		other := f.Open(t).Store
		var acks, answers atomic.Int32
		answers.Store(1) // no answer is lost until it is 0
		h := &recipestest.Hooked{Store: f.Open(t).Store}
		h.After = func(_ context.Context, c recipestest.Call, err error) error {
			if c.Kind == recipestest.Multi && err == nil && answers.Add(1) == 1 {
				return recipes.ErrUncertain
			}
			return err
		}
		h.Before = func(ctx context.Context, c recipestest.Call) error {
			if c.Kind != recipestest.Multi || c.Ops[0].Kind != recipes.KindDelete || acks.Add(1) > 1 {
				return nil
			}
			if err := other.Delete(ctx, c.Path, recipes.Always()); err != nil {
				t.Error(err)
			}
			return recipes.ErrUncertain
		}
		q := newQueue(t, h, recipes.QueueOptions{})
		put(t, q, "x")
		err := take(t, q).Ack(t.Context(), recipes.OpCreate("/effect", nil, recipes.CreateSpec{}))
		if !errors.Is(err, recipes.ErrLost) {
			t.Errorf("ack that was not applied: %v", err)
		}
		if len(f.Nodes("/effect")) > 0 {
			t.Error("its effect landed")
		}
		item := take(t, q)
		if item.Attempt != 2 {
			t.Errorf("attempt %d", item.Attempt)
		}
		answers.Store(0)
		ack(t, item, recipes.OpCreate("/effect", nil, recipes.CreateSpec{}))
		left(t, f)
	})
}

// Goal: Take tries again what was not applied, though nothing changes that would wake it.
// Method: one item, one consumer; its claim is not sent, and no connection breaks.
func TestQueueTakeNotApplied(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		var lost atomic.Bool
		h := &recipestest.Hooked{Store: f.Open(t).Store, Before: func(_ context.Context, c recipestest.Call) error {
			if c.Kind == recipestest.Multi && c.Ops[0].Kind == recipes.KindSet && !lost.Swap(true) {
				return recipes.ErrUncertain
			}
			return nil
		}}
		q := newQueue(t, h, recipes.QueueOptions{})
		put(t, q, "x")
		start := time.Now()
		item := take(t, q)
		if took := time.Since(start); took > 3*time.Second || item.Attempt != 1 {
			t.Errorf("took it after %v, attempt %d", took, item.Attempt)
		}
		ack(t, item)
		left(t, f)
	})
}

// Goal: a Put whose answer was lost counts once where it filled the queue, and says that
// it is uncertain where it cannot find out. Method: a queue for one item.
func TestQueuePutAnswerLost(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		for _, o := range [][]recipes.PutOption{nil, {recipes.ID("7")}} {
			var lost, cut atomic.Bool
			ctx, cancel := context.WithCancel(t.Context())
			h := &recipestest.Hooked{Store: f.Open(t).Store}
			h.Before = func(_ context.Context, c recipestest.Call) error {
				if cut.Load() && lost.Load() {
					cancel()
					return recipes.ErrUnavailable
				}
				return nil
			}
			h.After = func(_ context.Context, c recipestest.Call, err error) error {
				if c.Kind == recipestest.Multi && err == nil && !lost.Swap(true) {
					return recipes.ErrUncertain
				}
				return err
			}
			q := newQueue(t, h, recipes.QueueOptions{MaxItems: 1})
			put(t, q, "x", o...)
			if _, err := q.Put(t.Context(), nil); !errors.Is(err, recipes.ErrQueueFull) || errors.Is(err, recipes.ErrUncertain) {
				t.Errorf("put into a full queue: %v", err)
			}
			ack(t, take(t, q))
			left(t, f)

			lost.Store(false)
			cut.Store(true)
			if _, err := q.Put(ctx, nil, o...); !errors.Is(err, recipes.ErrUncertain) {
				t.Errorf("put that cannot find out: %v", err)
			}
			cut.Store(false)
			ack(t, take(t, q))
		}
	})
}

// Goal: no consumer is given an item while another may believe in it. Method: a consumer
// that waits for the end of a first holder's belief misses that a second took the item
// and lost its claim.
func TestQueueHoldsOffForEachClaim(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		a, b, c := f.Open(t), f.Open(t), f.Open(t)
		put(t, newQueue(t, a.Store, recipes.QueueOptions{}), "x")
		dropClaim := func() {
			t.Helper()
			claims, _, err := f.Open(t).Store.Children(t.Context(), "/app/queue/claims")
			if err != nil || len(claims) != 1 {
				t.Fatalf("claims: %v, %v", claims, err)
			}
			if err := f.Open(t).Store.Delete(t.Context(), "/app/queue/claims/"+claims[0], recipes.Always()); err != nil {
				t.Fatal(err)
			}
		}
		first := take(t, newQueue(t, a.Store, recipes.QueueOptions{}))
		waiting := func(p *recipestest.Peer) <-chan *recipes.Item {
			took, q := make(chan *recipes.Item, 1), newQueue(t, p.Store, recipes.QueueOptions{})
			go func() {
				item, err := q.Take(t.Context())
				if err != nil && t.Context().Err() == nil {
					t.Error(err)
				}
				took <- item
			}()
			synctest.Wait()
			time.Sleep(50 * time.Millisecond)
			return took
		}
		bTook, cTook := waiting(b), waiting(c)
		dropClaim()
		wait := 3500 * time.Millisecond
		if c.Store.Caps().ExactExpiry {
			wait = 9 * time.Second
		}
		time.Sleep(wait)
		c.Partition()
		second := <-bTook
		if first.Check() == nil {
			t.Error("two believe in one item")
		}
		b.Partition()
		dropClaim()
		c.Heal()
		third := <-cTook
		if second == nil || third == nil {
			return
		}
		if second.Check() == nil {
			t.Errorf("two believe in one item: token %d and %d", second.Token(), third.Token())
		}
		if third.Token() <= second.Token() || third.Attempt != 3 {
			t.Errorf("token %d after %d, attempt %d", third.Token(), second.Token(), third.Attempt)
		}
		b.Heal()
		if _, err := second.Txn(t.Context(), recipes.OpCreate("/effect", nil, recipes.CreateSpec{})); !errors.Is(err, recipes.ErrLost) {
			t.Errorf("a guarded write of a former consumer: %v", err)
		}
		ack(t, third)
	})
}

// Goal: bad options are refused by name. Method: each of them.
func TestQueueOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := recipestest.NewFake(recipestest.FakeOptions{}).Open(t).Store
		for i, o := range []recipes.QueueOptions{{MaxItems: -1}, {Redeliver: -1}} {
			_, err := recipes.NewQueue(s, "/q", o)
			if !errors.Is(err, recipes.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "-1") {
				t.Errorf("%d: %v", i, err)
			}
		}
		if _, err := recipes.NewQueue(s, znode.Root, recipes.QueueOptions{}); !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("queue at /: %v", err)
		}
	})
}
