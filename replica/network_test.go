package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// lan connects Replicas in one process. Links can be cut, one way or both.
type lan struct {
	mu      sync.Mutex
	members map[uint64]*nic
	cut     map[[2]uint64]bool // from, to
	held    map[uint64]bool    // gets nothing of class Bulk
	// streams stands between a member and the streams that it opens; may be nil.
	streams func(from, to uint64, s Stream) Stream
}

// nic is a member's Network.
type nic struct {
	lan      *lan
	id       uint64
	receiver Receiver
	queues   map[uint64]*[Classes]chan []byte
	members  map[uint64]string // the other members; nil lets everybody in
	closed   bool
	done     chan struct{}
	wg       sync.WaitGroup
}

func newLAN() *lan {
	return &lan{members: map[uint64]*nic{}, cut: map[[2]uint64]bool{}, held: map[uint64]bool{}}
}

func (l *lan) nic(id uint64) *nic {
	return &nic{lan: l, id: id, queues: map[uint64]*[Classes]chan []byte{}, done: make(chan struct{})}
}

// plug connects a member: from now on it sends and receives.
func (l *lan) plug(n *nic, r Receiver) {
	l.mu.Lock()
	n.receiver = r
	l.members[n.id] = n
	var others []*nic
	for _, o := range l.members {
		if o != n {
			others = append(others, o)
		}
	}
	l.mu.Unlock()
	for _, o := range others {
		o.receiver.Connected(n.id)
		r.Connected(o.id)
	}
}

// setCut cuts or heals the link from one member to another.
func (l *lan) setCut(from, to uint64, cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut[[2]uint64{from, to}] = cut
}

// isolate cuts a member off from all others, or heals that.
func (l *lan) isolate(id uint64, cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for other := range l.members {
		l.cut[[2]uint64{id, other}], l.cut[[2]uint64{other, id}] = cut, cut
	}
}

// hold keeps everything of class Bulk from a member.
func (l *lan) hold(id uint64, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[id] = held
}

func (l *lan) target(from, to uint64, class Class) Receiver {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.members[to]
	if l.held[to] && class == Bulk {
		return nil
	}
	if n == nil || n.closed || l.cut[[2]uint64{from, to}] || len(n.members) > 0 && !hasKey(n.members, from) {
		return nil
	}
	return n.receiver
}

func (n *nic) Send(to uint64, class Class, frame []byte) bool {
	n.lan.mu.Lock()
	defer n.lan.mu.Unlock()
	if n.closed || n.lan.members[to] == nil || !hasKey(n.members, to) {
		return false
	}
	q := n.queues[to]
	if q == nil {
		q = new([Classes]chan []byte)
		n.queues[to] = q
		for c := range q {
			q[c] = make(chan []byte, 4096)
			n.wg.Add(1)
			go n.deliver(to, Class(c), q[c])
		}
	}
	select {
	case q[class] <- frame:
		return true
	default:
		return false
	}
}

func (n *nic) deliver(to uint64, class Class, frames chan []byte) {
	defer n.wg.Done()
	for {
		select {
		case f := <-frames:
			if r := n.lan.target(n.id, to, class); r != nil {
				if err := r.Receive(n.id, class, f); err != nil {
					panic(err)
				}
			}
		case <-n.done:
			return
		}
	}
}

func (n *nic) Stream(_ context.Context, to uint64) (Stream, error) {
	r := n.lan.target(n.id, to, Control)
	if r == nil {
		return nil, fmt.Errorf("member %d is not there", to)
	}
	near, far := newPipe()
	go func() {
		r.ReceiveStream(n.id, far)
		far.Close()
	}()
	if n.lan.streams != nil {
		return n.lan.streams(n.id, to, near), nil
	}
	return near, nil
}

func (n *nic) SetMembers(addresses map[uint64]string) {
	n.lan.mu.Lock()
	defer n.lan.mu.Unlock()
	n.members = addresses
}

// reaches are the other members as SetMembers named them last.
func (n *nic) reaches() map[uint64]string {
	n.lan.mu.Lock()
	defer n.lan.mu.Unlock()
	return n.members
}

// Close is how the others learn of it: their connections break.
func (n *nic) Close() error {
	n.lan.mu.Lock()
	if n.closed {
		n.lan.mu.Unlock()
		return nil
	}
	n.closed = true
	var others []Receiver
	if n.lan.members[n.id] == n {
		delete(n.lan.members, n.id)
	}
	for _, o := range n.lan.members {
		others = append(others, o.receiver)
	}
	n.lan.mu.Unlock()
	close(n.done)
	n.wg.Wait()
	for _, o := range others {
		o.Disconnected(n.id)
	}
	return nil
}

