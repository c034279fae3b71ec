package server

import (
	"context"
	"log/slog"
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
	ws     *websocket.Conn
	codec  rawCodec
	kind   int
	xid    int32
	sent   map[int32]wire.Op
	pings  []int32 // sent and not answered: jute answers a ping without its xid
	events []wire.Event
	// reply to the handshake
	session wire.ConnectReply
}

type rawCodec interface {
	wire.ClientCodec
}

func dialRaw(t *testing.T, s *Server, protocol string) *rawClient {
	t.Helper()
	d := websocket.Dialer{Subprotocols: []string{protocol}, HandshakeTimeout: 5 * time.Second}
	ws, resp, err := d.Dial("ws://"+s.Addr().String()+"/v1/ws", nil)
	if err != nil {
		t.Fatalf("dial: %v (%v)", err, resp)
	}
	t.Cleanup(func() { ws.Close() })
	r := &rawClient{t: t, ws: ws, codec: wire.Jute{}, kind: websocket.BinaryMessage, sent: map[int32]wire.Op{}}
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
	if err := r.ws.WriteMessage(r.kind, b); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rawClient) read() []byte {
	r.t.Helper()
	r.ws.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, b, err := r.ws.ReadMessage()
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
