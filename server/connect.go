package server

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Websocket close codes, documented in docs/protocol.md. Other doors just close.
const (
	closeNormal      = 1000
	closeGoingAway   = 1001
	closePolicy      = 1008
	closeTooBig      = 1009
	closeRestart     = 1012 // come back: this member is stopping
	closeTryAgain    = 1013 // no leader, or overloaded
	closeBadRequest  = 4400
	closeSessionOver = 4401
	closeTimeout     = 4408 // the first message did not come in time
	closeMoved       = 4409 // the session continued on another connection
	closeBehind      = 4410 // the client has seen more than this member has
	closeTooMany     = 4429
)

// serve reads a connection until it ends. The first message opens or resumes a
// session; those behind it may come at once.
func (c *conn) serve() {
	defer c.gone()
	receive := c.begin
	for {
		msg, err := c.next()
		if err != nil {
			c.close(readFailure(err))
			return
		}
		if err := receive(msg); err != nil {
			c.close(reasonOf(err, closeBadRequest))
			return
		}
		receive = c.receive
	}
}

// begin queues the handshake.
func (c *conn) begin(msg []byte) error {
	req, err := c.codec.DecodeConnect(msg)
	if err == nil {
		err = c.admit(&req)
	}
	if err != nil {
		return err
	}
	if req.Session != 0 && !c.resumable(&req) {
		return refusal{c.refuse(&req)}
	}
	c.push(&call{c: c, connect: &req, bytes: len(msg), start: c.arrivedAt, ids: *c.ids.Load()})
	return nil
}

// next returns the next message; it is valid until the next call.
func (c *conn) next() ([]byte, error) {
	msg, err := c.door.Next()
	if err == nil {
		c.countReceived(len(msg))
	}
	return msg, err
}

// refusal is an error that ends a connection with a code of its own.
type refusal struct{ closeReason }

func (r refusal) Error() string { return r.text }

// reasonOf turns an error into what the connection is told, with code unless the
// error brings its own.
func reasonOf(err error, code int) closeReason {
	if r, ok := errors.AsType[refusal](err); ok {
		return r.closeReason
	}
	return closeReason{code, err.Error()}
}

// admit judges a handshake before anything is written for it. If other members may have
// what this one has not applied yet, whether it is behind its client shows only in the log.
func (c *conn) admit(r *wire.ConnectRequest) error {
	c.admitted.Store(true) // before: whoever sends clients away meanwhile must see this one
	if err := c.srv.admits(); err != nil {
		return refusal{closeReason{closeTryAgain, err.Error()}}
	}
	if last := c.srv.store.LastZxid(); r.LastZxid > last && c.srv.rep.BarrierNow() {
		return refusal{c.behind(r, last)}
	}
	if limit := c.srv.cfg.MaxSessions; r.Session == 0 && c.srv.sessions.len() >= limit {
		return refusal{closeReason{closeTooMany, fmt.Sprintf("max-sessions %d reached", limit)}}
	}
	return nil
}

// behind refuses a client that has seen more than zxid last, the newest here.
func (c *conn) behind(r *wire.ConnectRequest, last int64) closeReason {
	c.srv.metrics.refusedBehind()
	return closeReason{closeBehind, fmt.Sprintf("server history is behind: you have seen zxid %d, this member has %d", r.LastZxid, last)}
}

// resumable is false of a resume that would certainly be refused: who guesses passwords
// writes nothing to the log. A session that is unknown here may have been opened by another
// member just now.
func (c *conn) resumable(r *wire.ConnectRequest) bool {
	alone := c.srv.rep.BarrierNow()
	if l := c.srv.sessions.get(r.Session); l != nil {
		return subtle.ConstantTimeCompare(l.Password[:], r.Password) == 1
	}
	return !alone && len(r.Password) == session.PasswordSize
}

// handshakeOp is the transaction that a handshake asks for. The timeout that is granted
// stays for the session's life: it is part of the replicated state, so that a restart cannot
// shorten what a client was promised (promise P6).
func (c *conn) handshakeOp(r *wire.ConnectRequest) znode.Op {
	if r.Session != 0 {
		return &znode.ResumeSession{Session: r.Session, Password: [session.PasswordSize]byte(r.Password), Seen: r.LastZxid}
	}
	op := &znode.OpenSession{Seen: r.LastZxid, TimeoutMs: session.Negotiate(r.TimeoutMs,
		int32(c.terms.minTimeout.Milliseconds()), int32(c.terms.maxTimeout.Milliseconds()))}
	rand.Read(op.Password[:])
	return op
}

// opened answers a handshake. Called by apply.
func (c *conn) opened(k *call, res *znode.Result) {
	var end *closeReason
	switch res.Err {
	case znode.OK:
		c.bind(k, c.srv.sessions.get(res.Session.ID))
	case znode.SessionExpired:
		c.refuse(k.connect)
	case znode.DataInconsistency:
		end = new(c.behind(k.connect, res.Zxid))
	default:
		end = &closeReason{closeTryAgain, "session not opened: " + res.Err.Error()}
	}
	c.completed(k, nil, end)
}

// movedText tells a connection that its session is another one's now.
const movedText = "the session continued on another connection"

// overReason tells a connection that its session is over.
func overReason(id session.ID) closeReason {
	return closeReason{closeSessionOver, "session " + id.String() + " is over"}
}

// bind makes the connection the session's, as the log has it already, and answers its
// handshake.
func (c *conn) bind(k *call, l *liveSession) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closing != nil {
		return
	}
	l.conn.Store(c)
	c.live.Store(l)
	c.door.Opened()
	c.appendConnectLocked(k.connect, l)
}

