package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/znode"
)

// testRun runs a command line in this process.
func testRun(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// Goal: a wrong command line is exit code 2 and one line that names the value and the
// rule, before anything is sent. Method: one command line per rule; there is no server.
func TestUsageErrors(t *testing.T) {
	t.Setenv("TENURE_TOKEN_FILE", "")
	for _, test := range []struct{ line, want string }{
		{"nonsense", `unknown command "nonsense"`},
		{"ls foo", `path "foo" must start with /`},
		{"ls /a /b", "want at most one PATH, got 2"},
		{"ls --nonsense", "unknown flag: --nonsense"},
		{"ls -o xml", `--output "xml": want table, json or raw`},
		{"ls --timeout -1s", "--timeout -1s: must not be negative"},
		{"ls --session-timeout 0s", "--session-timeout 0s: must be above 0"},
		{"ls --cert x.pem", "--cert and --key: one needs the other"},
		{"ls --endpoint ftp://h:1", `endpoint "ftp://h:1": the scheme must be ws or wss`},
		{"ls --endpoint ws://", `endpoint "ws://": want HOST:PORT`},
		{"ls --cacert /does/not/exist", "/does/not/exist"},
		{"ls --token-file /does/not/exist", "/does/not/exist"},
		{"get //a", "must not have an empty element"},
		{"get /a/../b", "must not have an element . or .."},
		{"set /a", "want PATH VALUE, or PATH --null"},
		{"set /a b --null", "want PATH VALUE, or PATH --null"},
		{"set /a @/does/not/exist", "/does/not/exist"},
		{"set /a b --version x", "--version"},
		{"create", "want PATH [VALUE], got 0"},
		{"create /a b c", "got 3"},
		{"create -e -c /a", "a node has one of them at most"},
		{"create -c -s /a", "there is no such mode"},
		{"create --ttl 1us /a", "--ttl 1µs: must be 1ms or more"},
		{"create /a -- true", "needs --ephemeral"},
		{"create --acl world:anyone /a", "is not scheme:id:perms"},
		{"create --acl world:anyone:xyz /a", "none of cdrwa"},
		{"setacl / bad", "is not scheme:id:perms"},
		{"rm /", "rm /: refused"},
		{"rm -r /zookeeper", "rm /zookeeper: refused"},
		{"rm -r /zookeeper/", "rm /zookeeper: refused"},
		{"rm -r --version 3 /a", "--version is for one node"},
		{"watch /a --from xyz", `--from "xyz": want a zxid`},
		{"watch /a --count -1", "--count -1"},
		{"tree / -L -1", "--depth -1"},
		{"txn a b", "want at most one FILE"},
		{"txn", "there is no operation"},
		{"sessions kill 0", `"0": want a session id`},
		{"snapshot", ""},
		{"snapshot nonsense", `unknown command "nonsense"`},
		{"snapshot save f", "needs the server's admin token"},
	} {
		code, stdout, stderr := testRun(t, strings.Fields(test.line)...)
		if test.want == "" {
			if code != exitOK || stdout == "" {
				t.Errorf("%q: exit %d, %q; want help", test.line, code, stdout)
			}
			continue
		}
		if code != exitUsage || !strings.Contains(stderr, test.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: exit %d, %q; want 2 and one line with %q", test.line, code, stderr, test.want)
		}
	}
}

// Goal: a secret is never printed, also where it is malformed. Method: a secret in each
// place that takes one, with command lines that fail.
func TestSecretsAreNeverPrinted(t *testing.T) {
	const secret = "hunter2planted"
	for _, test := range []struct {
		env  string
		args []string
	}{
		{"", []string{"ls", "/", "--auth", secret, "--timeout", "100ms"}},
		{secret, []string{"ls", "/", "--timeout", "100ms"}},
		{"", []string{"ls", "foo", "--auth", "digest:u:" + secret}},
		{"", []string{"ls", "--auth", "digest:u:" + secret, "--nonsense"}},
		{"digest:u:" + secret, []string{"--help"}},
	} {
		t.Setenv("TENURE_AUTH", test.env)
		_, stdout, stderr := testRun(t, test.args...)
		if strings.Contains(stdout+stderr, secret) {
			t.Errorf("%q with TENURE_AUTH=%q printed the secret: %q", test.args, test.env, stdout+stderr)
		}
	}
}

// Goal: the exit codes are those that "help exit-codes" documents, however deep the
// cause is wrapped. Method: a table of causes.
func TestC147ExitCodes(t *testing.T) {
	answer := func(code znode.Error) error {
		return fmt.Errorf("outer: %w", &requestError{"h:1", &client.Error{Op: "get", Path: "/a", Code: code}})
	}
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("other"), 1},
		{answer(znode.InvalidACL), 1},
		{usagef("bad"), 2},
		{answer(znode.BadVersion), 3}, {answer(znode.NodeExists), 3}, {answer(znode.NotEmpty), 3}, {answer(znode.ThrottledOp), 3},
		{answer(znode.NoNode), 4},
		{answer(znode.SessionExpired), 5}, {client.ErrUnavailable, 5}, {client.ErrUnknown, 5},
		{fmt.Errorf("get: %w", context.DeadlineExceeded), 5},
		{answer(znode.NoAuth), 6}, {answer(znode.AuthFailed), 6},
		{&codeError{exitConflict, errors.New("2 conflicts")}, 3},
		{&childExit{77}, 77},
	} {
		if got := exitCode(test.err); got != test.want {
			t.Errorf("%v: exit code %d, want %d", test.err, got, test.want)
		}
	}
	_, help, _ := testRun(t, "help", "exit-codes")
	for _, code := range []int{exitOK, exitError, exitUsage, exitConflict, exitNotFound, exitUnreachable, exitDenied, exitInterrupted} {
		if !strings.Contains(help, fmt.Sprintf("\n  %-4d ", code)) {
			t.Errorf("help exit-codes does not have %d", code)
		}
	}
}

