package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tenure-dev/tenure/store"
	"github.com/tenure-dev/tenure/znode"
)

// grown returns a store with some hundred random entries, and the generator behind them.
func grown(t *testing.T, seed uint64, entries int, o store.Options) (*generator, *store.Store) {
	t.Helper()
	g := newGenerator(t, seed)
	s := mustOpen(t, vfs.NewMem(), o)
	list, _ := g.entries(entries)
	play(t, s, list, 16)
	return g, s
}

// addLarge gives a store data that takes several chunks.
func addLarge(t *testing.T, s *store.Store, chunks int) {
	t.Helper()
	rng := rand.NewChaCha8([32]byte{1})
	for i := range chunks {
		data := make([]byte, 256<<10)
		rng.Read(data)
		for _, out := range write(t, s, create("/large"+string(rune('a'+i)), data)) {
			if out.Result.Err != znode.OK {
				t.Fatal(out.Result.Err)
			}
		}
	}
}

// receive moves the state of one store into another's incoming, in pieces of a stream that
// breaks after so many bytes, and returns how many bytes were written.
func receive(t *testing.T, from, to *store.Store, breakAfter int) (written int64) {
	t.Helper()
	source, err := from.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	in, err := to.Incoming(source.Applied())
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		r, w := io.Pipe()
		var info store.SnapshotInfo
		var writeErr error
		var done sync.WaitGroup
		done.Go(func() {
			info, writeErr = source.Write(&breaking{w: w, left: breakAfter}, in.Position())
			w.CloseWithError(writeErr)
		})
		got, err := in.Receive(r)
		r.Close()
		done.Wait()
		written += info.Bytes
		if err == nil {
			if got.Digest != from.Digest() || got.Records != info.Records || got.Applied != from.Applied() {
				t.Fatalf("received %+v, written %+v", got, info)
			}
			return written
		}
		if writeErr == nil {
			t.Fatalf("a whole stream was refused: %v", err)
		}
	}
	t.Fatal("it does not get on")
	return 0
}

var errBroken = errors.New("broken")

// breaking is a stream that breaks.
type breaking struct {
	w    io.Writer
	left int
}

func (b *breaking) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errBroken
	}
	return b.w.Write(p)
}

// Goal: a store takes over a received state entirely: tree, sessions, windows, digest; what it
// had cached of its own is gone; it goes on as the other does, and its history has a gap.
// Method: two stores with different content; adopt, compare, go on on both, reopen, check.
func TestAdopt(t *testing.T) {
	g, from := grown(t, 11, 600, store.Options{})
	defer mustClose(t, from)
	disk := vfs.NewMem()
	to := mustOpen(t, disk, store.Options{})
	if _, err := to.Snapshot(); err != nil { // it stays open
		t.Fatal(err)
	}
	old := newGenerator(t, 12)
	list, _ := old.entries(200)
	play(t, to, list, 3)
	to.LearnPresence()
	compare(t, to, old.oracle.tree) // fills its cache
	receive(t, from, to, 1<<30)
	if err := to.Adopt(from.Applied()); err != nil {
		t.Fatal(err)
	}
	compare(t, to, g.oracle.tree)
	if to.Digest() != from.Digest() || to.Applied() != from.Applied() || to.Durable() != from.Applied() || to.LastZxid() != from.LastZxid() {
		t.Fatalf("digest %#x, applied %d, durable %d", to.Digest(), to.Applied(), to.Durable())
	}
	if _, complete := to.History(from.LastZxid() - 1); complete {
		t.Error("the history claims to reach back before the received state")
	}
	to.LearnPresence()
	more, want := g.entries(300)
	for i, one := range []*store.Store{from, to} {
		if got := play(t, one, more, 5+i); !reflect.DeepEqual(got, want) {
			t.Fatal("outcomes differ behind the received state")
		}
	}
	if to.Digest() != from.Digest() {
		t.Errorf("digest %#x, want %#x", to.Digest(), from.Digest())
	}
	if _, complete := to.History(to.LastZxid() - 1); !complete {
		t.Error("the history does not begin behind the received state")
	}
	mustClose(t, to)
	mustCheck(t, disk)
	names, err := disk.List("")
	if err != nil || len(names) != 1 {
		t.Errorf("left: %v, %v", names, err)
	}
}

