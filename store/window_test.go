package store_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/store"
	"github.com/tenure-dev/tenure/znode"
)

// windowTest is a store with one session that writes.
type windowTest struct {
	*testing.T
	disk *vfs.MemFS
	s    *store.Store
	id   session.ID
}

func newWindowTest(t *testing.T) *windowTest {
	disk := vfs.NewMem()
	s := mustOpen(t, disk, store.Options{})
	id := write(t, s, &znode.OpenSession{TimeoutMs: 1000}, create("/w", nil))[0].Result.Session.ID
	return &windowTest{T: t, disk: disk, s: s, id: id}
}

func (w *windowTest) reopen() {
	w.Helper()
	mustClose(w, w.s)
	mustCheck(w, w.disk)
	w.s = mustOpen(w, w.disk, store.Options{})
}

// numbered is a sequential create with a seq: each application makes one more.
func (w *windowTest) numbered(seq, acked int64) entry {
	op := &znode.Create{Path: "/w/n-", ACL: znode.OpenACL, Mode: znode.Mode{Sequential: true}}
	return entry{znode.Stamp{TimeMs: 1}, &znode.Txn{Session: w.id, Seq: seq, Acked: acked, Op: op}}
}

func (w *windowTest) children() int {
	w.Helper()
	names, err := w.s.List("/w", "", 0)
	if err != nil {
		w.Fatal(err)
	}
	return len(names)
}

// Goal: a resent write is applied once, in the same batch, a later one and after a
// restart, and gets the same result; failures too. Method: send everything twice.
func TestResentWriteIsAppliedOnce(t *testing.T) {
	w := newWindowTest(t)
	fail := entry{znode.Stamp{TimeMs: 1}, &znode.Txn{Session: w.id, Seq: 3, Op: create("/no/parent", nil)}}
	sent := []entry{w.numbered(1, 0), w.numbered(2, 0), fail, w.numbered(4, 0)}
	first := play(t, w.s, append(sent, sent...), 8)
	for i := range sent {
		if again := first[i+4]; !reflect.DeepEqual(again, store.Outcome{Result: first[i].Result}) {
			t.Errorf("seq %d again: %+v, want only the result %+v", i+1, again, first[i].Result)
		}
	}
	if first[2].Result.Err != znode.NoNode {
		t.Errorf("the failure is %v", first[2].Result.Err)
	}
	digest := w.s.Digest()
	w.reopen()
	for i, again := range play(t, w.s, sent, 1) {
		if !reflect.DeepEqual(again.Result, first[i].Result) || again.Gap || again.Changes != nil {
			t.Errorf("seq %d after a restart: %+v, want %+v", i+1, again, first[i].Result)
		}
	}
	if n := w.children(); n != 3 || w.s.Digest() != digest || w.s.Counts().Results != 4 {
		t.Errorf("%d children, digest %#x (was %#x), counts %+v", n, w.s.Digest(), digest, w.s.Counts())
	}
	mustClose(t, w.s)
}

// Goal: what comes too early does nothing. Method: seq 1 and then 3.
func TestGapDoesNothing(t *testing.T) {
	w := newWindowTest(t)
	play(t, w.s, []entry{w.numbered(1, 0)}, 1)
	digest := w.s.Digest()
	out := play(t, w.s, []entry{w.numbered(3, 1)}, 1)[0]
	if !out.Gap || w.children() != 1 || w.s.Digest() != digest {
		t.Errorf("outcome %+v, %d children, digest %#x (was %#x)", out, w.children(), w.s.Digest(), digest)
	}
	if out := play(t, w.s, []entry{w.numbered(2, 0)}, 1)[0]; out.Gap || out.Result.Err != znode.OK {
		t.Errorf("seq 2 after the gap: %+v", out)
	}
	mustClose(t, w.s)
}

// Goal: acknowledged results go, from the count, the digest and the disk, whatever
// records they are in. Method: ack in the middle of a record, then all.
func TestAcknowledgedResultsGo(t *testing.T) {
	w := newWindowTest(t)
	play(t, w.s, []entry{w.numbered(1, 0), w.numbered(2, 0), w.numbered(3, 0)}, 3)
	play(t, w.s, []entry{w.numbered(4, 2)}, 1)
	if n := w.s.Counts().Results; n != 2 {
		t.Errorf("%d results kept, want 3 and 4", n)
	}
	w.reopen()
	if out := play(t, w.s, []entry{w.numbered(2, 0)}, 1)[0]; out.Result.Err != znode.BadArguments || out.Gap {
		t.Errorf("an acknowledged write again: %+v, want BadArguments", out)
	}
	if out := play(t, w.s, []entry{w.numbered(3, 0)}, 1)[0]; out.Result.Path != "/w/n-0000000002" {
		t.Errorf("seq 3 again: %+v", out)
	}
	// An acknowledgement beyond what was applied is one of all that was applied.
	play(t, w.s, []entry{w.numbered(5, 99)}, 1)
	if n := w.s.Counts().Results; n != 1 {
		t.Errorf("%d results kept, want that of seq 5", n)
	}
	w.reopen()
	write(t, w.s, &znode.CloseSession{Session: w.id})
	if n := w.s.Counts().Results; n != 0 {
		t.Errorf("%d results kept of a closed session", n)
	}
	w.reopen()
	if out := play(t, w.s, []entry{w.numbered(6, 0)}, 1)[0]; out.Result.Err != znode.SessionExpired {
		t.Errorf("a write after the session: %+v", out)
	}
	mustClose(t, w.s)
}

