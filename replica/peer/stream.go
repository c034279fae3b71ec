package peer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/tenure-dev/tenure/replica"
)

// streamChunk is what must be written within the stall timeout.
const streamChunk = 256 << 10

// stream is one exchange over a connection of its own. One goroutine may read and one
// write at the same time.
type stream struct {
	t    *Transport
	c    conn
	stop func() bool // the context does not end it any more
}

var _ replica.Stream = (*stream)(nil)

// Stream opens a connection of its own to a peer. It fails when it makes no progress for
// Config.StallTimeout in either direction, and when ctx ends.
func (t *Transport) Stream(ctx context.Context, to uint64) (replica.Stream, error) {
	p := t.peer(to)
	if p == nil {
		return nil, fmt.Errorf("peer: member %d is not a member", to)
	}
	c, err := t.dial(ctx, p, classStream, rand.Uint64()|1)
	if err != nil {
		return nil, fmt.Errorf("peer: stream: %w", err)
	}
	return &stream{t, c, context.AfterFunc(ctx, func() { _ = c.raw.Close() })}, nil
}

// Read reads what the other end has written; io.EOF after its CloseWrite.
func (s *stream) Read(b []byte) (int, error) {
	_ = s.c.raw.SetReadDeadline(time.Now().Add(s.t.cfg.StallTimeout))
	return s.c.Read(b)
}

// Write writes all of b or fails.
func (s *stream) Write(b []byte) (written int, err error) {
	for len(b) > 0 && err == nil {
		var n int
		_ = s.c.raw.SetWriteDeadline(time.Now().Add(s.t.cfg.StallTimeout))
		n, err = s.c.Write(b[:min(len(b), streamChunk)])
		written += n
		b = b[n:]
	}
	return written, err
}

// CloseWrite tells the other end that nothing more comes.
func (s *stream) CloseWrite() error {
	half, ok := s.c.Conn.(interface{ CloseWrite() error }) // TCP and TLS have it
	if !ok {
		return errors.ErrUnsupported
	}
	_ = s.c.raw.SetWriteDeadline(time.Now().Add(s.t.cfg.StallTimeout))
	return half.CloseWrite()
}

// Close ends the stream.
func (s *stream) Close() error {
	s.stop()
	err := s.c.Close()
	s.t.drop(s.c.raw)
	if errors.Is(err, net.ErrClosed) {
		return nil // closed by the context, by the transport, or before
	}
	return err
}

// admitStream takes one of the places for streams that the peer opens.
func (p *peer) admitStream() error {
	select {
	case p.streams <- struct{}{}:
		return nil
	default:
		return fmt.Errorf("%d streams of member %d are open already", cap(p.streams), p.id)
	}
}

// serveStream hands a stream that a peer opened to the receiver.
func (t *Transport) serveStream(p *peer, c conn) {
	defer func() { <-p.streams }()
	if !t.hold(c.raw, p) {
		return
	}
	s := &stream{t, c, func() bool { return true }}
	defer func() { _ = s.Close() }()
	t.receiver.ReceiveStream(p.id, s)
}