// Goal: a missing node, a missing right and a failed login read differently, and each
// says what was asked of whom. Method: the texts of the three errors.
func TestC147ErrorsSayWhatWhereAndWhy(t *testing.T) {
	for code, want := range map[znode.Error]string{
		znode.NoNode:     "get /a on h:1: no node",
		znode.NoAuth:     "get /a on h:1: no permission for the identities presented",
		znode.AuthFailed: "get /a on h:1: login failed: the server refused the identity or its secret",
	} {
		err := &requestError{"h:1", &client.Error{Op: "get", Path: "/a", Code: code}}
		if err.Error() != want {
			t.Errorf("%v: %q, want %q", code, err, want)
		}
	}
}

// Goal: an interrupt is exit code 130, with a line only if there is something to say.
// Method: report with a context that has ended.
func TestC147InterruptIsExitCode130(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		err  error
		want string
	}{
		{context.Canceled, ""},
		{&requestError{"h:1", context.Canceled}, ""},
		{fmt.Errorf("rm -r /a: deleted 5 nodes, then failed: %w", context.Canceled), "deleted 5 nodes"},
		{&childExit{1}, ""},
	} {
		a, _, stderr := testApp(outputTable)
		code := a.report(ctx, test.err)
		if code != exitInterrupted || (test.want == "") != (stderr.Len() == 0) || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%v: exit %d, %q; want 130 and %q", test.err, code, stderr, test.want)
		}
	}
}

// Goal: a command that waits for standard input ends at once when it is interrupted.
// Method: a pipe that nobody writes to, and a context that ends while it is read.
func TestC147InterruptEndsAReadOfStandardInput(t *testing.T) {
	stdin, writer := io.Pipe()
	defer writer.Close() // ends the read that is left behind
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int)
	go func() { done <- run(ctx, []string{"set", "/a", "-"}, stdin, io.Discard, io.Discard) }()
	cancel()
	if code := <-done; code != exitInterrupted {
		t.Errorf("exit %d, want 130", code)
	}
}

// Goal: input has a bound and values come from where the syntax says. Method: each form
// of a value, and files at and over the bound.
func TestValueForms(t *testing.T) {
	a, _, _ := testApp(outputTable)
	a.stdin = strings.NewReader("from stdin")
	file := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(file, []byte{0, 1, 0xff}, 0o600); err != nil {
		t.Fatal(err)
	}
	for arg, want := range map[string]string{
		"plain": "plain", "": "", "-": "from stdin", "@@x": "@x", "@" + file: "\x00\x01\xff",
	} {
		got, err := a.value(t.Context(), arg)
		if err != nil || string(got) != want {
			t.Errorf("%q: %q, %v; want %q", arg, got, err, want)
		}
	}
	if got, err := readMax(strings.NewReader("1234"), 4, "x"); err != nil || len(got) != 4 {
		t.Errorf("at the bound: %q, %v", got, err)
	}
	if _, err := readMax(strings.NewReader("12345"), 4, "x"); exitCode(err) != exitUsage {
		t.Errorf("over the bound: %v", err)
	}
}
