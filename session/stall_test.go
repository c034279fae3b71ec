package session_test

import (
	"testing"

	"github.com/tenure-dev/tenure/session"
)

const ms = int64(1e6) // nanoseconds

// Goal: only a wake-up that is late by more than the threshold extends, and then by no
// less than its lateness. Method: one sleep per row, starting at 1000 ms.
func TestStallWake(t *testing.T) {
	for _, c := range []struct {
		name        string
		next        int64 // earliest deadline, 0 = none
		until, woke int64
		extend      int64
	}{
		{"on time", 0, 1100 * ms, 1100 * ms, 0},
		{"early, because of other work", 0, 1100 * ms, 1001 * ms, 0},
		{"at the threshold", 0, 1100 * ms, 1200 * ms, 0},
		{"one above the threshold", 0, 1100 * ms, 1200*ms + 1, 200*ms + 1},
		{"stopped for 20 s", 0, 1100 * ms, 21000 * ms, 20000 * ms},
		{"deadline inside the pulse", 1010 * ms, 1010 * ms, 1030 * ms, 0},
		{"late for a deadline inside the pulse", 1010 * ms, 1010 * ms, 1111 * ms, 111 * ms},
		{"deadline behind the pulse", 9000 * ms, 1100 * ms, 1100 * ms, 0},
		{"deadline already passed", 500 * ms, 1000 * ms, 1050 * ms, 0},
		{"deadline already passed, then stopped", 500 * ms, 1000 * ms, 4000 * ms, 3000 * ms},
	} {
		var s session.Stall
		if got := s.Wake(1000 * ms); got != 0 {
			t.Errorf("%s: the first Wake extends by %d", c.name, got)
		}
		if got := s.Sleep(c.next, c.next != 0); got != c.until {
			t.Errorf("%s: Sleep = %d, want %d", c.name, got, c.until)
		}
		if got := s.Wake(c.woke); got != c.extend {
			t.Errorf("%s: Wake(%d) = %d, want %d", c.name, c.woke, got, c.extend)
		}
	}
}

// Goal: a stalled owner expires nobody who would have been heard (promise P6, cases
// C025 and C121 at this level). Method: 100 sessions of 10 s that are touched each 3 s
// in virtual time; the owner stops for every length up to 60 s at every phase of the
// heartbeats, which queue up and are only read after the owner's first round.
func TestC025StallExpiresNobody(t *testing.T) {
	for length := int64(0); length <= 60000; length += 1700 {
		for phase := int64(0); phase < 3000; phase += 250 {
			if id, at := runStalled(20000+phase, length); id != 0 {
				t.Fatalf("stall of %d ms at %d ms: %v expired at %d ms", length, 20000+phase, id, at)
			}
		}
	}
}

// runStalled returns the first session that expired and when, 0 if none. All its times
// are milliseconds. The owner runs each 50 ms, except in (stallAt, stallAt+length).
func runStalled(stallAt, length int64) (session.ID, int64) {
	const sessions, timeout, beat = 100, 10000, 3000
	tr := session.NewTracker()
	var stall session.Stall
	last := make([]int64, sessions) // last heartbeat read, by session
	for i := range last {
		last[i] = int64(i) * beat / sessions
		tr.Open(session.ID(i+1), timeout*ms, last[i]*ms)
	}
	for now := int64(3000); now < stallAt+length+30000; {
		tr.Extend(stall.Wake(now * ms))
		if due := tr.Expired(now*ms, 0); len(due) > 0 {
			return due[0], now
		}
		for i := range last {
			for last[i]+beat <= now {
				last[i] += beat
				tr.Touch(session.ID(i+1), now*ms)
			}
		}
		stall.Sleep(tr.Next())
		now += 50
		if now > stallAt && now < stallAt+length {
			now = stallAt + length
		}
	}
	return 0, 0
}

// Goal: a dead session goes even though the owner stalls, later by the stall and at
// most a pulse. Method: one silent session, one stall of 20 s, a round each 10 ms.
func TestStallDelaysExpiryByItsLength(t *testing.T) {
	tr := session.NewTracker()
	var stall session.Stall
	tr.Open(1, 10000*ms, 0)
	for now := int64(0); ; {
		tr.Extend(stall.Wake(now * ms))
		if due := tr.Expired(now*ms, 0); len(due) > 0 {
			if now < 30000 || now > 30000+session.StallPulse/ms {
				t.Fatalf("expired at %d ms, want 30000 to 30100", now)
			}
			return
		}
		stall.Sleep(tr.Next())
		now += 10
		if now == 5000 {
			now += 20000
		}
	}
}
