package replica

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// gathering is a loop whose last entry had answered proposals, of which some wait again.
func gathering(answered, waiting int) *loop {
	r := &Replica{}
	r.in.init(1 << 20)
	r.syncNs.Store(int64(time.Second)) // the bound is gatherMax then
	alone := conf{state: &raftpb.ConfState{Voters: []uint64{1}}}
	l := &loop{r: r, core: &core{id: 1, conf: alone}, lastSealed: answered}
	for range waiting {
		if err := r.in.propose([][]byte{nil}); err != nil {
			panic(err)
		}
	}
	return l
}

// Goal: an entry waits for the clients that the one before it answered, if they come.
// Method: they come while it waits, one by one.
func TestGatherWaitsForThoseAnswered(t *testing.T) {
	l := gathering(16, 1)
	l.r.syncNs.Store(int64(gatherPart * gatherMax))
	go func() {
		for range 15 {
			l.r.in.propose([][]byte{nil})
		}
	}()
	// A busy machine may start the goroutine late: then it is a miss, and is tried again.
	for range 1000 {
		l.gatherSkips = 0
		if l.gather(); l.r.in.waiting() >= 12 {
			return
		}
	}
	t.Errorf("%d of 16 were waited for", l.r.in.waiting())
}

// Goal: it does not wait where there is nobody to wait for: few answered, half of them
// back, an entry on its way. Method: the time that it does not take shows in misses.
func TestGatherDoesNotWait(t *testing.T) {
	for name, l := range map[string]*loop{
		"few":      gathering(gatherMin-1, 1),
		"nothing":  gathering(16, 0),
		"half":     gathering(16, 8),
		"on a way": gathering(16, 1),
	} {
		if name == "on a way" {
			l.appending = 1
		}
		if l.gather(); l.gatherMisses != 0 {
			t.Errorf("%s: it waited", name)
		}
	}
}

// Goal: where those answered do not come back, ever fewer entries wait for them. Method:
// count the waits of 1000 entries.
func TestGatherGivesUp(t *testing.T) {
	l, waits := gathering(16, 1), 0
	for range 1000 {
		if l.gatherSkips == 0 {
			waits++
		}
		l.gather()
	}
	if waits > 10 {
		t.Errorf("%d of 1000 entries waited", waits)
	}
}