// pipe is one end of a Stream in memory.
type pipe struct {
	net.Conn // what the other end writes is read here
	w        *io.PipeWriter
	r        *io.PipeReader
}

func newPipe() (near, far *pipe) {
	r1, w1 := io.Pipe()
	r2, w2 := io.Pipe()
	return &pipe{r: r1, w: w2}, &pipe{r: r2, w: w1}
}

func (p *pipe) Read(b []byte) (int, error)  { return p.r.Read(b) }
func (p *pipe) Write(b []byte) (int, error) { return p.w.Write(b) }
func (p *pipe) CloseWrite() error           { return p.w.Close() }
func (p *pipe) Close() error {
	p.r.Close()
	return p.w.Close()
}

// cluster is an ensemble of Replicas on a lan, each with a machine and a disk of its own.
type cluster struct {
	t       *testing.T
	lan     *lan
	members map[uint64]*clusterMember
	voters  map[uint64]string
	tune    func(*Options) // of members started from now on; may be nil
}

type clusterMember struct {
	*Replica
	machine *memoryMachine
	fs      vfs.FS
	nic     *nic
}

// startCluster starts n members; the test's bubble must end with stop.
func startCluster(t *testing.T, n int) *cluster {
	c := &cluster{t: t, lan: newLAN(), members: map[uint64]*clusterMember{}, voters: map[uint64]string{}}
	for id := uint64(1); id <= uint64(n); id++ {
		c.voters[id] = fmt.Sprintf("member-%d:1", id)
	}
	c.startAll()
	return c
}

func (c *cluster) startAll() {
	for id := range c.voters {
		c.start(id, vfs.NewMem(), newMachine())
	}
}

func (c *cluster) start(id uint64, fs vfs.FS, m *memoryMachine) *clusterMember {
	c.t.Helper()
	n := c.lan.nic(id)
	o := Options{ID: id, Members: c.voters, Network: n, FS: fs, Machine: m, Tick: 100 * time.Millisecond}
	if c.tune != nil {
		c.tune(&o)
	}
	r := mustOpen(c.t, "dir", o)
	member := &clusterMember{Replica: r, machine: m, fs: fs, nic: n}
	c.members[id] = member
	c.lan.plug(n, r)
	return member
}

// kill ends a member as a crash would: the others see their connections break.
func (c *cluster) kill(id uint64) *clusterMember {
	m := c.members[id]
	delete(c.members, id)
	m.nic.Close()
	m.in.close(true)
	if err := m.Close(); err != nil {
		c.t.Error(err)
	}
	return m
}

func (c *cluster) stop() {
	for id := range c.members {
		c.kill(id)
	}
}

// leader waits until a member leads, as it and a majority see it.
func (c *cluster) leader() *clusterMember {
	for range 100_000 {
		for _, m := range c.members {
			if m.Leads() == 0 {
				continue
			}
			agree := 0
			for _, o := range c.members {
				if o.Status().Leader == m.o.ID {
					agree++
				}
			}
			if agree > len(c.voters)/2 {
				return m
			}
		}
		time.Sleep(time.Millisecond)
	}
	c.t.Fatal("nobody leads")
	return nil
}

// sent is what was proposed through each life of a member, by its name.
type sent map[string]int

// tell proposes the next number through a member's life.
func (s sent) tell(t *testing.T, m *clusterMember, life string) {
	t.Helper()
	if err := tell(m.Replica, fmt.Sprintf("%s %d", life, s[life])); err != nil {
		t.Fatal(err)
	}
	s[life]++
}

// check waits until all members have applied everything that was proposed through lives that
// go on, and fails unless each life's proposals were applied once and in order: all of a life
// that goes on, the first ones of one that ended.
func (c *cluster) check(s sent, ended ...string) {
	c.t.Helper()
	for id, m := range c.members {
		next := sent{}
		complete := func(got []string) bool {
			clear(next)
			for _, p := range got {
				life, _, _ := strings.Cut(p, " ")
				next[life]++
			}
			for life, n := range s {
				if next[life] < n && !slices.Contains(ended, life) {
					return false
				}
			}
			return true
		}
		m.machine.wait(complete)
		clear(next)
		for _, p := range m.machine.snapshot() {
			life, number, _ := strings.Cut(p, " ")
			if fmt.Sprint(next[life]) != number {
				c.t.Fatalf("member %d applied %q, want number %d", id, p, next[life])
			}
			next[life]++
		}
		for life, n := range next {
			if n > s[life] {
				c.t.Fatalf("member %d applied %d proposals of %s, %d were made", id, n, life, s[life])
			}
		}
	}
}

