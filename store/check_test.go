package store_test

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tenure-dev/tenure/store"
	"github.com/tenure-dev/tenure/znode"
)

// soundStore makes a store with something in every table and closes it.
func soundStore(t *testing.T) *vfs.MemFS {
	t.Helper()
	disk := vfs.NewMem()
	s := mustOpen(t, disk, store.Options{HistoryCount: 128})
	id := write(t, s, &znode.OpenSession{TimeoutMs: 1000})[0].Result.Session.ID
	write(t, s, create("/p", []byte("data")), create("/p/big", make([]byte, 2*store.InlineDataMax)),
		&znode.Create{Path: "/ttl", ACL: znode.OpenACL, Mode: znode.Mode{Kind: znode.TTL}, TTLMs: 5},
		&znode.Create{Path: "/box", ACL: znode.OpenACL, Mode: znode.Mode{Kind: znode.Container}},
		create("/box/x", nil), &znode.Delete{Path: "/box/x", Version: -1})
	var entries []entry
	for seq := range int64(3) {
		op := &znode.Create{Path: fmt.Sprintf("/e%d", seq), ACL: znode.OpenACL, Mode: znode.Mode{Kind: znode.Ephemeral}}
		entries = append(entries, entry{znode.Stamp{TimeMs: 1000}, &znode.Txn{Session: id, Seq: seq + 1, Op: op}})
	}
	play(t, s, entries, 2)
	for i := range 10 {
		write(t, s, &znode.SetData{Path: "/p", Data: []byte{byte(i)}, Version: -1})
	}
	mustClose(t, s)
	mustCheck(t, disk)
	return disk
}

// plant changes records behind the store's back.
func plant(t *testing.T, disk *vfs.MemFS, change func(db *pebble.DB) error) {
	t.Helper()
	db, err := pebble.Open("state", store.PebbleOptions(store.Options{FS: disk}))
	if err != nil {
		t.Fatal(err)
	}
	if err := change(db); err != nil {
		t.Fatal(err)
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// Goal: each kind of corruption is found and named, and nothing else is needed to
// find it. Method: plant one at a time in a sound store.
func TestCheckFindsPlantedCorruption(t *testing.T) {
	session1 := "\x00\x00\x00\x00\x00\x00\x00\x01"
	set := func(key, value string) func(db *pebble.DB) error {
		return func(db *pebble.DB) error { return db.Set([]byte(key), []byte(value), pebble.NoSync) }
	}
	del := func(key string) func(db *pebble.DB) error {
		return func(db *pebble.DB) error { return db.Delete([]byte(key), pebble.NoSync) }
	}
	for _, c := range []struct {
		name        string
		plant       func(db *pebble.DB) error
		rule, where string
	}{
		{"node does not decode", set("n\x00p", "\x01\x00"), "record", "n /p"},
		{"node of another version", set("n\x00p", "\x09"), "record", "n /p"},
		{"node is gone", del("n\x00p"), "znode.parent", "/p/big"},
		{"node without parent", copyRecord("n\x00p", "n/no\x00x"), "znode.parent", "/no/x"},
		{"node that nobody counts", copyRecord("n\x00p", "n\x00q"), "znode.live-count", "/"},
		{"path that is none", copyRecord("n\x00p", "n/\x00x"), "record", "x"},
		{"counters are wrong", set("c\x00p", "\x01\x02\x02\x02"), "znode.live-count", "/p"},
		{"counters without a node", set("c\x00no", "\x01\x02\x02\x02"), "znode.orphan-counters", "/no"},
		{"counters do not decode", set("c\x00p", "\x01"), "record", "c /p"},
		{"large data is gone", del("d/p\x00big"), "data", "d /p/big"},
		{"large data is cut", set("d/p\x00big", "\x01"+strings.Repeat("x", 5000)), "data", "d /p/big"},
		{"large data is changed", set("d/p\x00big", "\x01"+strings.Repeat("x", 8192)), "counts", "meta"},
		{"large data of nobody", set("d\x00p", "\x01"+strings.Repeat("x", 5000)), "data", "d /p"},
		{"ephemeral is not indexed", del("e" + session1 + "/e1"), "ephemeral-index", "/e1"},
		{"index of no ephemeral", set("e"+session1+"/p", ""), "ephemeral-index", "/p"},
		{"index of no znode", set("e"+session1+"/no", ""), "ephemeral-index", "/no"},
		{"ephemeral of no session", del("s" + session1), "znode.owner-session", "/e0"},
		{"results of no session", del("s" + session1), "window", "0x1"},
		{"session does not decode", set("s"+session1, "\x01\x02"), "record", "s 0x1"},
		{"window is gone", del("r" + session1 + "\x00\x00\x00\x00\x00\x00\x00\x00"), "record", "r 0x1"},
		{"results are gone", del("r" + session1 + "\x00\x00\x00\x00\x00\x00\x00\x03"), "window", "r 0x1"},
		{"result does not decode", set("r"+session1+"\x00\x00\x00\x00\x00\x00\x00\x03", "\x01\x01\x77"), "record", "r 0x1 3"},
		{"TTL is not indexed", del("t\x00\x00\x00\x00\x00\x00\x03\xee/ttl"), "reap-index", "/ttl"},
		{"container is not indexed", del("t\x00\x00\x00\x00\x00\x00\x00\x00/box"), "reap-index", "/box"},
		{"index of what stays", set("t\x00\x00\x00\x00\x00\x00\x00\x00/p", ""), "reap-index", "/p"},
		{"meta is gone", del("m"), "meta", "meta"},
		{"meta does not decode", set("m", "\x01"), "meta", "meta"},
		{"unknown table", set("x", ""), "record", "x"},
		{"history does not decode", set("h\x00\x00\x00\x00\x00\x00\x00\x02", "\x01\x77"), "history", "h 0x2"},
		{"history is gone", func(db *pebble.DB) error { return db.DeleteRange([]byte("h"), []byte("i"), pebble.NoSync) }, "history", "meta"},
		{"segment is gone", func(db *pebble.DB) error { return db.DeleteRange([]byte("g"), []byte("h"), pebble.NoSync) }, "history", "meta"},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := soundStore(t)
			plant(t, disk, c.plant)
			found, err := store.Check("state", store.Options{FS: disk})
			problems := found.Problems
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range problems {
				if p.Rule == c.rule && strings.Contains(p.Where, c.where) && p.Detail != "" {
					return
				}
			}
			t.Errorf("no problem %s at %s in %v", c.rule, c.where, problems)
		})
	}
}

