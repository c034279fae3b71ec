package tests

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// recipeCLI is a server for the commands of recipes.
type recipeCLI struct {
	*cliServer
	protocol recipestest.Protocol
}

// onRecipeServers runs a test on a tenured and on a real ZooKeeper.
func onRecipeServers(t *testing.T, test func(t *testing.T, s *recipeCLI)) {
	t.Run("tenure", func(t *testing.T) {
		test(t, &recipeCLI{newCLIServer(t), recipestest.TenureWire})
	})
	t.Run("zookeeper", func(t *testing.T) {
		s, _ := zkCLI(t, "")
		test(t, &recipeCLI{s, recipestest.ZooKeeperWire})
	})
}

// behindProxy is the same server at the address of a proxy.
func (s *recipeCLI) behindProxy() (*recipeCLI, *recipestest.Proxy) {
	s.t.Helper()
	x := recipestest.NewProxy(s.t, strings.TrimPrefix(s.address, "zk://"), s.protocol)
	d := *s.daemon
	d.address = strings.Replace(s.address, strings.TrimPrefix(s.address, "zk://"), x.Addr(), 1)
	return &recipeCLI{&cliServer{&d}, s.protocol}, x
}

// tool is a running command.
type tool struct {
	t         *testing.T
	cmd       *exec.Cmd
	out, errs <-chan string // lines, closed at the end
}

// start runs the tool in the background. It is killed at the end of the test, if not
// before.
func (s *recipeCLI) start(args ...string) *tool {
	s.t.Helper()
	c := &tool{t: s.t, cmd: s.command(args...)}
	var out, errs *os.File
	c.out, out = lineStream(s.t)
	c.errs, errs = lineStream(s.t)
	c.cmd.Stdout, c.cmd.Stderr = out, errs
	if err := c.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	out.Close()
	errs.Close()
	s.t.Cleanup(func() {
		if c.cmd.ProcessState == nil {
			c.cmd.Process.Kill()
			c.cmd.Wait() // it was killed
		}
	})
	return c
}

// lineStream returns the lines that are written to w, up to 1000 unread ones.
func lineStream(t *testing.T) (<-chan string, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		defer r.Close()
		for s := bufio.NewScanner(r); s.Scan(); {
			lines <- s.Text()
		}
		_, _ = io.Copy(io.Discard, r)
	}()
	return lines, w
}

// lineLimit bounds what a line may be waited for.
const lineLimit = 40 * time.Second

// until reads lines up to the first that contains want, and returns it.
func until(t *testing.T, lines <-chan string, want string) string {
	t.Helper()
	limit := time.After(lineLimit)
	var seen []string
	for {
		select {
		case line, ok := <-lines:
			if ok && strings.Contains(line, want) {
				return line
			}
			if seen = append(seen, line); !ok {
				t.Fatalf("no line %q, but %q and the end", want, seen)
			}
		case <-limit:
			t.Fatalf("no line %q within %v, but %q", want, lineLimit, seen)
		}
	}
}

func (c *tool) signal(sig os.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatal(err)
	}
}

// exit waits for the end of the tool and returns its code.
func (c *tool) exit() int {
	c.cmd.Wait() // its error is the code
	return c.cmd.ProcessState.ExitCode()
}

// pid reads the pid that a command prints behind "pid".
func (c *tool) pid() int {
	c.t.Helper()
	line := until(c.t, c.out, "pid ")
	pid, err := strconv.Atoi(strings.TrimPrefix(line, "pid "))
	if err != nil {
		c.t.Fatal(err)
	}
	return pid
}

// processRuns reports whether a process runs.
func processRuns(pid int) bool { return syscall.Kill(pid, 0) == nil }

// stubborn is a command that prints its pid, says when it is asked to end, and does not.
const stubborn = `trap 'echo asked' TERM; echo pid $$; while :; do sleep 0.05; done`

// willing is a command that prints its pid and ends with 4 when it is asked to.
const willing = `trap 'exit 4' TERM; echo pid $$; while :; do sleep 0.05; done`

// after is a command that says whether the process pid still runs.
func after(pid int) string {
	return fmt.Sprintf("kill -0 %d 2>/dev/null && echo overlap || echo alone", pid)
}

// Goal: CMD's exit code is passed on, 128+n for a signal, and each tenure has a higher
// token. Method: commands that print their environment and end in each way.
func TestElectAndLockPassOnExitCodes(t *testing.T) {
	onRecipeServers(t, func(t *testing.T, s *recipeCLI) {
		for _, verb := range []string{"elect", "lock", "lease"} {
			last := 0
			for range 3 {
				code, stdout, stderr := s.run("", verb, "name", "--", "sh", "-c", `echo $TENURE_FENCING_TOKEN; exit 3`)
				token, err := strconv.Atoi(strings.TrimSpace(stdout))
				if code != 3 || err != nil || token <= last {
					t.Fatalf("%s: exit %d, token %q after %d, %s", verb, code, stdout, last, stderr)
				}
				last = token
			}
			if code, _, stderr := s.run("", verb, "name", "--", "sh", "-c", "kill -TERM $$"); code != 128+15 {
				t.Errorf("%s: exit %d of a command that a signal ended, %s", verb, code, stderr)
			}
			s.must(verb, "name", "--", "true")
		}
		if got := s.must("elect", "/some/path", "--", "sh", "-c", "echo $TENURE_ELECTION $TENURE_PATH"); got != "/some/path /some/path\n" {
			t.Errorf("environment: %q", got)
		}
		if code, _, stderr := s.run("", "elect", "name", "--", "/no/such/command"); code != 2 {
			t.Errorf("exit %d for no command, %s", code, stderr)
		}
	})
}

