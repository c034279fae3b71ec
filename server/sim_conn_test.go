package server

import (
	"errors"
	"iter"
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// simConn is a connection between a client and a member: both ends and what is on the way.
// It is the server's door as well.
type simConn struct {
	id     uint64
	client *simClient
	m      *simMember
	gen    uint64 // of the member's process
	server *conn
	codec  wire.ServerCodec
	begun  bool // the first message has arrived
	owner  session.Owner
	// gone: the server, and the client, knows that it is over.
	gone, clientGone bool
	// upAt and downAt are when the last message of each direction arrives.
	upAt, downAt int64
	// answered is how many of its transactions' results the client has got.
	answered int
}

var _ door = (*simConn)(nil)

var errSimBroken = errors.New("connection broken (simulated)")

// dial connects a client to a member, nil if that is down or refuses.
func (s *sim) dial(client *simClient, m *simMember, zk bool) *simConn {
	if m.srv == nil || m.paused && s.chance(50) {
		return nil
	}
	s.serial++
	c := &simConn{id: s.serial, client: client, m: m, gen: m.gen}
	terms := &m.srv.nativeTerms
	c.codec = wire.Jute{}
	if zk {
		c.codec, terms = wire.ZooKeeper{}, &m.srv.zkTerms
	}
	c.server = newConn(m.srv, c, c.codec, "client", []znode.Identity{{Scheme: "ip", ID: "192.0.2.1"}})
	c.server.terms = terms
	if !m.srv.enter(c.server) {
		return nil
	}
	c.owner = c.server.owner()
	m.conns[c] = struct{}{}
	return c
}

// send carries a message of the client to the server, and says when it arrives.
func (c *simConn) send(msg []byte, arrives func()) {
	s := c.m.sim
	at := max(s.now+s.between(20*us, 2*ms), c.upAt)
	c.upAt = at
	s.after(at-s.now, func() {
		c.m.when(c.gen, func() {
			arrives()
			c.arrive(msg)
		})
	})
}

// arrive is the server's reader.
func (c *simConn) arrive(msg []byte) {
	if c.gone {
		return
	}
	receive := c.server.receive
	if !c.begun {
		c.begun = true
		receive = c.server.begin
	}
	c.server.heard()
	if err := receive(msg); err != nil {
		c.server.close(reasonOf(err, closeBadRequest))
	}
	c.server.workInline()
	c.reap()
}

// cut breaks the connection: what is on the way is lost.
func (c *simConn) cut() {
	if c.gone {
		return
	}
	s := c.m.sim
	c.lost()
	s.after(s.between(0, 20*ms), func() {
		c.m.when(c.gen, func() {
			if !c.gone {
				c.server.close(readFailure(errSimBroken))
				c.reap()
			}
		})
	})
}

// reap is the end of the server's reader, if it is time.
func (c *simConn) reap() {
	c.server.mu.Lock()
	over, waits := c.server.mu.closing != nil, c.server.mu.working
	c.server.mu.Unlock()
	if !over || c.gone {
		return
	}
	if waits { // the worker was spawned and has not run yet
		delete(c.m.runnable, c.server)
		c.server.work()
	}
	c.gone = true
	delete(c.m.conns, c)
	c.server.gone()
}

// broken is called when the server's process is gone.
func (c *simConn) broken() {
	c.gone = true
	c.lost()
}

// lost lets the client notice that the connection is over, behind nothing.
func (c *simConn) lost() {
	c.downAt = -1
	s := c.m.sim
	s.after(s.between(20*us, 5*ms), func() {
		if !c.clientGone {
			c.clientGone = true
			c.client.closed(c, closeReason{closeGoingAway, "broken"})
		}
	})
}

// down carries something to the client behind what was sent before.
func (c *simConn) down(do func()) {
	s := c.m.sim
	if c.downAt < 0 || c.m.disk.crashed() {
		return
	}
	c.downAt = max(s.now+s.between(20*us, 2*ms), c.downAt)
	s.after(c.downAt-s.now, func() {
		if c.downAt >= 0 && !c.clientGone {
			do()
		}
	})
}

// Write implements door.
func (c *simConn) Write(run []byte) error {
	for len(run) > 0 {
		n := int(run[0])<<24 | int(run[1])<<16 | int(run[2])<<8 | int(run[3])
		msg := slices.Clone(run[4 : 4+n])
		c.down(func() { c.client.received(c, msg) })
		run = run[4+n:]
	}
	return nil
}

// Close implements door.
func (c *simConn) Close(why closeReason) {
	c.down(func() {
		c.clientGone = true
		c.client.closed(c, why)
	})
	c.m.sim.after(1, func() { c.m.when(c.gen, c.reap) })
}

// Next implements door; the simulation brings messages by itself.
func (c *simConn) Next() ([]byte, error) { return nil, errSimBroken }

// Opened implements door.
func (c *simConn) Opened() {}

// Ping implements door.
func (c *simConn) Ping() error { return nil }

// Finish implements door.
func (c *simConn) Finish() {}

// Abort implements door.
func (c *simConn) Abort() { c.cut() }

// ordered ranges over connections in the order in which they began.
func ordered(set map[*simConn]struct{}) iter.Seq[*simConn] {
	return slices.Values(slices.SortedFunc(maps.Keys(set), func(a, b *simConn) int { return int(a.id) - int(b.id) }))
}
