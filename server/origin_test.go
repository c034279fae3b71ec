package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Goal: a foreign page, a rebound DNS name and "null" are refused; native clients and
// the server's own pages are not. Method: a table of Host and Origin against policies.
func TestC153OriginTable(t *testing.T) {
	loopback := Config{Listen: "127.0.0.1:2180", AllowedHosts: []string{"Tenure.Internal"},
		AllowedOrigins: []string{"https://console.example.com", "http://dev.test:3000"}}
	named := Config{Listen: "db1.example.com:2180"}
	wildcard := Config{Listen: "0.0.0.0:2180"}
	for _, row := range []struct {
		c            *Config
		host, origin string
		allowed      bool
	}{
		{&loopback, "127.0.0.1:2180", "", true},
		{&loopback, "localhost:2180", "", true},
		{&loopback, "LOCALHOST.:2180", "", true},
		{&loopback, "[::1]:2180", "", true},
		{&loopback, "127.9.9.9", "", true},
		{&loopback, "tenure.internal:80", "", true},
		{&loopback, "evil.test:2180", "", false},
		{&loopback, "localhost.evil.test", "", false},
		{&loopback, "127.0.0.1.evil.test:2180", "", false},
		{&loopback, "10.0.0.1:2180", "", false},
		{&loopback, "", "", false},
		{&loopback, "[::1", "", false},
		{&loopback, "127.0.0.1:2180", "http://127.0.0.1:2180", true},
		{&loopback, "localhost:2180", "HTTP://LocalHost:2180", true},
		{&loopback, "localhost:2180", "http://localhost:2181", false},
		{&loopback, "localhost:2180", "https://localhost:2180", false},
		{&loopback, "127.0.0.1:2180", "http://localhost:2180", false},
		{&loopback, "localhost", "http://localhost", true},
		{&loopback, "localhost", "http://localhost:80", true},
		{&loopback, "127.0.0.1:2180", "null", false},
		{&loopback, "127.0.0.1:2180", "https://evil.test", false},
		{&loopback, "127.0.0.1:2180", "https://console.example.com", true},
		{&loopback, "127.0.0.1:2180", "https://console.example.com:443", true},
		{&loopback, "127.0.0.1:2180", "http://console.example.com", false},
		{&loopback, "127.0.0.1:2180", "https://sibling.example.com", false},
		{&loopback, "127.0.0.1:2180", "https://console.example.com.evil.test", false},
		{&loopback, "127.0.0.1:2180", "http://dev.test:3000", true},
		{&loopback, "127.0.0.1:2180", "file://", false},
		{&loopback, "127.0.0.1:2180", "http://user@127.0.0.1:2180", false},
		{&loopback, "evil.test:2180", "http://evil.test:2180", false},
		{&named, "db1.example.com:2180", "", true},
		{&named, "10.0.0.1:2180", "", false},
		{&wildcard, "10.0.0.1:2180", "", true},
		{&wildcard, "10.0.0.1:2180", "http://10.0.0.1:2180", true},
		{&wildcard, "evil.test:2180", "", false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1/ws", nil)
		r.Host = row.host
		if row.origin != "" {
			r.Header.Set("Origin", row.origin)
		}
		if err := newOriginPolicy(row.c).check(r); (err == nil) != row.allowed {
			t.Errorf("listen %s, host %q, origin %q: %v, want allowed=%t", row.c.Listen, row.host, row.origin, err, row.allowed)
		}
	}
}

// Goal: the same through a real HTTP server, where also two Origin headers and
// forwarding headers are tried. Method: requests over a loopback socket.
func TestC153OriginOverHTTP(t *testing.T) {
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") })
	srv := httptest.NewServer(newOriginPolicy(&Config{Listen: "127.0.0.1:0"}).wrap(served))
	defer srv.Close()
	for _, row := range []struct {
		name   string
		header http.Header
		host   string
		want   int
	}{
		{"native client", http.Header{}, "", http.StatusOK},
		{"own page", http.Header{"Origin": {srv.URL}}, "", http.StatusOK},
		{"foreign page with a cookie", http.Header{"Origin": {"https://evil.test"}, "Cookie": {"session=valid"}}, "", http.StatusForbidden},
		{"null", http.Header{"Origin": {"null"}}, "", http.StatusForbidden},
		{"two origins", http.Header{"Origin": {srv.URL, "https://evil.test"}}, "", http.StatusForbidden},
		{"rebound name", http.Header{}, "evil.test", http.StatusForbidden},
		{"forwarded host", http.Header{"X-Forwarded-Host": {"localhost"}, "X-Forwarded-For": {"127.0.0.1"}, "Forwarded": {"host=localhost"}}, "evil.test", http.StatusForbidden},
		{"forwarded host does not harm", http.Header{"X-Forwarded-Host": {"evil.test"}}, "", http.StatusOK},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header, r.Host = row.header, row.host
		resp, err := srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != row.want {
			t.Errorf("%s: status %d (%s), want %d", row.name, resp.StatusCode, strings.TrimSpace(string(body)), row.want)
		}
	}
}
