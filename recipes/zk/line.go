package zk

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

const (
	// Waits before attempts to connect: the first is made at once, then they double, with
	// jitter. Attempts are redialGap apart in any case, so that a server that hangs up
	// after each handshake is not stormed.
	redialMin = 50 * time.Millisecond
	redialMax = time.Second
	redialGap = 10 * time.Millisecond
	// patienceMin is how long one server may take at least to answer the handshake.
	patienceMin = 500 * time.Millisecond
)

var (
	errCut     = errors.New("the session is over")
	errAnother = errors.New("the server opened another session")
)

// line is all connections of one session, one after the other: it dials them, and knows
// what was seen on them. It is the library's dialer and host provider, so that it alone
// decides when to try whom. Safe for concurrent use.
type line struct {
	o      Options
	ctx    context.Context // ended by cut
	cancel context.CancelFunc

	mu struct {
		sync.Mutex
		wire     *wire // the last
		next     int   // index of the server to try
		failures int   // attempts since a handshake
		dialed   time.Time
		id       int64         // of the session, 0 until it is granted
		timeout  time.Duration // negotiated
		contact  time.Time     // when the server was heard last
		checked  time.Time     // when the last check-only transaction began to be written
	}
}

func newLine(o Options) *line {
	l := &line{o: o}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.mu.next = rand.IntN(len(o.Servers))
	l.mu.timeout = o.Timeout
	return l
}

// Init is for the library: the servers are known.
func (l *line) Init([]string) error { return nil }

// Len returns the number of servers.
func (l *line) Len() int { return len(l.o.Servers) }

// Next returns the server to try next. After cut it says that all were tried, which is
// when the library looks whether it shall end.
func (l *line) Next() (server string, allTried bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.next = (l.mu.next + 1) % len(l.o.Servers)
	return l.o.Servers[l.mu.next], l.ctx.Err() != nil
}

// Connected is for the library: granted knows it already.
func (l *line) Connected() {}

// open is the library's dialer. It waits first if attempts failed.
func (l *line) open(network, addr string, _ time.Duration) (net.Conn, error) {
	if err := l.pace(); err != nil {
		return nil, err
	}
	patience := l.patience()
	ctx, cancel := context.WithTimeout(l.ctx, patience)
	defer cancel()
	raw, err := l.o.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	conn := raw
	if l.o.TLS != nil {
		if conn, err = secure(ctx, raw, addr, l.o.TLS); err != nil {
			return nil, err
		}
	}
	w := &wire{Conn: conn, raw: raw, line: l}
	conn.SetReadDeadline(time.Now().Add(patience)) // an error comes again at the Read
	if !l.adopt(w) {
		w.Close()
		return nil, errCut
	}
	return w, nil
}

func secure(ctx context.Context, conn net.Conn, addr string, config *tls.Config) (net.Conn, error) {
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		config = config.Clone()
		config.ServerName = host
	}
	c := tls.Client(conn, config)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("TLS with %s: %w", addr, err), conn.Close())
	}
	return c, nil
}

// pace waits before an attempt.
func (l *line) pace() error {
	l.mu.Lock()
	wait := time.Duration(0)
	if n := l.mu.failures; n > 0 {
		bound := min(redialMin<<min(n-1, 10), redialMax)
		wait = bound/2 + rand.N(bound/2)
	}
	wait = max(wait, redialGap-time.Since(l.mu.dialed))
	l.mu.failures++
	l.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.ctx.Done():
		return errCut
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.dialed = time.Now()
	return nil
}

// patience bounds dialing, and then the handshake: several servers must be tried within a
// session timeout.
func (l *line) patience() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.mu.timeout/3, patienceMin)
}

// adopt makes w the connection, unless the line is cut. The library leaves some open.
func (l *line) adopt(w *wire) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return false
	}
	if l.mu.wire != nil {
		l.mu.wire.Close()
	}
	l.mu.wire = w
	return true
}

// cut closes the connection; there will be no other.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	if l.mu.wire != nil {
		l.mu.wire.Close()
	}
}

// granted notes the server's handshake. An id of 0 says that the session is expired,
// which is the library's to tell.
func (l *line) granted(id int64, timeout time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.id != 0 && id != 0 && l.mu.id != id {
		return errAnother
	}
	l.mu.failures = 0
	if id != 0 {
		l.mu.id, l.mu.timeout = id, timeout
	}
	return nil
}

// heard notes that the server sent something.
func (l *line) heard(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.contact = now
}

// contact returns when the server was heard last, if the session is open.
func (l *line) contact() (last time.Time, timeout time.Duration, open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.contact, l.mu.timeout, l.mu.id != 0
}

// session returns the session's id, 0 before the first handshake, and its timeout.
func (l *line) session() (id int64, timeout time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.id, l.mu.timeout
}

// checking notes when a transaction that only checks began to be written.
func (l *line) checking(began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.checked = began
}

// checkBegan returns when the last transaction that only checks began to be written, if
// that was after since.
func (l *line) checkBegan(since time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.checked.After(since) {
		return l.mu.checked
	}
	return since
}
