package recipes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ErrFenceDamaged: the file of a FileHighWater is not what was written. It is never taken
// for an empty one, which would admit former holders: restore it, or find the highest
// token given so far, remove the file and its .lock, and raise to that token.
var ErrFenceDamaged = errors.New("file of fencing tokens is damaged")

// ErrFenceLocked: the file of a FileHighWater is in use by another process.
var ErrFenceLocked = errors.New("file of fencing tokens is in use by another process")

// FileHighWater is a HighWater in a file, for a resource that one process at a time has
// charge of. A mark is on disk before Raise returns: the whole file is written beside the
// old one, synced, renamed, and its directory synced, so that there is no instant at
// which a crash leaves anything but the old file or the new one. Raises that come
// together share one writing, and one to a mark that stands already costs no I/O. It is
// made for as many raises as there are hand-overs, and at most 1 048 576 keys.
//
// Beside PATH there is PATH.lock, which keeps a second process away and remembers that
// PATH existed; a PATH that vanished is damage. The file system must keep its word about
// fsync, rename and flock, as local ones do. Where there is no flock (Windows)
// OpenFileHighWater is ErrUnsupported. It may be used concurrently.
type FileHighWater struct {
	path string
	lock *os.File
	turn chan struct{} // holds a value while somebody writes
	step func(name string) error

	mu      sync.Mutex
	durable map[string]Token // changed by whoever has the turn
	pending map[string]Token // to be written by the next who gets the turn
	err     error            // why it cannot be used any more
}

// OpenFileHighWater opens the file, or makes it where there never was one, and keeps other
// processes from it until Close. Errors: ErrFenceLocked, ErrFenceDamaged, ErrUnsupported,
// and those of the file system.
func OpenFileHighWater(path string) (*FileHighWater, error) {
	return openFileHighWater(path, func(string) error { return nil })
}

// openFileHighWater is OpenFileHighWater with a function that is called before each step
// that a crash or an error may come at.
func openFileHighWater(path string, step func(name string) error) (*FileHighWater, error) {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	h := &FileHighWater{path: path, lock: lock, turn: make(chan struct{}, 1), step: step,
		durable: map[string]Token{}, pending: map[string]Token{}}
	if err := flock(lock); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), lock.Close())
	}
	if err := h.load(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return h, nil
}

// load reads the file, or makes it. What is read may be the work of a process that
// crashed before its last sync, so it is synced before anything is admitted by it.
func (h *FileHighWater) load() error {
	text, err := os.ReadFile(h.path)
	if errors.Is(err, fs.ErrNotExist) {
		return h.begin()
	}
	if err != nil {
		return err
	}
	if h.durable, err = decodeFence(text); err != nil {
		return fmt.Errorf("%s: %w: %w", h.path, ErrFenceDamaged, err)
	}
	f, err := os.OpenFile(h.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return h.remember()
}

// begin makes the first, empty file, unless the lock remembers one.
func (h *FileHighWater) begin() error {
	info, err := h.lock.Stat()
	if err != nil {
		return err
	}
	if info.Size() > 0 {
		return fmt.Errorf("%s: %w: it existed and is gone", h.path, ErrFenceDamaged)
	}
	if err := h.replace(h.durable); err != nil {
		return err
	}
	return h.remember()
}

// remember notes in the lock that the file exists.
func (h *FileHighWater) remember() error {
	if err := h.step("remember"); err != nil {
		return err
	}
	if _, err := h.lock.WriteAt([]byte("locks the file of fencing tokens beside it, which exists\n"), 0); err != nil {
		return err
	}
	if err := h.lock.Sync(); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(h.path))
}

