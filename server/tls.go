package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/certfile"
	"github.com/tenure-dev/tenure/znode"
)

// Bounds on handshakes in progress, so that strangers who only connect cannot make
// the server hold or compute without limit. Beyond either, the newest is closed.
const (
	maxHandshakes       = 1024
	maxHandshakesPerIP  = maxHandshakes / 4
	handshakeAcceptWait = 5 * time.Millisecond // after a failed accept, as net/http waits at first
)

// secureListener hands out connections of ln whose TLS handshake is done. The result
// owns ln.
func secureListener(ln net.Listener, c *Config, log *slog.Logger) (net.Listener, error) {
	files, err := certfile.Open([]string{c.TLS.CertFile, c.TLS.KeyFile, c.TLS.ClientCAFile}, c.TLS.load, log)
	if err != nil {
		return nil, err
	}
	l := &tlsListener{
		Listener: ln, timeout: c.HandshakeTimeout, log: log,
		ready: make(chan net.Conn), closing: make(chan struct{}),
		config: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return files.Current(), nil },
		},
	}
	l.mu.perIP = map[string]int{}
	l.mu.conns = map[net.Conn]struct{}{}
	l.done.Go(l.acceptLoop)
	return l, nil
}

// load reads the files.
func (t TLSConfig) load() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("tls-cert = %q with tls-key = %q: %w", t.CertFile, t.KeyFile, err)
	}
	if len(cert.Leaf.DNSNames)+len(cert.Leaf.IPAddresses)+len(cert.Leaf.URIs) == 0 {
		return nil, fmt.Errorf("tls-cert = %q: the certificate has no subject alternative name, "+
			"so no client would accept it", t.CertFile)
	}
	c := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{cert},
		NextProtos:   []string{"http/1.1"}, // websocket needs it
	}
	switch t.ClientAuth {
	case ClientAuthRequest:
		c.ClientAuth = tls.VerifyClientCertIfGiven
	case ClientAuthRequire:
		c.ClientAuth = tls.RequireAndVerifyClientCert
	default:
		return c, nil
	}
	pem, err := os.ReadFile(t.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("tls-client-ca = %q: %w", t.ClientCAFile, err)
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls-client-ca = %q: has no PEM certificate", t.ClientCAFile)
	}
	return c, nil
}

// tlsListener does the handshakes of its connections in goroutines of its own, so that
// Accept gives only finished ones and a slow or silent peer holds up nobody.
type tlsListener struct {
	net.Listener
	config  *tls.Config
	timeout time.Duration // of one handshake
	log     *slog.Logger

	ready   chan net.Conn // finished handshakes
	closing chan struct{}
	once    sync.Once
	done    sync.WaitGroup // acceptLoop and every handshake

	mu struct {
		sync.Mutex
		conns map[net.Conn]struct{} // in handshake; at most maxHandshakes
		perIP map[string]int        // of those
	}
}

// Accept waits for the next connection with a finished handshake, a *tls.Conn.
func (l *tlsListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.closing:
		return nil, net.ErrClosed
	}
}

// Close ends the listener and the handshakes in progress, and waits for them.
func (l *tlsListener) Close() error {
	var err error
	l.once.Do(func() {
		close(l.closing)
		err = l.Listener.Close()
		l.mu.Lock()
		for c := range l.mu.conns {
			_ = c.Close()
		}
		l.mu.Unlock()
		l.done.Wait()
	})
	return err
}

func (l *tlsListener) acceptLoop() {
	for {
		c, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			l.log.Warn("accept failed", "error", err)
			select {
			case <-l.closing:
				return
			case <-time.After(handshakeAcceptWait): // out of descriptors, most likely
			}
			continue
		}
		if !l.enter(c) {
			_ = c.Close()
			continue
		}
		l.done.Go(func() { l.handshake(c) })
	}
}

// enter counts c among the handshakes in progress, if there is room.
func (l *tlsListener) enter(c net.Conn) bool {
	ip := remoteIP(c.RemoteAddr())
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closing:
		return false
	default:
	}
	if len(l.mu.conns) >= maxHandshakes || l.mu.perIP[ip] >= maxHandshakesPerIP {
		return false
	}
	l.mu.conns[c] = struct{}{}
	l.mu.perIP[ip]++
	return true
}

func (l *tlsListener) leave(c net.Conn) {
	ip := remoteIP(c.RemoteAddr())
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.conns, c)
	if l.mu.perIP[ip]--; l.mu.perIP[ip] == 0 {
		delete(l.mu.perIP, ip)
	}
}

func (l *tlsListener) handshake(raw net.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
	defer cancel()
	c := tls.Server(raw, l.config)
	err := c.HandshakeContext(ctx)
	l.leave(raw)
	if err != nil {
		l.log.Debug("TLS handshake failed", "remote", raw.RemoteAddr().String(), "error", err)
		tellPlain(err)
		_ = raw.Close()
		return
	}
	select {
	case l.ready <- c:
	case <-l.closing:
		_ = raw.Close()
	}
}

// tellPlain answers a client that speaks HTTP where TLS is spoken, so that it need not
// guess why it was cut off.
func tellPlain(err error) {
	record, ok := errors.AsType[tls.RecordHeaderError](err)
	if !ok || record.Conn == nil || string(record.RecordHeader[:3]) != "GET" {
		return
	}
	_ = record.Conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(record.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nThis port speaks TLS: use wss:// or https://.\n")
}

// remoteIP is the address without its port.
func remoteIP(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

// certIdentity is the identity that a verified client certificate proves: scheme x509
// and the subject's distinguished name as RFC 2253 writes it, like ZooKeeper's
// X509AuthenticationProvider. false without a verified certificate.
func certIdentity(state *tls.ConnectionState) (znode.Identity, bool) {
	if state == nil || len(state.VerifiedChains) == 0 {
		return znode.Identity{}, false
	}
	name, err := distinguishedName(state.PeerCertificates[0].RawSubject)
	if err != nil {
		return znode.Identity{}, false
	}
	return znode.Identity{Scheme: "x509", ID: name}, true
}
