package client

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// fakeEnsemble is a server for tests: one state, any number of members (addresses) that
// all serve it, in memory, so that it runs in a synctest bubble. Its fields are faults;
// set them through with. It follows the rules a client relies on: replies in order,
// events before the state that caused them, writes applied once per Seq.
type fakeEnsemble struct {
	mu       sync.Mutex
	tree     *znode.Tree
	sessions map[session.ID]*fakeSession
	history  []znode.Delta
	members  map[string]*fakeMember
	conns    map[*fakeConn]bool

	// forgotten is the zxid up to which the history is gone.
	forgotten int64
	timeoutMs int32 // largest one granted; 0 = any
	// before and after are asked about each request, before and after it is applied.
	before, after func(fc *fakeConn, req *wire.Request) verdict
	// secret is the only digest that is accepted, "" = any.
	secret string

	dials, attaches int
	seen            []seenRequest
}

// verdict is what a fault does to one request.
type verdict int

const (
	goOn   verdict = iota
	cut            // close the connection
	ignore         // never answer
)

type seenRequest struct {
	conn int
	op   wire.Op
}

type fakeSession struct {
	s       session.Session
	conn    *fakeConn
	expiry  *time.Timer
	results map[int64]*znode.Result
}

// fakeMember is one address. Its fields are faults.
type fakeMember struct {
	ln *pipeListener
	// down refuses, hang lets dials hang, mute accepts and never says anything more,
	// slam accepts and closes after the upgrade, behind closes instead of the reply to
	// connect.
	down, hang, mute, slam, behind bool
	slow                           func(net.Conn) net.Conn // wraps the server's side
}

func newFake(t testing.TB, addrs ...string) *fakeEnsemble {
	f := &fakeEnsemble{
		tree: znode.NewTree(), sessions: map[session.ID]*fakeSession{},
		members: map[string]*fakeMember{}, conns: map[*fakeConn]bool{},
	}
	var wg sync.WaitGroup
	for _, addr := range addrs {
		m := &fakeMember{ln: newPipeListener()}
		f.members[addr] = m
		srv := f.httpServer(m)
		wg.Go(func() { _ = srv.Serve(m.ln) })
		t.Cleanup(func() { srv.Close() })
	}
	t.Cleanup(func() {
		f.with(func() {
			for fc := range f.conns {
				fc.close()
			}
			for _, s := range f.sessions {
				s.expiry.Stop()
			}
		})
	})
	return f
}

func (f *fakeEnsemble) httpServer(m *fakeMember) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc(doorPath, func(w http.ResponseWriter, r *http.Request) { f.serve(m, w, r) })
	return &http.Server{Handler: mux, ErrorLog: log.New(io.Discard, "", 0)}
}

// with runs fn while no request is handled.
func (f *fakeEnsemble) with(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

// cutAll closes every connection.
func (f *fakeEnsemble) cutAll() {
	f.with(func() {
		for fc := range f.conns {
			fc.close()
		}
	})
}

// dial is for Options.Dial.
func (f *fakeEnsemble) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	f.mu.Lock()
	f.dials++
	m := f.members[addr]
	hang := m != nil && m.hang
	refuse := m == nil || m.down
	f.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if refuse {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused by " + addr)}
	}
	return m.ln.dial(m.slow)
}

