package store_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tenure-dev/tenure/store"
	"github.com/tenure-dev/tenure/znode"
)

// collect ranges over the history from from.
func collect(t testing.TB, s *store.Store, from int64) (all []store.HistoryEntry, complete bool) {
	t.Helper()
	seq, complete := s.History(from)
	for e, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all, complete
}

// Goal: the history has every change with its zxid, in order, from any point, also
// from within a batch and over a restart. Method: compare with what Apply returned.
func TestHistoryHasEveryChange(t *testing.T) {
	g := newGenerator(t, 6)
	disk := vfs.NewMem()
	s := mustOpen(t, disk, store.Options{})
	entries, _ := g.entries(500)
	var want []store.HistoryEntry
	for _, out := range play(t, s, entries, 9) {
		if len(out.Changes) > 0 {
			want = append(want, store.HistoryEntry{Zxid: out.Result.Zxid, Changes: out.Changes})
		}
	}
	for range 2 {
		for from := int64(0); from <= s.LastZxid(); from += 7 {
			got, complete := collect(t, s, from)
			rest := want
			for len(rest) > 0 && rest[0].Zxid <= from {
				rest = rest[1:]
			}
			if !complete || len(got) != len(rest) || len(got) > 0 && !reflect.DeepEqual(got, rest) {
				t.Fatalf("from %d: %d entries (complete %v), want %d", from, len(got), complete, len(rest))
			}
		}
		mustClose(t, s)
		s = mustOpen(t, disk, store.Options{})
	}
	seq, _ := s.History(0)
	for range seq {
		break // stopping early must not leak an iterator: Close would say so
	}
	mustClose(t, s)
}

// Goal: each bound trims, the floor says how far back it goes, and incomplete is
// told. Method: one bound at a time, many batches.
func TestHistoryIsBounded(t *testing.T) {
	for _, c := range []struct {
		name string
		o    store.Options
	}{
		{"count", store.Options{HistoryCount: 100}},
		{"bytes", store.Options{HistoryBytes: 5000}},
		{"age", store.Options{HistoryAge: 100 * time.Millisecond}},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := vfs.NewMem()
			s := mustOpen(t, disk, c.o)
			for i := range 400 {
				op := create(fmt.Sprintf("/n%d", i), nil)
				play(t, s, []entry{{znode.Stamp{TimeMs: int64(i)}, &znode.Txn{Op: op}}}, 1)
				now := s.Counts()
				if c.o.HistoryCount > 0 && now.HistoryCount > 100 || c.o.HistoryBytes > 0 && now.HistoryBytes > 5000 {
					t.Fatalf("after %d: %+v", i, now)
				}
			}
			first := s.Counts().HistoryFirst
			got, complete := collect(t, s, first)
			if !complete || len(got) < 50 || got[0].Zxid != first+1 || int64(len(got)) != s.Counts().HistoryCount {
				t.Fatalf("after %d there are %d (complete %v), counts %+v", first, len(got), complete, s.Counts())
			}
			if left, complete := collect(t, s, first-1); complete || len(left) != len(got) {
				t.Errorf("before the floor: %d entries, complete %v", len(left), complete)
			}
			mustClose(t, s)
			mustCheck(t, disk)
		})
	}
}

// Goal: a range goes on beside commits and yields what was there at the call; if
// that is trimmed before it starts it says so. Method: commit inside and before it.
func TestHistoryBesideCommits(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), store.Options{HistoryCount: 10})
	defer mustClose(t, s)
	for i := range 8 {
		write(t, s, create(fmt.Sprintf("/a%d", i), nil))
	}
	seq, complete := s.History(0)
	n := 0
	for e, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		n++
		write(t, s, create(fmt.Sprintf("/b%d", e.Zxid), nil))
	}
	if !complete || n != 8 {
		t.Errorf("%d entries, complete %v; want the 8 of the call", n, complete)
	}
	for _, err := range seq {
		if !errors.Is(err, store.ErrTrimmed) {
			t.Errorf("ranging again over what is trimmed: %v", err)
		}
	}
}

// Goal: a session's coming and going alone is no change. Method: open and close.
func TestHistoryHasNoSessions(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), store.Options{})
	defer mustClose(t, s)
	id := write(t, s, &znode.OpenSession{TimeoutMs: 1})[0].Result.Session.ID
	write(t, s, &znode.CloseSession{Session: id})
	if got, complete := collect(t, s, 0); len(got) != 0 || !complete {
		t.Errorf("history is %+v, complete %v", got, complete)
	}
}
