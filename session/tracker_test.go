package session_test

import (
	"slices"
	"testing"

	"github.com/tenure-dev/tenure/session"
)

func ids(n ...session.ID) []session.ID { return n }

// Goal: deadlines are exact: touch + timeout, neither one nanosecond early nor late.
// Method: ask just before, at and after them.
func TestExpiredAtExactlyTheDeadline(t *testing.T) {
	tr := session.NewTracker()
	tr.Open(1, 100, 1000)
	if due := tr.Expired(1099, 0); due != nil {
		t.Fatalf("expired %v at 1099, deadline 1100", due)
	}
	if !tr.Touch(1, 1099) {
		t.Fatal("Touch refused a live session")
	}
	if due := tr.Expired(1198, 0); due != nil {
		t.Fatalf("expired %v at 1198, deadline 1199", due)
	}
	if next, ok := tr.Next(); !ok || next != 1199 {
		t.Fatalf("Next = %d, %v, want 1199", next, ok)
	}
	if due := tr.Expired(1199, 0); !slices.Equal(due, ids(1)) {
		t.Fatalf("expired %v at 1199, want [1]", due)
	}
	if due := tr.Expired(5000, 0); due != nil {
		t.Fatalf("expired %v a second time", due)
	}
}

// Goal: due sessions come by deadline, then by id, and the limit leaves the later ones
// live. Method: five sessions, three equal deadlines, limit 2.
func TestExpiredOrderAndLimit(t *testing.T) {
	tr := session.NewTracker()
	tr.Open(5, 10, 0)
	tr.Open(4, 30, 0)
	tr.Open(3, 20, 0)
	tr.Open(2, 10, 10)
	tr.Open(1, 20, 0)
	if due := tr.Expired(20, 2); !slices.Equal(due, ids(5, 1)) {
		t.Fatalf("first two: %v", due)
	}
	if !tr.Touch(2, 20) {
		t.Fatal("a session beyond the limit was not saved by Touch")
	}
	if due := tr.Expired(30, 0); !slices.Equal(due, ids(3, 2, 4)) {
		t.Fatalf("the rest: %v", due)
	}
}

// Goal: what is closing stays closing until Revive, Reset or Close. Method: expire,
// then try each.
func TestClosingIsFinal(t *testing.T) {
	tr := session.NewTracker()
	for id := session.ID(1); id <= 3; id++ {
		tr.Open(id, 10, 0)
	}
	tr.Open(4, 1000, 0)
	tr.Expired(10, 0)
	if tr.Touch(1, 11) || tr.Touch(9, 11) {
		t.Fatal("Touch accepted a closing or an unknown session")
	}
	tr.Open(1, 10, 11)
	if _, ok := tr.Deadline(1); ok {
		t.Fatal("Open revived a closing session")
	}
	if tr.Revive(4, 11) || tr.Revive(9, 11) || !tr.Revive(1, 11) {
		t.Fatal("Revive must accept exactly closing sessions")
	}
	if d, ok := tr.Deadline(1); !ok || d != 21 {
		t.Fatalf("revived until %d, %v, want 21", d, ok)
	}
	tr.Close(2)
	tr.Close(2)
	if tr.Len() != 3 {
		t.Fatalf("Len = %d, want 3", tr.Len())
	}
	tr.Reset(15)
	if due := tr.Expired(24, 0); due != nil {
		t.Fatalf("expired %v before a full timeout after Reset", due)
	}
	if due := tr.Expired(25, 0); !slices.Equal(due, ids(1, 3)) {
		t.Fatalf("expired %v, want [1 3]", due)
	}
}

// Goal: nothing moves a deadline back. Method: older times, a shorter timeout on a
// second Open, a Reset at an earlier time, a touch that an extension has overtaken.
func TestDeadlineNeverMovesBack(t *testing.T) {
	tr := session.NewTracker()
	tr.Open(1, 100, 50)
	tr.Touch(1, 20)
	tr.Open(1, 10, 60)
	if d, _ := tr.Deadline(1); d != 160 {
		t.Fatalf("deadline %d after a second Open at 60, want 160", d)
	}
	tr.Extend(1000)
	tr.Touch(1, 70)
	tr.Reset(80)
	if d, _ := tr.Deadline(1); d != 1160 {
		t.Fatalf("deadline %d, want 1160", d)
	}
	if at, ok := tr.Touched(1); !ok || at != 80 {
		t.Fatalf("touched at %d, %v, want 80", at, ok)
	}
	tr.Open(2, 100, 90)
	if d, _ := tr.Deadline(2); d != 190 {
		t.Fatalf("a session opened after an extension ends at %d, want 190", d)
	}
}

// Goal: calls that can only be bugs are not taken silently. Method: each must panic.
func TestImpossibleArgumentsPanic(t *testing.T) {
	for name, call := range map[string]func(*session.Tracker){
		"id 0":               func(tr *session.Tracker) { tr.Open(0, 10, 0) },
		"timeout 0":          func(tr *session.Tracker) { tr.Open(1, 0, 0) },
		"negative extension": func(tr *session.Tracker) { tr.Extend(-1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call(session.NewTracker())
		}()
	}
}