// Goal: no damaged or half-received state is ever there to be adopted, and a sound one can be
// received behind it. Method: flip bits all over a stream; cut it; let it end with another
// entry; then send it as it is.
func TestC129DamagedStateIsNotAdopted(t *testing.T) {
	_, from := grown(t, 14, 100, store.Options{})
	defer mustClose(t, from)
	var stream bytes.Buffer
	if _, err := from.WriteSnapshot(&stream); err != nil {
		t.Fatal(err)
	}
	whole := stream.Bytes()
	to := mustOpen(t, vfs.NewMem(), store.Options{})
	defer mustClose(t, to)
	before := to.Digest()
	refuse := func(what string, applied uint64, damaged []byte) {
		t.Helper()
		in, err := to.Incoming(applied)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Receive(bytes.NewReader(damaged)); err == nil {
			t.Fatalf("%s: it was received", what)
		}
		if _, ok, err := to.Received(); ok || err != nil {
			t.Fatalf("%s: there is a received state (%v)", what, err)
		}
		if err := to.Adopt(applied); err == nil {
			t.Fatalf("%s: it was adopted", what)
		}
		if applied != from.Applied() {
			return
		}
		if _, err := in.Receive(bytes.NewReader(whole)); err != nil && in.Position() == nil {
			t.Fatalf("%s: a sound one behind it: %v", what, err)
		}
		if err := in.Discard(); err != nil {
			t.Fatal(err)
		}
	}
	for at := 0; at < len(whole); at += 1 + len(whole)/50 {
		flipped := bytes.Clone(whole)
		flipped[at] ^= 1 << (at % 8)
		refuse("flipped", from.Applied(), flipped)
		refuse("cut", from.Applied(), whole[:at])
	}
	refuse("another entry", from.Applied()+1, whole)
	if to.Digest() != before {
		t.Error("the state changed")
	}
}

// Goal: whoever reads without the owner's lock neither holds up an adoption nor is harmed by
// it: a snapshot that is being written ends with an error, a range over the history with a
// gap. Method: a writer that blocks, a range that is stopped in the middle; adopt.
func TestAdoptUnderReaders(t *testing.T) {
	_, to := grown(t, 16, 100, store.Options{})
	defer mustClose(t, to)
	_, from := grown(t, 16, 100, store.Options{}) // the same, but further
	defer mustClose(t, from)
	addLarge(t, to, 3)
	for i := range 2000 {
		write(t, to, create(fmt.Sprintf("/%0200d", i), nil))
		write(t, from, create(fmt.Sprintf("/%0200d", i), nil), create(fmt.Sprintf("/%0200d/x", i), nil))
	}
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := to.WriteSnapshot(w)
		ended <- err
	}()
	if _, err := io.ReadFull(r, make([]byte, 100)); err != nil { // it waits within a chunk now
		t.Fatal(err)
	}
	// The history is read in pieces: a long one is not read to its end.
	history, _ := to.History(0)
	var historyErr error
	n := 0
	for _, err := range history {
		if historyErr = err; err != nil {
			break
		}
		if n++; n == 1 {
			receive(t, from, to, 1<<30)
			if err := to.Adopt(from.Applied()); err != nil {
				t.Fatal(err)
			}
			if _, err := to.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !errors.Is(historyErr, store.ErrTrimmed) {
		t.Errorf("the history's range ended with %v after %d transactions", historyErr, n)
	}
	go io.Copy(io.Discard, r)
	if err := <-ended; !errors.Is(err, store.ErrReplaced) {
		t.Errorf("the snapshot ended with %v", err)
	}
	if to.Digest() != from.Digest() || to.Metrics() == nil {
		t.Error("the state is not the received one")
	}
}

// Goal: commits do not wait for a snapshot that is being written (C139). Method: a writer
// that blocks for ever; write meanwhile.
func TestC139CommitBesideBlockedSnapshot(t *testing.T) {
	_, s := grown(t, 17, 300, store.Options{})
	addLarge(t, s, 3)
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := s.WriteSnapshot(w)
		ended <- err
	}()
	if _, err := io.ReadFull(r, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100 {
			write(t, s, &znode.OpenSession{TimeoutMs: 1000})
		}
		if _, err := s.Flush(); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("commits wait for the snapshot")
	}
	r.CloseWithError(errBroken)
	if err := <-ended; !errors.Is(err, errBroken) {
		t.Errorf("the snapshot ended with %v", err)
	}
	mustClose(t, s)
}

