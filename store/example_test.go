package store_test

import (
	"fmt"
	"log"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tenure-dev/tenure/store"
	"github.com/tenure-dev/tenure/znode"
)

// One log entry is one batch: apply its transactions, then commit them with the
// entry's index, under the lock that readers share.
func Example() {
	s, err := store.Open("state", store.Options{FS: vfs.NewMem()})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	stamp := znode.Stamp{TimeMs: 1_700_000_000_000}
	batch := s.Begin(s.Applied() + 1)
	for _, path := range []string{"/app", "/app/b", "/app/a", "/no/parent"} {
		out := batch.Apply(stamp, &znode.Txn{Op: &znode.Create{Path: path, ACL: znode.OpenACL}})
		fmt.Println(path, out.Result.Zxid, out.Result.Err == znode.OK)
	}
	if err := batch.Commit(); err != nil {
		log.Fatal(err)
	}

	names, err := s.List("/app", "", 0)
	fmt.Println(names, err, s.Applied(), s.LastZxid())
	history, complete := s.History(1)
	for entry, err := range history {
		fmt.Println(entry.Zxid, entry.Changes[0].Path, err)
	}
	fmt.Println("complete:", complete)
	// Output:
	// /app 1 true
	// /app/b 2 true
	// /app/a 3 true
	// /no/parent 3 false
	// [a b] <nil> 1 3
	// 2 /app/b <nil>
	// 3 /app/a <nil>
	// complete: true
}
