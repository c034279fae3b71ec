package server

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// connTable is the open connections. Safe for concurrent use.
type connTable struct {
	sync.Mutex
	joined int            // sockets, whatever they are used for
	perIP  map[string]int // of those
	open   map[*conn]struct{}
	closed bool
	gone   sync.WaitGroup
}

// join makes room for a socket from addr, false where a bound is reached.
func (s *Server) join(addr string) bool {
	t, ip := &s.conns, hostOf(addr)
	t.Lock()
	defer t.Unlock()
	if t.joined >= s.cfg.MaxConnections || t.perIP[ip] >= s.cfg.MaxConnectionsPerIP {
		s.metrics.refusedConnection()
		return false
	}
	t.joined++
	t.perIP[ip]++
	return true
}

// leave gives the room back.
func (s *Server) leave(addr string) {
	t, ip := &s.conns, hostOf(addr)
	t.Lock()
	defer t.Unlock()
	t.joined--
	if t.perIP[ip]--; t.perIP[ip] == 0 {
		delete(t.perIP, ip)
	}
}

// enter lists a connection, false once the member is stopping.
func (s *Server) enter(c *conn) bool {
	s.conns.Lock()
	defer s.conns.Unlock()
	if s.conns.closed {
		return false
	}
	s.conns.open[c] = struct{}{}
	s.conns.gone.Add(1)
	return true
}

// left is the end of a connection that entered.
func (s *Server) left(c *conn) {
	s.conns.Lock()
	defer s.conns.Unlock()
	delete(s.conns.open, c)
	s.conns.gone.Done()
}

// all returns the open connections.
func (t *connTable) all() []*conn {
	t.Lock()
	defer t.Unlock()
	list := make([]*conn, 0, len(t.open))
	for c := range t.open {
		list = append(list, c)
	}
	return list
}

// goAway tells everybody to come back and waits until they are gone, ctx at most.
func (t *connTable) goAway(ctx context.Context) {
	t.Lock()
	t.closed = true
	t.Unlock()
	list := t.all()
	for _, c := range list {
		c.close(closeReason{closeRestart, "the server is stopping: come back"})
	}
	done := make(chan struct{})
	go func() {
		t.gone.Wait()
		close(done)
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	for _, c := range t.all() {
		c.door.Abort()
	}
	<-done
}

// sendAway ends the connections of clients.
func (t *connTable) sendAway(why closeReason) {
	for _, c := range t.all() {
		if c.admitted.Load() {
			c.close(why)
		}
	}
}

// Proxies cut connections that are silent for a minute: something is sent sooner.
const (
	keepAliveAfter = 20 * time.Second
	keepAliveLook  = 5 * time.Second
)

// keepAlive pings the connections on which nothing was sent for a while.
func (s *Server) keepAlive(ctx context.Context) {
	tick := time.NewTicker(keepAliveLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.pingSilent()
		}
	}
}

// pingSilent pings those that were silent for keepAliveAfter.
func (s *Server) pingSilent() {
	silent := s.now() - int64(keepAliveAfter)
	for _, c := range s.conns.all() {
		if c.wroteAt.Load() < silent {
			c.ping()
		}
	}
}

// ping makes the worker send a keep-alive.
func (c *conn) ping() {
	c.mu.Lock()
	c.mu.ping = true
	start := c.startLocked()
	c.mu.Unlock()
	if start {
		c.srv.spawn(c)
	}
}

func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}

// gatherListener hands out gathering connections, also above TLS.
// One more than the bounds allow is closed at once.
type gatherListener struct {
	net.Listener
	s *Server
}

func (l gatherListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	for err == nil && !l.s.join(c.RemoteAddr().String()) {
		c.Close()
		c, err = l.Listener.Accept()
	}
	if err != nil {
		return nil, err
	}
	addr := c.RemoteAddr().String()
	return &gatherConn{Conn: c, closed: func() { l.s.leave(addr) }}, nil
}

type connKey struct{}

// withConn lets a handler find the connection below its request.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// identities are those that a connection has before any addauth: its address, and
// the subject of its client certificate.
func identities(g *gatherConn) []znode.Identity {
	ids := []znode.Identity{{Scheme: "ip", ID: hostOf(g.RemoteAddr().String())}}
	if id, ok := certIdentity(tlsState(g.Conn)); ok {
		ids = append(ids, id)
	}
	return ids
}
