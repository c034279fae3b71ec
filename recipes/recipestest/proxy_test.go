package recipestest

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// onWires runs test behind a proxy on both protocols.
func onWires(t *testing.T, test func(t *testing.T, p Protocol, s *wireServer, x *Proxy)) {
	for p, name := range map[Protocol]string{ZooKeeperWire: "zookeeper", TenureWire: "tenure"} {
		t.Run(name, func(t *testing.T) {
			s := startWireServer(t, p)
			test(t, p, s, NewProxy(t, s.addr, p))
		})
	}
}

// allKinds are those that a single request can be.
var allKinds = []OpKind{Create, Set, Delete, Multi, Get, Children, Exists, Renew, Sync}

// Goal: CutAfterCommit drops the answer of that request and all behind it, after it was
// performed; earlier answers pass. Method: each kind as the middle one of three
// pipelined requests.
func TestProxyCutAfterCommit(t *testing.T) {
	onWires(t, func(t *testing.T, p Protocol, s *wireServer, x *Proxy) {
		for i, kind := range allKinds {
			xid := int32(10 * (i + 1))
			c := openWire(t, p, x.Addr())
			done := x.CutAfterCommit(kind)
			c.send(p, 0, xid)
			c.send(p, kind, xid+1)
			c.send(p, 0, xid+2)
			c.replies(xid)
			c.lost()
			happens(t, fmt.Sprint("cut of kind ", kind), done)
			if !s.did(xid + 1) {
				t.Errorf("kind %d: the request was not performed", kind)
			}
		}
	})
}

// Goal: CutBeforeSend keeps the request from the server, and what was before it not.
// Method: as above, but the first is answered before the second is sent; the last kind is
// armed as AnyWrite.
func TestProxyCutBeforeSend(t *testing.T) {
	onWires(t, func(t *testing.T, p Protocol, s *wireServer, x *Proxy) {
		for i, kind := range append(allKinds, Delete) {
			xid := int32(10 * (i + 1))
			c := openWire(t, p, x.Addr())
			armed := kind
			if i == len(allKinds) {
				armed = AnyWrite
			}
			done := x.CutBeforeSend(armed)
			c.send(p, 0, xid)
			c.replies(xid)
			c.send(p, kind, xid+1)
			c.lost()
			happens(t, fmt.Sprint("cut of kind ", kind), done)
			again := openWire(t, p, x.Addr()) // what had passed would be there by now
			again.send(p, kind, xid+3)
			again.replies(xid + 3)
			if s.did(xid+1) || !s.did(xid) {
				t.Errorf("kind %d: performed %t, the one before it %t", kind, s.did(xid+1), s.did(xid))
			}
		}
	})
}

// Goal: Hold lets the request be performed and holds its answer and those behind it until
// release, then all come in order. Method: pipelined requests; all are performed while
// nothing comes.
func TestProxyHold(t *testing.T) {
	onWires(t, func(t *testing.T, p Protocol, s *wireServer, x *Proxy) {
		c := openWire(t, p, x.Addr())
		held, release := x.Hold(Set)
		c.send(p, Get, 1)
		c.send(p, Set, 2)
		c.send(p, Set, 3)
		c.replies(1)
		happens(t, "hold", held)
		becomes(t, "request behind the held one performed", func() bool { return s.did(3) })
		c.silent()
		release()
		release()
		c.replies(2, 3)
	})
}

// Goal: a hold that is released before its request came does nothing.
// Method: release, then the request, whose answer comes.
func TestProxyReleaseDisarms(t *testing.T) {
	onWires(t, func(t *testing.T, p Protocol, _ *wireServer, x *Proxy) {
		held, release := x.Hold(Set)
		release()
		c := openWire(t, p, x.Addr())
		c.send(p, Set, 1)
		c.replies(1)
		select {
		case <-held:
			t.Error("held though it was released before")
		default:
		}
	})
}

// Goal: what was armed can be taken back, also if its request is on its way. Method: a fault that
// waits for an answer, then two for later requests; the connection is lost, and the next one is not.
func TestProxyDisarm(t *testing.T) {
	onWires(t, func(t *testing.T, p Protocol, s *wireServer, x *Proxy) {
		x.CutAfterCommit(Set)
		c := openWire(t, p, x.Addr())
		s.setMute(true)
		c.send(p, Set, 1)
		becomes(t, "request performed", func() bool { return s.did(1) })
		x.CutBeforeSend(Set)
		x.Hold(Set)
		x.Disarm()
		x.Break()
		c.lost()
		s.setMute(false)
		c = openWire(t, p, x.Addr())
		c.send(p, Set, 2)
		c.replies(2)
	})
}

