//go:build linux

package tests

import (
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// zkServer is what judged is, for an application: at one address for good, since its
// configuration names it, and away between crash and start.
type zkServer struct {
	address string
	crash   func() // as kill -9 does
	start   func() // returns when it serves
}

// startZKServer starts Tenure, or real ZooKeeper with TENURE_JUDGED=zookeeper.
func startZKServer(t *testing.T) zkServer {
	t.Helper()
	if os.Getenv("TENURE_JUDGED") == "zookeeper" {
		z := recipestest.StartZooKeeper(t, recipestest.ZooKeeperOptions{TickTime: 2 * time.Second})
		return zkServer{z.Addrs()[0], func() { z.Stop(0) }, func() {
			if err := z.Start(0); err != nil {
				t.Fatal(err)
			}
		}}
	}
	address := fmt.Sprintf("127.0.0.1:%d", freePorts(t, 1)[0])
	m := newMember(t, "--zk-listen", address)
	return zkServer{address, m.crash, m.start}
}

// connect opens a session of the test's own, which ends with the test.
func (s zkServer) connect(t *testing.T) *zk.Conn {
	t.Helper()
	c, _, err := zk.Connect([]string{s.address}, 10*time.Second, zk.WithLogger(log.New(io.Discard, "", 0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports, err := recipestest.FreePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

// writeTemplate fills in tests/testdata/NAME and writes it to dir/NAME.
func writeTemplate(t *testing.T, dir, name string, values any) {
	t.Helper()
	var text strings.Builder
	if err := template.Must(template.ParseFiles(filepath.Join("testdata", name))).Execute(&text, values); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// application is a program in a directory of its own, and whatever it starts there.
// One goroutine uses it.
type application struct {
	t       *testing.T
	name    string
	dir     string
	as      *syscall.Credential // nil: who runs the test
	command []string
	output  tail
	ended   chan struct{} // closed when the program and all that it started have ended; nil at first
}

// start starts the program. It is killed with the test, which shows its output if it fails.
func (a *application) start() {
	a.t.Helper()
	if a.ended == nil {
		a.t.Cleanup(func() {
			a.crash()
			if a.t.Failed() {
				a.t.Logf("the output of %s ends:\n%s", a.name, a.output.text())
			}
		})
	}
	cmd := exec.Command(a.command[0], a.command[1:]...)
	cmd.Dir = a.dir
	// What it starts has the same output, so that Wait returns after the last of them.
	cmd.Stdout, cmd.Stderr = &a.output, &a.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.as, Pdeathsig: syscall.SIGTERM}
	started, ended := make(chan error), make(chan struct{})
	a.ended = ended
	go func() {
		// The kernel's "parent" is the thread that started it, so that is kept.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait() // its error is the state
			fmt.Fprintln(&a.output, "ended:", cmd.ProcessState)
		}
	}()
	if err := <-started; err != nil {
		a.t.Fatalf("%s: %v", a.name, err)
	}
}

// crash ends the program and all that it started, as kill -9 does. A second call is harmless.
func (a *application) crash() {
	a.t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-a.ended:
			return
		default:
		}
		for _, pid := range a.processes() {
			syscall.Kill(pid, syscall.SIGKILL) // an error says that it has ended
		}
		select {
		case <-tick.C:
		case <-deadline:
			a.t.Fatalf("%s does not end", a.name)
		}
	}
}

// processes returns the processes that work in the application's directory: no process
// group holds all that daemons start.
func (a *application) processes() (pids []int) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd") // the pattern is sound
	for _, link := range links {
		cwd, err := os.Readlink(link)
		if err == nil && (cwd == a.dir || strings.HasPrefix(cwd, a.dir+"/")) {
			pid, _ := strconv.Atoi(strings.Split(link, "/")[2]) // it is digits
			pids = append(pids, pid)
		}
	}
	return pids
}

// tail is a writer that keeps the end of what is written. Any goroutine may use it.
type tail struct {
	mu   sync.Mutex
	last []byte
}

func (b *tail) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = append(b.last, p...)
	if len(b.last) > 2*outputMax {
		b.last = append([]byte(nil), b.last[len(b.last)-outputMax:]...)
	}
	return len(p), nil
}

func (b *tail) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.last)
}

// await waits until holds returns nil and says how long it took.
func await(t *testing.T, within time.Duration, what string, holds func() error) {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := holds()
		if err == nil {
			t.Logf("%v until %s", time.Since(start).Round(10*time.Millisecond), what)
			return
		}
		if time.Since(start) > within {
			t.Fatalf("not within %v: %s: %v", within, what, err)
		}
		<-tick.C
	}
}

// work is something done again and again by one goroutine, each until it has succeeded.
type work struct {
	stop chan struct{}
	done chan struct{}
	mu   struct {
		sync.Mutex
		progress
	}
}

// progress is how far a work has come.
type progress struct {
	done   int           // so many succeeded
	failed int           // so many attempts did not
	last   error         // why the last of them did not
	pause  time.Duration // the longest time between two successes
}

// startWork begins with do(1).
func startWork(t *testing.T, do func(n int) error) *work {
	w := &work{stop: make(chan struct{}), done: make(chan struct{})}
	t.Cleanup(func() { w.end() })
	go func() {
		defer close(w.done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		succeeded := time.Now()
		for n := 1; ; {
			err := do(n)
			w.mu.Lock()
			if err == nil {
				w.mu.done, w.mu.pause = n, max(w.mu.pause, time.Since(succeeded))
				succeeded = time.Now()
				n++
			} else {
				w.mu.failed, w.mu.last = w.mu.failed+1, err
			}
			w.mu.Unlock()
			select {
			case <-w.stop:
				return
			case <-tick.C:
			}
		}
	}()
	return w
}

// end returns what has been done when the last attempt has ended. It may be called again.
func (w *work) end() progress {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	<-w.done
	return w.progress()
}

func (w *work) progress() progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.progress
}

// goesOn waits until n more have succeeded.
func (w *work) goesOn(t *testing.T, n int) {
	t.Helper()
	before := w.progress()
	await(t, time.Minute, fmt.Sprintf("%d more writes are done", n), func() error {
		if now := w.progress(); now.done < before.done+n {
			return fmt.Errorf("%d done, %d failed: %w", now.done-before.done, now.failed-before.failed, now.last)
		}
		return nil
	})
}
