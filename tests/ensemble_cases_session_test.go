package tests

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: the ephemerals of a client that died go on all members alike, not before its
// timeout, and for good, also if the member that it was on dies meanwhile. Method: a client
// on a follower makes 100 and its connection is cut; the follower is killed and started
// again; each member's own state is looked at all the while.
func TestC021EnsembleEphemeralsOfADeadClient(t *testing.T) {
	t.Parallel()
	timeout := scaled(3*time.Second, 6*time.Second)
	e := startEnsemble(t, ensembleOptions{})
	follower := e.follower()
	c := e.connect(client.Options{})
	mustCreate(t, c, "/dead")
	gone := observe(t, c, "/dead")
	paths := make([]string, 100)
	for i := range paths {
		paths[i] = fmt.Sprintf("/dead/%d", i)
	}
	s := mustOpen(t, follower.dial, timeout, paths...)
	sent, answered, _ := s.proven()
	s.close()
	<-time.After(timeout / 6)
	follower.kill()
	<-time.After(timeout / 3)
	follower.start()
	gone.await(t, len(paths), 4*timeout)
	at, zxid := gone.of(paths[0])
	if early, late := at.Sub(sent), at.Sub(answered); early < timeout || late > 2*timeout {
		t.Errorf("they went %v after the last heartbeat was sent, at least %v; at most %v", early, timeout, 2*timeout)
	}
	sameParent := func(when string) {
		t.Helper()
		for _, m := range e.members {
			c := e.connectTo(m, client.Options{})
			_, stat, err := c.Get(t.Context(), "/dead", client.ReadOptions{})
			if err != nil || stat.NumChildren != 0 || stat.Pzxid != zxid {
				t.Errorf("%s: %v, on member %d the parent is %+v, the deletion had zxid 0x%x", when, err, m.id, stat, zxid)
			}
			list, err := c.Sessions(t.Context(), 0, 0)
			for _, info := range list.Sessions {
				if info.ID == s.id {
					t.Errorf("%s: member %d has session %v still", when, m.id, s.id)
				}
			}
			if err != nil {
				t.Error(err)
			}
			c.Close()
		}
	}
	sameParent("after the expiry")
	for _, m := range e.members {
		m.kill()
	}
	e.startAll()
	sameParent("after a restart of all")
	e.sameState()
}

// Goal: a leader that did not run, or whose disk did not, ends nobody's session, neither
// meanwhile nor when it comes back and does not know yet what has happened. Method: 30
// clients with ephemerals; the leader is stopped by SIGSTOP for longer than their timeout,
// or its log's syncs hang for so long; clients move to the others; again and again.
func TestC025EnsembleStalledLeader(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		stall, goOn func(*ensembleMember)
	}{
		{"SIGSTOP", (*ensembleMember).pause, (*ensembleMember).resume},
		{"hanging disk", func(m *ensembleMember) { m.disk("log sync 1h", "log write 1h") }, func(m *ensembleMember) { m.disk() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			checkStalledLeader(t, test.stall, test.goOn)
		})
	}
}

func checkStalledLeader(t *testing.T, stall, goOn func(*ensembleMember)) {
	timeout, stalled := scaled(4*time.Second, 10*time.Second), scaled(5*time.Second, 20*time.Second)
	rounds, count := scaled(2, 20), scaled(30, 100)
	e := startEnsemble(t, ensembleOptions{faults: true})
	c := e.connect(client.Options{})
	mustCreate(t, c, "/stall")
	clients := make([]*client.Client, count)
	for i := range clients {
		clients[i] = e.connect(client.Options{Timeout: timeout})
		holdEphemeral(t, clients[i], fmt.Sprintf("/stall/%d", i))
	}
	load := startLoad(t, "/load", 20*time.Millisecond, c) // a disk is noticed when it is needed
	for round := range rounds {
		leader := e.waitLeader()
		stall(leader)
		began := time.Now()
		var next *ensembleMember
		took := e.eventually(timeout, "another leader", func() error {
			for _, m := range e.others(leader) {
				if s, err := m.status(); err == nil && s.Role == "leader" {
					next = m
					return nil
				}
			}
			return fmt.Errorf("nobody else leads")
		})
		<-time.After(time.Until(began.Add(stalled)))
		goOn(leader)
		back := e.eventually(2*electionTimeout+time.Second, "the old leader follows", func() error {
			s, err := leader.status()
			if err == nil && s.Role != "follower" {
				err = fmt.Errorf("it is %s", s.Role)
			}
			return err
		})
		t.Logf("round %d: member %d leads %v after member %d stalled, which follows %v after it goes on", round, next.id, took, leader.id, back)
		<-time.After(electionTimeout)
		for i, c := range clients {
			if expiries := c.Stats().Expiries; expiries != 0 {
				t.Errorf("round %d: client %d has lost %d sessions", round, i, expiries)
			}
		}
		_, stat, err := c.Get(t.Context(), "/stall", client.ReadOptions{})
		if err != nil || int(stat.NumChildren) != count || int(stat.Cversion) != count {
			t.Fatalf("round %d: %v, of %d ephemerals are there %d: %+v", round, err, count, stat.NumChildren, stat)
		}
	}
	load.end()
	e.sameState()
}

