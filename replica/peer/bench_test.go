package peer

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/replica"
)

// BenchmarkFrames sends frames one way as fast as a short queue takes them, so that what is
// measured is the way behind it.
func BenchmarkFrames(b *testing.B) {
	ca := newAuthority(b)
	for _, size := range []int{100, 1000, 64 << 10} {
		for name, files := range map[string]*TLS{"plain": nil, "tls": ca.member(b, hostOf("127.0.0.1"))} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				from, to := newMember(b, 1, func(c *Config) {
					c.TLS, c.BulkQueueMax, c.BulkFrameMax = files, 1<<20, 1<<20
				}), newMember(b, 2, func(c *Config) { c.TLS = files })
				var arrived atomic.Int64
				to.forget = true
				to.onFrame = func(uint64, replica.Class, []byte) { arrived.Add(1) }
				serve(from, to)
				waitWhole(b, from, to)
				frame := make([]byte, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					for !from.Send(2, replica.Bulk, frame) {
						<-time.After(100 * time.Microsecond)
					}
				}
				sent := int64(from.Stats()[2].SentFrames)
				waitFor(b, "all arrive", func() bool {
					sent = int64(from.Stats()[2].SentFrames)
					return from.Stats()[2].QueuedBytes == 0 && arrived.Load() == sent
				})
			})
		}
	}
}

// BenchmarkRoundTrip sends a control frame and waits for the answer.
func BenchmarkRoundTrip(b *testing.B) {
	ca := newAuthority(b)
	for name, files := range map[string]*TLS{"plain": nil, "tls": ca.member(b, hostOf("127.0.0.1"))} {
		b.Run(name, func(b *testing.B) {
			from, to := newMember(b, 1, func(c *Config) { c.TLS = files }), newMember(b, 2, func(c *Config) { c.TLS = files })
			back := make(chan struct{}, 1)
			from.forget, to.forget = true, true
			from.onFrame = func(uint64, replica.Class, []byte) { back <- struct{}{} }
			to.onFrame = func(uint64, replica.Class, []byte) { to.Send(1, replica.Control, []byte("back")) }
			serve(from, to)
			waitWhole(b, from, to)
			b.ReportAllocs()
			for b.Loop() {
				from.Send(2, replica.Control, []byte("there"))
				<-back
			}
		})
	}
}
