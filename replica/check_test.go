package replica

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Goal: Check sees what Open would, entry by entry, and leaves every byte as it was, a
// torn end too; a state that does not belong to the log is named. Method: a log with
// a few entries whose newest file is cut; its files are compared before and after.
func TestCheckReadsOnly(t *testing.T) {
	disk := vfs.NewMem()
	l, err := openLog("log", disk, 1, 0, []uint64{1}, false, discard, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(2); i <= 6; i++ {
		appendTest(t, l, i, i, 1)
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	tearNewestWAL(t, disk)
	before := snapshotFiles(t, disk, "log")

	var seen []uint64
	err = Check("log", Options{FS: disk}, 3, func(e Entry) error {
		seen = append(seen, e.Index)
		return nil
	})
	if err != nil || len(seen) < 2 || seen[0] != 4 {
		t.Errorf("entries %v, %v; want those from 4 on", seen, err)
	}
	if err := Check("log", Options{FS: disk}, 99, func(Entry) error { return nil }); !errors.Is(err, ErrLogBehindState) {
		t.Errorf("a state beyond the log: %v", err)
	}
	if err := Check("none", Options{FS: disk}, 1, func(Entry) error { return nil }); err == nil {
		t.Error("a log that is not there is sound")
	}
	if after := snapshotFiles(t, disk, "log"); !slices.Equal(before, after) {
		t.Errorf("changed:\n%s\n---\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// tearNewestWAL cuts the last bytes off the newest write-ahead log.
func tearNewestWAL(t *testing.T, fs vfs.FS) {
	t.Helper()
	names, err := fs.List("log")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	newest := ""
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			newest = fs.PathJoin("log", name)
		}
	}
	data, err := readFile(fs, newest)
	if err != nil || len(data) < 100 {
		t.Fatalf("%s: %d bytes, %v", newest, len(data), err)
	}
	if err := replaceFile(fs, "log", fs.PathBase(newest), data[:len(data)-20]); err != nil {
		t.Fatal(err)
	}
}

// snapshotFiles lists the files of dir with what is in them.
func snapshotFiles(t *testing.T, fs vfs.FS, dir string) (files []string) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, name := range names {
		data, err := readFile(fs, fs.PathJoin(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, fmt.Sprintf("%s: %d bytes, %x", name, len(data), data))
	}
	return files
}
