package tests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/znode"
)

// crashNode is a znode as its last acknowledged write left it.
type crashNode struct {
	data string
	stat znode.Stat
}

// crashWorker does one operation after the other on znodes that nobody else changes,
// and on some shared ones. It belongs to one goroutine, or to whoever has the gate.
type crashWorker struct {
	load   *crashLoad
	id     int
	c      *client.Client
	rng    *rand.Rand
	dir    string
	nodes  map[string]crashNode
	values int // given so far: each is unique

	created, deleted int32 // children of dir
}

func newCrashWorker(l *crashLoad, c *client.Client, id int, seed uint64) *crashWorker {
	return &crashWorker{
		load: l, id: id, c: c, rng: rand.New(rand.NewPCG(seed, uint64(id)+1)),
		dir: fmt.Sprintf("/worker-%d", id), nodes: map[string]crashNode{},
	}
}

// crashNodesMax bounds the znodes of one worker.
const crashNodesMax = 24

// work does random operations until stop is closed.
func (w *crashWorker) work(stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		pauseUpTo(w.rng, w.load.pause)
		w.load.gate.RLock()
		err := w.operate(w.load.ctx)
		w.load.gate.RUnlock()
		if err != nil {
			return err
		}
	}
}

// operate does one operation and wants the only answer that is right.
func (w *crashWorker) operate(ctx context.Context) error {
	w.load.acknowledged.Add(1)
	kind := w.rng.IntN(16)
	path := w.any()
	if path == "" || len(w.nodes) < crashNodesMax/2 && kind < 4 {
		return w.create(ctx)
	}
	switch {
	case kind < 2 && len(w.nodes) < crashNodesMax:
		return w.create(ctx)
	case kind < 5 || len(w.nodes) >= crashNodesMax:
		return w.delete(ctx, path)
	case kind < 9:
		return w.set(ctx, path)
	case kind < 11:
		return w.multi(ctx, path)
	case kind < 12:
		return w.refused(ctx, path)
	case kind < 13:
		return w.count(ctx, w.rng.IntN(sharedCounters))
	case kind < 14:
		return w.pair(ctx, w.rng.IntN(sharedPairs))
	}
	return w.sequential(ctx)
}

// any returns one of the worker's znodes, "" if it has none.
func (w *crashWorker) any() string {
	if len(w.nodes) == 0 {
		return ""
	}
	paths := make([]string, 0, len(w.nodes))
	for path := range w.nodes {
		paths = append(paths, path)
	}
	slices.Sort(paths) // the order of a map is no part of the seed
	return paths[w.rng.IntN(len(paths))]
}

// value returns data that no other write has. Some are too large to be inline.
func (w *crashWorker) value() string {
	w.values++
	v := fmt.Sprintf("%d.%d ", w.id, w.values)
	if !w.load.small && w.rng.IntN(32) == 0 {
		v += strings.Repeat("x", w.rng.IntN(16<<10))
	}
	return v
}

func (w *crashWorker) create(ctx context.Context) error {
	value := w.value()
	path := fmt.Sprintf("%s/n%d", w.dir, w.values)
	mode := znode.Mode{}
	if w.rng.IntN(3) == 0 {
		mode.Kind = znode.Ephemeral
	}
	got, stat, err := w.c.Create(ctx, path, []byte(value), client.CreateOptions{Mode: mode})
	if err != nil {
		return err
	}
	w.created++
	if got != path || stat.Version != 0 || (stat.EphemeralOwner == w.c.Session().ID()) != (mode.Kind == znode.Ephemeral) {
		return fmt.Errorf("create %s gave %s %+v", path, got, stat)
	}
	w.nodes[path] = crashNode{value, stat}
	return nil
}

func (w *crashWorker) set(ctx context.Context, path string) error {
	old, value := w.nodes[path], w.value()
	stat, err := w.c.Set(ctx, path, []byte(value), old.stat.Version)
	if err != nil {
		return err
	}
	w.nodes[path] = crashNode{value, stat}
	return old.successor(path, stat, value)
}

// successor wants stat to be what a set of value makes of n.
func (n crashNode) successor(path string, stat znode.Stat, value string) error {
	want := n.stat
	want.Version, want.DataLength = want.Version+1, int32(len(value))
	want.Mzxid, want.Mtime = stat.Mzxid, stat.Mtime
	if stat != want || stat.Mzxid <= n.stat.Mzxid || stat.Mtime < n.stat.Mtime {
		return fmt.Errorf("set %s gave %+v, before it was %+v", path, stat, n.stat)
	}
	return nil
}

func (w *crashWorker) delete(ctx context.Context, path string) error {
	if err := w.c.Delete(ctx, path, w.nodes[path].stat.Version); err != nil {
		return err
	}
	w.forget(path)
	return nil
}

func (w *crashWorker) forget(path string) {
	delete(w.nodes, path)
	if !strings.HasPrefix(path, "/sequence/") {
		w.deleted++
		return
	}
	w.load.sequence.Lock()
	w.load.sequence.deleted++
	w.load.sequence.Unlock()
}

