package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// issue signs a certificate of subject for the given names and writes both files.
func (a *authority) issue(t *testing.T, dir string, serial int64, subject pkix.Name, names ...string) (certFile, keyFile string) {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: subject, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, certFile, "CERTIFICATE", der)
	writePEM(t, keyFile, "PRIVATE KEY", keyDER)
	return certFile, keyFile
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// listenTLS serves one greeting per connection, over TLS.
func listenTLS(t *testing.T, c TLSConfig, timeout time.Duration) (addr string, identities <-chan string) {
	t.Helper()
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln, err := secureListener(raw, &Config{TLS: c, HandshakeTimeout: timeout}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			state := conn.(*tls.Conn).ConnectionState()
			id, _ := certIdentity(&state)
			seen <- id.ID
			_, _ = io.WriteString(conn, "hello")
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return raw.Addr().String(), seen
}

// greet connects and returns what the server says and its certificate's serial number.
func greet(addr string, c *tls.Config) (string, int64, error) {
	conn, err := tls.Dial("tcp", addr, c)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = conn.Close() }()
	said, err := io.ReadAll(conn)
	return string(said), conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), err
}

// Goal: a replaced certificate is used from the next handshake on, and half a
// replacement leaves the old one in use. Method: replace the files of a live listener.
func TestTLSReload(t *testing.T) {
	ca, dir := newAuthority(t), t.TempDir()
	cert, key := ca.issue(t, dir, 11, pkix.Name{}, "tenure.test")
	addr, _ := listenTLS(t, TLSConfig{CertFile: cert, KeyFile: key}, 10*time.Second)
	client := &tls.Config{RootCAs: ca.pool(), ServerName: "tenure.test"}
	expect := func(step string, serial int64) {
		t.Helper()
		if said, got, err := greet(addr, client); err != nil || said != "hello" || got != serial {
			t.Fatalf("%s: %q, certificate %d, %v; want %d", step, said, got, err, serial)
		}
	}
	expect("first", 11)
	oldKey, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	ca.issue(t, dir, 22, pkix.Name{}, "tenure.test")
	newKey, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(key, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replace(oldKey)
	expect("new certificate with the old key", 11)
	replace(append(newKey, '\n'))
	expect("both new", 22)
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	expect("certificate removed", 22)
}

// Goal: each client authentication mode lets in exactly whom it says, and the identity
// is the verified subject's, in RFC 2253 order. Method: no certificate, a good one, and
// one of a foreign authority against each mode.
func TestTLSClientAuth(t *testing.T) {
	ca, foreign := newAuthority(t), newAuthority(t)
	cert, key := ca.issue(t, t.TempDir(), 1, pkix.Name{}, "tenure.test")
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	writePEM(t, caFile, "CERTIFICATE", ca.cert.Raw)
	subject := pkix.Name{CommonName: "alice, of ops", Organization: []string{"Example"}, Country: []string{"DE"}}
	load := func(a *authority) []tls.Certificate {
		c, k := a.issue(t, t.TempDir(), 2, subject)
		pair, err := tls.LoadX509KeyPair(c, k)
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{pair}
	}
	const dn = `CN=alice\, of ops,O=Example,C=DE`
	for _, row := range []struct {
		mode, name string
		certs      []tls.Certificate
		served     bool
		identity   string
	}{
		{ClientAuthNone, "without", nil, true, ""},
		{ClientAuthNone, "good", load(ca), true, ""},
		{ClientAuthRequest, "without", nil, true, ""},
		{ClientAuthRequest, "good", load(ca), true, dn},
		{ClientAuthRequest, "foreign", load(foreign), false, ""},
		{ClientAuthRequire, "without", nil, false, ""},
		{ClientAuthRequire, "good", load(ca), true, dn},
		{ClientAuthRequire, "foreign", load(foreign), false, ""},
	} {
		c := TLSConfig{CertFile: cert, KeyFile: key, ClientAuth: row.mode}
		if row.mode != ClientAuthNone {
			c.ClientCAFile = caFile
		}
		addr, identities := listenTLS(t, c, 10*time.Second)
		client := &tls.Config{RootCAs: ca.pool(), ServerName: "tenure.test",
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if row.certs == nil {
					return &tls.Certificate{}, nil
				}
				return &row.certs[0], nil
			}}
		said, _, err := greet(addr, client)
		if served := err == nil && said == "hello"; served != row.served {
			t.Errorf("%s, %s: %q, %v", row.mode, row.name, said, err)
		} else if served {
			if id := <-identities; id != row.identity {
				t.Errorf("%s, %s: identity %q, want %q", row.mode, row.name, id, row.identity)
			}
		}
	}
}

