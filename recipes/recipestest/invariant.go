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
	broken []error // what is seen at once, the first of it
	faults bool
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
	firstBegin, firstEnd, lastBegin time.Duration
	failed, over, released          bool
	ended                           time.Duration // if over
	disturbed                       bool          // began while faults were on
	writes                          int
	firstZxid, lastZxid             int64
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
	h.disturbed = i.faults
	if first := of[h.token]; first != nil {
		i.breaks("I2", h.name, "token %d was given twice: to %s and at %v to %s", h.token, first.peer, i.now(), peer)
		return h // of its own; the first one's record stays as it is
	}
	of[h.token] = h
	return h
}

// breaks notes a violation, with i.mu held.
func (i *Invariant) breaks(rule, name, format string, args ...any) {
	if len(i.broken) < maxViolations {
		i.broken = append(i.broken, i.violation(rule, name, format, args...))
	}
}

// Faults says whether faults are played from now on: hand-overs meanwhile are told apart.
func (i *Invariant) Faults(on bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.faults = on
}

// Check is the tenure's Check, noted if it passes. One that passes after another was
// over and had failed breaks I1: what was lost stays lost.
func (h *Holding) Check() error {
	h.mu.Lock()
	failed := h.failed
	h.mu.Unlock()
	begin := h.i.now()
	err := h.t.Check()
	end := h.i.now()
	if err == nil {
		h.Checked(begin, end)
	}
	if failed && err == nil {
		h.i.mu.Lock()
		h.i.breaks("I1", h.name, "token %d of %s passed a Check at %v, after one had failed", h.token, h.peer, end)
		h.i.mu.Unlock()
	}
	if err != nil {
		h.mu.Lock()
		h.failed = true
		h.mu.Unlock()
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
	h.lastBegin = max(h.lastBegin, begin)
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

// Saw notes what a read of the resource, begun after a guarded write of this tenure was
// acknowledged, found: the token of the latest write. A lower one landed too late.
func (h *Holding) Saw(token recipes.Token) {
	if token >= h.token {
		return
	}
	h.i.mu.Lock()
	defer h.i.mu.Unlock()
	h.i.breaks("I3", h.name, "a write with token %d landed behind one with token %d of %s, seen at %v", token, h.token, h.peer, h.i.now())
}

// Ended notes that the tenure was lost or is about to be released: from now on time counts
// towards the hand-over. Only the first call counts.
func (h *Holding) Ended() {
	now := h.i.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over {
		h.over, h.ended = true, now
	}
}

// Released notes that the backend has confirmed a release.
func (h *Holding) Released() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.released = true
}

// snapshot copies what was noted. Its lock is not used.
func (h *Holding) snapshot() *Holding {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &Holding{
		name: h.name, token: h.token, peer: h.peer, checks: h.checks,
		firstBegin: h.firstBegin, firstEnd: h.firstEnd, lastBegin: h.lastBegin,
		over: h.over, released: h.released, ended: h.ended, disturbed: h.disturbed,
		writes: h.writes, firstZxid: h.firstZxid, lastZxid: h.lastZxid,
	}
}
