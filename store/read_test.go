package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/store"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: pages of a listing join to the whole, with and without cached names, below
// and above the bound of what is cached. Method: 10 and 300 children.
func TestListPages(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), store.Options{})
	defer mustClose(t, s)
	for _, n := range []int{0, 1, 10, 128, 129, 300} {
		dir := fmt.Sprintf("/d%d", n)
		write(t, s, create(dir, nil))
		var want []string
		for i := range n {
			want = append(want, fmt.Sprintf("c%03d", i))
			write(t, s, create(dir+"/"+want[i], nil))
		}
		for range 2 { // the second round may have cached names
			for _, limit := range []int{0, 1, 7, 1000} {
				var got []string
				for after := ""; ; {
					page, err := s.List(dir, after, limit)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, page...)
					if limit == 0 || len(page) < limit {
						break
					}
					after = page[len(page)-1]
				}
				if !slices.Equal(got, want) {
					t.Errorf("%d children by %d: %v", n, limit, got)
				}
			}
			if got, _ := s.List(dir, "c000zz", 2); n > 2 && !slices.Equal(got, []string{"c001", "c002"}) {
				t.Errorf("after a name that is not there: %v", got)
			}
		}
	}
}

// Goal: a cached listing follows its children. Method: list, change, list.
func TestListFollowsChanges(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), store.Options{})
	defer mustClose(t, s)
	write(t, s, create("/l", nil))
	for _, step := range []struct {
		op   znode.Op
		want string
	}{
		{create("/l/b", nil), "[b]"},
		{create("/l/a", nil), "[a b]"},
		{&znode.SetData{Path: "/l", Data: []byte("x"), Version: -1}, "[a b]"},
		{&znode.Multi{Ops: []znode.Op{&znode.Delete{Path: "/l/a", Version: -1}, create("/l/c", nil)}}, "[b c]"},
		{&znode.Delete{Path: "/l/b", Version: -1}, "[c]"},
		{&znode.Multi{Ops: []znode.Op{&znode.Delete{Path: "/l/c", Version: -1}, &znode.Delete{Path: "/l", Version: -1}, create("/l", nil)}}, "[]"},
	} {
		write(t, s, step.op)
		for range 2 {
			if names, err := s.List("/l", "", 0); err != nil || fmt.Sprint(names) != step.want {
				t.Errorf("after %+v: %v (%v), want %s", step.op, names, err, step.want)
			}
		}
	}
}

// Goal: reads of paths that are none answer nothing. Method: odd paths.
func TestReadsOfInvalidPaths(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), store.Options{})
	defer mustClose(t, s)
	write(t, s, create("/a", nil), create("/a/b", nil))
	for _, path := range []string{"", "a", "//", "/a/", "/a//b", "/a\x00b", "\x00", "/\x00a", "/no"} {
		node, _, err := s.Node(path)
		_, _, ok, err2 := s.Stat(path)
		count, _, err3 := s.Subtree(path)
		if node != nil || ok || err != nil || err2 != nil || err3 != nil || count > 0 && path != "/a/" && path != "//" {
			t.Errorf("%q: node %v, stat %v, %d below (%v %v %v)", path, node, ok, count, err, err2, err3)
		}
		if _, err := s.List(path, "", 0); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// Goal: what is due for Reap is exactly what Reap would delete, in order, bounded.
// Method: containers and TTL znodes at their edges.
func TestReapable(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), store.Options{})
	defer mustClose(t, s)
	make := func(path string, kind znode.Kind, ttl int64) *znode.Create {
		return &znode.Create{Path: path, ACL: znode.OpenACL, Mode: znode.Mode{Kind: kind}, TTLMs: ttl}
	}
	write(t, s, make("/new", znode.Container, 0), make("/old", znode.Container, 0), make("/t9", znode.TTL, 9),
		make("/t5", znode.TTL, 5), create("/old/x", nil), create("/t5/x", nil))
	due := func(now int64, limit int) string {
		t.Helper()
		paths, err := s.Reapable(now, limit)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(paths, " ")
	}
	if got := due(1_000_000, 0); got != "/t9" {
		t.Errorf("due with children: %q, want /t9", got)
	}
	write(t, s, &znode.Delete{Path: "/old/x", Version: -1}, &znode.Delete{Path: "/t5/x", Version: -1})
	for now, want := range map[int64]string{-1: "", 1005: "/old", 1006: "/old /t5", 1009: "/old /t5", 1010: "/old /t5 /t9"} {
		if got := due(now, 0); got != want {
			t.Errorf("due at %d: %q, want %q", now, got, want)
		}
	}
	if got := due(2000, 2); got != "/old /t5" {
		t.Errorf("two of them: %q", got)
	}
	for _, path := range []string{"/old", "/t5", "/t9"} {
		play(t, s, []entry{{znode.Stamp{TimeMs: 1010}, &znode.Txn{Op: &znode.Reap{Path: path}}}}, 1)
	}
	if got := due(1_000_000, 0); got != "" {
		t.Errorf("due after reaping: %q", got)
	}
}

