package recipestest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/tenure-dev/tenure/wire"
)

// Goal: the proxy's few operation codes are those of the protocol.
// Method: every code of package wire against a list by name.
func TestProxyOperationCodes(t *testing.T) {
	want := map[wire.Op]OpKind{
		wire.OpCreate: Create, wire.OpCreate2: Create, wire.OpCreateContainer: Create, wire.OpCreateTTL: Create,
		wire.OpDelete: Delete, wire.OpSetData: Set, wire.OpMulti: Multi, wire.OpExists: Exists, wire.OpGetData: Get,
		wire.OpGetChildren: Children, wire.OpGetChildren2: Children, wire.OpList: Children,
		wire.OpSync: Sync, wire.OpRenew: Renew,
	}
	if opCheck != wire.OpCheck || opWith != wire.OpWith {
		t.Errorf("check is %d and with is %d, want %d and %d", opCheck, opWith, wire.OpCheck, wire.OpWith)
	}
	for op := wire.Op(-20); op < 1100; op++ {
		msg := binary.BigEndian.AppendUint32(make([]byte, 4), uint32(op))
		if op == wire.OpWith {
			continue
		}
		if got := judgeRequest(TenureWire, msg).kind; got != want[op] {
			t.Errorf("%v is of kind %d to the proxy, want %d", op, got, want[op])
		}
		zooKeeper := want[op]
		if op >= 1000 {
			zooKeeper = 0
		}
		if got := judgeRequest(ZooKeeperWire, msg).kind; got != zooKeeper {
			t.Errorf("ZooKeeper's %v is of kind %d to the proxy, want %d", op, got, zooKeeper)
		}
	}
}

// webFrame encodes one websocket frame.
func webFrame(first byte, masked bool, payload []byte) []byte {
	b := []byte{first}
	second := byte(0)
	if masked {
		second = 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b = append(b, second|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, second|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, second|127), uint64(n))
	}
	if !masked {
		return append(b, payload...)
	}
	mask := [4]byte{1, 2, 3, 0xff}
	b = append(b, mask[:]...)
	for i, c := range payload {
		b = append(b, c^mask[i%4])
	}
	return b
}

// follow feeds all of b to f in chunks of the given size. It returns the messages that
// were known; the pieces must be b.
func follow(t testing.TB, f follower, b []byte, chunk int) (known []message) {
	t.Helper()
	var waiting, passed []byte
	for in := b; len(in) > 0; {
		n := min(chunk, len(in))
		waiting, in = append(waiting, in[:n]...), in[n:]
		for len(waiting) > 0 {
			n, m := f.next(waiting)
			if n < 0 || n > len(waiting) || n == 0 && len(waiting) >= followLimit {
				t.Fatalf("next took %d of %d bytes", n, len(waiting))
			}
			if n == 0 {
				break
			}
			if m.known {
				known = append(known, m)
			}
			passed, waiting = append(passed, waiting[:n]...), waiting[n:]
		}
	}
	if !bytes.Equal(append(passed, waiting...), b) {
		t.Fatal("the pieces are not the traffic")
	}
	return known
}

const (
	upgradeRequest  = "GET /v1/ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n"
	upgradeResponse = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
)

// tenureRequests is a stream of requests in which everything comes that may: control
// frames between and within messages, fragments of all sizes, also empty ones, a text
// message, and a message longer than is held back.
func tenureRequests(masked bool) (stream []byte, want []message) {
	stream = []byte(upgradeRequest)
	frame := func(first byte, payload []byte) { stream = append(stream, webFrame(first, masked, payload)...) }
	frame(0x82, []byte("connect, which has no header"))
	frame(0x89, []byte("ping"))
	frame(0x82, request(TenureWire, Create, 1))
	set := request(TenureWire, Set, 2)
	frame(0x02, nil)
	for i := range set {
		frame(0x00, set[i:i+1])
		frame(0x8a, []byte("pong"))
	}
	frame(0x80, nil)
	frame(0x81, request(TenureWire, Set, 3)) // text
	frame(0x82, append(request(TenureWire, Multi, 4), make([]byte, 300)...))
	frame(0x02, append(request(TenureWire, Delete, 5), make([]byte, followLimit+1000)...))
	frame(0x00, make([]byte, 1<<16))
	frame(0x89, nil)
	frame(0x80, make([]byte, 70_000))
	frame(0x02, request(TenureWire, Get, 6))
	frame(0x80, make([]byte, followLimit))
	frame(0x82, request(TenureWire, Renew, 7))
	for i, kind := range []OpKind{Create, Set, 0, Multi, Delete, Get, Renew} {
		if kind != 0 {
			want = append(want, message{known: true, xid: int32(i + 1), kind: kind})
		}
	}
	return stream, want
}

