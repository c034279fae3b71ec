package wire

import (
	"fmt"

	"github.com/tenure-dev/tenure/session"
)

// Jute is ZooKeeper's binary encoding: one message is one packet without the length in
// front of it. Operations from 1000 up are Tenure's own records in the same form; their
// layout is in docs/protocol.md. Jute has no state and may be used by any number of
// goroutines.
type Jute struct{}

var (
	_ ServerCodec = Jute{}
	_ ClientCodec = Jute{}
)

const (
	eventXid = -1 // marks a notification among the replies
	pingXid  = -2
	// eventState is SyncConnected, the only state a server ever sends.
	eventState = 3
)

// withStale is the one bit of OpWith's flags that has a meaning.
const withStale = 1

// DecodeConnect decodes the first message of a connection: 44 bytes with a password of
// 16, or 45 with the read-only flag of newer clients. More bytes are ignored. The
// protocol's version is not looked at, as in ZooKeeper.
func (Jute) DecodeConnect(msg []byte) (ConnectRequest, error) {
	r := juteReader{buf: msg}
	r.int()
	c := ConnectRequest{
		LastZxid: r.long(), TimeoutMs: r.int(), Session: session.ID(r.long()), Password: r.data(),
	}
	if r.failed() {
		return ConnectRequest{}, r.err("connect request")
	}
	if r.off < len(msg) {
		readOnly := r.bool()
		c.ReadOnly = &readOnly
	}
	return c, nil
}

// AppendConnect appends a connect request.
func (Jute) AppendConnect(dst []byte, c *ConnectRequest) []byte {
	dst = putLong(putInt(dst, 0), c.LastZxid)
	dst = putLong(putInt(dst, c.TimeoutMs), int64(c.Session))
	dst = putData(dst, c.Password)
	if c.ReadOnly != nil {
		dst = putBool(dst, *c.ReadOnly)
	}
	return dst
}

// AppendConnectReply appends 36 bytes, or 37 if ReadOnly is set. ZooKeeper's C client
// reads a fixed number of bytes, so the password always has all 16.
func (Jute) AppendConnectReply(dst []byte, c *ConnectReply) []byte {
	dst = putInt(putInt(dst, 0), c.TimeoutMs)
	dst = putData(putLong(dst, int64(c.Session)), c.Password[:])
	if c.ReadOnly != nil {
		dst = putBool(dst, *c.ReadOnly)
	}
	return dst
}

// DecodeConnectReply decodes what AppendConnectReply appends.
func (Jute) DecodeConnectReply(msg []byte) (ConnectReply, error) {
	r := juteReader{buf: msg}
	r.int()
	c := ConnectReply{TimeoutMs: r.int(), Session: session.ID(r.long())}
	password, _ := r.field()
	if r.failed() {
		return ConnectReply{}, r.err("connect reply")
	}
	if len(password) != session.PasswordSize {
		return ConnectReply{}, fmt.Errorf("wire: connect reply: password has %d bytes, not %d",
			len(password), session.PasswordSize)
	}
	copy(c.Password[:], password)
	if r.off < len(msg) {
		readOnly := r.bool()
		c.ReadOnly = &readOnly
	}
	return c, nil
}

// AppendEvent appends a notification: a reply's header with xid -1 and the event.
func (Jute) AppendEvent(dst []byte, e *Event) []byte {
	dst = putInt(putLong(putInt(dst, eventXid), e.Zxid), 0)
	return putStr(putInt(putInt(dst, int32(e.Type)), eventState), e.Path)
}
