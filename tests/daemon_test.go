package tests

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
)

// programsDir is where the programs are built: a folder of this run, so that nobody
// changes them while the tests restart them.
var programsDir string

func TestMain(m *testing.M) {
	if programsDir = os.Getenv(inLAN); programsDir != "" {
		os.Exit(m.Run()) // they are there already
	}
	code := 1
	var err error
	if programsDir, err = os.MkdirTemp("", "tenure-programs-"); err == nil {
		code = m.Run()
		os.RemoveAll(programsDir)
	}
	os.Exit(code)
}

// programs builds the daemon and the command line tool from this checkout, once.
var programs = sync.OnceValue(func() error {
	if os.Getenv(inLAN) != "" {
		return nil
	}
	out, err := exec.Command("go", "build", "-o", programsDir+"/", "../cmd/tenure", "../cmd/tenured").CombinedOutput()
	if err != nil {
		return errors.New(string(out))
	}
	return nil
})

// program returns the path of a program that was built from this checkout.
func program(t *testing.T, name string) string {
	t.Helper()
	if err := programs(); err != nil {
		t.Fatalf("go build: %v", err)
	}
	return filepath.Join(programsDir, name)
}

// daemon is one process of tenured.
type daemon struct {
	t       *testing.T
	dir     string // its data directory
	address string
	// zkAddress is that of ZooKeeper's protocol, above TLS if there is only that; "" if it
	// is not served.
	zkAddress string
	cmd       *exec.Cmd
	ready     chan [2]string // has its addresses once it is
	drained   chan struct{}  // closed when its output has ended
	output    bytes.Buffer   // its beginning; complete once drained
	log       *os.File       // gets all of it, unless nil
}

// outputMax bounds what is kept of a daemon's output.
const outputMax = 64 << 10

// startDeadline bounds what a daemon may take to be ready.
const startDeadline = 60 * time.Second

// startDaemon starts a daemon on the data directory dir, on a free port of loopback
// unless args say otherwise. It is killed at the end of the test, if not before.
func startDaemon(t *testing.T, dir string, args ...string) *daemon {
	t.Helper()
	d, err := launchDaemon(t, dir, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, &d.output)
	}
	return d
}

// launchDaemon is startDaemon where the daemon may fail to start: the output then says
// why.
func launchDaemon(t *testing.T, dir string, args ...string) (*daemon, error) {
	t.Helper()
	// A flag must not be given twice.
	for _, door := range []string{"--listen", "--zk-listen"} {
		if !slices.Contains(args, door) {
			args = append([]string{door, "127.0.0.1:0"}, args...)
		}
	}
	command := append([]string{program(t, "tenured"), "--data-dir", dir}, args...)
	d := spawnDaemon(t, dir, command...)
	t.Cleanup(d.kill)
	return d, d.await()
}

// spawnDaemon starts the process of a daemon that is ready some time later, if it is. The
// caller ends it.
func spawnDaemon(t *testing.T, dir string, command ...string) *daemon {
	t.Helper()
	return spawnLogged(t, dir, nil, command...)
}

// spawnLogged is spawnDaemon with all output in log, too, unless that is nil.
func spawnLogged(t *testing.T, dir string, log *os.File, command ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, dir: dir, log: log, drained: make(chan struct{}), ready: make(chan [2]string, 1)}
	d.cmd = exec.Command(command[0], command[1:]...)
	d.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TENURE_") })
	output, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	d.cmd.Stdout, d.cmd.Stderr = w, w
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	go d.drain(output)
	return d
}

// await waits until the daemon is ready. One goroutine at a time may call it.
func (d *daemon) await() error {
	if d.address != "" {
		return nil
	}
	timer := time.NewTimer(startDeadline)
	defer timer.Stop()
	select {
	case addresses := <-d.ready:
		d.address, d.zkAddress = addresses[0], addresses[1]
		return nil
	case <-d.drained:
		d.cmd.Wait()
		return errors.New("the daemon ended before it was ready")
	case <-timer.C:
		d.kill()
		return errors.New("the daemon was not ready in " + startDeadline.String())
	}
}

