package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/store"
)

// scriptedBackend answers the HTTP endpoints as a test wants.
type scriptedBackend struct {
	health, readiness error
	snapshot          func(w io.Writer) (store.SnapshotInfo, error)
}

func (b *scriptedBackend) healthy() error { return b.health }
func (b *scriptedBackend) ready() error   { return b.readiness }
func (b *scriptedBackend) writeSnapshot(w io.Writer) (store.SnapshotInfo, error) {
	return b.snapshot(w)
}

// lockedBuffer is a log that handlers and the test may use at once.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

const testToken = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// newAdminServer serves b over a loopback socket; what is logged goes to the buffer.
func newAdminServer(t *testing.T, b *scriptedBackend) (*httptest.Server, *lockedBuffer) {
	t.Helper()
	log := &lockedBuffer{}
	a := &admin{backend: b, token: hashAdminToken(testToken), log: slog.New(slog.NewTextHandler(log, nil)), writeTimeout: 10 * time.Second}
	m := newMetrics(Build(), func() figures { return figures{} })
	c := Config{DataDir: "/d"}.WithDefaults()
	srv := httptest.NewUnstartedServer(a.httpHandler(&c, m, http.NotFoundHandler()))
	srv.Config = newHTTPServer(srv.Config.Handler, &c, a.log)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv, log
}

// fetch makes one request and returns it answered and read.
func fetch(t *testing.T, method, url string, header http.Header) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// Goal: the probes tell a live process from a ready one, and every endpoint exists.
// Method: a backend in each state.
func TestAdminEndpoints(t *testing.T) {
	b := &scriptedBackend{}
	srv, _ := newAdminServer(t, b)
	for _, row := range []struct {
		health, readiness error
		path              string
		status            int
		contains          string
	}{
		{nil, nil, "/healthz", 200, "ok"},
		{nil, nil, "/readyz", 200, "ok"},
		{nil, errors.New("no leader"), "/healthz", 200, "ok"},
		{nil, errors.New("no leader"), "/readyz", 503, "no leader"},
		{errors.New("fsync: input/output error"), errors.New("stopped"), "/healthz", 503, "input/output error"},
		{nil, nil, "/metrics", 200, "tenure_build_info"},
		{nil, nil, "/version", 200, `"go":"go1.`},
		{nil, nil, "/", 200, "/v1/ws"},
		{nil, nil, "/favicon.ico", 404, ""},
	} {
		b.health, b.readiness = row.health, row.readiness
		resp, body := fetch(t, http.MethodGet, srv.URL+row.path, nil)
		if resp.StatusCode != row.status || !strings.Contains(body, row.contains) {
			t.Errorf("%s: %d %q, want %d with %q", row.path, resp.StatusCode, body, row.status, row.contains)
		}
	}
	var v BuildInfo
	_, body := fetch(t, http.MethodGet, srv.URL+"/version", nil)
	if err := json.Unmarshal([]byte(body), &v); err != nil || v.Version != Version || len(v.Protocol) != 2 {
		t.Errorf("version %s: %v", body, err)
	}
}

// Goal: nothing but the token opens the snapshot, no method but GET and HEAD does
// anything, and refusals are logged without what was presented. Method: a table of
// requests, among them forwarding headers and cookies.
func TestC065AdminSurface(t *testing.T) {
	taken := 0
	b := &scriptedBackend{snapshot: func(w io.Writer) (store.SnapshotInfo, error) {
		taken++
		_, err := io.WriteString(w, "snapshot bytes")
		return store.SnapshotInfo{Zxid: 0x17, Digest: 0xabc}, err
	}}
	srv, log := newAdminServer(t, b)
	for _, row := range []struct {
		name, method, path string
		header             http.Header
		status             int
	}{
		{"no login", "GET", "/v1/snapshot", nil, 401},
		{"forwarded as loopback", "GET", "/v1/snapshot", http.Header{"X-Forwarded-For": {"127.0.0.1"}, "X-Real-Ip": {"127.0.0.1"}}, 401},
		{"cookie", "GET", "/v1/snapshot", http.Header{"Cookie": {"token=" + testToken}}, 401},
		{"token in the URL", "GET", "/v1/snapshot?token=" + testToken, nil, 401},
		{"other scheme", "GET", "/v1/snapshot", http.Header{"Authorization": {"Basic " + testToken}}, 401},
		{"wrong token", "GET", "/v1/snapshot", http.Header{"Authorization": {"Bearer plantedWrongToken"}}, 403},
		{"empty token", "GET", "/v1/snapshot", http.Header{"Authorization": {"Bearer "}}, 403},
		{"half of the token", "GET", "/v1/snapshot", http.Header{"Authorization": {"Bearer " + testToken[:32]}}, 403},
		{"two tokens", "GET", "/v1/snapshot", http.Header{"Authorization": {"Bearer x", "Bearer " + testToken}}, 401},
		{"HEAD", "HEAD", "/v1/snapshot", http.Header{"Authorization": {"Bearer " + testToken}}, 200},
		{"POST", "POST", "/v1/snapshot", http.Header{"Authorization": {"Bearer " + testToken}}, 405},
		{"TRACE", "TRACE", "/", nil, 405},
		{"OPTIONS", "OPTIONS", "/metrics", nil, 405},
		{"DELETE", "DELETE", "/healthz", nil, 405},
		{"CONNECT", "PUT", "/v1/ws", nil, 405},
	} {
		if resp, body := fetch(t, row.method, srv.URL+row.path, row.header); resp.StatusCode != row.status {
			t.Errorf("%s: %d %q, want %d", row.name, resp.StatusCode, body, row.status)
		}
	}
	if taken != 0 {
		t.Errorf("%d snapshots were taken for refused requests", taken)
	}
	if n := strings.Count(log.String(), "admin request refused"); n != 9 {
		t.Errorf("%d refusals logged, want 9:\n%s", n, log)
	}
	resp, body := fetch(t, "GET", srv.URL+"/v1/snapshot", http.Header{"Authorization": {"bearer " + testToken}})
	if resp.StatusCode != 200 || body != "snapshot bytes" || resp.Trailer.Get(trailerZxid) != "0x17" || resp.Trailer.Get(trailerDigest) != "0000000000000abc" {
		t.Errorf("snapshot: %d %q, trailers %v", resp.StatusCode, body, resp.Trailer)
	}
	for _, secret := range []string{testToken, testToken[:32], "plantedWrongToken"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("%q was logged:\n%s", secret, log)
		}
	}
}

