package tests

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// judged is a server that clients of ZooKeeper are run against: the daemon, or real
// ZooKeeper with TENURE_JUDGED=zookeeper, which shows that a program asks for nothing but
// what ZooKeeper does. One goroutine may use it.
type judged struct {
	t       *testing.T
	address func() string
	ends    map[string]func() // by verb: each ends the server and starts it again
	proxies map[string]*recipestest.Proxy
}

// newJudged starts the server, which looks for containers and TTL nodes whose time has
// come twice a second.
func newJudged(t *testing.T) *judged {
	t.Helper()
	j := &judged{t: t, proxies: map[string]*recipestest.Proxy{}}
	if os.Getenv("TENURE_JUDGED") == "zookeeper" {
		z := recipestest.StartZooKeeper(t, recipestest.ZooKeeperOptions{TickTime: 2 * time.Second})
		again := func() {
			z.Stop(0)
			if err := z.Start(0); err != nil {
				t.Fatal(err)
			}
		}
		j.address = func() string { return z.Addrs()[0] }
		j.ends = map[string]func(){"restart": again, "crash": again}
		return j
	}
	m := newMember(t, "--reap-interval", "500ms")
	j.address = func() string { return m.running.Load().zkAddress }
	j.ends = map[string]func(){
		"restart": func() { m.stop(); m.start() },
		"crash":   func() { m.crash(); m.start() },
	}
	return j
}

// proxyFaults is what a program may ask for of a proxy, by verb.
var proxyFaults = map[string]func(*recipestest.Proxy){
	"break":     (*recipestest.Proxy).Break,
	"partition": (*recipestest.Proxy).Partition,
	"heal":      (*recipestest.Proxy).Heal,
}

// does plays what a program asks for and returns the answer.
func (j *judged) does(ask string) string {
	verb, arg, _ := strings.Cut(ask, " ")
	if again := j.ends[verb]; again != nil {
		again()
		for _, p := range j.proxies {
			p.SetTarget(j.address())
		}
		return "done"
	}
	if verb == "proxy" {
		p := recipestest.NewProxy(j.t, j.address(), recipestest.ZooKeeperWire)
		j.proxies[p.Addr()] = p
		return p.Addr()
	}
	p, fault := j.proxies[arg], proxyFaults[verb]
	if p == nil || fault == nil {
		j.t.Fatalf("the program asks for %q", ask)
	}
	fault(p)
	return "done"
}

// judge runs a program that prints a line for each of its checks, and wants exactly so
// many of them, all passed. What the program asks for is done.
func (j *judged) judge(want int, command ...string) {
	t := j.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	last := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		last = lines.Text()
		if ask, ok := strings.CutPrefix(last, "ask "); ok {
			io.WriteString(in, j.does(ask)+"\n")
			continue
		}
		said.WriteString(last + "\n")
	}
	if err := cmd.Wait(); err != nil || last != fmt.Sprintf("passed %d of %d", want, want) {
		t.Errorf("%v; want %d checks to pass:\n%s%s", err, want, said.String(), errs.String())
		return
	}
	t.Log(last)
}

// jars is what the Java programs need; Debian's manifests name the rest, but for two that
// the client over Netty needs.
var jars = "/usr/share/java/" + strings.Join([]string{
	"curator-recipes.jar", "zookeeper.jar", "zookeeper-recipes-lock.jar", "zookeeper-recipes-election.jar",
	"zookeeper-recipes-queue.jar", "slf4j-nop.jar", "netty-resolver.jar", "netty-codec.jar",
}, ":/usr/share/java/")

// java returns a command that runs a class of testdata/java or of the jars.
func java(t *testing.T, args ...string) []string {
	t.Helper()
	command := interpreter(t, "-version", []string{"java"})
	for jar := range strings.SplitSeq(jars, ":") {
		interpreter(t, jar, []string{"test", "-e"})
	}
	if err := javaClasses(); err != nil {
		t.Fatal(err)
	}
	command = append(command, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", programsDir+"/java:"+jars)
	return append(command, args...)
}

// javaClasses compiles testdata/java, once, with the compiler that is part of every
// runtime of Debian's.
var javaClasses = sync.OnceValue(func() error {
	files, err := filepath.Glob("testdata/java/*.java")
	if err != nil {
		return err
	}
	args := append([]string{"-XX:TieredStopAtLevel=1", "-m", "jdk.compiler/com.sun.tools.javac.Main",
		"-cp", jars, "-d", programsDir + "/java"}, files...)
	if out, err := exec.Command("java", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("javac: %w\n%s", err, out)
	}
	return nil
})
