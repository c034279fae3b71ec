package peer

import (
	"encoding/binary"
	"sync"
	"syscall"
)

// directMax bounds the frames that their sender writes itself.
const directMax = 64 << 10

// queue holds the frames that wait for one connection's writer. Senders wake the writer
// only if it sleeps. While it does, a sender of a small frame on a plain connection writes
// it itself, as far as that does not block: a change of goroutines costs more than the write.
type queue struct {
	sent  *counters
	limit int           // bytes, of frames that wait and that are being written
	wake  chan struct{} // has a token if the writer slept and need not any more
	mu    struct {
		sync.Mutex
		open     bool // there is a connection
		sleeping bool // the writer waits for wake
		frames   [][]byte
		bytes    int
		raw      syscall.RawConn // nil: only the writer writes
		buf      []byte          // for one frame
		rest     []byte          // of a frame that was written in part, goes first
	}
}

// push adds a frame. False: there is no connection, or no room.
func (q *queue) push(frame []byte) bool {
	q.mu.Lock()
	if !q.mu.open || q.mu.bytes+len(frame) > q.limit {
		q.mu.Unlock()
		return false
	}
	if q.mu.sleeping && q.mu.raw != nil && len(frame) <= directMax && q.writeLocked(frame) {
		q.mu.Unlock()
		return true
	}
	q.mu.frames = append(q.mu.frames, frame)
	q.mu.bytes += len(frame)
	wake := q.mu.sleeping
	q.mu.sleeping = false
	q.mu.Unlock()
	if wake {
		q.signal()
	}
	return true
}

// writeLocked writes a frame while the writer sleeps and reports whether it is out. If only a
// part is, the rest is left to the writer; an error is, too, which it will meet itself.
func (q *queue) writeLocked(frame []byte) bool {
	q.mu.buf = append(binary.BigEndian.AppendUint32(q.mu.buf[:0], uint32(len(frame))), frame...)
	n := 0
	// Without a write the deadline of an earlier one has passed; the writer sets a new one.
	_ = q.mu.raw.Write(func(fd uintptr) bool {
		n, _ = syscall.Write(int(fd), q.mu.buf)
		return true
	})
	if n <= 0 {
		return false
	}
	q.sent.sentFrames.Add(1)
	q.sent.sentBytes.Add(uint64(len(frame)))
	if n < len(q.mu.buf) {
		q.mu.rest = append(q.mu.rest, q.mu.buf[n:]...)
		q.mu.sleeping = false
		q.signal()
	}
	return true
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns what is left of a frame to be written first, and all frames that wait, in
// exchange for an array to gather the next in. If there is nothing and the writer may sleep,
// the next push writes by itself or signals wake. False: the queue was closed.
func (q *queue) take(spare [][]byte, sleep bool) (rest []byte, frames [][]byte, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	rest, q.mu.rest = q.mu.rest, nil
	q.mu.sleeping = sleep && len(rest) == 0 && len(q.mu.frames) == 0
	frames, q.mu.frames = q.mu.frames, spare
	return rest, frames, q.mu.open
}

// written makes the room free that frames took.
func (q *queue) written(bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.open {
		q.mu.bytes -= bytes
	}
}

// open lets frames in for a connection; the writer that took the earlier ones has ended.
func (q *queue) open(c conn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.open, q.mu.sleeping, q.mu.rest = true, false, nil
	if plain, ok := c.Conn.(syscall.Conn); ok && c.Conn == c.raw {
		q.mu.raw, _ = plain.SyscallConn() // without one the writer writes
	}
}

// close lets no more frames in, ends the writer and returns how many frames are lost.
func (q *queue) close() (lost int) {
	q.mu.Lock()
	lost = len(q.mu.frames)
	q.mu.open, q.mu.raw, q.mu.frames, q.mu.bytes = false, nil, nil, 0
	q.mu.Unlock()
	q.signal()
	return lost
}

// size returns the bytes of the frames that wait or are being written.
func (q *queue) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.bytes
}
