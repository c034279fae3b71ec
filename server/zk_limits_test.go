package server

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: max-outstanding-total holds on every door: connections that have a request already
// are not read above it, one that has none is; nothing is lost and everybody goes on
// afterwards. Method: apply is held up, so that writes stay outstanding, while connections
// send many more than the bound.
func TestMaxOutstandingTotal(t *testing.T) {
	const bound, connections, each = 10, 5, 200
	for _, door := range everyDoor {
		t.Run(door, func(t *testing.T) {
			s := startServer(t, Config{MaxOutstandingTotal: bound})
			var clients []*rawClient
			for range connections {
				clients = append(clients, openAs(t, s, door, 30*time.Second))
			}
			goOn := holdApply(s)
			defer goOn()
			for _, r := range clients {
				for range each {
					r.send(wire.Request{Op: wire.OpSetData, Body: &znode.SetData{Path: "/", Version: -1}})
				}
			}
			most := int64(0)
			for range 100 {
				_, n := s.outstanding.now()
				most = max(most, n)
				waitAtLeast(t, 2*time.Millisecond)
			}
			goOn()
			if most < bound || most > bound+connections-1 {
				t.Errorf("%d were outstanding, want at least %d and at most one more per other connection", most, bound)
			}
			for _, r := range clients {
				for range each {
					if reply := r.next(); reply.Err != znode.OK {
						t.Fatal(reply.Err)
					}
				}
			}
			waitFor(t, "nothing is outstanding", 5*time.Second, func() bool { _, n := s.outstanding.now(); return n == 0 })
		})
	}
}

// holdApply keeps writes from being answered until the function that it returns is called.
func holdApply(s *Server) func() {
	s.state.Lock()
	return sync.OnceFunc(s.state.Unlock)
}

// Goal: a connection that ends while it waits for its turn lets its reader go, and what it
// had outstanding is given back. Method: apply is held up, a connection that fills the
// bound is cut; then the server must be able to stop.
func TestMaxOutstandingTotalOfAConnectionThatEnds(t *testing.T) {
	s := startServer(t, Config{MaxOutstandingTotal: 2})
	r := openAs(t, s, zooKeeper, 30*time.Second)
	c := connOf(t, s, r.session.Session)
	goOn := holdApply(s)
	defer goOn()
	for range 10 {
		r.send(wire.Request{Op: wire.OpSetData, Body: &znode.SetData{Path: "/", Version: -1}})
	}
	waitFor(t, "the reader waits for its turn", 5*time.Second, func() bool {
		s.outstanding.mu.Lock()
		defer s.outstanding.mu.Unlock()
		return c.share.turn != nil
	})
	c.close(closeReason{closeNormal, "test"})
	waitFor(t, "the reader goes on", 5*time.Second, func() bool {
		s.outstanding.mu.Lock()
		defer s.outstanding.mu.Unlock()
		return c.share.turn == nil
	})
	goOn()
	waitFor(t, "nothing is outstanding", 5*time.Second, func() bool { _, n := s.outstanding.now(); return n == 0 })
}

// Goal: one connection more than ZooKeeper's maxClientCnxns allows from an address is
// accepted and closed at once without a byte, also one that asks with a four-letter word;
// when another has gone there is room again. Method: the bound is 2, from one address.
func TestMaxClientCnxns(t *testing.T) {
	s := startServer(t, Config{MaxConnectionsPerIP: 2})
	first := openAs(t, s, zooKeeper, 30*time.Second)
	openAs(t, s, zooKeeper, 30*time.Second)
	for _, word := range []string{"", "ruok"} {
		f := dialFramed(t, s)
		_, _ = f.Write([]byte(word)) // may find it closed already
		f.SetReadDeadline(time.Now().Add(5 * time.Second))
		if n, err := f.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: read %d bytes, %v, want a close", word, n, err)
		}
	}
	first.drop()
	waitFor(t, "room for another connection", 5*time.Second, func() bool {
		f := dialFramed(t, s)
		defer f.Close()
		_, _ = f.Write([]byte("ruok"))
		f.SetReadDeadline(time.Now().Add(5 * time.Second))
		b := make([]byte, 4)
		n, _ := f.Read(b)
		return string(b[:n]) == "imok"
	})
}

// Goal: reconfig is refused as ZooKeeper refuses it: by -123 while it is disabled, the
// default, and by -6 on a single member where it is enabled; the connection lives on.
func TestReconfigOfOneMember(t *testing.T) {
	for enabled, want := range map[bool]znode.Error{false: znode.ReconfigDisabled, true: znode.Unimplemented} {
		s := startServer(t, Config{ReconfigEnabled: enabled})
		r := openAs(t, s, zooKeeper, 30*time.Second)
		got := r.call(wire.Request{Op: wire.OpReconfig, Body: &wire.Reconfig{Leaving: "2", ConfigID: -1}})
		if got.Err != want {
			t.Errorf("enabled %v: %v, want %v", enabled, got.Err, want)
		}
		if _, e := r.get("/"); e != znode.OK {
			t.Errorf("enabled %v: behind it %v", enabled, e)
		}
	}
}
