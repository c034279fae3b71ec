package recipestest

import (
	"maps"
	"slices"
	"time"
)

// Restart stops all members, starts them again after down with all that was committed,
// and returns. All sessions then have a full timeout.
func (f *Fake) Restart(down time.Duration) {
	f.retain()
	defer f.release()
	f.mu.Lock()
	f.leader = nil
	for _, m := range f.members {
		m.down = true
		for _, conn := range slices.Clone(m.conns) {
			conn.sever()
		}
	}
	f.mu.Unlock()
	time.Sleep(down)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		m.down = false
	}
	f.elect()
}

// elect makes the first of those members the leader that have a majority, unless there
// is a leader, and gives all sessions a full timeout.
func (f *Fake) elect() {
	able := f.able()
	if f.leader != nil || 2*len(able) <= len(f.members) {
		return
	}
	f.leader = able[0]
	f.leader.setLag(0)
	for _, id := range slices.Sorted(maps.Keys(f.sessions)) {
		s := f.sessions[id]
		s.lastTouch = f.now()
		f.armExpiry(s)
	}
	for _, m := range f.members {
		m.reachable()
	}
}

// able returns the members that can talk to each other.
func (f *Fake) able() (all []*member) {
	for _, m := range f.members {
		if !m.isolated && !m.down {
			all = append(all, m)
		}
	}
	return all
}

// reachable goes on with what waited at m for the leader.
func (m *member) reachable() {
	m.catchUp()
	if !m.reaches() {
		return
	}
	parked := m.parked
	m.parked = nil
	for _, again := range parked {
		again()
	}
	for _, conn := range slices.Clone(m.conns) {
		for _, k := range slices.Clone(conn.queue) {
			if conn.serverOpen {
				conn.submit(k)
			}
		}
		conn.answer()
	}
}

// setLag makes m apply what is committed only d later.
func (m *member) setLag(d time.Duration) {
	m.lag = d
	if d > 0 {
		return
	}
	for i := range m.pending {
		m.pending[i].at = 0
	}
	m.catchUp()
}

// target is where Move takes the client: to another follower if there is one.
func (c *fakeClient) target() *member {
	n := len(c.f.members)
	for i := 1; i < n; i++ {
		if m := c.f.members[(c.home.index+i)%n]; m != c.f.leader {
			return m
		}
	}
	return c.f.members[(c.home.index+1)%n]
}

func (c *fakeClient) move() {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.home = c.target()
	if c.conn != nil {
		c.conn.moved = true
		c.conn.sever()
	}
}

func (c *fakeClient) setLag(d time.Duration) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	for _, m := range c.lagging { // the client may be elsewhere by now
		m.setLag(0)
	}
	c.lagging = nil
	for _, m := range []*member{c.home, c.target()} {
		if m != c.f.leader && d > 0 {
			m.setLag(d)
			c.lagging = append(c.lagging, m)
		}
	}
}

// cutOffTicks is ZooKeeper's syncLimit: a member that heard nothing of its leader for so
// many ticks serves nobody any more.
const cutOffTicks = 5

func (c *fakeClient) isolate() {
	f := c.f
	f.mu.Lock()
	defer f.mu.Unlock()
	m := c.home
	if m.isolated {
		return
	}
	m.isolated = true
	m.isolations++
	c.isolated = append(c.isolated, m)
	if f.leader == m || 2*len(f.able()) <= len(f.members) {
		f.leader = nil
		f.after(f.o.tick(), f.elect)
	}
	if f.o.Exact {
		return
	}
	number := m.isolations
	f.after(cutOffTicks*f.o.tick(), func() {
		if !m.isolated || m.isolations != number {
			return
		}
		m.cutOff = true
		for _, conn := range slices.Clone(m.conns) {
			conn.closeByServer()
		}
	})
}

func (c *fakeClient) rejoin() {
	f := c.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range c.isolated {
		m.isolated, m.cutOff = false, false
		m.reachable()
	}
	c.isolated = nil
	if f.leader == nil {
		f.after(f.o.tick(), f.elect)
	}
}
