package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Goal: a snapshot of a running server restores into a new directory that checks out,
// serves, and continues in a later epoch; a directory in use or in existence is never
// overwritten. Method: the whole round with real processes.
func TestSnapshotRestoreCheck(t *testing.T) {
	root := t.TempDir()
	dir, restored, file := filepath.Join(root, "a"), filepath.Join(root, "b"), filepath.Join(root, "snapshot")
	p := start(t, nil, "--data-dir", dir)
	code, snapshot := p.get("/v1/snapshot", http.Header{"Authorization": {"Bearer " + adminToken(t, dir)}})
	if code != http.StatusOK {
		t.Fatalf("snapshot: %d %s", code, snapshot)
	}
	if err := os.WriteFile(file, []byte(snapshot), 0o600); err != nil {
		t.Fatal(err)
	}
	p.stop(syscall.SIGTERM)
	expect(t, exitOK, "sound: zxid=0x", "check", "--data-dir", dir)
	expect(t, exitError, "not empty", "restore", "--data-dir", dir, "--from", file)
	expect(t, exitUsage, "--from", "restore", "--data-dir", restored)
	expect(t, exitError, file+"x", "restore", "--data-dir", restored, "--from", file+"x")
	expect(t, exitOK, "restored", "restore", "--data-dir", restored, "--from", file)
	expect(t, exitOK, "sound", "check", "--data-dir", restored)
	q := start(t, nil, "--data-dir", restored)
	if code, body := q.get("/readyz", nil); code != http.StatusOK {
		t.Errorf("restored server: %d %s", code, body)
	}
	if code := q.stop(syscall.SIGTERM); code != exitOK {
		t.Errorf("exit code %d\n%s", code, q.stderr)
	}
	expect(t, exitOK, "sound: zxid=0x1000", "check", "--data-dir", restored)
}

// expect runs a tenured to its end and looks for text in what it says.
func expect(t *testing.T, code int, text string, args ...string) {
	t.Helper()
	got, stdout, stderr, _ := finish(t, nil, args...)
	if got != code || !strings.Contains(stdout+stderr, text) {
		t.Errorf("tenured %s: exit code %d, want %d with %q:\n%s%s", strings.Join(args, " "), got, code, text, stdout, stderr)
	}
}

// Goal: check names damage and exits with 1, and refuses what is no data directory; a
// damaged snapshot restores nothing. Method: flip one byte in every table of the state,
// then one in the log, then in a snapshot.
func TestCheckNamesDamage(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a")
	p := start(t, nil, "--data-dir", dir)
	_, snapshot := p.get("/v1/snapshot", http.Header{"Authorization": {"Bearer " + adminToken(t, dir)}})
	p.stop(syscall.SIGTERM)
	start(t, nil, "--data-dir", dir).stop(syscall.SIGTERM) // a start makes a table of what the log held

	expect(t, exitError, "no such file", "check", "--data-dir", filepath.Join(root, "none"))
	expect(t, exitError, "holds no state", "check", "--data-dir", root)
	for _, pattern := range []string{"state/*.sst", "log/*.sst"} {
		tables, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(tables) == 0 {
			t.Fatalf("%s: no tables, %v", pattern, err)
		}
		for _, table := range tables {
			flip(t, table, 40)
		}
		expect(t, exitError, strings.Split(pattern, "/")[0]+": ", "check", "--data-dir", dir)
		for _, table := range tables {
			flip(t, table, 40)
		}
		expect(t, exitOK, "sound", "check", "--data-dir", dir)
	}
	if err := os.RemoveAll(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	expect(t, exitError, "log: ", "check", "--data-dir", dir)

	bad := bytes.Clone([]byte(snapshot))
	bad[len(bad)/2] ^= 1
	file, restored := filepath.Join(root, "bad"), filepath.Join(root, "b")
	if err := os.WriteFile(file, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, exitError, file, "restore", "--data-dir", restored, "--from", file)
	expect(t, exitError, "holds no state", "check", "--data-dir", restored)
}

// flip changes one bit of a file; a second call undoes it.
func flip(t *testing.T, path string, at int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[at] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Goal: a server that is killed before anything of its state was flushed leaves a sound
// directory, whose log says it all; without the log it is not sound.
func TestCheckAfterKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := start(t, nil, "--data-dir", dir)
	p.stop(syscall.SIGKILL)
	expect(t, exitOK, "sound", "check", "--data-dir", dir)
	if err := os.RemoveAll(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	expect(t, exitError, "log: ", "check", "--data-dir", dir)
}
