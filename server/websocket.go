package server

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tenure-dev/tenure/wire"
)

// The websocket subprotocols of /v1/ws: one model, two encodings.
const (
	subprotocolJute = "tenure.v1.jute"
	subprotocolJSON = "tenure.v1.json"
)

// wsReadBuffer is what an idle connection keeps; gatherConn reads ahead when more comes.
const wsReadBuffer = 256

// wsWriteBuffers lends the websocket library its write buffers.
var wsWriteBuffers sync.Pool

// wsDoor frames messages as websocket messages.
type wsDoor struct {
	ws   *websocket.Conn
	nc   *gatherConn
	kind int // websocket.BinaryMessage or TextMessage
	lent *[]byte
}

// upgrade answers GET /v1/ws and leaves a goroutine of its own to the connection, so
// that the HTTP server's buffers and stack are free.
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request) {
	offered := websocket.Subprotocols(r)
	codec, kind, limit := chooseCodec(offered, s.cfg.MaxMessageBytes)
	if codec == nil {
		http.Error(w, "offer the websocket subprotocol "+subprotocolJute+" or "+subprotocolJSON, http.StatusUpgradeRequired)
		return
	}
	ws, err := s.upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	nc := ws.NetConn().(*gatherConn)
	d := &wsDoor{ws: ws, nc: nc, kind: kind}
	c := newConn(s, d, codec, r.RemoteAddr, identities(nc))
	c.terms = &s.nativeTerms
	nc.gather(s.cfg.WriteTimeout)
	ws.SetPingHandler(func(data string) error {
		ws.WriteControl(websocket.PongMessage, []byte(data), time.Time{})
		return nc.Flush()
	})
	ws.SetCloseHandler(func(int, string) error { return nil }) // the worker answers it
	nc.idle, nc.arrived = c.workInline, c.heard
	ws.SetReadLimit(limit)
	// Only a client that is gone needs longer than the session for a first message.
	nc.SetReadDeadline(time.Now().Add(s.cfg.HandshakeTimeout))
	if !s.enter(c) {
		d.Close(closeReason{closeRestart, "stopping"}) // nobody else has it yet
		d.Finish()
		return
	}
	go c.serve()
}

// chooseCodec picks the first subprotocol that both sides know. JSON needs base64 for
// data, so that its messages are larger for the same request.
func chooseCodec(offered []string, limit int64) (wire.ServerCodec, int, int64) {
	for _, p := range offered {
		switch p {
		case subprotocolJute:
			return wire.Jute{}, websocket.BinaryMessage, limit
		case subprotocolJSON:
			return wire.JSON{}, websocket.TextMessage, limit*4/3 + 4096
		}
	}
	return nil, 0, 0
}

// Next implements door. The buffer is lent until the next call, so that an idle
// connection holds none.
func (d *wsDoor) Next() ([]byte, error) {
	if d.lent != nil {
		putBuffer(d.lent)
		d.lent = nil
	}
	kind, r, err := d.ws.NextReader()
	if err != nil {
		return nil, err
	}
	if kind != d.kind {
		return nil, refusal{closeReason{websocket.CloseUnsupportedData, "text message on a binary subprotocol or the reverse"}}
	}
	d.lent = writeBuffers.Get().(*[]byte)
	*d.lent, err = readAll(r, (*d.lent)[:0])
	return *d.lent, err
}

// readAll appends all of r to b.
func readAll(r io.Reader, b []byte) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}

// Write implements door.
func (d *wsDoor) Write(run []byte) error {
	for len(run) > 0 {
		n := int(run[0])<<24 | int(run[1])<<16 | int(run[2])<<8 | int(run[3])
		if err := d.ws.WriteMessage(d.kind, run[4:4+n]); err != nil {
			return err
		}
		run = run[4+n:]
	}
	return d.nc.Flush()
}

// Opened implements door: from here on only the session's end ends a silent connection.
func (d *wsDoor) Opened() { d.nc.SetReadDeadline(time.Time{}) }

// Ping implements door.
func (d *wsDoor) Ping() error {
	if err := d.ws.WriteMessage(websocket.PingMessage, nil); err != nil {
		return err
	}
	return d.nc.Flush()
}

// Close implements door: it says why and ends the writing side.
func (d *wsDoor) Close(why closeReason) {
	text := why.text
	if len(text) > 120 { // a control frame holds 125 bytes
		text = text[:120]
	}
	d.nc.limitWrites(closeWait)
	d.ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(why.code, text))
	d.nc.Flush()
	d.nc.closeWrites()
}

// Finish implements door.
func (d *wsDoor) Finish() {
	d.nc.drain()
	if d.lent != nil {
		putBuffer(d.lent)
	}
}

// Abort implements door.
func (d *wsDoor) Abort() { d.nc.Conn.Close() }

// readFailure is what a connection is told when its next message can't be read.
func readFailure(err error) closeReason {
	if r, ok := errors.AsType[refusal](err); ok {
		return r.closeReason
	}
	if errors.Is(err, websocket.ErrReadLimit) {
		return closeReason{closeTooBig, "message larger than max-message-bytes"}
	}
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return closeReason{closeTimeout, "the first message did not come in time"}
	}
	return closeReason{closeGoingAway, "read: " + err.Error()}
}
