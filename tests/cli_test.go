package tests

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cliServer is a daemon for tests of the command line tool.
type cliServer struct{ *daemon }

// newCLIServer starts a daemon with a new data directory on a free port of loopback.
func newCLIServer(t *testing.T) *cliServer {
	return startCLIServer(t, filepath.Join(t.TempDir(), "data"))
}

// startCLIServer starts a daemon on the data directory dir. It is killed at the end of
// the test, if not before.
func startCLIServer(t *testing.T, dir string) *cliServer {
	t.Helper()
	return &cliServer{startDaemon(t, dir)}
}

// restart kills the daemon and starts it again on the same data.
func (s *cliServer) restart() *cliServer {
	s.t.Helper()
	s.kill()
	return startCLIServer(s.t, s.dir)
}

// token is the file with the daemon's admin token.
func (s *cliServer) token() string { return filepath.Join(s.dir, "admin.token") }

// command prepares a run of the tool against the daemon. It is killed after 60 s.
func (s *cliServer) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	s.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program(s.t, "tenure"), args...)
	cmd.Env = append(os.Environ(), "TENURE_ENDPOINTS="+s.address, "TENURE_AUTH=", "TENURE_TOKEN_FILE=")
	cmd.Dir = filepath.Dir(s.dir)
	return cmd
}

// run runs the tool with stdin and returns its exit code and what it printed.
func (s *cliServer) run(stdin string, args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	cmd := s.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("tenure %q: %v", args, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// must runs the tool, wants exit code 0, and returns its standard output.
func (s *cliServer) must(args ...string) string {
	s.t.Helper()
	return s.mustRead("", args...)
}

// mustRead is must with a standard input.
func (s *cliServer) mustRead(stdin string, args ...string) string {
	s.t.Helper()
	code, stdout, stderr := s.run(stdin, args...)
	if code != 0 {
		s.t.Fatalf("tenure %q: exit %d, %s", args, code, stderr)
	}
	return stdout
}

// interrupt starts the tool, waits until ready says that it is at work, sends SIGINT and
// returns its exit code and how long it took to end.
func (s *cliServer) interrupt(cmd *exec.Cmd, ready func()) (code int, took time.Duration) {
	s.t.Helper()
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ready()
	sent := time.Now()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		s.t.Fatal(err)
	}
	cmd.Wait() // its error is the exit code
	return cmd.ProcessState.ExitCode(), time.Since(sent)
}
