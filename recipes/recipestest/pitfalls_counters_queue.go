package recipestest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

func queueAt(t *testing.T, s recipes.Store, path string, o recipes.QueueOptions) *recipes.Queue {
	t.Helper()
	q, err := recipes.NewQueue(s, path, o)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// putAll puts one item for each body.
func putAll(t *testing.T, ctx context.Context, q *recipes.Queue, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		if _, err := q.Put(ctx, []byte(body), recipes.ID("id of "+body)); err != nil {
			t.Fatalf("put %s: %v", body, err)
		}
	}
}

// took takes an item that must have the body, and takes again if a busy machine costs it
// its session.
func took(t *testing.T, h Harness, q *recipes.Queue, body string) *recipes.Item {
	t.Helper()
	r := await(t, h, async(func() (*recipes.Item, error) {
		for {
			item, err := q.Take(h.within(t))
			if h.Fake || !errors.Is(err, recipes.ErrSessionExpired) {
				return item, err
			}
		}
	}), "an item")
	switch {
	case r.err != nil:
		t.Fatalf("take: %v", r.err)
	case string(r.value.Body) != body || r.value.ID != "id of "+body:
		t.Fatalf("took %q with id %q, want %q", r.value.Body, r.value.ID, body)
	}
	return r.value
}

// P81. Goal: an item whose consumer's session is over is given to another, and then the
// first can do nothing with it. Method: expire the first; its Ack, and what it does under
// its guard, is refused; the second's is applied, once.
func itemHandedToTwo(t *testing.T, h Harness) {
	p, s, path, ctx := h.Open(t), h.Open(t).Store, dir(t), h.within(t)
	first, second := queueAt(t, p.Store, path, recipes.QueueOptions{}), queueAt(t, s, path, recipes.QueueOptions{})
	putAll(t, ctx, first, "a")
	effect := func(by string) recipes.Op { return recipes.OpCreate(path+"/effect-"+by, nil, recipes.CreateSpec{}) }
	old := took(t, h, first, "a")
	guard := old.Guard()
	p.Expire(t)
	item := took(t, h, second, "a")
	if err := old.Check(); err == nil {
		t.Error("two hold the item")
	}
	if item.Attempt < 2 || item.Token() <= old.Token() {
		t.Errorf("attempt %d with token %d after %d with %d", item.Attempt, item.Token(), old.Attempt, old.Token())
	}
	if err := old.Ack(ctx, effect("first")); !errors.Is(err, recipes.ErrLost) {
		t.Errorf("ack by the first: %v", err)
	}
	if _, err := s.Multi(ctx, append(guard, effect("first"))...); !errors.Is(err, znode.NoNode) && !errors.Is(err, znode.BadVersion) {
		t.Errorf("write under the first's guard: %v", err)
	}
	if err := old.Nack(ctx, 0); err != nil && h.Fake {
		t.Errorf("nack by the first: %v", err)
	}
	if err := item.Ack(ctx, effect("first"), recipes.OpCheck(path+"/none", recipes.Always())); !errors.Is(err, znode.NoNode) || item.Check() != nil {
		t.Errorf("ack with an op that is refused: %v, and %v", err, item.Check())
	}
	if err := item.Ack(ctx, effect("second")); err != nil {
		t.Errorf("ack by the second: %v", err)
	}
	names := children(t, ctx, s, path)
	if slices.Contains(names, "effect-first") || !slices.Contains(names, "effect-second") {
		t.Errorf("effects: %v", names)
	}
	for _, d := range []string{"items", "claims", "ids"} {
		if left := children(t, ctx, s, path+"/"+d); len(left) > 0 {
			t.Errorf("left in %s: %v", d, left)
		}
	}
}

// consumed counts what was acknowledged, by body.
type consumed struct {
	mu    sync.Mutex
	count map[string]int
	all   int
}

// consume acknowledges all items until ctx ends.
func (c *consumed) consume(ctx context.Context, q *recipes.Queue) error {
	for item, err := range q.Items(ctx) {
		if err != nil {
			return err
		}
		err := item.Ack(ctx)
		switch {
		case err == nil:
			c.mu.Lock()
			c.count[string(item.Body)]++
			c.all++
			c.mu.Unlock()
		case !errors.Is(err, recipes.ErrLost):
			return err
		}
	}
	return nil
}

