package server

import "sync"

// syncTimes are the syncs of the log within the last minute, by seconds. Safe for
// concurrent use; the zero value is ready.
type syncTimes struct {
	mu      sync.Mutex
	seconds [60]struct{ second, count, sum, max int64 }
}

// observe counts a sync that ended at now and took ns.
func (t *syncTimes) observe(now, ns int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	second := now / 1e9
	s := &t.seconds[second%int64(len(t.seconds))]
	if s.second != second || s.count == 0 {
		s.second, s.count, s.sum, s.max = second, 0, 0, 0
	}
	s.count++
	s.sum += ns
	s.max = max(s.max, ns)
}

// lastMinute returns mean and maximum in nanoseconds, 0 where there was no sync.
func (t *syncTimes) lastMinute(now int64) (mean, most int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var count, sum int64
	for i := range t.seconds {
		if s := &t.seconds[i]; now/1e9-s.second < int64(len(t.seconds)) {
			count += s.count
			sum += s.sum
			most = max(most, s.max)
		}
	}
	return sum / max(count, 1), most
}
