package zk_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/recipes/zk"
)

// overlapServers are ZooKeeper servers that are taken away from their peers, one at a
// time. Another may be there.
type overlapServers struct {
	z *recipestest.ZooKeeper

	mu      sync.Mutex
	proxies []*recipestest.Proxy
	members []int // that each proxy passes to
	away    int   // how often one was
}

// move sends a peer to another member.
func (s *overlapServers) move(peer, member int) {
	addrs := s.z.Addrs()
	s.members[peer] = member % len(addrs)
	s.proxies[peer].SetTarget(addrs[s.members[peer]])
}

// open connects a peer to a member, through a proxy of its own.
func (s *overlapServers) open(t testing.TB) *recipestest.Peer {
	t.Helper()
	addrs := s.z.Addrs()
	s.mu.Lock()
	n := len(s.proxies)
	proxy := recipestest.NewProxy(t, addrs[n%len(addrs)], recipestest.ZooKeeperWire)
	s.proxies, s.members = append(s.proxies, proxy), append(s.members, n%len(addrs))
	s.mu.Unlock()
	peer := &recipestest.Peer{Store: open(t, zk.Options{Servers: []string{proxy.Addr()}, Chroot: "/overlap"})}
	proxy.Fill(peer)
	if len(addrs) > 1 {
		peer.Move = func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.move(n, s.members[n]+1)
		}
	}
	return peer
}

// restart takes a member away for a while, the leader each third time: by kill -9, from
// which its peers move on, or standing still with all connections open.
func (s *overlapServers) restart(t testing.TB, down time.Duration) {
	s.mu.Lock()
	s.away++
	members := len(s.z.Addrs())
	member, kill := (max(s.z.Leader(), 0)+s.away)%members, s.away%2 == 1
	s.mu.Unlock()
	if !kill {
		if err := s.z.Pause(member); err != nil {
			t.Error(err)
		}
		<-time.After(down)
		if err := s.z.Resume(member); err != nil {
			t.Error(err)
		}
		return
	}
	s.z.Stop(member)
	s.mu.Lock()
	for peer, at := range s.members {
		if at == member && members > 1 {
			s.move(peer, member+1)
		}
	}
	s.mu.Unlock()
	<-time.After(down)
	if err := s.z.Start(member); err != nil {
		t.Error(err)
	}
}

// number is an environment variable's, or otherwise.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q must be a number", name, text)
	}
	return n
}

// overlap makes hand-overs on servers of its own.
func overlap(t *testing.T, servers int, handOvers uint64) {
	s := &overlapServers{z: recipestest.StartZooKeeper(t, recipestest.ZooKeeperOptions{Servers: servers})}
	h := recipestest.Harness{
		Name: "zookeeper", Timeout: timeout, Open: s.open, Restart: s.restart,
		Run: func(t *testing.T, test func(t *testing.T)) { test(t) },
	}
	o := recipestest.OverlapOptions{
		Seed: number(t, "TENURE_SEED", rand.Uint64()), Names: 24, Peers: 8, Long: 0.25,
		HandOvers: int(number(t, "TENURE_HANDOVERS", handOvers)),
	}
	t.Logf("replay: TENURE_SEED=%d go test -count 1 -run '^%s$' ./recipes/zk", o.Seed, t.Name())
	o.Limit = max(15*time.Minute, time.Duration(o.HandOvers)*200*time.Millisecond)
	o.Plan.MeanGap = timeout / 10
	// A server that is away takes long to be back, so there is one such in thirty.
	// Partitions are what tenures are lost by.
	o.Plan.Verbs = append(slices.Repeat([]recipestest.Verb{
		recipestest.VerbCutAfterCommit, recipestest.VerbCutBeforeSend, recipestest.VerbHold,
		recipestest.VerbBreak, recipestest.VerbPartition, recipestest.VerbDelay, recipestest.VerbPartition,
	}, 4), recipestest.VerbRestart)
	if servers > 1 {
		o.Plan.Verbs = append(o.Plan.Verbs, recipestest.VerbMove, recipestest.VerbMove)
	}
	report := recipestest.Overlap(t, h, o)
	t.Log(report)
	if report.Err != nil {
		t.Error(report.Err)
	}
}

// Goal: no two leaders of one name ever believe to lead at once on ZooKeeper, whose expiry
// is not exact; tokens grow, guarded writes of former leaders do not land, and there is a
// leader again soon after the last fault. Method: 24 elections of 3 candidates, spread over
// 8 peers, make 1 000 hand-overs (TENURE_HANDOVERS) while answers are lost, held and
// delayed, peers are cut off, and the server is killed and restarted, and stopped by
// SIGSTOP, at random.
func TestOverlapOneServer(t *testing.T) { overlap(t, 1, 1000) }

// Goal: and on an ensemble. Method: the same, with peers that move between the members,
// of which any is killed or stopped.
func TestOverlapEnsemble(t *testing.T) { overlap(t, 3, 1000) }
