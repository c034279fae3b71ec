package tests

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/native"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: without a majority nothing is acknowledged, clients and recipes are told, and no
// session ends that could not be kept alive. Method: of three members two are killed, the
// leader once among them and once not; for two timeouts everything is tried on the
// survivor; then one is started again.
func TestC107EnsembleQuorumLoss(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		leader bool // survives
	}{{"a follower survives", false}, {"the leader survives", true}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			checkQuorumLoss(t, test.leader)
		})
	}
}

func checkQuorumLoss(t *testing.T, leaderSurvives bool) {
	timeout := scaled(4*time.Second, 10*time.Second)
	e := startEnsemble(t, ensembleOptions{})
	survivor := e.follower()
	if leaderSurvives {
		survivor = e.waitLeader()
	}
	lost, s := e.steered(survivor, client.Options{Timeout: timeout})
	kept := e.connect(client.Options{Timeout: 60 * time.Second})
	mustCreate(t, kept, "/data")
	stat := holdEphemeral(t, kept, "/kept")
	short := holdEphemeral(t, lost, "/short")
	first := lost.Session()
	tenure := mustLead(t, e, timeout)

	others := e.others(survivor)
	for _, m := range others {
		m.kill()
	}
	killed := time.Now()
	s.steer(survivor)
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	tries := mustNotAnswer(t, map[string]func() error{
		"set":                     func() error { _, err := kept.Set(ctx, "/data", []byte("x"), -1); return err },
		"multi":                   func() error { _, err := kept.Multi(ctx, &znode.SetData{Path: "/data", Version: -1}); return err },
		"get":                     func() error { _, _, err := lost.Get(ctx, "/data", client.ReadOptions{}); return err },
		"sync":                    func() error { return lost.Sync(ctx, "/data") },
		"set on ZooKeeper's door": func() error { return setOnZooKeepersDoor(survivor.zk, killed.Add(2*timeout)) },
	})
	e.eventually(timeout, "the session is suspended", func() error { return wantState(first, client.Suspended, client.Over) })
	e.eventually(2*timeout, "the recipe ends its tenure", func() error {
		since := time.Since(killed)
		if tenure.Check() != nil {
			return nil
		}
		if since > timeout {
			t.Errorf("a recipe believes to lead %v after the majority was lost", since)
		}
		return errors.New("it leads")
	})
	e.eventually(2*timeout, "the session is over by its client's clock", func() error { return wantState(first, client.Over) })
	tries.Wait()

	others[0].spawn()
	started := time.Now()
	again := e.connect(client.Options{Timeout: timeout})
	if _, err := again.Set(t.Context(), "/data", []byte("y"), -1); err != nil {
		t.Error(err)
	}
	took := time.Since(started)
	t.Logf("a write %v after the majority was back", took)
	if took > 10*time.Second {
		t.Errorf("the first write took %v", took)
	}
	mustHold(t, again, "/kept", stat, "after the majority was back")
	// It could not send heartbeats, and had no leader to miss them.
	mustHold(t, again, "/short", short, "after the majority was back")
	others[0].await()
	others[1].start()
}

// mustNotAnswer makes all tries at once and wants none to be answered. That a session is over
// is no answer: its client's clock says so.
func mustNotAnswer(t *testing.T, tries map[string]func() error) *sync.WaitGroup {
	all := new(sync.WaitGroup)
	for what, try := range tries {
		all.Go(func() {
			var code znode.Error
			if err := try(); err == nil || errors.As(err, &code) && code != znode.SessionExpired {
				t.Errorf("%s was answered without a majority: %v", what, err)
			}
		})
	}
	return all
}

// mustLead wins an election that nobody else takes part in.
func mustLead(t *testing.T, e *ensemble, timeout time.Duration) *recipes.Tenure {
	t.Helper()
	election := newElection(t, e, "/election", timeout)
	tenure, err := election.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tenure
}

