package tests

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// foreignSays runs a client on a server with a script as its standard input, in which
// SERVER is the server's address, and returns what it printed, on both channels.
func foreignSays(t *testing.T, script, server string, command ...string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + script)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], server)...)
	cmd.Stdin = bytes.NewReader(bytes.ReplaceAll(text, []byte("SERVER"), []byte(server)))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v on %s: %v\n%s", command, server, err, out)
	}
	return strings.ReplaceAll(string(out), server, "SERVER")
}

var (
	hexNumbers = regexp.MustCompile(`0x[0-9a-f]+`)
	cliTimes   = regexp.MustCompile(`[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d \w+ 20\d\d`)
)

// numbered replaces each number but 0x0 by its place in the order of their appearance:
// what is equal stays equal.
func numbered(text string) string {
	places := map[string]string{"0x0": "0x0"}
	return hexNumbers.ReplaceAllStringFunc(text, func(number string) string {
		if _, known := places[number]; !known {
			places[number] = fmt.Sprintf("NUMBER%d", len(places))
		}
		return places[number]
	})
}

// cliEvents is what zkCli prints of an event.
var cliEvents = regexp.MustCompile(`\n(WATCHER::|WatchedEvent .*)\n`)

// apart returns the lines that zkCli printed, events after all others: another thread
// prints them, also in the middle of a line. The end of a session is left out: the client
// may exit before it is told.
func apart(text string) []string {
	var lines, events []string
	text = cliEvents.ReplaceAllStringFunc(text, func(event string) string {
		event = strings.TrimSpace(event)
		if event != "WATCHER::" && !strings.HasPrefix(event, "WatchedEvent state:Closed") {
			events = append(events, event)
		}
		return ""
	})
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return append(lines, events...)
}

// mustAgree wants the same lines of both servers.
func mustAgree(t *testing.T, tenure, zookeeper []string) {
	t.Helper()
	if len(tenure) < 100 {
		t.Errorf("only %d lines:\n%s", len(tenure), strings.Join(tenure, "\n"))
	}
	for i := range max(len(tenure), len(zookeeper)) {
		if i >= len(tenure) || i >= len(zookeeper) || tenure[i] != zookeeper[i] {
			from := max(0, i-5)
			t.Fatalf("they differ in line %d.\nTenure:\n%s\nZooKeeper:\n%s", i+1,
				strings.Join(tenure[from:min(len(tenure), i+20)], "\n"), strings.Join(zookeeper[from:min(len(zookeeper), i+20)], "\n"))
		}
	}
	t.Logf("%d lines agree", len(tenure))
}

// Goal: zkCli prints the same on Tenure as on ZooKeeper. Method: one session of all its
// commands on both; zxids, session ids and times are compared by what is equal to what.
func TestZKCLI(t *testing.T) {
	t.Parallel()
	main := java(t, "org.apache.zookeeper.ZooKeeperMain", "-server")
	zookeeper := recipestest.StartZooKeeper(t, recipestest.ZooKeeperOptions{TickTime: 2 * time.Second})
	said := func(server string) []string {
		return apart(cliTimes.ReplaceAllString(numbered(foreignSays(t, "zkcli.txt", server, main...)), "TIME"))
	}
	mustAgree(t, said(startDaemon(t, t.TempDir()).zkAddress), said(zookeeper.Addrs()[0]))
}
