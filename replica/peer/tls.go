package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
)

// TLS names the files, in PEM, of mutually authenticated TLS between members. They are
// read again when they change. The certificate must be valid for the host of this
// member's address, and both as a server's and as a client's. Members at one host are not
// told apart by their certificates.
type TLS struct {
	CertFile string // the certificate, and those between it and the authority's
	KeyFile  string
	CAFile   string // the authorities that sign members' certificates
}

// alpn keeps a connection to another of Tenure's TLS ports from being mistaken.
const alpn = "tenure-peer"

// load reads the files. The result serves both ends; dialing adds the name of the host.
func (t *TLS) load() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("peer: certificate %q with key %q: %w", t.CertFile, t.KeyFile, err)
	}
	if len(cert.Leaf.DNSNames)+len(cert.Leaf.IPAddresses) == 0 {
		return nil, fmt.Errorf("peer: certificate %q names no host: it has no subject alternative name of type DNS or IP", t.CertFile)
	}
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		uses := cert.Leaf.ExtKeyUsage
		if len(uses) > 0 && !slices.Contains(uses, use) && !slices.Contains(uses, x509.ExtKeyUsageAny) {
			return nil, fmt.Errorf("peer: certificate %q is not for both ends of a connection: its extended key usage must have server and client authentication", t.CertFile)
		}
	}
	pem, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, fmt.Errorf("peer: certificate authority %q: %w", t.CAFile, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("peer: certificate authority %q: has no PEM certificate", t.CAFile)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		RootCAs:      pool,
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		NextProtos:   []string{alpn},
		// Every connection is verified anew, by the files of its time.
		SessionTicketsDisabled: true,
		// Small records cost more than they gain: no page waits for its first bytes.
		DynamicRecordSizingDisabled: true,
	}, nil
}

// dialConfig is c for dialing the host of address.
func dialConfig(c *tls.Config, address string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	c = c.Clone()
	c.ServerName = host
	return c, nil
}

// checkHost reports that the other end's certificate, which was verified, is not valid
// for the host of the address of the member that the other end says it is.
func checkHost(c conn, member uint64, address string) error {
	secured, ok := c.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	certs := secured.ConnectionState().PeerCertificates
	host, _, err := net.SplitHostPort(address)
	if err == nil && len(certs) == 0 {
		err = errors.New("there is none")
	}
	if err == nil {
		err = certs[0].VerifyHostname(host)
	}
	if err != nil {
		return fmt.Errorf("the certificate is not one of member %d, which is at %s: %w", member, address, err)
	}
	return nil
}

// errNoTLS: a TLS handshake failed because the other end speaks none.
var errNoTLS = errors.New("the other end does not speak TLS, which this member requires")

func isPlain(err error) bool {
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	return plain
}
