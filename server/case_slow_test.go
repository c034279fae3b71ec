package server

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// dialStalling is dialRaw with a small receive buffer, for a client that will not read.
func dialStalling(t *testing.T, s *Server, protocol string) *rawClient {
	t.Helper()
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err == nil {
			err = c.(*net.TCPConn).SetReadBuffer(4096)
		}
		return c, err
	}
	if protocol == zooKeeper {
		nc, err := dial(t.Context(), "tcp", s.ZKAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		return &rawClient{t: t, link: framed{nc, bufio.NewReader(nc)}, codec: wire.Jute{}, sent: map[int32]wire.Op{}}
	}
	d := websocket.Dialer{Subprotocols: []string{protocol}, NetDialContext: dial}
	ws, _, err := d.DialContext(t.Context(), "ws://"+s.Addr().String()+"/v1/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.Close() })
	r := dialRaw(t, s, protocol)
	r.drop()
	r.link = ws
	return r
}

// Goal: clients that stop reading are dropped, cost nobody anything and find everything
// again. Method: 50 of them on a busy recursive watch with one that reads; then what is
// left of them, and a resume that catches up.
func TestC155StalledReadersAreDropped(t *testing.T) {
	const stalled, writes = 50, 60
	s := startServer(t, Config{OutboxBytes: 1 << 20, MaxMessageBytes: 256 << 10, WriteTimeout: 5 * time.Second})
	w, reader := openRaw(t, s), openRaw(t, s)
	long := "/b" + strings.Repeat("/"+strings.Repeat("p", 200), 4)
	for i, c := range long {
		if c == '/' && i > 0 {
			w.must(long[:i], "", persistent)
		}
	}
	w.must(long, "", persistent)
	reader.addWatch("/b", 1)
	waitFor(t, "calm", 5*time.Second, func() bool { return len(s.conns.all()) == 2 })
	goroutines, heap := runtime.NumGoroutine(), heapBytes()
	list := make([]*rawClient, stalled)
	for i := range list {
		list[i] = dialStalling(t, s, everyDoor[i%3])
		list[i].connect(wire.ConnectRequest{TimeoutMs: 40_000})
		list[i].must("/b/n-", "", znode.Mode{Kind: znode.Ephemeral, Sequential: true})
		list[i].addWatch("/b", 1)
	}
	since := s.store.LastZxid()
	reader.told()
	var sets []znode.Op
	for range 100 {
		sets = append(sets, &znode.SetData{Path: long, Version: -1})
	}
	for i := range writes {
		began := time.Now()
		if res := w.multi(sets...); res.Err != znode.OK {
			t.Fatal(res.Err)
		}
		if told := reader.told(); len(told) != len(sets) {
			t.Fatalf("write %d: the reader got %d events, want %d", i, len(told), len(sets))
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("write %d and its events took %v", i, took)
		}
	}
	waitFor(t, "the stalled are dropped", 30*time.Second, func() bool { return len(s.conns.all()) == 2 })
	waitFor(t, "goroutines end", 10*time.Second, func() bool { return runtime.NumGoroutine() <= goroutines+5 })
	if left, n := s.outboxBytes.Load(), s.metrics.slow.Load(); left != 0 || n != stalled {
		t.Errorf("%d bytes in outboxes, %d slow consumers counted, want 0 and %d", left, n, stalled)
	}
	if grown := heapBytes() - heap; grown > 50<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	if n := len(w.children("/b")); n != stalled+1 {
		t.Errorf("%d children, want the ephemerals of %d and one more", n, stalled)
	}
	back := resumeRaw(t, s, subprotocolJute, list[0].session)
	reply := back.call(wire.Request{Op: wire.OpRewatch, Body: &wire.SetWatches{RelZxid: since, Recursive: []string{"/b"}}})
	if told := len(back.told()); reply.Err != znode.OK || !reply.Body.(*wire.RewatchReply).Complete || told != writes*len(sets) {
		t.Errorf("catching up: %+v with %d events, want %d", reply, told, writes*len(sets))
	}
}

// Goal: a client that catches up on one huge change and does not read holds up nobody.
// Method: rewatch over the end of a session with very many ephemerals, without reading;
// others write meanwhile.
func TestC155CatchingUpHoldsUpNobody(t *testing.T) {
	const count = 20_000
	s := startServer(t, Config{WriteTimeout: 8 * time.Second})
	w := openRaw(t, s)
	pad := strings.Repeat("x", 400)
	w.must("/b", "", persistent)
	w.must("/b/"+pad, "", persistent)
	owner := openAs(t, s, subprotocolJute, 40*time.Second)
	fill(t, owner, "/b/"+pad, count, ephemeral, func(i int) string { return fmt.Sprintf("%s%d", pad[:50], i) })
	since := s.store.LastZxid()
	owner.call(wire.Request{Op: wire.OpCloseSession})
	r := dialStalling(t, s, subprotocolJute)
	r.connect(wire.ConnectRequest{TimeoutMs: 40_000})
	r.send(wire.Request{Op: wire.OpRewatch, Body: &wire.SetWatches{RelZxid: since, Recursive: []string{"/b"}}})
	worst := time.Duration(0)
	for deadline := time.Now().Add(1500 * time.Millisecond); time.Now().Before(deadline); {
		began := time.Now()
		if e := w.set("/b", "x"); e != znode.OK {
			t.Fatal(e)
		}
		worst = max(worst, time.Since(began))
	}
	if worst > 3*time.Second {
		t.Errorf("a write waited %v for a client that does not read", worst)
	}
	t.Logf("slowest write %v", worst)
}

// Goal: what a client that stops reading has in flight takes no room from the others.
// Method: a small bound on outstanding bytes; a client that asks for much, reads nothing
// and goes on sending large writes; the time that another's request takes.
func TestC155StalledReaderTakesNoRoom(t *testing.T) {
	for _, protocol := range juteDoors {
		stalledReaderTakesNoRoom(t, protocol)
	}
}

func stalledReaderTakesNoRoom(t *testing.T, protocol string) {
	const message = 64 << 10
	s := startServer(t, Config{MaxMessageBytes: message, OutboxBytes: 4 * message, MaxOutstandingBytes: 4 * message, WriteTimeout: 6 * time.Second})
	normal := openRaw(t, s)
	data := strings.Repeat("x", message-1000)
	normal.must("/d", data, persistent)
	stalled := dialStalling(t, s, protocol)
	stalled.connect(wire.ConnectRequest{TimeoutMs: 40_000})
	stalled.link.SetWriteDeadline(time.Now().Add(time.Second))
	for err := error(nil); err == nil; {
		stalled.xid++
		q := wire.Request{Xid: stalled.xid, Op: wire.OpGetData, Body: &wire.PathWatch{Path: "/d"}}
		if stalled.xid > 300 {
			q.Op, q.Body = wire.OpSetData, &znode.SetData{Path: "/d", Data: []byte(data), Version: -1}
		}
		err = stalled.link.WriteMessage(stalled.kind, stalled.codec.AppendRequest(nil, &q))
	}
	t.Logf("sent %d requests; outstanding %d bytes", stalled.xid, s.figures().OutstandingBytes)
	began := time.Now()
	if _, e := normal.get("/d"); e != znode.OK {
		t.Fatal(e)
	}
	if e := normal.set("/d", data); e != znode.OK {
		t.Fatal(e)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("another client waited %v", took)
	}
}
