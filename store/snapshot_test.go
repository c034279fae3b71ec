package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tenure-dev/tenure/store"
	"github.com/tenure-dev/tenure/znode"
)

// snapshotAndRestore moves s's state into a new store on a new disk.
func snapshotAndRestore(t testing.TB, s *store.Store, o store.RestoreOptions) *store.Store {
	t.Helper()
	var stream bytes.Buffer
	wrote, err := s.WriteSnapshot(&stream)
	if err != nil {
		t.Fatal(err)
	}
	if wrote.Bytes != int64(stream.Len()) {
		t.Fatalf("wrote %d bytes and says %d", stream.Len(), wrote.Bytes)
	}
	verified, err := store.VerifySnapshot(bytes.NewReader(stream.Bytes()))
	if err != nil || verified != wrote {
		t.Fatalf("verified %+v (%v), wrote %+v", verified, err, wrote)
	}
	disk := vfs.NewMem()
	o.FS = disk
	restored, err := store.Restore("state", &stream, o)
	if err != nil || restored != wrote {
		t.Fatalf("restored %+v (%v), wrote %+v", restored, err, wrote)
	}
	mustCheck(t, disk)
	return mustOpen(t, disk, store.Options{})
}

// Goal: a restored store is the same: state, digest, windows; and goes on the same.
// Method: random entries, snapshot between, the rest on both.
func TestSnapshotRoundTrip(t *testing.T) {
	g := newGenerator(t, 4)
	s := mustOpen(t, vfs.NewMem(), store.Options{})
	defer mustClose(t, s)
	entries, _ := g.entries(600)
	play(t, s, entries, 16)
	restored := snapshotAndRestore(t, s, store.RestoreOptions{})
	defer mustClose(t, restored)
	compare(t, restored, g.oracle.tree)
	if restored.Applied() != s.Applied() || restored.Counts().HistoryFirst != s.LastZxid() {
		t.Errorf("restored at %d with history after %d", restored.Applied(), restored.Counts().HistoryFirst)
	}
	if _, complete := restored.History(s.LastZxid() - 1); complete {
		t.Error("the restored history claims to reach back before the snapshot")
	}
	more, want := g.entries(300)
	for i, one := range []*store.Store{s, restored} {
		got := play(t, one, more, 5+i)
		if !reflect.DeepEqual(got, want) {
			t.Fatal("outcomes differ after the snapshot")
		}
	}
	if restored.Digest() != s.Digest() {
		t.Errorf("digest %#x, want %#x", restored.Digest(), s.Digest())
	}
}

// Goal: a new ensemble from a backup never gives a zxid twice and keeps sessions.
// Method: restore with RaiseEpoch, look, write.
func TestRestoreRaisesEpoch(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), store.Options{})
	defer mustClose(t, s)
	id := write(t, s, &znode.OpenSession{TimeoutMs: 1000})[0].Result.Session.ID
	restored := snapshotAndRestore(t, s, store.RestoreOptions{RaiseEpoch: true, Applied: 3})
	defer mustClose(t, restored)
	if restored.Applied() != 3 || restored.LastZxid() != 1<<32 {
		t.Errorf("applied %d, zxid %#x; want 3 and %#x", restored.Applied(), restored.LastZxid(), int64(1)<<32)
	}
	if restored.Session(id) == nil || restored.Digest() != s.Digest() {
		t.Error("the session or the digest is lost")
	}
	if out := write(t, restored, create("/a", nil)); out[0].Result.Zxid != 1<<32+1 {
		t.Errorf("first zxid is %#x", out[0].Result.Zxid)
	}
	if _, complete := restored.History(1 << 32); !complete {
		t.Error("the history does not reach back to the restore")
	}
}

// Goal: no truncated or flipped stream passes, and none leaves a store behind.
// Method: cut and flip at many places.
func TestC129DamagedSnapshotIsRefused(t *testing.T) {
	g := newGenerator(t, 5)
	s := mustOpen(t, vfs.NewMem(), store.Options{})
	entries, _ := g.entries(120)
	play(t, s, entries, 10)
	var stream bytes.Buffer
	if _, err := s.WriteSnapshot(&stream); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	whole := stream.Bytes()
	refuse := func(what string, damaged []byte, restore bool) {
		t.Helper()
		if _, err := store.VerifySnapshot(bytes.NewReader(damaged)); !errors.Is(err, store.ErrSnapshot) {
			t.Fatalf("%s: verify says %v", what, err)
		}
		if !restore {
			return
		}
		disk := vfs.NewMem()
		if _, err := store.Restore("state", bytes.NewReader(damaged), store.RestoreOptions{FS: disk}); !errors.Is(err, store.ErrSnapshot) {
			t.Fatalf("%s: restore says %v", what, err)
		}
		if names, _ := disk.List(""); len(names) > 0 {
			t.Fatalf("%s: restore left %v", what, names)
		}
	}
	step := max(1, len(whole)/400)
	for at := 0; at < len(whole); at++ {
		if at > 200 && at < len(whole)-64 && at%step != 0 {
			continue
		}
		refuse(fmt.Sprintf("cut at %d", at), whole[:at], at%37 == 0)
		flipped := bytes.Clone(whole)
		flipped[at] ^= 1 << (at % 8)
		refuse(fmt.Sprintf("flipped at %d", at), flipped, at%37 == 0)
	}
	refuse("more behind", append(bytes.Clone(whole), 0), true)
	refuse("empty", nil, true)
}

