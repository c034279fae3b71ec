package tests

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// failoverFault is one way in which a leader goes away, and how it comes back.
type failoverFault struct {
	name     string
	begin    func(*lan, *ensembleMember)
	end      func(*lan, *ensembleMember)
	restarts bool // the process is another one afterwards
	orderly  bool // it may still answer for a while
}

var failoverFaults = []failoverFault{
	{name: "kill -9", begin: func(_ *lan, m *ensembleMember) { m.running.Load().cmd.Process.Kill() },
		end: func(_ *lan, m *ensembleMember) { m.kill(); m.spawn() }, restarts: true},
	{name: "SIGSTOP", begin: func(_ *lan, m *ensembleMember) { m.pause() }, end: func(_ *lan, m *ensembleMember) { m.resume() }},
	{name: "cable pulled", begin: func(l *lan, m *ensembleMember) { l.pull(m.id) }, end: func(l *lan, m *ensembleMember) { l.plug(m.id) }},
	{name: "planned stop", begin: func(_ *lan, m *ensembleMember) { m.running.Load().signal(syscall.SIGTERM) },
		end: func(_ *lan, m *ensembleMember) { m.kill(); m.spawn() }, restarts: true, orderly: true},
}

// contender is three servers of some coordination service, one per host of a LAN.
type contender struct {
	name   string
	e      *ensemble // the processes
	leader func() *ensembleMember
	// probe makes clients that write as fast as they can and try again at once: one pinned to
	// each server, or as the service's own clients are. Each has a number.
	probe func(i int) failoverProbe
	// pinned makes one that is pinned to server i, where those of probe are not.
	pinned func(i int) failoverProbe
	// sessions opens some and returns how many of them were lost so far.
	sessions func(t *testing.T) (lost func() int)
}

// failoverProbe is one client. write does one write, on a new connection if need be.
type failoverProbe interface {
	write(ctx context.Context) error
	close()
}

const (
	failoverClients  = 3
	failoverWriteMax = 2 * time.Second         // of one write that is not answered
	failoverRetry    = 5 * time.Millisecond    // after an error
	failoverPace     = time.Millisecond        // between two writes of a probe
	failoverCalm     = 1500 * time.Millisecond // between two faults
	failoverMax      = time.Minute             // of one fail-over
)

// Goal: a leader that goes away is missed for a short time, and no session is lost. Method:
// three servers on hosts of their own; probes write all the time; the leader is killed,
// stopped by SIGSTOP, cut off, and stopped in good order, TENURE_FAILOVERS (2) times each. It
// prints how long it took from then to the next acknowledged write, for those of
// TENURE_CONTENDERS ("tenure"): tenure, zookeeper, etcd, and tenure-zk, which is tenure through
// ZooKeeper's protocol and the probes of zookeeper.
func TestFailover(t *testing.T) {
	t.Parallel()
	if !runInLAN(t) {
		return
	}
	rounds := int(environmentNumber(t, "TENURE_FAILOVERS", 2))
	names := os.Getenv("TENURE_CONTENDERS")
	if names == "" {
		names = "tenure"
	}
	l := newLAN(t, 3)
	for name := range strings.SplitSeq(names, ",") {
		t.Run(name, func(t *testing.T) {
			var c *contender
			switch name {
			case "tenure":
				c = newTenureContender(t, l)
			case "tenure-zk":
				c = newTenureContender(t, l)
				c.name, c.probe, c.pinned = name, zkProbeOf(c.e), nil
			case "zookeeper":
				c = newZooKeeperContender(t, l)
			case "etcd":
				c = newEtcdContender(t, l)
			default:
				t.Fatalf("TENURE_CONTENDERS: there is no %q", name)
			}
			measureFailover(t, l, c, rounds)
		})
	}
}

// measureFailover plays all faults and reports.
func measureFailover(t *testing.T, l *lan, c *contender, rounds int) {
	lost := c.sessions(t)
	p := startProbes(t, c)
	for _, fault := range failoverFaults {
		var took []time.Duration
		failed := p.errors()
		for range rounds {
			took = append(took, failOver(t, l, c, p, fault))
		}
		slices.Sort(took)
		failed = p.errors() - failed
		t.Logf("%-10s %-13s %3d times: min %8v  median %8v  p90 %8v  max %8v; %d writes failed", c.name, fault.name, rounds,
			took[0].Round(time.Millisecond), took[len(took)/2].Round(time.Millisecond), took[len(took)*9/10].Round(time.Millisecond),
			took[len(took)-1].Round(time.Millisecond), failed)
		if c.name == "tenure" && (took[len(took)/2] > failoverLimit(fault) || failed > 0) {
			t.Errorf("%s: median %v, at most %v; %d writes failed", fault.name, took[len(took)/2], failoverLimit(fault), failed)
		}
	}
	n := lost()
	t.Logf("%-10s sessions lost: %d", c.name, n)
	if c.name == "tenure" && n > 0 {
		t.Errorf("%d sessions were lost", n)
	}
}

