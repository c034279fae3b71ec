package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

var (
	persistent = znode.Mode{}
	sequential = znode.Mode{Sequential: true}
	ephemeral  = znode.Mode{Kind: znode.Ephemeral}
	container  = znode.Mode{Kind: znode.Container}

	protocols = []string{subprotocolJute, subprotocolJSON}
	// everyDoor is protocols and ZooKeeper's own.
	everyDoor = append(protocols[:2:2], zooKeeper)
	// juteDoors are those whose messages are binary.
	juteDoors = []string{subprotocolJute, zooKeeper}
)

// openAs opens a session on a new connection.
func openAs(t *testing.T, s *Server, protocol string, timeout time.Duration) *rawClient {
	t.Helper()
	r := dialRaw(t, s, protocol)
	r.connect(wire.ConnectRequest{TimeoutMs: int32(timeout.Milliseconds())})
	if r.session.Session == 0 {
		t.Fatal("no session")
	}
	return r
}

// resumeRaw continues a session on a new connection.
func resumeRaw(t *testing.T, s *Server, protocol string, was wire.ConnectReply) *rawClient {
	t.Helper()
	r := dialRaw(t, s, protocol)
	r.connect(wire.ConnectRequest{Session: was.Session, Password: was.Password[:], TimeoutMs: was.TimeoutMs})
	return r
}

// must creates a znode that is expected to be created.
func (r *rawClient) must(path, data string, m znode.Mode) string {
	r.t.Helper()
	got, e := r.create(path, data, m)
	if e != znode.OK {
		r.t.Fatalf("create %s: %v", path, e)
	}
	return got
}

func (r *rawClient) set(path, data string) znode.Error { return r.setVersion(path, data, -1) }

func (r *rawClient) setVersion(path, data string, version int32) znode.Error {
	r.t.Helper()
	return r.call(wire.Request{Op: wire.OpSetData, Body: &znode.SetData{Path: path, Data: []byte(data), Version: version}}).Err
}

func (r *rawClient) delete(path string) znode.Error {
	r.t.Helper()
	return r.call(wire.Request{Op: wire.OpDelete, Body: &znode.Delete{Path: path, Version: -1}}).Err
}

// stat is the Stat of path, nil if there is no such znode.
func (r *rawClient) stat(path string) *znode.Stat {
	r.t.Helper()
	reply := r.call(wire.Request{Op: wire.OpExists, Body: &wire.PathWatch{Path: path}})
	if reply.Err == znode.NoNode {
		return nil
	}
	if reply.Err != znode.OK {
		r.t.Fatalf("exists %s: %v", path, reply.Err)
	}
	return &reply.Body.(*wire.StatReply).Stat
}

func (r *rawClient) children(path string) []string {
	r.t.Helper()
	reply := r.call(wire.Request{Op: wire.OpGetChildren2, Body: &wire.PathWatch{Path: path}})
	if reply.Err != znode.OK {
		r.t.Fatalf("children of %s: %v", path, reply.Err)
	}
	names := slices.Clone(reply.Body.(*wire.ChildrenReply).Names)
	slices.Sort(names)
	return names
}

func (r *rawClient) multi(ops ...znode.Op) *znode.Result {
	r.t.Helper()
	reply := r.call(wire.Request{Op: wire.OpMulti, Body: &znode.Multi{Ops: ops}})
	res, ok := reply.Body.(*znode.Result)
	if !ok {
		r.t.Fatalf("multi: %v %s", reply.Err, reply.Detail)
	}
	return res
}

// watched reads path with a one-shot watch.
func (r *rawClient) watched(op wire.Op, path string) znode.Error {
	r.t.Helper()
	return r.call(wire.Request{Op: op, Body: &wire.PathWatch{Path: path, Watch: true}}).Err
}

func (r *rawClient) addWatch(path string, mode int32) {
	r.t.Helper()
	if e := r.call(wire.Request{Op: wire.OpAddWatch, Body: &wire.AddWatch{Path: path, Mode: mode}}).Err; e != znode.OK {
		r.t.Fatalf("watch %s: %v", path, e)
	}
}

func (r *rawClient) auth(scheme, data string) znode.Error {
	r.t.Helper()
	return r.call(wire.Request{Op: wire.OpAuth, Body: &wire.Auth{Scheme: scheme, Data: []byte(data)}}).Err
}

// told returns "type path" of the events since the last call, up to now: a reply to a
// linearizable request comes behind the events of all changes before it.
func (r *rawClient) told() (list []string) {
	r.t.Helper()
	r.call(wire.Request{Op: wire.OpPing})
	names := map[znode.EventType]string{znode.EventCreated: "created", znode.EventDeleted: "deleted",
		znode.EventDataChanged: "changed", znode.EventChildrenChanged: "children", wire.EventGap: "gap"}
	for _, e := range r.events {
		list = append(list, names[e.Type]+" "+e.Path)
	}
	r.events = nil
	return list
}