// afterCrash opens what a crash left, finishes what was begun, and returns how far it was.
func afterCrash(left vfs.FS, from *store.Store, adopting bool, oldApplied, oldDigest uint64) (how string, err error) {
	s, err := store.Open("state", store.Options{FS: left})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if !adopting {
		if s.Applied() != oldApplied || s.Digest() != oldDigest {
			return "before", fmt.Errorf("while receiving the state is as of %d", s.Applied())
		}
		return "before", nil
	}
	how = "through"
	received, ok, err := s.Received()
	if err == nil && ok {
		how = "again"
		err = s.Adopt(received)
	}
	if err == nil && (s.Applied() != from.Applied() || s.Digest() != from.Digest()) {
		err = fmt.Errorf("the state is as of %d, digest %#x", s.Applied(), s.Digest())
	}
	return how, err
}

// Goal: a crash at any moment of receiving and adopting leaves the one state or the other,
// whole: if it had been decided to adopt, adopting again finishes it. Method: before every
// operation that changes the disk open a copy that keeps 0 to 100 % of what was not synced.
func TestC127AdoptCrashAtEverySync(t *testing.T) {
	_, from := grown(t, 18, 300, store.Options{})
	defer mustClose(t, from)
	disk := vfs.NewCrashableMem()
	rng := rand.New(rand.NewPCG(18, 18))
	var mu sync.Mutex
	var to *store.Store
	var oldDigest, oldApplied uint64
	armed, adopting, crashes, ends := false, false, 0, map[string]int{}
	fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpCreate, errorfs.OpRename, errorfs.OpRemove:
		default:
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if !armed || t.Failed() {
			return nil
		}
		crashes++
		left := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[rng.IntN(3)], RNG: rng})
		how, err := afterCrash(left, from, adopting, oldApplied, oldDigest)
		if err != nil {
			t.Errorf("crash %d: %v", crashes, err)
		}
		ends[how]++
		return nil
	}))
	to = mustOpen(t, fs, store.Options{})
	list, _ := newGenerator(t, 19).entries(100)
	play(t, to, list, 10)
	if _, err := to.Flush(); err != nil {
		t.Fatal(err)
	}
	oldDigest, oldApplied = to.Digest(), to.Applied()
	arm := func(nowAdopting bool) {
		mu.Lock()
		defer mu.Unlock()
		armed, adopting = true, nowAdopting
	}
	arm(false)
	receive(t, from, to, 1<<30)
	arm(true)
	if err := to.Adopt(from.Applied()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	armed = false
	mu.Unlock()
	mustClose(t, to)
	if ends["before"] < 5 || ends["again"] < 2 || ends["through"] < 2 {
		t.Errorf("crashes: %v", ends)
	}
	t.Logf("crashes: %v", ends)
}

// Goal: a failed adoption is told, and the store does nothing any more but to be closed.
// Method: a disk that refuses the rename.
func TestAdoptFails(t *testing.T) {
	_, from := grown(t, 20, 100, store.Options{})
	defer mustClose(t, from)
	refuse := false
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if refuse && op.Kind == errorfs.OpRename {
			return errBroken
		}
		return nil
	}))
	to := mustOpen(t, fs, store.Options{})
	receive(t, from, to, 1<<30)
	refuse = true
	if err := to.Adopt(from.Applied()); !errors.Is(err, errBroken) {
		t.Fatalf("adopted: %v", err)
	}
	_, flushErr := to.Flush()
	_, snapshotErr := to.Snapshot()
	for what, err := range map[string]error{"flush": flushErr, "snapshot": snapshotErr} {
		if err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if to.Durable() != 0 || to.Metrics() == nil {
		t.Error("it still claims something")
	}
	mustClose(t, to)
}
