package bench

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// Latencies are counted in nanoseconds with three significant digits, from 64 ns
	// up to ten minutes; what is above counts as that, and its exact value as the
	// maximum.
	latencyMin = int64(100 * time.Nanosecond)
	latencyMax = int64(10 * time.Minute)
	// shardsMax bounds the memory of a recorder: a shard has 200 kB per part.
	shardsMax = 16
)

// histogram is an HDR histogram that loses no maximum. It is not safe for concurrent
// use.
type histogram struct {
	h   *hdrhistogram.Histogram
	max int64
}

func newHistogram() *histogram {
	return &histogram{h: hdrhistogram.New(latencyMin, latencyMax, 3)}
}

// record counts one latency. A clock that went backwards counts as 0.
func (h *histogram) record(ns int64) {
	ns = max(ns, 0)
	h.max = max(h.max, ns)
	if err := h.h.RecordValue(min(ns, latencyMax)); err != nil {
		panic(err) // in range by construction
	}
}

// merge adds all of from.
func (h *histogram) merge(from *histogram) {
	h.h.Merge(from.h)
	h.max = max(h.max, from.max)
}

func (h *histogram) reset() {
	h.h.Reset()
	h.max = 0
}

func (h *histogram) count() int64 { return h.h.TotalCount() }

// curve are the percentiles that a report keeps of each distribution.
var curve = []float64{0, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999, 100}

// Latency is a distribution of latencies in microseconds.
type Latency struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean_us"`
	P50   float64 `json:"p50_us"`
	P90   float64 `json:"p90_us"`
	P99   float64 `json:"p99_us"`
	P999  float64 `json:"p999_us"`
	Max   float64 `json:"max_us"` // exact
	// Curve has the latencies at further percentiles.
	Curve []Percentile `json:"curve"`
}

// Percentile is one point of a distribution: Percent of all took at most Us.
type Percentile struct {
	Percent float64 `json:"percent"`
	Us      float64 `json:"us"`
}

// latency describes h.
func (h *histogram) latency() Latency {
	l := Latency{Count: h.count()}
	if l.Count == 0 {
		return l
	}
	at := func(percent float64) float64 {
		if percent >= 100 {
			return float64(h.max) / 1e3
		}
		return float64(min(h.h.ValueAtPercentile(percent), h.max)) / 1e3
	}
	l.Mean, l.P50, l.P90, l.P99, l.P999, l.Max = h.h.Mean()/1e3, at(50), at(90), at(99), at(99.9), at(100)
	for _, percent := range curve {
		l.Curve = append(l.Curve, Percentile{percent, at(percent)})
	}
	return l
}

// shard is what the workers of some connections record into.
type shard struct {
	mu     sync.Mutex
	recent []*histogram // per part, since the last collect
	errors map[string]int64
	first  map[string]string // one error per kind in full
}

// recorder gathers the latencies of one phase. Workers record into shards, which
// contend little; collect moves what they have into the totals. record and fail may
// be called by all workers at once, the rest by one goroutine.
type recorder struct {
	parts  []string // what is told apart within a workload, such as reads and writes
	shards []*shard

	total    []*histogram // per part
	interval *histogram   // all parts, of the last collect
	spare    []*histogram
	errors   int64
}

func newRecorder(parts []string, connections int) *recorder {
	r := &recorder{parts: parts, interval: newHistogram()}
	for range parts {
		r.total = append(r.total, newHistogram())
		r.spare = append(r.spare, newHistogram())
	}
	for range min(connections, shardsMax) {
		s := &shard{errors: map[string]int64{}, first: map[string]string{}}
		for range parts {
			s.recent = append(s.recent, newHistogram())
		}
		r.shards = append(r.shards, s)
	}
	return r
}

// of returns the shard of a connection.
func (r *recorder) of(connection int) *shard { return r.shards[connection%len(r.shards)] }

func (s *shard) record(part int, latency time.Duration) {
	s.mu.Lock()
	s.recent[part].record(int64(latency))
	s.mu.Unlock()
}

func (s *shard) fail(kind string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errors[kind]++
	if _, ok := s.first[kind]; !ok {
		s.first[kind] = err.Error()
	}
}

// collect moves what was recorded since the last call into the totals and into
// r.interval. The shards are blocked only while their histograms are exchanged.
func (r *recorder) collect() {
	r.interval.reset()
	r.errors = 0
	for _, s := range r.shards {
		s.mu.Lock()
		s.recent, r.spare = r.spare, s.recent
		for _, n := range s.errors {
			r.errors += n
		}
		s.mu.Unlock()
		for i, h := range r.spare {
			r.total[i].merge(h)
			r.interval.merge(h)
			h.reset()
		}
	}
}

// kinds returns the errors by kind; call it when the workers are done.
func (r *recorder) kinds() (counts map[string]int64, first map[string]string) {
	counts, first = map[string]int64{}, map[string]string{}
	for _, s := range r.shards {
		for kind, n := range s.errors {
			counts[kind] += n
			first[kind] = s.first[kind]
		}
	}
	return counts, first
}

// all returns the distribution of all parts together.
func (r *recorder) all() *histogram {
	sum := newHistogram()
	for _, h := range r.total {
		sum.merge(h)
	}
	return sum
}
