package store_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tenure-dev/tenure/store"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: whatever the batching, outcomes, state and digest are those of the model.
// Method: the same random entries in batches of 1, 7 and 64 on three stores.
func TestRandomAgainstModel(t *testing.T) {
	const entries, stride = 2240, 448 // stride is a multiple of every batch size
	g := newGenerator(t, 1)
	sizes := []int{1, 7, 64}
	stores := make([]*store.Store, len(sizes))
	disks := make([]*vfs.MemFS, len(sizes))
	for i := range sizes {
		disks[i] = vfs.NewMem()
		// A cache of a few entries makes reads go to Pebble as well.
		stores[i] = mustOpen(t, disks[i], store.Options{CacheBytes: 64 << 10})
	}
	for range entries / stride {
		part, want := g.entries(stride)
		for i, s := range stores {
			for at, got := range play(t, s, part, sizes[i]) {
				if !reflect.DeepEqual(got, want[at]) {
					t.Fatalf("batches of %d: %+v: %+v, want %+v", sizes[i], part[at].txn.Op, got, want[at])
				}
			}
			compare(t, s, g.oracle.tree)
			if s.Digest() != stores[0].Digest() {
				t.Fatalf("batches of %d: digest %#x, want %#x", sizes[i], s.Digest(), stores[0].Digest())
			}
		}
	}
	for i, s := range stores {
		mustClose(t, s)
		mustCheck(t, disks[i])
		s = mustOpen(t, disks[i], store.Options{})
		compare(t, s, g.oracle.tree)
		mustClose(t, s)
	}
}

// Goal: later transactions of a batch see the earlier ones also through the
// indexes. Method: one batch that makes ephemerals, counts a subtree for a quota and
// closes the session.
func TestBatchSeesItself(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), store.Options{})
	defer mustClose(t, s)
	open := write(t, s, &znode.OpenSession{TimeoutMs: 1000}, create("/q", nil), create("/q/a", []byte("12")))
	id := open[0].Result.Session.ID
	b := s.Begin(s.Applied() + 1)
	stamp := znode.Stamp{TimeMs: 5}
	apply := func(txn *znode.Txn) store.Outcome {
		t.Helper()
		out := b.Apply(stamp, txn)
		if out.Result.Err != znode.OK {
			t.Fatalf("%+v: %v", txn.Op, out.Result.Err)
		}
		return out
	}
	for _, name := range []string{"/q/z", "/q/e"} {
		apply(&znode.Txn{Session: id, Op: &znode.Create{Path: name, ACL: znode.OpenACL, Data: []byte("123"),
			Mode: znode.Mode{Kind: znode.Ephemeral}}})
	}
	apply(&znode.Txn{Op: &znode.Delete{Path: "/q/a", Version: -1}})
	apply(&znode.Txn{Op: create("/zookeeper/quota/q", nil)})
	apply(&znode.Txn{Op: create("/zookeeper/quota/q/zookeeper_limits", []byte("count=9,bytes=99"))})
	apply(&znode.Txn{Op: create("/zookeeper/quota/q/zookeeper_stats", nil)})
	out := apply(&znode.Txn{Op: &znode.CloseSession{Session: id}})
	if len(out.Changes) != 2 || out.Changes[0].Path != "/q/e" || out.Changes[1].Path != "/q/z" {
		t.Errorf("closing changed %+v, want /q/e and /q/z deleted", out.Changes)
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	node, _, err := s.Node("/zookeeper/quota/q/zookeeper_stats")
	if err != nil || string(node.Data) != "count=1,bytes=0" {
		t.Errorf("usage is %q (%v), want 1 znode", node.Data, err)
	}
	if c := s.Counts(); c.Ephemerals != 0 || c.Sessions != 0 {
		t.Errorf("counts are %+v, want no session and no ephemerals", c)
	}
}

