package server

import (
	"sync"
	"sync/atomic"

	"github.com/tenure-dev/tenure/wire"
)

// traffic is what the connections of all doors have carried, in ZooKeeper's terms: a
// packet is one message. Safe for concurrent use; the zero value is ready.
type traffic struct {
	received, sent atomic.Int64 // packets, since the start or the last reset

	receivedBytes, sentBytes, eventBytes atomic.Int64 // since the start

	lastSize atomic.Int64 // of the message sent last
	sizes    extremes
	latency  extremes // of requests, in nanoseconds
	before   atomic.Pointer[latencySum]
}

// latencySum is how many requests were answered and how long that took them together.
type latencySum struct{ count, ns int64 }

// reset begins all but the counts of bytes anew. answered is what was before: those
// figures are kept elsewhere and never go back.
func (t *traffic) reset(answered latencySum) {
	t.received.Store(0)
	t.sent.Store(0)
	t.lastSize.Store(0)
	t.sizes.reset()
	t.latency.reset()
	t.before.Store(&answered)
}

// since is what answered has beyond the last reset.
func (t *traffic) since(answered latencySum) latencySum {
	if b := t.before.Load(); b != nil {
		answered.count -= b.count
		answered.ns -= b.ns
	}
	return answered
}

// extremes are the least and the largest of values that are never negative. Safe for
// concurrent use. A value that is neither costs two loads.
type extremes struct {
	least, largest atomic.Int64 // each plus one, so that 0 means none
}

func (e *extremes) observe(v int64) {
	v++
	for old := e.largest.Load(); v > old && !e.largest.CompareAndSwap(old, v); {
		old = e.largest.Load()
	}
	for old := e.least.Load(); (v < old || old == 0) && !e.least.CompareAndSwap(old, v); {
		old = e.least.Load()
	}
}

func (e *extremes) reset() {
	e.least.Store(0)
	e.largest.Store(0)
}

// read returns both, or ok = false if there was no value.
func (e *extremes) read() (least, largest int64, ok bool) {
	least, largest = e.least.Load()-1, e.largest.Load()-1
	return least, largest, least >= 0 && largest >= 0
}

// connStats are the figures of one connection as ZooKeeper's cons shows them. Safe for
// concurrent use; the zero value is ready.
type connStats struct {
	mu sync.Mutex
	connFigures
}

// connFigures are those figures at one moment. Times are nanoseconds of the server's
// clock.
type connFigures struct {
	received, sent int64 // packets

	answered int64   // requests; what is below is 0 before the first
	lastOp   wire.Op // 0 = the handshake
	// lastXid is that of the last request that chose one: not of heartbeats and addauth.
	lastXid                     int32
	lastZxid                    int64
	lastAt                      int64
	lastNs, minNs, maxNs, sumNs int64
}

// xid and zxid are -1 before the first answer.
func (f *connFigures) xid() int64 {
	if f.answered == 0 {
		return -1
	}
	return int64(f.lastXid)
}

func (f *connFigures) zxid() int64 {
	if f.answered == 0 {
		return -1
	}
	return f.lastZxid
}

func (f *connFigures) avgNs() int64 { return f.sumNs / max(f.answered, 1) }

func (s *connStats) figures() connFigures {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connFigures
}

func (s *connStats) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connFigures = connFigures{}
}

// countReceived counts a message of n bytes that came in.
func (c *conn) countReceived(n int) {
	c.srv.traffic.received.Add(1)
	c.srv.traffic.receivedBytes.Add(int64(n))
	c.stats.mu.Lock()
	c.stats.received++
	c.stats.mu.Unlock()
}

// countSent counts a message of n bytes that was put into the outbox.
func (c *conn) countSent(n int) {
	t := &c.srv.traffic
	t.sent.Add(1)
	t.sentBytes.Add(int64(n))
	t.lastSize.Store(int64(n))
	t.sizes.observe(int64(n))
	c.stats.mu.Lock()
	c.stats.sent++
	c.stats.mu.Unlock()
}

// countAnswered counts a request that was answered at now.
func (c *conn) countAnswered(k *call, now int64) {
	ns := now - k.start
	c.srv.traffic.latency.observe(max(ns, 0))
	zxid := c.srv.store.LastZxid()
	s := &c.stats
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answered == 0 {
		s.lastXid = -1
		s.minNs = ns
	}
	s.answered++
	s.lastOp, s.lastZxid, s.lastAt, s.lastNs = k.req.Op, zxid, now, ns
	if k.req.Xid >= 0 {
		s.lastXid = k.req.Xid
	}
	s.minNs, s.maxNs = min(s.minNs, ns), max(s.maxNs, ns)
	s.sumNs += ns
}