// Goal: Restore never mixes with what is there. Method: a directory with a file, an
// empty one, and the leftovers of an earlier attempt.
func TestRestoreRefusesNonEmptyDirectory(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), store.Options{})
	defer mustClose(t, s)
	var stream bytes.Buffer
	if _, err := s.WriteSnapshot(&stream); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ dir, file, want string }{
		{"state", "state/keep", "not empty"},
		{"state", "", ""},
		{"state.restoring", "state.restoring/old", ""},
	} {
		disk := vfs.NewMem()
		if err := disk.MkdirAll(c.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if c.file != "" {
			f, err := disk.Create(c.file, vfs.WriteCategoryUnspecified)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
		_, err := store.Restore("state", bytes.NewReader(stream.Bytes()), store.RestoreOptions{FS: disk})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Goal: the largest data that a message can bring is in a snapshot that can be read. Method: data
// of 64 MiB behind data that nearly fills a chunk.
func TestSnapshotOfLargestData(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), store.Options{})
	defer mustClose(t, s)
	for path, size := range map[string]int{"/a": 250 << 10, "/b": 64 << 20} {
		if out := write(t, s, create(path, make([]byte, size))); out[0].Result.Err != znode.OK {
			t.Fatal(out[0].Result.Err)
		}
	}
	r, w := io.Pipe()
	go func() {
		_, err := s.WriteSnapshot(w)
		w.CloseWithError(err)
	}()
	if _, err := store.VerifySnapshot(r); err != nil {
		t.Error(err)
	}
	r.Close()
}

// Goal: the end of a session with very many ephemerals works, and restart and
// restore after it. Method: 50,000 of them with names of 60 characters, one close.
func TestC057CloseOf50000Ephemerals(t *testing.T) {
	disk := vfs.NewMem()
	s := mustOpen(t, disk, store.Options{CacheBytes: 1 << 20})
	id := write(t, s, &znode.OpenSession{TimeoutMs: 1000}, create("/e", nil))[0].Result.Session.ID
	var all []entry
	for i := range 50_000 {
		op := &znode.Create{Path: fmt.Sprintf("/e/%060d", i), ACL: znode.OpenACL, Mode: znode.Mode{Kind: znode.Ephemeral}}
		all = append(all, entry{txn: &znode.Txn{Session: id, Op: op}})
	}
	play(t, s, all, 1000)
	if c := s.Counts(); c.Ephemerals != 50_000 {
		t.Fatalf("counts are %+v", c)
	}
	out := write(t, s, &znode.CloseSession{Session: id})
	if len(out[0].Changes) != 50_000 {
		t.Fatalf("%d changes", len(out[0].Changes))
	}
	gone := func(s *store.Store) {
		t.Helper()
		names, err := s.List("/e", "", 0)
		paths, err2 := s.Ephemerals(id, "", 0)
		if err != nil || err2 != nil || len(names)+len(paths) > 0 || s.Counts().Ephemerals != 0 {
			t.Errorf("left: %d names, %d in the index, counts %+v (%v, %v)", len(names), len(paths), s.Counts(), err, err2)
		}
	}
	gone(s)
	mustClose(t, s)
	s = mustOpen(t, disk, store.Options{})
	gone(s)
	restored := snapshotAndRestore(t, s, store.RestoreOptions{})
	gone(restored)
	mustClose(t, restored)
	mustClose(t, s)
}

// Goal: any stream is refused or sound, without panic and without much memory.
func FuzzVerifySnapshot(f *testing.F) {
	s := mustOpen(f, vfs.NewMem(), store.Options{})
	write(f, s, &znode.OpenSession{TimeoutMs: 1000}, create("/a", make([]byte, 10)))
	var stream bytes.Buffer
	if _, err := s.WriteSnapshot(&stream); err != nil {
		f.Fatal(err)
	}
	mustClose(f, s)
	f.Add(stream.Bytes())
	f.Add(stream.Bytes()[:40])
	f.Fuzz(func(t *testing.T, data []byte) {
		info, err := store.VerifySnapshot(bytes.NewReader(data))
		if err == nil && info.Bytes != int64(len(data)) {
			t.Errorf("sound with %d of %d bytes", info.Bytes, len(data))
		}
	})
}
