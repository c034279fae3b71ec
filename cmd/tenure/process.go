package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/tenure-dev/tenure/recipes"
)

const (
	// watchdogPeriod is how often a command is judged whatever the news are: they may be
	// late, as when this process was stopped or the machine slept.
	watchdogPeriod = 100 * time.Millisecond
	// killMargin is how long before the deadline SIGKILL is sent, so that it has worked.
	killMargin = 100 * time.Millisecond
)

// commandHelp is what the help texts of all commands that run CMD say about it.
const commandHelp = `CMD runs in a process group of its own. When what is held is about to be lost, because
the server has not answered for too long, the group gets SIGTERM; SIGKILL follows before
somebody else may hold it, or at once if it is lost already. An interrupt or SIGTERM of
this command sends CMD SIGTERM and waits, holding on; a second one sends SIGKILL. What CMD
leaves behind in its group is killed, and only then is the hold released. Standard input
is CMD's unless it is a terminal.

If this command is killed (kill -9), the kernel kills CMD with it (on Linux), but neither
CMD's own children nor a setuid CMD. Ctrl-Z stops and resumes CMD, too, and does nothing
where there are several; SIGSTOP stops this command alone: CMD then runs on without anybody
who judges it until SIGCONT, and only the fencing token protects what it writes to. Send
SIGSTOP to both, or to neither.

TENURE_FENCING_TOKEN is in CMD's environment: pass it on with every write, to a resource
that refuses tokens lower than the highest it has seen.`

// process is a command that runs in a process group of its own.
type process struct {
	cmd     *exec.Cmd
	several bool
	signals chan os.Signal // that this process gets while it runs; attend answers them
	ended   chan struct{}  // closed when it was waited for and its group was killed
	err     error          // what Wait said; read it when ended is closed

	mu   sync.Mutex
	gone bool // its pid may be another's by now
}

// processRun is how one command runs.
type processRun struct {
	what  string // what is held, for people
	argv  []string
	stdin io.Reader
	env   []string
	// several: it is not the only one of this process, which therefore cannot stop with it.
	several bool
}

// findCommand fails if there is no such command to run: before anything is held for it.
func findCommand(argv []string) error {
	if _, err := exec.LookPath(argv[0]); err != nil {
		return &usageError{err.Error()}
	}
	return nil
}

// startProcess starts the command. Flush out before.
func (a *app) startProcess(r processRun) (*process, error) {
	cmd := exec.Command(r.argv[0], r.argv[1:]...)
	cmd.Env = append(os.Environ(), r.env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r.stdin, a.stdout, a.stderr
	cmd.WaitDelay = killDelay
	cmd.SysProcAttr = processAttributes()
	c := &process{cmd: cmd, several: r.several, ended: make(chan struct{}), signals: make(chan os.Signal, 8)}
	// Before it runs: whoever sees it run may signal, and no signal must go uncounted.
	signal.Notify(c.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGTSTP, syscall.SIGCONT)
	started := make(chan error, 1)
	go c.run(started)
	if err := <-started; err != nil {
		signal.Stop(c.signals)
		return nil, &usageError{err.Error()}
	}
	return c, nil
}

// commandInput is standard input for a command: a process group in the background must not
// read a terminal.
func (a *app) commandInput() io.Reader {
	if a.stdinIsTerminal {
		return nil
	}
	return a.stdin
}

// run is the goroutine of the command. It keeps its thread, with which the command dies.
func (c *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.ended)
	err := c.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	if awaitExit(c.cmd.Process.Pid) {
		c.kill() // what it left behind
		c.setGone()
	}
	c.err = c.cmd.Wait()
	c.setGone()
}

func (c *process) setGone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
}

// signal sends sig to the process group. That nobody is left to get it is no matter.
func (c *process) signal(sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		_ = syscall.Kill(-c.cmd.Process.Pid, sig)
	}
}

func (c *process) kill() { c.signal(syscall.SIGKILL) }

// terminate asks the group to end, which it must be running for.
func (c *process) terminate() {
	c.signal(syscall.SIGTERM)
	c.signal(syscall.SIGCONT)
}

// outcome is how it ended, for the exit code: its own, or 128 and the signal's number.
func (c *process) outcome() error {
	exit, exited := errors.AsType[*exec.ExitError](c.err)
	if !exited {
		return c.err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return &childExit{128 + int(status.Signal())}
	}
	return &childExit{exit.ExitCode()}
}

// attendance is a command that must not outlive a tenure. It belongs to one goroutine.
type attendance struct {
	*process
	tenure     *recipes.Tenure // nil: nothing is held that can be lost
	stopping   func(why error) // told once, when the tenure makes the command end
	why        error           // that reason
	interrupts int             // signals that asked for the end
}

// attend waits for the command to end and sees to it that it does not outlive t, which may
// be nil. The end of ctx is an interrupt. It returns why the command was stopped if t was
// the reason, and has told stopping before.
func (c *process) attend(ctx context.Context, t *recipes.Tenure, stopping func(why error)) error {
	a := attendance{process: c, tenure: t, stopping: stopping}
	defer signal.Stop(c.signals)
	tick := time.NewTicker(watchdogPeriod)
	defer tick.Stop()
	var ending, over <-chan struct{}
	if t != nil {
		ending, over = t.Context().Done(), t.Done()
	}
	interrupted := ctx.Done()
	var deadline <-chan time.Time
	for {
		select {
		case <-c.ended:
			return a.why
		case <-interrupted:
			interrupted = nil
			c.terminate()
		case <-ending:
			ending = nil
			a.note()
			c.terminate()
			deadline = time.After(untilKill(t))
		case <-deadline:
			c.kill()
		case <-over:
			over = nil
			a.killIfOver()
		case <-tick.C:
			a.killIfOver()
		case sig := <-c.signals:
			a.answer(sig)
		}
	}
}

// note tells why the command is stopped.
func (a *attendance) note() {
	if a.why == nil {
		a.why = context.Cause(a.tenure.Context())
		a.stopping(a.why)
	}
}

// untilKill is when to kill, from now: a little before the deadline, which does not move
// any more.
func untilKill(t *recipes.Tenure) time.Duration {
	left := max(0, time.Until(t.Deadline()))
	return left - min(killMargin, left/4)
}

// killIfOver ends what the tenure does not cover any more.
func (a *attendance) killIfOver() (killed bool) {
	if a.tenure == nil || a.tenure.Check() == nil {
		return false
	}
	a.kill()
	a.note()
	return true
}

// answer does what a signal asks for.
func (a *attendance) answer(sig os.Signal) {
	switch sig {
	case syscall.SIGCONT:
		a.killIfOver()
	case syscall.SIGTSTP:
		if a.several {
			return
		}
		a.signal(syscall.SIGSTOP)
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // we go on behind it
		if !a.killIfOver() {
			a.signal(syscall.SIGCONT)
		}
	default:
		if a.interrupts++; a.interrupts > 1 { // the first comes as the end of ctx
			a.kill()
		}
	}
}
