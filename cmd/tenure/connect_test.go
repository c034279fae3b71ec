package main

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
)

// slowMachine is the limit in tests of failures to connect, which are tried again until
// it is over: long enough for one whole attempt under the race detector.
const slowMachine = "3s"

// Goal: every form of an endpoint means one address, and TLS flags are for those without
// a scheme. Method: a table.
func TestParseEndpoint(t *testing.T) {
	for _, test := range []struct {
		text   string
		secure bool
		want   string
	}{
		{"h", false, "ws://h:2180"},
		{"h:1", false, "ws://h:1"},
		{"h:1", true, "wss://h:1"},
		{"ws://h:1", true, "ws://h:1"},
		{"wss://h", false, "wss://h:2180"},
		{"https://h:1/", false, "wss://h:1"},
		{"127.0.0.1:1/app/x", false, "ws://127.0.0.1:1/app/x"},
		{"[::1]:1", false, "ws://[::1]:1"},
		{"ws://[::1]", false, "ws://[::1]:2180"},
	} {
		e, err := parseEndpoint(test.text, test.secure)
		if err != nil || e.url() != test.want {
			t.Errorf("%s: %s, %v; want %s", test.text, e.url(), err, test.want)
		}
	}
	for _, text := range []string{"ftp://h", "ws://", "h:port", "u:p@h:1", "h:1?x", "a b"} {
		if _, err := parseEndpoint(text, false); exitCode(err) != exitUsage {
			t.Errorf("%s: %v; want a usage error", text, err)
		}
	}
}

// Goal: flags win over the environment, and both over the default. Method: combinations.
func TestServersAndIdentities(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TENURE_ENDPOINTS", "a:1, b:2,")
	t.Setenv("TENURE_AUTH", "digest:u:p:q\ndigest:v:w\n")
	t.Setenv("TENURE_TOKEN_FILE", token)
	a, _, _ := testApp(outputTable)
	servers, err := a.servers()
	if err != nil || where(servers) != "a:1, b:2" {
		t.Errorf("servers %q, %v", where(servers), err)
	}
	ids, err := a.identities()
	want := []client.Auth{{Scheme: "digest", Secret: "u:p:q"}, {Scheme: "digest", Secret: "v:w"}, {Scheme: "token", Secret: "secret-token"}}
	if err != nil || len(ids) != len(want) {
		t.Fatalf("%d identities, %v", len(ids), err)
	}
	for i := range want {
		if ids[i] != want[i] {
			t.Errorf("identity %d is not the one of the environment", i)
		}
	}
	a.endpoints, a.auth = []string{"c:3"}, []string{"digest:x:y"}
	if servers, err = a.servers(); err != nil || where(servers) != "c:3" {
		t.Errorf("servers %q, %v", where(servers), err)
	}
	if ids, err = a.identities(); err != nil || ids[0].Secret != "x:y" {
		t.Errorf("--auth does not win: %v", err)
	}
	t.Setenv("TENURE_ENDPOINTS", "")
	a.endpoints = nil
	if servers, err = a.servers(); err != nil || where(servers) != defaultEndpoint {
		t.Errorf("servers %q, %v", where(servers), err)
	}
}

// Goal: nobody at the address is exit code 5 and one line with address and cause, in the
// time that was given. Method: a port that was just closed.
func TestC149DeadPortNamesAddressAndCause(t *testing.T) {
	t.Parallel() // it waits more than it works
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	code, _, stderr := testRun(t, "get", "/a", "--endpoint", address, "--timeout", slowMachine)
	if code != exitUnreachable || !strings.Contains(stderr, address) || !strings.Contains(stderr, "connection refused") {
		t.Errorf("exit %d, %q; want 5, %s and the cause", code, stderr, address)
	}
}

// Goal: TLS to a plain port, the reverse, and a server that is no Tenure are told from
// each other, in one line with the address, and without waiting for the end of the time
// given. Method: HTTP servers, plain and TLS, that know no websocket.
func TestC149WrongKindOfServerIsNamed(t *testing.T) {
	plain, secure := httptest.NewServer(http.NotFoundHandler()), httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer plain.Close()
	defer secure.Close()
	for endpoint, want := range map[string]string{
		"wss://" + plain.Listener.Addr().String(): "the server does not speak TLS on this port",
		"ws://" + secure.Listener.Addr().String(): "HTTP request to an HTTPS server",
		"ws://" + plain.Listener.Addr().String():  "404",
	} {
		_, address, _ := strings.Cut(endpoint, "//")
		began := time.Now()
		code, _, stderr := testRun(t, "get", "/a", "--endpoint", endpoint, "--timeout", "1m")
		if code != exitUnreachable || !strings.Contains(stderr, address) || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, %q; want 5, one line, the address and %q", endpoint, code, stderr, want)
		}
		if took := time.Since(began); took > connectLimit {
			t.Errorf("%s: took %v", endpoint, took)
		}
	}
}

// Goal: a TLS certificate that nobody vouches for is refused with that reason, and
// --insecure-skip-verify warns. Method: a TLS server with a certificate of its own.
func TestC149UnknownAuthorityIsNamed(t *testing.T) {
	t.Parallel() // it waits more than it works
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	address := s.Listener.Addr().String()
	code, _, stderr := testRun(t, "get", "/a", "--endpoint", "wss://"+address, "--timeout", slowMachine)
	if code != exitUnreachable || !strings.Contains(stderr, "certificate") {
		t.Errorf("exit %d, %q; want 5 and the certificate", code, stderr)
	}
	code, _, stderr = testRun(t, "get", "/a", "--endpoint", address, "--insecure-skip-verify", "--timeout", slowMachine)
	if code != exitUnreachable || !strings.Contains(stderr, "warning: --insecure-skip-verify") || !strings.Contains(stderr, "404") {
		t.Errorf("exit %d, %q; want a warning, and the answer that is no websocket", code, stderr)
	}
}

// Goal: the exit codes of what comes over HTTP, and a file that is there only if it is
// whole. Method: servers that refuse, are busy, break off, and answer.
func TestSnapshotSave(t *testing.T) {
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		code   int
		want   string
	}{
		"refused": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, exitDenied, "login failed"},
		"denied":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, exitDenied, "no permission"},
		"busy": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "5")
			http.Error(w, "another one", http.StatusServiceUnavailable)
		}, exitConflict, "busy: another one"},
		"not ready": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no leader", http.StatusServiceUnavailable)
		}, exitUnreachable, "not ready: no leader"},
		"breaks off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte("half"))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, exitError, "unexpected EOF"},
		"whole": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/snapshot" || r.Header.Get("Authorization") != "Bearer secret-token" {
				w.WriteHeader(http.StatusForbidden)
			}
			w.Write([]byte("whole"))
		}, exitOK, ""},
	} {
		s := httptest.NewServer(test.answer)
		dir := t.TempDir()
		token, file := filepath.Join(dir, "token"), filepath.Join(dir, "out", "file")
		if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(token, []byte("secret-token\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := testRun(t, "snapshot", "save", file, "--token-file", token, "--endpoint", s.Listener.Addr().String())
		s.Close()
		if code != test.code || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: exit %d, %q; want %d and %q", name, code, stderr, test.code, test.want)
		}
		entries, err := os.ReadDir(filepath.Dir(file))
		if err != nil || (len(entries) == 1) != (test.code == exitOK) || len(entries) > 1 {
			t.Errorf("%s: left %v, %v", name, entries, err)
		}
	}
}
