package store

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tenure-dev/tenure/znode"
)

// Goal: a znode that exists is never denied, whenever it was created: before the filter
// was built, while one is being built, or after; and the filter denies most others.
// Method: creates go on beside rebuilds that each batch forces; then every path is
// looked up through the filter alone.
func TestPresenceNeverDeniesWhatExists(t *testing.T) {
	s, err := Open("db", Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.LearnPresence()
	key := func(path string) []byte { return appendPathKey(nil, tableNode, path) }
	var paths []string
	for i := range 300 {
		b := s.Begin(uint64(i + 1))
		for j := range 20 {
			path := fmt.Sprintf("/n%d-%d", i, j)
			if out := b.Apply(znode.Stamp{TimeMs: 1}, &znode.Txn{Op: &znode.Create{Path: path, ACL: znode.OpenACL}}); out.Result.Err != znode.OK {
				t.Fatal(path, out.Result.Err)
			}
			paths = append(paths, path)
		}
		s.known.added = 1 << 40 // the next create starts to build a new filter
		if err := b.Commit(); err != nil {
			t.Fatal(err)
		}
		for _, path := range paths[max(0, len(paths)-100):] {
			if !s.known.mayExist(key(path)) {
				t.Fatalf("%s exists and is denied", path)
			}
		}
	}
	s.known.done.Wait()
	if s.known.ready.Load() == nil {
		t.Fatal("no filter was ever built")
	}
	for _, path := range paths {
		if !s.known.mayExist(key(path)) {
			t.Errorf("%s exists and is denied", path)
		}
	}
	passed := 0
	for i := range 10_000 {
		if s.known.mayExist(key(fmt.Sprintf("/absent-%d", i))) {
			passed++
		}
	}
	if passed > 300 {
		t.Errorf("%d of 10000 absent znodes pass the filter, want about 100 at most", passed)
	}
}
