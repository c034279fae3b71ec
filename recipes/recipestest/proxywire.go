package recipestest

import (
	"bytes"
	"encoding/binary"
)

// Protocol says how a Proxy finds requests in the traffic that it passes on.
type Protocol uint8

// The protocols that a Proxy knows. What does not look like its protocol it passes on
// as it is; so it does with TLS and with the subprotocol tenure.v1.json, in which no
// fault is played on requests.
const (
	ZooKeeperWire Protocol = iota + 1 // ZooKeeper's client protocol on TCP
	TenureWire                        // tenure.v1.jute on websocket
)

// Operation codes that need more than a look into the table of kinds.
const (
	opCheck = 13
	opWith  = 1000
)

// zooKeeperKinds are the operations of ZooKeeper's protocol that faults are played on.
var zooKeeperKinds = map[int32]OpKind{
	1: Create, 15: Create, 19: Create, 21: Create, // create, create2, createContainer, createTTL
	2: Delete, 3: Exists, 4: Get, 5: Set,
	8: Children, 12: Children, // getChildren, getChildren2
	9: Sync, 14: Multi,
}

// tenureKinds are those that Tenure's own protocol has besides.
var tenureKinds = map[int32]OpKind{
	1002: Renew,
	1003: Children, // list
}

const (
	// followLimit is how much of a message is held back to find out what it is. What is
	// longer is judged by its beginning.
	followLimit = 1 << 20
	// longestFrame is the most that a server can be configured to take.
	longestFrame = 64 << 20
	// longestUpgrade bounds the head of an HTTP request or response.
	longestUpgrade = 64 << 10
)

// message is what a follower found out about a piece of traffic.
type message struct {
	known bool // the piece begins a request or reply with this xid
	xid   int32
	kind  OpKind // of a request, 0 if it is none to play faults on
}

// follower cuts one direction of one connection into pieces. next looks at the bytes
// that were not taken yet and returns how many of them are the next piece, 0 if it takes
// more to know, which it never does of followLimit bytes or more. It is not for
// concurrent use.
type follower interface {
	next(b []byte) (int, message)
}

// newFollower follows requests, or replies.
func newFollower(p Protocol, requests bool) follower {
	judge := judgeReply
	if requests {
		judge = func(b []byte) message { return judgeRequest(p, b) }
	}
	if p == TenureWire {
		return &websocketFollower{stream: stream{judge: judge}, requests: requests}
	}
	return &zooKeeperFollower{stream{judge: judge}}
}

// judgeRequest reads the header of a request, or of the beginning of one.
func judgeRequest(p Protocol, b []byte) message {
	if len(b) < 8 {
		return message{}
	}
	xid, op := int32(binary.BigEndian.Uint32(b)), int32(binary.BigEndian.Uint32(b[4:]))
	b = b[8:]
	if p == TenureWire && op == opWith { // flags, seq, acked, op
		if len(b) < 24 {
			return message{}
		}
		op, b = int32(binary.BigEndian.Uint32(b[20:])), b[24:]
	}
	kind := zooKeeperKinds[op]
	switch {
	case p == TenureWire && kind == 0:
		kind = tenureKinds[op]
	case p == ZooKeeperWire && kind == Multi && onlyChecks(b):
		kind = Renew
	}
	return message{known: true, xid: xid, kind: kind}
}

// onlyChecks reports whether the record of a multi has operations and all are checks.
func onlyChecks(b []byte) bool {
	for n := 0; len(b) >= 9; n++ { // int type, boolean done, int err
		if b[4] != 0 {
			return n > 0
		}
		if binary.BigEndian.Uint32(b) != opCheck || len(b) < 13 {
			return false
		}
		path := max(int64(int32(binary.BigEndian.Uint32(b[9:]))), 0)
		if int64(len(b)) < 13+path+4 {
			return false
		}
		b = b[13+path+4:]
	}
	return false
}

// judgeReply reads the xid of a reply or event.
func judgeReply(b []byte) message {
	if len(b) < 16 { // int xid, long zxid, int err
		return message{}
	}
	return message{known: true, xid: int32(binary.BigEndian.Uint32(b))}
}

// stream is what followers have in common.
type stream struct {
	judge     func(payload []byte) message
	connected bool  // the first message, which opens the session, has passed
	opaque    bool  // not this protocol: everything is passed on
	rest      int64 // of a frame whose beginning was passed on
	need      int   // how many bytes it takes to know more; 0 if it was not said
}

// skip takes what needs no look, or nothing while a look would be in vain; ok is false if
// it takes a look.
func (s *stream) skip(b []byte) (n int, ok bool) {
	switch {
	case len(b) < s.need:
		return 0, true
	case s.opaque:
		return len(b), true
	case s.rest > 0:
		n = int(min(s.rest, int64(len(b))))
		s.rest -= int64(n)
		return n, true
	}
	s.need = 0
	return 0, false
}

// wait says that it takes size bytes, or as many as are held back, to know more.
func (s *stream) wait(size int64) (int, message) {
	s.need = int(min(size, followLimit))
	return 0, message{}
}

// giveUp passes on everything from now on.
func (s *stream) giveUp(b []byte) (int, message) {
	s.opaque = true
	return len(b), message{}
}

// judged judges a message, or its beginning. The first of a connection has no header.
func (s *stream) judged(payload []byte) message {
	if !s.connected {
		s.connected = true
		return message{}
	}
	return s.judge(payload)
}

// zooKeeperFollower follows frames of an int length and a payload.
type zooKeeperFollower struct{ stream }

