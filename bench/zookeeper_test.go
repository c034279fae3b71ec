package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// serveZooKeeper answers ZooKeeper's protocol from a tree, to one connection after the
// other and all at once, until the listener closes.
func serveZooKeeper(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeZooKeeper{tree: znode.NewTree(), watchers: map[string][]net.Conn{}}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { s.serve(nc) })
		}
	})
	t.Cleanup(func() { ln.Close(); conns.Wait() })
	return ln.Addr().String()
}

type fakeZooKeeper struct {
	mu       sync.Mutex
	tree     *znode.Tree
	watchers map[string][]net.Conn
}

func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(r, b)
	return b, err
}

func writeFrame(w io.Writer, b []byte) {
	w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
}

func (s *fakeZooKeeper) serve(nc net.Conn) {
	defer nc.Close()
	if _, err := readFrame(nc); err != nil {
		return
	}
	writeFrame(nc, wire.Jute{}.AppendConnectReply(nil, &wire.ConnectReply{TimeoutMs: 30_000, Session: 1, ReadOnly: new(bool)}))
	for {
		msg, err := readFrame(nc)
		if err != nil {
			return
		}
		req, err := wire.Jute{}.DecodeRequest(msg)
		if err != nil {
			return
		}
		s.mu.Lock()
		reply := s.answer(nc, &req)
		writeFrame(nc, wire.Jute{}.AppendReply(nil, reply))
		s.mu.Unlock()
		if req.Op == wire.OpCloseSession {
			return
		}
	}
}

func (s *fakeZooKeeper) answer(nc net.Conn, q *wire.Request) *wire.Reply {
	r := &wire.Reply{Xid: q.Xid, Op: q.Op, Zxid: s.tree.LastZxid()}
	switch b := q.Body.(type) {
	case znode.Op:
		res, delta := s.tree.Apply(znode.Stamp{TimeMs: 1}, &znode.Txn{Op: b})
		for _, c := range delta.Changes {
			for _, w := range s.watchers[c.Path] {
				writeFrame(w, wire.Jute{}.AppendEvent(nil, &wire.Event{Type: c.Type, Path: c.Path, Zxid: delta.Zxid}))
			}
			delete(s.watchers, c.Path)
		}
		if r.Err = res.Err; res.Err == znode.OK || res.Kind == znode.ResultMulti {
			r.Body = &res
		}
	case *wire.PathWatch:
		n := s.tree.Node(b.Path)
		if n == nil {
			r.Err = znode.NoNode
			break
		}
		stat := znode.StatOf(n, s.tree.Children(b.Path))
		switch q.Op {
		case wire.OpGetData:
			r.Body = &wire.DataReply{Data: n.Data, Stat: stat}
		case wire.OpExists:
			r.Body = &wire.StatReply{Stat: stat}
		default:
			r.Body = &wire.ChildrenReply{Names: s.tree.List(b.Path), Stat: stat}
		}
		if b.Watch {
			s.watchers[b.Path] = append(s.watchers[b.Path], nc)
		}
	}
	return r
}

// Goal: every operation of a ZooKeeper target does what it says, many at once on one
// connection, and its errors have names. Method: against a tree behind a socket.
func TestZooKeeperTarget(t *testing.T) {
	z := &ZooKeeper{Addrs: []string{serveZooKeeper(t)}}
	ctx := t.Context()
	c, err := z.Connect(ctx, 8)
	if err != nil {
		t.Fatal(err)
	}
	if path, err := c.Create(ctx, "/a-", []byte("x"), znode.Mode{Sequential: true}); err != nil || path != "/a-0000000000" {
		t.Fatalf("create: %q, %v", path, err)
	}
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			path := fmt.Sprintf("/a-0000000000/%d", i)
			if _, err := c.Create(ctx, path, nil, znode.Mode{}); err != nil {
				t.Error(err)
			}
			if err := errors.Join(c.Get(ctx, path), c.Exists(ctx, path), c.Set(ctx, path, []byte("y"))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n, err := c.List(ctx, "/a-0000000000"); err != nil || n != 50 {
		t.Errorf("list: %d, %v", n, err)
	}
	if err := c.Watch(ctx, "/a-0000000000/0", func() {
		if err := c.Set(ctx, "/a-0000000000/0", nil); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Errorf("watch: %v", err)
	}
	if err := c.DeleteAll(ctx, []string{"/a-0000000000/1", "/a-0000000000/1"}); z.ErrorKind(err) != "NoNode" {
		t.Errorf("transaction that cannot be: %v", err)
	}
	if err := errors.Join(c.Delete(ctx, "/a-0000000000/1"), c.DeleteAll(ctx, []string{"/a-0000000000/2"})); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := c.Delete(ctx, "/none"); z.ErrorKind(err) != "NoNode" {
		t.Errorf("delete of nothing: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := c.Get(ctx, "/"); err == nil {
		t.Error("an answer behind close")
	}
}

// Goal: connections are spread evenly over the servers of an ensemble, and a row of one
// connection always has the same server. Method: two servers; a connection for each, one of
// them closed, one opened again; a server that refuses takes no place.
func TestZooKeeperTargetSpreadsConnections(t *testing.T) {
	z := &ZooKeeper{Addrs: []string{serveZooKeeper(t), serveZooKeeper(t), "127.0.0.1:1"}}
	wantOpen := func(first, second int) {
		t.Helper()
		z.mu.Lock()
		defer z.mu.Unlock()
		if got := [3]int{z.open[z.Addrs[0]], z.open[z.Addrs[1]], z.open[z.Addrs[2]]}; got != [3]int{first, second, 0} {
			t.Errorf("connections by server %v, want %d and %d", got, first, second)
		}
	}
	connect := func() Conn {
		t.Helper()
		c, err := z.Connect(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first, second := connect(), connect()
	wantOpen(1, 1)
	if _, err := z.Connect(t.Context(), 1); err == nil {
		t.Fatal("connected to port 1")
	}
	wantOpen(1, 1)
	first.Close()
	wantOpen(0, 1)
	first = connect()
	wantOpen(1, 1)
	first.Close()
	second.Close()
	wantOpen(0, 0)
}

// Goal: two servers are measured in one run, each row on both, and the ratios are printed.
// Method: two trees behind sockets, two rows, two repetitions.
func TestVersus(t *testing.T) {
	c := Config{Target: &ZooKeeper{Addrs: []string{serveZooKeeper(t)}}, Versus: &ZooKeeper{Addrs: []string{serveZooKeeper(t)}},
		Rows: []Shape{{"create", 1, 1}, {"get", 2, 4}}, Repeat: 2, Count: 50, ProbeDir: t.TempDir(), Keys: 10}
	report, err := Execute(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := report.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Report{report, report.Versus} {
		if len(r.Rows) != 2 || len(r.Rows[0].Runs) != 2 || len(r.Rows[1].Runs) != 2 || r.Rows[1].Summary().Ops != 100 {
			t.Errorf("%s: rows %+v", r.Environment.Target, r.Rows)
		}
		if !strings.Contains(out.String(), r.Environment.Target) {
			t.Errorf("the table does not name %s:\n%s", r.Environment.Target, &out)
		}
	}
	if ratios := report.Compare(report.Versus); len(ratios) != 2 || ratios[1].OpsPerSecond <= 0 {
		t.Errorf("ratios %+v", ratios)
	}
}
