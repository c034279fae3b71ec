//go:build unix

package recipestest

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// postgresStart bounds the start and the stop of a PostgreSQL server.
const postgresStart = time.Minute

// StartPostgres starts a PostgreSQL server with an empty database of its own, on a socket
// that only this machine can reach, and returns the connection string that drivers
// understand. It is stopped and removed with the test. The programs are found on PATH or
// where Debian keeps them; without them the test is skipped, or fails if
// TENURE_REQUIRE_FOREIGN is 1. PostgreSQL does not run as root: then the user postgres or
// nobody runs it.
func StartPostgres(t testing.TB) (dsn string) {
	initdb, postgres := findPostgres("initdb"), findPostgres("postgres")
	if initdb == "" || postgres == "" {
		if os.Getenv("TENURE_REQUIRE_FOREIGN") == "1" {
			t.Fatal("PostgreSQL is not installed")
		}
		t.Skip("PostgreSQL is not installed; TENURE_REQUIRE_FOREIGN=1 makes this an error")
	}
	// A short name, for a socket's path has 107 bytes at most.
	dir, err := os.MkdirTemp("", "postgres")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	as := postgresUser(t)
	if as != nil {
		if err := os.Chown(dir, int(as.Uid), int(as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(dir, "data")
	ctx, cancel := context.WithTimeout(t.Context(), postgresStart)
	defer cancel()
	initialize := exec.CommandContext(ctx, initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initialize.Dir, initialize.SysProcAttr = dir, &syscall.SysProcAttr{Credential: as}
	if out, err := initialize.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	runPostgres(t, as, dir, postgres, "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=60")
	return "host=" + dir + " user=postgres dbname=postgres sslmode=disable"
}

// findPostgres returns the path of a program of PostgreSQL, the newest of several, or "".
func findPostgres(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	paths, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name) // the pattern is sound
	if len(paths) == 0 {
		return ""
	}
	return slices.MaxFunc(paths, func(a, b string) int { return postgresVersion(a) - postgresVersion(b) })
}

func postgresVersion(path string) int {
	n, _ := strconv.Atoi(strings.Split(path, "/")[4]) // 0 sorts before any version
	return n
}

// postgresUser returns who is to run the server, or nil if that is who runs the test.
func postgresUser(t testing.TB) *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	t.Fatal("PostgreSQL does not run as root, and there is no user postgres or nobody")
	return nil
}

// runPostgres runs the server until the test ends and returns when it is ready.
func runPostgres(t testing.TB, as *syscall.Credential, dir, name string, args ...string) {
	server := exec.Command(name, args...)
	server.Dir, server.SysProcAttr = dir, &syscall.SysProcAttr{Credential: as}
	server.Env = append(os.Environ(), "LC_ALL=C", "LC_MESSAGES=C")
	log, err := server.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan struct{}), make(chan string, 1)
	go func() { // ends with the server
		defer close(ended)
		var said bytes.Buffer
		for lines := bufio.NewReader(log); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				break
			}
			said.WriteString(line)
			if strings.Contains(line, "database system is ready to accept connections") {
				close(ready)
				_, _ = io.Copy(io.Discard, lines) // until the pipe is closed
				break
			}
		}
		_ = server.Wait() // it was told to end, or its log says why it did
		ended <- said.String()
	}()
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT) // at once, its children too; it may have ended
		select {
		case <-ended:
		case <-time.After(postgresStart):
			t.Error("PostgreSQL does not end")
		}
	})
	select {
	case <-ready:
	case said := <-ended:
		t.Fatalf("PostgreSQL ended at its start:\n%s", said)
	case <-time.After(postgresStart):
		t.Fatal("PostgreSQL did not become ready")
	}
}
