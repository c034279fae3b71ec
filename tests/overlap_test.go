package tests

import (
	"context"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes/native"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// overlapTimeout is the session timeout of candidates: short, so that faults of its length
// are many.
const overlapTimeout = time.Second

// overlapMember is a daemon whose peers follow it over restarts.
type overlapMember struct {
	*member
	mu      sync.Mutex
	proxies []*recipestest.Proxy
	ends    int // how many restarts there were
}

// open connects a peer through a proxy of its own.
func (m *overlapMember) open(t testing.TB) *recipestest.Peer {
	t.Helper()
	proxy := recipestest.NewProxy(t, m.running.Load().address, recipestest.TenureWire)
	m.mu.Lock()
	m.proxies = append(m.proxies, proxy)
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), startDeadline)
	defer cancel()
	s, err := native.Connect(ctx, client.Options{Endpoints: []string{proxy.Addr()}, Timeout: overlapTimeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	peer := &recipestest.Peer{Store: s}
	proxy.Fill(peer)
	return peer
}

// restart takes the daemon away for a while: by kill -9, in good order, or standing still
// with all connections open, in turn.
func (m *overlapMember) restart(_ testing.TB, down time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ends++
	switch m.ends % 3 {
	case 0:
		m.stop()
	case 1:
		m.crash()
	default:
		d := m.running.Load()
		d.signal(syscall.SIGSTOP)
		<-time.After(down)
		d.signal(syscall.SIGCONT)
		return
	}
	<-time.After(down)
	m.start()
	for _, proxy := range m.proxies {
		proxy.SetTarget(m.running.Load().address)
	}
}

// Goal: no two leaders of one name ever believe to lead at once, tokens grow, guarded
// writes of former leaders do not land, and there is a leader again soon after the last
// fault. Method: 24 elections of 3 candidates, spread over 8 peers, make 2 000 hand-overs
// (TENURE_HANDOVERS) while answers are lost, held and delayed, peers are cut off, and the
// daemon is killed, restarted and stopped by SIGSTOP at random.
func TestOverlap(t *testing.T) {
	m := &overlapMember{member: newMember(t)}
	h := recipestest.Harness{
		Name: "tenured", Timeout: overlapTimeout, Open: m.open, Restart: m.restart,
		Run: func(t *testing.T, test func(t *testing.T)) { test(t) },
	}
	o := recipestest.OverlapOptions{
		Seed: randomSeed(t), Names: 24, Peers: 8, Long: 0.2,
		HandOvers: int(environmentNumber(t, "TENURE_HANDOVERS", 2000)),
	}
	o.Limit = max(15*time.Minute, time.Duration(o.HandOvers)*200*time.Millisecond)
	o.Plan.MeanGap = overlapTimeout / 10
	// A daemon that is away is everybody's fault at once, so there is one such in fifteen.
	// Partitions are what tenures are lost by.
	o.Plan.Verbs = append(slices.Repeat([]recipestest.Verb{
		recipestest.VerbCutAfterCommit, recipestest.VerbCutBeforeSend, recipestest.VerbHold,
		recipestest.VerbBreak, recipestest.VerbPartition, recipestest.VerbDelay, recipestest.VerbPartition,
	}, 2), recipestest.VerbRestart)
	report := recipestest.Overlap(t, h, o)
	t.Log(report)
	if report.Err != nil {
		t.Error(report.Err)
	}
}
