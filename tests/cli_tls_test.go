package tests

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writePEM writes one block into a file of dir.
func writePEM(t *testing.T, dir, kind string, der []byte) (name string) {
	t.Helper()
	name = filepath.Join(dir, strings.ReplaceAll(kind, " ", "-"))
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Goal: with a daemon on TLS the tool works if it trusts the certificate, and else says
// in one line whom it asked and why there is no session: at once for a wrong CA, and for
// no TLS at all within the time given. Method: a daemon with the certificate for loopback
// that net/http/httptest has.
func TestC149CommandLineAndTLSDaemon(t *testing.T) {
	donor := httptest.NewTLSServer(nil)
	donor.Close()
	pair, dir := donor.TLS.Certificates[0], t.TempDir()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert := writePEM(t, dir, "CERTIFICATE", pair.Certificate[0])
	s := &cliServer{startDaemon(t, filepath.Join(dir, "data"), "--tls-cert", cert, "--tls-key", writePEM(t, dir, "PRIVATE KEY", key))}
	if got := s.must("ls", "/", "--endpoint", "wss://"+s.address, "--cacert", cert); got != "zookeeper\n" {
		t.Errorf("ls / over TLS: %q", got)
	}
	for _, test := range []struct {
		endpoint, timeout, want string
	}{
		{"wss://" + s.address, "1m", "certificate signed by unknown authority"},
		{"ws://" + s.address, "1s", "TLS"},
	} {
		began := time.Now()
		code, _, stderr := s.run("", "get", "/a", "--endpoint", test.endpoint, "--timeout", test.timeout)
		if code != 5 || !strings.Contains(stderr, s.address) || !strings.Contains(stderr, test.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, %q; want 5, one line and %q", test.endpoint, code, stderr, test.want)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: took %v", test.endpoint, took)
		}
	}
}