// drain reads the daemon's output to its end and sends the addresses in the ready line.
func (d *daemon) drain(output *os.File) {
	defer close(d.drained)
	defer output.Close()
	pattern := regexp.MustCompile(`\bready listen=(\S+)(?: zk-(?:tls-)?listen=(\S+))?`)
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if d.output.Len() < outputMax {
			d.output.WriteString(lines.Text() + "\n")
		}
		if d.log != nil {
			d.log.WriteString(lines.Text() + "\n")
		}
		if m := pattern.FindStringSubmatch(lines.Text()); m != nil {
			select {
			case d.ready <- [2]string{m[1], m[2]}:
			default: // somebody reads the first only
			}
		}
	}
}

// kill ends the daemon as kill -9 does and waits for it. A second call is harmless.
func (d *daemon) kill() {
	d.cmd.Process.Kill()
	d.cmd.Wait()
	<-d.drained
}

// stop ends the daemon in good order and returns its exit code.
func (d *daemon) stop() int {
	d.t.Helper()
	d.signal(syscall.SIGTERM)
	d.cmd.Wait() // its error is the exit code
	<-d.drained
	return d.cmd.ProcessState.ExitCode()
}

func (d *daemon) signal(sig os.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(sig); err != nil {
		d.t.Fatalf("%v: %v", sig, err)
	}
}

// member is a daemon that is ended and started again on the same data, with another
// port each time. One goroutine may end and start it while any number dials.
type member struct {
	t       *testing.T
	dir     string
	args    []string
	running atomic.Pointer[daemon]
}

// newMember starts a member with an empty data directory, which is kept if the test fails.
func newMember(t *testing.T, args ...string) *member {
	t.Helper()
	parent, err := os.MkdirTemp("", "tenure-member-")
	if err != nil {
		t.Fatal(err)
	}
	m := &member{t: t, dir: filepath.Join(parent, "data"), args: args}
	t.Cleanup(func() {
		if d := m.running.Load(); t.Failed() && d != nil {
			t.Logf("the data are kept in %s; output of the daemon:\n%s", m.dir, &d.output)
			return
		}
		os.RemoveAll(parent)
	})
	m.start()
	return m
}

func (m *member) start() {
	m.t.Helper()
	m.running.Store(startDaemon(m.t, m.dir, m.args...))
}

// crash ends the member as kill -9 does.
func (m *member) crash() { m.running.Load().kill() }

// stop ends the member in good order.
func (m *member) stop() {
	m.t.Helper()
	if d := m.running.Load(); d.stop() != 0 {
		m.t.Fatalf("exit code %d after SIGTERM\n%s", d.cmd.ProcessState.ExitCode(), &d.output)
	}
}

// dial connects to the member, whatever its port is now.
func (m *member) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, m.running.Load().address)
}

// connect opens a session that outlives every crash. It is closed at the end of the test.
func (m *member) connect(o client.Options) *client.Client {
	m.t.Helper()
	if o.Endpoints == nil {
		o.Endpoints = []string{"127.0.0.1:2180"}
	}
	if o.Dial == nil {
		o.Dial = m.dial
	}
	return openSession(m.t, o)
}

// openSession opens a session, of 30 s unless o says otherwise, and closes it at the end of the test.
func openSession(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := client.Connect(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// check runs tenured check on the data of the stopped member.
func (m *member) check() (report string, ok bool) {
	out, err := exec.Command(program(m.t, "tenured"), "check", "--data-dir", m.dir).CombinedOutput()
	return string(out), err == nil
}

// mustBeSound is check where nothing wrong may be found.
func (m *member) mustBeSound(when string) {
	m.t.Helper()
	if report, ok := m.check(); !ok {
		m.t.Fatalf("tenured check %s:\n%s", when, report)
	}
}

// figure returns one of the figures of status.
func figure(t *testing.T, c *client.Client, name string) string {
	t.Helper()
	r, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Figures {
		if f.Name == name {
			return f.Value
		}
	}
	t.Fatalf("status has no figure %q", name)
	return ""
}
