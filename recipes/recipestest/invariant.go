package recipestest

import (
	"sync"
	"time"

	"github.com/tenure-dev/tenure/recipes"
)

// Holder is what an Invariant watches over: a *recipes.Tenure.
type Holder interface {
	Name() string
	Token() recipes.Token
	Check() error
}

// Invariant notes who believed to hold what and when, on one clock, and says afterwards
// whether two did at once:
//
//   - I1: no two tokens of one name pass a Check at once;
//   - I2: tokens of one name grow in the order of their first Check, and none is given
//     twice;
//   - I3: in the order of the backend, tokens of guarded writes never go down.
//
// ExactlyNodes, AwaitCheck and Footprint are I4 (only the nodes of live participants are
// left), I5 (there is a leader again soon) and I6 (nothing leaks).
//
// It keeps some 200 bytes per tenure and nothing per check. It is safe for concurrent
// use.
type Invariant struct {
	seed uint64
	base time.Time

	mu     sync.Mutex
	names  map[string]map[recipes.Token]*Holding
	twice  []error       // tokens given twice, the first of them
	passed chan struct{} // closed and replaced at the first Check of each holding
}

// NewInvariant begins a record. Its errors name seed, with which the run can be repeated.
func NewInvariant(seed uint64) *Invariant {
	return &Invariant{
		seed: seed, base: time.Now(), names: make(map[string]map[recipes.Token]*Holding),
		passed: make(chan struct{}),
	}
}

// now is the time since the beginning; the wall clock has no part in it.
func (i *Invariant) now() time.Duration { return time.Since(i.base) }

// Holding is the record of one tenure. It is safe for concurrent use.
type Holding struct {
	i     *Invariant
	t     Holder
	name  string
	token recipes.Token
	peer  string

	mu     sync.Mutex
	checks int
	// A Check looks at the clock somewhere between its begin and its end. What is counted
	// against it is what is certain: that the first was over at firstEnd, and that the last
	// was not before lastBegin.
	firstBegin, firstEnd, lastBegin, lastEnd time.Duration
	over, clean                              bool // over at ended, by a release
	ended                                    time.Duration
	writes                                   int
	firstZxid, lastZxid                      int64
}

// Hold begins the record of a tenure that peer has just been given.
func (i *Invariant) Hold(peer string, t Holder) *Holding {
	h := &Holding{i: i, t: t, name: t.Name(), token: t.Token(), peer: peer}
	i.mu.Lock()
	defer i.mu.Unlock()
	of := i.names[h.name]
	if of == nil {
		of = make(map[recipes.Token]*Holding)
		i.names[h.name] = of
	}
	if first := of[h.token]; first != nil {
		if len(i.twice) < maxViolations {
			i.twice = append(i.twice, i.violation("I2", h.name, "token %d was given twice: to %s and at %v to %s", h.token, first.peer, i.now(), peer))
		}
		return h // of its own; the first one's record stays as it is
	}
	of[h.token] = h
	return h
}

// Check is the tenure's Check, noted if it passes.
func (h *Holding) Check() error {
	begin := h.i.now()
	err := h.t.Check()
	end := h.i.now()
	if err == nil {
		h.Checked(begin, end)
	}
	return err
}

// Checked notes a Check that passed between two times since the invariant began: for one
// that was made elsewhere.
func (h *Holding) Checked(begin, end time.Duration) {
	h.mu.Lock()
	h.checks++
	first := h.checks == 1
	if first || begin < h.firstBegin {
		h.firstBegin = begin
	}
	if first || end < h.firstEnd {
		h.firstEnd = end
	}
	h.lastBegin, h.lastEnd = max(h.lastBegin, begin), max(h.lastEnd, end)
	h.mu.Unlock()
	if first {
		h.i.announce()
	}
}

// announce wakes AwaitCheck.
func (i *Invariant) announce() {
	i.mu.Lock()
	defer i.mu.Unlock()
	close(i.passed)
	i.passed = make(chan struct{})
}

// Wrote notes that a guarded write was acknowledged. zxid is its place in the backend's
// order, such as the Mzxid of a znode that it set.
func (h *Holding) Wrote(zxid int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.writes == 0 || zxid < h.firstZxid {
		h.firstZxid = zxid
	}
	h.lastZxid = max(h.lastZxid, zxid)
	h.writes++
}

// Ended notes that the tenure is about to be released (clean), or was lost: from now on
// time counts towards the hand-over. Only the first call counts.
func (h *Holding) Ended(clean bool) {
	now := h.i.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over {
		h.over, h.ended, h.clean = true, now, clean
	}
}

// snapshot copies what was noted. Its lock is not used.
func (h *Holding) snapshot() *Holding {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &Holding{
		name: h.name, token: h.token, peer: h.peer, checks: h.checks,
		firstBegin: h.firstBegin, firstEnd: h.firstEnd, lastBegin: h.lastBegin, lastEnd: h.lastEnd,
		over: h.over, ended: h.ended, clean: h.clean,
		writes: h.writes, firstZxid: h.firstZxid, lastZxid: h.lastZxid,
	}
}
