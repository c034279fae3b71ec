package replica

// Manual is a member without goroutines: each of its parts moves when its method is called,
// on the caller's goroutine, so that a simulation decides about every order of events. The
// methods of the Replica may be called in between. It is not safe for concurrent use.
type Manual struct {
	*Replica
	over bool
}

// OpenManual is Open for a simulation; Options.Now should be its clock.
func OpenManual(dir string, o Options) (*Manual, error) {
	r, err := build(dir, o, true)
	if err != nil {
		return nil, err
	}
	m := &Manual{Replica: r}
	if err := r.loop.begin(); err != nil {
		r.failed(err)
	}
	return m, nil
}

// Turn is one round of the loop; false if there was nothing to do.
func (m *Manual) Turn() bool {
	if m.over {
		return false
	}
	some, over, err := m.loop.turn()
	if err != nil {
		m.failed(err)
	}
	if over || err != nil {
		m.over = true
		m.loop.stop()
	}
	return some
}

// Tick moves the clock of Raft by one tick.
func (m *Manual) Tick() {
	if !m.over {
		m.loop.tick()
	}
}

// Append writes what waits to the log, in one batch; false if there was nothing.
func (m *Manual) Append() bool {
	jobs := m.appends.takeNow()
	if len(jobs) > 0 {
		m.appendAll(jobs)
	}
	return len(jobs) > 0
}

// Apply feeds what waits to the machine; false if there was nothing.
func (m *Manual) Apply() bool {
	jobs := m.applies.takeNow()
	if len(jobs) > 0 {
		m.applyAll(jobs)
	}
	return len(jobs) > 0
}

// SendSnapshot sends a snapshot that another member needs, to its end; false if there is
// none. Network.Stream and the stream's other end then are the caller's to run.
func (m *Manual) SendSnapshot() bool {
	l := m.loop
	if len(l.sends) == 0 {
		return false
	}
	o := l.sends[0]
	l.sends = l.sends[1:]
	m.sendState(o)
	return true
}

// Flush lets the machine become durable and truncates the log, if the log asks for it.
func (m *Manual) Flush() bool {
	select {
	case _, ok := <-m.flushes:
		if !ok || m.failure() != nil {
			return false
		}
		if err := m.flush(); err != nil {
			m.failed(err)
		}
		return true
	default:
		return false
	}
}

// BeginChange is Change as far as this member's part goes, if it leads: done is called when
// the change is applied or will not be. It must have a Number.
func (m *Manual) BeginChange(c Change, done func(error)) {
	if m.over {
		done(ErrStopped)
		return
	}
	m.loop.changing.begin(m.loop, c.Number, c.Steps, done)
}

// BeginTransfer begins to make voter to the leader, if this member leads.
func (m *Manual) BeginTransfer(to uint64) error {
	if m.over {
		return ErrStopped
	}
	return m.loop.transfer(to)
}

// Abandon lets go of the files and writes nothing, as if the process were killed.
func (m *Manual) Abandon() error {
	m.over = true
	m.in.close(true)
	return m.log.close()
}