// Goal: several faults fire in the order of arming, one per request, also where one is
// armed for AnyWrite. Method: hold, cut and hold; one request each.
func TestProxyFaultsFireInOrder(t *testing.T) {
	onWires(t, func(t *testing.T, p Protocol, s *wireServer, x *Proxy) {
		first, release := x.Hold(Create)
		second := x.CutAfterCommit(AnyWrite)
		third, releaseThird := x.Hold(Create)
		defer releaseThird()
		c := openWire(t, p, x.Addr())
		c.send(p, Create, 1)
		happens(t, "first hold", first)
		c.send(p, Create, 2)
		becomes(t, "second request performed", func() bool { return s.did(2) })
		select {
		case <-second:
			t.Fatal("the second fault happened though its answer is behind a held one")
		default:
		}
		release()
		c.replies(1)
		c.lost()
		happens(t, "cut", second)
		again := openWire(t, p, x.Addr())
		again.send(p, Create, 3)
		happens(t, "second hold", third)
	})
}

// Goal: a fault whose request was lost by another cause waits for the next one, before
// those armed later. Method: a server that does not answer, and Break in between.
func TestProxyFaultOutlivesConnection(t *testing.T) {
	onWires(t, func(t *testing.T, p Protocol, s *wireServer, x *Proxy) {
		first, second := x.CutAfterCommit(Set), x.CutBeforeSend(Set)
		c := openWire(t, p, x.Addr())
		s.setMute(true)
		c.send(p, Set, 1)
		becomes(t, "request performed", func() bool { return s.did(1) })
		x.Break()
		c.lost()
		s.setMute(false)
		for xid, done := range []<-chan struct{}{first, second} {
			c = openWire(t, p, x.Addr())
			c.send(p, Set, int32(10+xid))
			c.lost()
			happens(t, "fault", done)
		}
		if !s.did(10) || s.did(11) {
			t.Errorf("performed: %t, %t, want the first only", s.did(10), s.did(11))
		}
	})
}

// Goal: a partition holds back everything both ways and closes nothing; a connection
// that was given up meanwhile never reaches the server. Method: one connection from
// before, one from within that stays and one that goes.
func TestProxyPartition(t *testing.T) {
	onWires(t, func(t *testing.T, p Protocol, s *wireServer, x *Proxy) {
		c := openWire(t, p, x.Addr())
		held, release := x.Hold(Get)
		c.send(p, Get, 1)
		happens(t, "hold", held)
		x.Partition()
		release()
		c.send(p, Set, 2)
		gone, err := net.Dial("tcp", x.Addr())
		if err != nil {
			t.Fatal(err)
		}
		gone.Write([]byte("GET "))
		gone.Close()
		later := make(chan *wireClient)
		go func() { later <- openWire(t, p, x.Addr()) }()
		c.silent()
		if s.did(2) {
			t.Error("a request passed the partition")
		}
		becomes(t, "third connection", func() bool {
			x.mu.Lock()
			defer x.mu.Unlock()
			return len(x.conns) == 3
		})
		x.Heal()
		c.replies(1, 2)
		l := <-later
		l.send(p, Get, 3)
		l.replies(3)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.accepted != 2 {
			t.Errorf("server saw %d connections, want 2: not the one that was given up", s.accepted)
		}
	})
}

// Goal: a delay is a latency of answers, not a rate, and ends at once. Method: many
// pipelined requests take about one delay; then a long delay is set back to 0.
func TestProxyDelay(t *testing.T) {
	onWires(t, func(t *testing.T, p Protocol, s *wireServer, x *Proxy) {
		const delay, n = 100 * time.Millisecond, 50
		c := openWire(t, p, x.Addr())
		x.Delay(delay)
		began := time.Now()
		for xid := range int32(n) {
			c.send(p, Get, xid)
		}
		for xid := range int32(n) {
			c.replies(xid)
		}
		if took := time.Since(began); took < delay || took > n*delay/2 {
			t.Errorf("%d requests at once took %v, want about %v", n, took, delay)
		}
		x.Delay(time.Hour)
		c.send(p, Get, 100)
		becomes(t, "request performed", func() bool { return s.did(100) })
		c.silent()
		x.Delay(0)
		c.replies(100)
	})
}

// Goal: after Break the client connects again to where SetTarget says, and an end of the
// server's reaches the client. Method: two servers.
func TestProxySetTarget(t *testing.T) {
	onWires(t, func(t *testing.T, p Protocol, _ *wireServer, x *Proxy) {
		c := openWire(t, p, x.Addr())
		other := startWireServer(t, p)
		x.SetTarget(other.addr)
		c.lost()
		c = openWire(t, p, x.Addr())
		c.send(p, Get, 7)
		c.replies(7)
		if !other.did(7) {
			t.Error("the new target did not get the request")
		}
		other.mu.Lock()
		other.conns[0].close()
		other.mu.Unlock()
		c.lost()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		x.SetTarget(l.Addr().String()) // nobody is there
		nc, err := net.Dial("tcp", x.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if _, err := nc.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("a connection to a target that is not there ended with %v, want EOF", err)
		}
	})
}

