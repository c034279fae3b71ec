package tests

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Goal: an ephemeral node lives as long as the command behind --, which learns of it and
// whose exit code is passed on. Method: a command that looks and exits with 7.
func TestCommandLineHoldsAnEphemeralForACommand(t *testing.T) {
	s := newCLIServer(t)
	s.must("create", "/workers")
	code, stdout, stderr := s.run("", "create", "-e", "-s", "/workers/w-", "data", "--",
		"/bin/sh", "-c", `echo "path $TENURE_PATH session ${TENURE_SESSION%%x*}"; exit 7`)
	const want = "/workers/w-0000000000\npath /workers/w-0000000000 session 0\n"
	if code != 7 || stdout != want || stderr != "" {
		t.Errorf("exit %d, %q, %q; want 7 and %q", code, stdout, stderr, want)
	}
	if list := s.must("ls", "/workers"); list != "" {
		t.Errorf("left behind: %q", list)
	}
	if code, _, stderr := s.run("", "create", "-e", "/x", "--", "/does/not/exist"); code != 2 || !strings.Contains(stderr, "/does/not/exist") {
		t.Errorf("a missing command: exit %d, %q", code, stderr)
	}
}

// Goal: a held node whose session is ended by somebody else ends the command with 5.
// Method: kill the session that the node's Stat names.
func TestCommandLineTellsThatItsSessionIsOver(t *testing.T) {
	s := newCLIServer(t)
	cmd := s.command("create", "-e", "/held")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "/held\n" {
		t.Fatalf("printed %q, %v", line, err)
	}
	var held struct {
		Stat struct{ EphemeralOwner string }
	}
	if err := json.Unmarshal([]byte(s.must("stat", "-o", "json", "/held")), &held); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := s.run("", "sessions", "kill", held.Stat.EphemeralOwner); code != 6 || !strings.Contains(stderr, "no permission") {
		t.Errorf("without the token: exit %d, %q; want 6", code, stderr)
	}
	s.must("sessions", "kill", held.Stat.EphemeralOwner, "--token-file", s.token())
	cmd.Wait() // its error is the exit code
	if code := cmd.ProcessState.ExitCode(); code != 5 || !strings.Contains(stderr.String(), held.Stat.EphemeralOwner) {
		t.Errorf("exit %d, %q; want 5 and session %s", code, stderr.String(), held.Stat.EphemeralOwner)
	}
	if code, _, _ := s.run("", "stat", "/held"); code != 4 {
		t.Errorf("the node outlived its session: exit %d", code)
	}
}

// Goal: watch prints each event, runs a command for it, and continues from a zxid.
// Method: make events, then read them all from the zxid before the first.
func TestCommandLineWatches(t *testing.T) {
	s := newCLIServer(t)
	s.must("create", "/w", "1")
	var first struct{ Stat struct{ Czxid string } }
	if err := json.Unmarshal([]byte(s.must("stat", "-o", "json", "/w")), &first); err != nil {
		t.Fatal(err)
	}
	s.must("create", "/w/child")
	s.must("set", "/w", "2")
	s.must("rm", "-r", "/w")
	out := s.must("watch", "-r", "/w", "--from", first.Stat.Czxid, "--count", "4", "--timeout", "20s",
		"--exec", `echo "ran $TENURE_EVENT_TYPE $TENURE_EVENT_PATH $TENURE_EVENT_ZXID"`)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	want := []string{"created /w/child", "dataChanged /w", "deleted /w/child", "deleted /w"}
	if len(lines) != 2*len(want) {
		t.Fatalf("printed %q, want two lines for each of %q", lines, want)
	}
	for i, w := range want {
		event, ran := strings.Fields(lines[2*i]), strings.Fields(lines[2*i+1])
		if strings.Join(event[:2], " ") != w || strings.Join(ran, " ") != "ran "+strings.Join(event, " ") {
			t.Errorf("event %d: %q and %q, want %q", i, lines[2*i], lines[2*i+1], w)
		}
	}
	code, _, stderr := s.run("", "watch", "/w", "--count", "1", "--timeout", "300ms")
	if code != 1 || !strings.Contains(stderr, "0 of 1 events within 300ms") {
		t.Errorf("without events: exit %d, %q", code, stderr)
	}
	code, _, stderr = s.run("", "watch", "-r", "/w", "--from", first.Stat.Czxid, "--exec", "exit 3", "--timeout", "20s")
	if code != 1 || !strings.Contains(stderr, "exit status 3; continue with --from 0x") {
		t.Errorf("a command that fails: exit %d, %q", code, stderr)
	}
}

