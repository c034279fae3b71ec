package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// startServer runs a server on a free loopback port until the test ends.
func startServer(t *testing.T, cfg Config) *Server {
	t.Helper()
	if cfg.DataDir == "" {
		cfg.DataDir = t.TempDir()
	}
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	if cfg.ZKListen == "" {
		cfg.ZKListen = "127.0.0.1:0"
	}
	s, err := Open(cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopServer(t, s) })
	return s
}

func stopServer(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

// rawClient is a client without any cleverness: it sends and receives single messages.
type rawClient struct {
	t      *testing.T
	link   rawLink
	codec  rawCodec
	kind   int
	xid    int32
	sent   map[int32]wire.Op
	pings  []int32 // sent and not answered: jute answers a ping without its xid
	events []wire.Event
	// reply to the handshake
	session wire.ConnectReply
}

// rawLink is what carries messages: a websocket, or a TCP connection with ZooKeeper's framing.
type rawLink interface {
	WriteMessage(kind int, b []byte) error
	ReadMessage() (kind int, b []byte, err error)
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	NetConn() net.Conn
	Close() error
}

// framed is a rawLink with ZooKeeper's framing.
type framed struct {
	net.Conn
	in *bufio.Reader
}

func (f framed) NetConn() net.Conn { return f.Conn }

func (f framed) WriteMessage(_ int, b []byte) error {
	_, err := f.Write(append(rawInt(nil, int32(len(b))), b...))
	return err
}

func (f framed) ReadMessage() (int, []byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(f.in, head[:]); err != nil {
		return 0, nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(f.in, b)
	return 0, b, err
}

// dialFramed connects to ZooKeeper's door.
func dialFramed(t *testing.T, s *Server) framed {
	t.Helper()
	return dialFramedTo(t, s.ZKAddr().String())
}

// dialFramedTo connects to a server of ZooKeeper's protocol.
func dialFramedTo(t *testing.T, addr string) framed {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return framed{nc, bufio.NewReader(nc)}
}

type rawCodec interface {
	wire.ClientCodec
}

func dialRaw(t *testing.T, s *Server, protocol string) *rawClient {
	t.Helper()
	if protocol == zooKeeper {
		return &rawClient{t: t, link: dialFramed(t, s), codec: wire.Jute{}, sent: map[int32]wire.Op{}}
	}
	d := websocket.Dialer{Subprotocols: []string{protocol}, HandshakeTimeout: 5 * time.Second}
	ws, resp, err := d.Dial("ws://"+s.Addr().String()+"/v1/ws", nil)
	if err != nil {
		t.Fatalf("dial: %v (%v)", err, resp)
	}
	t.Cleanup(func() { ws.Close() })
	r := &rawClient{t: t, link: ws, codec: wire.Jute{}, kind: websocket.BinaryMessage, sent: map[int32]wire.Op{}}
	if protocol == subprotocolJSON {
		r.codec, r.kind = wire.JSON{}, websocket.TextMessage
	}
	return r
}

// connect opens a session, or resumes one.
func (r *rawClient) connect(q wire.ConnectRequest) wire.ConnectReply {
	r.t.Helper()
	if q.TimeoutMs == 0 {
		q.TimeoutMs = 30_000 // nobody expires by the way on a busy machine
	}
	r.write(r.codec.AppendConnect(nil, &q))
	reply, err := r.codec.DecodeConnectReply(r.read())
	if err != nil {
		r.t.Fatal(err)
	}
	r.session = reply
	return reply
}

func openRaw(t *testing.T, s *Server) *rawClient {
	t.Helper()
	r := dialRaw(t, s, subprotocolJute)
	r.connect(wire.ConnectRequest{})
	return r
}

func (r *rawClient) write(b []byte) {
	r.t.Helper()
	if err := r.link.WriteMessage(r.kind, b); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rawClient) read() []byte {
	r.t.Helper()
	r.link.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, b, err := r.link.ReadMessage()
	if err != nil {
		r.t.Fatalf("read: %v", err)
	}
	return b
}

// send sends a request without waiting for the answer.
func (r *rawClient) send(q wire.Request) int32 {
	r.t.Helper()
	r.xid++
	q.Xid = r.xid
	r.sent[q.Xid] = q.Op
	if q.Op == wire.OpPing {
		r.pings = append(r.pings, q.Xid)
	}
	r.write(r.codec.AppendRequest(nil, &q))
	return q.Xid
}

// next returns the next reply; events before it are kept in r.events.
func (r *rawClient) next() *wire.Reply {
	r.t.Helper()
	for {
		reply, event, err := r.codec.DecodeMessage(r.read(), func(xid int32) (wire.Op, bool) {
			op, ok := r.sent[xid]
			return op, ok
		})
		if err != nil {
			r.t.Fatal(err)
		}
		if event != nil {
			r.events = append(r.events, *event)
			continue
		}
		if reply.Op == wire.OpPing {
			reply.Xid, r.pings = r.pings[0], r.pings[1:]
		}
		delete(r.sent, reply.Xid)
		return reply
	}
}

func (r *rawClient) call(q wire.Request) *wire.Reply {
	r.t.Helper()
	xid := r.send(q)
	reply := r.next()
	if reply.Xid != xid {
		r.t.Fatalf("reply to %d, want %d", reply.Xid, xid)
	}
	return reply
}

func (r *rawClient) create(path, data string, m znode.Mode) (string, znode.Error) {
	r.t.Helper()
	reply := r.call(wire.Request{Op: wire.OpCreate2, Body: &znode.Create{Path: path, Data: []byte(data), ACL: znode.OpenACL, Mode: m, WantStat: true}})
	if reply.Err != znode.OK {
		return "", reply.Err
	}
	return reply.Body.(*znode.Result).Path, znode.OK
}

func (r *rawClient) get(path string) (*wire.DataReply, znode.Error) {
	r.t.Helper()
	reply := r.call(wire.Request{Op: wire.OpGetData, Body: &wire.PathWatch{Path: path}})
	if reply.Err != znode.OK {
		return nil, reply.Err
	}
	return reply.Body.(*wire.DataReply), znode.OK
}
