package tests

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: a leader that cannot write its log any more says so, and gets out of the way; what
// was acknowledged stays. Method: under load the leader's log fails in each of the ways that
// disks and operators have. It must step down or exit within 5 s and name file and error,
// others must serve within 10 s, and all must be there in the end.
func TestC111EnsembleLeadersDiskFails(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, says string
		fail       func(*testing.T, *ensembleMember)
		wiped      bool // it has lost its log, so it must not come back
	}{
		{"EIO", "input/output error", failDisk("log sync EIO", "log write EIO"), false},
		{"read-only", "read-only file system", failDisk("log write EROFS", "log create EROFS"), false},
		{"no file descriptors", "too many open files", failDisk("log create EMFILE"), false},
		{"directory deleted", "no such file or directory", func(t *testing.T, m *ensembleMember) {
			if err := os.RemoveAll(filepath.Join(m.dir, "log")); err != nil {
				t.Error(err)
			}
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := startEnsemble(t, ensembleOptions{faults: true})
			load := newCrashLoad(t, e.connect, randomSeed(t), 2, 4)
			load.pause = 5 * time.Millisecond
			load.run(func() {
				leader := e.waitLeader()
				stopFilling := fillLog(t, e)
				test.fail(t, leader)
				leader.mustGiveUp(e, test.says)
				stopFilling()
				load.quiet(func(ctx context.Context) { load.verify(ctx, "without the member") })
				leader.kill()
				leader.disk()
				if test.wiped {
					leader.mustNotServe()
					return
				}
				leader.start()
			})
			e.sameState()
			load.quiet(func(ctx context.Context) { load.verify(ctx, "in the end") })
		})
	}
}

func failDisk(faults ...string) func(*testing.T, *ensembleMember) {
	return func(_ *testing.T, m *ensembleMember) { m.disk(faults...) }
}

// fillLog writes so much that the log soon needs a new file.
func fillLog(t *testing.T, e *ensemble) (stop func()) {
	t.Helper()
	c := e.connect(client.Options{})
	mustCreate(t, c, "/filler")
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() {
		for ctx.Err() == nil {
			if _, err := c.Set(t.Context(), "/filler", make([]byte, 256<<10), -1); err != nil {
				t.Errorf("filler: %v", err)
				return
			}
		}
	})
	return func() { cancel(); work.Wait() }
}

// mustGiveUp wants the leader, whose disk has just failed, to step down or exit in time, to
// say why, and the others to serve.
func (m *ensembleMember) mustGiveUp(e *ensemble, says string) {
	m.t.Helper()
	d := m.running.Load()
	ended := func() bool {
		select {
		case <-d.drained:
			return true
		default:
			return false
		}
	}
	took := e.eventually(5*time.Second, "the leader gives up", func() error {
		if s, err := m.status(); !ended() && (err != nil || s.Role == "leader") {
			return fmt.Errorf("it runs: %+v, %v", s, err)
		}
		return nil
	})
	e.eventually(10*time.Second-took, "others serve", func() error {
		if next := e.leader(); next == nil || next == m {
			return fmt.Errorf("nobody else leads")
		}
		return nil
	})
	e.eventually(5*time.Second, "the member exits or says that it is not well", func() error {
		if ended() {
			return nil
		}
		status, _, err := fetch(m.http, "/healthz")
		if err == nil && status == http.StatusOK {
			err = errors.New("it is healthy")
		}
		return err
	})
	d.kill()
	m.t.Logf("member %d gave up after %v", m.id, took)
	var found bool
	for line := range strings.Lines(d.output.String()) {
		found = found || strings.Contains(line, says) && strings.Contains(line, filepath.Join(m.dir, "log"))
	}
	if !found {
		m.t.Errorf("the output has no line with the log's file and %q:\n%s", says, d.output.Bytes())
	}
}

// mustNotServe starts a member that has lost its log: it may not serve again.
func (m *ensembleMember) mustNotServe() {
	m.t.Helper()
	m.spawn()
	d := m.running.Load()
	select {
	case addresses := <-d.ready:
		m.t.Errorf("member %d serves without its log at %v", m.id, addresses)
	case <-d.drained:
	case <-time.After(3 * time.Second):
	}
	d.kill()
}

// Goal: full disks of all members at once refuse what grows, with a definite error and in
// good time; what was acknowledged stays, also over a restart of all without a byte of room;
// one full disk refuses growth everywhere, and nothing else; room and deletes bring
// everything back. Method: three members, each on a small file system of its own.
func TestC119EnsembleDisksFull(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	disks := []string{smallDisk(t, 224), smallDisk(t, 224), smallDisk(t, 224)}
	e := startEnsemble(t, ensembleOptions{dirs: disks, args: []string{"--min-free-disk-bytes", fmt.Sprint(diskReserve)}})
	f := &fullDisk{t: t, disk: disks[0], c: e.connect(client.Options{Timeout: time.Minute}), acked: map[string]byte{}}
	mustCreate(t, f.c, "/disk")
	if err := f.fill(ctx, 0); err != nil {
		for _, m := range e.members {
			m.kill()
			t.Logf("member %d:\n%s", m.id, &m.running.Load().output)
		}
		t.Fatal(err)
	}
	t.Logf("growth was refused after %d znodes of %d bytes, with %d, %d and %d bytes free", len(f.acked), fillSize,
		freeBytes(t, disks[0]), freeBytes(t, disks[1]), freeBytes(t, disks[2]))
	f.verify(ctx)
	for _, m := range e.members {
		m.kill()
	}
	var remove []func()
	for _, disk := range disks {
		remove = append(remove, fillUp(t, disk, 0))
	}
	for _, m := range e.members {
		m.spawn()
	}
	<-time.After(3 * time.Second)
	for _, m := range e.members {
		d := m.running.Load()
		d.kill()
		if code := d.cmd.ProcessState.ExitCode(); code > 0 && !strings.Contains(d.output.String(), "no space left") {
			t.Errorf("member %d ended with code %d and does not say why:\n%s", m.id, code, &d.output)
		}
	}
	for _, r := range remove {
		r()
	}
	e.startAll()
	f.verify(ctx)
	makeRoom := fillUp(t, disks[e.follower().id-1], diskReserve/2)
	refused := func() error {
		_, _, err := f.c.Create(ctx, "/disk/grows-", nil, client.CreateOptions{Mode: znode.Mode{Sequential: true}})
		if errors.Is(err, znode.QuotaExceeded) {
			return nil
		}
		return fmt.Errorf("a create: %v", err)
	}
	e.eventually(30*time.Second, "a full disk of a follower refuses growth", refused)
	f.deleteMost(ctx)
	if err := refused(); err != nil {
		t.Errorf("after deletes on a disk that is full: %v", err)
	}
	makeRoom()
	f.mustResume(ctx)
	f.verify(ctx)
	e.sameState()
}