// Goal: a snapshot that fails is never mistaken for a complete one: an error before the
// first byte is a status, one after it breaks the body off; and only one runs at a time.
func TestSnapshotFailures(t *testing.T) {
	b := &scriptedBackend{}
	srv, _ := newAdminServer(t, b)
	auth := http.Header{"Authorization": {"Bearer " + testToken}}

	b.snapshot = func(io.Writer) (store.SnapshotInfo, error) { return store.SnapshotInfo{}, errors.New("disk broken") }
	if resp, body := fetch(t, "GET", srv.URL+"/v1/snapshot", auth); resp.StatusCode != 500 || !strings.Contains(body, "disk broken") {
		t.Errorf("error at once: %d %q", resp.StatusCode, body)
	}

	b.snapshot = func(w io.Writer) (store.SnapshotInfo, error) {
		_, _ = w.Write(make([]byte, 1<<20))
		return store.SnapshotInfo{}, errors.New("disk broken")
	}
	r, _ := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/v1/snapshot", nil)
	r.Header = auth
	if resp, err := http.DefaultClient.Do(r); err == nil {
		_, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err == nil {
			t.Error("a broken snapshot looked complete")
		}
	}

	started, finish := make(chan struct{}), make(chan struct{})
	b.snapshot = func(io.Writer) (store.SnapshotInfo, error) {
		close(started)
		<-finish
		return store.SnapshotInfo{}, nil
	}
	var first sync.WaitGroup
	first.Go(func() { fetch(t, "GET", srv.URL+"/v1/snapshot", auth) })
	<-started
	if resp, _ := fetch(t, "GET", srv.URL+"/v1/snapshot", auth); resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("second snapshot: %d", resp.StatusCode)
	}
	close(finish)
	first.Wait()
}

// Goal: a client that stops reading a snapshot is given up after the write timeout.
// Method: an endless snapshot to a socket that nobody reads.
func TestSnapshotSlowReader(t *testing.T) {
	ended := make(chan error, 1)
	b := &scriptedBackend{snapshot: func(w io.Writer) (store.SnapshotInfo, error) {
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				ended <- err
				return store.SnapshotInfo{}, err
			}
		}
	}}
	a := &admin{backend: b, token: hashAdminToken(testToken), log: slog.New(slog.DiscardHandler), writeTimeout: 50 * time.Millisecond}
	srv := httptest.NewServer(http.HandlerFunc(a.snapshot))
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
	r.Header.Set("Authorization", "Bearer "+testToken)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := <-ended; !errors.Is(err, errClientWrite) || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("ended with %v", err)
	}
}

// Goal: the token file is made once, private, complete, and read back; one that others
// can read, or a damaged one, is refused by name.
func TestAdminTokenFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, AdminTokenFile)
	if err := os.WriteFile(path+".new", []byte("left by a crash"), 0o644); err != nil {
		t.Fatal(err)
	}
	first, err := openAdminToken(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, _ := os.Stat(path)
	if token := strings.TrimSpace(string(text)); len(token) != 64 || !first.ok(token) || first.ok(token[:63]) || first.ok("") || info.Mode().Perm() != 0o600 {
		t.Errorf("token %q, mode %v", text, info.Mode())
	}
	if again, err := openAdminToken(dir); err != nil || again != first {
		t.Errorf("second open: %v, same=%t", err, again == first)
	}
	if (adminToken{}).ok("") {
		t.Error("no token accepts the empty one")
	}
	for _, damage := range []func() error{
		func() error { return os.Chmod(path, 0o604) },
		func() error { return os.WriteFile(path, []byte("abc"), 0o600) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if _, err := openAdminToken(dir); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("a damaged token file: %v", err)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
