package server

import (
	"fmt"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// simClient is a client, native or ZooKeeper's. It judges everything that it is told.
type simClient struct {
	sim  *sim
	id   int
	zk   bool
	conn *simConn
	open bool // the handshake is answered
	// gone: it does nothing any more, as if it had crashed.
	gone     bool
	session  session.ID
	password [session.PasswordSize]byte
	timeout  int64
	lastZxid int64 // the highest it has seen
	seq      int64
	writes   []*simOp // a native client's that are not answered, in order
	sent     []*simOp // on this connection and not answered, in order
	xid      int32
	// watching: its watch is set on this connection, and events before pos were received.
	watches, watching bool
	pos               int
	since             int64
	answers           int64 // how many replies it got
	answeredAt        int64
	known             map[string]int32 // versions that it has seen
	made              []string         // znodes that it made
}

// simOp is one operation of a client.
type simOp struct {
	req      wire.Request
	sentAt   int64
	arrived  int64 // when a member received it, 0 if none has
	begun    int64 // when it was first sent
	frontier int64 // when it began
	what     string
	since    int64 // of a rewatch
}

func (s *sim) addClient(zk bool) {
	c := &simClient{sim: s, id: len(s.clients) + 1, zk: zk, known: map[string]int32{}, timeout: s.between(1000, 3000) * ms}
	s.clients = append(s.clients, c)
	s.after(s.between(0, 100*ms), c.connect)
}

// connect opens a session or continues it, on any member.
func (c *simClient) connect() {
	s := c.sim
	if c.gone || c.conn != nil || s.ended && c.session == 0 && !c.unfinished() {
		return
	}
	conn := s.dial(c, s.members[s.rng.IntN(len(s.members))], c.zk)
	if conn == nil {
		s.after(s.between(10*ms, 200*ms), c.connect)
		return
	}
	c.conn, c.open, c.watching, c.sent = conn, false, false, nil
	req := wire.ConnectRequest{LastZxid: c.lastZxid, TimeoutMs: int32(c.timeout / ms), Session: c.session, Password: c.password[:]}
	conn.send(wire.Jute{}.AppendConnect(nil, &req), func() {})
	s.after(s.between(600*ms, 1500*ms), func() {
		if c.conn == conn && !c.open {
			c.hangUp("no answer to the handshake")
		}
	})
}

// hangUp ends the connection from the client's side.
func (c *simClient) hangUp(why string) {
	conn := c.conn
	if conn == nil {
		return
	}
	c.sim.note("client %d hangs up: %s", c.id, why)
	conn.clientGone = true
	conn.cut()
	c.closed(conn, closeReason{closeGoingAway, why})
}

// closed is the end of a connection.
func (c *simClient) closed(conn *simConn, why closeReason) {
	if c.conn != conn {
		return
	}
	s := c.sim
	s.note("client %d: its connection to member %d ended: %d %s", c.id, conn.m.id, why.code, why.text)
	if why.code == closeBadRequest || why.code == closePolicy {
		s.fail("protocol", "client %d was cut with %d %q", c.id, why.code, why.text)
	}
	s.count(fmt.Sprintf("connections ended with %d", why.code))
	c.conn, c.open = nil, false
	if c.zk {
		for _, op := range c.sent {
			if c.session != 0 && op.write() {
				s.count("writes through ZooKeeper's door with unknown outcome")
			}
		}
	}
	c.sent = nil
	s.after(s.between(ms, 60*ms), c.connect)
}

// lostSession begins anew: what was not answered is unknown for good.
func (c *simClient) lostSession() {
	s := c.sim
	if s.model.sessions[c.session] != nil {
		s.fail("sessions", "client %d was told that session %v is over, but it is not", c.id, c.session)
	}
	s.note("client %d: session %v is over", c.id, c.session)
	s.count("sessions that their clients were told are over")
	for _, op := range c.writes {
		c.called(op, nil)
	}
	c.session, c.seq, c.writes, c.made = 0, 0, nil, nil
	c.watches = false
	clear(c.known)
}

// received takes one message of the server.
func (c *simClient) received(conn *simConn, msg []byte) {
	if c.conn != conn || c.sim.problem != "" {
		return
	}
	if !c.open {
		c.opened(conn, msg)
		return
	}
	reply, event, err := wire.Jute{}.DecodeMessage(msg, func(xid int32) (wire.Op, bool) {
		for _, op := range c.sent {
			if op.req.Xid == xid {
				return op.req.Op, true
			}
		}
		return 0, false
	})
	switch {
	case err != nil:
		c.sim.fail("protocol", "client %d: %v", c.id, err)
	case event != nil:
		c.event(event)
	default:
		c.reply(conn, reply)
	}
}

func (c *simClient) opened(conn *simConn, msg []byte) {
	s := c.sim
	r, err := wire.Jute{}.DecodeConnectReply(msg)
	if err != nil {
		s.fail("protocol", "client %d: %v", c.id, err)
		return
	}
	if r.Session == 0 {
		c.lostSession()
		return // the server closes
	}
	if c.session != 0 && r.Session != c.session {
		s.fail("sessions", "client %d resumed session %v and got %v", c.id, c.session, r.Session)
		return
	}
	c.open, conn.answered = true, 1 // the handshake is a transaction, too
	fresh := c.session == 0
	c.session, c.password, c.timeout = r.Session, r.Password, int64(r.TimeoutMs)*ms
	s.note("client %d (zk %v) is on member %d with session %v", c.id, c.zk, conn.m.id, c.session)
	if fresh {
		s.count("sessions opened")
	} else {
		s.count("sessions resumed")
	}
	switch {
	case c.watches && !c.zk:
		c.issue(&simOp{req: wire.Request{Op: wire.OpRewatch, Body: &wire.SetWatches{RelZxid: c.since, Recursive: []string{"/"}}}, since: c.since})
		c.pos = s.model.eventsFrom(c.since)
		c.watching = true // events come before the reply
	default:
		c.issue(&simOp{req: wire.Request{Op: wire.OpAddWatch, Body: &wire.AddWatch{Path: "/", Mode: 1}}})
	}
	for _, op := range c.writes {
		c.transmit(op)
	}
	c.beat(conn)
	c.think(conn)
}

// beat sends heartbeats while the connection lives.
func (c *simClient) beat(conn *simConn) {
	s := c.sim
	s.after(c.timeout/3, func() {
		if c.conn != conn || c.gone {
			return
		}
		for _, op := range c.sent {
			if s.now-op.sentAt > c.timeout*2/3 {
				c.hangUp("no answer")
				return
			}
		}
		if c.zk || s.chance(50) {
			c.issue(&simOp{req: wire.Request{Op: wire.OpPing}})
		} else {
			c.issue(&simOp{req: wire.Request{Op: wire.OpRenew, Body: &wire.Renew{}}})
		}
		c.beat(conn)
	})
}

func (o *simOp) write() bool { return isUpdate(o.req.Op) }

// issue begins an operation.
func (c *simClient) issue(op *simOp) {
	s := c.sim
	op.begun, op.frontier = s.now, s.frontier
	if op.write() && !c.zk {
		c.seq++
		op.req.Seq, op.req.Acked = c.seq, c.seq-int64(len(c.writes))-1
		c.writes = append(c.writes, op)
	}
	c.transmit(op)
}

// transmit sends an operation, for the first time or again.
func (c *simClient) transmit(op *simOp) {
	if c.conn == nil || !c.open {
		return
	}
	c.xid++
	op.req.Xid = c.xid
	if op.req.Op == wire.OpPing {
		op.req.Xid = -2
	}
	op.sentAt = c.sim.now
	c.sent = append(c.sent, op)
	c.conn.send(wire.Jute{}.AppendRequest(nil, &op.req), func() { op.arrived = c.sim.now })
}

// unfinished reports whether the client waits for something.
func (c *simClient) unfinished() bool { return len(c.writes)+len(c.sent) > 0 }

// think begins operations now and then.
func (c *simClient) think(conn *simConn) {
	s := c.sim
	s.after(s.between(ms, 120*ms), func() {
		if c.conn != conn || c.gone || s.ended {
			return
		}
		if len(c.sent) < 6 {
			for range s.between(1, 3) {
				c.issue(c.something())
			}
		}
		switch {
		case s.chance(0.6):
			s.count("client cuts its connection")
			c.hangUp("its own wish")
			return
		case s.chance(0.3):
			s.count("client closes its session")
			c.issue(&simOp{req: wire.Request{Op: wire.OpCloseSession}, what: "close"})
			return
		case s.chance(0.15) && !s.healed && c.id > 2:
			s.count("client is gone for good")
			s.note("client %d is gone", c.id)
			c.gone = true
			conn.cut()
			return
		}
		c.think(conn)
	})
}

// something is an operation at random.
func (c *simClient) something() *simOp {
	s := c.sim
	data := func() []byte { s.serial++; return fmt.Appendf(nil, "c%d-%d", c.id, s.serial) }
	register := fmt.Sprintf("/r%d", s.rng.IntN(3))
	shared := fmt.Sprintf("/d/%d", s.rng.IntN(4))
	create := func(path string, m znode.Mode) *znode.Create {
		return &znode.Create{Path: path, Data: data(), ACL: znode.OpenACL, Mode: m}
	}
	write := func(body znode.Op) *simOp {
		return &simOp{req: wire.Request{Op: wire.OpOf(body), Body: body}, what: opText(body)}
	}
	version, ok := c.known[register]
	if !ok || s.chance(60) {
		version = -1
	}
	if own := fmt.Sprintf("/p%d", s.rng.IntN(2)); !c.zk && s.chance(25) { // of native clients alone
		if s.chance(50) {
			return &simOp{req: wire.Request{Op: wire.OpGetData, Body: &wire.PathWatch{Path: own}}}
		}
		version, ok := c.known[own]
		if !ok || s.chance(60) {
			version = -1
		}
		return write(&znode.SetData{Path: own, Data: data(), Version: version})
	}
	switch n := s.rng.IntN(100); {
	case n < 22:
		return write(&znode.SetData{Path: register, Data: data(), Version: version})
	case n < 32:
		return write(create("/s/n-", znode.Mode{Sequential: true}))
	case n < 40:
		return write(create(fmt.Sprintf("/e/%d-%d", c.id, s.rng.IntN(4)), znode.Mode{Kind: znode.Ephemeral}))
	case n < 46:
		return write(create(shared, znode.Mode{}))
	case n < 52:
		return write(&znode.Delete{Path: shared, Version: -1})
	case n < 58:
		return write(&znode.Multi{Ops: []znode.Op{create("/s/m-", znode.Mode{Sequential: true, Kind: znode.Ephemeral}),
			&znode.SetData{Path: register, Data: data(), Version: version}, create(shared, znode.Mode{})}})
	case n < 64 && len(c.made) > 0:
		return write(&znode.Delete{Path: c.made[s.rng.IntN(len(c.made))], Version: -1})
	case n < 70:
		return &simOp{req: wire.Request{Op: wire.OpSync, Body: &wire.PathOnly{Path: register}}}
	}
	path, op := register, wire.OpGetData
	switch n := s.rng.IntN(10); {
	case n < 3:
		path = shared
	case n < 5:
		path, op = []string{"/d", "/e", "/s"}[s.rng.IntN(3)], wire.OpGetChildren2
	}
	return &simOp{req: wire.Request{Op: op, Stale: !c.zk && s.chance(25), Body: &wire.PathWatch{Path: path}}}
}