func (f *zooKeeperFollower) next(b []byte) (int, message) {
	if n, ok := f.skip(b); ok {
		return n, message{}
	}
	if len(b) < 4 {
		return 0, message{}
	}
	length := int64(int32(binary.BigEndian.Uint32(b)))
	if length < 0 || length > longestFrame { // a four-letter word, TLS, rubbish
		return f.giveUp(b)
	}
	size, have := 4+length, int64(len(b))
	switch {
	case have >= size:
		return int(size), f.judged(b[4:size])
	case have >= followLimit:
		f.rest = size - have
		return len(b), f.judged(b[4:])
	}
	return f.wait(size)
}

// websocketFollower follows an HTTP upgrade and then websocket messages.
type websocketFollower struct {
	stream
	requests bool
	upgraded bool
	within   bool // a message whose beginning was passed on goes on
}

func (f *websocketFollower) next(b []byte) (int, message) {
	if n, ok := f.skip(b); ok {
		return n, message{}
	}
	switch {
	case !f.upgraded:
		return f.upgrade(b)
	case f.within:
		return f.goOn(b)
	}
	return f.message(b)
}

// upgrade passes on the head of the request that asks for websocket, or of the response.
func (f *websocketFollower) upgrade(b []byte) (int, message) {
	begin := []byte("HTTP/1.1 101 ")
	if f.requests {
		begin = []byte("GET ")
	}
	n := min(len(b), len(begin))
	if !bytes.Equal(b[:n], begin[:n]) {
		return f.giveUp(b)
	}
	head, _, ok := bytes.Cut(b, []byte("\r\n\r\n"))
	switch {
	case !ok && len(b) > longestUpgrade:
		return f.giveUp(b)
	case !ok:
		return 0, message{}
	case !bytes.Contains(bytes.ToLower(head), []byte("upgrade: websocket")):
		return f.giveUp(b)
	}
	f.upgraded = true
	return len(head) + 4, message{}
}

// goOn passes on the next frame of a message that was judged.
func (f *websocketFollower) goOn(b []byte) (int, message) {
	h, ok := readFrameHeader(b)
	switch {
	case !ok:
		return 0, message{}
	case h.bad || !h.control && h.opcode != 0:
		return f.giveUp(b)
	}
	f.within = !h.fin || h.control
	n := min(h.size(), int64(len(b)))
	f.rest = h.size() - n
	return int(n), message{}
}

// message takes one control frame, or a message with all its frames and the control
// frames among them, or as much of it as is enough.
func (f *websocketFollower) message(b []byte) (int, message) {
	var payload []byte
	binaryData := false
	for n := int64(0); ; {
		h, ok := readFrameHeader(b[n:])
		switch {
		case !ok && n >= followLimit:
			f.within = true
			return int(n), f.judgedIf(binaryData, payload)
		case !ok:
			return 0, message{}
		case h.bad || !h.control && (h.opcode == 0) != (n > 0):
			return f.giveUp(b)
		}
		end := n + h.size()
		have := min(end, int64(len(b)))
		if !h.control {
			binaryData = binaryData || h.opcode == 2
			payload = h.appendPayload(payload, b[n:have])
		}
		switch {
		case have < end && len(b) < followLimit:
			return f.wait(end)
		case have < end:
			f.rest, f.within = end-have, !h.fin || h.control
			return len(b), f.judgedIf(binaryData, payload)
		case h.control && n == 0:
			return int(end), message{}
		case h.fin && !h.control:
			return int(end), f.judgedIf(binaryData, payload)
		}
		n = end
	}
}

// judgedIf judges a binary message; of others only the beginning of a session counts.
func (f *websocketFollower) judgedIf(binaryData bool, payload []byte) message {
	m := f.judged(payload)
	if !binaryData {
		return message{}
	}
	return m
}

// frameHeader is the header of a websocket frame (RFC 6455, 5.2).
type frameHeader struct {
	fin, control, masked bool
	bad                  bool // not allowed
	opcode               byte
	mask                 [4]byte
	header               int   // its own length
	length               int64 // of the payload
}

func (h *frameHeader) size() int64 { return int64(h.header) + h.length }

// readFrameHeader returns false if b is too short for the header.
func readFrameHeader(b []byte) (h frameHeader, ok bool) {
	if len(b) < 2 {
		return h, false
	}
	h = frameHeader{fin: b[0]&0x80 != 0, opcode: b[0] & 0x0f, masked: b[1]&0x80 != 0, header: 2}
	h.control = h.opcode >= 8
	h.length = int64(b[1] & 0x7f)
	h.bad = b[0]&0x70 != 0 || h.opcode&7 > 2 || h.control && (!h.fin || h.length > 125)
	if h.bad {
		return h, true
	}
	switch h.length {
	case 126:
		h.header = 4
	case 127:
		h.header = 10
	}
	mask := h.header
	if h.masked {
		h.header += 4
	}
	if len(b) < h.header {
		return h, false
	}
	switch h.length {
	case 126:
		h.length = int64(binary.BigEndian.Uint16(b[2:]))
	case 127:
		long := binary.BigEndian.Uint64(b[2:])
		h.bad = long > 2*longestFrame // JSON needs a third more
		h.length = int64(min(long, 2*longestFrame))
	}
	if h.masked {
		copy(h.mask[:], b[mask:])
	}
	return h, true
}

// appendPayload appends the payload of a frame that is in b, perhaps not in full.
func (h *frameHeader) appendPayload(dst, b []byte) []byte {
	begin := len(dst)
	dst = append(dst, b[h.header:]...)
	if h.masked {
		for i := range dst[begin:] {
			dst[begin+i] ^= h.mask[i&3]
		}
	}
	return dst
}
