package tests

import (
	"bufio"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// listenOnce returns the address of a port of loopback; dead = nobody listens on it.
func listenOnce(t *testing.T, dead bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if dead {
		l.Close()
	} else {
		t.Cleanup(func() { l.Close() })
	}
	return l.Addr().String()
}

// Goal: who cannot connect to a ZooKeeper learns to whom and why, within the time given.
// Method: a dead port, a silent server, one of two that is dead, a Tenure server, TLS to a
// plain port, a name that does not resolve, and a root that does not exist.
func TestC149ZooKeeperSaysWhomAndWhy(t *testing.T) {
	s, _ := zkCLI(t, "")
	tenure := newCLIServer(t)
	alive := strings.TrimPrefix(s.address, "zk://")
	dead, silent := listenOnce(t, true), listenOnce(t, false)
	for _, test := range []struct {
		address string // behind zk://
		flags   string
		code    int
		want    string
	}{
		{dead, "", 5, "connection refused"},
		{silent, "", 5, "no answer"},
		{dead + "," + silent, "", 5, "no session with " + dead + ", " + silent},
		{tenure.address, "", 5, "no answer"},
		{alive, "--insecure-skip-verify", 5, "TLS"},
		{"nosuch.invalid:1", "", 5, "nosuch.invalid"},
		{alive + "/missing", "", 4, "get /a on " + alive + "/missing: no node"},
		{alive, "--token-file x", 2, "--token-file"},
		{alive + "/a//b", "", 2, "empty element"},
		{alive + "/a,other:1", "", 2, "last server"},
	} {
		began := time.Now()
		line := append(strings.Fields("get /a --timeout 1500ms "+test.flags), "--endpoint", "zk://"+test.address)
		code, stdout, stderr := s.run("", line...)
		took := time.Since(began)
		if code != test.code || stdout != "" || !strings.Contains(stderr, test.address[:strings.IndexAny(test.address, ",/")+1]) || !strings.Contains(stderr, test.want) {
			t.Errorf("%s %s: exit %d, %q; want %d and %q", test.address, test.flags, code, stderr, test.code, test.want)
		}
		if took > 5*time.Second {
			t.Errorf("%s: took %v, the limit was 1.5 s", test.address, took)
		}
	}
	if code, _, stderr := s.run("", "get", "/", "--endpoint", "zk://"+dead+","+alive); code != 0 {
		t.Errorf("one of two servers is dead: exit %d, %q", code, stderr)
	}
	if code, _, stderr := s.run("", "get", "/", "--endpoint", "zk://"+dead, "--endpoint", s.address); code != 0 {
		t.Errorf("one of two endpoints is dead: exit %d, %q", code, stderr)
	}
}

// Goal: a command that only Tenure has ends at once on a ZooKeeper, names itself and says
// why. Method: each of them; there is no server.
func TestTenureOnlyCommandsRefuseZooKeeper(t *testing.T) {
	s := &cliServer{&daemon{t: t, dir: t.TempDir() + "/none", address: "zk://" + listenOnce(t, true)}}
	for _, line := range []string{"status", "sessions", "sessions kill 0x1", "snapshot save x", "bench", "version --servers"} {
		code, stdout, stderr := s.run("", strings.Fields(line)...)
		name := strings.TrimSuffix(strings.TrimSuffix(line, " 0x1"), " x")
		if code != 2 || stdout != "" || !strings.HasPrefix(stderr, "tenure: "+name+": ZooKeeper has no such operation") {
			t.Errorf("%s: exit %d, %q", line, code, stderr)
		}
	}
}

// Goal: what became of a write whose answer is lost is said to be unknown, with 5, and
// never to have failed. Method: the proxy drops the answer after the server has done it.
func TestLostAnswerOfZooKeeperIsUnknown(t *testing.T) {
	s, z := zkCLI(t, "")
	s.must("create", "/a", "before")
	p := recipestest.NewProxy(t, z.Addrs()[0], recipestest.ZooKeeperWire)
	at := "zk://" + p.Addr()
	for line, kind := range map[string]recipestest.OpKind{
		"set /a after": recipestest.Set, "create /b": recipestest.Create, "rm /gone": recipestest.Delete, "txn": recipestest.Multi,
	} {
		s.run("", "create", "/gone")
		p.CutAfterCommit(kind)
		code, stdout, stderr := s.run("create /c\ncreate /c/d", append(strings.Fields(line), "--endpoint", at)...)
		if code != 5 || stdout != "" || !strings.Contains(stderr, "outcome unknown") {
			t.Errorf("%s: exit %d, %q, %q; want 5 and that the outcome is unknown", line, code, stdout, stderr)
		}
	}
	if got := s.must("get", "/a") + s.must("ls", "-R", "/c"); got != "after\n/c/d\n" {
		t.Errorf("the writes were done, but there is %q", got)
	}
	p.CutAfterCommit(recipestest.Get) // a read is just asked again
	if got := s.must("get", "/a", "--endpoint", at); got != "after\n" {
		t.Errorf("get printed %q", got)
	}
}

// Goal: Ctrl-C ends commands on a ZooKeeper with 130, and a held ephemeral goes with its
// command. Method: SIGINT to ls while the server is silent, to a watch, and to a create.
func TestC147CtrlCEndsCommandsOnZooKeeper(t *testing.T) {
	s, _ := zkCLI(t, "")
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	code, took := s.interrupt(s.command("ls", "/", "--endpoint", "zk://"+silent.Addr().String()), func() {
		c, err := silent.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	})
	checkInterrupted(t, "ls", code, took)
	s.must("create", "/seen")
	for name, args := range map[string][]string{
		"watch": {"watch", "-r", "/seen", "--from", "1"}, "create": {"create", "--ephemeral", "/held"},
	} {
		cmd := s.command(args...)
		line := readLines(t, cmd)
		code, took := s.interrupt(cmd, func() { line() })
		checkInterrupted(t, name, code, took)
	}
	if list := s.must("ls", "/"); strings.Contains(list, "held") {
		t.Errorf("the ephemeral node outlived its command: %q", list)
	}
}

// readLines makes cmd's standard output a stream of lines: each call waits for the next,
// "" at its end.
func readLines(t *testing.T, cmd *exec.Cmd) func() string {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	return func() string {
		t.Helper()
		line, err := r.ReadString('\n')
		if err != nil && err != io.EOF {
			t.Fatal(err)
		}
		return strings.TrimSuffix(line, "\n")
	}
}

// Goal: a held ephemeral whose session is lost ends the command with 5 when the session
// cannot be alive any more. Method: a ZooKeeper that is killed.
func TestHeldNodeOfZooKeeperEndsWithItsSession(t *testing.T) {
	s, z := zkCLI(t, "")
	cmd := s.command("create", "-e", "/held", "--session-timeout", "2s")
	line := readLines(t, cmd)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if got := line(); got != "/held" {
		t.Fatalf("printed %q", got)
	}
	z.Stop(0)
	cmd.Wait() // its error is the exit code
	if code := cmd.ProcessState.ExitCode(); code != 5 || !strings.Contains(stderr.String(), "is over") {
		t.Errorf("exit %d, %q; want 5 and that the session is over", code, stderr.String())
	}
}

// Goal: sync waits for what was committed before, and a command reads no less than that
// (C039). Method: an ensemble; the leader is written to and another member is asked, 20
// times. Without a quorum sync fails.
func TestC039SyncOfTheCommandLineOnZooKeeper(t *testing.T) {
	z := recipestest.StartZooKeeper(t, recipestest.ZooKeeperOptions{Servers: 3})
	leader := z.Leader()
	writer := zkCLIAt(t, z.Addrs()[leader], "")
	reader := zkCLIAt(t, z.Addrs()[(leader+1)%3], "")
	writer.must("create", "/y", "0")
	for k := range 20 {
		want := strings.Repeat("x", k)
		writer.must("set", "/y", want)
		reader.must("sync", "/y")
		if got := strings.TrimSuffix(reader.must("get", "/y"), "\n"); got != want {
			t.Fatalf("after %d writes: read %q", k+1, got)
		}
	}
	z.Stop(leader)
	z.Stop((leader + 2) % 3)
	if code, _, stderr := reader.run("", "sync", "--timeout", "2s"); code != 5 {
		t.Errorf("sync without a quorum: exit %d, %q; want 5", code, stderr)
	}
}
