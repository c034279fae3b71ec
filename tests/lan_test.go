package tests

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// inLAN is set in the process in which a test has a network of its own.
const inLAN = "TENURE_LAN"

// runInLAN runs the test once more in a process that has a network of its own, and returns
// true in that process. It needs the rights of root and the program ip; where they are
// missing the test is skipped; TENURE_REQUIRE_FOREIGN=1 makes it fail.
func runInLAN(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inLAN) != "" {
		return true
	}
	if err := exec.Command("unshare", "-n", "-m", "ip", "link", "add", "switch", "type", "bridge").Run(); err != nil {
		if os.Getenv("TENURE_REQUIRE_FOREIGN") == "1" {
			t.Fatalf("a network namespace with a bridge: %v", err)
		}
		t.Skipf("a network namespace with a bridge: %v; TENURE_REQUIRE_FOREIGN=1 makes this an error", err)
	}
	if err := programs(); err != nil {
		t.Fatal(err)
	}
	timeout := "0"
	if deadline, ok := t.Deadline(); ok { // before this process dies of its own and cannot end it
		timeout = time.Until(deadline.Add(-10 * time.Second)).String()
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "-n", "-m", os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", timeout)
	cmd.Env = append(os.Environ(), inLAN+"="+programsDir)
	// What it starts ends with it: nobody else knows of its namespaces.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if cmd.Process != nil {
		_ = cmd.Cancel() // members that it has left, if it died
	}
	t.Logf("in a network of its own:\n%s", out.Bytes())
	if err != nil {
		t.Error(err)
	}
	return false
}

// lan is hosts on one switch, each a network namespace, and this process on a port of
// its own. Hosts are numbered from 1.
type lan struct{ t *testing.T }

// newLAN makes hosts in the network of this process, which must be its own.
func newLAN(t *testing.T, hosts int) *lan {
	t.Helper()
	l := &lan{t}
	// Where ip keeps namespaces: nobody else's, so that they end with this process.
	if err := errors.Join(os.MkdirAll("/run/netns", 0o755), syscall.Mount("tmpfs", "/run/netns", "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	l.ip("link set lo up")
	l.ip("link add switch type bridge")
	l.ip("addr add 10.9.0.254/24 dev switch")
	l.ip("link set switch up")
	for i := 1; i <= hosts; i++ {
		l.ip("netns add host%d", i)
		l.ip("link add port%d type veth peer name eth0 netns host%d", i, i)
		l.ip("link set port%d master switch up", i)
		l.ip("-n host%d addr add %s/24 dev eth0", i, l.address(i))
		l.ip("-n host%d link set eth0 up", i)
		l.ip("-n host%d link set lo up", i)
	}
	return l
}

func (l *lan) address(host int) string { return fmt.Sprintf("10.9.0.%d", host) }

// command runs a command on a host.
func (l *lan) command(host int, command ...string) []string {
	return append([]string{"ip", "netns", "exec", fmt.Sprintf("host%d", host)}, command...)
}

func (l *lan) ip(format string, args ...any) {
	l.t.Helper()
	words := strings.Fields(fmt.Sprintf(format, args...))
	if out, err := exec.Command("ip", words...).CombinedOutput(); err != nil {
		l.t.Fatalf("ip %v: %v\n%s", words, err, out)
	}
}

// pull pulls a host's cable out of the switch: nothing arrives and nothing is refused.
func (l *lan) pull(host int) { l.t.Helper(); l.ip("link set port%d nomaster", host) }

// plug ends pull.
func (l *lan) plug(host int) { l.t.Helper(); l.ip("link set port%d master switch", host) }

// lose throws away what one host sends to another.
func (l *lan) lose(from, to int) {
	l.t.Helper()
	l.ip("-n host%d route add blackhole %s/32", from, l.address(to))
}

// deliver ends lose.
func (l *lan) deliver(from, to int) {
	l.t.Helper()
	l.ip("-n host%d route del blackhole %s/32", from, l.address(to))
}

// newLANEnsemble makes an ensemble with a member on each of three hosts.
func newLANEnsemble(t *testing.T, l *lan) *ensemble {
	t.Helper()
	e := &ensemble{t: t}
	var founders []string
	dirs := e.keep(3)
	e.endWithTest()
	for i, dir := range dirs {
		m, host := e.add(dir), l.address(i+1)
		m.http, m.zk, m.peer = host+":2180", host+":2181", host+":2182"
		founders = append(founders, fmt.Sprintf("%d=%s", m.id, m.peer))
	}
	for _, m := range e.members {
		m.command = l.command(m.id, program(t, "tenured"), "--data-dir", m.dir, "--member-id", fmt.Sprint(m.id),
			"--listen", m.http, "--zk-listen", m.zk, "--peer-listen", m.peer, "--insecure",
			"--initial-members", strings.Join(founders, ","))
	}
	return e
}
