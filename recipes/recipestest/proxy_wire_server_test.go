package recipestest

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// messages is one connection of either protocol. One goroutine may read and one write.
type messages interface {
	read() ([]byte, error)
	write(msg []byte) error
	close()
}

// framed is ZooKeeper's framing.
type framed struct {
	net.Conn
	r *bufio.Reader
}

func (f framed) close() { f.Conn.Close() }

func (f framed) read() ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(f.r, length[:]); err != nil {
		return nil, err
	}
	msg := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, err := io.ReadFull(f.r, msg)
	return msg, err
}

func (f framed) write(msg []byte) error {
	_, err := f.Conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(msg))), msg...))
	return err
}

// socket is Tenure's. Its write buffer is small, so that messages are fragmented.
type socket struct{ *websocket.Conn }

const fragment = 64

func (s socket) close() { s.Conn.Close() }

func (s socket) read() ([]byte, error) {
	_, msg, err := s.ReadMessage()
	return msg, err
}

func (s socket) write(msg []byte) error {
	w, err := s.NextWriter(websocket.BinaryMessage)
	if err != nil {
		return err
	}
	for len(msg) > 0 { // piece by piece, for what is written at once is not fragmented
		n := min(fragment/2, len(msg))
		if len(msg) > 1<<16 {
			n = 1 << 15
		}
		if _, err := w.Write(msg[:n]); err != nil {
			return err
		}
		msg = msg[n:]
	}
	return w.Close()
}

// wireServer answers every request with its xid, after noting that it was performed.
type wireServer struct {
	addr     string
	upgrader websocket.Upgrader
	wg       sync.WaitGroup

	mu        sync.Mutex
	performed []int32
	accepted  int
	mute      bool // performs, but does not answer
	conns     []messages
}

func startWireServer(t *testing.T, p Protocol) *wireServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &wireServer{addr: l.Addr().String()}
	s.upgrader.WriteBufferSize = fragment
	if p == TenureWire {
		hs := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if ws, err := s.upgrader.Upgrade(w, r, nil); err == nil {
				s.serve(socket{ws})
			}
		})}
		s.wg.Go(func() { hs.Serve(l) })
	} else {
		s.wg.Go(func() {
			for {
				nc, err := l.Accept()
				if err != nil {
					return
				}
				s.wg.Go(func() { s.serve(framed{nc, bufio.NewReader(nc)}) })
			}
		})
	}
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		conns := s.conns
		s.mu.Unlock()
		for _, c := range conns {
			c.close()
		}
		s.wg.Wait()
	})
	return s
}

func (s *wireServer) serve(c messages) {
	defer c.close()
	s.mu.Lock()
	s.conns = append(s.conns, c)
	s.accepted++
	s.mu.Unlock()
	if _, err := c.read(); err != nil {
		return
	}
	c.write(wire.Jute{}.AppendConnectReply(nil, &wire.ConnectReply{TimeoutMs: 1000, Session: 1}))
	for {
		msg, err := c.read()
		if err != nil {
			return
		}
		xid := int32(binary.BigEndian.Uint32(msg))
		s.mu.Lock()
		s.performed = append(s.performed, xid)
		mute := s.mute
		s.mu.Unlock()
		if mute {
			continue
		}
		reply := append(binary.BigEndian.AppendUint32(nil, uint32(xid)), make([]byte, 12)...)
		if c.write(append(reply, msg...)) != nil { // with all of the request as its record
			return
		}
	}
}

// did reports whether the request was performed.
func (s *wireServer) did(xid int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.performed, xid)
}

func (s *wireServer) setMute(mute bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute = mute
}

// wireClient sends requests and collects the xids of replies; it does not reconnect.
type wireClient struct {
	t  *testing.T
	c  messages
	in chan []byte // closed when the connection is lost
}

// dialWire opens a session at addr. The answer to it is the first of in.
func dialWire(t *testing.T, p Protocol, addr string) *wireClient {
	t.Helper()
	w := &wireClient{t: t, in: make(chan []byte, 1000)}
	if p == TenureWire {
		d := websocket.Dialer{WriteBufferSize: fragment, Subprotocols: []string{"tenure.v1.jute"}}
		ws, _, err := d.Dial("ws://"+addr+"/v1/ws", nil)
		if err != nil {
			t.Fatal(err)
		}
		w.c = socket{ws}
	} else {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		w.c = framed{nc, bufio.NewReader(nc)}
	}
	if err := w.c.write(wire.Jute{}.AppendConnect(nil, &wire.ConnectRequest{TimeoutMs: 1000})); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(w.in)
		for {
			msg, err := w.c.read()
			if err != nil {
				return
			}
			w.in <- msg
		}
	}()
	t.Cleanup(w.c.close)
	return w
}