// Goal: requests are found however the bytes arrive. Method: one stream per protocol in
// chunks of many sizes.
func TestProxyFollowsRequests(t *testing.T) {
	var zooKeeper []byte
	frame := func(b []byte) {
		zooKeeper = append(binary.BigEndian.AppendUint32(zooKeeper, uint32(len(b))), b...)
	}
	frame([]byte("connect"))
	var wantZooKeeper []message
	for i, kind := range allKinds {
		msg := request(ZooKeeperWire, kind, int32(i))
		if kind == Set {
			msg = append(msg, make([]byte, 2*followLimit)...)
		}
		frame(msg)
		wantZooKeeper = append(wantZooKeeper, message{known: true, xid: int32(i), kind: kind})
	}
	masked, want := tenureRequests(true)
	bare, _ := tenureRequests(false)
	for _, chunk := range []int{1 << 10, 1<<10 + 7, 64 << 10, 1 << 30} {
		for name, c := range map[string]struct {
			p      Protocol
			stream []byte
			want   []message
		}{"zookeeper": {ZooKeeperWire, zooKeeper, wantZooKeeper}, "masked": {TenureWire, masked, want}, "bare": {TenureWire, bare, want}} {
			got := follow(t, newFollower(c.p, true), c.stream, chunk)
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%s in chunks of %d: got %v, want %v", name, chunk, got, c.want)
			}
		}
	}
	small := masked[:len(upgradeRequest)+2000]
	if got := follow(t, newFollower(TenureWire, true), small, 1); len(got) != 3 {
		t.Errorf("byte by byte: %d requests in the beginning, want 3: %v", len(got), got)
	}
}

// Goal: replies and events are found by xid. Method: a connect answer, a reply, an event
// and one that is too short, on both protocols.
func TestProxyFollowsReplies(t *testing.T) {
	reply := func(xid int32) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(xid)), make([]byte, 12)...)
	}
	web, frames := []byte(upgradeResponse), []byte(nil)
	for _, msg := range [][]byte{make([]byte, 37), reply(5), reply(-1), []byte("short"), reply(6)} {
		web = append(web, webFrame(0x82, false, msg)...)
		frames = append(binary.BigEndian.AppendUint32(frames, uint32(len(msg))), msg...)
	}
	for _, chunk := range []int{1, 3, 1000} {
		for p, stream := range map[Protocol][]byte{ZooKeeperWire: frames, TenureWire: web} {
			got := follow(t, newFollower(p, false), stream, chunk)
			if len(got) != 3 || got[0].xid != 5 || got[1].xid != -1 || got[2].xid != 6 {
				t.Errorf("protocol %d, chunks of %d: got %v, want xids 5, -1, 6", p, chunk, got)
			}
		}
	}
}

// Goal: a multi stands for a renewal only if it has operations and all are checks.
// Method: records cut off everywhere, an empty one, other operations.
func TestProxyKnowsRenewals(t *testing.T) {
	renew := request(ZooKeeperWire, Renew, 1)
	end := len(renew) - 9 // int type -1, boolean done, int err
	for n := range len(renew) {
		want := Multi
		if n < 8 {
			want = 0
		}
		if got := judgeRequest(ZooKeeperWire, renew[:n]).kind; got != want {
			t.Errorf("%d of %d bytes of a renewal are of kind %d, want %d", n, len(renew), got, want)
		}
	}
	empty := append(bytes.Clone(renew[:8]), renew[end:]...)
	if got := judgeRequest(ZooKeeperWire, empty).kind; got != Multi {
		t.Errorf("an empty multi is of kind %d, want %d", got, Multi)
	}
	if got := judgeRequest(TenureWire, renew).kind; got != Multi {
		t.Errorf("a multi of checks on Tenure is of kind %d, want %d: renewals have an operation of their own", got, Multi)
	}
	long := bytes.Clone(renew)
	binary.BigEndian.PutUint32(long[8+9:], 1<<31-1) // a path beyond the end
	if got := judgeRequest(ZooKeeperWire, long).kind; got != Multi {
		t.Errorf("a check with an endless path is of kind %d, want %d", got, Multi)
	}
}

// FuzzProxyFollowers: no traffic makes a follower panic, lose a byte or take its time
// with more than the limit, and the chunks do not change what it finds.
func FuzzProxyFollowers(f *testing.F) {
	tenure, _ := tenureRequests(true)
	f.Add(tenure[:3000], uint16(7))
	f.Add([]byte(upgradeResponse+"\x82\x03abc"), uint16(1))
	f.Add([]byte("ruok"), uint16(2))
	f.Add(binary.BigEndian.AppendUint32(nil, 8), uint16(3))
	f.Add([]byte(upgradeRequest+"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff1234"), uint16(100))
	f.Fuzz(func(t *testing.T, b []byte, chunk uint16) {
		for _, p := range []Protocol{ZooKeeperWire, TenureWire} {
			for _, requests := range []bool{true, false} {
				whole := follow(t, newFollower(p, requests), b, len(b)+1)
				parts := follow(t, newFollower(p, requests), b, int(chunk)+1)
				if len(b) < followLimit && fmt.Sprint(whole) != fmt.Sprint(parts) {
					t.Errorf("protocol %d: %v at once, %v in chunks of %d", p, whole, parts, int(chunk)+1)
				}
			}
		}
	})
}
