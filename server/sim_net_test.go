package server

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/tenure-dev/tenure/replica"
)

// simNet is the network between the members. Each pair has two ways each way, as in package
// replica/peer; frames of one way arrive in order until its connection breaks.
type simNet struct {
	sim   *sim
	links map[[2]uint64]*simLink // from, to
	// slow is how much longer than usual frames take. The others are how many percent arrive
	// twice, break the connection, are not taken since there is no room for more, and are
	// overtaken by others of their class, which TCP does not let happen.
	slow                                   int64
	duplicates, lossy, refused, overtaking float64
}

// simLink is one direction between two members.
type simLink struct {
	from, to uint64
	up       bool
	hole     bool   // what is sent is lost, and nobody notices
	epoch    uint64 // of the connection
	arrives  [replica.Classes]int64
	delay    int64
}

func newSimNet(s *sim) *simNet { return &simNet{sim: s, links: map[[2]uint64]*simLink{}} }

func (n *simNet) link(from, to uint64) *simLink {
	l := n.links[[2]uint64{from, to}]
	if l == nil {
		l = &simLink{from: from, to: to, delay: n.sim.between(20*us, 2*ms)}
		n.links[[2]uint64{from, to}] = l
	}
	return l
}

// send carries a frame, or loses it.
func (n *simNet) send(from, to uint64, class replica.Class, frame []byte) bool {
	s := n.sim
	l := n.link(from, to)
	switch {
	case !l.up:
		return false
	case l.hole:
		s.count("fault: frame lost in a partition")
		return true
	case s.chance(n.refused):
		s.count("fault: frame dropped")
		return false
	case s.chance(n.lossy):
		s.count("fault: connection broken under a frame")
		n.cut(from, to)
		return true
	}
	d := l.delay/2 + s.rng.Int64N(l.delay+1) + s.rng.Int64N(n.slow+1)
	n.deliver(l, class, frame, d)
	s.count("frame delivered")
	if s.chance(n.duplicates) {
		s.count("fault: frame duplicated")
		n.deliver(l, class, append([]byte(nil), frame...), d+s.rng.Int64N(50*ms))
	}
	return true
}

func (n *simNet) deliver(l *simLink, class replica.Class, frame []byte, d int64) {
	s := n.sim
	at := max(s.now+d, l.arrives[class]+1)
	if s.chance(n.overtaking) {
		s.count("fault: frame overtaken")
		at += s.rng.Int64N(50 * ms)
	} else {
		l.arrives[class] = at
	}
	epoch := l.epoch
	s.after(at-s.now, func() {
		if l.epoch != epoch || l.hole {
			return
		}
		s.member(l.to).input(func(m *simMember) {
			if err := m.rep.Receive(l.from, class, frame); err != nil {
				s.fail("frames", "from member %d to member %d: %v", l.from, l.to, err)
			}
		})
	})
}

// cut breaks the connections between two members: what is on the way is lost, both notice,
// and come together again if they can.
func (n *simNet) cut(a, b uint64) {
	was := n.link(a, b).up && n.link(b, a).up
	for _, l := range []*simLink{n.link(a, b), n.link(b, a)} {
		l.up = false
		l.epoch++
		l.arrives = [replica.Classes]int64{}
	}
	if was {
		n.tell(a, func(m *simMember) { m.rep.Disconnected(b) })
		n.tell(b, func(m *simMember) { m.rep.Disconnected(a) })
	}
	n.redial(a, b)
}

// tell lets a member notice something soon.
func (n *simNet) tell(id uint64, what func(*simMember)) {
	m := n.sim.member(id)
	gen := m.gen
	n.sim.after(n.sim.between(10*us, 2*ms), func() {
		if m.gen == gen {
			m.input(what)
		}
	})
}

