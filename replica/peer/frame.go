package peer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A frame is its length in 4 bytes, big endian, and its bytes. A length with pingMark is
// a ping, or the answer to one, which has the same bytes: the time at which it was sent,
// which only its sender understands. Pings go along with frames, answers the other way.
const (
	lengthSize = 4
	pingMark   = 1 << 31
	pingSize   = 8

	gatherSize = 64 << 10 // small frames are gathered up to this
	chunkSize  = 1 << 20  // of a large frame, this must be taken within the timeout
)

// frameWriter writes many small frames with one call, and large ones without copying.
type frameWriter struct {
	conn    net.Conn
	timeout time.Duration // of a write of at most gatherSize and chunkSize
	buf     []byte        // gathered
	vector  [2][]byte
}

// frame gathers or writes a frame; what is gathered is written by flush at the latest.
func (w *frameWriter) frame(frame []byte) error {
	if len(w.buf)+lengthSize > cap(w.buf) {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(len(frame)))
	if len(w.buf)+len(frame) <= cap(w.buf) {
		w.buf = append(w.buf, frame...)
		return nil
	}
	chunk := frame[:min(len(frame), chunkSize)]
	w.vector = [2][]byte{w.buf, chunk}
	buffers := net.Buffers(w.vector[:])
	w.arm()
	if _, err := buffers.WriteTo(w.conn); err != nil {
		return err
	}
	w.vector = [2][]byte{}
	w.buf = w.buf[:0]
	for frame = frame[len(chunk):]; len(frame) > 0; frame = frame[len(chunk):] {
		chunk = frame[:min(len(frame), chunkSize)]
		w.arm()
		if _, err := w.conn.Write(chunk); err != nil {
			return err
		}
	}
	return nil
}

// ping gathers a ping that says when it was sent.
func (w *frameWriter) ping(sent time.Duration) error {
	if len(w.buf)+lengthSize+pingSize > cap(w.buf) {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.buf = binary.BigEndian.AppendUint32(w.buf, pingMark|pingSize)
	w.buf = binary.BigEndian.AppendUint64(w.buf, uint64(sent))
	return nil
}

// flush writes what is gathered.
func (w *frameWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	w.arm()
	_, err := w.conn.Write(w.buf)
	w.buf = w.buf[:0]
	return err
}

func (w *frameWriter) arm() { _ = w.conn.SetWriteDeadline(time.Now().Add(w.timeout)) }

// silenceReader reads from conn and fails if nothing comes for a while; 0: never.
type silenceReader struct {
	conn    net.Conn
	timeout time.Duration
}

func (r silenceReader) Read(p []byte) (int, error) {
	if r.timeout > 0 {
		_ = r.conn.SetReadDeadline(time.Now().Add(r.timeout))
	}
	return r.conn.Read(p)
}

// frameReader takes frames and pings out of a connection.
type frameReader struct {
	in   *bufio.Reader
	max  int // bytes of a frame
	head [lengthSize + pingSize]byte
}

func newFrameReader(c conn, silence time.Duration, frameMax int) *frameReader {
	size := gatherSize
	if frameMax == 0 {
		size = 512 // for pings
	}
	return &frameReader{in: bufio.NewReaderSize(silenceReader{c, silence}, size), max: frameMax}
}

var errClosed = errors.New("the other end closed the connection")

// errPingExpected: something else came where only answers to pings do.
var errPingExpected = errors.New("it sent something else than answers to pings on a connection of this member")

// next returns the next frame in memory of its own, or the next ping, which is valid
// until the next call and has its length before it.
func (r *frameReader) next() (frame, ping []byte, err error) {
	if _, err := io.ReadFull(r.in, r.head[:lengthSize]); err != nil {
		if err == io.EOF {
			err = errClosed
		}
		return nil, nil, err
	}
	switch size := binary.BigEndian.Uint32(r.head[:]); {
	case size == pingMark|pingSize:
		_, err := io.ReadFull(r.in, r.head[lengthSize:])
		return nil, r.head[:], err
	case size == 0:
		return nil, nil, errors.New("it sent an empty frame")
	case uint64(size) > uint64(r.max):
		return nil, nil, fmt.Errorf("it announced a frame of %d bytes, at most %d", size, r.max)
	default:
		frame, err := r.body(int(size))
		return frame, nil, err
	}
}

// body reads a frame of size bytes. Memory grows with what has come, not with what the
// length claims.
func (r *frameReader) body(size int) ([]byte, error) {
	frame := make([]byte, min(size, chunkSize))
	n, err := io.ReadFull(r.in, frame)
	for err == nil && n < size {
		frame = append(frame, make([]byte, min(size-n, n))...)
		var more int
		more, err = io.ReadFull(r.in, frame[n:])
		n += more
	}
	if err != nil {
		return nil, fmt.Errorf("after %d of %d bytes of a frame: %w", n, size, err)
	}
	return frame, nil
}
