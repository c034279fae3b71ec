package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	// zkDialLimit bounds one attempt at one server, so that a list of them gets its turn.
	zkDialLimit = 2 * time.Second
	// zkGreetingLimit bounds the wait for the answer to a connect request.
	zkGreetingLimit = 5 * time.Second
	// zkGreetingMax bounds that answer, which has some 40 bytes.
	zkGreetingMax = 4 << 10
	// zkGreetingHead is what is read of it here: length, version and session timeout.
	zkGreetingHead = 12
)

// zkDialer makes the connections of the ZooKeeper library, remembers why one failed,
// which the library does not tell its callers, and ends them all on stop. It is safe for
// concurrent use.
type zkDialer struct {
	tls     *tls.Config // nil = plain
	session *zkSession  // is told what only the wire knows
	ctx     context.Context
	stop    context.CancelFunc

	mu   sync.Mutex
	last error
}

func newZKDialer(config *tls.Config, s *zkSession) *zkDialer {
	d := &zkDialer{tls: config, session: s}
	d.ctx, d.stop = context.WithCancel(context.Background())
	return d
}

// cause returns why the last connection failed, nil if none did.
func (d *zkDialer) cause() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// failed remembers err as the cause.
func (d *zkDialer) failed(err error) {
	if d.ctx.Err() == nil { // what stop ends has not failed
		d.mu.Lock()
		d.last = err
		d.mu.Unlock()
	}
}

// Printf implements the library's Logger: nothing is printed, but why a connection ended
// is a cause.
func (d *zkDialer) Printf(format string, args ...any) {
	if strings.HasPrefix(format, "recv loop terminated") {
		d.failed(fmt.Errorf(strings.Replace(format, "recv loop terminated: ", "", 1), args...))
	}
}

// dial is the library's Dialer. It resolves the name anew on every attempt.
func (d *zkDialer) dial(network, address string, _ time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(d.ctx, zkDialLimit)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil && d.tls != nil {
		conn, err = zkTLS(ctx, conn, d.tls, address)
	}
	if err != nil {
		d.failed(fmt.Errorf("connect to %s: %w", address, err))
		return nil, err
	}
	w := &zkWire{Conn: conn, dialer: d, address: address}
	w.late = time.AfterFunc(zkGreetingLimit, func() {
		d.failed(fmt.Errorf("connect to %s: no answer within %v", address, zkGreetingLimit))
		conn.Close()
	})
	w.release = context.AfterFunc(d.ctx, func() { conn.Close() })
	return w, nil
}

// zkTLS makes a TLS connection of conn, or closes it.
func zkTLS(ctx context.Context, conn net.Conn, config *tls.Config, address string) (net.Conn, error) {
	config = config.Clone()
	config.ServerName, _, _ = net.SplitHostPort(address)
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		var plain tls.RecordHeaderError
		if errors.As(err, &plain) {
			err = fmt.Errorf("the server does not speak TLS on this port: %w", err)
		}
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return secure, nil
}

// zkWire is a connection that judges the server's first answer: the library would
// allocate whatever length a server of another kind seems to send.
type zkWire struct {
	net.Conn
	dialer  *zkDialer
	address string
	late    *time.Timer
	release func() bool
	head    []byte // of the first answer; used by the one goroutine that reads
}

// Read implements io.Reader. The library reads the length of a message by itself.
func (w *zkWire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.dialer.session.hears()
	}
	if len(w.head) == zkGreetingHead {
		return n, err
	}
	before := len(w.head)
	w.head = append(w.head, p[:min(n, zkGreetingHead-before)]...)
	if before < 4 && len(w.head) >= 4 {
		w.late.Stop()
		if wrong := judgeGreeting(w.head); wrong != nil {
			w.dialer.failed(fmt.Errorf("connect to %s: %w", w.address, wrong))
			return 0, wrong
		}
	}
	if len(w.head) == zkGreetingHead {
		if ms := binary.BigEndian.Uint32(w.head[8:]); ms > 0 { // 0 = the session has expired
			w.dialer.session.granted(time.Duration(ms) * time.Millisecond)
		}
	} else if err != nil && w.late.Stop() {
		w.dialer.failed(fmt.Errorf("connect to %s: connection ended without an answer: %w", w.address, err))
	}
	return n, err
}

// judgeGreeting says what sent an answer that begins with head, nil if it may be a
// ZooKeeper.
func judgeGreeting(head []byte) error {
	switch {
	case binary.BigEndian.Uint32(head) <= zkGreetingMax:
		return nil
	case string(head[:4]) == "HTTP":
		return errors.New("the server speaks HTTP on this port, not ZooKeeper's protocol")
	case head[0] == 0x15 && head[1] == 3: // an alert
		return errors.New("the server speaks TLS on this port")
	}
	return errors.New("the server does not speak ZooKeeper's protocol on this port")
}

// Close implements io.Closer.
func (w *zkWire) Close() error {
	w.late.Stop()
	w.release()
	return w.Conn.Close()
}

// zkHosts is the library's HostProvider: it gives names, not addresses, one server after
// the other, and asks for a pause after a round without success.
type zkHosts struct {
	mu      sync.Mutex
	servers []string
	next    int
	tried   int // since the last success or pause
}

// Init implements zk.HostProvider; the library has shuffled servers.
func (h *zkHosts) Init(servers []string) error {
	h.servers = servers
	return nil
}

// Len implements zk.HostProvider.
func (h *zkHosts) Len() int { return len(h.servers) }

// Next implements zk.HostProvider.
func (h *zkHosts) Next() (server string, pause bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	server = h.servers[h.next]
	h.next = (h.next + 1) % len(h.servers)
	if pause = h.tried >= len(h.servers); pause {
		h.tried = 0
	}
	h.tried++
	return server, pause
}

// Connected implements zk.HostProvider.
func (h *zkHosts) Connected() {
	h.mu.Lock()
	h.tried = 0
	h.mu.Unlock()
}
