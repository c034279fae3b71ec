package server

import (
	"bufio"
	"crypto/tls"
	"crypto/x509/pkix"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: a client's certificate is an identity from the first request on: "auth" in a list
// stands for it, lists that name it let it in and nobody else, and a client may not say
// to have one. Method: two certificates and none on ZooKeeper's door above TLS.
func TestZooKeeperCertificateIsAnIdentity(t *testing.T) {
	a, dir := newAuthority(t), t.TempDir()
	cert, key := a.issue(t, t.TempDir(), 1, pkix.Name{}, "tenure.test")
	ca := filepath.Join(dir, "ca.pem")
	writePEM(t, ca, "CERTIFICATE", a.cert.Raw)
	s := startServer(t, Config{ZKTLSListen: "127.0.0.1:0",
		TLS: TLSConfig{CertFile: cert, KeyFile: key, ClientCAFile: ca, ClientAuth: ClientAuthRequest}})
	open := func(name string) *rawClient {
		c := &tls.Config{RootCAs: a.pool(), ServerName: "tenure.test"}
		if name != "" {
			certFile, keyFile := a.issue(t, t.TempDir(), 2, pkix.Name{CommonName: name, Organization: []string{"A=B"}})
			pair, err := tls.LoadX509KeyPair(certFile, keyFile)
			if err != nil {
				t.Fatal(err)
			}
			c.Certificates = []tls.Certificate{pair}
		}
		nc, err := tls.Dial("tcp", s.ZKTLSAddr().String(), c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		r := &rawClient{t: t, link: framed{nc, bufio.NewReader(nc)}, codec: wire.Jute{}, sent: map[int32]wire.Op{}}
		r.connect(wire.ConnectRequest{})
		return r
	}
	alice, bob, nobody := open("alice"), open("bob"), open("")
	const dn = `x509:CN=alice,O=A\=B`
	if got := alice.whoAmI(); !slices.Equal(got, []string{"ip:127.0.0.1", dn}) {
		t.Errorf("alice is %q", got)
	}
	if e := alice.createACL("/auth", entry("auth", "")); e != znode.OK {
		t.Fatal(e)
	}
	if got, e := alice.acl("/auth"); e != znode.OK || !slices.Equal(got, []znode.ACL{entry("x509", dn[5:])}) {
		t.Errorf("auth became %v %v", got, e)
	}
	if e := nobody.createACL("/named", entry("x509", dn[5:])); e != znode.OK {
		t.Fatal(e)
	}
	if e := nobody.createACL("/none", entry("auth", "")); e != znode.InvalidACL {
		t.Errorf("auth without a certificate: %v", e)
	}
	for _, path := range []string{"/auth", "/named"} {
		for who, want := range map[*rawClient]znode.Error{alice: znode.OK, bob: znode.NoAuth, nobody: znode.NoAuth} {
			if _, e := who.get(path); e != want {
				t.Errorf("%s by %q: %v, want %v", path, who.whoAmI(), e, want)
			}
		}
	}
	if e := nobody.auth("x509", dn[5:]); e != znode.AuthFailed {
		t.Errorf("who only says to be alice: %v", e)
	}
}
