package server

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/wire"
)

// Goal: TLS as a zoo.cfg has it, with stores in PEM, serves clients that show a certificate
// and nobody else; a store with an encrypted key is refused. Method: one file with
// certificate and key, another with the authority; clients with and without certificate.
func TestZooCfgServesTLS(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t)
	cert, key := ca.issue(t, dir, 2, pkix.Name{CommonName: "server"}, "server.test")
	store, trust := filepath.Join(dir, "keystore.pem"), filepath.Join(dir, "truststore.pem")
	joinFiles(t, store, key, cert)
	writePEM(t, trust, "CERTIFICATE", ca.cert.Raw)
	text := "secureClientPort=2281\nsecureClientPortAddress=127.0.0.1\nssl.trustStore.location=" + trust + "\nssl.keyStore.location="
	// The port is given here, as one that is free is known only once it is open.
	flags := ConfigFlags{"zk-tls-listen": "127.0.0.1:0", "listen": "127.0.0.1:0"}
	l, err := LoadConfig(Sources{ZooCfg: zooCfgOf(t, dir, text+store), Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(t, l.Config)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	for certificates, welcome := range map[*tls.Certificate]bool{&pair: true, nil: false} {
		c := &tls.Config{RootCAs: ca.pool(), ServerName: "server.test"}
		if certificates != nil {
			c.Certificates = []tls.Certificate{*certificates}
		}
		if got := opensOverTLS(t, s, c); got != welcome {
			t.Errorf("with a certificate %v: a session %v", certificates != nil, got)
		}
	}

	writePEM(t, store, "ENCRYPTED PRIVATE KEY", []byte("x"))
	if _, err := LoadConfig(Sources{ZooCfg: zooCfgOf(t, dir, text+store), Flags: flags}); err == nil || !strings.Contains(err.Error(), "ssl.keyStore.location") || !strings.Contains(err.Error(), "openssl pkey") {
		t.Errorf("encrypted key: %v", err)
	}
}

// joinFiles writes what files hold into one.
func joinFiles(t *testing.T, path string, files ...string) {
	t.Helper()
	var all []byte
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
}

// opensOverTLS reports whether a session can be opened over TLS.
func opensOverTLS(t *testing.T, s *Server, c *tls.Config) bool {
	t.Helper()
	nc, err := tls.Dial("tcp", s.ZKTLSAddr().String(), c)
	if err != nil {
		return false
	}
	defer nc.Close()
	b := wire.Jute{}.AppendConnect(nil, &wire.ConnectRequest{TimeoutMs: 30_000, Password: make([]byte, 16)})
	if _, err := nc.Write(append(rawInt(nil, int32(len(b))), b...)); err != nil {
		return false
	}
	nc.SetReadDeadline(time.Now().Add(20 * time.Second))
	n, _ := nc.Read(make([]byte, 64))
	return n > 0
}
