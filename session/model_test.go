package session_test

import (
	"cmp"
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/tenure-dev/tenure/session"
)

var seedFlag = flag.Uint64("seed", 0, "replay the random tests with this seed only")

// seeds returns the seeds of a random test: -seed, or the first n. TENURE_SEEDS (make
// sim) asks for more.
func seeds(n uint64) []uint64 {
	if *seedFlag != 0 {
		return []uint64{*seedFlag}
	}
	if more, err := strconv.ParseUint(os.Getenv("TENURE_SEEDS"), 10, 64); err == nil {
		n = more
	}
	var all []uint64
	for s := uint64(1); s <= n; s++ {
		all = append(all, s)
	}
	return all
}

// naive is the Tracker written for obviousness: every call walks everything.
type naive struct {
	timeout, deadline map[session.ID]int64
	closing           map[session.ID]bool
	acked             map[session.ID]int64 // last acknowledged touch
}

func (m *naive) renew(id session.ID, now int64) {
	m.deadline[id] = max(m.deadline[id], now+m.timeout[id])
	m.acked[id] = now
}

func (m *naive) live(id session.ID) bool { return m.timeout[id] != 0 && !m.closing[id] }

func (m *naive) expired(now int64, limit int) []session.ID {
	var due []session.ID
	for id, d := range m.deadline {
		if m.live(id) && d <= now {
			due = append(due, id)
		}
	}
	slices.SortFunc(due, func(a, b session.ID) int {
		return cmp.Or(cmp.Compare(m.deadline[a], m.deadline[b]), cmp.Compare(a, b))
	})
	if limit > 0 && len(due) > limit {
		due = due[:limit]
	}
	for _, id := range due {
		m.closing[id] = true
	}
	return due
}

func (m *naive) next() (int64, bool) {
	first, found := int64(0), false
	for id, d := range m.deadline {
		if m.live(id) && (!found || d < first) {
			first, found = d, true
		}
	}
	return first, found
}

// Goal: a Tracker answers every call like the naive one, and an acknowledged touch at
// r is never expired before r + timeout. Method: random calls on few ids, so that all
// states meet. Replay: go test ./session -run TestTrackerAgainstModel -seed N.
func TestTrackerAgainstModel(t *testing.T) {
	for _, seed := range seeds(40) {
		r := rand.New(rand.NewPCG(seed, 0))
		tr := session.NewTracker()
		m := &naive{map[session.ID]int64{}, map[session.ID]int64{}, map[session.ID]bool{}, map[session.ID]int64{}}
		now := int64(0)
		for step := range 4000 {
			if r.IntN(3) == 0 {
				now += r.Int64N(40)
			}
			if !modelStep(t, r, tr, m, now) || !modelAgrees(t, tr, m) {
				t.Fatalf("seed %d, step %d, now %d", seed, step, now)
			}
		}
	}
}

func modelStep(t *testing.T, r *rand.Rand, tr *session.Tracker, m *naive, now int64) bool {
	id := session.ID(1 + r.IntN(30))
	switch r.IntN(12) {
	case 0, 1:
		timeout := 1 + r.Int64N(200)
		tr.Open(id, timeout, now)
		if m.timeout[id] == 0 {
			m.timeout[id], m.deadline[id] = timeout, now+timeout
		}
		if m.live(id) {
			m.renew(id, now)
		}
	case 2, 3, 4, 5, 6:
		got := tr.Touch(id, now)
		if got != m.live(id) {
			t.Errorf("Touch(%v) = %v", id, got)
		}
		if m.live(id) {
			m.renew(id, now)
		}
	case 7:
		tr.Close(id)
		for _, of := range []map[session.ID]int64{m.timeout, m.deadline, m.acked} {
			delete(of, id)
		}
		delete(m.closing, id)
	case 8:
		if got := tr.Revive(id, now); got != m.closing[id] {
			t.Errorf("Revive(%v) = %v", id, got)
		}
		if m.closing[id] {
			delete(m.closing, id)
			m.renew(id, now)
		}
	case 9:
		modelRare(r, tr, m, now)
	default:
		return modelExpire(t, r, tr, m, now)
	}
	return !t.Failed()
}

func modelRare(r *rand.Rand, tr *session.Tracker, m *naive, now int64) {
	switch r.IntN(6) {
	case 0:
		tr.Reset(now)
		for id := range m.timeout {
			delete(m.closing, id)
			m.renew(id, now)
		}
	case 1:
		d := r.Int64N(50)
		tr.Extend(d)
		for id := range m.deadline {
			if m.live(id) {
				m.deadline[id] += d
			}
		}
	}
}

func modelExpire(t *testing.T, r *rand.Rand, tr *session.Tracker, m *naive, now int64) bool {
	limit := r.IntN(4)
	got := tr.Expired(now, limit)
	for _, id := range got {
		if now < m.acked[id]+m.timeout[id] {
			t.Errorf("%v expired at %d, acknowledged at %d with timeout %d", id, now, m.acked[id], m.timeout[id])
		}
	}
	if want := m.expired(now, limit); !slices.Equal(got, want) {
		t.Errorf("Expired(%d, %d) = %v, want %v", now, limit, got, want)
	}
	return !t.Failed()
}

func modelAgrees(t *testing.T, tr *session.Tracker, m *naive) bool {
	if tr.Len() != len(m.timeout) {
		t.Errorf("Len = %d, want %d", tr.Len(), len(m.timeout))
	}
	got, ok := tr.Next()
	if want, wantOK := m.next(); got != want || ok != wantOK {
		t.Errorf("Next = %d, %v, want %d, %v", got, ok, want, wantOK)
	}
	for _, id := range slices.Sorted(maps.Keys(m.timeout)) {
		d, ok := tr.Deadline(id)
		if ok != m.live(id) || ok && d != m.deadline[id] {
			t.Errorf("Deadline(%v) = %d, %v, want %d, %v", id, d, ok, m.deadline[id], m.live(id))
		}
	}
	return !t.Failed()
}