// pipeListener is a net.Listener in memory.
type pipeListener struct {
	accept chan net.Conn
	done   chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{accept: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) dial(wrap func(net.Conn) net.Conn) (net.Conn, error) {
	near, far := net.Pipe()
	if wrap != nil {
		far = wrap(far)
	}
	select {
	case l.accept <- far:
		return near, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.accept:
		return nc, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// fakeConn is one connection at the server.
type fakeConn struct {
	f       *fakeEnsemble
	number  int
	ws      *websocket.Conn
	out     chan struct{} // capacity 1
	sess    *fakeSession
	auth    []znode.Identity
	pending [][]byte // guarded by f.mu
	closed  bool     // likewise
	last    []byte   // close frame to send after pending
	// cutAfterPending closes without a close frame, after what is pending was sent.
	cutAfterPending bool
	watches         fakeWatches
}

func (f *fakeEnsemble) serve(m *fakeMember, w http.ResponseWriter, r *http.Request) {
	up := websocket.Upgrader{Subprotocols: []string{subprotocol}, ReadBufferSize: 64 << 10, WriteBufferSize: 64 << 10}
	ws, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	f.mu.Lock()
	f.attaches++
	fc := &fakeConn{f: f, number: f.attaches, ws: ws, out: make(chan struct{}, 1), watches: newFakeWatches()}
	mute, slam := m.mute, m.slam
	f.conns[fc] = true
	f.mu.Unlock()
	var wg sync.WaitGroup
	defer func() {
		f.with(func() {
			fc.close()
			delete(f.conns, fc)
		})
		wg.Wait()
	}()
	if slam {
		return
	}
	_, msg, err := ws.ReadMessage()
	if err != nil {
		return
	}
	if mute {
		_, _, _ = ws.ReadMessage()
		return
	}
	wg.Go(fc.writeLoop)
	if !f.handshake(fc, m, msg) {
		if fc.last != nil {
			_, _, _ = ws.ReadMessage() // until the refusal is out
		}
		return
	}
	for {
		_, msg, err := ws.ReadMessage()
		if err != nil {
			return
		}
		req, err := wire.Jute{}.DecodeRequest(msg)
		if err != nil || !f.handle(fc, m, &req) {
			return
		}
	}
}

// close needs f.mu.
func (fc *fakeConn) close() {
	if !fc.closed {
		fc.closed = true
		fc.ws.Close()
		fc.wake()
	}
}

// closeWith needs f.mu. It closes with a code, after what is pending was sent.
func (fc *fakeConn) closeWith(code int) {
	fc.last = websocket.FormatCloseMessage(code, "")
	fc.wake()
}

func (fc *fakeConn) wake() {
	select {
	case fc.out <- struct{}{}:
	default:
	}
}

// push needs f.mu.
func (fc *fakeConn) push(msg []byte) {
	if fc.cutAfterPending {
		return
	}
	fc.pending = append(fc.pending, msg)
	fc.wake()
}

func (fc *fakeConn) writeLoop() {
	for range fc.out {
		fc.f.mu.Lock()
		batch, closed, last, cutNow := fc.pending, fc.closed, fc.last, fc.cutAfterPending
		fc.pending = nil
		fc.f.mu.Unlock()
		if closed {
			return
		}
		for _, msg := range batch {
			if fc.ws.WriteMessage(websocket.BinaryMessage, msg) != nil {
				return
			}
		}
		if cutNow {
			fc.f.with(fc.close)
			return
		}
		if last != nil {
			_ = fc.ws.WriteControl(websocket.CloseMessage, last, time.Now().Add(time.Second))
			fc.f.with(fc.close)
			return
		}
	}
}

func (f *fakeEnsemble) handshake(fc *fakeConn, m *fakeMember, msg []byte) bool {
	req, err := wire.Jute{}.DecodeConnect(msg)
	if err != nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.behind || req.LastZxid > f.tree.LastZxid() {
		return false
	}
	fs := f.sessions[req.Session]
	switch {
	case req.Session == 0:
		timeoutMs := req.TimeoutMs
		if f.timeoutMs != 0 {
			timeoutMs = min(timeoutMs, f.timeoutMs)
		}
		r := f.apply(&znode.Txn{Op: &znode.OpenSession{TimeoutMs: timeoutMs, Password: [16]byte{1, 2, 3}}})
		fs = &fakeSession{s: r.Session, results: map[int64]*znode.Result{}}
		f.sessions[fs.s.ID] = fs
		fs.expiry = time.AfterFunc(time.Duration(timeoutMs)*time.Millisecond, func() { f.expire(fs) })
	case fs == nil || string(req.Password) != string(fs.s.Password[:]):
		fc.push(wire.Jute{}.AppendConnectReply(nil, &wire.ConnectReply{}))
		fc.closeWith(websocket.CloseNormalClosure)
		return false
	case fs.conn != nil && fs.conn != fc:
		fs.conn.close()
	}
	fs.conn, fc.sess = fc, fs
	f.touch(fs)
	fc.push(wire.Jute{}.AppendConnectReply(nil, &wire.ConnectReply{
		TimeoutMs: fs.s.TimeoutMs, Session: fs.s.ID, Password: fs.s.Password,
	}))
	return true
}

func (f *fakeEnsemble) touch(fs *fakeSession) {
	fs.expiry.Reset(time.Duration(fs.s.TimeoutMs) * time.Millisecond)
}

func (f *fakeEnsemble) expire(fs *fakeSession) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endSession(fs, true)
}

// endSession needs mu.
func (f *fakeEnsemble) endSession(fs *fakeSession, expired bool) {
	if f.sessions[fs.s.ID] != fs {
		return
	}
	delete(f.sessions, fs.s.ID)
	fs.expiry.Stop()
	f.apply(&znode.Txn{Op: &znode.CloseSession{Session: fs.s.ID, Expired: expired}})
	if fs.conn != nil && expired {
		fs.conn.close()
	}
}

// expireAll ends every session as if its client had been silent.
func (f *fakeEnsemble) expireAll() {
	f.with(func() {
		for _, fs := range f.sessions {
			f.endSession(fs, true)
		}
	})
}

// apply needs mu. It fires watches before anything can show the new state.
func (f *fakeEnsemble) apply(txn *znode.Txn) znode.Result {
	r, d := f.tree.Apply(znode.Stamp{TimeMs: time.Now().UnixMilli()}, txn)
	if d.Zxid != 0 {
		f.history = append(f.history, d)
		for fc := range f.conns {
			fc.watches.match(&d, fc.event)
		}
	}
	return r
}

func (fc *fakeConn) event(e wire.Event) { fc.push(wire.Jute{}.AppendEvent(nil, &e)) }

// do changes the tree as somebody else.
func (f *fakeEnsemble) do(t testing.TB, op znode.Op) znode.Result {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.apply(&znode.Txn{Op: op})
	if r.Err != znode.OK {
		t.Fatalf("%+v: %v", op, r.Err)
	}
	return r
}