// Goal: a transaction is applied as a whole, or the line to blame is named and nothing
// is changed. Method: both, from standard input and from a file.
func TestCommandLineTransactions(t *testing.T) {
	s := newCLIServer(t)
	out := s.mustRead("create /t 'a b'\ncreate -s /t/n- \"x\\n\"\nset /t c 0\ncheck /t 1\n", "txn")
	if want := "create /t\ncreate /t/n-0000000000\nset    /t version 1\ncheck  /t\n"; out != want {
		t.Errorf("printed %q, want %q", out, want)
	}
	if got := s.must("get", "-o", "raw", "/t/n-0000000000"); got != "x\n" {
		t.Errorf("data %q", got)
	}
	file := filepath.Join(t.TempDir(), "txn")
	if err := os.WriteFile(file, []byte("create /other\n# a comment\n{\"op\":\"set\",\"path\":\"/t\",\"data\":\"d\",\"version\":9}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := s.run("", "txn", file)
	if code != 3 || stdout != "" || !strings.Contains(stderr, "line 3, set /t: version conflict") || !strings.Contains(stderr, "nothing was changed") {
		t.Errorf("exit %d, %q, %q; want 3 and line 3", code, stdout, stderr)
	}
	if code, _, _ := s.run("", "stat", "/other"); code != 4 {
		t.Errorf("half of the transaction was applied: stat /other exits with %d", code)
	}
}

// Goal: an import over what exists names the conflicts and leaves them, and replaces
// them on request. Method: export, change, import twice.
func TestCommandLineImportsOverWhatExists(t *testing.T) {
	s := newCLIServer(t)
	s.must("create", "-p", "/app/db/url", "one")
	export := s.must("export", "/app")
	s.must("set", "/app/db/url", "two")
	code, stdout, stderr := s.run(export, "import", "/app")
	if code != 3 || !strings.Contains(stderr, "conflict: /app/db/url") || !strings.Contains(stdout, "created 0, replaced 0; the same already 2, conflicts 1") {
		t.Errorf("exit %d, %q, %q; want 3 and the conflict", code, stdout, stderr)
	}
	s.mustRead(export, "import", "/app", "--overwrite")
	if got := s.must("get", "-o", "raw", "/app/db/url"); got != "one" {
		t.Errorf("after --overwrite: %q", got)
	}
}

// Goal: the tab key completes paths, and is silent where there is nobody to ask. Method:
// cobra's own hook that the shells' scripts call.
func TestCommandLineCompletesPaths(t *testing.T) {
	s := newCLIServer(t)
	s.must("create", "-p", "/app/db")
	s.must("create", "/apple")
	for typed, want := range map[string]string{"/ap": "/app\n/apple\n", "/app/": "/app/db\n", "/none/": ""} {
		out := s.must("__complete", "get", typed)
		if got := out[:strings.LastIndex(out, ":")]; got != want {
			t.Errorf("%s: %q, want %q", typed, got, want)
		}
	}
	s.kill()
	code, stdout, _ := s.run("", "__complete", "get", "/ap")
	if code != 0 || !strings.HasPrefix(stdout, ":") {
		t.Errorf("without a server: exit %d, %q", code, stdout)
	}
}

// Goal: a chroot is the root of all paths. Method: the same node with and without.
func TestCommandLineChroot(t *testing.T) {
	s := newCLIServer(t)
	s.must("create", "-p", "/app/x", "data")
	if got := s.must("get", "/x", "--endpoint", s.address+"/app"); got != "data\n" {
		t.Errorf("get /x below /app: %q", got)
	}
	if got := s.must("create", "-s", "/n-", "--endpoint", "ws://"+s.address+"/app"); got != "/n-0000000001\n" {
		t.Errorf("create below /app printed %q", got)
	}
}
