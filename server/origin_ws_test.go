package server

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/gorilla/websocket"
)

// openForUpgrades opens a real server on a free port.
func openForUpgrades(t *testing.T, c Config) *Server {
	t.Helper()
	c.DataDir, c.Listen, c.ZKListen = filepath.Join(t.TempDir(), "data"), "127.0.0.1:0", "none"
	s, err := Open(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// upgradeStatus asks for a websocket and returns the status of the answer.
func upgradeStatus(t *testing.T, d *websocket.Dialer, url string, header http.Header) int {
	t.Helper()
	ws, resp, err := d.DialContext(t.Context(), url, header)
	if err == nil {
		_ = ws.Close()
	}
	if resp == nil {
		t.Fatalf("no answer: %v", err)
	}
	return resp.StatusCode
}

// Goal: the upgrade itself obeys the policy, over plain and over TLS, where the server's
// own origin is https. Method: real websocket handshakes with a real server.
func TestC153WebsocketUpgrade(t *testing.T) {
	ca := newAuthority(t)
	cert, key := ca.issue(t, t.TempDir(), 1, pkix.Name{}, "tenure.test")
	plain := openForUpgrades(t, Config{AllowedOrigins: []string{"https://console.example.com"}})
	secure := openForUpgrades(t, Config{TLS: TLSConfig{CertFile: cert, KeyFile: key}})
	dialer := &websocket.Dialer{Subprotocols: []string{subprotocolJSON},
		TLSClientConfig: &tls.Config{RootCAs: ca.pool(), ServerName: "tenure.test"}}
	at, tlsAt := plain.Addr().String(), secure.Addr().String()
	for _, row := range []struct {
		name, url string
		header    http.Header
		want      int
	}{
		{"no origin", "ws://" + at, http.Header{}, http.StatusSwitchingProtocols},
		{"own origin", "ws://" + at, http.Header{"Origin": {"http://" + at}}, http.StatusSwitchingProtocols},
		{"allowed origin", "ws://" + at, http.Header{"Origin": {"https://console.example.com"}}, http.StatusSwitchingProtocols},
		{"foreign origin with a cookie", "ws://" + at, http.Header{"Origin": {"https://evil.test"}, "Cookie": {"session=valid"}}, http.StatusForbidden},
		{"null", "ws://" + at, http.Header{"Origin": {"null"}}, http.StatusForbidden},
		{"sibling subdomain", "ws://" + at, http.Header{"Origin": {"https://evil.example.com"}}, http.StatusForbidden},
		{"rebound name", "ws://" + at, http.Header{"Host": {"evil.test"}}, http.StatusForbidden},
		{"own origin over TLS", "wss://" + tlsAt, http.Header{"Origin": {"https://" + tlsAt}}, http.StatusSwitchingProtocols},
		{"plain origin over TLS", "wss://" + tlsAt, http.Header{"Origin": {"http://" + tlsAt}}, http.StatusForbidden},
	} {
		if got := upgradeStatus(t, dialer, row.url+"/v1/ws", row.header); got != row.want {
			t.Errorf("%s: status %d, want %d", row.name, got, row.want)
		}
	}
}
