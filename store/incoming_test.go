package store_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tenure-dev/tenure/store"
)

// Goal: a stream that breaks goes on where it broke: little is written twice, and the result is
// the same. Method: streams that break in the middle of chunks, and one in each header.
func TestReceiveGoesOn(t *testing.T) {
	_, from := grown(t, 13, 100, store.Options{})
	defer mustClose(t, from)
	addLarge(t, from, 8)
	var whole bytes.Buffer
	if _, err := from.WriteSnapshot(&whole); err != nil {
		t.Fatal(err)
	}
	to := mustOpen(t, vfs.NewMem(), store.Options{})
	defer mustClose(t, to)
	written := receive(t, from, to, 700<<10)
	if written > int64(whole.Len())+4<<10 {
		t.Errorf("%d bytes were written of a snapshot of %d", written, whole.Len())
	}
	if err := to.Adopt(from.Applied()); err != nil {
		t.Fatal(err)
	}
	if to.Digest() != from.Digest() {
		t.Errorf("digest %#x, want %#x", to.Digest(), from.Digest())
	}
	again := mustOpen(t, vfs.NewMem(), store.Options{})
	defer mustClose(t, again)
	in, err := again.Incoming(from.Applied())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Receive(bytes.NewReader(whole.Bytes()[:20])); err == nil || in.Position() != nil {
		t.Errorf("half a header: %v, position %x", err, in.Position())
	}
	if _, err := in.Receive(bytes.NewReader(whole.Bytes())); err != nil {
		t.Errorf("behind half a header: %v", err)
	}
}

// dyingFS is a disk whose process ends within the removal of a directory.
type dyingFS struct {
	vfs.FS
	left int // how many files are removed before that
}

func (d *dyingFS) RemoveAll(dir string) error {
	names, _ := d.List(dir) // of none if there is no dir
	for _, name := range names {
		if d.left--; d.left < 0 {
			return errBroken
		}
		if err := d.Remove(d.PathJoin(dir, name)); err != nil {
			return err
		}
	}
	return d.FS.RemoveAll(dir)
}

// Goal: a crash within the removal of a received state leaves nothing that is taken for one or
// that keeps the member from starting. Method: the removal ends behind each of the files in turn,
// for each of those who remove; open again.
func TestRemovalOfReceivedStateIsCutShort(t *testing.T) {
	_, from := grown(t, 21, 100, store.Options{})
	defer mustClose(t, from)
	var whole bytes.Buffer
	if _, err := from.WriteSnapshot(&whole); err != nil {
		t.Fatal(err)
	}
	for name, remove := range map[string]func(*store.Store, *store.Incoming) error{
		"dropped":   func(s *store.Store, _ *store.Incoming) error { return s.DropReceived() },
		"discarded": func(_ *store.Store, in *store.Incoming) error { return in.Discard() },
		"replaced": func(s *store.Store, _ *store.Incoming) error {
			next, err := s.Incoming(1)
			if err == nil {
				err = next.Discard()
			}
			return err
		},
	} {
		cuts := 0
		for err := errBroken; err != nil; cuts++ {
			disk := vfs.NewMem()
			dying := &dyingFS{disk, math.MaxInt}
			to := mustOpen(t, dying, store.Options{})
			in, errReceived := to.Incoming(from.Applied())
			if errReceived == nil {
				_, errReceived = in.Receive(bytes.NewReader(whole.Bytes()))
			}
			if errReceived != nil {
				t.Fatal(errReceived)
			}
			dying.left = cuts
			if err = remove(to, in); err != nil && !errors.Is(err, errBroken) {
				t.Fatal(err)
			}
			mustClose(t, to)
			again := mustOpen(t, disk, store.Options{})
			if applied, ok, err := again.Received(); err != nil || ok && applied != from.Applied() {
				t.Errorf("%s, %d files removed: %v, a state as of %d", name, cuts, err, applied)
			}
			mustClose(t, again)
		}
		if cuts < 4 {
			t.Errorf("%s: cut short %d times", name, cuts-1)
		}
	}
}