// Goal: sessions and ephemerals are listed in pages and by prefix.
func TestSessionsAndEphemerals(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), store.Options{})
	defer mustClose(t, s)
	var ids []session.ID
	for range 5 {
		ids = append(ids, write(t, s, &znode.OpenSession{TimeoutMs: 7})[0].Result.Session.ID)
	}
	if got := s.Sessions(ids[1], 2); len(got) != 2 || got[0].ID != ids[2] || got[1].ID != ids[3] {
		t.Errorf("two after the second: %+v", got)
	}
	for _, path := range []string{"/b", "/a", "/a0"} {
		op := &znode.Create{Path: path, ACL: znode.OpenACL, Mode: znode.Mode{Kind: znode.Ephemeral}}
		play(t, s, []entry{{znode.Stamp{}, &znode.Txn{Session: ids[0], Op: op}}}, 1)
	}
	for prefix, want := range map[string]string{"": "[/a /a0 /b]", "/a": "[/a /a0]", "/": "[/a /a0 /b]", "/c": "[]"} {
		if got, err := s.Ephemerals(ids[0], prefix, 0); err != nil || fmt.Sprint(got) != want {
			t.Errorf("with prefix %q: %v (%v), want %s", prefix, got, err, want)
		}
	}
}

// Goal: the cache keeps to its bound whatever is read and written, and what it holds
// is what is stored. Method: random entries on a small cache, then its own figure.
func TestCacheIsBounded(t *testing.T) {
	const bound = 1 << 20
	s := mustOpen(t, vfs.NewMem(), store.Options{CacheBytes: bound})
	defer mustClose(t, s)
	for i := range 3000 {
		write(t, s, create(fmt.Sprintf("/n%d", i), make([]byte, i%3000)))
		if used := s.CacheBytes(); used > bound {
			t.Fatalf("%d bytes after %d znodes", used, i)
		}
	}
	if s.CacheBytes() < bound/2 {
		t.Errorf("only %d bytes are used", s.CacheBytes())
	}
}

// Goal: many readers beside the writer's Apply see whole committed states. Method:
// readers under a shared lock, commits under the exclusive one; run with -race.
func TestReadersBesideApply(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), store.Options{CacheBytes: 64 << 10})
	defer mustClose(t, s)
	write(t, s, create("/r", nil), create("/r/a", []byte("0")), create("/r/b", []byte("0")))
	var lock sync.RWMutex
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				lock.RLock()
				a, _, _ := s.Node("/r/a")
				b, _, _ := s.Node("/r/b")
				names, _ := s.List("/r", "", 0)
				lock.RUnlock()
				if string(a.Data) != string(b.Data) || len(names) != 2 {
					t.Errorf("saw %s and %s of one batch, children %v", a.Data, b.Data, names)
					return
				}
			}
		})
	}
	for i := range 300 {
		b := s.Begin(s.Applied() + 1)
		for _, path := range []string{"/r/a", "/r/b"} {
			b.Apply(znode.Stamp{}, &znode.Txn{Op: &znode.SetData{Path: path, Data: fmt.Append(nil, i), Version: -1}})
		}
		lock.Lock()
		err := b.Commit()
		lock.Unlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	readers.Wait()
}

// Goal: a failing disk stops the writer with an error, and nothing is half there.
// Method: every write to a table fails from some point on.
func TestDiskErrorsStopTheWriter(t *testing.T) {
	broken := errors.New("the disk is gone")
	var failing errorfs.Toggle
	failing.Injector = errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return broken
		}
		return nil
	})
	s := mustOpen(t, errorfs.Wrap(vfs.NewMem(), &failing), store.Options{})
	write(t, s, create("/a", nil))
	failing.On()
	if _, err := s.Flush(); err == nil {
		t.Error("the flush succeeded")
	}
	failing.Off()
	b := s.Begin(s.Applied() + 1)
	b.Apply(znode.Stamp{}, &znode.Txn{Op: create("/b", nil)})
	if err := b.Commit(); !errors.Is(err, broken) {
		t.Errorf("commit after a failed flush: %v", err)
	}
	if node, _, err := s.Node("/b"); node != nil || err != nil {
		t.Errorf("/b is %v (%v)", node, err)
	}
	if err := s.Close(); !errors.Is(err, broken) {
		t.Errorf("close after a failed flush: %v", err)
	}
}

// Goal: Stat tells every kind and lifetime, from the cache and from the disk, and does
// not read large data. Method: a znode of each kind, small ones and some whose large data
// is taken away behind the store's back.
func TestStatTellsKindAndLifetime(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), store.Options{})
	defer mustClose(t, s)
	owner := write(t, s, &znode.OpenSession{TimeoutMs: 1000})[0].Result.Session.ID
	for _, size := range []int{0, 100_000} {
		for kind := znode.Persistent; kind <= znode.TTL; kind++ {
			name, want := fmt.Sprintf("k%d-%d", kind, size), znode.Lifetime{Kind: kind}
			if kind == znode.TTL {
				want.TTLMs = znode.TTLMaxMs
			}
			op := create("/"+name, make([]byte, size))
			op.Mode.Kind, op.TTLMs = kind, want.TTLMs
			out := play(t, s, []entry{{znode.Stamp{Rules: znode.Rules{}}, &znode.Txn{Session: owner, Op: op}}}, 1)
			if out[0].Result.Err != znode.OK {
				t.Fatalf("create %s: %v", name, out[0].Result.Err)
			}
			for _, where := range []string{"cache", "disk"} {
				stat, life, ok, err := s.Stat("/" + name)
				if err != nil || !ok || life != want || int(stat.DataLength) != size {
					t.Errorf("%s in the %s: %+v %+v %v (%v)", name, where, life, stat, ok, err)
				}
				if err := s.DB().Delete([]byte("d\x00"+name), pebble.NoSync); err != nil {
					t.Fatal(err)
				}
				s.Evict()
			}
			if _, _, err := s.Node("/" + name); size > 0 && err == nil {
				t.Errorf("%s: the large data was still there", name)
			}
		}
	}
}
