package session

import "fmt"

// Tracker knows when each open session expires. It has no clock: every time is
// nanoseconds of one monotonic clock that its owner reads, and a session expires
// only when the owner asks. Not safe for concurrent use: one goroutine owns it.
//
// Guarantees:
//
//  1. Never early: a session for which Touch(now) returned true is not expired
//     before now + timeout.
//  2. Never late by itself: Expired(now) returns every session whose deadline is at
//     or before now, so that only the owner's asking late lets one live longer.
//  3. A deadline never moves back.
//  4. What Expired returned stays closing: no Touch revives it, because its close is
//     already on the way to the log. Only Revive, Reset and Close change it.
//
// Touch costs a map look-up: the heap is ordered by a key that may lag behind the
// deadline, and an entry is moved only once its key is the smallest. The number of
// sessions is not bounded here; the owner bounds it before it opens one.
type Tracker struct {
	sessions map[ID]*tracked
	heap     deadlineHeap // Invariant: exactly the sessions that are not closing
	// shift is the sum of all extensions. Deadlines are stored less the shift at the
	// time they were set, so that Extend moves all of them at once.
	shift int64
}

// tracked is one session of a Tracker.
type tracked struct {
	id       ID
	timeout  int64
	touched  int64 // when it was last opened, touched, revived or reset
	deadline int64 // less the tracker's shift
	pos      int   // index in the heap, notInHeap while closing
}

const notInHeap = -1

// NewTracker returns a Tracker without sessions.
func NewTracker() *Tracker {
	return &Tracker{sessions: make(map[ID]*tracked)}
}

// Len is the number of open sessions, closing ones included.
func (t *Tracker) Len() int { return len(t.sessions) }

// Open starts to track id with a full timeout in nanoseconds. Opening a session that
// is known already only touches it, so a new leader may list the open sessions while
// their opening is still being applied; its timeout never changes.
func (t *Tracker) Open(id ID, timeout, now int64) {
	if id == 0 || timeout <= 0 {
		panic(fmt.Sprintf("session: cannot track %v with a timeout of %d ns: both must be positive", id, timeout))
	}
	if t.sessions[id] != nil {
		t.Touch(id, now)
		return
	}
	s := &tracked{id: id, timeout: timeout, touched: now, deadline: now + timeout - t.shift}
	t.sessions[id] = s
	t.heap.push(s)
}

// Touch gives id a full timeout from now on and reports whether the session lives.
// False means that it is unknown or closing: what touched it must be answered with
// an expiry and never acknowledged. A now older than an earlier one changes nothing.
func (t *Tracker) Touch(id ID, now int64) bool {
	s := t.sessions[id]
	if s == nil || s.pos == notInHeap {
		return false
	}
	t.renew(s, now)
	return true
}

func (t *Tracker) renew(s *tracked, now int64) {
	s.touched = max(s.touched, now)
	s.deadline = max(s.deadline, now+s.timeout-t.shift)
}

// Close forgets id, because its close has been applied. Closing an unknown session is
// harmless.
func (t *Tracker) Close(id ID) {
	s := t.sessions[id]
	if s == nil {
		return
	}
	delete(t.sessions, id)
	if s.pos != notInHeap {
		t.heap.remove(s)
	}
}

// Expired returns the sessions whose deadlines are at or before now, earliest first
// and equal ones by id; limit bounds how many, 0 = all. They are closing from now on.
// Those beyond the limit are not: a Touch still saves them.
func (t *Tracker) Expired(now int64, limit int) []ID {
	var due []ID
	for limit == 0 || len(due) < limit {
		s := t.heap.earliest()
		if s == nil || s.deadline+t.shift > now {
			break
		}
		t.heap.remove(s)
		due = append(due, s.id)
	}
	return due
}

// Revive gives a closing session a full timeout from now on, because its close will
// certainly not happen, and reports whether there was one. An owner that repeats a
// refused proposal does not need it.
func (t *Tracker) Revive(id ID, now int64) bool {
	s := t.sessions[id]
	if s == nil || s.pos != notInHeap {
		return false
	}
	t.revive(s, now)
	return true
}

// revive does not look at the old deadline: it had passed, and what Extend has added
// since was not meant for a closing session.
func (t *Tracker) revive(s *tracked, now int64) {
	s.touched = max(s.touched, now)
	s.deadline = now + s.timeout - t.shift
	t.heap.push(s)
}

// Next returns the earliest deadline, false if no session can expire. The owner that
// asks for Expired at that time is not late at all.
func (t *Tracker) Next() (deadline int64, ok bool) {
	s := t.heap.earliest()
	if s == nil {
		return 0, false
	}
	return s.deadline + t.shift, true
}

// Extend moves the deadlines of all sessions that are not closing by d nanoseconds,
// at a cost that does not depend on their number. See Stall for when.
func (t *Tracker) Extend(d int64) {
	if d < 0 {
		panic(fmt.Sprintf("session: cannot extend deadlines by %d ns: they never move back", d))
	}
	t.shift += d
}

// Reset gives every session a full timeout from now on, closing ones too: the owner
// became the leader and cannot know whom its predecessor has heard.
func (t *Tracker) Reset(now int64) {
	for _, s := range t.sessions {
		if s.pos == notInHeap {
			t.revive(s, now)
		} else {
			t.renew(s, now)
		}
	}
}

// Deadline returns when id expires if nothing touches it, false if it is unknown or
// closing.
func (t *Tracker) Deadline(id ID) (deadline int64, ok bool) {
	s := t.sessions[id]
	if s == nil || s.pos == notInHeap {
		return 0, false
	}
	return s.deadline + t.shift, true
}

// Touched returns when id was last heard of (or opened, revived or reset), false if
// it is unknown.
func (t *Tracker) Touched(id ID) (at int64, ok bool) {
	s := t.sessions[id]
	if s == nil {
		return 0, false
	}
	return s.touched, true
}
