package server

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/tenure-dev/tenure/store"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "run the simulation of this seed only and tell what happens")
	simSeeds = flag.Int("sim.seeds", 0, "run the simulation of as many seeds; 0 means few")
	simFrom  = flag.Uint64("sim.from", 1, "the first seed")
	simStep  = flag.Int("sim.step", 0, "run every so many of the seeds in this process; 0 means all, in as many processes as there are cores")
)

// simulate runs one seed.
func simulate(t *testing.T, seed uint64, verbose func(string)) *sim {
	s := newSim(seed)
	s.verbose = verbose
	// What draws from crypto/rand, such as Raft's election timeouts, is the process's.
	cryptotest.SetGlobalRandom(t, seed)
	size := 3
	if s.chance(25) {
		size = 5
	}
	s.lagBytes = []int64{1 << 20, 1}[s.rng.IntN(2)]
	s.founders = size
	for id := range size {
		s.members = append(s.members, newSimMember(s, uint64(id+1)))
	}
	for _, m := range s.members {
		m.start()
	}
	s.setUp()
	s.misfortune()
	s.run(simHealAt)
	s.heal()
	s.settle()
	s.close()
	return s
}

const (
	simHealAt         = 6000 * ms
	simProgressWithin = 4000 * ms
	simDrainedWithin  = 8000 * ms
)

// setUp lets the first client make what all use.
func (s *sim) setUp() {
	for range 3 {
		s.addClient(false)
	}
	for range 2 {
		s.addClient(true)
	}
	for _, path := range []string{"/p0", "/p1", "/r0", "/r1", "/r2", "/s", "/e", "/d"} {
		op := &znode.Create{Path: path, ACL: znode.OpenACL}
		s.clients[0].issue(&simOp{req: wire.Request{Op: wire.OpOf(op), Body: op}, what: opText(op)})
	}
}

// settle judges what is left when everything works again.
func (s *sim) settle() {
	for _, c := range s.clients {
		c.answers = 0
	}
	s.run(simHealAt + simProgressWithin)
	for _, c := range s.clients {
		if !c.gone && c.answers == 0 {
			s.fail("liveness", "client %d got no answer within %d ms after all faults ended", c.id, simProgressWithin/ms)
		}
	}
	s.ended = true
	s.run(simHealAt + simProgressWithin + simDrainedWithin)
	for _, c := range s.clients {
		if !c.gone && len(c.writes) > 0 {
			s.fail("liveness", "client %d still waits for %d writes", c.id, len(c.writes))
		}
		if l := s.model.sessions[c.session]; c.gone && l != nil {
			s.fail("liveness", "session %v of a client that is gone has not expired", c.session)
		}
	}
	for _, c := range s.clients {
		for _, op := range c.writes { // of clients that are gone
			c.called(op, nil)
		}
	}
	s.judgeRegisters()
	if s.replacing != nil {
		s.fail("liveness", "member %d was not replaced", s.replacing.old.id)
	}
	for _, m := range s.members {
		if m.srv == nil {
			continue
		}
		if got := m.srv.store.Applied(); got != s.model.last() {
			s.fail("liveness", "member %d has applied %d of %d entries", m.id, got, s.model.last())
			continue
		}
		if s.problem == "" {
			s.model.compare(m)
		}
	}
}

// close lets go of what the run holds, and judges what is on the disks.
func (s *sim) close() {
	for _, m := range s.members {
		if m.srv != nil {
			srv, rep := m.srv, m.rep
			m.gen++
			m.srv = nil
			rep.Abandon()
			srv.store.Close()
			m.check()
		}
	}
}

// check reads all that is in a member's state, as `tenured check` does.
func (m *simMember) check() {
	if m.sim.problem != "" || m.damaged {
		return
	}
	if found, err := store.Check("/data/state", store.Options{FS: m.disk.mem}); err != nil || len(found.Problems) > 0 {
		m.sim.fail("check", "member %d: %v, %v", m.id, err, found.Problems)
	}
}

// TestSimulation
// Goal: whatever happens to members, disks, clocks, network and clients, the promises hold:
// see simModel and simClient for how each is judged, and docs/reliability.md.
// Method: one thread, a time of its own, everything random from a seed; many seeds.
func TestSimulation(t *testing.T) {
	n := uint64(*simSeeds)
	switch {
	case *simSeed != 0:
		s := simulate(t, *simSeed, func(line string) { fmt.Println(line) })
		t.Logf("history %x\n%s", s.history.Sum64(), tally(s.counts))
		if s.problem != "" {
			t.Fatal(s.problem)
		}
	case n == 0: // with the race detector each is slow
		few := uint64(6)
		if testing.Short() {
			few = 3
		}
		simulateSome(t, *simFrom, few, 1)
	case *simStep != 0:
		simulateSome(t, *simFrom, n, uint64(*simStep))
	default:
		simulateMany(t, n)
	}
}

// simulateSome runs seeds and says what was counted.
func simulateSome(t *testing.T, from, n, step uint64) {
	began := time.Now()
	counts := map[string]int64{}
	for seed := from; seed < from+n; seed += step {
		s := simulate(t, seed, nil)
		for k, v := range s.counts {
			counts[k] += v
		}
		counts["seeds"]++
		if s.problem != "" {
			t.Errorf("seed %d, after %v: %s\nreplay: go test ./server -run 'TestSimulation$' -sim.seed %d", seed, time.Since(began).Round(time.Millisecond), s.problem, seed)
			break // one is enough
		}
	}
	t.Logf("tally\n%s", tally(counts))
}

// simulateMany spreads the seeds over processes, since what is random is a process's own.
func simulateMany(t *testing.T, n uint64) {
	processes := min(runtime.GOMAXPROCS(0), int(n))
	var wait sync.WaitGroup
	var mu sync.Mutex
	counts := map[string]int64{}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := range processes {
		wait.Go(func() {
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestSimulation$", "-test.v", "-test.timeout", "0",
				"-sim.seeds", strconv.FormatUint(n-uint64(i), 10), "-sim.from", strconv.FormatUint(*simFrom+uint64(i), 10), "-sim.step", strconv.Itoa(processes))
			cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
			out, err := cmd.CombinedOutput()
			mu.Lock()
			defer mu.Unlock()
			addTally(counts, out)
			if err != nil && ctx.Err() == nil {
				cancel() // one is enough
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	wait.Wait()
	t.Logf("tally\n%s", tally(counts))
}

// addTally adds what a process counted.
func addTally(counts map[string]int64, out []byte) {
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		number, what, ok := strings.Cut(strings.TrimSpace(lines.Text()), "  ")
		if v, err := strconv.ParseInt(number, 10, 64); ok && err == nil {
			counts[what] += v
		}
	}
}

// TestSimulationReplays
// Goal: a seed is a run: its replay does the same, to the last message.
// Method: run seeds twice and compare the hashes of what happened.
func TestSimulationReplays(t *testing.T) {
	seeds := 3
	if testing.Short() {
		seeds = 1
	}
	for seed := uint64(1); seed <= uint64(seeds); seed++ {
		a, b := simulate(t, seed, nil), simulate(t, seed, nil)
		if a.history.Sum64() != b.history.Sum64() {
			t.Errorf("seed %d: the replay differs, from here on at the latest: %s", seed, firstDifference(a.trace, b.trace))
		}
		if !maps.Equal(a.counts, b.counts) {
			t.Errorf("seed %d: the replay counts otherwise", seed)
		}
	}
}

func firstDifference(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return a[i] + " | " + b[i]
		}
	}
	return fmt.Sprint(len(a), " lines and ", len(b), slices.Equal(a, b))
}
