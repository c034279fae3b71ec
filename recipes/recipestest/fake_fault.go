package recipestest

import (
	"slices"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// fakeFault is one that was armed for a kind of request.
type fakeFault struct {
	when     faultWhen
	kind     OpKind
	done     chan struct{} // closed when it has happened
	released bool          // of holdAnswer
	conn     *fakeConn     // of holdAnswer: the one that holds
}

type faultWhen uint8

const (
	cutBefore faultWhen = iota
	cutAfter
	holdAnswer
)

// matches reports whether a fault armed for kind k concerns a request of kind of.
func (k OpKind) matches(of OpKind) bool {
	return k == of || k == AnyWrite && of >= Create && of <= Multi
}

// faultFor takes the first armed fault that concerns a request, nil if none does.
func (c *fakeClient) faultFor(when faultWhen, kind OpKind) *fakeFault {
	i := slices.IndexFunc(c.faults, func(ft *fakeFault) bool { return ft.when == when && ft.kind.matches(kind) })
	if i < 0 {
		return nil
	}
	ft := c.faults[i]
	c.faults = slices.Delete(c.faults, i, i+1)
	return ft
}

func (c *fakeClient) arm(when faultWhen, kind OpKind) *fakeFault {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	ft := &fakeFault{when: when, kind: kind, done: make(chan struct{})}
	c.faults = append(c.faults, ft)
	return ft
}

// peer is the client with its verbs.
func (c *fakeClient) peer() *Peer {
	p := &Peer{
		Store:          c,
		CutAfterCommit: func(kind OpKind) <-chan struct{} { return c.arm(cutAfter, kind).done },
		CutBeforeSend:  func(kind OpKind) <-chan struct{} { return c.arm(cutBefore, kind).done },
		Hold:           c.holdNext,
		Disarm:         c.disarm,
		Break:          c.breakConn,
		Partition:      c.partition,
		Heal:           c.heal,
		Mute:           func() { c.setMuted(true) },
		Unmute:         func() { c.setMuted(false) },
		Delay:          c.setDelay,
		Expire:         c.expire,
		FailSetWatches: c.loseWatches,
		Pause:          c.pause,
		JumpWall:       func(d time.Duration) { c.wallOffset.Add(int64(d)) },
	}
	if n := len(c.f.members); n > 1 {
		p.Move, p.Lag = c.move, c.setLag
		if n > 2 {
			p.Isolate, p.Rejoin = c.isolate, c.rejoin
		}
	}
	return p
}

func (c *fakeClient) holdNext(kind OpKind) (<-chan struct{}, func()) {
	ft := c.arm(holdAnswer, kind)
	return ft.done, func() {
		c.f.mu.Lock()
		defer c.f.mu.Unlock()
		c.faults = slices.DeleteFunc(c.faults, func(o *fakeFault) bool { return o == ft })
		if !ft.released && ft.conn != nil {
			ft.conn.unhold()
		}
		ft.released = true
	}
}

func (c *fakeClient) disarm() {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.faults = nil
}

func (c *fakeClient) breakConn() {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if c.conn != nil {
		c.conn.sever()
	}
}

func (c *fakeClient) partition() {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.partitioned = true
}

func (c *fakeClient) heal() {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.partitioned = false
	c.flush()
}

func (c *fakeClient) setMuted(on bool) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.muted = on
	c.flush()
}

// flush delivers what nothing holds back any more.
func (c *fakeClient) flush() {
	for !c.cutOff() && !c.muted && len(c.heldUp) > 0 {
		h := c.heldUp[0]
		c.heldUp = c.heldUp[1:]
		h.deliver()
	}
	for !c.cutOff() && c.pauses == 0 && len(c.heldDown) > 0 {
		h := c.heldDown[0]
		c.heldDown = c.heldDown[1:]
		h.conn.arrive(h.deliver)
	}
}

func (c *fakeClient) setDelay(d time.Duration) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.delay = d
}

// cutOff reports whether nothing passes between client and members.
func (c *fakeClient) cutOff() bool { return c.partitioned || c.expiring > 0 }

// expireWait bounds how many session timeouts an expiry may take: there may be no leader.
const expireWait = 20

// expire cuts the client off until its session has expired: no session ends before its
// time.
func (c *fakeClient) expire(t testing.TB) {
	t.Helper()
	c.f.mu.Lock()
	id := c.cur.id
	s := c.f.sessions[id]
	if s == nil {
		c.f.mu.Unlock()
		t.Errorf("expire session %v: it is not open", id)
		return
	}
	c.expiring++
	c.f.mu.Unlock()
	timer := time.NewTimer(expireWait * c.f.o.timeout())
	defer timer.Stop()
	select {
	case <-s.over:
	case <-timer.C:
		t.Errorf("session %v did not expire within %d timeouts", id, expireWait)
	}
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.expiring--
	c.flush()
}

func (c *fakeClient) loseWatches() {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.failSetWatches = true
}

func (c *fakeClient) pause() (resume func()) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if c.pauses++; c.pauses == 1 {
		c.resumed = make(chan struct{})
	}
	resumed := false
	return func() {
		c.f.mu.Lock()
		defer c.f.mu.Unlock()
		if resumed || c.pauses == 0 {
			return
		}
		resumed = true
		if c.pauses--; c.pauses == 0 {
			c.goOn()
		}
	}
}

// unpause ends all pauses.
func (c *fakeClient) unpause() {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if c.pauses > 0 {
		c.pauses = 0
		c.goOn()
	}
}

// goOn is what happens after a pause.
func (c *fakeClient) goOn() {
	close(c.resumed)
	c.flush()
	c.schedule()
}

// SetCounter makes n the number that the next sequential child of path gets. Negative
// ones are those that ZooKeeper has behind 2147483647; Tenure refuses them.
func (f *Fake) SetCounter(t testing.TB, path string, n int32) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leader == nil || f.leader.tree.Node(path) == nil {
		t.Errorf("set the counter of %s: no such znode, or no leader", path)
		return
	}
	counters := f.leader.tree.Children(path)
	counters.Created = int64(uint32(n))
	f.publish(znode.Delta{
		Zxid: f.leader.tree.LastZxid() + 1, TimeMs: time.Now().UnixMilli(),
		Children: []znode.ChildrenEffect{{Path: path, Children: counters}},
	})
}

// Reap removes every container that had children and has none, until there is none.
func (f *Fake) Reap() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for again := f.leader != nil; again; {
		again = false
		var empty []string
		f.leader.tree.All(func(path string, n *znode.Node, c znode.Children) bool {
			if n != nil && n.Kind == znode.Container && znode.Reapable(n, c, 0) {
				empty = append(empty, path)
			}
			return true
		})
		for _, path := range empty {
			f.commit(0, &znode.Reap{Path: path})
			again = true
		}
	}
}