// Goal: a clean end hands over at once. Method: a session timeout of 10 s, and a next
// leader that must be there long before.
func TestElectHandsOverAtOnce(t *testing.T) {
	onRecipeServers(t, func(t *testing.T, s *recipeCLI) {
		first := s.start("elect", "e", "--id", "first", "--", "sh", "-c", willing)
		pid := first.pid()
		observer := s.start("elect", "--observe", "e")
		until(t, observer.out, "leader first, token ")
		second := s.start("elect", "e", "--id", "second", "--", "sh", "-c", after(pid)+"; "+willing)
		until(t, observer.out, "candidates 2")
		sent := time.Now()
		first.signal(syscall.SIGTERM)
		if line := until(t, second.out, ""); line != "alone" {
			t.Errorf("the next leader says %q", line)
		}
		if took := time.Since(sent); took > 3*time.Second { // the session would have lasted 10 s, or 4
			t.Errorf("handed over after %v", took)
		}
		if code := first.exit(); code != 130 {
			t.Errorf("exit %d after SIGTERM", code)
		}
		until(t, observer.out, "leader second, token ")
		second.signal(syscall.SIGINT)
		until(t, observer.out, "nobody leads")
	})
}

// Goal: a leader that is cut off asks its command to end before the deadline, kills it at
// the deadline, and only then does another lead; when it is back it is a candidate again.
// Method: a partition and a command that ignores SIGTERM.
func TestElectKillsAtTheDeadline(t *testing.T) {
	onRecipeServers(t, func(t *testing.T, s *recipeCLI) {
		cut, proxy := s.behindProxy()
		first := cut.start("elect", "e", "--session-timeout", "3s", "--", "sh", "-c", stubborn)
		pid := first.pid()
		proxy.Partition()
		second := s.start("elect", "e", "--", "sh", "-c", after(pid)+"; "+willing)
		until(t, first.errs, "lost: no renewal was answered")
		until(t, first.out, "asked")
		if line := until(t, second.out, ""); line != "alone" {
			t.Errorf("the next leader says %q", line)
		}
		proxy.Heal()
		second.pid()
		second.signal(syscall.SIGTERM)
		if next := first.pid(); next == pid {
			t.Errorf("the same command leads again")
		}
	})
}

// Goal: kill -9 of the tool ends its command, too, and the next one leads without it.
// Method: kill it.
func TestElectKilledTakesItsCommandAlong(t *testing.T) {
	onRecipeServers(t, func(t *testing.T, s *recipeCLI) {
		first := s.start("elect", "e", "--session-timeout", "2s", "--", "sh", "-c", stubborn)
		pid := first.pid()
		second := s.start("elect", "e", "--", "sh", "-c", after(pid))
		first.signal(syscall.SIGKILL)
		first.exit()
		if line := until(t, second.out, ""); line != "alone" {
			t.Errorf("the next leader says %q", line)
		}
		if code := second.exit(); code != 0 {
			t.Errorf("exit %d", code)
		}
	})
}

// Goal: a tool that was stopped past its deadline kills its command as soon as it goes on,
// and exits with 7 if it shall not try again. Method: SIGSTOP until another leads, SIGCONT.
func TestElectJudgesAfterAStop(t *testing.T) {
	onRecipeServers(t, func(t *testing.T, s *recipeCLI) {
		first := s.start("elect", "e", "--once", "--session-timeout", "2s", "--", "sh", "-c", stubborn)
		pid := first.pid()
		first.signal(syscall.SIGSTOP)
		if line := until(t, s.start("elect", "e", "--", "sh", "-c", after(pid)).out, ""); line != "overlap" {
			t.Errorf("the command of a stopped tool is said to be stopped too: %q", line)
		}
		first.signal(syscall.SIGCONT)
		if code := first.exit(); code != 7 {
			t.Errorf("exit %d", code)
		}
		if processRuns(pid) {
			t.Errorf("the command outlived its tool")
		}
	})
}

// Goal: a second signal kills what ignores the first, what CMD leaves behind goes with it,
// and the lock is free then. Method: both.
func TestLockSecondSignalKills(t *testing.T) {
	onRecipeServers(t, func(t *testing.T, s *recipeCLI) {
		held := s.start("lock", "l", "--", "sh", "-c", stubborn)
		pid := held.pid()
		held.signal(syscall.SIGINT)
		until(t, held.out, "asked")
		if !processRuns(pid) {
			t.Fatal("the first signal killed the command")
		}
		held.signal(syscall.SIGINT)
		if code := held.exit(); code != 130 || processRuns(pid) {
			t.Errorf("exit %d, and the command lives: %v", code, processRuns(pid))
		}
		stays := filepath.Join(t.TempDir(), "pid")
		s.must("lock", "--try", "l", "--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $! >"+stays)
		text, err := os.ReadFile(stays)
		if err != nil {
			t.Fatal(err)
		}
		left, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		for limit := time.Now().Add(10 * time.Second); processRuns(left) && !isZombie(left); {
			if time.Now().After(limit) {
				t.Fatal("what the command left behind lives on")
			}
		}
	})
}

// isZombie reports whether the process has ended and nobody has waited for it.
func isZombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(text), ") Z ")
}
