package replica

import (
	"context"
	"io"
)

// Class is one of the two ways to a peer: they do not wait for each other.
type Class uint8

// The classes.
const (
	Control Class = iota // small and urgent: votes, heartbeats, asks
	Bulk                 // entries and proposals
	Classes              // how many there are
)

// Network carries frames between the members. Frames of one class arrive in the order in
// which they were sent as long as the connection lasts; if it breaks, some of the last are
// lost. It is safe for concurrent use.
type Network interface {
	// Send queues a frame and never blocks; the frame must not be changed afterwards.
	// It is only read, as the same frame may go to several peers. False: it was dropped, because
	// the peer is unknown, not connected, or does not keep up.
	Send(to uint64, class Class, frame []byte) bool
	// Stream opens a connection of its own to a peer, for what is too large for a frame. It breaks
	// if one of its ends makes no progress for some time.
	Stream(ctx context.Context, to uint64) (Stream, error)
	// SetMembers says who the other members are and where they listen. Members that are not
	// among them any more are disconnected, and refused.
	SetMembers(addresses map[uint64]string)
	// Close ends all connections; nothing is delivered behind it.
	Close() error
}

// Stream is one exchange of two members: the one that opened it writes, closes its side
// with CloseWrite, and reads the answer.
type Stream interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Receiver is the member as the network sees it.
type Receiver interface {
	// Receive takes a frame, on the goroutine that reads the connection, in the connection's
	// order. It may keep frame. It blocks while the member does not keep up. An error says
	// what is wrong with the frame: the connection is not to be used any more.
	Receive(from uint64, class Class, frame []byte) error
	// Connected says that frames can be sent to a peer, Disconnected that an established
	// connection to or from it broke.
	Connected(peer uint64)
	Disconnected(peer uint64)
	// ReceiveStream serves a stream that a peer opened; it is closed when it returns.
	ReceiveStream(from uint64, s Stream)
}
