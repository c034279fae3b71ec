package client

import (
	"bufio"
	"net"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
)

// rawConn gathers what a benchmark's server writes until it has read everything.
type rawConn struct {
	transport
	r *bufio.Reader
}

func (r *rawConn) Read(p []byte) (int, error) { return r.r.Read(p) }
func (r *rawConn) buffered() int              { return r.r.Buffered() }

// SetDeadline is called by the upgrade only.
func (r *rawConn) SetDeadline(time.Time) error { return nil }

// rawHijacker lets the upgrader take a connection that no http.Server holds.
type rawHijacker struct {
	rc     *rawConn
	header http.Header
}

func (h *rawHijacker) Header() http.Header         { return h.header }
func (h *rawHijacker) Write(p []byte) (int, error) { return h.rc.Write(p) }
func (h *rawHijacker) WriteHeader(int)             {}
func (h *rawHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	small := bufio.NewReaderSize(h.rc, 16) // too small to be reused: the upgrader reads rc itself
	return h.rc, bufio.NewReadWriter(small, bufio.NewWriterSize(h.rc, 4096)), nil
}

func rawUpgrade(nc net.Conn) (*websocket.Conn, *rawConn, error) {
	rc := &rawConn{r: bufio.NewReaderSize(nc, 64<<10)}
	rc.Conn = nc
	req, err := http.ReadRequest(rc.r)
	if err != nil {
		return nil, nil, err
	}
	up := websocket.Upgrader{Subprotocols: []string{subprotocol}, ReadBufferSize: 512}
	ws, err := up.Upgrade(&rawHijacker{rc, http.Header{}}, req, nil)
	if err != nil {
		return nil, nil, err
	}
	rc.silence = time.Hour
	return ws, rc, nil
}
