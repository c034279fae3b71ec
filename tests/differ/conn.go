package differ

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/tenure-dev/tenure/wire"
)

const (
	// answerMax is how long a server may be silent before that is what is noted.
	answerMax = 20 * time.Second
	frameMax  = 64 << 20
)

// conn is one connection: frames are read by whoever waits for one, in the order in which
// they came. One goroutine uses it.
type conn struct {
	nc      net.Conn
	r       *bufio.Reader
	xid     int32
	pending []pending // requests without a reply
	open    bool      // the handshake succeeded
}

type pending struct {
	xid        int32
	q          *Request
	unreadable bool
}

func dial(address string) (*conn, error) {
	nc, err := net.DialTimeout("tcp", address, answerMax)
	if err != nil {
		return nil, err
	}
	return &conn{nc: nc, r: bufio.NewReaderSize(nc, 16<<10)}, nil
}

// frame reads one frame. io.EOF stands for any way in which the server ends a connection.
func (c *conn) frame() ([]byte, error) {
	if err := c.nc.SetReadDeadline(time.Now().Add(answerMax)); err != nil {
		return nil, err
	}
	var head [4]byte
	_, err := io.ReadFull(c.r, head[:])
	n := binary.BigEndian.Uint32(head[:])
	if err == nil && n > frameMax {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	msg := make([]byte, n)
	if err == nil {
		_, err = io.ReadFull(c.r, msg)
	}
	if net, ok := err.(net.Error); ok && net.Timeout() {
		return nil, fmt.Errorf("silent for %v: %w", answerMax, err)
	}
	if err != nil {
		return nil, io.EOF
	}
	return msg, nil
}

// handshake sends the first message. It reports io.EOF if there is no answer.
func (c *conn) handshake(q *wire.ConnectRequest) (*wire.ConnectReply, error) {
	hello := wire.Jute{}.AppendConnect(make([]byte, 4), q)
	binary.BigEndian.PutUint32(hello, uint32(len(hello)-4))
	if _, err := c.nc.Write(hello); err != nil {
		return nil, io.EOF
	}
	msg, err := c.frame()
	if err != nil {
		return nil, err
	}
	reply, err := wire.Jute{}.DecodeConnectReply(msg)
	if err != nil {
		return nil, err
	}
	if again := (wire.Jute{}).AppendConnectReply(nil, &reply); !bytes.Equal(again, msg) {
		return nil, fmt.Errorf("connect reply %x", msg)
	}
	c.open = reply.TimeoutMs > 0
	return &reply, nil
}

// next decodes the next frame.
func (c *conn) next() (Frame, error) {
	msg, err := c.frame()
	if err != nil {
		return Frame{}, err
	}
	var p pending
	if len(c.pending) > 0 {
		p = c.pending[0]
	}
	f := Frame{Request: p.q, Unreadable: p.unreadable}
	f.Reply, f.Event, err = wire.Jute{}.DecodeMessage(msg, func(xid int32) (wire.Op, bool) {
		return opOf(p.q), p.q != nil && xid == p.xid
	})
	switch {
	case err != nil:
		f.Raw = msg
	case f.Event != nil:
		f.Kind, f.Request, f.Unreadable = KindEvent, nil, false
		if !bytes.Equal(wire.Jute{}.AppendEvent(nil, f.Event), msg) {
			f.Raw = msg
		}
	case !bytes.Equal(wire.Jute{}.AppendReply(nil, f.Reply), msg):
		f.Raw = msg
	}
	if f.Kind == KindReply && len(c.pending) > 0 {
		c.pending = c.pending[1:]
	}
	return f, nil
}

func opOf(q *Request) wire.Op {
	if q == nil {
		return 0
	}
	return q.Op
}
