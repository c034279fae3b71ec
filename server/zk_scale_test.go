package server

import (
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"testing"
	"time"
)

// memoryOf is what is in use after a collection, live heap and stacks.
func memoryOf() int64 {
	heap := heapBytes()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return heap + int64(m.StackInuse)
}

// Goal: a connection that has nothing to do costs little: one goroutine, and 6 KiB of live
// heap and stack together with the client's end, which is here, too; what has ended costs
// nothing. The race detector doubles it, so the bound is what that leaves room for, and
// one more buffer of 4 KiB breaks it there. Method: a thousand sessions through ZooKeeper's door, memory
// and goroutines before, while they are idle, and afterwards.
func TestZooKeeperIdleConnectionsCostLittle(t *testing.T) {
	const connections, most = 1000, 13 << 10
	s := startServer(t, Config{})
	openAs(t, s, zooKeeper, 0).must("/a", "", persistent)
	hello := rawStr(nil, string(handshake(0, 40_000, 0, make([]byte, 16), nil)))
	goroutines, memory := runtime.NumGoroutine(), memoryOf()
	list := make([]net.Conn, connections)
	each(connections, 50, func(i int) {
		c, err := net.Dial("tcp", s.ZKAddr().String())
		if err != nil {
			t.Error(err)
			return
		}
		list[i] = c
		c.SetDeadline(time.Now().Add(30 * time.Second))
		c.Write(hello)
		reply := make([]byte, 40)
		if _, err := io.ReadFull(c, reply); err != nil || binary.BigEndian.Uint32(reply) != 36 {
			t.Errorf("handshake: %x %v", reply, err)
		}
	})
	if t.Failed() {
		return
	}
	var cost int64
	waitFor(t, "they are idle", 20*time.Second, func() bool {
		cost = (memoryOf() - memory) / connections
		return runtime.NumGoroutine() <= goroutines+connections && cost <= most
	})
	t.Logf("%d bytes for each idle connection and its session", cost)
	for _, c := range list {
		c.Close()
	}
	waitFor(t, "their goroutines end", 20*time.Second, func() bool { return runtime.NumGoroutine() <= goroutines })
	waitFor(t, "they are forgotten", 20*time.Second, func() bool { return len(s.conns.all()) == 1 })
	if held, n := s.outstanding.now(); held != 0 || n != 0 || s.outboxBytes.Load() != 0 {
		t.Errorf("%d bytes of %d requests are held, and %d in outboxes", held, n, s.outboxBytes.Load())
	}
}
