package session

// Limits of Stall, in nanoseconds.
const (
	// StallPulse is the longest time between two wake-ups of a Stall's owner. Without
	// it a pause that begins and ends inside a long sleep would go unnoticed.
	StallPulse int64 = 100e6
	// StallThreshold is how late a wake-up must be to count as a stall. Shorter
	// delays are the everyday noise of schedulers and collectors: they do not add up,
	// because each heartbeat is delayed by one of them at most, and the shortest
	// timeout (1 s, with a heartbeat each third of it) has room for that. A pause of
	// StallPulse + StallThreshold is the longest that can go unnoticed.
	StallThreshold int64 = 100e6
)

// Stall finds out that its owner did not run: SIGSTOP, a starved CPU, a disk that
// blocked it. Heartbeats that came meanwhile wait unread, so nobody may be expired
// for silence before all deadlines were extended by the stall.
//
// The owner's loop, with times of the Tracker's clock:
//
//	tracker.Extend(stall.Wake(now()))
//	close whom tracker.Expired(now(), limit) names
//	sleep until stall.Sleep(tracker.Next())
//
// Work between Wake and Sleep that can block (an append to the log, a lock) counts:
// the pulse is taken from Wake to Wake. Not safe for concurrent use; the zero value
// is ready and the first Wake returns 0.
type Stall struct {
	armed bool
	woken int64 // the last Wake
	until int64 // when the next Wake is expected
}

// Sleep notes and returns when the owner should wake: at next (if ok; the pair that
// Tracker.Next returns), but not later than StallPulse after the last Wake. A time
// that has passed means at once.
func (s *Stall) Sleep(next int64, ok bool) (until int64) {
	s.until = s.woken + StallPulse
	if ok {
		s.until = min(s.until, max(next, s.woken))
	}
	s.armed = true
	return s.until
}

// Wake tells that the owner runs again and returns by how much to extend all
// deadlines. If it woke more than StallThreshold after the time that Sleep returned,
// that is the whole time since the last Wake, as the stall may have begun right after
// it: never less than the excess, and by at most a pulse more. Otherwise it is 0.
func (s *Stall) Wake(now int64) (extend int64) {
	if s.armed && now-s.until > StallThreshold {
		extend = now - s.woken
	}
	s.woken = now
	return extend
}
