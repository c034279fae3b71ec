package tests

import (
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// memberCommand is the command that `tenure member add` prints.
var memberCommand = regexp.MustCompile(`(?m)^    tenured --data-dir DIR (.*)$`)

// Goal: an operator grows an ensemble from one member to three, moves the lead, and shrinks
// it again with what the tool prints and nothing else; a member that was removed is told so
// when it comes back. Method: real processes; the printed commands are run as they are but
// for the data directory and the ports for clients.
func TestMemberCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := &cliServer{startDaemon(t, filepath.Join(dir, "1"), "--peer-listen", quietPort(t), "--election-timeout", "300ms")}
	admin := []string{"--token-file", first.token()}
	member := func(args ...string) string {
		return first.must(append(append([]string{"member"}, args...), admin...)...)
	}
	refused := func(want string, code int, args ...string) {
		t.Helper()
		if got, _, stderr := first.run("", append(append([]string{"member"}, args...), admin...)...); got != code || !strings.Contains(stderr, want) {
			t.Errorf("member %q: exit %d, %s; want %d, %s", args, got, stderr, code, want)
		}
	}
	first.must("create", "/a", "before")
	joined := map[int]*daemon{}
	var commands []string
	for id := 2; id <= 3; id++ {
		printed := member("add", "--peer", quietPort(t))
		match := memberCommand.FindStringSubmatch(printed)
		if match == nil || !strings.Contains(printed, fmt.Sprintf("tenure member promote %d", id)) {
			t.Fatalf("member add printed:\n%s", printed)
		}
		args := append(strings.Fields(match[1]), "--election-timeout", "300ms")
		commands = append(commands, match[1])
		refused("does not answer", 5, "promote", fmt.Sprint(id))
		joined[id] = startDaemon(t, filepath.Join(dir, fmt.Sprint(id)), args...)
		member("promote", fmt.Sprint(id)) // it serves, so it has caught up
	}
	if list := member("list"); strings.Count(list, "follower") != 2 || strings.Count(list, "yes") != 3 || !strings.Contains(list, "1    leader") {
		t.Errorf("member list:\n%s", list)
	}
	if got := (&cliServer{joined[3]}).must("get", "/a"); !strings.Contains(got, "before") {
		t.Errorf("member 3 has %q", got)
	}
	if list := member("transfer", "3"); !strings.Contains(list, "3    leader") {
		t.Errorf("member transfer:\n%s", list)
	}
	if code, _, stderr := first.run("", "member", "remove", "3"); code != 6 {
		t.Errorf("without the token: exit %d, %s", code, stderr)
	}
	if list := member("remove", "3"); strings.Contains(list, "3    ") || strings.Count(list, "leader") != 1 {
		t.Errorf("member remove 3:\n%s", list)
	}
	refused("never used again: the next free one is 4", 1, "add", "--peer", quietPort(t), "--id", "3")
	if list := first.must("member", "list", "-o", "json"); !strings.Contains(list, `"removed":[3]`) || !strings.Contains(list, `"answering":true`) {
		t.Errorf("member list -o json: %s", list)
	}
	awaitRemoved(t, joined[3].address) // a moment later
	joined[3].stop()
	address := quietPort(t)
	again := spawnDaemon(t, joined[3].dir, append([]string{program(t, "tenured"), "--data-dir", joined[3].dir, "--listen", address, "--zk-listen", "127.0.0.1:0"},
		strings.Fields(commands[1])...)...)
	t.Cleanup(again.kill)
	awaitRemoved(t, address)
	again.kill()
	if out := again.output.String(); !strings.Contains(out, "this member was removed from the ensemble") || strings.Contains(out, "tenured ready") {
		t.Errorf("a removed member that comes back says:\n%s", out)
	}
	if list := member("remove", "2"); !strings.Contains(list, "1    leader") || strings.Contains(list, "2    ") {
		t.Errorf("member remove 2:\n%s", list)
	}
	refused("last voter", 5, "remove", "1")
	first.must("create", "/b", "after")
}

// awaitRemoved waits until the member at address says that it is not ready as it was removed.
func awaitRemoved(t *testing.T, address string) {
	t.Helper()
	tick := time.NewTicker(eventuallyPoll)
	defer tick.Stop()
	for deadline := time.Now().Add(startDeadline); ; <-tick.C {
		status, text, err := fetch(address, "/readyz")
		if err == nil && status != http.StatusOK && strings.Contains(string(text), "removed from the ensemble") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a member that was removed: /readyz: %d %s, %v", status, text, err)
		}
	}
}
