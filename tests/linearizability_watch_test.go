package tests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// change is one event that there must be, known from the answer to a write.
type change struct {
	zxid  int64
	order int // within the transaction
	kind  znode.EventType
	path  string
}

// changes are those of all writers. Their methods may be called at once.
type changes struct {
	sync.Mutex
	list []change
}

func (c *changes) add(list ...change) {
	c.Lock()
	defer c.Unlock()
	c.list = append(c.list, list...)
}

// sorted returns all changes in the order of their zxids.
func (c *changes) sorted() []change {
	c.Lock()
	defer c.Unlock()
	slices.SortFunc(c.list, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.zxid, b.zxid), cmp.Compare(a.order, b.order))
	})
	return c.list
}

// Goal: a persistent watch tells every change once and in order, across every kind of
// broken connection and the death of the member. Method: writers collect what they
// changed, by the zxids of the answers; watchers behind a faulty proxy ask for all since
// the beginning, some of them only in the middle. All lists must be equal. The history
// is large enough for all of it, so that there must be no gap.
func TestWatchesAcrossFaults(t *testing.T) {
	seed := randomSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	m := newMember(t)
	p := newProxy(t, seed, m.dial)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := m.connect(client.Options{})
	_, stat, err := c.Create(ctx, "/tree", nil, client.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.setFaulty(true)
	var all changes
	var watchers, writers sync.WaitGroup
	told := make([][]change, 6)
	watch := func(i int) {
		c := m.connect(client.Options{Dial: p.dial})
		watchers.Go(func() { told[i] = collect(ctx, t, c, stat.Czxid) })
	}
	for i := range 3 {
		watch(i)
	}
	for i := range uint64(3) {
		c := m.connect(client.Options{Dial: p.dial})
		writers.Go(func() { makeChanges(ctx, t, c, rand.New(rand.NewPCG(seed, i+1)), int(i), &all, 300, 0) })
	}
	for i := 3; i < 6; i++ {
		<-time.After(100*time.Millisecond + upTo(rng, 300*time.Millisecond))
		m.crash()
		m.start()
		watch(i)
	}
	writers.Wait()
	_, end, err := c.Create(ctx, "/tree/end", nil, client.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all.add(change{end.Czxid, 0, znode.EventCreated, "/tree/end"})
	watchers.Wait()
	want := all.sorted()
	t.Logf("%d changes, faults %v", len(want), p.faults())
	for i, got := range told {
		if !slices.Equal(got, want) {
			t.Errorf("watcher %d was told %d changes of %d; %s", i, len(got), len(want), parting(got, want))
		}
	}
}

// parting says where two lists of changes part.
func parting(got, want []change) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	return fmt.Sprintf("from number %d on it is %+v, must be %+v", i, got[i:min(i+3, len(got))], want[i:min(i+3, len(want))])
}

// collect returns the events of a recursive watch up to the creation of /tree/end.
func collect(ctx context.Context, t *testing.T, c *client.Client, from int64) (got []change) {
	for ev, err := range c.Watch(ctx, "/tree", client.WatchOptions{Recursive: true, FromZxid: from}) {
		if err != nil {
			t.Errorf("watch after %d events: %v", len(got), err)
			return got
		}
		if ev.Type == wire.EventGap {
			t.Errorf("gap after %d events", len(got))
		}
		ch := change{zxid: ev.Zxid, kind: ev.Type, path: ev.Path}
		if n := len(got); n > 0 && got[n-1].zxid == ev.Zxid {
			ch.order = got[n-1].order + 1
		}
		got = append(got, ch)
		if ev.Path == "/tree/end" {
			return got
		}
	}
	return got
}

// makeChanges creates, sets and deletes znodes of its own n times, with pauses, and notes
// what it did. A delete has no Stat to know its zxid from, so it always shares a
// transaction with a set.
func makeChanges(ctx context.Context, t *testing.T, c *client.Client, rng *rand.Rand, id int, all *changes, n int, pause time.Duration) {
	ledger := fmt.Sprintf("/tree/ledger-%d", id)
	_, stat, err := c.Create(ctx, ledger, nil, client.CreateOptions{})
	all.add(change{stat.Czxid, 0, znode.EventCreated, ledger})
	var nodes []string
	for i := 0; i < n && err == nil; i++ {
		pauseUpTo(rng, pause)
		switch kind := rng.IntN(4); {
		case kind == 0 || len(nodes) == 0:
			path := fmt.Sprintf("/tree/n-%d-%d", id, i)
			_, stat, err = c.Create(ctx, path, []byte(path), client.CreateOptions{})
			nodes = append(nodes, path)
			all.add(change{stat.Czxid, 0, znode.EventCreated, path})
		case kind < 3:
			path := nodes[rng.IntN(len(nodes))]
			stat, err = c.Set(ctx, path, []byte(strconv.Itoa(i)), -1)
			all.add(change{stat.Mzxid, 0, znode.EventDataChanged, path})
		default:
			at := rng.IntN(len(nodes))
			path, child := nodes[at], fmt.Sprintf("%s/c-%d", ledger, i)
			var results []znode.Result
			results, err = c.Multi(ctx, &znode.SetData{Path: ledger, Version: -1},
				&znode.Delete{Path: path, Version: -1}, &znode.Create{Path: child})
			if err == nil {
				zxid := results[0].Stat.Mzxid
				all.add(change{zxid, 0, znode.EventDataChanged, ledger},
					change{zxid, 1, znode.EventDeleted, path}, change{zxid, 2, znode.EventCreated, child})
			}
			nodes = slices.Delete(nodes, at, at+1)
		}
	}
	if err != nil {
		t.Errorf("writer %d: %v", id, err)
	}
}

// Goal: a loop of read and one-shot watch never misses the last value, whatever happens
// to its connection. Method: a writer counts up without a pause while readers behind a
// faulty proxy loop and the member is killed; each reader must get to the last number,
// and never see a number go back.
func TestOneShotWatchesAcrossFaults(t *testing.T) {
	const last = 400
	seed := randomSeed(t)
	m := newMember(t)
	p := newProxy(t, seed, m.dial)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	writer := m.connect(client.Options{})
	if _, _, err := writer.Create(ctx, "/value", []byte("0"), client.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.setFaulty(true)
	var readers sync.WaitGroup
	for range 4 {
		c := m.connect(client.Options{Dial: p.dial})
		readers.Go(func() {
			if err := readUntil(ctx, c, last); err != nil {
				t.Error(err)
			}
		})
	}
	for n := 1; n <= last; n++ {
		if _, err := writer.Set(ctx, "/value", []byte(strconv.Itoa(n)), int32(n-1)); err != nil {
			t.Fatal(err)
		}
		if n == last/2 {
			m.crash()
			m.start()
		}
	}
	readers.Wait()
}

// readUntil reads and waits for the next change until it has read the number last.
func readUntil(ctx context.Context, c *client.Client, last int) error {
	for before := 0; ; {
		data, _, watch, err := c.GetW(ctx, "/value")
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(data))
		switch {
		case err != nil || n < before:
			return fmt.Errorf("read %q after %d", data, before)
		case n == last:
			watch.Cancel()
			return nil
		}
		before = n
		select {
		case <-watch.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("no event after %d was read", n), ctx.Err())
		}
	}
}
