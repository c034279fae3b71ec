package server

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: promise P7: readers see all ephemerals of a session or none, wherever they lie,
// and nothing of the session is applied behind its end. Method: sessions with ephemerals
// under two parents end in every way while others read both in one request.
func TestPromise7EphemeralsGoTogether(t *testing.T) {
	const count, rounds = 50, 12
	s := startServer(t, Config{})
	r, admin := openRaw(t, s), adminOf(t, s)
	r.must("/l", "", persistent)
	r.must("/r", "", persistent)
	ask := wire.Request{Op: wire.OpMultiRead, Body: &wire.MultiRead{Ops: []wire.ReadOp{
		{Op: wire.OpGetChildren, Path: "/l"}, {Op: wire.OpGetChildren, Path: "/r"}}}}
	for round := range rounds {
		owner := openAs(t, s, everyDoor[round%4%3], 20*time.Second)
		var m []znode.Op
		for range count {
			for _, p := range []string{"/l/n-", "/r/n-"} {
				m = append(m, &znode.Create{Path: p, ACL: znode.OpenACL, Mode: znode.Mode{Kind: znode.Ephemeral, Sequential: true}})
			}
		}
		if res := owner.multi(m...); res.Err != znode.OK {
			t.Fatal(res.Err)
		}
		for range round { // so that the end comes at different moments
			r.send(ask)
		}
		if round%3 == 0 {
			admin.sendKill(owner.session.Session)
		} else {
			owner.send(wire.Request{Op: wire.OpCloseSession})
		}
		for range 20 { // behind the end, or just before it
			owner.link.WriteMessage(owner.kind, owner.codec.AppendRequest(nil, &wire.Request{Xid: 9999, Op: wire.OpCreate,
				Body: &znode.Create{Path: "/l/late-", ACL: znode.OpenACL, Mode: znode.Mode{Kind: znode.Ephemeral, Sequential: true}}}))
		}
		left := 2 * count
		for asked := round; left > 0 || asked > 0; asked-- {
			if asked == 0 {
				r.send(ask)
				asked++
			}
			res := r.next().Body.(*wire.MultiReadReply).Results
			nl, nr := len(res[0].Children.Names), len(res[1].Children.Names)
			if nr != 0 && nr != count || nl < nr || nr == 0 && nl > 0 {
				t.Fatalf("round %d: a reader saw %d and %d ephemerals", round, nl, nr)
			}
			left = nl + nr
		}
	}
}

// Goal: a connection that loses its session proposes nothing as nobody: a write without
// a session would pass every access list. Method: hold the lock under which writes are
// proposed while the session is taken over, then while it is killed: it must still be
// the connection's own.
func TestC033NoWriteWithoutSession(t *testing.T) {
	s := startServer(t, Config{})
	for i, how := range []string{"move", "kill", "move", "kill"} {
		protocol := juteDoors[i/2]
		a := openAs(t, s, protocol, 20*time.Second)
		next, admin := dialRaw(t, s, protocol), adminOf(t, s)
		c := connOf(t, s, a.session.Session)
		l := s.sessions.get(a.session.Session)
		c.mu.Lock()
		if how == "move" {
			next.write(next.codec.AppendConnect(nil, &wire.ConnectRequest{Session: a.session.Session, Password: a.session.Password[:]}))
		} else {
			admin.sendKill(a.session.Session)
		}
		waitFor(t, "the session leaves the connection", 10*time.Second, func() bool { return l.conn.Load() != c })
		for range 200 {
			waitAtLeast(t, 100*time.Microsecond)
			if c.live.Load() == nil {
				t.Errorf("%s: the connection can propose without a session", how)
				break
			}
		}
		c.mu.Unlock()
		want := closeMoved
		if how == "kill" {
			want = closeSessionOver
		}
		a.wantClosed(how, want)
	}
}

// Goal: an old connection never hears that its session has expired when it only moved.
// Method: reads in flight on the old connection while the session moves; what is
// answered at all is answered well.
func TestC033MovedIsNotExpired(t *testing.T) {
	s := startServer(t, Config{})
	openRaw(t, s).must("/a", "", persistent)
	for _, protocol := range juteDoors {
		movedIsNotExpired(t, s, protocol)
	}
}

func movedIsNotExpired(t *testing.T, s *Server, protocol string) {
	r := openAs(t, s, protocol, 20*time.Second)
	for range 50 {
		for range 100 {
			r.send(wire.Request{Op: wire.OpExists, Body: &wire.PathWatch{Path: "/a"}, Stale: protocol != zooKeeper})
		}
		next := resumeRaw(t, s, protocol, r.session)
		code, before := r.closed()
		for _, b := range before {
			reply, _, err := r.codec.DecodeMessage(b, func(int32) (wire.Op, bool) { return wire.OpExists, true })
			if err != nil || reply.Err != znode.OK {
				t.Fatalf("the old connection was told %+v %v", reply, err)
			}
		}
		if code != r.closeCode(closeMoved) {
			t.Fatalf("closed with %d", code)
		}
		r = next
	}
}

