package server

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: when a client vanishes its ephemerals stay for the timeout, and soon after all of
// them are gone in one change, for good. Method: cut the connection behind an
// acknowledged heartbeat and read the list all the time.
func TestC021EphemeralsOfAVanishedClient(t *testing.T) {
	t.Parallel()
	each(len(juteDoors), len(juteDoors), func(i int) { ephemeralsOfAVanishedClient(t, juteDoors[i]) })
}

func ephemeralsOfAVanishedClient(t *testing.T, protocol string) {
	const timeout, count = time.Second, 100
	s := startServer(t, Config{ZKMinSessionTimeout: timeout})
	r, owner := openRaw(t, s), openAs(t, s, protocol, timeout)
	r.must("/e", "", persistent)
	for range count {
		owner.must("/e/n-", "", znode.Mode{Kind: znode.Ephemeral, Sequential: true})
	}
	heard := time.Now() // the ping is received later
	if e := owner.call(wire.Request{Op: wire.OpPing}).Err; e != znode.OK {
		t.Fatal(e)
	}
	owner.drop()
	for n := count; n > 0; {
		n = len(r.children("/e"))
		since := time.Since(heard)
		switch {
		case n != 0 && n != count:
			t.Fatalf("%d of %d ephemerals left", n, count)
		case n == 0 && since < timeout:
			t.Fatalf("gone %v after the last heartbeat", since)
		case since > 15*time.Second:
			t.Fatalf("still there after %v", since)
		}
	}
	t.Logf("gone %v after the last heartbeat", time.Since(heard))
	if st := r.stat("/e"); st.NumChildren != 0 || st.Pzxid != s.store.LastZxid() {
		t.Errorf("the parent has %+v", st)
	}
	s = restart(t, s)
	if left := openRaw(t, s).children("/e"); len(left) != 0 || s.store.Counts().Ephemerals != 0 {
		t.Errorf("after a restart: %v", left)
	}
}

// Goal: whatever a client sends keeps its session. Method: for several timeouts one
// client only reads, one only makes stale reads, one only pings, one sends only what is
// refused.
func TestC023AnyTrafficIsALifeSign(t *testing.T) {
	t.Parallel()
	const timeout = 1500 * time.Millisecond
	s := startServer(t, Config{ZKMinSessionTimeout: timeout})
	openRaw(t, s).must("/a", "", persistent)
	talk := []wire.Request{
		{Op: wire.OpGetData, Body: &wire.PathWatch{Path: "/a"}},
		{Op: wire.OpGetData, Body: &wire.PathWatch{Path: "/a"}, Stale: true},
		{Op: wire.OpPing},
		{Op: wire.OpDelete, Body: &znode.Delete{Path: "/none", Version: -1}},
	}
	var clients []*rawClient
	for i := range 3 * len(talk) {
		c := openAs(t, s, everyDoor[i%3], timeout)
		c.must("/a/n-", "", znode.Mode{Kind: znode.Ephemeral, Sequential: true})
		clients = append(clients, c)
	}
	tick := time.NewTicker(timeout / 6)
	defer tick.Stop()
	for range 12 { // two timeouts
		<-tick.C
		for i, c := range clients {
			q := talk[i/3]
			q.Stale = q.Stale && everyDoor[i%3] != zooKeeper
			if e := c.call(q).Err; e != znode.OK && e != znode.NoNode {
				t.Fatalf("client %d: %v", i, e)
			}
		}
	}
	if n := len(openRaw(t, s).children("/a")); n != len(clients) {
		t.Errorf("%d ephemerals left, want %d", n, len(clients))
	}
}

// Goal: the timeout is clamped into the server's bounds, the reply says the granted one,
// and it is the one that counts. Method: the row's table through every door; then a short
// minimum and a silent client of each.
func TestC027TimeoutNegotiation(t *testing.T) {
	t.Parallel()
	s := startServer(t, Config{MinSessionTimeout: 4 * time.Second, MaxSessionTimeout: 40 * time.Second}) // as ZooKeeper's door has anyway
	for _, protocol := range everyDoor {
		for asked, want := range map[int32]int32{0: 4000, -1: 4000, 1: 4000, 5000: 5000, 2147483647: 40000, -2147483648: 4000} {
			r := dialRaw(t, s, protocol)
			r.write(r.codec.AppendConnect(nil, &wire.ConnectRequest{TimeoutMs: asked}))
			got, err := r.codec.DecodeConnectReply(r.read())
			if err != nil || got.TimeoutMs != want {
				t.Errorf("%s: asked for %d, granted %d (%v), want %d", protocol, asked, got.TimeoutMs, err, want)
			}
		}
	}
	short := startServer(t, Config{MinSessionTimeout: 700 * time.Millisecond, ZKMinSessionTimeout: 700 * time.Millisecond})
	each(len(everyDoor), len(everyDoor), func(i int) {
		began := time.Now()
		r := openAs(t, short, everyDoor[i], time.Millisecond)
		r.wantClosed("a silent client", closeSessionOver)
		if lived := time.Since(began); lived < 700*time.Millisecond || lived > 10*time.Second {
			t.Errorf("%s: a session with the timeout 700 ms lived %v", everyDoor[i], lived)
		}
	})
}