// newElection makes a candidate with a session of its own.
func newElection(t *testing.T, e *ensemble, path string, timeout time.Duration) *recipes.Election {
	t.Helper()
	s, err := native.Connect(t.Context(), client.Options{Endpoints: e.endpoints(""), Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	election, err := recipes.NewElection(s, path, recipes.ElectionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return election
}

func wantState(s *client.Session, states ...client.State) error {
	for _, want := range states {
		if s.State() == want {
			return nil
		}
	}
	return fmt.Errorf("it is %v", s.State())
}

// setOnZooKeepersDoor tries to write until then.
func setOnZooKeepersDoor(address string, until time.Time) error {
	c, _, err := zk.Connect([]string{address}, 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(discardLog{}))
	if err != nil {
		return err
	}
	defer c.Close()
	done := make(chan error, 1)
	go func() {
		_, err := c.Set("/data", []byte("z"), -1)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Until(until)):
		return errors.New("no answer")
	}
}

// Goal: a follower that was away disturbs nobody when it is back. Method: it is cut off, and
// stopped by SIGSTOP, for longer than an election timeout, again and again, while others
// write 500 times a second. Leader and term must stay, and no write may wait long.
func TestC109EnsembleDisruptiveRejoin(t *testing.T) {
	t.Parallel()
	rounds, away := scaled(3, 10), scaled(2500*time.Millisecond, 30*time.Second)
	e := startEnsemble(t, ensembleOptions{links: true})
	leader := e.waitLeader()
	follower := e.follower()
	var clients []*client.Client
	for _, m := range e.members {
		for range 4 {
			if m != follower {
				clients = append(clients, e.connectTo(m, client.Options{}))
			}
		}
	}
	before, err := leader.status()
	if err != nil {
		t.Fatal(err)
	}
	load := startLoad(t, "/load", 16*time.Millisecond, clients...)
	for range rounds {
		e.links.isolate(follower.id, linkHeld)
		<-time.After(away)
		e.links.isolate(follower.id, linkOpen)
		<-time.After(away / 4)
		follower.pause()
		<-time.After(away)
		follower.resume()
		<-time.After(away / 4)
	}
	after, err := leader.status()
	if err != nil {
		t.Fatal(err)
	}
	writes := load.end()
	t.Logf("%d writes, p99 %v, largest gap %v", len(writes), latency(writes, 0.99), largestGap(writes))
	if after.Role != "leader" || after.Term != before.Term {
		t.Errorf("member %d was the leader in term %d, now it is %s in term %d", leader.id, before.Term, after.Role, after.Term)
	}
	p99Max, gapMax := scaled(time.Second, 500*time.Millisecond), scaled(2*time.Second, time.Second) // a busy machine, and a quiet one
	if p99, gap := latency(writes, 0.99), largestGap(writes); p99 > p99Max || gap > gapMax {
		t.Errorf("p99 of writes %v (at most %v), largest gap %v (at most %v)", p99, p99Max, gap, gapMax)
	}
	e.sameState()
}

// Goal: a rolling restart costs no request, no session and no leadership. Method: SIGTERM to
// each member in turn, the next once the one before is ready, while clients count up a
// znode by compare and set and leaders by recipe hold what they have won.
func TestC115EnsembleRollingRestart(t *testing.T) {
	t.Parallel()
	rounds, counters, leaders := scaled(2, 3), scaled(20, 100), scaled(5, 20)
	e := startEnsemble(t, ensembleOptions{})
	c := e.connect(client.Options{})
	mustCreate(t, c, "/counter")
	mustCreate(t, c, "/sessions")
	var held []*recipes.Tenure
	for i := range leaders {
		tenure, err := newElection(t, e, fmt.Sprintf("/elections-%d", i), 10*time.Second).Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, tenure)
	}
	k := &casCounter{path: "/counter", stop: make(chan struct{})}
	for i := range counters {
		c := e.connect(client.Options{Timeout: 10 * time.Second})
		holdEphemeral(t, c, fmt.Sprintf("/sessions/%d", i))
		k.work.Go(func() {
			if err := k.count(t.Context(), c); err != nil {
				t.Errorf("counter %d: %v", i, err)
			}
		})
	}
	for round := range rounds {
		for _, m := range e.members {
			restartInOrder(t, m, k, round)
		}
	}
	close(k.stop)
	k.work.Wait()
	_, stat, err := c.Get(t.Context(), "/counter", client.ReadOptions{})
	if err != nil || int64(stat.Version) != k.counted.Load() {
		t.Errorf("%v: the counter has version %d after %d successful increments", err, stat.Version, k.counted.Load())
	}
	_, stat, err = c.Get(t.Context(), "/sessions", client.ReadOptions{})
	if err != nil || int(stat.NumChildren) != counters || int(stat.Cversion) != counters {
		t.Errorf("%v: of %d ephemerals %d are there: %+v", err, counters, stat.NumChildren, stat)
	}
	for i, tenure := range held {
		if err := tenure.Check(); err != nil {
			t.Errorf("leader %d: %v", i, err)
		}
	}
	t.Logf("%d increments, %d conflicts, the slowest request took %v", k.counted.Load(), k.conflicts.Load(), time.Duration(k.slowest.Load()))
	if slowest := time.Duration(k.slowest.Load()); slowest > 3*time.Second {
		t.Errorf("a request took %v, at most 3s", slowest)
	}
	e.sameState()
}

// casCounter is clients that count up one znode.
type casCounter struct {
	path                        string
	stop                        chan struct{}
	work                        sync.WaitGroup
	counted, conflicts, slowest atomic.Int64
}

func (k *casCounter) count(ctx context.Context, c *client.Client) error {
	for {
		select {
		case <-k.stop:
			return nil
		case <-time.After(20 * time.Millisecond):
		}
		began := time.Now()
		call, done := context.WithTimeout(ctx, time.Minute)
		_, stat, err := c.Get(call, k.path, client.ReadOptions{})
		if err == nil {
			_, err = c.Set(call, k.path, []byte(strconv.Itoa(int(stat.Version)+1)), stat.Version)
		}
		done()
		switch {
		case err == nil:
			k.counted.Add(1)
		case errors.Is(err, znode.BadVersion):
			k.conflicts.Add(1)
		default:
			return err
		}
		for took := int64(time.Since(began)); ; {
			if slowest := k.slowest.Load(); took <= slowest || k.slowest.CompareAndSwap(slowest, took) {
				break
			}
		}
	}
}

// restartInOrder stops a member and starts it, and wants it to say that it is ready only
// when it lets clients in and has caught up.
func restartInOrder(t *testing.T, m *ensembleMember, k *casCounter, round int) {
	t.Helper()
	began := time.Now()
	m.stop()
	down := time.Since(began)
	least := k.counted.Load() // acknowledged before it is back
	m.spawn()
	for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
		_, err := m.get("/readyz")
		if err == nil {
			break
		}
		if time.Since(began) > startDeadline {
			t.Fatalf("%v after its start: %v", startDeadline, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var attempts atomic.Int64
	c, err := client.Connect(ctx, client.Options{Endpoints: []string{m.http}, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		attempts.Add(1)
		return m.dial(ctx, network, addr)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n := attempts.Load(); n != 1 {
		t.Errorf("member %d is ready, but lets a client in at attempt %d only", m.id, n)
	}
	_, stat, err := c.Get(ctx, k.path, client.ReadOptions{Stale: true})
	if err != nil || int64(stat.Version) < least {
		t.Errorf("%v: member %d is ready with %d increments, %d were acknowledged before it started", err, m.id, stat.Version, least)
	}
	m.await()
	t.Logf("round %d: member %d stopped in %v, ready %v later", round, m.id, down, time.Since(began)-down)
}
