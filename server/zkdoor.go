package server

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/wire"
)

// zkReadBuffer is what an idle connection keeps; gatherConn reads ahead when more comes.
const zkReadBuffer = 256

// zkDoor frames messages as ZooKeeper does: each behind its length in 4 bytes, which is
// how they are in the outbox already.
type zkDoor struct {
	nc           *gatherConn
	in           *bufio.Reader
	limit        int64
	writeTimeout time.Duration
	lent         *[]byte
}

// serveZooKeeper accepts clients of ZooKeeper's protocol until l is closed.
func (s *Server) serveZooKeeper(l net.Listener) {
	for {
		nc, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // out of descriptors, most likely
			s.log.Warn("accept failed", "addr", l.Addr(), "err", err)
			<-time.After(handshakeAcceptWait)
		default:
			s.welcome(nc.(*gatherConn))
		}
	}
}

// welcome leaves a goroutine of its own to a client of ZooKeeper's protocol.
func (s *Server) welcome(nc *gatherConn) {
	d := &zkDoor{nc: nc, in: bufio.NewReaderSize(nc, zkReadBuffer), limit: s.cfg.MaxMessageBytes, writeTimeout: s.cfg.WriteTimeout}
	c := newConn(s, d, wire.ZooKeeper{}, nc.RemoteAddr().String(), identities(nc))
	c.terms = &s.zkTerms
	nc.idle, nc.arrived = c.workInline, c.heard
	nc.SetReadDeadline(time.Now().Add(s.cfg.HandshakeTimeout))
	if !s.enter(c) {
		nc.Close()
		return
	}
	go func() {
		if word := d.word(); word != "" {
			defer c.gone()
			s.answerWord(c, word, d.in, nc)
			c.close(closeReason{closeNormal, word})
			return
		}
		c.serve()
	}()
}

// word returns the four-letter word that the connection begins with, "" if it begins with
// anything else. A message whose length has the letters of a word would be over a gigabyte.
func (d *zkDoor) word() string {
	head, err := d.in.Peek(4)
	if err != nil || !isWord(string(head)) {
		return ""
	}
	d.in.Discard(4)
	return string(head)
}

// Next implements door. The buffer is lent until the next call, so that an idle
// connection holds none.
func (d *zkDoor) Next() ([]byte, error) {
	if d.lent != nil {
		putBuffer(d.lent)
		d.lent = nil
	}
	head, err := d.in.Peek(4)
	if err != nil {
		return nil, err
	}
	n := int64(int32(binary.BigEndian.Uint32(head)))
	if n < 0 || n > d.limit {
		return nil, refusal{closeReason{closeTooBig, fmt.Sprintf("a message of %d bytes: 0 to max-message-bytes %d are allowed", n, d.limit)}}
	}
	d.in.Discard(4)
	d.lent = writeBuffers.Get().(*[]byte)
	return d.fill(int(n))
}

// fill reads a message of n bytes in pieces, so that memory is spent on what came and not
// on what was announced.
func (d *zkDoor) fill(n int) ([]byte, error) {
	b := (*d.lent)[:0]
	for len(b) < n {
		step := min(n-len(b), max(cap(b)-len(b), readChunk))
		at := len(b)
		b = append(b, make([]byte, step)...)
		if _, err := io.ReadFull(d.in, b[at:]); err != nil {
			*d.lent = b
			return nil, err
		}
	}
	*d.lent = b
	return b, nil
}

// zkWriteStep is what a client must read within the write timeout.
const zkWriteStep = 1 << 20

// Write implements door.
func (d *zkDoor) Write(run []byte) error {
	for step := range slices.Chunk(run, zkWriteStep) {
		if err := d.nc.SetWriteDeadline(time.Now().Add(d.writeTimeout)); err != nil {
			return err
		}
		if _, err := d.nc.Write(step); err != nil {
			return err
		}
	}
	return nil
}

// Opened implements door: from here on only the session's end ends a silent connection.
func (d *zkDoor) Opened() { d.nc.SetReadDeadline(time.Time{}) }

// Ping implements door. ZooKeeper's server sends nothing by itself but events: its clients
// send heartbeats, whose answers keep proxies from cutting the connection.
func (d *zkDoor) Ping() error { return nil }

// Close implements door. The protocol has no words for a reason: a client sees the end of
// the connection, and what that means when it resumes its session.
func (d *zkDoor) Close(closeReason) { d.nc.closeWrites() }

// Finish implements door.
func (d *zkDoor) Finish() {
	d.nc.drain()
	if d.lent != nil {
		putBuffer(d.lent)
	}
}

// Abort implements door.
func (d *zkDoor) Abort() { d.nc.Conn.Close() }
