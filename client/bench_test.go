package client

import (
	"context"
	"net"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// echoServer answers every read with the same hundred bytes over loopback sockets, in
// batches, so that the client is what a benchmark measures.
func echoServer(b *testing.B) (addr string) {
	f := newFake(b)
	m := &fakeMember{ln: newPipeListener()}
	srv := httptest.NewServer(f.httpServer(m).Handler)
	b.Cleanup(srv.Close)
	f.apply(&znode.Txn{Op: &znode.Create{Path: "/bench", Data: make([]byte, 100), ACL: znode.OpenACL}})
	return srv.Listener.Addr().String()
}

func benchmarkCalls(b *testing.B, outstanding int, call func(c *Client) error) {
	addr := echoServer(b)
	c, err := Connect(b.Context(), Options{Endpoints: []string{addr}})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	b.ReportAllocs()
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for range outstanding {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := call(c); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

func get(c *Client) error {
	_, _, err := c.Get(context.Background(), "/bench", ReadOptions{})
	return err
}

func set(c *Client) error {
	_, err := c.Set(context.Background(), "/bench", nil, -1)
	return err
}

func BenchmarkGet1(b *testing.B)  { benchmarkCalls(b, 1, get) }
func BenchmarkGet64(b *testing.B) { benchmarkCalls(b, 64, get) }
func BenchmarkSet64(b *testing.B) { benchmarkCalls(b, 64, set) }

// BenchmarkGet64ClientOnly has a server that only echoes prepared bytes: what remains is
// the client and the sockets.
func BenchmarkGet64ClientOnly(b *testing.B) {
	near, far := loopback(b)
	go rawServer(far)
	c, err := Connect(b.Context(), Options{Endpoints: []string{"raw:1"}, Dial: func(context.Context, string, string) (net.Conn, error) { return near, nil }})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	b.ReportAllocs()
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	for range 64 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := get(c); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

func loopback(b *testing.B) (near, far net.Conn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	if near, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		b.Fatal(err)
	}
	if far, err = ln.Accept(); err != nil {
		b.Fatal(err)
	}
	return near, far
}

// rawServer answers a handshake and then every message with a DataReply, gathering its
// replies like a real server.
func rawServer(nc net.Conn) {
	ws, t, err := rawUpgrade(nc)
	if err != nil {
		return
	}
	if _, _, err = ws.ReadMessage(); err != nil {
		return
	}
	msg := wire.Jute{}.AppendConnectReply(nil, &wire.ConnectReply{TimeoutMs: 10_000, Session: 1})
	if ws.WriteMessage(websocket.BinaryMessage, msg) != nil || t.flush() != nil {
		return
	}
	rep := &wire.Reply{Op: wire.OpGetData, Body: &wire.DataReply{Data: make([]byte, 100)}}
	for {
		_, in, err := ws.ReadMessage()
		if err != nil {
			return
		}
		req, err := wire.Jute{}.DecodeRequest(in)
		if err != nil {
			return
		}
		rep.Xid, rep.Op = req.Xid, req.Op
		if msg = (wire.Jute{}).AppendReply(msg[:0], rep); ws.WriteMessage(websocket.BinaryMessage, msg) != nil {
			return
		}
		if t.buffered() == 0 && t.flush() != nil {
			return
		}
	}
}
