package tests

import (
	"context"
	"errors"
	"fmt"
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
	ws      *websocket.Conn
	id      session.ID
	timeout time.Duration
	xid     int32

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

// openBareSession opens a session of that timeout. It ends when close is called.
func openBareSession(ctx context.Context, dial dialer, timeout time.Duration) (*bareSession, error) {
	d := websocket.Dialer{NetDialContext: dial, Subprotocols: []string{"tenure.v1.jute"}, HandshakeTimeout: 30 * time.Second}
	ws, _, err := d.DialContext(ctx, "ws://127.0.0.1:2180/v1/ws", nil)
	if err != nil {
		return nil, err
	}
	s := &bareSession{ws: ws, replies: make(chan *wire.Reply, 16), ended: make(chan struct{})}
	req := wire.ConnectRequest{TimeoutMs: int32(timeout.Milliseconds()), Password: make([]byte, session.PasswordSize)}
	s.mu.provenSent = time.Now()
	err = ws.WriteMessage(websocket.BinaryMessage, wire.Jute{}.AppendConnect(nil, &req))
	if err == nil {
		var msg []byte
		var rep wire.ConnectReply
		if _, msg, err = ws.ReadMessage(); err == nil {
			rep, err = wire.Jute{}.DecodeConnectReply(msg)
		}
		s.id, s.timeout = rep.Session, time.Duration(rep.TimeoutMs)*time.Millisecond
	}
	if err == nil && s.timeout != timeout {
		err = fmt.Errorf("asked for a timeout of %v, got %v", timeout, s.timeout)
	}
	if err != nil {
		ws.Close()
		return nil, err
	}
	s.mu.provenAt = time.Now()
	go s.read()
	return s, nil
}

// close cuts the connection, as the death of a client's process does, and waits for the
// reader. The session stays until it expires.
func (s *bareSession) close() {
	s.ws.NetConn().Close()
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
	return s.ws.WriteMessage(websocket.BinaryMessage, wire.Jute{}.AppendRequest(nil, &req))
}

// beat sends a heartbeat and does not wait.
func (s *bareSession) beat() error { return s.send(wire.Request{Op: wire.OpPing}) }

// createEphemerals makes all paths in one transaction.
func (s *bareSession) createEphemerals(paths ...string) error {
	multi := &znode.Multi{}
	for _, path := range paths {
		multi.Ops = append(multi.Ops, &znode.Create{Path: path, ACL: znode.OpenACL, Mode: znode.Mode{Kind: znode.Ephemeral}})
	}
	if err := s.send(wire.Request{Op: wire.OpMulti, Body: multi}); err != nil {
		return err
	}
	select {
	case rep := <-s.replies:
		if r, ok := rep.Body.(*znode.Result); !ok || rep.Err != znode.OK || r.Err != znode.OK {
			return fmt.Errorf("create %s: %+v", paths[0], rep)
		}
		return nil
	case <-s.ended:
		return s.err()
	}
}

func (s *bareSession) read() {
	defer close(s.ended)
	for {
		_, msg, err := s.ws.ReadMessage()
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