func (r *rawClient) wantTold(what string, want ...string) {
	r.t.Helper()
	if got := r.told(); !slices.Equal(got, want) {
		r.t.Errorf("%s: events %q, want %q", what, got, want)
	}
}

// closed reads until the connection ends and returns the close code, -1 if it ended
// without one, and what came before.
func (r *rawClient) closed() (code int, before [][]byte) {
	r.t.Helper()
	r.link.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		_, b, err := r.link.ReadMessage()
		if err == nil {
			before = append(before, b)
			continue
		}
		if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
			r.t.Fatalf("the connection was not closed")
		}
		r.link.Close() // as clients do, for which the server waits a moment
		if ce, ok := errors.AsType[*websocket.CloseError](err); ok && ce.Code != websocket.CloseAbnormalClosure {
			return ce.Code, before
		}
		return -1, before
	}
}

// closeCode is what the client sees where a websocket is closed with code.
func (r *rawClient) closeCode(code int) int {
	if r.zooKeeper() {
		return -1 // ZooKeeper's protocol has no words for it
	}
	return code
}

// zooKeeper reports whether the client came through ZooKeeper's door.
func (r *rawClient) zooKeeper() bool { _, ok := r.link.(framed); return ok }

func (r *rawClient) wantClosed(what string, want int) {
	r.t.Helper()
	want = r.closeCode(want)
	if code, _ := r.closed(); code != want {
		r.t.Errorf("%s: closed with %d, want %d", what, code, want)
	}
}

// drop cuts the connection without a word, as a crash of the client would.
func (r *rawClient) drop() { r.link.NetConn().Close() }

// connOf is the server's side of the session's connection.
func connOf(t *testing.T, s *Server, id session.ID) *conn {
	t.Helper()
	l := s.sessions.get(id)
	if l == nil || l.conn.Load() == nil {
		t.Fatalf("session %v is on no connection", id)
	}
	return l.conn.Load()
}

// waitFor polls until cond holds.
func waitFor(t *testing.T, what string, limit time.Duration, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after %v", what, limit)
		}
	}
}

// waitAtLeast waits for a span of time that is itself the subject of a test.
func waitAtLeast(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
}

// each runs f for 0 to n-1, at most width at once, and waits.
func each(n, width int, f func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, width)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wg.Wait()
}

// restart stops the server and opens another on the same directory. It cuts the
// connections first: an orderly stop gives those that don't listen a second.
func restart(t *testing.T, s *Server) *Server {
	t.Helper()
	for _, c := range s.conns.all() {
		c.door.Abort()
	}
	return restartInOrder(t, s)
}

// restartInOrder is restart with clients that are told to come back.
func restartInOrder(t *testing.T, s *Server) *Server {
	t.Helper()
	stopServer(t, s)
	cfg := s.cfg
	cfg.Listen, cfg.ZKListen = "127.0.0.1:0", "127.0.0.1:0"
	return startServer(t, cfg)
}

// restored makes a server of a snapshot of s, in a directory of its own.
func restored(t *testing.T, s *Server) *Server {
	t.Helper()
	var b bytes.Buffer
	if _, err := s.writeSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	cfg := s.cfg
	cfg.DataDir, cfg.Listen, cfg.ZKListen = filepath.Join(t.TempDir(), "new"), "127.0.0.1:0", "127.0.0.1:0"
	if _, err := RestoreDataDir(cfg.DataDir, &b, s.log); err != nil {
		t.Fatal(err)
	}
	return startServer(t, cfg)
}

// adminTokenOf reads the token that the server made.
func adminTokenOf(t *testing.T, s *Server) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.cfg.DataDir, AdminTokenFile))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// adminOf is a client with the admin token.
func adminOf(t *testing.T, s *Server) *rawClient {
	t.Helper()
	r := openRaw(t, s)
	if e := r.auth("token", adminTokenOf(t, s)); e != znode.OK {
		t.Fatal(e)
	}
	return r
}

// sendKill asks for the end of another session without waiting.
func (r *rawClient) sendKill(id session.ID) {
	r.t.Helper()
	r.send(wire.Request{Op: wire.OpKillSession, Body: &wire.KillSession{Session: id}})
}

// heapBytes is what is in use after a collection.
func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Pieces of raw jute messages.
func rawInt(b []byte, v int32) []byte  { return binary.BigEndian.AppendUint32(b, uint32(v)) }
func rawLong(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }
func rawStr(b []byte, s string) []byte { return append(rawInt(b, int32(len(s))), s...) }

// zooKeeper names ZooKeeper's own door beside the websocket's subprotocols.
const zooKeeper = "zookeeper"
