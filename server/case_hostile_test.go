package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// clientHello is what a TLS client says first.
func clientHello(t *testing.T) []byte {
	t.Helper()
	here, there := net.Pipe()
	go func() {
		tls.Client(here, &tls.Config{ServerName: "tenure.test"}).Handshake()
		here.Close()
	}()
	b := make([]byte, 4096)
	n, err := there.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	there.Close()
	return b[:n]
}

// dialTCP connects without saying anything.
func dialTCP(t *testing.T, s *Server) net.Conn {
	t.Helper()
	return dialTo(t, s.Addr())
}

func dialTo(t *testing.T, addr net.Addr) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// upgradeRequest is a client's opening handshake.
func upgradeRequest(s *Server, more string) []byte {
	return fmt.Appendf(nil, "GET /v1/ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: %s\r\n%s\r\n", s.Addr(), subprotocolJute, more)
}

// frame is a masked client frame (with mask 0) that claims to have n bytes.
func frame(first byte, n uint64, payload []byte) []byte {
	b := append([]byte{first, 0x80 | 127}, binary.BigEndian.AppendUint64(nil, n)...)
	return append(append(b, 0, 0, 0, 0), payload...)
}

// Goal: nonsense, silence and half a handshake cost a bounded amount and are ended in
// time, while a normal client works. Method: hundreds of connections of each kind, all at
// once, on each port; heap and goroutines during and after.
func TestC067HalfOpenAndNonsense(t *testing.T) {
	s := startServer(t, Config{HandshakeTimeout: time.Second, ZKMinSessionTimeout: time.Second})
	nonsense(t, s, s.Addr(), 2000, [][]byte{
		{}, {0x7f, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0xff}, {1, 2, 3}, clientHello(t), []byte("GET / HTTP/1.1"),
		[]byte("ruok"), bytes.Repeat([]byte("A"), 8000), upgradeRequest(s, "")[:80], upgradeRequest(s, ""),
		append(upgradeRequest(s, ""), frame(0x82, 1<<63, nil)...), append(upgradeRequest(s, ""), frame(0x82, 1<<20, nil)...),
		append(upgradeRequest(s, ""), 0x82, 0xfe, 0), append(upgradeRequest(s, ""), frame(0x02, 1, []byte("x"))...),
	})
	hello := rawStr(nil, string(handshake(0, 1000, 0, make([]byte, 16), nil)))
	behind := func(b []byte) []byte { return append(hello[:len(hello):len(hello)], b...) }
	counts := rawLong(rawInt(rawInt(nil, 1), int32(wire.OpSetWatches2)), 0)
	nonsense(t, s, s.ZKAddr(), 1000, [][]byte{
		{}, {0x7f, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0xff}, {0, 0, 0}, clientHello(t), []byte("GET / HTTP/1.1\r\n\r\n"),
		[]byte("abcd"), bytes.Repeat([]byte("A"), 8000), hello[:10], rawInt(nil, int32(s.cfg.MaxMessageBytes)), rawStr(nil, ""),
		behind(nil), behind([]byte{0, 0}), behind(rawInt(nil, int32(s.cfg.MaxMessageBytes))), behind(rawInt(nil, -1)),
		behind(rawStr(nil, string(rawInt(counts, 1<<31-1)))), behind(rawStr(nil, string(rawInt(rawInt(nil, 1), 99)))),
	})
}

