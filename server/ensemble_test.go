package server

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// freeAddresses returns loopback addresses whose ports were free a moment ago.
func freeAddresses(t *testing.T, n int) []string {
	t.Helper()
	var list []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		list = append(list, l.Addr().String())
	}
	return list
}

// memberConfigs are the settings of the founders of an ensemble of n.
func memberConfigs(t *testing.T, n int) []Config {
	t.Helper()
	configs := make([]Config, n)
	var founders []string
	for i, address := range freeAddresses(t, n) {
		configs[i] = Config{DataDir: t.TempDir(), MemberID: i + 1, PeerListen: address, ElectionTimeout: 300 * time.Millisecond}
		founders = append(founders, fmt.Sprintf("%d=%s", i+1, address))
	}
	for i := range configs {
		configs[i].InitialMembers = founders
	}
	return configs
}

// startMembers runs an ensemble until the test ends and waits until it serves.
func startMembers(t *testing.T, configs []Config) []*Server {
	t.Helper()
	var list []*Server
	for _, c := range configs {
		list = append(list, startServer(t, c))
	}
	for _, s := range list {
		waitServing(t, s)
	}
	return list
}

// ensembleDeadline bounds what an ensemble may take for anything.
const ensembleDeadline = 20 * time.Second

func waitServing(t *testing.T, s *Server) {
	t.Helper()
	select {
	case <-s.Serving():
	case <-time.After(ensembleDeadline):
		t.Fatalf("member %d does not serve", s.cfg.MemberID)
	}
}

// leaderOf returns the member that leads, nil if there is none.
func leaderOf(list []*Server) *Server {
	for _, s := range list {
		if s.rep.Leads() != 0 {
			return s
		}
	}
	return nil
}

// rank puts the leader first.
func rank(t *testing.T, list []*Server) []*Server {
	t.Helper()
	waitFor(t, "a leader", ensembleDeadline, func() bool { return leaderOf(list) != nil })
	leader := leaderOf(list)
	ranked := []*Server{leader}
	for _, s := range list {
		if s != leader {
			ranked = append(ranked, s)
		}
	}
	return ranked
}

// Goal: a session lives by its heartbeats wherever its client is connected, also while the
// lead moves, and ends when its client is silent (P6, P7). Method: a client on each of three
// members through each door, three timeouts of heartbeats with a new leader in the middle,
// then silence.
func TestSessionsOnAllMembersLiveByTheirHeartbeats(t *testing.T) {
	t.Parallel()
	const timeout = 1500 * time.Millisecond
	configs := memberConfigs(t, 3)
	for i := range configs {
		configs[i].ZKMinSessionTimeout = timeout
	}
	list := rank(t, startMembers(t, configs))
	openRaw(t, list[0]).must("/e", "", persistent)
	var clients []*rawClient
	for _, s := range list {
		for _, protocol := range everyDoor {
			c := openAs(t, s, protocol, timeout)
			c.must("/e/n-", "", znode.Mode{Kind: znode.Ephemeral, Sequential: true})
			clients = append(clients, c)
		}
	}
	tick := time.NewTicker(timeout / 6)
	defer tick.Stop()
	for i := range 18 { // three timeouts
		if i == 9 {
			if err := list[0].rep.TransferLeader(t.Context(), uint64(list[1].cfg.MemberID)); err != nil {
				t.Fatal(err)
			}
		}
		<-tick.C
		for _, c := range clients {
			c.call(wire.Request{Op: wire.OpPing})
		}
	}
	reader := openRaw(t, list[2])
	if n := len(reader.children("/e")); n != len(clients) {
		t.Errorf("%d ephemerals are left of %d", n, len(clients))
	}
	waitFor(t, "the end of silent clients' sessions", 3*timeout+ensembleDeadline, func() bool {
		reader.call(wire.Request{Op: wire.OpPing})
		return len(reader.children("/e")) == 0
	})
}