// openWire is dialWire and waits for the session.
func openWire(t *testing.T, p Protocol, addr string) *wireClient {
	t.Helper()
	w := dialWire(t, p, addr)
	w.next("the answer to connect")
	return w
}

// request encodes a request of the kind as the protocol has it.
func request(p Protocol, kind OpKind, xid int32) []byte {
	q := wire.Request{Xid: xid}
	switch kind {
	case Create:
		q.Op, q.Body = wire.OpCreate, &znode.Create{Path: "/a", Data: []byte("data"), ACL: znode.OpenACL}
	case Set:
		q.Op, q.Body = wire.OpSetData, &znode.SetData{Path: "/a", Version: -1}
	case Delete:
		q.Op, q.Body = wire.OpDelete, &znode.Delete{Path: "/a", Version: -1}
	case Multi:
		q.Op, q.Body = wire.OpMulti, &znode.Multi{Ops: []znode.Op{
			&znode.Check{Path: "/a", Version: 3}, &znode.SetData{Path: "/a", Version: -1}}}
	case Get:
		q.Op, q.Body = wire.OpGetData, &wire.PathWatch{Path: "/a"}
	case Children:
		q.Op, q.Body = wire.OpGetChildren2, &wire.PathWatch{Path: "/a", Watch: true}
	case Exists:
		q.Op, q.Body = wire.OpExists, &wire.PathWatch{Path: "/a"}
	case Sync:
		q.Op, q.Body = wire.OpSync, &wire.PathOnly{Path: "/"}
	case Renew:
		q.Op, q.Body = wire.OpRenew, &wire.Renew{Held: []wire.Held{{Path: "/a", Czxid: 7}}}
		if p == ZooKeeperWire {
			q.Op, q.Body = wire.OpMulti, &znode.Multi{Ops: []znode.Op{
				&znode.Check{Path: "/a", Version: 3}, &znode.Check{Path: "/b", Version: -1}}}
		}
	default:
		q.Op = wire.OpPing
	}
	if p == TenureWire && kind <= AnyWrite && kind != 0 {
		q.Seq = int64(xid) // inside OpWith
	}
	return wire.Jute{}.AppendRequest(nil, &q)
}

// send sends a request of the kind.
func (w *wireClient) send(p Protocol, kind OpKind, xid int32) {
	w.t.Helper()
	if err := w.c.write(request(p, kind, xid)); err != nil {
		w.t.Fatal(err)
	}
}

// next returns the next message.
func (w *wireClient) next(what string) []byte {
	w.t.Helper()
	select {
	case msg, ok := <-w.in:
		if !ok {
			w.t.Fatalf("connection lost, waiting for %s", what)
		}
		return msg
	case <-time.After(10 * time.Second):
		w.t.Fatalf("nothing for 10 s, waiting for %s", what)
	}
	return nil
}

// replies expects the replies to these requests next.
func (w *wireClient) replies(xids ...int32) {
	w.t.Helper()
	for _, xid := range xids {
		msg := w.next("a reply")
		if got := int32(binary.BigEndian.Uint32(msg)); got != xid {
			w.t.Fatalf("reply to request %d, want to %d", got, xid)
		}
	}
}

// lost expects the end of the connection and nothing before it.
func (w *wireClient) lost() {
	w.t.Helper()
	select {
	case msg, ok := <-w.in:
		if ok {
			w.t.Fatalf("reply to request %d, want the end of the connection", int32(binary.BigEndian.Uint32(msg)))
		}
	case <-time.After(10 * time.Second):
		w.t.Fatal("connection still there after 10 s")
	}
}

// silent expects nothing for a moment.
func (w *wireClient) silent() {
	w.t.Helper()
	select {
	case msg, ok := <-w.in:
		w.t.Fatalf("got a message (%t) of %d bytes, want silence", ok, len(msg))
	case <-time.After(50 * time.Millisecond):
	}
}

// happens waits for what a fault says has happened.
func happens(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: not after 10 s", what)
	}
}

// becomes waits until cond holds.
func becomes(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !cond(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after 10 s", what)
		}
	}
}
