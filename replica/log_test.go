package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

var discard = slog.New(slog.DiscardHandler)

// newTestLog opens a new log of member 1 in "log".
func newTestLog(t *testing.T, fs vfs.FS) *log {
	t.Helper()
	l, err := openLog("log", fs, 1, 0, []uint64{1}, false, discard, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func testEntries(from, to, term uint64) []*raftpb.Entry {
	var entries []*raftpb.Entry
	for i := from; i <= to; i++ {
		entries = append(entries, &raftpb.Entry{
			Index: new(i), Term: new(term), Type: raftpb.EntryNormal.Enum(), Data: fmt.Appendf(nil, "%d in %d", i, term),
		})
	}
	return entries
}

// appendTest writes the entries from..to of term, and the term.
func appendTest(t *testing.T, l *log, from, to, term uint64) {
	t.Helper()
	m := &raftpb.Message{Term: new(term), Vote: new(uint64(1)), Commit: new(uint64(1)), Entries: testEntries(from, to, term)}
	if _, err := l.write([]*raftpb.Message{m}); err != nil {
		t.Fatal(err)
	}
}

// terms returns index:term of all entries.
func terms(t *testing.T, l *log) string {
	t.Helper()
	s := l.span()
	var out []string
	if s.last >= s.first {
		entries, err := l.Entries(s.first, s.last+1, 1<<62)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range entries {
			if e.GetIndex() != s.first+uint64(i) {
				t.Fatalf("entry %d at place %d", e.GetIndex(), i)
			}
			out = append(out, fmt.Sprintf("%d:%d", e.GetIndex(), e.GetTerm()))
		}
	}
	return fmt.Sprint(out)
}

// Goal: a tail that another leader overwrites is gone, in memory, on disk and after a
// restart. Method: append, overwrite with fewer and with more, in one batch and in
// several; read with a cache of one entry and with all in memory.
func TestLogTailIsOverwritten(t *testing.T) {
	for _, max := range []int{1, logTailMax} {
		fs := vfs.NewCrashableMem()
		l := newTestLog(t, fs)
		l.mu.tail.max = max
		appendTest(t, l, 2, 9, 1)
		appendTest(t, l, 5, 6, 2)
		if got, want := terms(t, l), "[2:1 3:1 4:1 5:2 6:2]"; got != want {
			t.Fatalf("cache %d: %s, want %s", max, got, want)
		}
		msgs := []*raftpb.Message{{Entries: testEntries(6, 9, 3)}, {Entries: testEntries(7, 7, 4), Term: new(uint64(4)), Vote: new(uint64(0)), Commit: new(uint64(3))}}
		if _, err := l.write(msgs); err != nil {
			t.Fatal(err)
		}
		want := "[2:1 3:1 4:1 5:2 6:3 7:4]"
		if got := terms(t, l); got != want {
			t.Fatalf("cache %d: %s, want %s", max, got, want)
		}
		left := fs.CrashClone(vfs.CrashCloneCfg{})
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
		l = newTestLog(t, left)
		if got := terms(t, l); got != want {
			t.Fatalf("cache %d, after a crash: %s, want %s", max, got, want)
		}
		if hs, _, _ := l.InitialState(); hs.GetTerm() != 4 || hs.GetCommit() != 3 {
			t.Fatalf("hard state %v", hs)
		}
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Goal: a change of the commit index alone costs no sync, everything else one. Method:
// count.
func TestLogSyncsOnlyWhenItMust(t *testing.T) {
	l := newTestLog(t, vfs.NewCrashableMem())
	defer l.close()
	hard := func(term, vote, commit uint64, entries ...*raftpb.Entry) *raftpb.Message {
		return &raftpb.Message{Term: &term, Vote: &vote, Commit: &commit, Entries: entries}
	}
	for i, step := range []struct {
		msg  *raftpb.Message
		sync bool
	}{
		{hard(1, 1, 1), true}, // the vote is new
		{hard(1, 1, 1, testEntries(2, 4, 1)...), true},
		{hard(1, 1, 3), false},
		{&raftpb.Message{}, false}, // only responses
		{hard(2, 0, 3), true},
		{hard(2, 1, 3), true},
		{&raftpb.Message{Entries: testEntries(5, 5, 2)}, true},
		{hard(2, 1, 5), false},
	} {
		w, err := l.write([]*raftpb.Message{step.msg})
		if err != nil || w.synced != step.sync {
			t.Fatalf("step %d: synced %v, want %v (%v)", i, w.synced, step.sync, err)
		}
	}
	if hs, _, _ := l.InitialState(); hs.GetCommit() != 5 {
		t.Fatalf("commit index %d", hs.GetCommit())
	}
}

// Goal: truncation drops exactly what it may, now and after a restart. Method: truncate
// at several places, with and without bytes to keep, and read around the beginning.
func TestLogTruncation(t *testing.T) {
	fs := vfs.NewCrashableMem()
	l := newTestLog(t, fs)
	appendTest(t, l, 2, 20, 1)
	for _, step := range []struct {
		index uint64
		keep  int64
		first uint64
	}{{1, 0, 2}, {5, 0, 6}, {4, 0, 6}, {20, 3 * (entryOverhead + 7), 18}, {18, 0, 19}} {
		if err := l.truncate(step.index, step.keep, 1<<20); err != nil {
			t.Fatal(err)
		}
		if s := l.span(); s.first != step.first || s.last != 20 {
			t.Fatalf("truncate(%d, %d): %d to %d, want from %d", step.index, step.keep, s.first, s.last, step.first)
		}
	}
	check := func(l *log) {
		t.Helper()
		if got := terms(t, l); got != "[19:1 20:1]" {
			t.Fatalf("entries %s", got)
		}
		if term, err := l.Term(18); err != nil || term != 1 {
			t.Fatalf("term of the last dropped entry: %d, %v", term, err)
		}
		if _, err := l.Term(17); !errors.Is(err, raft.ErrCompacted) {
			t.Fatalf("term of a dropped entry: %v", err)
		}
		if _, err := l.Entries(18, 19, 1); !errors.Is(err, raft.ErrCompacted) {
			t.Fatalf("dropped entry: %v", err)
		}
		if _, err := l.Entries(20, 22, 1); !errors.Is(err, raft.ErrUnavailable) {
			t.Fatalf("entry behind the end: %v", err)
		}
		if s, err := l.Snapshot(); err != nil || s.GetMetadata().GetIndex() != 18 {
			t.Fatalf("snapshot %v, %v", s, err)
		}
	}
	check(l)
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	l = newTestLog(t, fs)
	defer l.close()
	check(l)
}

// Goal: whatever is wrong in the database is found at Open and named. Method: change
// one record at a time behind the log's back.
func TestLogOpenVerifies(t *testing.T) {
	key := func(i uint64) []byte { return appendEntryKey(nil, i) }
	entry := func(i, term uint64) []byte {
		e := testEntries(i, i, term)[0]
		rec := make([]byte, entryRecordLen(e))
		putEntry(rec, key(i), e)
		return rec
	}
	setHead := func(h head) func(*pebble.DB) error {
		return func(db *pebble.DB) error { return db.Set(headKey, appendHead(nil, h), pebble.Sync) }
	}
	set := func(k, v []byte) func(*pebble.DB) error {
		return func(db *pebble.DB) error { return db.Set(k, v, pebble.Sync) }
	}
	del := func(k []byte) func(*pebble.DB) error {
		return func(db *pebble.DB) error { return db.Delete(k, pebble.Sync) }
	}
	for _, c := range []struct {
		name   string
		change func(*pebble.DB) error
		want   error
	}{
		{"nothing", func(*pebble.DB) error { return nil }, nil},
		{"hole", del(key(5)), ErrCorrupt},
		{"first missing", del(key(2)), ErrCorrupt},
		{"last missing", del(key(9)), ErrCorrupt},
		{"one too many", set(key(10), entry(10, 3)), ErrCorrupt},
		{"term goes back", set(key(6), entry(6, 2)), ErrCorrupt},
		{"term above the hard state's", set(key(9), entry(9, 4)), ErrCorrupt},
		{"record under another key", set(key(6), entry(7, 3)), ErrCorrupt},
		{"short record", set(key(6), []byte{1, 2}), ErrCorrupt},
		{"commit behind the end", setHead(head{Term: 3, Commit: 10, Last: 9, Seq: 9}), ErrCorrupt},
		{"commit before the beginning", setHead(head{Term: 3, Last: 9, Seq: 9}), ErrCorrupt},
		{"no head", del(headKey), ErrCorrupt},
		{"no configuration", del(confKey), ErrCorrupt},
		{"no truncation", del(truncKey), ErrCorrupt},
		{"no identity", del(identityKey), ErrCorrupt},
		{"another member", set(identityKey, encodeIdentity(identity{2, 1, 1})), ErrIdentity},
		{"another format", set(identityKey, encodeUvarints(identityKey, identityFormat+1, 1)), ErrIdentity},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := vfs.NewMem()
			l := newTestLog(t, fs)
			appendTest(t, l, 2, 9, 3)
			if err := errors.Join(c.change(l.db), l.close()); err != nil {
				t.Fatal(err)
			}
			l, err := openLog("log", fs, 1, 0, []uint64{1}, false, discard, func(error) {})
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if err == nil {
				l.close()
			}
		})
	}
}

// Goal: damage in a table is found. Method: flip bytes in the tables that hold flushed
// entries; every flip in a block of entries must be named.
func TestLogFlippedBitInTable(t *testing.T) {
	fs := vfs.NewMem()
	l := newTestLog(t, fs)
	appendTest(t, l, 2, 400, 1)
	if err := errors.Join(l.db.Flush(), l.close()); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("log")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(names, func(n string) bool { return fs.PathBase(n) != n || len(n) > 4 && n[len(n)-4:] == ".sst" })
	path := fs.PathJoin("log", names[i])
	data := mustRead(t, fs, path)
	for at := 0; at < len(data)/2; at += len(data) / 37 {
		data[at] ^= 16
		overwrite(t, fs, path, data)
		if _, err := openLog("log", fs, 1, 0, []uint64{1}, false, discard, func(error) {}); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d of %d: %v", at, len(data), err)
		}
		data[at] ^= 16
	}
}

// Goal: two processes cannot open one log. Method: open it twice.
func TestLogIsLocked(t *testing.T) {
	fs := vfs.NewMem()
	l := newTestLog(t, fs)
	defer l.close()
	if _, err := openLog("log", fs, 1, 0, []uint64{1}, false, discard, func(error) {}); err == nil {
		t.Fatal("opened twice")
	}
}

// Goal: the decoders of records never panic, never accept a changed record, and give
// back what was encoded. Method: fuzz an entry's data and one flipped bit of its record.
func FuzzEntryRecord(f *testing.F) {
	f.Add(uint64(7), uint64(3), []byte("data"), uint32(5), []byte{1, 2, 3, 4, 5, 6})
	f.Add(uint64(1), uint64(1), []byte{}, uint32(0), []byte{})
	f.Fuzz(func(t *testing.T, index, term uint64, data []byte, flip uint32, raw []byte) {
		key := appendEntryKey(nil, index)
		decodeEntry(key, raw)
		decodeEntry(raw, raw)
		decodeHead(raw)
		decodeConf(raw)
		decodePair(truncKey, raw)
		decodeIdentity(raw)
		scanWAL(raw, uint32(term), flip2seq(flip))
		e := &raftpb.Entry{Index: &index, Term: new(max(term, 1)), Type: raftpb.EntryNormal.Enum(), Data: data}
		rec := make([]byte, entryRecordLen(e))
		putEntry(rec, key, e)
		got, err := decodeEntry(key, rec)
		if err != nil || got.GetIndex() != index || got.GetTerm() != max(term, 1) || string(got.Data) != string(data) {
			t.Fatalf("%v came back as %v: %v", e, got, err)
		}
		bit := int(flip) % (len(rec) * 8)
		rec[bit/8] ^= 1 << (bit % 8)
		if _, err := decodeEntry(key, rec); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("bit %d flipped: %v", bit, err)
		}
	})
}

func flip2seq(f uint32) uint64 { return uint64(f) }
