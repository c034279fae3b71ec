package differ

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Kind is what a Frame is.
type Kind uint8

const (
	KindReply   Kind = iota
	KindEvent        // a watch fired
	KindConnect      // the answer to a handshake
	KindClosed       // the server ended the connection
)

// Frame is one thing that a client received.
type Frame struct {
	Step    int // of the sequence
	Session int
	Kind    Kind
	Request *Request // what a reply answers; nil for what the play itself asks
	// Unreadable says that the request was for a znode that the session may not read.
	Unreadable bool
	Reply      *wire.Reply
	Event      *wire.Event
	Connect    *wire.ConnectReply
	// Raw is the frame's bytes if they are not exactly what package wire writes for what
	// it reads.
	Raw []byte
}

// Transcript is everything that the clients of one play received from one server. Who
// reads when follows from the steps and the frames, so that equal servers give transcripts
// that are equal frame by frame.
type Transcript struct {
	Frames []Frame
	// owners numbers the sessions in the order in which they were opened.
	owners map[session.ID]int
}

const (
	sessions = 4 // of a play
	// fenceEvery bounds the steps for which a session's events stay unread.
	fenceEvery = 40
	pollEvery  = 20 * time.Millisecond
	expiryMax  = time.Minute
	// observerTimeoutMs is asked for by sessions that must not expire.
	observerTimeoutMs = 1 << 30
)

// timeouts are what the sessions of a play ask for when they are opened.
var timeouts = [sessions]int32{40000, 20000, 30000, 25000}

// client is one session as its client knows it.
type client struct {
	id       session.ID // 0 = none
	password []byte
	last     int64 // largest zxid in a reply
	c        *conn // nil = not connected
}

// player plays steps on one server. One goroutine uses it.
type player struct {
	address  string
	enc      encoder
	clients  [sessions]client
	observer client // makes the root and looks for the ends of sessions
	acting   *client
	replies  []int64 // zxids of the replies, in order
	step     int
	out      Transcript
	expiries int
}

// play plays the steps below a znode of its own and returns what was received.
func play(ctx context.Context, address, root string, steps []Step) (*Transcript, error) {
	p := &player{address: address, out: Transcript{owners: map[session.ID]int{}}}
	p.enc = encoder{root: root, zxidOf: p.zxidOf}
	defer p.hangUp()
	err := p.begin()
	for i := 0; err == nil && i < len(steps); i++ {
		p.step = i
		if err = ctx.Err(); err == nil {
			err = p.do(&steps[i])
		}
		if err == nil && i%fenceEvery == fenceEvery-1 {
			err = p.fenceAll()
		}
	}
	if err == nil {
		err = p.fenceAll()
	}
	if err != nil {
		err = fmt.Errorf("step %d on %s: %w", p.step, address, err)
	}
	return &p.out, err
}

