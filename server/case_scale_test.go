package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: when a member restarts all its clients come back at once, none expires, and
// coming back costs the log little: many to an entry, and some bytes each. Method: 2,000
// sessions; restart; all resume together; the log before and after.
func TestC135MassResume(t *testing.T) {
	const sessions = 2000
	s := startServer(t, Config{})
	list := make([]*rawClient, sessions)
	each(sessions, 64, func(i int) {
		list[i] = openAs(t, s, juteDoors[i%2], 15*time.Second)
		list[i].must("/s", "", znode.Mode{Kind: znode.Ephemeral, Sequential: true})
	})
	s = restart(t, s)
	before := s.rep.Status()
	began := time.Now()
	each(sessions, 200, func(i int) {
		was := list[i].session
		list[i] = resumeRaw(t, s, juteDoors[i%2], was)
		if list[i].session.Session != was.Session {
			t.Errorf("session %v was not resumed", was.Session)
		}
	})
	t.Logf("all resumed after %v", time.Since(began))
	if took := time.Since(began); took > 12*time.Second {
		t.Errorf("it took %v", took)
	}
	after := s.rep.Status()
	entries, size := after.Last-before.Last, (after.LogBytes-before.LogBytes)/sessions
	t.Logf("resuming wrote %d log entries, %d bytes each time", entries, size)
	if entries > sessions*3/4 || size > 100 {
		t.Errorf("resuming %d sessions wrote %d log entries, %d bytes for each", sessions, entries, size)
	}
	if c := s.store.Counts(); c.Sessions != sessions || c.Ephemerals != sessions || s.metrics.expiries.Load() != 0 {
		t.Errorf("%d sessions, %d ephemerals, %d expiries", c.Sessions, c.Ephemerals, s.metrics.expiries.Load())
	}
	began = time.Now()
	list[0].must("/w", "", persistent)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a write took %v", took)
	}
}

// Goal: very many watches don't slow down metrics or writes, and each is told. Method:
// 200 connections with 1,000 watches each; scrape; write to watched znodes.
func TestC137ManyWatches(t *testing.T) {
	const connections, watches = 200, 1000
	s := startServer(t, Config{})
	w := openRaw(t, s)
	w.must("/w", "", persistent)
	fill(t, w, "/w", watches, persistent, func(i int) string { return fmt.Sprint(i) })
	q := &wire.SetWatches{RelZxid: s.store.LastZxid()}
	for i := range watches {
		q.Data = append(q.Data, fmt.Sprintf("/w/%d", i))
	}
	list := make([]*rawClient, connections)
	for i := range list {
		list[i] = openAs(t, s, juteDoors[i%2], 40*time.Second)
		if e := list[i].call(wire.Request{Op: wire.OpSetWatches2, Body: q}).Err; e != znode.OK {
			t.Fatal(e)
		}
	}
	scrape := func(want int) {
		t.Helper()
		began := time.Now()
		_, text := fetch(t, "GET", "http://"+s.Addr().String()+"/metrics", nil)
		if took := time.Since(began); took > time.Second {
			t.Errorf("a scrape took %v", took)
		}
		if !strings.Contains(text, fmt.Sprintf("\ntenure_watches %d\n", want)) {
			t.Errorf("the metrics don't show %d watches", want)
		}
	}
	scrape(connections * watches)
	began := time.Now()
	for i := range 5 {
		w.set(fmt.Sprintf("/w/%d", i), "x")
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("5 writes took %v", took)
	}
	for i, r := range list {
		if told := r.told(); len(told) != 5 {
			t.Fatalf("connection %d was told %q", i, told)
		}
	}
	scrape(connections * (watches - 5))
	for _, r := range list {
		r.drop()
	}
	waitFor(t, "all are forgotten", 10*time.Second, func() bool { return s.watches.count() == 0 })
}

// Goal: a connection that is silent for long is kept open in proxies that cut after a
// minute: something is sent at least every 25 s, and nothing on one that is busy.
// Method: let the last write lie back by more than the bound, then by less.
func TestC151IdleConnectionsAreKeptAlive(t *testing.T) {
	if keepAliveAfter+keepAliveLook > 25*time.Second {
		t.Errorf("up to %v between two messages", keepAliveAfter+keepAliveLook)
	}
	s := startServer(t, Config{})
	idle, busy := openAs(t, s, subprotocolJute, 40*time.Second), openAs(t, s, subprotocolJSON, 40*time.Second)
	pings := map[*rawClient]int{}
	for _, r := range []*rawClient{idle, busy} {
		r.link.(*websocket.Conn).SetPingHandler(func(string) error { pings[r]++; return nil })
	}
	silent := func(r *rawClient, d time.Duration) { connOf(t, s, r.session.Session).wroteAt.Store(s.now() - int64(d)) }
	calm := func() bool {
		return !connOf(t, s, idle.session.Session).working() && !connOf(t, s, busy.session.Session).working()
	}
	waitFor(t, "calm", 10*time.Second, calm)
	silent(idle, keepAliveAfter+time.Millisecond)
	silent(busy, keepAliveAfter/2)
	s.pingSilent()
	waitFor(t, "the ping is out", 10*time.Second, calm) // a reply at the same time would do in its place
	for _, r := range []*rawClient{idle, busy} {
		r.call(wire.Request{Op: wire.OpExists, Body: &wire.PathWatch{Path: "/"}})
	}
	if pings[idle] != 1 || pings[busy] != 0 {
		t.Errorf("%d pings to the idle and %d to the busy connection, want 1 and 0", pings[idle], pings[busy])
	}
}

func (c *conn) working() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.working
}