// Goal: what is no client of this protocol is told so and cut. Method: one connection
// per mistake.
func TestDoorRefusals(t *testing.T) {
	s := startServer(t, Config{HandshakeTimeout: 300 * time.Millisecond})
	for _, offer := range [][]string{nil, {"tenure.v2.jute"}, {"mqtt"}} {
		d := websocket.Dialer{Subprotocols: offer}
		if got := upgradeStatus(t, &d, "ws://"+s.Addr().String()+"/v1/ws", http.Header{}); got != http.StatusUpgradeRequired {
			t.Errorf("subprotocols %q: status %d, want %d", offer, got, http.StatusUpgradeRequired)
		}
	}
	for i, protocol := range protocols {
		r := openAs(t, s, protocol, 0)
		r.kind = websocket.TextMessage + websocket.BinaryMessage - r.kind
		r.send(wire.Request{Op: wire.OpPing})
		r.wantClosed("the other kind of message", websocket.CloseUnsupportedData)

		r = openAs(t, s, protocol, 0)
		r.write([][]byte{{0, 0, 0}, []byte(`{"xid":1`)}[i])
		r.wantClosed("half a request", closeBadRequest)

		r = dialRaw(t, s, protocol)
		r.write([][]byte{{1, 2, 3}, []byte(`{"xid":1,"op":"ping"}`)}[i])
		r.wantClosed("no handshake", closeBadRequest)

		r = dialRaw(t, s, protocol)
		r.wantClosed("no first message", closeTimeout)

		r = dialRaw(t, s, protocol)
		r.write(r.codec.AppendConnect(nil, &wire.ConnectRequest{TimeoutMs: 1000, LastZxid: s.store.LastZxid() + 1000}))
		r.wantClosed("a client from the future", closeBehind)
	}
}

// Goal: an operation that nobody knows is answered -6, and only its connection ends.
// Method: unknown codes, and those that only a server may use.
func TestC103UnknownOperation(t *testing.T) {
	s := startServer(t, Config{})
	other := openRaw(t, s)
	for i, op := range slices.Repeat([]wire.Op{10, 23, 50, 99, 108, 200, 1999, -1, -2, -10, wire.OpCheck, wire.OpDeleteContainer, 0}, 2) {
		r := openAs(t, s, juteDoors[i%2], 0)
		r.xid++
		r.sent[r.xid] = op
		r.write(rawStr(rawInt(rawInt(nil, r.xid), int32(op)), "/a"))
		if reply := r.next(); reply.Err != znode.Unimplemented || reply.Zxid != -1 {
			t.Errorf("op %d: %+v", op, reply)
		}
		r.wantClosed("an unknown operation", closeBadRequest)
	}
	j := dialRaw(t, s, subprotocolJSON)
	j.connect(wire.ConnectRequest{})
	j.sent[1] = wire.OpExists
	j.write([]byte(`{"xid":1,"op":"fly"}`))
	if reply := j.next(); reply.Err != znode.Unimplemented {
		t.Errorf("JSON: %+v", reply)
	}
	j.wantClosed("an unknown operation", closeBadRequest)
	other.must("/fine", "", persistent)
}

// Goal: an orderly stop tells clients to come back, and then they find their sessions
// and exactly what they had been told. Method: clients that write numbered creates all
// the time; stop, restart, resume, resend what has no reply.
func TestOrderlyStop(t *testing.T) {
	const clients, writes = 6, 60
	s := startServer(t, Config{})
	openRaw(t, s).must("/o", "", persistent)
	list := make([]*rawClient, clients)
	answered := make([]int, clients)
	create := func(r *rawClient, seq int) {
		r.send(wire.Request{Op: wire.OpCreate, Seq: int64(seq), Body: &znode.Create{Path: "/o/n-", ACL: znode.OpenACL,
			Mode: znode.Mode{Kind: znode.Ephemeral, Sequential: true}}})
	}
	for i := range list {
		list[i] = openAs(t, s, protocols[i%2], 30*time.Second)
		for seq := 1; seq <= writes; seq++ {
			create(list[i], seq)
		}
	}
	again := restartInOrder(t, s)
	for i, r := range list {
		code, before := r.closed()
		if code != closeRestart {
			t.Errorf("client %d: closed with %d, want %d", i, code, closeRestart)
		}
		answered[i] = len(before)
		r = resumeRaw(t, again, protocols[i%2], r.session)
		if r.session.Session == 0 {
			t.Fatalf("client %d: the session is gone", i)
		}
		for seq := answered[i] + 1; seq <= writes; seq++ {
			create(r, seq)
		}
		for seq := answered[i] + 1; seq <= writes; seq++ {
			if reply := r.next(); reply.Err != znode.OK {
				t.Fatalf("client %d: write %d: %v", i, seq, reply.Err)
			}
		}
	}
	t.Logf("answered before the stop: %v", answered)
	if n := len(openRaw(t, again).children("/o")); n != clients*writes {
		t.Errorf("%d znodes, want %d", n, clients*writes)
	}
}
