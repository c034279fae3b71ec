package server

import (
	"io"
	"net"
	"sync"
	"time"
)

const (
	readChunk  = 32 << 10
	writeChunk = 64 << 10 // replies are written out at this size at the latest
)

// Buffers are lent to a connection only while bytes move, so that an idle one costs
// no more than its small websocket read buffer.
var (
	readBuffers  = sync.Pool{New: func() any { return new([readChunk]byte) }}
	writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}
)

// gatherConn is a net.Conn that gathers writes until Flush and reads ahead in large
// pieces while a peer sends much. It is handed to the websocket library, which
// makes one Write per message: a batch of replies thus costs one system call. Before
// gather is called it passes writes through (the HTTP handshake).
//
// Read is for one goroutine; the rest may be called by any.
type gatherConn struct {
	net.Conn

	// idle, if set, is called when all received bytes are used up and Read is about
	// to block; arrived when bytes came in.
	idle    func()
	arrived func()
	// closed, if set, is called once when the connection is closed.
	closed func()
	once   sync.Once

	ahead    *[readChunk]byte // nil unless bytes were read ahead
	aheadPos int
	aheadEnd int
	more     bool // the last read filled its buffer, so more is waiting

	mu struct {
		sync.Mutex
		gathering    bool
		out          *[]byte
		writeTimeout time.Duration
	}
}

func (g *gatherConn) Read(p []byte) (int, error) {
	if g.ahead != nil {
		return g.fromAhead(p), nil
	}
	if g.idle != nil {
		g.idle()
	}
	var n int
	var err error
	if g.more && len(p) < readChunk {
		g.ahead = readBuffers.Get().(*[readChunk]byte)
		n, err = g.Conn.Read(g.ahead[:])
		g.aheadPos, g.aheadEnd, g.more = 0, n, n == readChunk
		n = g.fromAhead(p)
	} else {
		n, err = g.Conn.Read(p)
		g.more = n == len(p)
	}
	if n > 0 && g.arrived != nil {
		g.arrived()
	}
	return n, err
}

func (g *gatherConn) fromAhead(p []byte) int {
	n := copy(p, g.ahead[g.aheadPos:g.aheadEnd])
	g.aheadPos += n
	if g.aheadPos == g.aheadEnd {
		readBuffers.Put(g.ahead)
		g.ahead = nil
	}
	return n
}

// Close closes the connection; it may be called more than once.
func (g *gatherConn) Close() error {
	err := g.Conn.Close()
	if g.closed != nil {
		g.once.Do(g.closed)
	}
	return err
}

// closeWait is what a peer has to close its side after the server has closed its own.
const closeWait = time.Second

// closeWrites ends the writing side. The reader is left a moment, since closing a socket
// with unread input makes the kernel drop what was sent; then it ends too.
func (g *gatherConn) closeWrites() {
	if half, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
	g.SetReadDeadline(time.Now().Add(closeWait))
}

// drain reads what the peer still sends, until it closes or closeWait is over, and closes
// the socket. The last call of its reader.
func (g *gatherConn) drain() {
	io.CopyBuffer(io.Discard, io.LimitReader(g.Conn, 1<<20), make([]byte, 512))
	g.Close()
}

// gather makes later writes wait for Flush.
func (g *gatherConn) gather(writeTimeout time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.gathering, g.mu.writeTimeout = true, writeTimeout
}

// limitWrites shortens the write timeout.
func (g *gatherConn) limitWrites(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.writeTimeout = min(g.mu.writeTimeout, d)
}

func (g *gatherConn) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mu.gathering {
		return g.Conn.Write(p)
	}
	if g.mu.out == nil {
		g.mu.out = writeBuffers.Get().(*[]byte)
	}
	*g.mu.out = append(*g.mu.out, p...)
	if len(*g.mu.out) >= writeChunk {
		return len(p), g.flushLocked()
	}
	return len(p), nil
}

// Flush writes out what was gathered, within the write timeout.
func (g *gatherConn) Flush() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.flushLocked()
}

func (g *gatherConn) flushLocked() error {
	if g.mu.out == nil {
		return nil
	}
	out := g.mu.out
	g.mu.out = nil
	defer putBuffer(out)
	if err := g.Conn.SetWriteDeadline(time.Now().Add(g.mu.writeTimeout)); err != nil {
		return err
	}
	_, err := g.Conn.Write(*out)
	return err
}

// SetWriteDeadline is Flush's business once writes are gathered: the websocket
// library sets one per message.
func (g *gatherConn) SetWriteDeadline(t time.Time) error {
	g.mu.Lock()
	gathering := g.mu.gathering
	g.mu.Unlock()
	if gathering {
		return nil
	}
	return g.Conn.SetWriteDeadline(t)
}

// putBuffer returns a lent buffer unless it has grown out of the ordinary.
func putBuffer(b *[]byte) {
	if cap(*b) <= 4*writeChunk {
		*b = (*b)[:0]
		writeBuffers.Put(b)
	}
}