func (c *consumed) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}

// P81 and C091. Goal: a consumer notices what came while it was cut off, soon after, and
// each item is consumed once. Method: half a session timeout without a connection (longer
// on a busy machine), in which 100 items are put.
func itemsPutDuringACut(t *testing.T, h Harness) {
	p, path, ctx := h.Open(t), dir(t), h.within(t)
	ctx, cancel := context.WithCancel(ctx)
	producer := queueAt(t, h.Open(t).Store, path, recipes.QueueOptions{})
	c := &consumed{count: map[string]int{}}
	done := async(func() (struct{}, error) {
		return struct{}{}, c.consume(ctx, queueAt(t, p.Store, path, recipes.QueueOptions{}))
	})
	putAll(t, ctx, producer, "before")
	h.eventually(t, "the first item is consumed", func() bool { return c.total() == 1 })
	p.Partition()
	cut := time.Now()
	for i := range 100 {
		putAll(t, ctx, producer, fmt.Sprint(i))
	}
	pause(t, h.Timeout/2-time.Since(cut))
	p.Heal()
	healed := time.Now()
	h.eventually(t, "all items are consumed", func() bool { return c.total() >= 101 })
	if took := time.Since(healed); h.Fake && took > h.Timeout/2 {
		t.Errorf("consumed %v after the cut", took)
	}
	pause(t, h.Timeout/10)
	cancel()
	if r := await(t, h, done, "the consumer ends"); r.err != nil {
		t.Error(r.err)
	}
	for body, n := range c.count {
		if n != 1 {
			t.Errorf("item %s was consumed %d times", body, n)
		}
	}
}

// P82. Goal: an item that is given back keeps its id and its place, counts its attempts,
// and is not given out before its delay is over. Method: three items, of which the first
// is given back twice.
func requeueChangesOrder(t *testing.T, h Harness) {
	s, path, ctx := h.Open(t).Store, dir(t), h.within(t)
	q := queueAt(t, s, path, recipes.QueueOptions{})
	putAll(t, ctx, q, "a", "b", "c")
	item := took(t, h, q, "a")
	if err := item.Nack(ctx, 0); err != nil {
		t.Fatal(err)
	}
	item = took(t, h, q, "a")
	if item.Attempt != 2 {
		t.Errorf("attempt %d", item.Attempt)
	}
	delay := h.Timeout / 2
	nacked := time.Now()
	if err := item.Nack(ctx, delay); err != nil {
		t.Fatal(err)
	}
	if err := item.Ack(ctx); !errors.Is(err, recipes.ErrReleased) {
		t.Errorf("ack of what was given back: %v", err)
	}
	b := took(t, h, q, "b")
	again := took(t, h, q, []string{"c", "a"}[min(1, int(time.Since(nacked)/delay))])
	if string(again.Body) == "c" {
		again = took(t, h, q, "a")
	}
	// The backend keeps milliseconds.
	if waited := time.Since(nacked); waited < delay-2*time.Millisecond || h.Fake && waited > delay+100*time.Millisecond || again.Attempt != 3 {
		t.Errorf("given out again after %v, attempt %d", waited, again.Attempt)
	}
	if err := errors.Join(b.Ack(ctx), again.Ack(ctx)); err != nil {
		t.Error(err)
	}
}

// openWatches is a Store that counts the watches nobody has cancelled.
type openWatches struct {
	recipes.Store
	mu        sync.Mutex
	open, max int
}

func (o *openWatches) ChildrenW(ctx context.Context, path string) ([]string, znode.Stat, recipes.Watch, error) {
	names, stat, w, err := o.Store.ChildrenW(ctx, path)
	if err != nil {
		return names, stat, w, err
	}
	o.add(1)
	cancel := w.Cancel
	w.Cancel = sync.OnceFunc(func() { o.add(-1); cancel() })
	return names, stat, w, nil
}

func (o *openWatches) add(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open += n
	o.max = max(o.max, o.open)
}

