package tests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/znode"
)

// smallDisk mounts a file system of its own of that many MiB, which needs the rights of
// root. Where they are missing the test is skipped; TENURE_REQUIRE_FOREIGN=1 makes it fail.
func smallDisk(t *testing.T, mebibytes int) string {
	t.Helper()
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mebibytes))
	switch {
	case err == nil:
		t.Cleanup(func() {
			if err := syscall.Unmount(dir, 0); err != nil {
				t.Errorf("unmount: %v", err)
			}
		})
	case os.Getenv("TENURE_REQUIRE_FOREIGN") == "1":
		t.Fatalf("mount: %v", err)
	default:
		t.Skipf("mount: %v; TENURE_REQUIRE_FOREIGN=1 makes this an error", err)
	}
	return dir
}

func freeBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	return int64(fs.Bavail) * fs.Bsize
}

// fullDisk is a member on a small disk and what it has acknowledged.
type fullDisk struct {
	t    *testing.T
	disk string
	m    *member
	c    *client.Client

	mu    sync.Mutex
	acked map[string]byte // what the data consist of
}

const (
	fillSize    = 16 << 10
	diskReserve = 48 << 20
)

// fill creates znodes at full speed until growth is refused, and wants no other refusal.
func (f *fullDisk) fill(ctx context.Context, round int) error {
	var g errgroup.Group
	for w := range 8 {
		g.Go(func() error {
			for i := 0; ; i++ {
				path, letter := fmt.Sprintf("/disk/%d-%d-%d", round, w, i), byte('a'+i%26)
				_, _, err := f.c.Create(ctx, path, filled(letter), client.CreateOptions{})
				switch {
				case errors.Is(err, znode.QuotaExceeded):
					return nil
				case err != nil:
					return err
				}
				f.mu.Lock()
				f.acked[path] = letter
				f.mu.Unlock()
			}
		})
	}
	return g.Wait()
}

// filled is data that hardly compresses and begins with letter.
func filled(letter byte) []byte {
	data := make([]byte, fillSize)
	rng := rand.New(rand.NewPCG(uint64(letter), 0))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	data[0] = letter
	return data
}

