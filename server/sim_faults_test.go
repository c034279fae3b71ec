package server

import (
	"fmt"
	"math/rand/v2"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// simFaults are what may go wrong, by weight. Each injects one fault and plans its end.
var simFaults = []struct {
	weight int
	name   string
	do     func(s *sim)
}{
	{10, "crash of one member", func(s *sim) { s.crash(s.anyone()) }},
	{6, "crash of the leader", func(s *sim) { s.crash(s.leader()) }},
	{3, "crash of all members at once", (*sim).crashAll},
	{14, "crash armed at a sync", (*sim).armCrash},
	{6, "partition, full", func(s *sim) { s.partition(false, true) }},
	{6, "partition, one way", func(s *sim) { s.partition(true, false) }},
	{5, "partition of the leader", (*sim).isolateLeader},
	{5, "bridge: two members see each other only through the others", (*sim).bridge},
	{6, "connection between members reset", (*sim).reset},
	{5, "network slow", (*sim).slowNetwork},
	{4, "network duplicates frames", (*sim).duplicate},
	{4, "network breaks connections", (*sim).breakConnections},
	{4, "network does not keep up", (*sim).dropFrames},
	{4, "network lets frames overtake each other", (*sim).reorder},
	{6, "member paused", func(s *sim) { s.pauseOne(s.anyone()) }},
	{5, "leader paused", func(s *sim) { s.pauseOne(s.leader()) }},
	{5, "syncs slow", (*sim).slowDisk},
	{4, "sync fails", func(s *sim) { s.failDisk(faultEIO, "sync fails") }},
	{3, "disk full in a write", func(s *sim) { s.failDisk(faultFull, "disk full") }},
	{3, "reserve of the disk eaten", (*sim).eatReserve},
	{4, "wall clock jumps", (*sim).jumpClock},
	{8, "client's connection cut", (*sim).cutClient},
	{2, "bit flipped while a member is down", (*sim).flip},
	{4, "lead handed over", (*sim).handOver},
	{3, "member replaced", (*sim).replaceSomebody},
}

// misfortune injects faults until the healing.
func (s *sim) misfortune() {
	total := 0
	for _, f := range simFaults {
		total += f.weight
	}
	low, high := 40*ms, 300*ms
	if s.chance(30) {
		low, high = 200*ms, 1500*ms
	}
	var next func()
	next = func() {
		if s.healed {
			return
		}
		n := s.rng.IntN(total)
		for _, f := range simFaults {
			if n -= f.weight; n < 0 {
				s.note("FAULT %s", f.name)
				f.do(s)
				break
			}
		}
		s.after(s.between(low, high), next)
	}
	s.after(s.between(300*ms, 900*ms), next)
}

// injected counts a fault that has happened.
func (s *sim) injected(name string) { s.count("fault: " + name) }

// anyone is a member that is up, nil if there is none.
func (s *sim) anyone() *simMember {
	var up []*simMember
	for _, m := range s.members {
		if m.srv != nil {
			up = append(up, m)
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[s.rng.IntN(len(up))]
}

// pair is two different members.
func (s *sim) pair() (a, b *simMember) {
	i := s.rng.IntN(len(s.members))
	j := (i + 1 + s.rng.IntN(len(s.members)-1)) % len(s.members)
	return s.members[i], s.members[j]
}

// crash is a power cut, or a kill, of a member, which comes back some time later.
func (s *sim) crash(m *simMember) {
	if m == nil || m.srv == nil {
		return
	}
	s.injected("member crashed")
	m.stop("crash")
	s.comeBack(m)
}

func (s *sim) comeBack(m *simMember) {
	longest := 1200 * ms
	if s.chance(20) {
		longest = 4000 * ms
	}
	s.after(s.between(10*ms, longest), func() {
		if m.srv == nil && !m.lost {
			m.start()
		}
	})
}

func (s *sim) crashAll() {
	s.injected("all members crashed at once")
	for _, m := range s.members {
		s.crash(m)
	}
}

func (s *sim) armCrash() {
	if m := s.anyone(); m != nil {
		m.armCrash(12)
	}
}

// armCrash lets the power go at one of the next syncs.
func (m *simMember) armCrash(syncs int64) {
	s := m.sim
	f := faultCrashBefore
	if s.chance(50) {
		f = faultCrashAfter
	}
	m.disk.arm(int(s.between(1, syncs)), f, []int{0, 100, int(s.between(1, 99))}[s.rng.IntN(3)], s.rng.Uint64())
}

// mayCrashSoon arms a crash now and then where a member is about to do something seldom.
func (m *simMember) mayCrashSoon(syncs int64) {
	if !m.sim.healed && m.sim.chance(25) {
		m.armCrash(syncs)
	}
}

// partition cuts the members in two: both directions or one, unnoticed or with connections
// that break.
func (s *sim) partition(oneWay, mayReset bool) {
	side := map[uint64]bool{}
	for _, m := range s.members {
		side[m.id] = s.chance(50)
	}
	reset := mayReset && s.chance(50)
	s.injected(fmt.Sprintf("partition, one way %v, connections reset %v", oneWay, reset))
	s.separate(func(a, b uint64) bool { return side[a] != side[b] && (!oneWay || side[a]) }, reset)
}

func (s *sim) isolateLeader() {
	l := s.leader()
	if l == nil {
		return
	}
	reset := s.chance(50)
	s.injected(fmt.Sprintf("leader cut off, connections reset %v", reset))
	s.separate(func(a, b uint64) bool { return a == l.id || b == l.id }, reset)
}

func (s *sim) bridge() {
	a, b := s.pair()
	s.injected("bridge")
	s.separate(func(x, y uint64) bool { return x == a.id && y == b.id || x == b.id && y == a.id }, false)
}

// separate lets what is sent between some members be lost for a while.
func (s *sim) separate(apart func(from, to uint64) bool, reset bool) {
	for _, a := range s.members {
		for _, b := range s.members {
			if a == b || !apart(a.id, b.id) {
				continue
			}
			if reset {
				s.net.cut(a.id, b.id)
			}
			s.net.hole(a.id, b.id, true)
		}
	}
	s.after(s.between(100*ms, 3000*ms), func() { s.join() })
}

// join ends all partitions.
func (s *sim) join() {
	for _, a := range s.members {
		for _, b := range s.members {
			if a != b {
				s.net.hole(a.id, b.id, false)
			}
		}
	}
}

func (s *sim) reset() {
	a, b := s.pair()
	s.injected("connection between members reset")
	s.net.cut(a.id, b.id)
}

func (s *sim) slowNetwork() {
	s.injected("network slow")
	s.net.slow = s.between(5*ms, 150*ms)
	s.after(s.between(200*ms, 2000*ms), func() { s.net.slow = 0 })
}

func (s *sim) duplicate() {
	s.net.duplicates = float64(s.between(1, 30))
	s.after(s.between(200*ms, 2000*ms), func() { s.net.duplicates = 0 })
}

func (s *sim) breakConnections() {
	s.net.lossy = float64(s.between(1, 20)) / 4
	s.after(s.between(200*ms, 2000*ms), func() { s.net.lossy = 0 })
}

func (s *sim) dropFrames() {
	s.net.refused = float64(s.between(1, 40))
	s.after(s.between(200*ms, 2000*ms), func() { s.net.refused = 0 })
}

func (s *sim) reorder() {
	s.net.overtaking = float64(s.between(1, 30))
	s.after(s.between(200*ms, 2000*ms), func() { s.net.overtaking = 0 })
}

func (s *sim) pauseOne(m *simMember) {
	if m == nil || m.srv == nil || m.paused {
		return
	}
	s.injected("member paused")
	gen := m.gen
	m.pause()
	s.after(s.between(50*ms, 4000*ms), func() {
		if m.gen == gen {
			m.resume()
		}
	})
}

func (s *sim) slowDisk() {
	m := s.anyone()
	if m == nil {
		return
	}
	s.injected("syncs slow")
	m.syncLow, m.syncHigh = 20*ms, s.between(50*ms, 1500*ms)
	s.after(s.between(300*ms, 3000*ms), func() { m.syncLow, m.syncHigh = 100*us, 2*ms })
}

func (s *sim) failDisk(f simFault, name string) {
	m := s.anyone()
	if m == nil {
		return
	}
	s.injected(name)
	m.disk.arm(1, f, 0, 0)
}

func (s *sim) eatReserve() {
	m := s.anyone()
	if m == nil {
		return
	}
	s.injected("reserve of the disk eaten")
	srv := m.srv
	srv.diskFull.Store(true)
	s.after(s.between(100*ms, 2000*ms), func() { srv.diskFull.Store(false) })
}

func (s *sim) jumpClock() {
	s.injected("wall clock jumped")
	m := s.members[s.rng.IntN(len(s.members))]
	m.wallSkew = s.between(-3_600_000*ms, 3_600_000*ms)
}

func (s *sim) cutClient() {
	c := s.clients[s.rng.IntN(len(s.clients))]
	if c.conn != nil {
		s.injected("client's connection cut")
		c.hangUp("fault")
	}
}

// flip damages the disk of a member that is down. It must say so when it starts, and is lost
// then; where it starts all the same, the damage was where no data is, or in what had not
// been synced or is the very last batch, which P9 excepts.
func (s *sim) flip() {
	for _, m := range s.members {
		if m.lost || m.flipped != "" || s.replacing != nil {
			return // one is enough: a majority is to live
		}
	}
	for _, m := range s.members {
		if m.srv != nil {
			continue
		}
		m.pristine = m.disk.mem.CrashClone(vfs.CrashCloneCfg{})
		what := flipBit(m.disk.mem, rand.New(rand.NewPCG(s.rng.Uint64(), 1)))
		if what == "" {
			return
		}
		s.note("a bit of member %d is flipped: %s", m.id, what)
		m.flipped = what
		return
	}
}

func (s *sim) replaceSomebody() {
	if m := s.anyone(); m != nil {
		s.replace(m)
	}
}

func (s *sim) handOver() {
	l := s.leader()
	if l == nil {
		return
	}
	s.injected("lead handed over")
	to := s.anyone()
	if to != nil && to != l {
		l.input(func(m *simMember) { m.rep.BeginTransfer(to.id) })
	}
}

// heal ends all faults: those who are down come back.
func (s *sim) heal() {
	s.note("HEALING")
	s.healed = true
	s.net.slow, s.net.duplicates, s.net.lossy, s.net.refused, s.net.overtaking = 0, 0, 0, 0, 0
	s.join()
	for _, m := range s.members {
		m.syncLow, m.syncHigh = 100*us, 2*ms
		if m.srv != nil {
			m.srv.diskFull.Store(false)
			m.disk.arm(0, 0, 0, 0)
			m.resume()
			m.moved()
		}
		if m.srv == nil && !m.lost {
			m.start()
		}
	}
}