// Goal: an old protocol version and a client without TLS are refused, and a client that
// stays silent is cut at the deadline while others are served. Method: one of each.
func TestTLSHandshakeLimits(t *testing.T) {
	ca := newAuthority(t)
	cert, key := ca.issue(t, t.TempDir(), 1, pkix.Name{}, "tenure.test")
	addr, _ := listenTLS(t, TLSConfig{CertFile: cert, KeyFile: key}, 300*time.Millisecond)
	old := &tls.Config{RootCAs: ca.pool(), ServerName: "tenure.test", MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	if _, _, err := greet(addr, old); err == nil {
		t.Error("TLS 1.1 was accepted")
	}
	silent, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	if said, _, err := greet(addr, &tls.Config{RootCAs: ca.pool(), ServerName: "tenure.test"}); err != nil || said != "hello" {
		t.Errorf("beside a silent peer: %q, %v", said, err)
	}
	if n, err := silent.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the silent peer read %d bytes, %v", n, err)
	}
}

// Goal: one address cannot hold all handshakes: beyond its share the newest is closed,
// and what was held is free again afterwards. Method: count through enter and leave.
func TestTLSHandshakeShare(t *testing.T) {
	l := &tlsListener{closing: make(chan struct{})}
	l.mu.conns, l.mu.perIP = map[net.Conn]struct{}{}, map[string]int{}
	from := func(ip string) net.Conn { return addrConn{addr: &net.TCPAddr{IP: net.ParseIP(ip)}, id: new(int)} }
	var held []net.Conn
	for range maxHandshakesPerIP {
		held = append(held, from("192.0.2.1"))
		if !l.enter(held[len(held)-1]) {
			t.Fatalf("refused handshake %d", len(held))
		}
	}
	if l.enter(from("192.0.2.1")) {
		t.Error("more than its share")
	}
	if !l.enter(from("192.0.2.2")) {
		t.Error("another address was refused")
	}
	for _, c := range held {
		l.leave(c)
	}
	if len(l.mu.conns) != 1 || len(l.mu.perIP) != 1 {
		t.Errorf("%d handshakes of %d addresses are left, want 1 of 1", len(l.mu.conns), len(l.mu.perIP))
	}
}

// addrConn is only an address.
type addrConn struct {
	net.Conn
	addr net.Addr
	id   *int
}

func (c addrConn) RemoteAddr() net.Addr { return c.addr }

// Goal: files that cannot work are refused at the start, named. Method: one fault each.
func TestC145TLSFiles(t *testing.T) {
	ca, dir := newAuthority(t), t.TempDir()
	cert, key := ca.issue(t, dir, 1, pkix.Name{}, "tenure.test")
	noSAN, noSANKey := ca.issue(t, t.TempDir(), 1, pkix.Name{CommonName: "tenure.test"})
	_, otherKey := ca.issue(t, t.TempDir(), 2, pkix.Name{}, "tenure.test")
	for _, row := range []struct {
		name string
		c    TLSConfig
		want string
	}{
		{"missing", TLSConfig{CertFile: filepath.Join(dir, "none"), KeyFile: key}, "none"},
		{"other key", TLSConfig{CertFile: cert, KeyFile: otherKey}, otherKey},
		{"no SAN", TLSConfig{CertFile: noSAN, KeyFile: noSANKey}, "subject alternative name"},
		{"CA is no PEM", TLSConfig{CertFile: cert, KeyFile: key, ClientCAFile: os.DevNull, ClientAuth: ClientAuthRequire}, "tls-client-ca"},
	} {
		if _, err := secureListener(nil, &Config{TLS: row.c}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}

// Goal: only a verified certificate is an identity; the subject keeps its own order and
// its unusual attributes.
func TestCertIdentity(t *testing.T) {
	subject := pkix.RDNSequence{
		{{Type: asn1.ObjectIdentifier{2, 5, 4, 6}, Value: "DE"}},
		{{Type: asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 25}, Value: "example"}},
		{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "bob"}},
	}
	raw, err := asn1.Marshal(subject)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{RawSubject: raw}
	if id, ok := certIdentity(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}); ok {
		t.Errorf("an unverified certificate is %v", id)
	}
	state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}, VerifiedChains: [][]*x509.Certificate{{cert}}}
	id, ok := certIdentity(state)
	if want := (znode.Identity{Scheme: "x509", ID: "CN=bob,DC=example,C=DE"}); !ok || id != want {
		t.Errorf("%v, want %v", id, want)
	}
	if _, ok := certIdentity(nil); ok {
		t.Error("no TLS is an identity")
	}
}
