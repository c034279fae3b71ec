package zk

import "encoding/binary"

// What of ZooKeeper's wire format is needed to see below the library: every message is a
// frame of 4 bytes of length and so many of payload, integers big-endian. The first frame
// of each direction is the handshake; then requests begin with xid and opcode, replies
// with xid, zxid and error code.
const (
	opMulti         = 14
	opCheck         = 13
	multiHeaderSize = 9  // type, done, error
	handshakeHead   = 16 // protocol, timeout, session id
	replyHead       = 16 // xid, zxid, error

	// requestBytesMax is the servers' default bound of a request (jute.maxbuffer). They
	// answer a longer one by closing the connection.
	requestBytesMax = 1<<20 - 1
	// replyBytesMax is our bound of a reply.
	replyBytesMax = 64 << 20
)

// checksOnly reports whether the payload of a request is a transaction that only checks:
// a renewal, and what must not be taken for one.
func checksOnly(payload []byte) bool {
	if len(payload) < 8 || binary.BigEndian.Uint32(payload[4:]) != opMulti {
		return false
	}
	for p := payload[8:]; len(p) >= multiHeaderSize; {
		if p[4] != 0 { // done
			return true
		}
		if binary.BigEndian.Uint32(p) != opCheck || len(p) < multiHeaderSize+4 {
			return false
		}
		size := multiHeaderSize + 4 + int(binary.BigEndian.Uint32(p[multiHeaderSize:])) + 4 // header, path, version
		if size > len(p) {
			return false
		}
		p = p[size:]
	}
	return false
}

// requests finds the frames in what is written. Owned by whoever writes.
type requests struct {
	partial []byte // of a frame that is not complete
}

// note takes what is about to be written and calls frame with each complete payload.
func (r *requests) note(p []byte, frame func(payload []byte)) {
	if len(r.partial) > 0 {
		r.partial = append(r.partial, p...)
		p = r.partial
	}
	for len(p) >= 4 {
		end := 4 + int(binary.BigEndian.Uint32(p))
		if end > len(p) {
			break
		}
		frame(p[4:end])
		p = p[end:]
	}
	r.partial = append(r.partial[:0], p...)
}

// replies finds the frames in what is read. Owned by whoever reads.
type replies struct {
	head [4 + max(handshakeHead, replyHead)]byte // a frame's length and beginning
	have int                                     // so much of head is filled
	left int                                     // bytes of the frame behind head
}

// note takes what was read. It calls frame with the size and the beginning of each frame,
// when its last byte was read, and stops at an error.
func (r *replies) note(p []byte, frame func(size int, head []byte) error) error {
	for len(p) > 0 {
		if r.have < 4 || r.have < r.want() {
			n := copy(r.head[r.have:max(4, r.want())], p)
			r.have, p = r.have+n, p[n:]
			if r.have < 4 || r.have < r.want() {
				continue
			}
			r.left = r.size() - (r.want() - 4)
		} else {
			n := min(r.left, len(p))
			r.left, p = r.left-n, p[n:]
		}
		if r.left > 0 {
			continue
		}
		size, head := r.size(), r.head[4:r.want()]
		r.have = 0
		if err := frame(size, head); err != nil {
			return err
		}
	}
	return nil
}

// size is the length that the frame has, once 4 bytes of head are filled.
func (r *replies) size() int { return int(binary.BigEndian.Uint32(r.head[:4])) }

// want is how much of head there will be.
func (r *replies) want() int {
	if r.have < 4 {
		return 4
	}
	return 4 + min(r.size(), len(r.head)-4)
}