func nonsense(t *testing.T, s *Server, addr net.Addr, connections int, kinds [][]byte) {
	t.Helper()
	normal := openRaw(t, s)
	path := normal.must("/n-", "", sequential)
	// The first session's metrics and buffers are there.
	goroutines, heap := runtime.NumGoroutine(), heapBytes()
	list := make([]net.Conn, connections)
	each(connections, 50, func(i int) {
		list[i] = dialTo(t, addr)
		list[i].Write(kinds[i%len(kinds)])
	})
	opened := time.Now()
	grown := heapBytes() - heap
	if began := time.Now(); normal.set(path, "x") != znode.OK || time.Since(began) > 5*time.Second {
		t.Errorf("a normal client waited %v", time.Since(began))
	}
	t.Logf("heap grew by %d KB, %d goroutines", grown>>10, runtime.NumGoroutine()-goroutines)
	if grown > 50<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	each(connections, connections, func(i int) {
		list[i].SetReadDeadline(time.Now().Add(15 * time.Second))
		_, err := io.Copy(io.Discard, list[i])
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Errorf("kind %d: still open after %v", i%len(kinds), time.Since(opened))
		}
		list[i].Close()
	})
	t.Logf("all closed %v after the last came", time.Since(opened))
	waitFor(t, "goroutines end", 20*time.Second, func() bool { return runtime.NumGoroutine() <= goroutines+5 })
	waitFor(t, "their room is given back", 10*time.Second, func() bool {
		held, count := s.outstanding.now()
		return len(s.conns.all()) == 1 && held == 0 && count == 0
	})
	if e := normal.set(path, "y"); e != znode.OK {
		t.Errorf("afterwards: %v", e)
	}
	normal.call(wire.Request{Op: wire.OpCloseSession})
	normal.wantClosed("the end", closeNormal)
	waitFor(t, "nobody is left", 10*time.Second, func() bool { return len(s.conns.all()) == 0 })
}

// Goal: a TLS handshake that is not finished is ended in time. Method: silence, half a
// ClientHello and plain HTTP on a TLS port.
func TestC067SlowTLSHandshake(t *testing.T) {
	cert, key := newAuthority(t).issue(t, t.TempDir(), 1, pkix.Name{}, "tenure.test")
	s := startServer(t, Config{HandshakeTimeout: time.Second, TLS: TLSConfig{CertFile: cert, KeyFile: key}})
	hello := clientHello(t)
	begin := [][]byte{{}, hello[:len(hello)/2], hello, []byte("GET / HTTP/1.1\r\n"), {0x7f, 0xff, 0xff, 0xff}}
	each(len(begin), len(begin), func(i int) {
		c, first := dialTCP(t, s), begin[i]
		c.Write(first)
		c.SetReadDeadline(time.Now().Add(15 * time.Second))
		if _, err := io.Copy(io.Discard, c); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection that began with %d bytes is still open", len(first))
		}
	})
}

// Goal: lengths inside a message that promise more than there is cost nothing but an
// answer. Method: vectors and strings of 2^31-1 in requests whose frame is sound.
func TestC067HugeCountsInside(t *testing.T) {
	s := startServer(t, Config{})
	for _, protocol := range juteDoors {
		hugeCountsInside(t, openAs(t, s, protocol, 0))
	}
	openRaw(t, s).must("/n", "", persistent)
}

