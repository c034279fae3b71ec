package tests

import (
	"bufio"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Goal: one-shot commands succeed with 0 only, fail with the documented code, and say
// what, where and why in one line. Method: a table against a real server with a
// forbidden node, a full node and a file with a wrong token.
func TestC147CommandLineErrors(t *testing.T) {
	s := newCLIServer(t)
	s.must("create", "/full")
	s.must("create", "/full/child")
	s.must("create", "/forbidden", "--acl", "digest:nobody:AAAAAAAAAAAAAAAAAAAAAAAAAAA=:r")
	wrong := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(wrong, []byte(strings.Repeat("0", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		line string
		code int
		want []string
	}{
		{"ls foo", 2, []string{`path "foo" must start with /`}},
		{"setacl / bad", 2, []string{`"bad"`}},
		{"get /none", 4, []string{"get /none", s.address, "no node"}},
		{"stat /none", 4, []string{"stat /none", s.address, "no node"}},
		{"ls /none", 4, []string{"/none", s.address, "no node"}},
		{"set /none x", 4, []string{"set /none", s.address, "no node"}},
		{"rm -r /none", 4, []string{"/none", s.address, "no node"}},
		{"create /none/x", 4, []string{"create /none/x", s.address, "no node", "parent"}},
		{"create /full", 3, []string{"create /full", s.address, "node exists"}},
		{"rm /full", 3, []string{"delete /full", s.address, "node has children"}},
		{"set /full x --version 7", 3, []string{"set /full", s.address, "version conflict"}},
		{"get /forbidden", 6, []string{"get /forbidden", s.address, "no permission"}},
		{"sessions kill 0x7 --token-file " + wrong, 6, []string{s.address, "login failed"}},
		{"sessions kill 0x7fffffff --token-file " + s.token(), 4, []string{s.address, "0x7fffffff", "no such session"}},
		{"snapshot save x --token-file " + wrong, 6, []string{s.address, "token"}},
	} {
		code, stdout, stderr := s.run("", strings.Fields(test.line)...)
		if code != test.code || stdout != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, %q, %q; want %d and one line", test.line, code, stdout, stderr, test.code)
		}
		for _, want := range test.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("%s: %q does not have %q", test.line, stderr, want)
			}
		}
	}
}

// Goal: who cannot connect learns to whom and why, within the time given. Method: a dead
// port, a server that is silent, TLS to a plain port, and a root that does not exist.
func TestC149CommandLineSaysWhomAndWhy(t *testing.T) {
	s := newCLIServer(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	for endpoint, test := range map[string]struct {
		code int
		want string
	}{
		dead.Addr().String():   {5, "connection refused"},
		silent.Addr().String(): {5, "no answer"},
		"wss://" + s.address:   {5, "TLS"},
		s.address + "/missing": {4, "no node"},
	} {
		began := time.Now()
		code, _, stderr := s.run("", "get", "/a", "--endpoint", endpoint, "--timeout", "1s")
		took := time.Since(began)
		address := strings.TrimPrefix(endpoint, "wss://")
		if code != test.code || !strings.Contains(stderr, address) || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: exit %d, %q; want %d and %q", endpoint, code, stderr, test.code, test.want)
		}
		if took > 5*time.Second {
			t.Errorf("%s: took %v, the limit was 1 s", endpoint, took)
		}
	}
	code, stdout, stderr := s.run("", "status", "--figures", "--endpoint", s.address+","+dead.Addr().String(), "--timeout", "2s")
	if code != 5 || !strings.Contains(stdout, "unreachable") || !strings.Contains(stderr, dead.Addr().String()) {
		t.Errorf("status --figures: exit %d, %q, %q; want 5 and the dead one named", code, stdout, stderr)
	}
}

// Goal: Ctrl-C ends every kind of command at once with 130. Method: SIGINT to ls while
// the server is silent, and to watch and to a held ephemeral node while they wait.
func TestC147CtrlCEndsCommands(t *testing.T) {
	s := newCLIServer(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var accepted net.Conn
	code, took := s.interrupt(s.command("ls", "/", "--endpoint", silent.Addr().String()), func() {
		if accepted, err = silent.Accept(); err != nil {
			t.Fatal(err)
		}
	})
	defer accepted.Close()
	checkInterrupted(t, "ls", code, took)

	for name, args := range map[string][]string{
		"watch":  {"watch", "-r", "/", "--from", "1"}, // there is a first event, of /seen
		"create": {"create", "--ephemeral", "/held"},
	} {
		if name == "watch" {
			s.must("create", "/seen")
		}
		cmd := s.command(args...)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		code, took := s.interrupt(cmd, func() {
			if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil && err != io.EOF {
				t.Fatal(err)
			}
		})
		checkInterrupted(t, name, code, took)
	}
	if list := s.must("ls", "/"); strings.Contains(list, "held") {
		t.Errorf("the ephemeral node outlived its command: %q", list)
	}
}

func checkInterrupted(t *testing.T, name string, code int, took time.Duration) {
	t.Helper()
	if code != 130 || took > 5*time.Second {
		t.Errorf("%s: exit %d after %v; want 130 within 5 s", name, code, took)
	}
}
