package tests

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// programs builds the daemon and the command line tool from this checkout, once, and
// returns the folder that they are in.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs(filepath.Join("..", "bin"))
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", dir+"/", "../cmd/tenure", "../cmd/tenured").CombinedOutput()
	if err != nil {
		return "", errors.New(string(out))
	}
	return dir, nil
})

// program returns the path of a program that was built from this checkout.
func program(t *testing.T, name string) string {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatalf("go build: %v", err)
	}
	return filepath.Join(dir, name)
}

// cliServer is a daemon for tests of the command line tool.
type cliServer struct {
	t       *testing.T
	dir     string // its data directory
	address string
	cmd     *exec.Cmd
	drained chan struct{} // closed when its output has ended
}

// newCLIServer starts a daemon with a new data directory on a free port of loopback.
func newCLIServer(t *testing.T) *cliServer {
	return startCLIServer(t, filepath.Join(t.TempDir(), "data"))
}

// startCLIServer starts a daemon on the data directory dir. It is killed at the end of
// the test, if not before.
func startCLIServer(t *testing.T, dir string) *cliServer {
	t.Helper()
	s := &cliServer{t: t, dir: dir, drained: make(chan struct{})}
	s.cmd = exec.Command(program(t, "tenured"), "--data-dir", dir, "--listen", "127.0.0.1:0")
	output, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stdout, s.cmd.Stderr = w, w
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	ready := make(chan string, 1)
	go s.drain(output, ready)
	t.Cleanup(s.kill)
	select {
	case s.address = <-ready:
	case <-s.drained:
		t.Fatal("the daemon ended before it was ready")
	case <-time.After(30 * time.Second):
		t.Fatal("the daemon was not ready within 30 s")
	}
	return s
}

// drain reads the daemon's output to its end and sends the address in the ready line.
func (s *cliServer) drain(output *os.File, ready chan<- string) {
	defer close(s.drained)
	defer output.Close()
	pattern := regexp.MustCompile(`\bready .*?listen=(\S+)`)
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if m := pattern.FindStringSubmatch(lines.Text()); m != nil {
			select {
			case ready <- m[1]:
			default: // it says so twice, to people and to the log
			}
		}
	}
}

// kill ends the daemon as kill -9 does and waits for it. A second call is harmless.
func (s *cliServer) kill() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
	<-s.drained
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
