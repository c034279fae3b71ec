package tests

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// dialer is how a test reaches the member: directly or through a proxy.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// bareSession is a session with no cleverness: it sends a heartbeat exactly when its test
// says so, and never comes back by itself. One goroutine may call its methods; those
// that say so, any.
type bareSession struct {
	conn     messageConn
	id       session.ID
	password [session.PasswordSize]byte
	timeout  time.Duration
	xid      int32

	mu struct {
		sync.Mutex
		sent []bareRequest // unanswered, in order
		// Of the newest request that was answered.
		provenSent, provenAt time.Time
		err                  error // why the reader ended
	}
	replies chan *wire.Reply // of all requests but heartbeats
	ended   chan struct{}    // closed when the reader has ended
}

type bareRequest struct {
	xid int32
	op  wire.Op
	at  time.Time
}

// messageConn is a connection as *websocket.Conn is one.
type messageConn interface {
	ReadMessage() (kind int, msg []byte, err error)
	WriteMessage(kind int, msg []byte) error
	NetConn() net.Conn
}

// bareDoor connects to some door of a member.
type bareDoor func(ctx context.Context) (messageConn, error)

// websocketDoor is a bareDoor.
func websocketDoor(dial dialer) bareDoor {
	return func(ctx context.Context) (messageConn, error) {
		d := websocket.Dialer{NetDialContext: dial, Subprotocols: []string{"tenure.v1.jute"}, HandshakeTimeout: 30 * time.Second}
		ws, _, err := d.DialContext(ctx, "ws://127.0.0.1:2180/v1/ws", nil)
		if err != nil {
			return nil, err
		}
		return ws, nil
	}
}

// zooKeepersDoor is a bareDoor.
func zooKeepersDoor(address string) bareDoor {
	return func(ctx context.Context) (messageConn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return zkMessages{c}, nil
	}
}

// zkMessages frames messages as ZooKeeper's protocol does.
type zkMessages struct{ net.Conn }

func (z zkMessages) NetConn() net.Conn { return z.Conn }

func (z zkMessages) WriteMessage(_ int, msg []byte) error {
	_, err := z.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(msg))), msg...))
	return err
}

func (z zkMessages) ReadMessage() (int, []byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(z, head[:]); err != nil {
		return 0, nil, err
	}
	msg := make([]byte, min(binary.BigEndian.Uint32(head[:]), 1<<20))
	_, err := io.ReadFull(z, msg)
	return 0, msg, err
}

// openBareSession opens a session of that timeout. It ends when close is called.
func openBareSession(ctx context.Context, dial dialer, timeout time.Duration) (*bareSession, error) {
	return (&bareSession{timeout: timeout}).resume(ctx, websocketDoor(dial))
}

// resume connects to the session of s once more, or opens one if it has none yet.
func (s *bareSession) resume(ctx context.Context, door bareDoor) (*bareSession, error) {
	c, err := door(ctx)
	if err != nil {
		return nil, err
	}
	next := &bareSession{conn: c, replies: make(chan *wire.Reply, 16), ended: make(chan struct{})}
	req := wire.ConnectRequest{TimeoutMs: int32(s.timeout.Milliseconds()), Session: s.id, Password: s.password[:]}
	next.mu.provenSent = time.Now()
	stuck := context.AfterFunc(ctx, func() { c.NetConn().Close() })
	err = c.WriteMessage(websocket.BinaryMessage, wire.Jute{}.AppendConnect(nil, &req))
	var msg []byte
	if err == nil {
		_, msg, err = c.ReadMessage()
	}
	var rep wire.ConnectReply
	if stuck(); err == nil {
		rep, err = wire.Jute{}.DecodeConnectReply(msg)
	}
	next.id, next.password, next.timeout = rep.Session, rep.Password, time.Duration(rep.TimeoutMs)*time.Millisecond
	switch {
	case err != nil:
	case next.id == 0:
		err = fmt.Errorf("session %v is over", s.id)
	case next.timeout != s.timeout:
		err = fmt.Errorf("asked for a timeout of %v, got %v", s.timeout, next.timeout)
	}
	if err != nil {
		c.NetConn().Close()
		return nil, err
	}
	next.mu.provenAt = time.Now()
	go next.read()
	return next, nil
}

// close cuts the connection, as the death of a client's process does, and waits for the
// reader. The session stays until it expires.
func (s *bareSession) close() {
	s.conn.NetConn().Close()
	<-s.ended
}

// send sends one request and does not wait.
func (s *bareSession) send(req wire.Request) error {
	s.xid++
	req.Xid = s.xid
	if req.Op == wire.OpPing {
		req.Xid = -2 // answered with it whatever it was
	}
	s.mu.Lock()
	s.mu.sent = append(s.mu.sent, bareRequest{req.Xid, req.Op, time.Now()})
	s.mu.Unlock()
	return s.conn.WriteMessage(websocket.BinaryMessage, wire.Jute{}.AppendRequest(nil, &req))
}

// beat sends a heartbeat and does not wait.
func (s *bareSession) beat() error { return s.send(wire.Request{Op: wire.OpPing}) }

// do sends one request and waits for its reply.
func (s *bareSession) do(req wire.Request) (*wire.Reply, error) {
	if err := s.send(req); err != nil {
		return nil, err
	}
	select {
	case rep := <-s.replies:
		return rep, nil
	case <-s.ended:
		return nil, s.err()
	}
}

// createEphemerals makes all paths in one transaction.
func (s *bareSession) createEphemerals(paths ...string) error {
	multi := &znode.Multi{}
	for _, path := range paths {
		multi.Ops = append(multi.Ops, &znode.Create{Path: path, ACL: znode.OpenACL, Mode: znode.Mode{Kind: znode.Ephemeral}})
	}
	rep, err := s.do(wire.Request{Op: wire.OpMulti, Body: multi})
	if err != nil {
		return err
	}
	if r, ok := rep.Body.(*znode.Result); !ok || rep.Err != znode.OK || r.Err != znode.OK {
		return fmt.Errorf("create %s: %+v", paths[0], rep)
	}
	return nil
}

func (s *bareSession) read() {
	defer close(s.ended)
	for {
		_, msg, err := s.conn.ReadMessage()
		if err == nil {
			err = s.take(msg)
		}
		if err != nil {
			s.mu.Lock()
			s.mu.err = err
			s.mu.Unlock()
			return
		}
	}
}

// take takes one reply.
func (s *bareSession) take(msg []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.sent) == 0 {
		return errors.New("a message that nobody asked for")
	}
	first := s.mu.sent[0]
	rep, _, err := wire.Jute{}.DecodeMessage(msg, func(xid int32) (wire.Op, bool) { return first.op, xid == first.xid })
	if err != nil {
		return err
	}
	s.mu.sent = s.mu.sent[1:]
	s.mu.provenSent, s.mu.provenAt = first.at, time.Now()
	if first.op != wire.OpPing {
		s.replies <- rep
	}
	return nil
}

// proven returns when the newest answered request was sent and when its answer came,
// and how many have no answer. Any goroutine may call it.
func (s *bareSession) proven() (sent, answered time.Time, open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.provenSent, s.mu.provenAt, len(s.mu.sent)
}

// err returns why the connection ended, nil while it lives. Any goroutine may call it.
func (s *bareSession) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.err
}