// redial connects two members some time from now, if both live and can reach each other.
func (n *simNet) redial(a, b uint64) {
	n.sim.after(n.sim.between(5*ms, 300*ms), func() {
		ab, ba := n.link(a, b), n.link(b, a)
		if ab.up || n.sim.member(a).srv == nil || n.sim.member(b).srv == nil {
			return
		}
		if ab.hole || ba.hole {
			n.redial(a, b)
			return
		}
		ab.up, ba.up = true, true
		n.tell(a, func(m *simMember) { m.rep.Connected(b) })
		n.tell(b, func(m *simMember) { m.rep.Connected(a) })
	})
}

// hole makes one direction lose everything, or ends that. A connection that stays silent is
// cut after a while.
func (n *simNet) hole(from, to uint64, on bool) {
	l := n.link(from, to)
	if l.hole == on {
		return
	}
	l.hole = on
	epoch := l.epoch
	if !on {
		if l.up { // bytes are missing, so the connection does not live on
			n.cut(from, to)
		}
		return
	}
	n.sim.after(5000*ms, func() {
		if l.hole && l.epoch == epoch && l.up {
			n.cut(from, to)
		}
	})
}

// simNIC is a member's Network.
type simNIC struct {
	m   *simMember
	gen uint64
}

var _ replica.Network = (*simNIC)(nil)

var errSimStream = errors.New("no stream (simulated)")

// Send implements replica.Network.
func (c *simNIC) Send(to uint64, class replica.Class, frame []byte) bool {
	if c.gen != c.m.gen || c.m.disk.crashed() {
		return false // of a process that is gone
	}
	return c.m.sim.net.send(c.m.id, to, class, frame)
}

// Stream implements replica.Network. The whole exchange takes no time: the other member
// serves it on a goroutine of its own, and nothing else happens before it has ended. Some
// streams break in the middle.
func (c *simNIC) Stream(_ context.Context, to uint64) (replica.Stream, error) {
	s := c.m.sim
	other := s.member(to)
	if l := s.net.link(c.m.id, to); c.gen != c.m.gen || c.m.disk.crashed() || !l.up || l.hole || other.srv == nil || other.paused {
		return nil, errSimStream
	}
	left := int64(1 << 40)
	if !s.healed && s.chance(40) {
		s.injected("snapshot's stream broken")
		left = s.between(0, 20_000)
	}
	other.mayCrashSoon(40)
	here, there := newSimStreams(left)
	done := make(chan struct{})
	go func() {
		defer close(done)
		other.disk.during(doingReceive, func() { other.rep.ReceiveStream(c.m.id, there) })
		there.Close()
	}()
	here.closed = func() {
		<-done
		s.count("snapshot streams")
		other.input(func(*simMember) {})
	}
	return here, nil
}

// simStream is one end of a stream.
type simStream struct {
	in     *io.PipeReader
	out    *io.PipeWriter
	left   int64 // bytes until it breaks
	once   sync.Once
	closed func()
}

func newSimStreams(left int64) (a, b *simStream) {
	toB, fromA := io.Pipe()
	toA, fromB := io.Pipe()
	return &simStream{in: toA, out: fromA, left: left}, &simStream{in: toB, out: fromB, left: 1 << 40, closed: func() {}}
}

// Read implements replica.Stream.
func (x *simStream) Read(b []byte) (int, error) { return x.in.Read(b) }

// Write implements replica.Stream.
func (x *simStream) Write(b []byte) (int, error) {
	n := min(int64(len(b)), x.left)
	x.left -= n
	written, err := x.out.Write(b[:n])
	if err == nil && written < len(b) {
		x.out.CloseWithError(errSimBroken)
		err = errSimBroken
	}
	return written, err
}

// CloseWrite implements replica.Stream.
func (x *simStream) CloseWrite() error { return x.out.Close() }

// Close implements replica.Stream.
func (x *simStream) Close() error {
	x.in.CloseWithError(errSimBroken)
	x.out.CloseWithError(errSimBroken)
	x.once.Do(x.closed)
	return nil
}

// SetMembers implements replica.Network.
func (c *simNIC) SetMembers(map[uint64]string) {}

// Close implements replica.Network.
func (c *simNIC) Close() error { return nil }