// Raise implements HighWater. If ctx ends while others write, the mark may be raised
// later. A failed sync or rename ends the use of the file: what is on disk is unknown
// until it is opened anew. After any other failure, such as a full disk, Raise may be
// called again.
func (h *FileHighWater) Raise(ctx context.Context, key string, t Token) (Token, error) {
	if err := validateFence(key, t); err != nil {
		return 0, err
	}
	if highest, err := h.ask(key, t); err != nil || highest >= t {
		return highest, err
	}
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	highest, err := h.ask(key, t) // whoever had the turn may have written t too
	if err != nil || highest >= t {
		return highest, err
	}
	h.mu.Lock()
	next := maps.Clone(h.durable)
	maps.Copy(next, h.pending)
	clear(h.pending)
	h.mu.Unlock()
	if err := h.replace(next); err != nil {
		return 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.durable = next
	return next[key], nil
}

// ask returns the mark of key. If that is below t, t is pending afterwards.
func (h *FileHighWater) ask(key string, t Token) (Token, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return 0, h.err
	}
	highest := h.durable[key]
	if highest >= t {
		return highest, nil
	}
	_, waits := h.pending[key]
	if highest == 0 && !waits && len(h.durable)+len(h.pending) >= fenceKeysMax {
		return 0, errFenceKeys(key)
	}
	h.pending[key] = max(h.pending[key], t)
	return highest, nil
}

// replace makes next the content of the file, durably.
func (h *FileHighWater) replace(next map[string]Token) error {
	temp := h.path + ".tmp" // left behind by a crash it is overwritten by the next raise
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	text := encodeFence(next)
	half := len(text) / 2
	write := func(b []byte) func() error {
		return func() error { _, err := f.Write(b); return err }
	}
	for _, s := range []struct {
		name string
		do   func() error
	}{
		{"write", write(text[:half])},
		{"write the rest", write(text[half:])},
		{"sync", f.Sync},
		{"rename", func() error { return os.Rename(temp, h.path) }},
		{"sync the directory", func() error { return syncDirectory(filepath.Dir(h.path)) }},
		{"close", f.Close},
	} {
		if err = h.step(s.name); err == nil {
			err = s.do()
		}
		if err != nil {
			err = fmt.Errorf("%s: %s: %w", h.path, s.name, err)
			if s.name != "write" && s.name != "write the rest" {
				h.fail(err)
			}
			_ = f.Close() // the first error counts
			return err
		}
	}
	return nil
}

// fail makes err the answer to every Raise from now on.
func (h *FileHighWater) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = fmt.Errorf("the file must be opened anew: %w", err)
}

// Close waits for the writing under way and lets other processes open the file. Raise
// fails with fs.ErrClosed from then on.
func (h *FileHighWater) Close() error {
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = fmt.Errorf("%s: %w", h.path, fs.ErrClosed)
	return h.lock.Close()
}

// syncDirectory makes the names in dir durable.
func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

const fenceFileHead = "tenure fencing tokens 1\n"

// encodeFence writes what people can read and sha256sum can check:
//
//	tenure fencing tokens 1
//	4294967297 "/svc/leader"
//	sha256 (of all lines above, in hex)
func encodeFence(marks map[string]Token) []byte {
	var b bytes.Buffer
	b.WriteString(fenceFileHead)
	for _, key := range slices.Sorted(maps.Keys(marks)) {
		fmt.Fprintf(&b, "%d %q\n", marks[key], key)
	}
	fmt.Fprintf(&b, "sha256 %x\n", sha256.Sum256(b.Bytes()))
	return b.Bytes()
}

// decodeFence undoes encodeFence and accepts nothing else.
func decodeFence(text []byte) (map[string]Token, error) {
	if !bytes.HasPrefix(text, []byte(fenceFileHead)) {
		return nil, fmt.Errorf("its %d bytes do not begin with %q", len(text), fenceFileHead)
	}
	at := bytes.LastIndex(text, []byte("\nsha256 ")) + 1
	if want := fmt.Sprintf("sha256 %x\n", sha256.Sum256(text[:at])); string(text[at:]) != want {
		return nil, fmt.Errorf("its last line, at byte %d, is not %q", at, want)
	}
	marks := map[string]Token{}
	for line := range strings.Lines(string(text[len(fenceFileHead):at])) {
		number, quoted, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		t, err := strconv.ParseUint(number, 10, 64)
		key, err2 := strconv.Unquote(quoted)
		if err := errors.Join(err, err2); err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		marks[key] = Token(t)
	}
	return marks, nil
}
