package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

const queuePath = "/app/queue"

// nothingToTake fails if there is an item that may be given out within d.
func nothingToTake(t *testing.T, q *recipes.Queue, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if item, err := q.Take(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("took %+v, %v", item, err)
	}
}

// wantNodes fails unless there are so many znodes in a directory of the queue.
func wantNodes(t *testing.T, f *recipestest.Fake, dir string, n int) {
	t.Helper()
	if nodes := f.Nodes(queuePath + "/" + dir + "/"); len(nodes) != n {
		t.Errorf("in %s: %v, want %d", dir, nodes, n)
	}
}

// Goal: items come in the order of priority, then of Put, not before they are due, and
// what is no item is passed over. Method: a queue with all of that.
func TestQueueOrderAmongForeignNodes(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		s := f.Open(t).Store
		q := newQueue(t, s, recipes.QueueOptions{})
		start := time.Now()
		put(t, q, "later", recipes.Priority(0), recipes.NotBefore(start.Add(time.Minute)))
		put(t, q, "a")
		put(t, q, "b")
		put(t, q, "last", recipes.Priority(65535))
		put(t, q, "first", recipes.Priority(0))
		for _, name := range []string{"x", "p00000-0123456789abcdef0123456789abcdef-0000000001", "p00000-short-0000000001"} {
			if _, err := s.Create(t.Context(), queuePath+"/items/"+name, []byte("foreign"), recipes.CreateSpec{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []string{"first", "a", "b", "last", "later"} {
			item := take(t, q)
			if string(item.Body) != want || item.Attempt != 1 {
				t.Errorf("took %q, attempt %d, want %q", item.Body, item.Attempt, want)
			}
			ack(t, item)
		}
		if took := time.Since(start); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("the one that was not due came after %v", took)
		}
		wantNodes(t, f, "items", 3)
	})
}

// Goal: an id is in the queue once, until it is acknowledged. Method: put it twice, while
// it waits, while it is claimed, and after Ack; also if somebody removed its mark.
func TestQueueID(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		s := f.Open(t).Store
		q := newQueue(t, s, recipes.QueueOptions{})
		for _, body := range []string{"one", "two"} {
			if id, err := q.Put(t.Context(), []byte(body), recipes.ID("same/id ü")); id != "same/id ü" || err != nil {
				t.Errorf("put: %q, %v", id, err)
			}
		}
		item := take(t, q)
		put(t, q, "three", recipes.ID("same/id ü"))
		nothingToTake(t, q, time.Second)
		if item.ID != "same/id ü" || string(item.Body) != "one" {
			t.Errorf("took %q with id %q", item.Body, item.ID)
		}
		ack(t, item)
		wantNodes(t, f, "ids", 0)
		put(t, q, "four", recipes.ID("same/id ü"))
		item = take(t, q)
		if err := s.Delete(t.Context(), f.Nodes(queuePath + "/ids/")[0], recipes.Always()); err != nil {
			t.Fatal(err)
		}
		ack(t, item)
		for _, dir := range []string{"items", "ids", "claims"} {
			wantNodes(t, f, dir, 0)
		}
	})
}

// Goal: an item that is given out too often goes to the directory dead, whole, and its id
// is free again. Method: a consumer that gives back, and one that dies; the directory was
// removed in between.
func TestQueueBuriesWhatKills(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		p, s := f.Open(t), f.Open(t).Store
		o := recipes.QueueOptions{Redeliver: 2}
		q := newQueue(t, s, o)
		put(t, q, "poison", recipes.ID("p"))
		if err := s.Delete(t.Context(), queuePath+"/dead", recipes.Always()); err != nil {
			t.Fatal(err)
		}
		dies := take(t, newQueue(t, p.Store, o))
		p.Expire(t)
		if again := take(t, q); again.ID != dies.ID || again.Attempt != 2 {
			t.Errorf("took %q, attempt %d", again.ID, again.Attempt)
		} else if err := again.Nack(t.Context(), 0); err != nil {
			t.Error(err)
		}
		nothingToTake(t, q, time.Minute)
		dead := f.Nodes(queuePath + "/dead/")
		if len(dead) != 1 {
			t.Fatalf("dead: %v", dead)
		}
		if data, _, err := s.Get(t.Context(), dead[0]); err != nil || !strings.HasSuffix(string(data), "\npoison") {
			t.Errorf("dead item: %q, %v", data, err)
		}
		wantNodes(t, f, "ids", 0)
		wantNodes(t, f, "items", 0)
	})
}

