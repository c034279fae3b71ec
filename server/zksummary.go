package server

import "github.com/tenure-dev/tenure/wire"

// zkSummary is a distribution in ZooKeeper's terms, in whole units: milliseconds, or
// things counted. The zero value has seen nothing.
type zkSummary struct {
	count, sum, least, largest int64
	buckets                    []zkBucket // ascending
}

// zkBucket holds how many values lie above the bucket before and up to bound.
type zkBucket struct {
	bound float64
	count int64
}

// zkQuantiles are those that ZooKeeper shows.
var zkQuantiles = []struct {
	prefix string
	share  float64
}{{"p50_", 0.5}, {"p95_", 0.95}, {"p99_", 0.99}, {"p999_", 0.999}}

func (s *zkSummary) avg() float64 {
	if s.count == 0 {
		return 0
	}
	return float64(s.sum) / float64(s.count)
}

// quantile is interpolated within the bucket that it falls into, and lies between least
// and largest.
func (s *zkSummary) quantile(share float64) int64 {
	rank, below, from := share*float64(s.count), 0.0, 0.0
	for _, b := range s.buckets {
		if n := float64(b.count); n > 0 && below+n >= rank {
			at := from + (b.bound-from)*(rank-below)/n
			return min(max(int64(at), s.least), s.largest)
		}
		below, from = below+float64(b.count), b.bound
	}
	return s.largest
}

// summary is the histogram in milliseconds.
func (d *durations) summary() zkSummary { return summaryMs([]*durations{d}) }

// summaryMs adds histograms up, in milliseconds.
func summaryMs(list []*durations) (s zkSummary) {
	s.buckets = make([]zkBucket, durationBuckets)
	first, sumNs := true, int64(0)
	for _, d := range list {
		for i := range d.buckets {
			n := d.buckets[i].Load()
			s.buckets[i].count += n
			s.count += n
		}
		sumNs += d.sumNs.Load()
		if least, largest, ok := d.extremes.read(); ok {
			if first || least/1e6 < s.least {
				s.least = least / 1e6
			}
			s.largest = max(s.largest, largest/1e6)
			first = false
		}
	}
	for i := range s.buckets {
		s.buckets[i].bound = float64(uint64(1)<<(durationFrom+i)) / 1e6
	}
	s.sum = sumNs / 1e6
	return s
}

// summary is the histogram without its buckets.
func (s *sizes) summary() (r zkSummary) {
	for i := range s.buckets {
		r.count += s.buckets[i].Load()
	}
	r.sum = s.sum.Load()
	if least, largest, ok := s.extremes.read(); ok {
		r.least, r.largest = least, largest
	}
	return r
}

// updateSlots are those of the requests that need a transaction. Handshakes count as
// such, as most open a session.
var updateSlots = func() (is [opSlots]bool) {
	is[opSlot(0)] = true
	for op := wire.OpCloseSession; op < ownOpsFrom+ownOps; op++ {
		if isUpdate(op) {
			is[opSlot(op)] = true
		}
	}
	return is
}()

// latencies are those of reads and of updates.
func (m *metrics) latencies() (reads, updates zkSummary) {
	var r, u []*durations
	for slot := range m.ops {
		if updateSlots[slot] {
			u = append(u, &m.ops[slot].latency)
		} else {
			r = append(r, &m.ops[slot].latency)
		}
	}
	return summaryMs(r), summaryMs(u)
}

// answered is how many requests were answered and the time that took.
func (m *metrics) answered() (all latencySum) {
	for slot := range m.ops {
		all.count += m.ops[slot].count()
		all.ns += m.ops[slot].latency.sumNs.Load()
	}
	return all
}

// count is how many requests of the operation were answered.
func (o *opMetrics) count() (n int64) {
	for i := range o.latency.buckets {
		n += o.latency.buckets[i].Load()
	}
	return n
}