// P83. Goal: what a waiting consumer costs does not grow with what is put. Method: many
// items that are not due, put one after the other while it waits: two watches at most at
// any time, few reads, none left at the end.
func watchPerPut(t *testing.T, h Harness) {
	puts := 1000
	if !h.Fake {
		puts = 60
	}
	reads := 0
	watches := &openWatches{Store: h.Open(t).Store}
	counted := &Hooked{Store: watches, Before: func(_ context.Context, c Call) error {
		if c.Kind == Get {
			reads++
		}
		return nil
	}}
	path := dir(t)
	ctx, cancel := context.WithCancel(h.within(t))
	producer := queueAt(t, h.Open(t).Store, path, recipes.QueueOptions{})
	done := async(func() (*recipes.Item, error) { return queueAt(t, counted, path, recipes.QueueOptions{}).Take(ctx) })
	for range puts {
		if _, err := producer.Put(ctx, nil, recipes.NotBefore(time.Now().Add(24*time.Hour))); err != nil {
			t.Fatal(err)
		}
	}
	pause(t, h.Timeout/10)
	cancel()
	if r := await(t, h, done, "the end of ctx"); r.value != nil || !errors.Is(r.err, context.Canceled) && h.Fake {
		t.Errorf("took %v, %v", r.value, r.err)
	}
	if watches.max > 2 || watches.open != 0 || reads > puts+10 {
		t.Errorf("%d watches at once, %d left, %d reads for %d items", watches.max, watches.open, reads, puts)
	}
}

// P84. Goal: MaxItems is exact. Method: eight producers, some of whose answers are lost,
// put five items each into a queue of ten; then as many fit as are consumed.
func boundNotEnforced(t *testing.T, h Harness) {
	const bound = 10
	s, path, ctx := h.Open(t).Store, dir(t), h.within(t)
	o := recipes.QueueOptions{MaxItems: bound}
	fill := func() (put int) {
		var producers []<-chan result[int]
		for i := range 8 {
			q := queueAt(t, loseEach(int64(2+i), s), path, o)
			producers = append(producers, async(func() (n int, err error) {
				for range 5 {
					_, err := q.Put(ctx, nil)
					switch {
					case err == nil:
						n++
					case !errors.Is(err, recipes.ErrQueueFull):
						return n, err
					}
				}
				return n, nil
			}))
		}
		for _, done := range producers {
			r := await(t, h, done, "a producer")
			if r.err != nil {
				t.Fatal(r.err)
			}
			put += r.value
		}
		return put
	}
	exactly := func(got, want int) {
		t.Helper()
		if there := len(children(t, ctx, s, path+"/items")); got != want || there != bound {
			t.Errorf("%d were put, %d are there; want %d and %d", got, there, want, bound)
		}
	}
	exactly(fill(), bound)
	q := queueAt(t, s, path, o)
	for range 3 {
		item, err := q.Take(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := item.Ack(ctx); err != nil {
			t.Fatal(err)
		}
	}
	exactly(fill(), 3)
}

// P85. Goal: a queue refuses to grow beyond what can be listed, with an error that says
// so, and can still be read then. Method: 10 000 children; what is no item is ignored.
func hugeDirectory(t *testing.T, h Harness) {
	s, path, ctx := h.Open(t).Store, dir(t), h.within(t)
	q := queueAt(t, s, path, recipes.QueueOptions{})
	putAll(t, ctx, q, "a")
	for made := 1; made < 10_000; {
		var ops []recipes.Op
		for ; made < 10_000 && len(ops) < 500; made++ {
			name := fmt.Sprintf("%s/items/p00100-%032x-foreign%010d", path, made, made)
			ops = append(ops, recipes.OpCreate(name, nil, recipes.CreateSpec{}))
		}
		if _, err := s.Multi(ctx, ops...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := q.Put(ctx, nil); !errors.Is(err, recipes.ErrQueueFull) {
		t.Errorf("put beyond the limit: %v", err)
	}
	if err := took(t, h, q, "a").Ack(ctx); err != nil {
		t.Error(err)
	}
	putAll(t, ctx, q, "b")
	if err := took(t, h, q, "b").Ack(ctx); err != nil {
		t.Error(err)
	}
}
