package tests

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// watchCLI is a running "tenure watch".
type watchCLI struct {
	t    *testing.T
	s    *cliServer
	cmd  *exec.Cmd
	line func() string
}

// startWatch starts a watch of path with flags and returns when it is set: it changes
// path until the watch tells something. path must exist.
func startWatch(t *testing.T, s, writer *cliServer, path string, flags ...string) *watchCLI {
	t.Helper()
	w := &watchCLI{t: t, s: s, cmd: s.command(append([]string{"watch", path}, flags...)...)}
	w.line = readLines(t, w.cmd)
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.cmd.Process.Kill()
		w.cmd.Wait() // it was killed
	})
	first, stop, done := make(chan string, 1), make(chan struct{}), make(chan struct{})
	go func() { first <- w.line() }()
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				writer.run("", "set", path, fmt.Sprint("probe", i))
			}
		}
	}()
	<-first
	close(stop)
	<-done
	writer.must("set", path, "ready")
	w.until(mzxidOf(writer, path))
	return w
}

// mzxidOf is the zxid of the last change of the data of path.
func mzxidOf(s *cliServer, path string) string {
	s.t.Helper()
	_, mzxid, _ := strings.Cut(s.must("stat", path), "mzxid")
	return strings.Fields(mzxid)[0]
}

// next returns the next event, its type and path.
func (w *watchCLI) next() string {
	w.t.Helper()
	words := strings.Fields(w.line())
	if len(words) != 3 {
		w.t.Fatalf("the watch printed %q", words)
	}
	return words[0] + " " + words[1]
}

// until reads up to the event with zxid.
func (w *watchCLI) until(zxid string) {
	w.t.Helper()
	for {
		words := strings.Fields(w.line())
		if len(words) != 3 {
			w.t.Fatalf("the watch printed %q, and no event of %s", words, zxid)
		}
		if words[2] == zxid && words[0] != "gap" {
			return
		}
	}
}

// take returns the next n events.
func (w *watchCLI) take(n int) (events []string) {
	w.t.Helper()
	for range n {
		events = append(events, w.next())
	}
	return events
}

// watchSteps are changes below /w and what a recursive and a plain watch of /w tell of
// each.
var watchSteps = []struct {
	line             string
	recursive, plain []string
}{
	{"set /w x", []string{"dataChanged /w"}, []string{"dataChanged /w"}},
	{"create /w/a", []string{"created /w/a"}, []string{"childrenChanged /w"}},
	{"create /w/a/b", []string{"created /w/a/b"}, nil},
	{"set /w/a/b x", []string{"dataChanged /w/a/b"}, nil},
	{"create -s /w/a/s-", []string{"created /w/a/s-0000000001"}, nil},
	{"rm /w/a/s-0000000001", []string{"deleted /w/a/s-0000000001"}, nil},
	{"rm -r /w/a", []string{"deleted /w/a/b", "deleted /w/a"}, []string{"childrenChanged /w"}},
	{"create /w/a again", []string{"created /w/a"}, []string{"childrenChanged /w"}},
	{"set /w/a x", []string{"dataChanged /w/a"}, nil},
	{"rm -r /w", []string{"deleted /w/a", "deleted /w"}, []string{"childrenChanged /w", "deleted /w"}},
	{"create /w", []string{"created /w"}, []string{"created /w"}},
	{"create /w/a", []string{"created /w/a"}, []string{"childrenChanged /w"}},
}

// Goal: a watch of a ZooKeeper tells the same events as one of Tenure, though its watches
// are one-shot. Method: the same changes on both, one after the other has been told.
func TestWatchIsTheSameOnZooKeeper(t *testing.T) {
	zookeeper, _ := zkCLI(t, "/root")
	for _, s := range []*cliServer{newCLIServer(t), zookeeper} {
		s.must("create", "/w")
		recursive, plain := startWatch(t, s, s, "/w", "-r"), startWatch(t, s, s, "/w")
		s.must("set", "/w", "both are set")
		zxid := mzxidOf(s, "/w")
		recursive.until(zxid)
		plain.until(zxid)
		for _, step := range watchSteps {
			s.must(strings.Fields(step.line)...)
			if got := recursive.take(len(step.recursive)); !slices.Equal(got, step.recursive) {
				t.Fatalf("%s on %s: a recursive watch told %q, want %q", step.line, s.address, got, step.recursive)
			}
			if got := plain.take(len(step.plain)); !slices.Equal(got, step.plain) {
				t.Fatalf("%s on %s: a plain watch told %q, want %q", step.line, s.address, got, step.plain)
			}
		}
	}
}