func copyRecord(from, to string) func(db *pebble.DB) error {
	return func(db *pebble.DB) error {
		value, closer, err := db.Get([]byte(from))
		if err != nil {
			return err
		}
		defer closer.Close()
		return db.Set([]byte(to), value, pebble.NoSync)
	}
}

// files reads all files of a disk's directory.
func files(t *testing.T, disk vfs.FS) map[string][]byte {
	t.Helper()
	names, err := disk.List("state")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string][]byte)
	for _, name := range names {
		f, err := disk.Open("state/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if all[name], err = io.ReadAll(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return all
}

func writeFile(t *testing.T, disk vfs.FS, name string, data []byte) {
	t.Helper()
	f, err := disk.Create("state/"+name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// Goal: P9: one flipped bit anywhere in a table is found and its file named, and
// checking changes nothing. Method: flip bits all over the table files.
func TestCheckFindsFlippedBits(t *testing.T) {
	disk := soundStore(t)
	before := files(t, disk)
	mustCheck(t, disk)
	if after := files(t, disk); !reflect.DeepEqual(before, after) {
		t.Fatal("a check changed the directory")
	}
	tables := 0
	for name, data := range before {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		tables++
		for at := 0; at < len(data); at += 1 + len(data)/60 {
			flipped := bytes.Clone(data)
			flipped[at] ^= 0x10
			writeFile(t, disk, name, flipped)
			found, err := store.Check("state", store.Options{FS: disk})
			problems := found.Problems
			if err != nil || len(problems) == 0 {
				t.Errorf("%s flipped at %d of %d: %v (%v)", name, at, len(data), problems, err)
			} else if text := fmt.Sprint(problems); !strings.Contains(text, strings.TrimSuffix(name, ".sst")) {
				t.Errorf("%s flipped at %d: not named in %s", name, at, text)
			}
		}
		writeFile(t, disk, name, data)
	}
	if tables == 0 {
		t.Fatal("there are no tables")
	}
	mustCheck(t, disk)
}

// Goal: what cannot be checked is an error and not a sound store. Method: nothing
// there, an empty directory, a store in use.
func TestCheckNeedsAStore(t *testing.T) {
	disk := vfs.NewMem()
	if _, err := store.Check("state", store.Options{FS: disk}); err == nil {
		t.Error("nothing there is sound")
	}
	if err := disk.MkdirAll("state", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Check("state", store.Options{FS: disk}); err == nil {
		t.Error("an empty directory is sound")
	}
	dir := t.TempDir()
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, s)
	if _, err := store.Check(dir, store.Options{}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a store in use: %v", err)
	}
}

// Goal: Open refuses what it cannot trust, with the record's name. Method: plant in
// what it reads.
func TestOpenRefusesCorruption(t *testing.T) {
	for _, c := range []struct {
		key, value, want string
	}{
		{"m", "\x01", "record meta"},
		{"m", "\x01\x63", "format 99"},
		{"s\x00\x00\x00\x00\x00\x00\x00\x01", "\x01", "s 0x1"},
		{"r\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00", "\x01", "r 0x1 0"},
	} {
		disk := soundStore(t)
		plant(t, disk, func(db *pebble.DB) error { return db.Set([]byte(c.key), []byte(c.value), pebble.NoSync) })
		if s, err := store.Open("state", store.Options{FS: disk}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q = %q: %v, want %s", c.key, c.value, err, c.want)
			if err == nil {
				mustClose(t, s)
			}
		}
	}
	disk := soundStore(t)
	plant(t, disk, func(db *pebble.DB) error { return db.Delete([]byte("m"), pebble.NoSync) })
	if _, err := store.Open("state", store.Options{FS: disk}); err == nil {
		t.Error("records without meta are taken for a new store")
	}
}
