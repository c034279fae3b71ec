package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// asDaemon makes the test binary behave as tenured, so that processes can be tested
// without building a second program.
const asDaemon = "RUN_AS_TENURED"

func TestMain(m *testing.M) {
	if os.Getenv(asDaemon) != "" {
		main()
	}
	os.Exit(m.Run())
}

// startDeadline bounds what a process may take to be ready or to give up.
const startDeadline = 30 * time.Second

// process is one running tenured.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr *lockedBuffer
	ready  string            // the ready line
	fields map[string]string // of the ready line
	rest   *lockedBuffer     // what stdout has after it
	read   sync.WaitGroup
}

// lockedBuffer may be written by a process's pipe while the test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// command prepares a tenured with a clean environment plus env.
func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append([]string{asDaemon + "=1", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir()}, env...)
	return cmd
}

// start starts a server on free ports, but for what a zoo.cfg says of ZooKeeper's, and
// waits for its ready line.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, stderr: &lockedBuffer{}, rest: &lockedBuffer{}, fields: map[string]string{}}
	doors := []string{"--listen", "127.0.0.1:0"}
	if !slices.Contains(args, "--zoo-cfg") {
		doors = append(doors, "--zk-listen", "127.0.0.1:0")
	}
	p.cmd = command(t, env, append(doors, args...)...)
	p.cmd.Stderr = p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	lines := bufio.NewReader(stdout)
	line := make(chan string, 1)
	p.read.Go(func() {
		first, _ := lines.ReadString('\n')
		line <- first
		_, _ = io.Copy(p.rest, lines)
	})
	select {
	case p.ready = <-line:
	case <-time.After(startDeadline):
	}
	if !strings.HasPrefix(p.ready, "tenured ready ") {
		t.Fatalf("no ready line but %q\n%s", p.ready, p.stderr)
	}
	for field := range strings.FieldsSeq(p.ready) {
		if name, value, ok := strings.Cut(field, "="); ok {
			p.fields[name] = value
		}
	}
	return p
}

// stop sends sig and returns the exit code.
func (p *process) stop(sig syscall.Signal) int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
	p.read.Wait()
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

// get fetches a path of the server's HTTP.
func (p *process) get(path string, header http.Header) (int, string) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.fields["listen"]+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// adminToken reads the token of a data directory.
func adminToken(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// finish runs a tenured that ends by itself.
func finish(t *testing.T, env []string, args ...string) (code int, stdout, stderr string, took time.Duration) {
	t.Helper()
	cmd := command(t, env, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(startDeadline, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), out.String(), errs.String(), time.Since(began)
}