// refuse answers a resume that is refused, ends the connection and says why.
func (c *conn) refuse(r *wire.ConnectRequest) closeReason {
	why := closeReason{closeSessionOver, "session " + r.Session.String() + " is unknown, over, or the password is wrong"}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.appendConnectLocked(r, nil)
	c.closeLocked(why)
	return why
}

// disown ends the connection of a session that is over or on another one. The connection
// forgets the session last: a write proposed in between without one would count as the
// server's own, which no access list binds.
func (l *liveSession) disown(why closeReason) {
	if c := l.conn.Swap(nil); c != nil {
		c.close(why)
		c.live.Store(nil)
	}
}

// appendConnectLocked answers a handshake; with a nil session it refuses.
func (c *conn) appendConnectLocked(q *wire.ConnectRequest, l *liveSession) {
	r := wire.ConnectReply{}
	if l != nil {
		r = wire.ConnectReply{TimeoutMs: l.TimeoutMs, Session: l.ID, Password: l.Password}
	}
	if q.ReadOnly != nil {
		r.ReadOnly = new(bool)
	}
	c.appendLocked(func(b []byte) []byte { return c.codec.AppendConnectReply(b, &r) })
}

// heard is called when bytes came in: whatever it is, the client lives. A session that is
// over already ends its connection behind what it is still told, such as the answer to its
// close.
func (c *conn) heard() {
	c.arrivedAt = c.srv.now()
	l := c.live.Load()
	if l != nil && !c.srv.sessions.touch(l.ID, c.arrivedAt) && c.srv.sessions.get(l.ID) != nil {
		c.close(overReason(l.ID))
	}
}

// receive queues one request.
func (c *conn) receive(msg []byte) error {
	req, err := c.codec.DecodeRequest(msg)
	if err != nil {
		return err
	}
	k := &call{c: c, req: req, bytes: len(msg), start: c.arrivedAt, ids: *c.ids.Load()}
	oversized, need := c.srv.cfg.oversized(&req), k.access()
	switch {
	case req.Err != znode.OK:
		k.reply = &wire.Reply{Xid: req.Xid, Op: req.Op, Err: req.Err, Detail: req.Detail}
		k.end = unimplemented(req.Err)
	case req.Op == wire.OpAuth:
		k.reply = &wire.Reply{Xid: req.Xid, Op: req.Op, Err: c.authenticate(req.Body.(*wire.Auth))}
		if k.reply.Err != znode.OK {
			k.end = &closeReason{closePolicy, "authentication failed"}
			c.srv.metrics.authFailed()
		}
	case need == znode.AccessDenied || need == znode.AccessServer:
		k.reply = &wire.Reply{Xid: req.Xid, Op: req.Op, Err: znode.Unimplemented}
		k.end = unimplemented(znode.Unimplemented)
	case !need.Allowed(nil, k.ids): // whatever any access list says
		k.reply = &wire.Reply{Xid: req.Xid, Op: req.Op, Err: znode.NoAuth}
	case oversized != "":
		k.reply = &wire.Reply{Xid: req.Xid, Op: req.Op, Err: znode.BadArguments, Detail: oversized}
	case req.Seq > 0 && !k.isWrite():
		k.reply = &wire.Reply{Xid: req.Xid, Op: req.Op, Err: znode.BadArguments,
			Detail: fmt.Sprintf("seq %d numbers a write, and %v is none", req.Seq, req.Op)}
	}
	c.push(k)
	return nil
}

// unimplemented ends a connection that sent an operation nobody knows, as ZooKeeper does.
func unimplemented(e znode.Error) *closeReason {
	if e != znode.Unimplemented {
		return nil
	}
	return &closeReason{closeBadRequest, "unknown operation"}
}

// authenticate adds identities to the connection: for all requests behind this one.
func (c *conn) authenticate(a *wire.Auth) znode.Error {
	var more []znode.Identity
	if a.Scheme == "token" {
		if !c.srv.token.ok(string(a.Data)) {
			c.srv.log.Warn("wrong admin token", "remote", c.remote)
			return znode.AuthFailed
		}
		more = []znode.Identity{{Scheme: "super"}}
	} else {
		var e znode.Error
		if more, e = znode.Authenticate(a.Scheme, a.Data, c.srv.cfg.SuperDigest.Reveal()); e != znode.OK {
			return e
		}
	}
	ids := slices.Clone(*c.ids.Load())
	for _, id := range more {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	c.ids.Store(&ids)
	return znode.OK
}

// gone cleans up behind the reader: the watches go, the session stays.
func (c *conn) gone() {
	c.mu.Lock()
	for !c.mu.closed {
		if c.startLocked() {
			c.mu.Unlock()
			c.work()
			c.mu.Lock()
		} else {
			c.waitLocked()
		}
	}
	if c.mu.closing.code != closeNormal {
		c.srv.metrics.droppedConnection()
	}
	c.mu.Unlock()
	c.srv.state.RLock()
	if l := c.live.Swap(nil); l != nil {
		l.conn.CompareAndSwap(c, nil)
	}
	c.srv.state.RUnlock()
	c.srv.watches.drop(c)
	c.door.Finish() // may take a moment
	c.mu.Lock()
	for c.mu.queue.len() > c.mu.inFlight {
		c.srv.outstanding.release(c.mu.queue.popLast().size(), &c.share)
	}
	c.mu.Unlock()
	c.srv.left(c)
}
