package tests

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// cliMT is where Debian's zookeeper-bin has the C client's shell.
const cliMT = "/usr/lib/zookeeper/bin/cli_mt"

// What differs from run to run in what the shell prints.
var (
	cTimes   = regexp.MustCompile(`[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d 20\d\d|\d+ msec`)
	cNumbers = regexp.MustCompile(`(zxid=|ephemeralOwner = )`)
)

// cliMTSays runs the C client's shell on a server, one line of the script at a time: each
// answer is waited for by that of a sync behind it. BREAK ends the connection.
func cliMTSays(t *testing.T, server string) []string {
	t.Helper()
	script, err := os.ReadFile("testdata/cli_mt.txt")
	if err != nil {
		t.Fatal(err)
	}
	proxy := recipestest.NewProxy(t, server, recipestest.ZooKeeperWire)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, cliMT, "-h", proxy.Addr())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { cmd.Wait(); w.Close() }()
	var said []string
	lines := bufio.NewScanner(out)
	until := func(mark string) {
		for lines.Scan() {
			line := lines.Text()
			if !strings.Contains(line, ":ZOO_") && !strings.Contains(line, "/fence-") {
				said = append(said, strings.TrimRight(cNumbers.ReplaceAllString(cTimes.ReplaceAllString(line, "TIME"), "${1}0x"), " \t"))
			}
			if strings.Contains(line, mark) {
				return
			}
		}
		t.Fatalf("%s ended before it printed %q:\n%s", cliMT, mark, strings.Join(said, "\n"))
	}
	until("Got a new session id")
	n := 0
	for line := range strings.Lines(string(script)) {
		said = append(said, "> "+strings.TrimSpace(line))
		if line == "BREAK\n" {
			proxy.Break()
			until("state = CONNECTED_STATE")
			continue
		}
		n++
		fmt.Fprintf(in, "%ssync /fence-%d\n", line, n)
		until(fmt.Sprintf("name = /fence-%d", n))
	}
	io.WriteString(in, "quit\n")
	for lines.Scan() {
	}
	sortChildren(said)
	return strings.Split(numbered(strings.Join(said, "\n")), "\n")
}

// sortChildren sorts the lines of each listing: a server may name children in any order.
func sortChildren(lines []string) {
	isChild := func(line string) bool { return strings.HasPrefix(line, "\t") && !strings.Contains(line, "=") }
	for from := 0; from < len(lines); from++ {
		to := from
		for to < len(lines) && isChild(lines[to]) {
			to++
		}
		slices.Sort(lines[from:to])
		from = to
	}
}

// Goal: the C client's shell prints the same on Tenure as on ZooKeeper, also over a lost
// connection. Method: one session of all its commands on both; zxids, session ids and
// times are compared by what is equal to what.
func TestCShell(t *testing.T) {
	t.Parallel()
	interpreter(t, cliMT, []string{"test", "-x"})
	zookeeper := recipestest.StartZooKeeper(t, recipestest.ZooKeeperOptions{TickTime: 2 * time.Second})
	mustAgree(t, cliMTSays(t, startDaemon(t, t.TempDir()).zkAddress), cliMTSays(t, zookeeper.Addrs()[0]))
}

// Goal: the C client works unchanged, with threads and without: every call, watches over
// a reconnect, sessions over ends of the server. Method: a program of ours on both of
// Debian's libraries.
func TestCClient(t *testing.T) {
	for name, args := range map[string][]string{"mt": {"-lzookeeper_mt"}, "st": {"-DSINGLE", "-l:libzookeeper_st.so.2"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			binary := filepath.Join(t.TempDir(), name)
			cc := interpreter(t, "/dev/null", append([]string{"gcc", "-x", "c", "-shared", "-include", "zookeeper/zookeeper.h", "-o", binary}, args...))
			out, err := exec.Command(cc[0], append([]string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", binary, "testdata/zkclient.c"}, args...)...).CombinedOutput()
			if err != nil {
				t.Fatalf("gcc: %v\n%s", err, out)
			}
			newJudged(t).judge(58, binary)
		})
	}
}
