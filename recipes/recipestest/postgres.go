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
// understand. It is stopped and removed with the test. Without PostgreSQL the test is
// skipped, or fails, as PostgresPrograms says.
func StartPostgres(t testing.TB) (dsn string) {
	programs := PostgresPrograms(t)
	dir, as := PostgresDir(t)
	data := filepath.Join(dir, "data")
	ctx, cancel := context.WithTimeout(t.Context(), postgresStart)
	defer cancel()
	initialize := exec.CommandContext(ctx, filepath.Join(programs, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initialize.Dir, initialize.SysProcAttr = dir, &syscall.SysProcAttr{Credential: as}
	if out, err := initialize.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	runPostgres(t, as, dir, filepath.Join(programs, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=60")
	return "host=" + dir + " user=postgres dbname=postgres sslmode=disable"
}

// PostgresPrograms returns the directory of PostgreSQL's programs: where postgres of PATH
// really is, or the newest of those that Debian keeps. Without any the test is skipped, or
// fails if TENURE_REQUIRE_FOREIGN is 1.
func PostgresPrograms(t testing.TB) (dir string) {
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path)
		}
	}
	paths, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres") // the pattern is sound
	if len(paths) > 0 {
		return filepath.Dir(slices.MaxFunc(paths, func(a, b string) int { return postgresVersion(a) - postgresVersion(b) }))
	}
	if os.Getenv("TENURE_REQUIRE_FOREIGN") == "1" {
		t.Fatal("PostgreSQL is not installed")
	}
	t.Skip("PostgreSQL is not installed; TENURE_REQUIRE_FOREIGN=1 makes this an error")
	return ""
}

func postgresVersion(path string) int {
	n, _ := strconv.Atoi(strings.Split(path, "/")[4]) // 0 sorts before any version
	return n
}

// PostgresDir returns a directory, removed with the test, of a user that may run
// PostgreSQL, which does not run as root: then as is the user postgres or nobody, else nil.
// Its name is short, for a socket's path has 107 bytes at most.
func PostgresDir(t testing.TB) (dir string, as *syscall.Credential) {
	dir, err := os.MkdirTemp("", "postgres")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	as = postgresUser(t)
	if as != nil {
		if err := os.Chown(dir, int(as.Uid), int(as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, as
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
