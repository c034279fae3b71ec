package peer

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/replica"
)

// Stats is what is known about one peer. Counters are since it became a member.
type Stats struct {
	Connected      bool          // as the Receiver was told
	RTT            time.Duration // of pings, smoothed; 0: none was answered yet
	QueuedBytes    int           // frames that wait or are being written, both classes
	SentFrames     uint64
	SentBytes      uint64 // of frames
	ReceivedFrames uint64
	ReceivedBytes  uint64 // of frames
	Dropped        uint64 // frames that Send refused, and those queued when a link broke
	Reconnects     uint64 // links made by this member after the first
	LastError      string // why the last attempt failed or the last link broke; "" if none did
	Version        string // of the peer's program, as it says
	Features       uint64 // as it says
}

// counters is what a peer's goroutines count.
type counters struct {
	sentFrames, sentBytes, receivedFrames, receivedBytes, dropped, links atomic.Uint64

	rtt atomic.Int64 // nanoseconds, smoothed
	mu  struct {
		sync.Mutex
		lastError, version string
		features           uint64
	}
}

// rttShare is the weight of a new measurement, as TCP has it.
const rttShare = 8

// roundTrip counts a ping's time; only one goroutine does.
func (c *counters) roundTrip(d time.Duration) {
	old := c.rtt.Load()
	if old == 0 {
		c.rtt.Store(int64(d))
		return
	}
	c.rtt.Store(old + (int64(d)-old)/rttShare)
}

func (c *counters) failed(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	c.mu.lastError = err.Error()
	c.mu.Unlock()
}

func (c *counters) about(version string, features uint64) {
	c.mu.Lock()
	c.mu.version, c.mu.features = version, features
	c.mu.Unlock()
}

// Stats returns what is known about each peer.
func (t *Transport) Stats() map[uint64]Stats {
	all := map[uint64]Stats{}
	for id, p := range *t.peers.Load() {
		c := &p.stats
		s := Stats{
			Connected: p.connected.Load(), RTT: time.Duration(c.rtt.Load()),
			SentFrames: c.sentFrames.Load(), SentBytes: c.sentBytes.Load(),
			ReceivedFrames: c.receivedFrames.Load(), ReceivedBytes: c.receivedBytes.Load(),
			Dropped: c.dropped.Load(), Reconnects: max(c.links.Load(), 1) - 1,
		}
		for class := range replica.Classes {
			s.QueuedBytes += p.queues[class].size()
		}
		c.mu.Lock()
		s.LastError, s.Version, s.Features = c.mu.lastError, c.mu.version, c.mu.features
		c.mu.Unlock()
		all[id] = s
	}
	return all
}
