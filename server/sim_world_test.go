package server

import (
	"container/heap"
	"fmt"
	"hash"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// sim is one run of the simulation: an ensemble, its network, its disks and its clients on one
// thread, in a time of its own. All that is random comes from the seed.
type sim struct {
	seed      uint64
	rng       *rand.Rand
	now       int64 // nanoseconds
	events    simQueue
	serial    uint64
	net       *simNet
	members   []*simMember
	founders  int
	clients   []*simClient
	replacing *simReplacement // nil if no member is being replaced
	model     *simModel
	calls     []simCall // of native clients on registers
	healed    bool      // no faults any more
	ended     bool      // clients begin nothing any more
	// lagBytes is how much log a leader keeps for those that lag.
	lagBytes int64
	// frontier is the highest zxid that any client has seen: a linearizable read that begins
	// now may show nothing older.
	frontier int64
	problem  string
	counts   map[string]int64
	history  hash.Hash64
	trace    []string // of what happened last
	verbose  func(string)
}

const (
	ms = int64(time.Millisecond)
	us = int64(time.Microsecond)
)

func newSim(seed uint64) *sim {
	s := &sim{seed: seed, rng: rand.New(rand.NewPCG(seed, 0x7e4e)), counts: map[string]int64{}, history: fnv.New64a(), model: newSimModel()}
	s.model.sim = s
	s.net = newSimNet(s)
	return s
}

// simEvent is something that happens at a time.
type simEvent struct {
	at     int64
	serial uint64 // orders those of one time
	do     func()
}

// simQueue is a heap of events.
type simQueue []simEvent

func (q simQueue) Len() int { return len(q) }
func (q simQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].serial < q[j].serial
}
func (q simQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *simQueue) Push(e any) { *q = append(*q, e.(simEvent)) }

// Pop implements heap.Interface.
func (q *simQueue) Pop() any {
	last := (*q)[len(*q)-1]
	(*q)[len(*q)-1] = simEvent{}
	*q = (*q)[:len(*q)-1]
	return last
}

// after lets do happen in d nanoseconds.
func (s *sim) after(d int64, do func()) {
	s.serial++
	heap.Push(&s.events, simEvent{s.now + max(d, 0), s.serial, do})
}

// run lets time pass until a moment, or until there is a problem.
func (s *sim) run(until int64) {
	for len(s.events) > 0 && s.problem == "" && s.events[0].at <= until {
		e := heap.Pop(&s.events).(simEvent)
		s.now = e.at
		e.do()
	}
	if s.problem == "" {
		s.now = max(s.now, until)
	}
}

// between returns a random number in [low, high].
func (s *sim) between(low, high int64) int64 { return low + s.rng.Int64N(high-low+1) }

// chance is true in percent of a hundred cases.
func (s *sim) chance(percent float64) bool { return s.rng.Float64()*100 < percent }

// count notes that something happened.
func (s *sim) count(what string) { s.counts[what]++ }

// note keeps what happened for the history, by which a replay is recognized, and for whoever
// looks for the cause of a problem.
func (s *sim) note(format string, args ...any) {
	line := fmt.Sprintf("%10.3f ms  ", float64(s.now)/1e6) + fmt.Sprintf(format, args...)
	s.history.Write([]byte(line))
	if s.verbose != nil {
		s.verbose(line)
	}
	const kept = 400
	if s.trace = append(s.trace, line); len(s.trace) > 2*kept {
		s.trace = append(s.trace[:0], s.trace[kept:]...)
	}
}

// fail ends the run: a promise was broken. Only the first counts.
func (s *sim) fail(check, format string, args ...any) {
	if s.problem == "" {
		s.problem = check + ": " + fmt.Sprintf(format, args...)
		s.note("PROBLEM %s", s.problem)
	}
}

// tally lists what was counted.
func tally(counts map[string]int64) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "%9d  %s\n", counts[k], k)
	}
	return b.String()
}
