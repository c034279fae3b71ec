package server

import (
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/watch"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// readLocked executes the reads at the head of the queue that may be executed, all
// against one version of the state. It releases and retakes the connection's lock.
func (c *conn) readLocked() {
	var run []*call
	now := c.srv.rep.BarrierNow()
	for i := 0; i < c.mu.queue.len(); i++ {
		k := c.mu.queue.at(i)
		if k.isWrite() || k.consults() || k.needsBarrier() && !k.cleared && !now || k.catchesUp() && i > 0 {
			break
		}
		run = append(run, k)
	}
	c.mu.Unlock()

	buf := writeBuffers.Get().(*[]byte)
	c.srv.state.RLock()
	done := 0
	var end *closeReason
	for done < len(run) && end == nil && len(*buf) < writeChunk {
		end = c.answerRead(run[done], buf)
		done++
	}
	c.mu.Lock()
	for range done {
		c.popLocked()
	}
	c.appendRunLocked(buf)
	if end != nil {
		c.closeLocked(*end)
	}
	c.srv.state.RUnlock()
}

// appendRunLocked moves a run of messages behind what is in the outbox.
func (c *conn) appendRunLocked(buf *[]byte) {
	if c.mu.closed || len(*buf) == 0 {
		putBuffer(buf)
		return
	}
	c.srv.outboxBytes.Add(int64(len(*buf)))
	c.mu.read += len(*buf)
	switch {
	case c.mu.out == nil:
		c.mu.out = buf
	default:
		*c.mu.out = append(*c.mu.out, *buf...)
		putBuffer(buf)
	}
}

// answerRead appends the answer to k to buf. A non-nil reason ends the connection
// behind it. Called under the shared state lock.
func (c *conn) answerRead(k *call, buf *[]byte) *closeReason {
	if c.live.Load() == nil { // refused or disowned: why is what the connection is closed with
		c.account(k, znode.SessionMoved)
		return nil
	}
	r := wire.Reply{Xid: k.req.Xid, Op: k.req.Op, Zxid: c.srv.store.LastZxid()}
	if k.req.Op == wire.OpAuth || k.req.Op == wire.OpSASL {
		r.Zxid = 0
	}
	if k.reply != nil {
		r.Err, r.Detail, r.Body = k.reply.Err, k.reply.Detail, k.reply.Body
		if r.Err == znode.Unimplemented {
			r.Zxid = -1
		}
	} else {
		r.Body, r.Err = c.srv.read(c, k)
		if r.Err == tooLarge && (modeOf(k.req.Op) == watch.Child || k.req.Op == wire.OpMultiRead) {
			r.Detail = c.srv.tooLargeDetail()
		}
	}
	at := len(*buf)
	*buf = appendMessage(*buf, func(b []byte) []byte { return c.codec.AppendReply(b, &r) })
	if size := int64(len(*buf) - at - 4); size > c.terms.replyLimit {
		r.Body, r.Err, r.Detail = nil, tooLarge, c.srv.tooLargeDetail()
		*buf = appendMessage((*buf)[:at], func(b []byte) []byte { return c.codec.AppendReply(b, &r) })
	}
	c.countSent(len(*buf) - at - lengthBytes)
	c.account(k, r.Err)
	return k.end
}

// tooLarge is the error of a read whose reply would exceed the limit.
const tooLarge = znode.BadArguments

// nameBytes is the least that one name takes in a reply.
const nameBytes = 5

func (s *Server) tooLargeDetail() string {
	return fmt.Sprintf("the reply would be larger than max-message-bytes %d: ask for pages", s.cfg.MaxMessageBytes)
}

// read executes one read. Reads see the state as it is: what linearizes them is the
// barrier before.
func (s *Server) read(c *conn, k *call) (any, znode.Error) {
	switch b := k.req.Body.(type) {
	case nil:
		return s.readBodyless(k)
	case *wire.PathWatch:
		return s.readPath(c, k, b)
	case *wire.PathOnly:
		return s.readPathOnly(c, k, b.Path)
	case *wire.MultiRead:
		return s.readMany(c, k, b)
	case *wire.List:
		return s.readPage(k, b)
	case *wire.SetWatches:
		return s.setWatches(c, b)
	case *wire.AddWatch:
		return s.addWatch(c, b)
	case *wire.RemoveWatches:
		return s.removeWatches(c, k.req.Op, b)
	case *wire.Renew:
		return s.renew(c, b)
	case *wire.Sessions:
		return s.readSessions(b)
	case *wire.SASL:
		return &wire.SASLReply{}, znode.OK
	case *wire.Reconfig:
		if s.cfg.ReconfigEnabled {
			return nil, znode.Unimplemented // there is one member, for good: see reconfigurable
		}
		return nil, znode.ReconfigDisabled
	}
	return nil, znode.Unimplemented
}

func (s *Server) readBodyless(k *call) (any, znode.Error) {
	switch k.req.Op {
	case wire.OpPing:
		return nil, znode.OK
	case wire.OpWhoAmI:
		return &wire.IdentitiesReply{Identities: whoAmI(k.ids)}, znode.OK
	case wire.OpStatus:
		return s.status(), znode.OK
	}
	return nil, znode.Unimplemented
}

// whoAmI lists identities without what could be used to guess a password: of a
// digest only the user's name, as ZooKeeper does.
func whoAmI(ids []znode.Identity) []znode.Identity {
	shown := make([]znode.Identity, len(ids))
	for i, id := range ids {
		user, _, _ := strings.Cut(id.ID, ":")
		if id.Scheme != "digest" {
			user = id.ID
		}
		shown[i] = znode.Identity{Scheme: id.Scheme, ID: user}
	}
	return shown
}

// node looks a znode up and asks its access list, in ZooKeeper's order: existence first.
func (s *Server) node(path string, need znode.Access, ids []znode.Identity) (*znode.Node, znode.Children, znode.Error) {
	n, kids, err := s.store.Node(path)
	switch {
	case err != nil:
		s.fail(err)
		return nil, kids, znode.SystemError
	case n == nil:
		return nil, kids, znode.NoNode
	case !need.Allowed(n.ACL, ids):
		return nil, kids, znode.NoAuth
	}
	return n, kids, znode.OK
}

func (s *Server) readPath(c *conn, k *call, b *wire.PathWatch) (any, znode.Error) {
	n, kids, e := s.node(b.Path, k.access(), k.ids)
	if k.req.Op == wire.OpExists {
		return s.readExists(c, b, n, kids, e)
	}
	if e != znode.OK {
		return nil, e
	}
	mode := modeOf(k.req.Op)
	if b.Watch {
		if e := s.watches.add(c, b.Path, mode); e != znode.OK {
			return nil, e
		}
	}
	if k.req.Op == wire.OpGetData {
		return &wire.DataReply{Data: n.Data, Stat: znode.StatOf(n, kids)}, znode.OK
	}
	if kids.Live*nameBytes > c.terms.replyLimit {
		return nil, tooLarge // spare the listing
	}
	names, err := s.store.List(b.Path, "", 0)
	if err != nil {
		s.fail(err)
		return nil, znode.SystemError
	}
	return &wire.ChildrenReply{Names: names, Stat: znode.StatOf(n, kids)}, znode.OK
}

// readExists differs in that a missing znode can be watched and its path is judged.
func (s *Server) readExists(c *conn, b *wire.PathWatch, n *znode.Node, kids znode.Children, e znode.Error) (any, znode.Error) {
	if e == znode.NoNode && strings.Contains(b.Path, "\x00") {
		return nil, znode.BadArguments
	}
	if b.Watch && (e == znode.OK || e == znode.NoNode) {
		if e := s.watches.add(c, b.Path, modeOf(wire.OpExists)); e != znode.OK {
			return nil, e
		}
	}
	if e != znode.OK {
		return nil, e
	}
	return &wire.StatReply{Stat: znode.StatOf(n, kids)}, znode.OK
}

func (s *Server) readPathOnly(c *conn, k *call, path string) (any, znode.Error) {
	switch k.req.Op {
	case wire.OpSync:
		return &wire.PathReply{Path: path}, znode.OK
	case wire.OpGetEphemerals:
		if path == "/" {
			path = ""
		}
		paths, err := s.store.Ephemerals(c.sessionID(), path, 0)
		if err != nil {
			s.fail(err)
			return nil, znode.SystemError
		}
		return &wire.PathsReply{Paths: paths}, znode.OK
	case wire.OpGetACL:
		n, kids, e := s.node(path, k.access(), k.ids)
		if e != znode.OK {
			return nil, e
		}
		return &wire.ACLReply{ACL: znode.MaskACL(n.ACL, k.ids), Stat: znode.StatOf(n, kids)}, znode.OK
	case wire.OpGetAllChildrenNumber:
		if _, _, e := s.node(path, k.access(), k.ids); e != znode.OK {
			return nil, e
		}
		count, _, err := s.store.Subtree(path)
		if err != nil {
			s.fail(err)
			return nil, znode.SystemError
		}
		return &wire.CountReply{Count: int32(count - 1)}, znode.OK
	}
	return nil, znode.Unimplemented
}

// readMany judges each read by itself; one that fails stops none. What exceeds a reply is
// not looked at: a request of few bytes can ask for very much.
func (s *Server) readMany(c *conn, k *call, b *wire.MultiRead) (any, znode.Error) {
	room := c.terms.replyLimit
	r := &wire.MultiReadReply{Results: make([]wire.ReadResult, len(b.Ops))}
	for i, op := range b.Ops {
		res := &r.Results[i]
		res.Op = op.Op
		n, kids, e := s.node(op.Path, wire.AccessOf(op.Op), k.ids)
		if res.Err = e; e != znode.OK {
			continue
		}
		if op.Op == wire.OpGetData {
			if room -= int64(len(n.Data)); room < 0 {
				return nil, tooLarge
			}
			res.Data = wire.DataReply{Data: n.Data, Stat: znode.StatOf(n, kids)}
			continue
		}
		if room -= kids.Live * nameBytes; room < 0 {
			return nil, tooLarge
		}
		names, err := s.store.List(op.Path, "", 0)
		if err != nil {
			s.fail(err)
			return nil, znode.SystemError
		}
		for _, name := range names {
			room -= int64(len(name) - 1) // one byte of it is in nameBytes
		}
		res.Children = wire.ChildrenReply{Names: names, Stat: znode.StatOf(n, kids)}
	}
	return r, znode.OK
}

// pageMax bounds the children of one page, so that a page costs a bounded time under
// the state lock.
const pageMax = 10_000

// readPage lists one page of children, as many as fit into a message.
func (s *Server) readPage(k *call, b *wire.List) (any, znode.Error) {
	n, kids, e := s.node(b.Path, k.access(), k.ids)
	if e != znode.OK {
		return nil, e
	}
	limit := pageMax
	if b.Limit > 0 && int(b.Limit) < limit {
		limit = int(b.Limit)
	}
	names, err := s.store.List(b.Path, b.After, limit+1)
	if err != nil {
		s.fail(err)
		return nil, znode.SystemError
	}
	r := &wire.ListReply{Stat: znode.StatOf(n, kids), Lifetime: n.Lifetime()}
	if len(names) > limit {
		names, r.More = names[:limit], true
	}
	room := s.cfg.MaxMessageBytes / 2 // JSON may need up to twice as much
	for i, name := range names {
		room -= int64(len(name)) + 8
		if b.Stats {
			room -= statBytes
		}
		if room < 0 && i > 0 {
			r.More = true
			break
		}
		r.Names = append(r.Names, name)
		if b.Stats {
			path := znode.Join(b.Path, name)
			stat, life, ok, err := s.store.Stat(path)
			if err == nil && !ok {
				err = fmt.Errorf("%s is listed but not there", path)
			}
			if err != nil {
				s.fail(err)
				return nil, znode.SystemError
			}
			r.Stats, r.Lifetimes = append(r.Stats, stat), append(r.Lifetimes, life)
		}
	}
	return r, znode.OK
}

// statBytes is a generous size of one encoded Stat and Lifetime.
const statBytes = 120

// renew proves to the client that its session lives and what it holds is still there.
// That the session lives was settled when the request came in.
func (s *Server) renew(c *conn, b *wire.Renew) (any, znode.Error) {
	l := c.live.Load()
	if l == nil {
		return nil, znode.SessionExpired
	}
	r := &wire.RenewReply{TimeoutMs: l.TimeoutMs, Held: make([]znode.Error, len(b.Held))}
	for i, h := range b.Held {
		n, _, err := s.store.Node(h.Path)
		if err != nil {
			s.fail(err)
			return nil, znode.SystemError
		}
		if n == nil || n.Czxid != h.Czxid {
			r.Held[i] = znode.NoNode
		}
	}
	return r, znode.OK
}