// Goal: a full disk refuses what grows, in good time, and nothing else; what was
// acknowledged stays; a restart needs no room; and deletes bring everything back without
// one. Method: a member on a small file system of its own is filled at full speed.
func TestC073C119DiskFull(t *testing.T) {
	disk := smallDisk(t, 224)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	m := &member{t: t, dir: filepath.Join(disk, "data"), args: []string{"--min-free-disk-bytes", fmt.Sprint(diskReserve)}}
	m.start()
	f := &fullDisk{t: t, disk: disk, m: m, c: m.connect(client.Options{}), acked: map[string]byte{}}
	mustCreate(t, f.c, "/disk")
	s, err := openBareSession(ctx, m.dial, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.createEphemerals("/disk/ephemeral"); err != nil {
		t.Fatal(err)
	}
	if err := f.fill(ctx, 0); err != nil {
		t.Fatalf("%v; %d bytes are free\n%s", err, freeBytes(t, disk), &m.running.Load().output)
	}
	t.Logf("growth was refused after %d znodes of %d bytes, with %d bytes free", len(f.acked), fillSize, freeBytes(t, disk))
	s.close()
	f.othersGoOn(ctx)
	f.restartWithoutRoom(ctx)
	for _, end := range []func(){m.crash, m.stop} { // at a nearly full disk
		end()
		m.start()
		f.verify(ctx)
	}
	f.deleteMost(ctx)
	f.mustResume(ctx)
	f.verify(ctx)
	m.stop()
	m.mustBeSound("after the disk was full")
}

// othersGoOn wants all that does not grow the state to work.
func (f *fullDisk) othersGoOn(ctx context.Context) {
	t := f.t
	t.Helper()
	f.verify(ctx)
	other := f.m.connect(client.Options{}) // a new session
	if _, _, err := other.Session().Renew(ctx); err != nil {
		t.Errorf("renew: %v", err)
	}
	for path := range f.acked {
		if _, err := other.Set(ctx, path, nil, -1); err != nil {
			t.Errorf("set to nothing: %v", err)
		}
		if err := other.Delete(ctx, path, -1); err != nil {
			t.Errorf("delete: %v", err)
		}
		delete(f.acked, path)
		break
	}
	if err := other.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	// The dead client's session must end, and its ephemeral go.
	for {
		_, there, watch, err := f.c.ExistsW(ctx, "/disk/ephemeral")
		if err != nil {
			t.Fatalf("waiting for the end of a session: %v", err)
		}
		if !there {
			watch.Cancel()
			return
		}
		select {
		case <-watch.C:
		case <-ctx.Done():
			t.Fatal("the session of a dead client does not end")
		}
	}
}

// fillUp leaves so many bytes free on a disk, or a few less, until makeRoom is called.
func fillUp(t *testing.T, disk string, leave int64) (makeRoom func()) {
	t.Helper()
	ballast, err := os.Create(filepath.Join(disk, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil && freeBytes(t, disk) > leave {
		_, err = ballast.Write(make([]byte, 64<<10))
	}
	ballast.Close()
	if free := freeBytes(t, disk); free > leave {
		t.Fatalf("%d bytes are free after %v", free, err)
	}
	return func() {
		if err := os.Remove(ballast.Name()); err != nil {
			t.Fatal(err)
		}
	}
}

// restartWithoutRoom kills the member and starts it while not a byte is free. It may
// refuse to start, and say so; what it has must be there once there is room again.
func (f *fullDisk) restartWithoutRoom(ctx context.Context) {
	t := f.t
	t.Helper()
	f.m.crash()
	makeRoom := fillUp(t, f.disk, 0)
	d, err := launchDaemon(t, f.m.dir, f.m.args...)
	d.kill()
	t.Logf("start with 0 bytes free: %v", err)
	if err != nil && !strings.Contains(d.output.String(), "no space left") {
		t.Errorf("the daemon does not say why it did not start with 0 bytes free: %v\n%s", err, &d.output)
	}
	makeRoom()
	f.m.start()
	f.verify(ctx)
}

func (f *fullDisk) verify(ctx context.Context) {
	f.t.Helper()
	var g errgroup.Group
	g.SetLimit(32)
	for path, letter := range f.acked {
		g.Go(func() error {
			data, _, err := f.c.Get(ctx, path, client.ReadOptions{})
			if err == nil && string(data) != string(filled(letter)) {
				err = fmt.Errorf("%s has %d wrong bytes", path, len(data))
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		f.t.Fatalf("acknowledged before the disk was full: %v", err)
	}
}

// deleteMost deletes two of three znodes.
func (f *fullDisk) deleteMost(ctx context.Context) {
	f.t.Helper()
	i := 0
	for path := range f.acked {
		if i++; i%3 == 0 {
			continue
		}
		if err := f.c.Delete(ctx, path, -1); err != nil {
			f.t.Fatalf("delete on a full disk: %v", err)
		}
		delete(f.acked, path)
	}
}

// mustResume wants writes to be taken again within a minute, without a restart.
func (f *fullDisk) mustResume(ctx context.Context) {
	f.t.Helper()
	began := time.Now()
	for tick := time.NewTicker(100 * time.Millisecond); ; <-tick.C {
		_, _, err := f.c.Create(ctx, "/disk/again", filled('z'), client.CreateOptions{})
		switch {
		case err == nil:
			f.acked["/disk/again"] = 'z'
			f.t.Logf("growth was allowed again %v after the deletes, with %d bytes free", time.Since(began), freeBytes(f.t, f.disk))
			return
		case !errors.Is(err, znode.QuotaExceeded) || time.Since(began) > time.Minute:
			f.t.Fatalf("after the deletes, with %d bytes free: %v", freeBytes(f.t, f.disk), err)
		}
	}
}
