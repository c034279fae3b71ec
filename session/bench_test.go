package session_test

import (
	"testing"

	"github.com/tenure-dev/tenure/session"
)

const benchSessions = 100_000

func manySessions() *session.Tracker {
	tr := session.NewTracker()
	for id := session.ID(1); id <= benchSessions; id++ {
		tr.Open(id, 10_000*ms, int64(id)*ms/10)
	}
	return tr
}

func BenchmarkTouch(b *testing.B) {
	tr, now, id := manySessions(), 10_000*ms, session.ID(0)
	b.ReportAllocs()
	for b.Loop() {
		id = id*7919%benchSessions + 1
		now += 100
		tr.Touch(id, now)
	}
}

// BenchmarkSteadyState is what the owner pays per heartbeat in all: 100,000 sessions
// that beat each 3 s, and a look for expired ones each 10 ms.
func BenchmarkSteadyState(b *testing.B) {
	tr, now := manySessions(), 10_000*ms
	id, asked := session.ID(0), now
	b.ReportAllocs()
	for b.Loop() {
		id = id%benchSessions + 1
		now += 3000 * ms / benchSessions
		tr.Touch(id, now)
		if now-asked >= 10*ms {
			asked = now
			if due := tr.Expired(now, 0); due != nil {
				b.Fatalf("%v expired", due)
			}
			tr.Next()
		}
	}
}

// BenchmarkExpire is the cost per expired session when all go at once.
func BenchmarkExpire(b *testing.B) {
	tr, now := manySessions(), 100_000*ms
	for b.Loop() {
		due := tr.Expired(now, 1)
		if due == nil {
			b.StopTimer()
			tr.Reset(now)
			now += 20_000 * ms
			b.StartTimer()
		}
	}
}
