package server

import (
	"math/bits"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tenure-dev/tenure/replica"
	"github.com/tenure-dev/tenure/store"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// metrics are the figures of one server, with a registry of their own. Every method is
// safe for concurrent use.
//
// Counting is a few atomic additions and no look-up: what a request is counted under
// are array slots, and only a scrape turns them into Prometheus' form. A scrape reads
// counters and never walks sessions, watches or the tree.
type metrics struct {
	registry *prometheus.Registry

	ops [opSlots]opMetrics

	apply, sync        durations // one entry applied; one sync of the log
	applied            sizes     // transactions per entry
	events             atomic.Int64
	slow               atomic.Int64
	behind             atomic.Int64
	expiries           atomic.Int64
	extendedNs         atomic.Int64
	proposals, barrier atomic.Int64
	refusedConns       atomic.Int64
	dropped            atomic.Int64
	authFailures       atomic.Int64
}

// figures are the gauges that only the server can tell, read once per scrape. None may
// cost more than reading a counter.
type figures struct {
	Counts  store.Counts
	Replica replica.Status
	Stats   replica.Stats
	// Members are nil on a member that does not lead.
	Members *memberFigures
	Peers   []PeerStatus
	// Connections are open sockets, Connected sessions those that are on one.
	Connections, Watches          int64
	Outstanding, OutstandingBytes int64 // requests not answered yet
	OutboxBytes                   int64 // waiting to be read by clients
	// Disks are the Pebble databases by name.
	Disks []diskFigures
}

// diskFigures are those of one Pebble database.
type diskFigures struct {
	Name                                 string // state or log
	DiskBytes, MemtableBytes, CacheBytes int64
	Compactions, Flushes                 int64
	CompactionDebtBytes, WALBytes        int64
	ReadAmplification                    int64
}

// opMetrics are the requests of one operation.
type opMetrics struct {
	latency durations
	codes   [codeSlots]atomic.Int64
}

// Slots: ZooKeeper's codes are 1 to 107 and -11, Tenure's 1000 to 1006; error codes are
// 0 to -127. Everything else shares the last slot.
const (
	ownOps     = 32
	opClose    = 128 + ownOps
	opOther    = opClose + 1
	opSlots    = opOther + 1
	codeOther  = 128
	codeSlots  = codeOther + 1
	ownOpsFrom = 1000
)

func opSlot(op wire.Op) int {
	switch {
	case op >= 0 && op < 128:
		return int(op)
	case op >= ownOpsFrom && op < ownOpsFrom+ownOps:
		return 128 + int(op-ownOpsFrom)
	case op == wire.OpCloseSession:
		return opClose
	}
	return opOther
}

// opName is the inverse of opSlot, as text.
func opName(slot int) string {
	switch {
	case slot == 0:
		return "connect" // a handshake has no code
	case slot < 128:
		return wire.Op(slot).String()
	case slot < opClose:
		return wire.Op(ownOpsFrom + slot - 128).String()
	case slot == opClose:
		return wire.OpCloseSession.String()
	}
	return "other"
}

func codeSlot(code znode.Error) int {
	if code > 0 || code <= -codeOther {
		return codeOther
	}
	return int(-code)
}

func codeName(slot int) string {
	if slot == codeOther {
		return "other"
	}
	if name := znode.Error(-slot).Name(); name != "Unknown" {
		return name
	}
	return strconv.Itoa(-slot) // each code a name of its own, or two series would collide
}

// newMetrics makes the figures of a server; read is called once per scrape.
func newMetrics(b BuildInfo, read func() figures) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&metricsCollector{m: m, read: read, build: b},
	)
	return m
}

// handler serves the scrape.
func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// observe counts one answered request, ns from decoded to its reply queued.
func (m *metrics) observe(op wire.Op, code znode.Error, ns int64) {
	o := &m.ops[opSlot(op)]
	o.latency.observe(ns)
	o.codes[codeSlot(code)].Add(1)
}

// appliedEntry counts one log entry of n transactions, applied in ns.
func (m *metrics) appliedEntry(n int, ns int64) {
	m.apply.observe(ns)
	m.applied.observe(n)
}

// synced counts one sync of the log.
func (m *metrics) synced(ns int64) { m.sync.observe(ns) }

func (m *metrics) proposed(n int)     { m.proposals.Add(int64(n)) } // transactions put into the log as leader
func (m *metrics) barriers(n int)     { m.barrier.Add(int64(n)) }   // linearizable reads' barriers
func (m *metrics) eventSent()         { m.events.Add(1) }
func (m *metrics) slowConsumer()      { m.slow.Add(1) }         // closed: its outbox was full
func (m *metrics) refusedBehind()     { m.behind.Add(1) }       // refused: the client has seen more
func (m *metrics) refusedConnection() { m.refusedConns.Add(1) } // closed: too many
func (m *metrics) droppedConnection() { m.dropped.Add(1) }      // ended before its session was closed
func (m *metrics) authFailed()        { m.authFailures.Add(1) }
func (m *metrics) expired()           { m.expiries.Add(1) }    // sessions ended by timeout
func (m *metrics) extended(ns int64)  { m.extendedNs.Add(ns) } // added to every timeout after a stall

// durations is a histogram of nanoseconds in buckets of powers of two, from 8 us to
// 17 s: what lies above is only in the count.
type durations struct {
	buckets  [durationBuckets]atomic.Int64
	sumNs    atomic.Int64
	extremes extremes
}

const (
	durationFrom    = 13 // the first bucket ends at 2^13 ns
	durationBuckets = 23 // the last one has no end
)

func (d *durations) observe(ns int64) {
	ns = max(ns, 1)
	d.buckets[min(max(bits.Len64(uint64(ns-1))-durationFrom, 0), durationBuckets-1)].Add(1)
	d.sumNs.Add(ns)
	d.extremes.observe(ns)
}

// collect sends the histogram, unless it is empty.
func (d *durations) collect(ch chan<- prometheus.Metric, desc *prometheus.Desc, labels ...string) {
	count, bounds := cumulate(d.buckets[:], func(i int) float64 {
		return float64(uint64(1)<<(durationFrom+i)) / 1e9
	})
	if count > 0 {
		ch <- prometheus.MustNewConstHistogram(desc, count, float64(d.sumNs.Load())/1e9, bounds, labels...)
	}
}

// sizes is a histogram of counts in buckets of powers of two, from 1 to 65 536.
type sizes struct {
	buckets  [18]atomic.Int64
	sum      atomic.Int64
	extremes extremes
}

func (s *sizes) observe(n int) {
	s.buckets[min(bits.Len(uint(max(n-1, 0))), len(s.buckets)-1)].Add(1)
	s.sum.Add(int64(n))
	s.extremes.observe(int64(n))
}

func (s *sizes) collect(ch chan<- prometheus.Metric, desc *prometheus.Desc) {
	count, bounds := cumulate(s.buckets[:], func(i int) float64 { return float64(uint64(1) << i) })
	ch <- prometheus.MustNewConstHistogram(desc, count, float64(s.sum.Load()), bounds)
}

// cumulate sums buckets the way Prometheus wants them; the last one has no bound.
func cumulate(buckets []atomic.Int64, bound func(i int) float64) (count uint64, bounds map[float64]uint64) {
	bounds = make(map[float64]uint64, len(buckets)-1)
	for i := range buckets {
		count += uint64(buckets[i].Load())
		if i < len(buckets)-1 {
			bounds[bound(i)] = count
		}
	}
	return count, bounds
}