// Goal: requests larger than what is held back to judge them pass unharmed and are
// known, and so are their answers. Method: sizes around the limit; a fault on the last.
func TestProxyBigMessages(t *testing.T) {
	onWires(t, func(t *testing.T, p Protocol, s *wireServer, x *Proxy) {
		c := openWire(t, p, x.Addr())
		big := func(xid int32, size int) []byte {
			data := make([]byte, size)
			rand.NewChaCha8([32]byte{byte(xid)}).Read(data)
			return wire.Jute{}.AppendRequest(nil, &wire.Request{
				Xid: xid, Op: wire.OpSetData, Body: &znode.SetData{Path: "/a", Data: data}})
		}
		for i, size := range []int{0, 1, 125, 126, 1 << 16, followLimit - 40, followLimit, 3 * followLimit} {
			sent := big(int32(i), size)
			if err := c.c.write(sent); err != nil {
				t.Fatal(err)
			}
			if got := c.next("a reply"); !bytes.Equal(got[16:], sent) {
				t.Errorf("a message of %d bytes came back changed", len(sent))
			}
		}
		c.send(p, Get, 50)
		c.replies(50)
		done := x.CutAfterCommit(Set)
		if err := c.c.write(big(51, 3*followLimit)); err != nil {
			t.Fatal(err)
		}
		c.lost()
		happens(t, "cut", done)
		if !s.did(51) {
			t.Error("the big request was not performed")
		}
	})
}

// Goal: unknown traffic passes unchanged. Method: an echo server; random bytes, a
// four-letter word, TLS, HTTP, with a half-close at the end as nc does.
func TestProxyPassesGarbage(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(nc, nc); nc.Close() }()
		}
	}()
	random := make([]byte, 100_000)
	rand.NewChaCha8([32]byte{1}).Read(random)
	for _, p := range []Protocol{ZooKeeperWire, TenureWire} {
		x := NewProxy(t, l.Addr().String(), p)
		x.CutBeforeSend(AnyWrite)
		for _, sent := range [][]byte{random, []byte("ruok"), []byte("\x16\x03\x01\x00\x05hello"), []byte("GET / HTTP/1.1\r\n\r\nbody"),
			[]byte("POST /"), []byte("\x00\x00"), []byte("\x00\x00\x00\x00\x00\x00\x00\x02ab\xff\xff\xff\xff")} {
			nc, err := net.Dial("tcp", x.Addr())
			if err != nil {
				t.Fatal(err)
			}
			nc.SetDeadline(time.Now().Add(10 * time.Second))
			nc.Write(sent)
			nc.(*net.TCPConn).CloseWrite()
			if got, err := io.ReadAll(nc); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("protocol %d: sent %.20q, got %d bytes of %d back (%v)", p, sent, len(got), len(sent), err)
			}
			nc.Close()
		}
	}
}

// Goal: Close ends everything that hangs and leaves no goroutine. Method: connections
// that are held, partitioned and stuck in a write to somebody who does not read.
func TestProxyCloseLeavesNothing(t *testing.T) {
	onWires(t, func(t *testing.T, p Protocol, s *wireServer, x *Proxy) {
		c := openWire(t, p, x.Addr())
		held, _ := x.Hold(Get)
		c.send(p, Get, 1)
		happens(t, "hold", held)
		deaf, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel, never reads
		if err != nil {
			t.Fatal(err)
		}
		defer deaf.Close()
		stuck := NewProxy(t, deaf.Addr().String(), p)
		nc, err := net.Dial("tcp", stuck.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		nc.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		if n, err := nc.Write(bytes.Repeat([]byte{0xff}, 64<<20)); err == nil || n > 40<<20 {
			t.Errorf("a proxy in front of a server that does not read took %d bytes", n)
		}
		x.Partition()
		waiting, err := net.Dial("tcp", x.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer waiting.Close()
		began := time.Now()
		x.Close()
		stuck.Close()
		x.Close()
		if took := time.Since(began); took > proxyLinger {
			t.Errorf("Close took %v", took)
		}
		c.lost()
		becomes(t, "all goroutines of the proxy ended", func() bool {
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			return !strings.Contains(string(stacks), "recipestest.(*proxyConn)") && !strings.Contains(string(stacks), "recipestest.(*pipe)")
		})
	})
}