// Goal: who knows only the id, or a nearly right password, gets nothing and disturbs
// nobody; who knows both takes the session over, and the old connection is cut.
// Method: the row's attempts, each through another door than the session's.
func TestC029SessionIdentity(t *testing.T) {
	s := startServer(t, Config{})
	for i, protocol := range everyDoor {
		a, other := openAs(t, s, protocol, 20*time.Second), everyDoor[(i+1)%3]
		path := a.must("/mine-", "", znode.Mode{Kind: znode.Ephemeral, Sequential: true})
		flipped := a.session.Password
		flipped[7] ^= 1
		long := append(a.session.Password[:], 0)
		for _, password := range [][]byte{flipped[:], make([]byte, session.PasswordSize), nil, {}, a.session.Password[:15], long} {
			thief := dialRaw(t, s, other)
			got := thief.connect(wire.ConnectRequest{Session: a.session.Session, Password: password, TimeoutMs: 10_000})
			if got.Session != 0 || got.TimeoutMs != 0 || got.Password != [session.PasswordSize]byte{} {
				t.Errorf("%s: password %x: %+v", protocol, password, got)
			}
			thief.wantClosed("a wrong password", closeSessionOver)
		}
		if st := a.stat(path); st == nil || st.EphemeralOwner != a.session.Session {
			t.Errorf("%s: after the attempts the ephemeral has %+v", protocol, st)
		}
		b := resumeRaw(t, s, other, a.session)
		if b.session.Session != a.session.Session || b.session.Password != a.session.Password || b.session.TimeoutMs != a.session.TimeoutMs {
			t.Errorf("%s: resumed as %+v, want %+v", protocol, b.session, a.session)
		}
		a.wantClosed("the old connection", closeMoved)
		if b.stat(path) == nil {
			t.Errorf("%s: the ephemeral did not survive the move", protocol)
		}
		if next := openAs(t, s, protocol, 0); next.session.Password == a.session.Password || next.session.Session == a.session.Session {
			t.Errorf("two sessions are alike: %+v", next.session)
		}
	}
}

// Goal: behind a close the session has no trace, and what came before it is answered.
// Method: creates, half of them ephemeral, the close and more creates in one burst.
func TestC031CloseBehindManyRequests(t *testing.T) {
	s := startServer(t, Config{})
	reader := openRaw(t, s)
	for _, protocol := range everyDoor {
		r := openAs(t, s, protocol, 30*time.Second)
		parent := reader.must("/x-", "", sequential)
		create := func(i int) {
			m := znode.Mode{Sequential: true}
			if i%2 == 0 {
				m.Kind = znode.Ephemeral
			}
			r.send(wire.Request{Op: wire.OpCreate, Body: &znode.Create{Path: parent + "/n-", ACL: znode.OpenACL, Mode: m}})
		}
		began := time.Now()
		for i := range 200 {
			create(i)
		}
		closing := r.send(wire.Request{Op: wire.OpCloseSession})
		for i := range 50 {
			create(i)
		}
		for want := closing - 200; want <= closing; want++ {
			if reply := r.next(); reply.Xid != want || reply.Err != znode.OK {
				t.Fatalf("%s: reply %d %v, want %d", protocol, reply.Xid, reply.Err, want)
			}
		}
		if n := len(reader.children(parent)); n != 100 {
			t.Errorf("%s: right behind the close there are %d children, want the 100 persistent ones", protocol, n)
		}
		if code, more := r.closed(); code != r.closeCode(closeNormal) || len(more) != 0 {
			t.Errorf("%s: closed with %d behind %q", protocol, code, more)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: it took %v", protocol, took)
		}
		if back := resumeRaw(t, s, protocol, r.session); back.session.Session != 0 {
			t.Errorf("%s: a closed session was resumed", protocol)
		}
	}
}

// Goal: promise P6: a heartbeat that was acknowledged keeps the session for the whole
// timeout from its arrival; and expiry is not late by much. Method: many sessions that
// ping at random times and then fall silent; the time from sending the last acknowledged
// ping to being cut is never below the timeout.
func TestPromise6NeverExpiredEarly(t *testing.T) {
	t.Parallel()
	const timeout, sessions = time.Second, 150
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := startServer(t, Config{ZKMinSessionTimeout: timeout})
	var mu sync.Mutex
	var late []time.Duration
	each(sessions, sessions, func(i int) {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		r := openAs(t, s, everyDoor[i%3], timeout)
		sent, acked := time.Now(), time.Now()
		for range 1 + random.IntN(4) {
			gap := time.NewTimer(time.Duration(random.Int64N(int64(timeout / 2))))
			<-gap.C
			sent = time.Now()
			if e := r.call(wire.Request{Op: wire.OpPing}).Err; e != znode.OK {
				t.Errorf("session %d: ping: %v", i, e)
				return
			}
			acked = time.Now()
		}
		code, _ := r.closed()
		lived, over := time.Since(sent), time.Since(acked)-timeout
		if code != r.closeCode(closeSessionOver) || lived < timeout {
			t.Errorf("session %d: cut with %d, %v after its last heartbeat was sent", i, code, lived)
		}
		mu.Lock()
		late = append(late, over)
		mu.Unlock()
	})
	slices.Sort(late)
	extended := time.Duration(s.metrics.extendedNs.Load())
	t.Logf("overshoot p50 %v, p99 %v, max %v; extended by %v for stalls",
		late[len(late)/2], late[len(late)*99/100], late[len(late)-1], extended)
	if worst := late[len(late)-1]; worst > 3*time.Second+extended {
		t.Errorf("expired %v late", worst)
	}
}
