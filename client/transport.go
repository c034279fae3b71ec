package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tenure-dev/tenure/wire"
)

const (
	readBufferBytes  = 64 << 10
	writeBufferBytes = 32 << 10
	gatherBytes      = 64 << 10 // that many are written without waiting for a flush
)

// transport is the byte stream under the websocket. It gathers several messages into
// one write, and it takes every byte that comes as a sign of life, so that one large
// answer on a slow link does not look like a dead server. One goroutine reads and one
// writes at a time.
type transport struct {
	net.Conn
	// silence is how long nothing may come, or be taken, before the connection is given
	// up; 0 during the handshakes, which have a deadline of their own and do not gather.
	silence time.Duration
	out     []byte
	began   time.Time
	// alive is when something last came that a server sends only if it gets on with its work: a
	// bare pong is not. Reader only.
	alive time.Time
	// heard is when anything last came, in nanoseconds since began.
	heard atomic.Int64
	// greeting is the first byte that came, 0 while none has.
	greeting byte
}

const (
	// barePong is a websocket pong of a server to an empty ping.
	barePong = "\x8a\x00"
	// closeFrame is the first byte of a close frame.
	closeFrame = 0x88
)

func (t *transport) Read(p []byte) (int, error) {
	if t.silence == 0 {
		n, err := t.Conn.Read(p)
		if n > 0 && t.greeting == 0 {
			t.greeting = p[0]
		}
		return n, err
	}
	if err := t.Conn.SetReadDeadline(t.alive.Add(t.silence)); err != nil {
		return 0, err
	}
	n, err := t.Conn.Read(p)
	if n > 0 {
		now := time.Now()
		t.heard.Store(int64(now.Sub(t.began)))
		if n != len(barePong) || string(p[:n]) != barePong {
			t.alive = now
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("client: nothing received for %v: %w", t.silence, err)
	}
	return n, err
}

func (t *transport) Write(p []byte) (int, error) {
	switch {
	case t.silence == 0:
		return t.Conn.Write(p)
	case len(p) > 0 && p[0] == closeFrame:
		// From the reader: the websocket refuses what came, and the connection ends. The client
		// sends none, and out is the writer's.
		return len(p), nil
	}
	t.out = append(t.out, p...)
	if len(t.out) >= gatherBytes {
		return len(p), t.flush()
	}
	return len(p), nil
}

func (t *transport) flush() error {
	if len(t.out) == 0 {
		return nil
	}
	if err := t.Conn.SetWriteDeadline(time.Now().Add(t.silence)); err != nil {
		return err
	}
	_, err := t.Conn.Write(t.out)
	t.out = t.out[:0]
	return err
}

// SetWriteDeadline is left to flush once messages are gathered.
func (t *transport) SetWriteDeadline(at time.Time) error {
	if t.silence == 0 {
		return t.Conn.SetWriteDeadline(at)
	}
	return nil
}

// connect makes one attempt: dial, TLS, websocket, and the exchange that opens or
// resumes session s. It takes limit at most; errors name the endpoint.
func (c *Client) connect(ctx context.Context, s *Session, ep endpoint, limit time.Duration) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cn, err := c.handshake(ctx, s, ep)
	if err == nil {
		return cn, nil
	}
	if cn != nil {
		cn.close()
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v: %w", limit, err)
	}
	return nil, &connectError{name: ep.name, err: err}
}

func (c *Client) handshake(ctx context.Context, s *Session, ep endpoint) (*conn, error) {
	t := &transport{began: time.Now()}
	ws, err := c.dialWebsocket(ctx, t, ep.url)
	if err != nil {
		return nil, err
	}
	cn := newConn(c, s, ws, t, ep)
	if got := ws.Subprotocol(); got != subprotocol {
		return cn, fmt.Errorf("%w: it chose %q", errSubprotocol, got)
	}
	defer closeAfter(ctx, t)()
	req := c.connectRequest(s)
	sent := time.Now()
	if err := ws.WriteMessage(websocket.BinaryMessage, codec.AppendConnect(nil, &req)); err != nil {
		return cn, err
	}
	_, msg, err := ws.ReadMessage()
	if err != nil {
		if req.LastZxid > 0 && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", ErrHistoryBehind, err)
		}
		return cn, err
	}
	rep, err := codec.DecodeConnectReply(msg)
	if err != nil {
		return cn, fmt.Errorf("%w: %w", errProtocol, err)
	}
	if err := checkConnectReply(&req, &rep); err != nil {
		return cn, err
	}
	c.attach(cn, &rep, sent)
	return cn, nil
}

func checkConnectReply(req *wire.ConnectRequest, rep *wire.ConnectReply) error {
	switch {
	case rep.TimeoutMs <= 0 || rep.Session == 0:
		if req.Session == 0 {
			return errors.New("client: server refused to open a session")
		}
		return errRefused
	case req.Session != 0 && rep.Session != req.Session:
		return fmt.Errorf("%w: asked to resume session %v it answered %v", errProtocol, req.Session, rep.Session)
	}
	return nil
}

// dialWebsocket dials and upgrades. The error of a server that answered says what it
// answered: that tells a plain port from a TLS port and a wrong path.
func (c *Client) dialWebsocket(ctx context.Context, t *transport, url string) (*websocket.Conn, error) {
	undo := func() {}
	defer func() { undo() }()
	over := func(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			t.Conn = nc
			undo = closeAfter(ctx, t)
			return t, nil
		}
	}
	dialer := websocket.Dialer{
		Subprotocols:   []string{subprotocol},
		ReadBufferSize: readBufferBytes, WriteBufferSize: writeBufferBytes,
		NetDialContext: over(c.o.Dial), NetDialTLSContext: over(c.dialTLS),
	}
	ws, resp, err := dialer.DialContext(ctx, url, nil)
	if errors.Is(err, websocket.ErrBadHandshake) && resp != nil {
		return nil, newStatusError(resp, err)
	}
	if err != nil && t.Conn != nil && ctx.Err() == nil {
		err = judgeGreeting(err, t.greeting, strings.HasPrefix(url, "wss:"))
	}
	return ws, err
}

// closeAfter closes t when ctx ends, which interrupts whatever reads or writes it,
// until the returned function is called.
func closeAfter(ctx context.Context, t *transport) (undo func()) {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		t.Conn.Close()
		close(closed)
	})
	return func() {
		if !stop() {
			<-closed
		}
	}
}

func (c *Client) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	raw, err := c.o.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{}
	if c.o.TLS != nil {
		cfg = c.o.TLS.Clone()
	}
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(addr)
	}
	cfg.NextProtos = []string{"http/1.1"}
	tc := tls.Client(raw, cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, tlsError(err)
	}
	return tc, nil
}

// tlsError says in words what a server without TLS looks like.
func tlsError(err error) error {
	if _, plain := errors.AsType[tls.RecordHeaderError](err); plain {
		return fmt.Errorf("the server does not speak TLS on this port: %w", err)
	}
	return err
}

// isTooBig reports whether the server said that a message is over its limit.
func isTooBig(err error) bool {
	closed, ok := errors.AsType[*websocket.CloseError](err)
	return ok && closed.Code == websocket.CloseMessageTooBig
}
