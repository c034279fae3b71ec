package store_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tenure-dev/tenure/store"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: a wide node is usable right after a restart: nothing is read but what is
// asked for, and the answers are exact. Method: 100,000 znodes, reopen, ask. (Timing
// belongs to the benchmarks.)
func TestC131ReopenWith100000Znodes(t *testing.T) {
	disk := vfs.NewMem()
	s := mustOpen(t, disk, store.Options{})
	write(t, s, create("/wide", nil))
	var all []entry
	for i := range 100_000 {
		all = append(all, entry{txn: &znode.Txn{Op: create(fmt.Sprintf("/wide/%06d", i), []byte("0123456789"))}})
	}
	play(t, s, all, 2000)
	digest := s.Digest()
	mustClose(t, s)
	s = mustOpen(t, disk, store.Options{})
	defer mustClose(t, s)
	if used := s.CacheBytes(); used != 0 {
		t.Errorf("Open decoded znodes of %d bytes", used)
	}
	stat, _, ok, err := s.Stat("/wide")
	if err != nil || !ok || stat.NumChildren != 100_000 || s.Digest() != digest {
		t.Errorf("stat is %+v %v (%v), digest %#x, was %#x", stat, ok, err, s.Digest(), digest)
	}
	if names, err := s.List("/wide", "099998", 10); err != nil || fmt.Sprint(names) != "[099999]" {
		t.Errorf("the last page is %v (%v)", names, err)
	}
	if count, size, err := s.Subtree("/wide"); err != nil || count != 100_001 || size != 1_000_000 {
		t.Errorf("subtree: %d znodes, %d bytes (%v)", count, size, err)
	}
}

// Goal: a create under a parent with 1 MB of data and 100,000 children writes its
// own data and less than 1 KB. Method: the size of the batch given to Pebble.
func TestC133CreateUnderWideNodeIsSmall(t *testing.T) {
	disk := vfs.NewMem()
	s := mustOpen(t, disk, store.Options{})
	write(t, s, create("/wide", make([]byte, 1<<20)))
	var all []entry
	for i := range 100_000 {
		all = append(all, entry{txn: &znode.Txn{Op: create(fmt.Sprintf("/wide/%06d", i), nil)}})
	}
	play(t, s, all, 2000)
	data := make([]byte, 500)
	for _, op := range []znode.Op{
		create("/wide/one-more", data),
		&znode.Delete{Path: "/wide/000007", Version: -1},
		&znode.SetACL{Path: "/wide", ACL: znode.OpenACL, Version: -1},
	} {
		b := s.Begin(s.Applied() + 1)
		if out := b.Apply(znode.Stamp{}, &znode.Txn{Op: op}); out.Result.Err != znode.OK {
			t.Fatal(out.Result.Err)
		}
		size, err := b.WriteSize()
		if err != nil || size > len(data)+1024 {
			t.Errorf("%T writes %d bytes (%v)", op, size, err)
		}
		// The batch is void: go on with what was committed.
		mustClose(t, s)
		s = mustOpen(t, disk, store.Options{})
	}
	mustClose(t, s)
}