// Goal: what is proposed on any member is applied on all, exactly once and in its order,
// and barriers work everywhere. Method: three members propose at the same time.
func TestForwardedProposals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3)
		defer c.stop()
		c.leader()
		s := sent{}
		for range 500 {
			for id, m := range c.members {
				s.tell(t, m, fmt.Sprint(id))
			}
		}
		c.check(s)
		for id, m := range c.members {
			if err := barrier(m.Replica); err != nil {
				t.Fatalf("barrier on member %d: %v", id, err)
			}
		}
	})
}

// Goal: a fail-over loses nothing and doubles nothing of the members that live on, however
// far the proposals had come, and takes no election timeout where connections break. Method:
// kill the leader among proposals, ten times, and start it again.
func TestFailOverKeepsProposals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3)
		defer c.stop()
		s, lives := sent{}, map[uint64]string{1: "1-0", 2: "2-0", 3: "3-0"}
		var ended []string
		for round := range 10 {
			leader := c.leader()
			for range 50 {
				for id, m := range c.members {
					s.tell(t, m, lives[id])
				}
			}
			began, id := time.Now(), leader.o.ID
			killed := c.kill(id)
			ended = append(ended, lives[id])
			c.leader()
			if took := time.Since(began); took > 500*time.Millisecond {
				t.Errorf("round %d: nobody led for %v", round, took)
			}
			lives[id] = fmt.Sprintf("%d-%d", id, round+1)
			c.start(id, killed.fs, killed.machine.restarted())
		}
		c.check(s, ended...)
	})
}

// Goal: a member that is cut off for a while, from all or in one direction only, neither
// loses nor doubles what was proposed through it. Method: cut at random, by seed.
func TestCutLinksKeepProposals(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			c := startCluster(t, 3)
			defer c.stop()
			c.leader()
			s := sent{}
			for range 30 {
				a, b := 1+rng.Uint64N(3), 1+rng.Uint64N(3)
				c.lan.setCut(a, b, rng.IntN(2) == 0)
				for range rng.IntN(40) {
					id := 1 + rng.Uint64N(3)
					s.tell(t, c.members[id], fmt.Sprint(id))
					time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
				}
				time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
				if rng.IntN(4) == 0 { // a connection that breaks and comes back
					c.members[a].Disconnected(b)
					c.members[a].Connected(b)
				}
			}
			for id := range c.members {
				c.lan.isolate(id, false)
			}
			c.check(s)
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// Goal: the lead can be handed over, and costs nothing that was proposed; who may stop now
// knows that another one leads, and not only that one stands for election. Method: resign
// ten times among proposals; whoever led does not any more.
func TestResign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3)
		defer c.stop()
		s := sent{}
		for range 10 {
			leader := c.leader()
			for range 20 {
				for id, m := range c.members {
					s.tell(t, m, fmt.Sprint(id))
				}
			}
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := leader.Resign(ctx); err != nil {
				t.Fatal(err)
			}
			cancel()
			if st := leader.Status(); st.Leader == 0 || st.Leader == leader.o.ID {
				t.Fatalf("member %d resigned, and knows %d as the leader", leader.o.ID, st.Leader)
			}
			if next := c.leader(); next == leader || time.Since(began) > 100*time.Millisecond {
				t.Fatalf("member %d leads after %v, member %d resigned", next.o.ID, time.Since(began), leader.o.ID)
			}
		}
		c.check(s)
	})
}

// Goal: a leader that is cut off stops to confirm anything: its barriers fail in time, and a
// proposal through it is applied after healing, once. Method: isolate it.
func TestIsolatedLeaderConfirmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3)
		defer c.stop()
		leader := c.leader()
		c.lan.isolate(leader.o.ID, true)
		s := sent{}
		s.tell(t, leader, "cut")
		began := time.Now()
		if err := barrier(leader.Replica); !errors.Is(err, ErrNoLeader) {
			t.Fatalf("a barrier without a majority: %v", err)
		}
		if took := time.Since(began); took > (askAgeMax+2)*100*time.Millisecond {
			t.Fatalf("it took %v to fail", took)
		}
		if len(leader.machine.snapshot()) > 0 || leader.Leads() != 0 {
			t.Fatal("it applied something, or still leads")
		}
		c.lan.isolate(leader.o.ID, false)
		c.check(s)
	})
}