// Goal: a Put whose answer was lost is done once, though its item was taken and
// acknowledged before it could look, and also if the request was lost. Method: cut behind
// and before the write, with a consumer that is faster; with and without an id.
func TestP10QueuePutOnce(t *testing.T) {
	for _, id := range []bool{false, true} {
		flavours(t, func(t *testing.T, f *recipestest.Fake) {
			p := f.Open(t)
			q, consumer := newQueue(t, p.Store, recipes.QueueOptions{}), newQueue(t, f.Open(t).Store, recipes.QueueOptions{})
			put(t, q, "before")
			ack(t, take(t, consumer))
			var got []string
			go func() {
				for item, err := range consumer.Items(t.Context()) {
					if err == nil && item.Ack(t.Context()) == nil {
						got = append(got, string(item.Body))
					}
				}
			}()
			var want []string
			for i := range 20 {
				arm := p.CutAfterCommit
				if i%2 == 1 {
					arm = p.CutBeforeSend
				}
				var options []recipes.PutOption
				if id {
					options = append(options, recipes.ID(fmt.Sprint(i)))
				}
				cut := arm(recipestest.Multi)
				want = append(want, fmt.Sprint(i))
				done := make(chan error)
				go func() {
					_, err := q.Put(t.Context(), []byte(fmt.Sprint(i)), options...)
					done <- err
				}()
				<-cut
				p.Partition()
				settle(2 * time.Second) // it is consumed meanwhile
				p.Heal()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
			settle(time.Second)
			if !slices.Equal(got, want) {
				t.Errorf("consumed %v", got)
			}
			wantNodes(t, f, "puts", 1) // the receipt that is used again
		})
	}
}

// Goal: a Put that cannot know says so, and one that knows that it did nothing too.
// Method: the session expires while the outcome is unknown, the item consumed or still
// there; ctx ends while nothing can be sent.
func TestQueuePutUncertain(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		p, s := f.Open(t), f.Open(t).Store
		q, consumer := newQueue(t, p.Store, recipes.QueueOptions{}), newQueue(t, s, recipes.QueueOptions{})
		put(t, q, "before")
		ack(t, take(t, consumer))
		for _, consumed := range []bool{false, true} {
			_, release := p.Hold(recipestest.Multi)
			done := make(chan error)
			go func() {
				_, err := q.Put(t.Context(), []byte("x"))
				done <- err
			}()
			settle(time.Second)
			if consumed {
				ack(t, take(t, consumer))
			}
			p.Expire(t)
			release()
			if err := <-done; errors.Is(err, recipes.ErrUncertain) != consumed || !consumed && err != nil {
				t.Errorf("put over an expiry, consumed %v: %v", consumed, err)
			}
			if !consumed {
				ack(t, take(t, consumer))
			}
		}
		p.Partition()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := q.Put(ctx, nil); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, recipes.ErrUncertain) {
			t.Errorf("put without a connection: %v", err)
		}
		p.Heal()
		nothingToTake(t, consumer, time.Minute)
	})
}

// Goal: an Ack whose answer was lost is settled: nil if it was applied, ErrLost if the
// claim was removed instead. Method: cut behind and before; then an administrator removes
// the claim in the gap.
func TestQueueAckUncertain(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		p, s := f.Open(t), f.Open(t).Store
		q := newQueue(t, p.Store, recipes.QueueOptions{})
		for i, arm := range []func(recipestest.OpKind) <-chan struct{}{p.CutAfterCommit, p.CutBeforeSend} {
			put(t, q, "x")
			item := take(t, q)
			arm(recipestest.Multi)
			effect := fmt.Sprint("/effect", i)
			if err := item.Ack(t.Context(), recipes.OpCreate(effect, nil, recipes.CreateSpec{})); err != nil {
				t.Errorf("ack: %v", err)
			}
			if len(f.Nodes(effect)) != 1 || !errors.Is(item.Check(), recipes.ErrReleased) {
				t.Errorf("effects %v, check %v", f.Nodes("/effect"), item.Check())
			}
			wantNodes(t, f, "items", 0)
		}
		put(t, q, "x")
		item := take(t, q)
		cut := p.CutBeforeSend(recipestest.Multi)
		done := make(chan error)
		go func() { done <- item.Ack(t.Context(), recipes.OpCreate("/never", nil, recipes.CreateSpec{})) }()
		<-cut
		p.Partition()
		if err := s.Delete(t.Context(), f.Nodes(queuePath + "/claims/")[0], recipes.Always()); err != nil {
			t.Fatal(err)
		}
		p.Heal()
		if err := <-done; !errors.Is(err, recipes.ErrLost) || len(f.Nodes("/never")) != 0 {
			t.Errorf("ack after the claim was removed: %v, effects %v", err, f.Nodes("/never"))
		}
		if again := take(t, q); again.Attempt != 2 {
			t.Errorf("attempt %d", again.Attempt)
		}
	})
}