// Goal: a client that never acknowledges is bounded, and goes on once it does.
// Method: ResultsMax writes, one more, one more with an acknowledgement.
func TestResultsAreBounded(t *testing.T) {
	w := newWindowTest(t)
	var all []entry
	for seq := range int64(store.ResultsMax) {
		check := &znode.Multi{Ops: []znode.Op{&znode.Check{Path: "/w", Version: -1}}}
		all = append(all, entry{txn: &znode.Txn{Session: w.id, Seq: seq + 1, Op: check}})
	}
	for i, out := range play(t, w.s, all, 500) {
		if out.Gap || out.Result.Err != znode.OK {
			t.Fatalf("seq %d: %+v", i+1, out)
		}
	}
	next := int64(store.ResultsMax + 1)
	if out := play(t, w.s, []entry{w.numbered(next, 0)}, 1)[0]; !out.Gap {
		t.Errorf("one result too many: %+v, want a gap", out)
	}
	if out := play(t, w.s, []entry{w.numbered(next, 1)}, 1)[0]; out.Gap || out.Result.Err != znode.OK {
		t.Errorf("after an acknowledgement: %+v", out)
	}
	w.reopen()
	if n := w.s.Counts().Results; n != store.ResultsMax {
		t.Errorf("%d results kept", n)
	}
	mustClose(t, w.s)
}

// Goal: a batch of one session's writes is one result record, deleted as one.
// Method: count Pebble's keys of the table.
func TestResultsOfABatchAreOneRecord(t *testing.T) {
	w := newWindowTest(t)
	count := func() string {
		it, err := w.s.DB().NewIter(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer it.Close()
		keys := ""
		for ok := it.SeekGE([]byte("r")); ok && it.Key()[0] == 'r'; ok = it.Next() {
			keys += fmt.Sprintf("%d ", it.Key()[16])
		}
		return keys
	}
	play(t, w.s, []entry{w.numbered(1, 0), w.numbered(2, 0), w.numbered(3, 0)}, 3)
	play(t, w.s, []entry{w.numbered(4, 0), w.numbered(5, 0)}, 2)
	if got := count(); got != "0 1 4 " {
		t.Errorf("records begin with seq %s, want 0 (the window), 1 and 4", got)
	}
	play(t, w.s, []entry{w.numbered(6, 4)}, 1)
	if got := count(); got != "0 4 6 " {
		t.Errorf("records begin with seq %s, want 0, 4 and 6", got)
	}
	mustClose(t, w.s)
}

// Goal: what a connection still sends whose session went on elsewhere changes nothing: no
// znode, no number used up, no result forgotten; and the resume itself changes the digest and
// survives a restart. Method: writes of the old and of the new connection around a resume, in
// one batch and in several.
func TestMovedSessionsWritesUseNoNumber(t *testing.T) {
	for _, size := range []int{1, 8} {
		w := newWindowTest(t)
		before, after := session.Owner{Origin: 5, Bind: 1}, session.Owner{Origin: 6, Bind: 1}
		from := func(o session.Owner, e entry) entry {
			e.txn.Owner = o
			return e
		}
		resume := func(o session.Owner) entry {
			return entry{znode.Stamp{TimeMs: 1}, &znode.Txn{Owner: o, Op: &znode.ResumeSession{Session: w.id}}}
		}
		play(t, w.s, []entry{resume(before)}, 1)
		out := play(t, w.s, []entry{
			from(before, w.numbered(1, 0)), resume(after), from(before, w.numbered(2, 1)), from(before, w.numbered(1, 0)),
			from(after, w.numbered(1, 0)), from(after, w.numbered(2, 0)), from(before, w.numbered(9, 2)),
		}, size)
		for i, want := range []znode.Error{znode.OK, znode.OK, znode.SessionMoved, znode.SessionMoved, znode.OK, znode.OK, znode.SessionMoved} {
			if out[i].Result.Err != want || out[i].Gap {
				t.Errorf("size %d, write %d: %v, gap %v; want %v", size, i, out[i].Result.Err, out[i].Gap, want)
			}
		}
		if !reflect.DeepEqual(out[4].Result, out[0].Result) || w.children() != 2 || w.s.Counts().Results != 2 {
			t.Errorf("size %d: resent %+v, was %+v; %d children, counts %+v", size, out[4].Result, out[0].Result, w.children(), w.s.Counts())
		}
		zxid, digest := w.s.LastZxid(), w.s.Digest()
		play(t, w.s, []entry{resume(before)}, 1)
		if w.s.Digest() == digest || w.s.LastZxid() != zxid {
			t.Errorf("size %d: a resume at zxid %d took one, or left the digest %#x", size, zxid, digest)
		}
		play(t, w.s, []entry{resume(after)}, 1)
		w.reopen()
		if s := w.s.Session(w.id); s == nil || s.Owner != after || w.s.Digest() != digest {
			t.Errorf("size %d: after a restart the session is %+v, digest %#x, was %#x", size, s, w.s.Digest(), digest)
		}
	}
}
