package server

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: ZooKeeper's door serves sessions like the websocket's, with its own bounds on
// timeouts and a reply that has the read-only byte exactly if the client sent it. Method:
// handshakes of 44 and of 45 bytes, then requests on either.
func TestZooKeeperDoorHandshake(t *testing.T) {
	s := startServer(t, Config{})
	no := false
	for _, readOnly := range []*bool{nil, &no} {
		r := dialRaw(t, s, zooKeeper)
		got := r.connect(wire.ConnectRequest{TimeoutMs: 1, Password: make([]byte, 16), ReadOnly: readOnly})
		if got.Session == 0 || got.TimeoutMs != 4000 || (got.ReadOnly == nil) != (readOnly == nil) {
			t.Errorf("read-only %v: reply %+v", readOnly, got)
		}
		path, e := r.create("/n-", "data", sequential)
		if e != znode.OK {
			t.Fatal(e)
		}
		if d, e := r.get(path); e != znode.OK || string(d.Data) != "data" {
			t.Errorf("get: %v %v", d, e)
		}
	}
}

// Goal: requests sent behind the handshake, before its reply, are answered in order behind
// it. Method: one write of handshake and three requests.
func TestZooKeeperDoorPipelinesBehindHandshake(t *testing.T) {
	s := startServer(t, Config{})
	f := dialFramed(t, s)
	var sent []byte
	frame := func(b []byte) { sent = append(append(sent, rawInt(nil, int32(len(b)))...), b...) }
	jute := wire.Jute{}
	frame(jute.AppendConnect(nil, &wire.ConnectRequest{TimeoutMs: 30_000, Password: make([]byte, 16)}))
	frame(jute.AppendRequest(nil, &wire.Request{Xid: 7, Op: wire.OpCreate, Body: &znode.Create{Path: "/p", ACL: znode.OpenACL}}))
	frame(jute.AppendRequest(nil, &wire.Request{Xid: 7, Op: wire.OpExists, Body: &wire.PathWatch{Path: "/p"}}))
	frame(jute.AppendRequest(nil, &wire.Request{Xid: 0, Op: wire.OpPing}))
	if _, err := f.Write(sent); err != nil {
		t.Fatal(err)
	}
	f.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, b, err := f.ReadMessage(); err != nil || len(b) != 36 {
		t.Fatalf("handshake's reply: %d bytes, %v", len(b), err)
	}
	for _, op := range []wire.Op{wire.OpCreate, wire.OpExists, wire.OpPing} {
		_, b, err := f.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		reply, _, err := jute.DecodeMessage(b, func(int32) (wire.Op, bool) { return op, true })
		if err != nil || reply.Op != op || reply.Err != znode.OK {
			t.Errorf("%v: %+v %v", op, reply, err)
		}
	}
}

// Goal: Tenure's own operations are unknown here: -6 with zxid -1, then the end of the
// connection, and the session lives on. Method: each operation from 1000 up.
func TestZooKeeperDoorKnowsNoOwnOperations(t *testing.T) {
	s := startServer(t, Config{})
	for op := wire.OpWith; op <= wire.OpTransferLead+1; op++ {
		r := openAs(t, s, zooKeeper, 30*time.Second)
		r.xid++
		r.sent[r.xid] = op
		r.write(rawInt(rawInt(nil, r.xid), int32(op)))
		if reply := r.next(); reply.Err != znode.Unimplemented || reply.Zxid != -1 {
			t.Errorf("%v: %+v", op, reply)
		}
		r.wantClosed(op.String(), -1)
		if again := resumeRaw(t, s, zooKeeper, r.session); again.session.Session != r.session.Session {
			t.Errorf("%v: the session is gone", op)
		}
	}
}

// Goal: a stopping server lets go of connections that have not said anything, and of those
// with a session. Method: stop it with one of each.
func TestZooKeeperDoorStops(t *testing.T) {
	s := startServer(t, Config{})
	silent, r := dialFramed(t, s), openAs(t, s, zooKeeper, 30*time.Second)
	waitFor(t, "both are known", 5*time.Second, func() bool { return len(s.conns.all()) == 2 })
	stopServer(t, s)
	for _, nc := range []net.Conn{silent.Conn, r.link.NetConn()} {
		nc.SetReadDeadline(time.Now().Add(5 * time.Second))
		if b, err := io.ReadAll(nc); err != nil || !bytes.Equal(b, []byte{}) {
			t.Errorf("read %q, %v", b, err)
		}
	}
}

// Goal: an event behind a long reply that waits to be read does not end the connection, one
// too many behind it does. Method: as a worker would, put a reply of twice the outbox's bound
// into the outbox, then events.
func TestZooKeeperDoorKeepsEventsBehindALongReply(t *testing.T) {
	const bound = 64 << 10
	s := startServer(t, Config{OutboxBytes: bound, MaxMessageBytes: bound / 2})
	c := connOf(t, s, openAs(t, s, zooKeeper, 30*time.Second).session.Session)
	c.mu.Lock()
	c.mu.working = true // so that nobody writes it out
	long := make([]byte, 2*bound)
	c.appendRunLocked(&long)
	c.mu.Unlock()
	event := &wire.Event{Type: znode.EventDataChanged, Path: "/" + strings.Repeat("p", bound/2)}
	for n, want := range []bool{true, false} {
		c.event(event)
		c.mu.Lock()
		if open := c.mu.closing == nil; open != want {
			t.Errorf("behind event %d: open %v, want %v", n+1, open, want)
		}
		c.mu.Unlock()
	}
	c.mu.Lock()
	c.mu.working = false
	c.mu.Unlock()
	c.close(closeReason{})
}

// Goal: what a client sends behind closeSession does not take the answer to it away. Method:
// the moment between a session's end and that answer, made by hand: bytes come in then.
func TestZooKeeperDoorBytesBehindClose(t *testing.T) {
	s := startServer(t, Config{})
	r := openAs(t, s, zooKeeper, 30*time.Second)
	s.sessions.closed(r.session.Session)
	if reply := r.call(wire.Request{Op: wire.OpPing}); reply.Err != znode.OK {
		t.Errorf("ping: %v", reply.Err)
	}
}