// Goal: where expiry is not exact an item whose consumer vanished is held off for as long
// as that one may believe in it, counted for each consumer anew; where it is exact it is
// given out at the expiry. Method: two consumers vanish one after the other.
func TestQueueHoldsOff(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		s := f.Open(t).Store
		q := newQueue(t, s, recipes.QueueOptions{})
		put(t, q, "x")
		for range 2 {
			p := f.Open(t)
			old := take(t, newQueue(t, p.Store, recipes.QueueOptions{}))
			// q sees the item unclaimed, as a ghost's, before another takes it.
			claim := f.Nodes(queuePath + "/claims/")[0]
			sess := p.Store.Session()
			p.Partition()
			item := take(t, q)
			if old.Check() == nil || len(f.Nodes(claim)) != 1 {
				t.Error("two believe in the item")
			}
			held := time.Since(old.Deadline())
			if s.Caps().ExactExpiry == (held < 0) && sess.Err() == nil {
				t.Errorf("given out %v after the deadline", held)
			}
			if err := item.Nack(t.Context(), 0); err != nil {
				t.Error(err)
			}
			p.Heal()
		}
	})
}

// Goal: a look that is older than a claim does not count as having seen its end. Method: a
// consumer saw the item as a ghost's; another one takes it, and its claim is removed by
// an administrator while it believes: the first must hold off from then on.
func TestQueueHoldOffIsOfTheLastClaim(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		first, second, s := f.Open(t), f.Open(t), f.Open(t).Store
		q := newQueue(t, s, recipes.QueueOptions{})
		put(t, q, "x")
		remove := func() {
			t.Helper()
			if err := s.Delete(t.Context(), f.Nodes(queuePath + "/claims/")[0], recipes.Always()); err != nil {
				t.Fatal(err)
			}
		}
		take(t, newQueue(t, first.Store, recipes.QueueOptions{}))
		first.Partition()
		remove()
		nothingToTake(t, q, time.Second) // it is noted as a ghost's
		hasty := recipes.QueueOptions{Options: recipes.Options{Timing: recipes.Timing{HoldOff: recipes.HoldOffNone()}}}
		old := take(t, newQueue(t, second.Store, hasty))
		second.Partition()
		settle(time.Second)
		remove()
		item := take(t, q)
		if old.Check() == nil {
			t.Errorf("two believe in the item: %d and %d", old.Token(), item.Token())
		}
		first.Heal()
		second.Heal()
	})
}

// Goal: Items goes on over the end of a session, ends silently with ctx, and with an error
// when the store is closed; the options are checked. Method: each.
func TestQueueItems(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		q, producer := newQueue(t, p.Store, recipes.QueueOptions{}), newQueue(t, f.Open(t).Store, recipes.QueueOptions{})
		seen := make(chan string)
		ended := make(chan error, 1)
		go func() {
			var last error
			for item, err := range q.Items(t.Context()) {
				if last = err; err == nil {
					ack(t, item)
					seen <- string(item.Body)
				}
			}
			ended <- last
		}()
		put(t, producer, "one")
		<-seen
		p.Expire(t)
		put(t, producer, "two")
		if body := <-seen; body != "two" {
			t.Errorf("after an expiry: %q", body)
		}
		if err := p.Store.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, recipes.ErrSessionClosed) {
			t.Errorf("end of a closed store: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for item, err := range producer.Items(ctx) {
			t.Errorf("yielded %v, %v", item, err)
		}
		if n := f.Watches(); n != 0 {
			t.Errorf("%d watches are left", n)
		}
		for _, o := range []recipes.QueueOptions{{MaxItems: -1}, {Redeliver: -1}} {
			if _, err := recipes.NewQueue(p.Store, queuePath, o); !errors.Is(err, recipes.ErrInvalid) {
				t.Errorf("%+v: %v", o, err)
			}
		}
	})
}

// Goal: claims whose answers are lost are adopted, not doubled; nothing is left. Method:
// cut behind and before each claim.
func TestQueueClaimUncertain(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		q, producer := newQueue(t, p.Store, recipes.QueueOptions{}), newQueue(t, f.Open(t).Store, recipes.QueueOptions{})
		for i := range 10 {
			put(t, producer, fmt.Sprint(i))
		}
		for i := range 10 {
			if i%2 == 0 {
				p.CutAfterCommit(recipestest.Multi)
			} else {
				p.CutBeforeSend(recipestest.Multi)
			}
			item := take(t, q)
			if string(item.Body) != fmt.Sprint(i) || item.Attempt != 1 || item.Confirm(t.Context()) != nil {
				t.Errorf("took %q, attempt %d, as item %d", item.Body, item.Attempt, i)
			}
			ack(t, item)
		}
		wantNodes(t, f, "claims", 0)
	})
}