// Goal: P9: after a power cut at any batch boundary the store is at an earlier entry
// as a whole, and replaying the log from there gives the state without the cut.
// Method: crash clones that keep 0 to 100 % of what was not synced, after each batch.
func TestCrashAtEveryBatch(t *testing.T) {
	g := newGenerator(t, 2)
	entries, _ := g.entries(400)
	reference := mustOpen(t, vfs.NewMem(), store.Options{})
	defer mustClose(t, reference)
	var digests []uint64
	digests = append(digests, reference.Digest())
	for i := range entries {
		play(t, reference, entries[i:i+1], 1)
		digests = append(digests, reference.Digest())
	}
	disk := vfs.NewCrashableMem()
	s := mustOpen(t, disk, store.Options{})
	random := rand.New(rand.NewPCG(3, 3))
	for done := 0; done < len(entries); {
		n := min(1+random.IntN(12), len(entries)-done)
		play(t, s, entries[done:done+n], n)
		done += n
		if random.IntN(4) == 0 {
			if durable, err := s.Flush(); err != nil || durable != uint64(done) {
				t.Fatalf("flush at %d: %d (%v)", done, durable, err)
			}
		}
		durable := s.Durable()
		for _, percent := range []int{0, 30, 70, 100} {
			clone := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: random})
			recovered := mustOpen(t, clone, store.Options{})
			at := recovered.Applied()
			if at < durable || at > uint64(done) || recovered.Digest() != digests[at] {
				t.Fatalf("%d %% kept at %d: applied %d, durable was %d, digest %#x, want %#x",
					percent, done, at, durable, recovered.Digest(), digests[at])
			}
			play(t, recovered, entries[at:], 1+random.IntN(40))
			compare(t, recovered, g.oracle.tree)
			if recovered.Digest() != reference.Digest() {
				t.Fatalf("%d %% kept at %d: digest after replay %#x, want %#x", percent, done, recovered.Digest(), reference.Digest())
			}
			mustClose(t, recovered)
			mustCheck(t, clone)
		}
	}
	mustClose(t, s)
}

// Goal: null, empty and large data and the Stat are the same before and after a
// restart and a move by snapshot. Method: write, compare, reopen, compare.
func TestC005NullAndEmptySurvive(t *testing.T) {
	disk := vfs.NewMem()
	s := mustOpen(t, disk, store.Options{})
	model := newOracle()
	for _, op := range []znode.Op{
		create("/n0", nil), create("/n1", []byte{}), create("/n2", make([]byte, store.InlineDataMax+1)),
		create("/n3", []byte("12345")), &znode.SetData{Path: "/n3", Version: -1},
		create("/n4", nil), &znode.SetData{Path: "/n4", Data: []byte("12345"), Version: -1},
		&znode.SetData{Path: "/n4", Data: []byte{}, Version: -1},
	} {
		write(t, s, op)
		model.apply(entry{znode.Stamp{TimeMs: 1000}, &znode.Txn{Op: op}})
	}
	compare(t, s, model.tree)
	mustClose(t, s)
	s = mustOpen(t, disk, store.Options{})
	compare(t, s, model.tree)
	moved := snapshotAndRestore(t, s, store.RestoreOptions{})
	compare(t, moved, model.tree)
	mustClose(t, moved)
	mustClose(t, s)
}

// Goal: the counters of a parent move only by its children, also over a restart.
// Method: the case's operations, then the Stat, then the Stat after reopening.
func TestC007StatSurvivesRestart(t *testing.T) {
	disk := vfs.NewMem()
	s := mustOpen(t, disk, store.Options{})
	out := write(t, s, create("/p", nil), create("/p/a", nil), create("/p/b", nil), create("/p/c", nil),
		&znode.Delete{Path: "/p/c", Version: -1}, &znode.SetData{Path: "/p/a", Version: -1},
		&znode.SetACL{Path: "/p/a", ACL: znode.OpenACL, Version: -1}, create("/p/a/x", nil),
		&znode.Delete{Path: "/p/a/x", Version: -1})
	check := func() {
		t.Helper()
		s.Evict()
		stat, _, _, err := s.Stat("/p")
		if err != nil || stat.Cversion != 4 || stat.NumChildren != 2 || stat.Version != 0 || stat.Pzxid != out[4].Result.Zxid {
			t.Errorf("stat is %+v (%v)", stat, err)
		}
		node, children, err := s.Node("/p")
		if err != nil || znode.StatOf(node, children) != stat {
			t.Errorf("node is %+v %+v (%v), stat %+v", node, children, err, stat)
		}
	}
	check()
	mustClose(t, s)
	s = mustOpen(t, disk, store.Options{})
	check()
	mustClose(t, s)
}

// Goal: what the writer may not do is stopped at once, with both values. Method:
// begin an entry again, begin two at a time, open with a bound that is none.
func TestMisuseIsNamed(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), store.Options{})
	defer mustClose(t, s)
	write(t, s, create("/a", nil), create("/b", nil))
	panics := func(index uint64, want string) {
		t.Helper()
		defer func() {
			if got := fmt.Sprint(recover()); got != want {
				t.Errorf("begin %d: %s, want %s", index, got, want)
			}
		}()
		s.Begin(index)
	}
	panics(2, "store: entry 2 begun, but 2 is applied")
	b := s.Begin(5)
	panics(6, "store: entry 6 begun, but 5 is not committed")
	if err := b.Commit(); err != nil || s.Applied() != 5 {
		t.Errorf("an empty batch: applied %d (%v)", s.Applied(), err)
	}
	if _, err := store.Open("x", store.Options{FS: vfs.NewMem(), HistoryCount: -1}); err == nil || !strings.Contains(err.Error(), "HistoryCount -1") {
		t.Errorf("a negative bound: %v", err)
	}
}
