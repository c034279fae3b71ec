package tests

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes/native"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// overlapTimeout is the session timeout of candidates: short, so that faults of its length
// are many.
const overlapTimeout = time.Second

// overlapMembers are members that are taken away from their peers, one at a time. Another
// may be there.
type overlapMembers struct {
	*ensemble
	away int // how often one was

	mu      sync.Mutex
	proxies []*recipestest.Proxy
	at      []int // the member that each proxy passes to
}

// move sends a peer to another member. The caller holds mu.
func (o *overlapMembers) move(peer, member int) {
	o.at[peer] = member % len(o.members)
	o.proxies[peer].SetTarget(o.members[o.at[peer]].http)
}

// open connects a peer to a member, through a proxy of its own.
func (o *overlapMembers) open(t testing.TB) *recipestest.Peer {
	t.Helper()
	o.mu.Lock()
	n := len(o.proxies)
	proxy := recipestest.NewProxy(t, o.members[n%len(o.members)].http, recipestest.TenureWire)
	o.proxies, o.at = append(o.proxies, proxy), append(o.at, n%len(o.members))
	o.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), startDeadline)
	defer cancel()
	s, err := native.Connect(ctx, client.Options{Endpoints: []string{proxy.Addr()}, Timeout: overlapTimeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	peer := &recipestest.Peer{Store: s}
	proxy.Fill(peer)
	if len(o.members) > 1 {
		peer.Move = func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.move(n, o.at[n]+1)
		}
	}
	return peer
}

// restart takes a member away for a while, the leader each third time: standing still with
// all connections open, by kill -9 or in good order, from which its peers move on, or cut
// off from the others.
func (o *overlapMembers) restart(_ testing.TB, down time.Duration) {
	o.away++
	victim := o.members[o.away%len(o.members)]
	if o.away%3 == 0 {
		victim = o.waitLeader()
	}
	faults := 4
	if len(o.members) == 1 {
		faults = 3 // there is nobody to be cut off from
	}
	switch o.away % faults {
	case 0:
		victim.pause()
		<-time.After(down)
		victim.resume()
		return
	case 1:
		victim.kill()
	case 2:
		victim.stop()
	default:
		o.links.isolate(victim.id, linkHeld)
		<-time.After(down)
		o.links.isolate(victim.id, linkOpen)
		return
	}
	o.mu.Lock()
	for peer, at := range o.at {
		if o.members[at] == victim {
			o.move(peer, at+1)
		}
	}
	o.mu.Unlock()
	<-time.After(down)
	victim.start()
}

// overlap makes hand-overs on an ensemble of its own.
func overlap(t *testing.T, members int, o recipestest.OverlapOptions) {
	m := &overlapMembers{ensemble: startEnsemble(t, ensembleOptions{members: members, links: true, timeout: 300 * time.Millisecond})}
	h := recipestest.Harness{
		Name: "tenured", Timeout: overlapTimeout, Open: m.open, Restart: m.restart,
		Run: func(t *testing.T, test func(t *testing.T)) { test(t) },
	}
	o.Seed, o.Long = randomSeed(t), 0.2
	o.HandOvers = int(environmentNumber(t, "TENURE_HANDOVERS", uint64(o.HandOvers)))
	o.Limit = max(15*time.Minute, time.Duration(o.HandOvers)*200*time.Millisecond)
	o.Plan.MeanGap = overlapTimeout / 10
	report := recipestest.Overlap(t, h, o)
	t.Log(report)
	if report.Err != nil {
		t.Error(report.Err)
	}
}

// overlapVerbs are faults of one peer. Partitions are what tenures are lost by.
var overlapVerbs = []recipestest.Verb{
	recipestest.VerbCutAfterCommit, recipestest.VerbCutBeforeSend, recipestest.VerbHold,
	recipestest.VerbBreak, recipestest.VerbPartition, recipestest.VerbDelay, recipestest.VerbPartition,
}

// Goal: no two leaders of one name ever believe to lead at once, tokens grow, guarded
// writes of former leaders do not land, and there is a leader again soon after the last
// fault. Method: 24 elections of 3 candidates, spread over 8 peers, make 2 000 hand-overs
// (TENURE_HANDOVERS) while answers are lost, held and delayed, peers are cut off, and the
// daemon is killed, restarted and stopped by SIGSTOP at random.
func TestOverlap(t *testing.T) {
	o := recipestest.OverlapOptions{Names: 24, Peers: 8, HandOvers: 2000}
	// A daemon that is away is everybody's fault at once, so there is one such in fifteen.
	o.Plan.Verbs = append(slices.Repeat(overlapVerbs, 2), recipestest.VerbRestart)
	overlap(t, 1, o)
}

// Goal: and on an ensemble. Method: the same with 800 hand-overs of 12 elections over 6
// peers that move between three members, of which any is killed, stopped, paused or cut off.
// Not in parallel with others, whose goroutines it would count as leaks.
func TestOverlapOfEnsemble(t *testing.T) {
	o := recipestest.OverlapOptions{Names: 12, Peers: 6, HandOvers: 800}
	o.Plan.Verbs = append(slices.Clone(overlapVerbs), recipestest.VerbMove, recipestest.VerbRestart)
	overlap(t, 3, o)
}