func hugeCountsInside(t *testing.T, r *rawClient) {
	before := heapBytes()
	huge := rawInt(nil, 1<<31-1)
	for op, record := range map[wire.Op][]byte{
		wire.OpSetWatches2: append(rawLong(nil, 0), huge...), wire.OpRenew: huge, wire.OpGetData: huge, wire.OpSetData: append(rawStr(nil, "/n"), huge...),
		wire.OpSetACL: append(rawStr(nil, "/n"), huge...), wire.OpCreate: append(rawStr(rawStr(nil, "/n"), "d"), huge...), wire.OpGetEphemerals: huge,
		wire.OpAuth: append(rawInt(nil, 0), huge...),
	} {
		if op == wire.OpAuth || op == wire.OpRenew && r.zooKeeper() {
			continue // ends the connection
		}
		if e := r.rawCall(op, record); e != znode.MarshallingError {
			t.Errorf("%v: %v, want MarshallingError", op, e)
		}
	}
	if grown := heapBytes() - before; grown > 10<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

// Goal: before and after the login a message may not exceed its bound, however it is cut
// into frames; compression is not negotiated and compressed frames are refused; what is
// refused costs little memory. Method: the row's messages on raw sockets.
func TestC157OversizeAndCompressed(t *testing.T) {
	const limit = 128 << 10
	s := startServer(t, Config{MaxMessageBytes: limit, HandshakeTimeout: 5 * time.Second})
	before := heapBytes()
	for name, row := range map[string]struct {
		send func(io.Writer) error
		want int
	}{
		"one message of 256 MB": {func(w io.Writer) error {
			_, err := w.Write(frame(0x82, 256<<20, nil))
			return chunks(w, err, make([]byte, 64<<10), 256<<20/(64<<10))
		}, closeTooBig},
		"endless fragments": {func(w io.Writer) error {
			_, err := w.Write(frame(0x02, 1024, make([]byte, 1024)))
			return chunks(w, err, frame(0x00, 1024, make([]byte, 1024)), 100_000)
		}, closeTooBig},
		"100,000 tiny fragments, then too much": {func(w io.Writer) error {
			_, err := w.Write(frame(0x02, 1, []byte("x")))
			return chunks(w, err, bytes.Repeat([]byte{0x00, 0x81, 0, 0, 0, 0, 'x'}, 1000), 150)
		}, closeTooBig},
		"a length of 2^63":   {func(w io.Writer) error { _, err := w.Write(frame(0x82, 1<<63, nil)); return err }, closeTooBig},
		"a compressed frame": {func(w io.Writer) error { _, err := w.Write(frame(0xc2, 10, make([]byte, 10))); return err }, websocket.CloseProtocolError},
		"an unmasked frame":  {func(w io.Writer) error { _, err := w.Write([]byte{0x82, 1, 0}); return err }, websocket.CloseProtocolError},
	} {
		c := dialTCP(t, s)
		c.Write(upgradeRequest(s, "Sec-WebSocket-Extensions: permessage-deflate\r\n"))
		reply := make([]byte, 4096)
		n, err := c.Read(reply)
		if err != nil || !strings.HasPrefix(string(reply[:n]), "HTTP/1.1 101") || strings.Contains(strings.ToLower(string(reply[:n])), "extensions") {
			t.Fatalf("%s: upgrade: %q %v", name, reply[:n], err)
		}
		row.send(c) // fails once the server has closed
		c.SetReadDeadline(time.Now().Add(15 * time.Second))
		rest, _ := io.ReadAll(c)
		if len(rest) < 4 || rest[0] != 0x88 || int(binary.BigEndian.Uint16(rest[2:])) != row.want {
			t.Errorf("%s: answered %x, want a close frame with %d", name, rest, row.want)
		}
	}
	if grown := heapBytes() - before; grown > 20<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	r := openRaw(t, s)
	r.write(make([]byte, limit+1))
	r.wantClosed("after the login", closeTooBig)
}

// chunks writes b n times or until it fails.
func chunks(w io.Writer, err error, b []byte, n int) error {
	for i := 0; i < n && err == nil; i++ {
		_, err = w.Write(b)
	}
	return err
}

// Goal: bounds on connections and sessions hold and give their room back. Method: one
// more than allowed, then again after one has left.
func TestC067ConnectionsAreBounded(t *testing.T) {
	s := startServer(t, Config{MaxConnections: 5, MaxSessions: 3})
	var list []*rawClient
	for range 3 {
		list = append(list, openRaw(t, s))
	}
	extra := dialRaw(t, s, subprotocolJute)
	extra.write(extra.codec.AppendConnect(nil, &wire.ConnectRequest{TimeoutMs: 10_000}))
	extra.wantClosed("one session more", closeTooMany)
	extra.drop()
	waitFor(t, "its connection ends", 10*time.Second, func() bool { return len(s.conns.all()) == 3 })
	dialRaw(t, s, subprotocolJute)
	dialRaw(t, s, zooKeeper)
	over := dialRaw(t, s, zooKeeper)
	over.wantClosed("one connection more", -1)
	d := websocket.Dialer{Subprotocols: protocols}
	url := "ws://" + s.Addr().String() + "/v1/ws"
	if ws, _, err := d.Dial(url, nil); err == nil {
		t.Error("one connection more is served")
		ws.Close()
	}
	list[0].call(wire.Request{Op: wire.OpCloseSession})
	waitFor(t, "it is gone", 10*time.Second, func() bool { return len(s.conns.all()) == 4 })
	openRaw(t, s).must("/a", "", persistent)
}