// Goal: what a client sends on a connection whose session has moved to another member has no
// effect. Method: a session moves between two members again and again; each time writes go
// into its old connection behind the move, and one through the new one. Both doors.
func TestC033EnsembleMovedSession(t *testing.T) {
	t.Parallel()
	moves := scaled(30, 100)
	e := startEnsemble(t, ensembleOptions{})
	c := e.connect(client.Options{})
	for name, door := range map[string]func(*ensembleMember) bareDoor{
		"websocket": func(m *ensembleMember) bareDoor { return websocketDoor(m.dial) },
		"zookeeper": func(m *ensembleMember) bareDoor { return zooKeepersDoor(m.zk) },
	} {
		base := "/moved-" + name
		mustCreate(t, c, base)
		doors := []bareDoor{door(e.members[0]), door(e.members[1])}
		s, err := (&bareSession{timeout: 10 * time.Second}).resume(t.Context(), doors[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := s.createEphemerals(base + "/held"); err != nil {
			t.Fatal(err)
		}
		for i := range moves {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			next, err := s.resume(ctx, doors[(i+1)%2])
			cancel()
			if err != nil {
				t.Fatalf("%s, move %d: %v", name, i, err)
			}
			// The errors of these say that the connection is closed.
			s.send(wire.Request{Op: wire.OpSetData, Body: &znode.SetData{Path: base, Data: []byte("late"), Version: -1}})
			s.send(wire.Request{Op: wire.OpCreate, Body: &znode.Create{Path: fmt.Sprintf("%s/late-%d", base, i), ACL: znode.OpenACL, Mode: znode.Mode{Kind: znode.Ephemeral}}})
			rep, err := next.do(wire.Request{Op: wire.OpSetData, Body: &znode.SetData{Path: base, Data: []byte("new"), Version: int32(i)}})
			if err != nil || rep.Err != znode.OK {
				t.Fatalf("%s, move %d: a write on the new connection: %+v, %v", name, i, rep, err)
			}
			select {
			case <-s.ended:
			case <-time.After(5 * time.Second):
				t.Fatalf("%s, move %d: the old connection is open", name, i)
			}
			s = next
		}
		data, stat, err := c.Get(t.Context(), base, client.ReadOptions{})
		names, _, errNames := c.Children(t.Context(), base, client.ReadOptions{})
		if err != nil || errNames != nil || string(data) != "new" || int(stat.Version) != moves || len(names) != 1 {
			t.Errorf("%s: %v, %v: %q at version %d after %d writes, children %v", name, err, errNames, data, stat.Version, moves, names)
		}
		s.close()
	}
}

// Goal: many sessions that come back at once after an election are all renewed soon, and
// writes are possible meanwhile. Method: the leader is killed while many clients are
// spread over all members.
func TestC135EnsembleMassReconnect(t *testing.T) {
	t.Parallel()
	sessions, timeout := scaled(600, 5000), 15*time.Second
	e := startEnsemble(t, ensembleOptions{})
	clients := make([]*client.Client, sessions)
	opening, ctx := errgroup.WithContext(t.Context())
	opening.SetLimit(64)
	for i := range clients {
		opening.Go(func() (err error) {
			clients[i], err = client.Connect(ctx, client.Options{Endpoints: e.endpoints(""), Timeout: timeout})
			return err
		})
	}
	if err := opening.Wait(); err != nil {
		t.Fatal(err)
	}
	c := e.connect(client.Options{Timeout: timeout})
	mustCreate(t, c, "/written")
	e.waitLeader().kill()
	began := time.Now()
	var renewed sync.WaitGroup
	for i, c := range clients {
		renewed.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			if _, _, err := c.Session().Renew(ctx); err != nil {
				t.Errorf("session %d: %v", i, err)
			}
		})
	}
	if _, err := c.Set(t.Context(), "/written", nil, -1); err != nil {
		t.Error(err)
	}
	wrote := time.Since(began)
	renewed.Wait()
	all := time.Since(began)
	t.Logf("first write %v after the kill, all of %d sessions renewed after %v", wrote, sessions, all)
	if all > 10*time.Second || wrote > 5*time.Second {
		t.Errorf("all renewed after %v (at most 10s), first write after %v (at most 5s)", all, wrote)
	}
	var closing errgroup.Group
	for i, c := range clients {
		if c.Stats().Expiries != 0 {
			t.Errorf("session %d expired", i)
		}
		closing.Go(c.Close)
	}
	closing.Wait()
}