// Goal: what happens while a watch is not connected is told after it, exactly where the
// versions show it and with a gap where they show that something is missing. Method: a
// proxy is cut off while another client makes changes.
func TestWatchOfZooKeeperOverReconnects(t *testing.T) {
	direct, z := zkCLI(t, "")
	p := recipestest.NewProxy(t, z.Addrs()[0], recipestest.ZooKeeperWire)
	through := zkCLIAt(t, p.Addr(), "")
	direct.must("create", "/w")
	direct.must("create", "/w/once")
	direct.must("create", "/w/twice")
	direct.must("create", "/w/gone")
	direct.must("create", "/w/again")
	w := startWatch(t, through, direct, "/w", "-r")
	p.Partition()
	direct.must("set", "/w/once", "1")
	direct.must("set", "/w/twice", "1")
	direct.must("set", "/w/twice", "2")
	direct.must("rm", "/w/gone")
	direct.must("rm", "/w/again")
	direct.must("create", "/w/again")
	direct.must("create", "/w/new", "x")
	direct.must("create", "/w/short")
	direct.must("rm", "/w/short")
	p.Heal()
	p.Break()
	direct.must("set", "/w", "last")
	var got []string
	for len(got) == 0 || got[len(got)-1] != "dataChanged /w" {
		got = append(got, w.next())
	}
	for _, want := range []string{
		"dataChanged /w/once", "gap /w/twice", "dataChanged /w/twice", "deleted /w/gone",
		"deleted /w/again", "created /w/again", "created /w/new", "gap /w",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("told %q, lacks %q", got, want)
		}
	}
	if slices.Contains(got, "gap /w/once") {
		t.Errorf("told %q: nothing was missed of /w/once", got)
	}
}

// Goal: a watch goes on when the server was killed and started again. Method: change a
// node before and after.
func TestWatchOfZooKeeperSurvivesItsRestart(t *testing.T) {
	// The tick allows for a session that outlives a slow start.
	z := recipestest.StartZooKeeper(t, recipestest.ZooKeeperOptions{TickTime: 2 * time.Second})
	s := zkCLIAt(t, z.Addrs()[0], "")
	s.must("create", "/w")
	w := startWatch(t, s, s, "/w", "-r", "--session-timeout", "40s")
	z.Stop(0)
	if err := z.Start(0); err != nil {
		t.Fatal(err)
	}
	s.must("create", "/w/after")
	if got := w.next(); got != "created /w/after" {
		t.Errorf("told %q", got)
	}
}

// Goal: --from, which ZooKeeper has no history for, tells a gap if anything is newer and
// nothing if not. Method: both.
func TestWatchFromOnZooKeeper(t *testing.T) {
	s, _ := zkCLI(t, "")
	s.must("create", "/w")
	from := mzxidOf(s, "/w")
	if code, stdout, stderr := s.run("", "watch", "/w", "--from", from, "--count", "1", "--timeout", "1s"); code != 1 || stdout != "" {
		t.Errorf("nothing is newer: exit %d, %q, %q", code, stdout, stderr)
	}
	s.must("create", "/w/newer")
	for _, flags := range [][]string{nil, {"-r"}} {
		args := append([]string{"watch", "/w", "--from", from, "--count", "1", "--timeout", "10s"}, flags...)
		if out := s.must(args...); !strings.HasPrefix(out, "gap ") {
			t.Errorf("%q: printed %q, want a gap", args, out)
		}
	}
}