// Goal: a fail-over goes unnoticed by the clients of the other members. Without a leader for
// longer clients are sent away with 1013 and refused, and probes say so; once there is one
// again sessions go on. Method: three members; the leader stops, then another, then that one
// comes back.
func TestClientsAreSentAwayWithoutALeader(t *testing.T) {
	t.Parallel()
	configs := memberConfigs(t, 3)
	list := rank(t, startMembers(t, configs))
	last := list[2]
	native, zk := openAs(t, last, subprotocolJute, 30*time.Second), openAs(t, last, zooKeeper, 30*time.Second)
	stopServer(t, list[0])
	if _, e := native.create("/a", "x", persistent); e != znode.OK {
		t.Fatalf("a write across a fail-over: %v", e)
	}
	if _, e := zk.get("/a"); e != znode.OK {
		t.Fatalf("a read across a fail-over: %v", e)
	}
	stopServer(t, list[1])
	began := time.Now()
	native.wantClosed("without a leader", closeTryAgain)
	zk.wantClosed("without a leader", closeTryAgain)
	if took := time.Since(began); took > 10*last.cfg.ElectionTimeout {
		t.Errorf("clients were sent away after %v, the election timeout is %v", took, last.cfg.ElectionTimeout)
	}
	for _, protocol := range everyDoor {
		r := dialRaw(t, last, protocol)
		r.write(r.codec.AppendConnect(nil, &wire.ConnectRequest{TimeoutMs: 5000, Password: make([]byte, 16)}))
		r.wantClosed(protocol+": a handshake without a leader", closeTryAgain)
	}
	for word, want := range map[string]string{"ruok": "imok", "isro": "null", "srvr": notServing + "\n", "mntr": notServing + "\n"} {
		if got := last.ask(t, word); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
	if err := last.ready(); err == nil || err.Error() != "no leader" {
		t.Errorf("ready: %v", err)
	}
	c := configs[list[1].cfg.MemberID-1]
	c.Listen = ""
	waitServing(t, startServer(t, c))
	waitFor(t, "clients are let in again", ensembleDeadline, func() bool { return last.ready() == nil })
	again := resumeRaw(t, last, subprotocolJute, native.session)
	if again.session.Session != native.session.Session {
		t.Errorf("session %v went on as %v", native.session.Session, again.session.Session)
	}
	if d, e := again.get("/a"); e != znode.OK || string(d.Data) != "x" {
		t.Errorf("after it: %v, %v", d, e)
	}
}

// Goal: a member that comes back without what it had is refused by the others, says why in
// its status, and serves nobody. Method: one of three is stopped, its directory emptied,
// and it starts anew.
func TestWipedMemberServesNobody(t *testing.T) {
	t.Parallel()
	configs := memberConfigs(t, 3)
	list := startMembers(t, configs)
	stopServer(t, list[2])
	c := configs[2]
	c.DataDir = t.TempDir()
	wiped := startServer(t, c)
	waitFor(t, "both sides say why", ensembleDeadline, func() bool {
		text := ""
		for _, p := range wiped.peerStatus() {
			text += p.Error
		}
		for _, m := range readStatus(t, list[0]).Members[2].Problems {
			text += m
		}
		return strings.Count(text, "member 3 is instance") >= 3 && strings.Contains(text, "add it again under a new id")
	})
	select {
	case <-wiped.Serving():
		t.Error("it serves")
	default:
	}
	if openRaw(t, list[0]).must("/a", "", persistent) != "/a" {
		t.Error("the others do not go on")
	}
}

// Goal: a data directory's log says which member it is and who the others are; settings that
// say something else are refused or told to have no effect. Method: the directories of a
// sole member and of one of three, opened with other settings.
func TestSettingsThatTheLogContradicts(t *testing.T) {
	t.Parallel()
	addresses := freeAddresses(t, 2)
	sole := Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0", ZKListen: "none"}
	three := memberConfigs(t, 3)[0]
	for _, c := range []Config{sole, three} {
		c.Listen = "127.0.0.1:0"
		c.ZKListen = "none"
		s, err := Open(c, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		stopServer(t, s)
	}
	for _, row := range []struct {
		name     string
		was      Config
		change   func(*Config)
		err, log string
	}{
		{"another id", sole, func(c *Config) { c.MemberID = 2 }, "written by member 1, not 2", ""},
		{"founders of a sole member's log", sole, func(c *Config) {
			c.PeerListen, c.InitialMembers = addresses[0], []string{"1=" + addresses[0], "2=" + addresses[1]}
		}, "", "change them with `tenure member`"},
		{"three without a door", three, func(c *Config) { c.PeerListen, c.InitialMembers = addressNone, nil }, `peer-listen = \"none\"`, ""},
	} {
		c := row.was
		c.Listen, c.ZKListen = "127.0.0.1:0", "none"
		row.change(&c)
		var log lockedBuffer
		s, err := Open(c, slog.New(slog.NewTextHandler(&log, nil)))
		if err == nil {
			waitServing(t, s)
			stopServer(t, s)
		}
		if (err == nil) != (row.err == "") || err != nil && !strings.Contains(fmt.Sprintf("%q", err.Error()), row.err) {
			t.Errorf("%s: %v, want %q", row.name, err, row.err)
		}
		if !strings.Contains(log.String(), row.log) {
			t.Errorf("%s: the log lacks %q:\n%s", row.name, row.log, log.String())
		}
	}
}