// Goal: a follower that stood still answers nothing that is older than what its clients have
// seen elsewhere, and costs no session. Method: clients on a follower that is stopped by
// SIGSTOP for longer than their timeout must move on in time; when it goes on they return
// to it at once.
func TestC121EnsemblePausedFollower(t *testing.T) {
	t.Parallel()
	count, timeout, paused := scaled(20, 50), scaled(4*time.Second, 10*time.Second), scaled(6*time.Second, 60*time.Second)
	e := startEnsemble(t, ensembleOptions{})
	follower := e.follower()
	writer := e.connectTo(e.waitLeader(), client.Options{})
	load := startLoad(t, "/load", 5*time.Millisecond, writer)
	clients, steers := make([]*client.Client, count), make([]*steering, count)
	for i := range clients {
		clients[i], steers[i] = e.steered(follower, client.Options{Timeout: timeout})
		steers[i].release()
	}
	// It stays behind in its socket.
	left := mustOpen(t, follower.dial, timeout, "/left")
	follower.pause()
	began := time.Now()
	var moved errgroup.Group
	for i, c := range clients {
		moved.Go(func() error {
			if _, _, err := c.Session().Renew(t.Context()); err != nil || time.Since(began) > timeout {
				return fmt.Errorf("client %d moved after %v: %v", i, time.Since(began), err)
			}
			return nil
		})
	}
	if err := moved.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("all moved after %v", time.Since(began))
	proven, _, _ := left.proven()
	left.beat() // waits in the socket
	<-time.After(time.Until(began.Add(paused)))
	seen := make([]int64, count)
	for i, c := range clients {
		_, stat, err := c.Get(t.Context(), "/load-a", client.ReadOptions{})
		if seen[i] = stat.Mzxid; err != nil {
			t.Error(err)
		}
	}
	for _, s := range steers {
		s.steer(follower)
	}
	follower.resume()
	began = time.Now()
	for i, c := range clients {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, stat, err := c.Get(ctx, "/load-a", client.ReadOptions{Stale: true})
		cancel()
		if err != nil || stat.Mzxid < seen[i] || c.Stats().Expiries != 0 {
			t.Errorf("client %d reads zxid 0x%x after 0x%x, %d sessions were lost: %v", i, stat.Mzxid, seen[i], c.Stats().Expiries, err)
		}
	}
	t.Logf("all are back %v after it goes on", time.Since(began))
	select {
	case <-left.ended: // its session ended meanwhile
	case <-time.After(5 * time.Second):
		t.Error("the connection of a session that is over is open")
	}
	if sent, _, _ := left.proven(); sent != proven {
		t.Error("a heartbeat of a session that was over was answered")
	}
	load.end()
	e.sameState()
}