// multi replaces a znode by another one and sets a third, or none of it.
func (w *crashWorker) multi(ctx context.Context, path string) error {
	value := w.value()
	created := fmt.Sprintf("%s/m%d", w.dir, w.values)
	other := w.any()
	ops := []znode.Op{
		&znode.Check{Path: other, Version: w.nodes[other].stat.Version},
		&znode.Create{Path: created, Data: []byte(value)},
		&znode.Delete{Path: path, Version: w.nodes[path].stat.Version},
		&znode.SetData{Path: created, Data: []byte(value + "again"), Version: 0},
	}
	results, err := w.c.Multi(ctx, ops...)
	if err != nil {
		return err
	}
	w.created++
	w.forget(path)
	stat := results[3].Stat
	w.nodes[created] = crashNode{value + "again", stat}
	if stat.Version != 1 || stat.Czxid != stat.Mzxid || results[1].Path != created {
		return fmt.Errorf("multi that creates and sets %s gave %+v and %+v", created, results[1], stat)
	}
	return nil
}

// refused asks for what must not be done.
func (w *crashWorker) refused(ctx context.Context, path string) error {
	want, err := znode.NodeExists, error(nil)
	switch w.rng.IntN(3) {
	case 0:
		_, _, err = w.c.Create(ctx, path, []byte(w.value()), client.CreateOptions{})
	case 1:
		want = znode.BadVersion
		_, err = w.c.Set(ctx, path, []byte(w.value()), w.nodes[path].stat.Version+1)
	default:
		want = znode.NoNode
		_, err = w.c.Multi(ctx, &znode.SetData{Path: path, Data: []byte(w.value()), Version: -1},
			&znode.Create{Path: w.dir + "/half", Data: []byte(w.value())},
			&znode.Delete{Path: w.dir + "/none", Version: -1})
	}
	if !errors.Is(err, want) {
		return fmt.Errorf("a write of %s that must fail with %v: %w", path, want, err)
	}
	return nil
}

// count increments a shared counter if nobody else does meanwhile.
func (w *crashWorker) count(ctx context.Context, i int) error {
	path := fmt.Sprintf("/counter-%d", i)
	data, stat, err := w.c.Get(ctx, path, client.ReadOptions{})
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(data))
	if err != nil || n != int(stat.Version) {
		return fmt.Errorf("%s is %q at version %d", path, data, stat.Version)
	}
	_, err = w.c.Set(ctx, path, []byte(strconv.Itoa(n+1)), stat.Version)
	switch {
	case err == nil:
		w.load.counted[i].Add(1)
	case !errors.Is(err, znode.BadVersion):
		return err
	}
	return nil
}

// pair gives both znodes of a shared pair the same value.
func (w *crashWorker) pair(ctx context.Context, i int) error {
	value := []byte(w.value())
	_, err := w.c.Multi(ctx, &znode.SetData{Path: fmt.Sprintf("/pair-%d-a", i), Data: value, Version: -1},
		&znode.SetData{Path: fmt.Sprintf("/pair-%d-b", i), Data: value, Version: -1})
	if err == nil {
		w.load.paired[i].Add(1)
	}
	return err
}

func (w *crashWorker) sequential(ctx context.Context) error {
	value := w.value()
	mode := znode.Mode{Sequential: true}
	if w.rng.IntN(2) == 0 {
		mode.Kind = znode.Ephemeral
	}
	path, stat, err := w.c.Create(ctx, "/sequence/s-", []byte(value), client.CreateOptions{Mode: mode})
	if err != nil {
		return err
	}
	w.nodes[path] = crashNode{value, stat}
	number, found := strings.CutPrefix(path, "/sequence/s-")
	n, err := strconv.ParseInt(number, 10, 64)
	if !found || err != nil || len(number) != 10 {
		return fmt.Errorf("sequential create gave %s", path)
	}
	return w.load.numbered(n, value)
}

// names returns the names of the worker's znodes below dir.
func (w *crashWorker) names(dir string) (names []string) {
	for path := range w.nodes {
		if name, ok := strings.CutPrefix(path, dir+"/"); ok {
			names = append(names, name)
		}
	}
	return names
}

// verify wants exactly the worker's znodes, each exactly as it was acknowledged.
func (w *crashWorker) verify(ctx context.Context) error {
	want := w.names(w.dir)
	slices.Sort(want)
	names, stat, err := w.c.Children(ctx, w.dir, client.ReadOptions{})
	if err != nil {
		return err
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		return fmt.Errorf("%s has %d children, %d must be there; first difference: %s", w.dir, len(names), len(want), firstDifference(names, want))
	}
	if stat.Cversion != w.created+w.deleted || stat.NumChildren != int32(len(want)) {
		return fmt.Errorf("%s is %+v after %d creates and %d deletes", w.dir, stat, w.created, w.deleted)
	}
	for path, want := range w.nodes {
		data, stat, err := w.c.Get(ctx, path, client.ReadOptions{})
		if err != nil {
			return err
		}
		if string(data) != want.data || stat != want.stat {
			return fmt.Errorf("%s is %.40q %+v, acknowledged was %.40q %+v", path, data, stat, want.data, want.stat)
		}
	}
	return nil
}