// begin opens the observer's session and makes the root.
func (p *player) begin() error {
	p.acting = &p.observer
	if err := p.connect(&p.observer, &wire.ConnectRequest{TimeoutMs: observerTimeoutMs}, -1); err != nil {
		return err
	}
	// Two levels, so that nobody else numbers what is created beside the root.
	for _, path := range []string{path.Dir(p.enc.root), p.enc.root} {
		r, err := p.observe(&Request{Op: wire.OpCreate, Path: path, ACL: znode.OpenACL})
		if err == nil && r.Err != znode.OK {
			err = fmt.Errorf("create %s: %w", path, r.Err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hangUp ends all sessions; nobody looks at the answers.
func (p *player) hangUp() {
	for _, s := range append(p.clients[:], p.observer) {
		if s.c != nil {
			_, _ = s.c.nc.Write(p.enc.request(nil, 0, &Request{Op: wire.OpCloseSession}))
			_, _ = s.c.frame()
			_ = s.c.nc.Close()
		}
	}
}

func (p *player) zxidOf(m Moment) int64 {
	switch {
	case m == MomentLast:
		return p.acting.last
	case m == MomentFuture:
		return 1 << 62
	case m >= MomentReply:
		if i := len(p.replies) - 1 - int(m-MomentReply); i >= 0 {
			return p.replies[i]
		}
	}
	return 0
}

func (p *player) note(n int, f Frame) {
	f.Step, f.Session = p.step, n
	p.out.Frames = append(p.out.Frames, f)
}

// connect shakes hands for s on a new connection, which becomes that of s if the server
// accepts it. n is the session's number in the transcript, -1 for the observer.
func (p *player) connect(s *client, q *wire.ConnectRequest, n int) error {
	c, err := dial(p.address)
	if err != nil {
		return err
	}
	reply, err := c.handshake(q)
	if err != nil && err != io.EOF {
		return errors.Join(err, c.nc.Close())
	}
	f := Frame{Kind: KindConnect, Connect: reply}
	if err == io.EOF {
		f.Kind = KindClosed
	}
	if n >= 0 {
		p.note(n, f)
	}
	if !c.open {
		if err == nil {
			err = p.drain(c, n)
		}
		if err == io.EOF {
			err = nil
		}
		return errors.Join(err, c.nc.Close())
	}
	if q.Session == 0 {
		s.id, s.password, s.last = reply.Session, bytes.Clone(reply.Password[:]), 0
		if n >= 0 {
			p.out.owners[s.id] = len(p.out.owners) + 1
		}
	}
	s.c = c
	return nil
}

// ready makes sure that session n has a connection.
func (p *player) ready(n int) (*client, error) {
	s := &p.clients[n]
	p.acting = s
	// Two attempts: the first may find that the session is over.
	for try := 0; try < 2 && s.c == nil; try++ {
		if s.id == 0 {
			readOnly := false
			if err := p.connect(s, &wire.ConnectRequest{TimeoutMs: timeouts[n], ReadOnly: &readOnly}, n); err != nil {
				return nil, err
			}
			continue
		}
		q := &wire.ConnectRequest{LastZxid: s.last, TimeoutMs: timeouts[n], Session: s.id, Password: s.password}
		if err := p.connect(s, q, n); err != nil {
			return nil, err
		}
		if s.c == nil {
			s.id = 0
		}
	}
	if s.c == nil {
		return nil, errors.New("the server opens no session")
	}
	return s, nil
}

func (p *player) do(step *Step) error {
	s, err := p.ready(step.Session)
	if err != nil {
		return err
	}
	switch step.Action {
	case Drop:
		if err := p.fence(step.Session); err != nil || s.c == nil {
			return err
		}
		err := s.c.nc.Close()
		s.c = nil
		return err
	case Resume:
		return p.resume(step, s)
	case Close:
		return p.close(step.Session, s, step.Requests)
	case Expire:
		return p.expire(step.Session, s, step.Requests)
	}
	return p.send(step.Session, s, step.Requests)
}

// send writes the requests at once and reads until all are answered.
func (p *player) send(n int, s *client, requests []Request) error {
	asked := make([]pending, len(requests))
	for i := range requests {
		var err error
		if asked[i].q, asked[i].unreadable, err = p.readable(n, s, &requests[i]); err != nil || s.c == nil {
			return err
		}
	}
	var out []byte
	for i := range asked {
		out = p.enqueue(out, s.c, asked[i].q)
		s.c.pending[i].unreadable = asked[i].unreadable
	}
	if _, err := s.c.nc.Write(out); err != nil {
		return p.ended(n, s)
	}
	return p.receive(n, s, true)
}

// readable is q without the watches on what the session may not read, for which servers
// differ (exists-read, set-watches-acl). It reports whether q itself asks for such a path.
func (p *player) readable(n int, s *client, q *Request) (as *Request, unreadable bool, err error) {
	less := *q
	if q.Op == wire.OpExists && q.Cut == 0 && !q.NullPath {
		unreadable, err = p.forbidden(n, s, q.Path)
		less.Watch = q.Watch && !unreadable
		return &less, unreadable, err
	}
	if !q.setsWatches() {
		return q, false, nil
	}
	for i, list := range q.Watches[:3] {
		if list == nil {
			continue
		}
		less.Watches[i] = []string{}
		for _, path := range list {
			forbidden, err := p.forbidden(n, s, path)
			if err != nil || s.c == nil {
				return nil, false, err
			}
			if !forbidden {
				less.Watches[i] = append(less.Watches[i], path)
			}
		}
	}
	return &less, false, nil
}

// forbidden asks whether the session may not read a znode.
func (p *player) forbidden(n int, s *client, path string) (bool, error) {
	if err := p.send(n, s, []Request{{Op: wire.OpGetData, Path: path}}); err != nil {
		return false, err
	}
	r := p.out.Frames[len(p.out.Frames)-1].Reply
	return r != nil && r.Err == znode.NoAuth, nil
}

func (p *player) enqueue(out []byte, c *conn, q *Request) []byte {
	c.xid++
	xid := c.xid
	if q.Xid != 0 {
		xid = q.Xid
	}
	c.pending = append(c.pending, pending{xid: xid, q: q})
	return p.enc.request(out, xid, q)
}

// receive reads until nothing is pending, and to the end of the connection behind a reply
// that announces it. Replies of the play's own fences are not noted unless told to.
func (p *player) receive(n int, s *client, noteReplies bool) error {
	for len(s.c.pending) > 0 {
		f, err := s.c.next()
		if err == io.EOF {
			return p.ended(n, s)
		}
		if err != nil {
			return err
		}
		if f.Kind == KindReply && f.Reply != nil && f.Reply.Zxid > 0 {
			s.last = max(s.last, f.Reply.Zxid)
			p.replies = append(p.replies, f.Reply.Zxid)
		}
		if n >= 0 && (noteReplies || f.Kind != KindReply) {
			p.note(n, f)
		}
		if last(&f) {
			if err := p.drain(s.c, n); err != nil {
				return err
			}
			return p.ended(n, s)
		}
	}
	return nil
}

// last reports whether the server ends the connection behind f.
func last(f *Frame) bool {
	if f.Kind != KindReply || f.Reply == nil {
		return false
	}
	e := f.Reply.Err
	return e == znode.Unimplemented && f.Reply.Zxid == -1 || e == znode.AuthFailed
}

// drain notes what comes until the server ends the connection.
func (p *player) drain(c *conn, n int) error {
	for {
		f, err := c.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if n >= 0 {
			p.note(n, f)
		}
	}
}

// ended notes that the server has ended the connection of s.
func (p *player) ended(n int, s *client) error {
	if n >= 0 {
		p.note(n, Frame{Kind: KindClosed})
	}
	err := s.c.nc.Close()
	s.c = nil
	return err
}

// fence reads what session n was sent up to now.
func (p *player) fence(n int) error {
	s := &p.clients[n]
	if s.c == nil {
		return nil
	}
	if _, err := s.c.nc.Write(p.enqueue(nil, s.c, &Request{Op: wire.OpPing})); err != nil {
		return p.ended(n, s)
	}
	return p.receive(n, s, false)
}

// fenceAll reads what all sessions were sent up to now.
func (p *player) fenceAll() error {
	for n := range p.clients {
		if err := p.fence(n); err != nil {
			return err
		}
	}
	return nil
}

// fenceSorted is fenceAll behind the end of a session, whose changes are one transaction
// in no order that a client may rely on: events are noted in an order of their own.
func (p *player) fenceSorted() error {
	before := len(p.out.Frames)
	if err := p.fenceAll(); err != nil {
		return err
	}
	slices.SortStableFunc(p.out.Frames[before:], func(a, b Frame) int {
		if a.Kind != KindEvent || b.Kind != KindEvent || a.Session != b.Session {
			return a.Session - b.Session
		}
		if a.Event.Type != b.Event.Type {
			return int(a.Event.Type - b.Event.Type)
		}
		return strings.Compare(a.Event.Path, b.Event.Path)
	})
	return nil
}
