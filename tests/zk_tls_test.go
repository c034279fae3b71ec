package tests

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ownCertificate writes a certificate that is its own authority, for a server on loopback
// and its clients, and returns the files of the certificate, the key and both.
func ownCertificate(t *testing.T, dir string, subject pkix.Name) (cert, key, both string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: subject, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = writePEM(t, dir, "CERTIFICATE", der), writePEM(t, dir, "PRIVATE KEY", pkcs8)
	var pair bytes.Buffer
	for _, file := range []string{key, cert} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pair.Write(text)
	}
	both = filepath.Join(dir, "both.pem")
	if err := os.WriteFile(both, pair.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return cert, key, both
}

// Goal: the Java client works above TLS and is who its certificate says. Method: zkCli
// with Netty and PEM files, on a daemon that demands a certificate.
func TestZKCLIOverTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key, both := ownCertificate(t, dir, pkix.Name{Organization: []string{"One, Two"}, CommonName: "client"})
	d := startDaemon(t, filepath.Join(dir, "data"), "--zk-listen", "none", "--zk-tls-listen", "127.0.0.1:0",
		"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", cert, "--tls-client-auth", "require")
	said := foreignSays(t, "zkcli_tls.txt", d.zkAddress, java(t,
		"-Dzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty", "-Dzookeeper.client.secure=true",
		"-Dzookeeper.ssl.keyStore.location="+both, "-Dzookeeper.ssl.keyStore.type=PEM",
		"-Dzookeeper.ssl.trustStore.location="+cert, "-Dzookeeper.ssl.trustStore.type=PEM",
		"org.apache.zookeeper.ZooKeeperMain", "-server")...)
	for _, want := range []string{
		"\nx509: CN=client,O=One\\, Two\n", "\n'x509,'CN=client%2CO=One\\%2C Two\n: cdrwa\nsecret\n", // the client writes commas so
		"\nInsufficient permission : /mine\n[mine, zookeeper]\n",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
}
