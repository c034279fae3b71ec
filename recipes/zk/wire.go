package zk

import (
	"encoding/binary"
	"fmt"
	"net"
	"time"
)

// wire is one connection, with what is seen on it noted in the line. The library writes
// from one goroutine at a time and reads from one.
type wire struct {
	net.Conn
	raw      net.Conn // below TLS
	line     *line
	requests requests
	replies  replies
	greeted  bool // the server's handshake was read; owned by the reader
}

// unsentError is a request of which no byte was written.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

// Write notes when transactions that only check begin to be written.
func (w *wire) Write(p []byte) (int, error) {
	began := time.Now()
	if len(w.requests.partial) > 0 {
		began = time.Time{} // the frame began earlier: this is no proof
	}
	w.requests.note(p, func(payload []byte) {
		if checksOnly(payload) && !began.IsZero() {
			w.line.checking(began)
		}
	})
	n, err := w.Conn.Write(p)
	if err != nil {
		w.Close()
		if n == 0 {
			err = unsentError{err}
		}
	}
	return n, err
}

// Read notes the handshake, and that the server lives.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.line.heard(time.Now())
		if err := w.replies.note(p[:n], w.reply); err != nil {
			w.Close()
			return 0, err
		}
	}
	if err != nil {
		w.Close() // also ends a Write that waits: the library would wait for that
	}
	return n, err
}

func (w *wire) reply(size int, head []byte) error {
	if size > replyBytesMax {
		return fmt.Errorf("reply of %d bytes: at most %d are taken", size, replyBytesMax)
	}
	if w.greeted {
		return nil
	}
	if len(head) < handshakeHead {
		return fmt.Errorf("handshake of %d bytes: too short", size)
	}
	w.greeted = true
	if err := w.Conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	timeout := time.Duration(int32(binary.BigEndian.Uint32(head[4:]))) * time.Millisecond
	return w.line.granted(int64(binary.BigEndian.Uint64(head[8:])), timeout)
}

// Close closes at once: TLS would wait to say so to the server.
func (w *wire) Close() error { return w.raw.Close() }

// SetReadDeadline does nothing before the handshake is complete: the line's own deadline
// is there, the library's would be 6.7 session timeouts.
func (w *wire) SetReadDeadline(t time.Time) error {
	if !w.greeted {
		return nil
	}
	return w.Conn.SetReadDeadline(t)
}