// failoverLimit is what a busy machine may take.
func failoverLimit(f failoverFault) time.Duration {
	switch {
	case f.orderly:
		return 500 * time.Millisecond
	case f.restarts:
		return time.Second
	}
	return 3 * electionTimeout
}

// failOver takes the leader away, brings it back, and returns for how long no write was
// acknowledged: from the fault to the first that was sent behind it, or the longest gap
// where the leader may still answer.
func failOver(t *testing.T, l *lan, c *contender, p *failoverProbes, fault failoverFault) time.Duration {
	t.Helper()
	var leader *ensembleMember
	c.e.eventually(failoverMax, "a leader", func() error {
		if leader = c.leader(); leader == nil {
			return fmt.Errorf("nobody leads")
		}
		return nil
	})
	p.calm(t, failoverCalm)
	began := time.Now()
	fault.begin(l, leader)
	if !fault.orderly {
		began = time.Now() // from here on it answers nothing
	}
	took := p.acked(t, began).Sub(began)
	if fault.orderly {
		<-time.After(failoverCalm)
		took = p.longestGap(began)
	}
	<-time.After(failoverCalm / 2)
	fault.end(l, leader)
	c.e.eventually(failoverMax, "the old leader serves", func() error { return probeOnce(c, leader.id-1) })
	return took
}

// probeOnce writes through one server.
func probeOnce(c *contender, i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), statusMax)
	defer cancel()
	pinned := c.pinned
	if pinned == nil {
		pinned = c.probe
	}
	probe := pinned(i)
	defer probe.close()
	return probe.write(ctx)
}

// failoverProbes are probes at work. Its methods may be called by any goroutine.
type failoverProbes struct {
	mu     sync.Mutex
	writes []timedWrite // acknowledged, in that order
	failed int
}

func startProbes(t *testing.T, c *contender) *failoverProbes {
	t.Helper()
	p := &failoverProbes{}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	for i := range failoverClients {
		work.Go(func() {
			probe := c.probe(i)
			defer probe.close()
			for ctx.Err() == nil {
				sent := time.Now()
				call, done := context.WithTimeout(ctx, failoverWriteMax)
				err := probe.write(call)
				done()
				p.note(sent, err)
				if err != nil {
					<-time.After(failoverRetry)
				} else {
					<-time.After(failoverPace)
				}
			}
		})
	}
	t.Cleanup(func() { cancel(); work.Wait() })
	return p
}

func (p *failoverProbes) note(sent time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.failed++
		return
	}
	p.writes = append(p.writes, timedWrite{sent, time.Now()})
}

func (p *failoverProbes) errors() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// acked waits for the first acknowledged write that was sent after from.
func (p *failoverProbes) acked(t *testing.T, from time.Time) time.Time {
	t.Helper()
	for limit := time.After(failoverMax); ; {
		p.mu.Lock()
		first := slices.IndexFunc(p.writes, func(w timedWrite) bool { return w.sent.After(from) })
		if first >= 0 {
			defer p.mu.Unlock()
			return p.writes[first].acked
		}
		p.mu.Unlock()
		select {
		case <-time.After(time.Millisecond):
		case <-limit:
			t.Fatalf("no write was acknowledged for %v", failoverMax)
		}
	}
}

// longestGap is the longest time without an acknowledged write since from.
func (p *failoverProbes) longestGap(from time.Time) (gap time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := from
	for _, w := range p.writes {
		if w.acked.After(from) {
			gap, last = max(gap, w.acked.Sub(last)), w.acked
		}
	}
	return max(gap, time.Since(last))
}

// calm waits until all probes' writes have been answered for that long.
func (p *failoverProbes) calm(t *testing.T, length time.Duration) {
	t.Helper()
	for limit := time.After(failoverMax); ; {
		before := p.errors()
		<-time.After(length)
		if p.errors() == before && p.longestGap(time.Now().Add(-length)) < length/4 {
			return
		}
		select {
		case <-limit:
			t.Fatalf("writes fail without a fault for %v", failoverMax)
		default:
		}
	}
}
