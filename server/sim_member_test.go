package server

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tenure-dev/tenure/replica"
)

// simMember is a member, its process and its disk.
type simMember struct {
	sim  *sim
	id   uint64
	disk *simDisk
	srv  *Server // nil while the process is down
	rep  *replica.Manual
	gen  uint64 // of the process
	// lost: the disk is damaged, and the member will not come back.
	lost bool
	join bool // it was not among the founders
	// flipped says which bit of its disk was flipped; pristine is that disk before it was.
	// damaged: one of the state was, and nobody has noticed.
	flipped  string
	pristine *vfs.MemFS
	damaged  bool
	// began is when the process began, of its own clock; wallSkew by how much its wall clock
	// is wrong.
	began, wallSkew int64
	paused          bool
	turning         bool // a turn is going on and found nothing to do
	deferred        []func()
	// due are the parts that are to move, as is known.
	turnDue, appendDue, applyDue, flushDue, workDue, sendDue bool
	syncLow, syncHigh                                        int64 // what a sync takes
	runnable                                                 map[*conn]struct{}
	conns                                                    map[*simConn]struct{}
	exp                                                      expirer
}

func (s *sim) member(id uint64) *simMember { return s.members[id-1] }

func newSimMember(s *sim, id uint64) *simMember {
	return &simMember{sim: s, id: id, disk: newSimDisk(vfs.NewCrashableMem()), syncLow: 100 * us, syncHigh: 2 * ms}
}

// simMachine is the state machine that the replica sees: the server, watched.
type simMachine struct {
	*Server
	m *simMember
}

// Apply implements replica.Machine.
func (a simMachine) Apply(entries []replica.Entry) (int, error) {
	own := 0
	for _, e := range entries {
		n, err := a.m.sim.model.applying(a.m, a.Server, e, func() (int, error) { return a.Server.Apply([]replica.Entry{e}) })
		if err != nil {
			return own, err
		}
		own += n
	}
	return own, nil
}

// Recover implements replica.Machine.
func (a simMachine) Recover(begins uint64) (applied uint64, err error) {
	a.m.disk.during(doingInstall, func() { applied, err = a.Server.Recover(begins) })
	return applied, err
}

// Install implements replica.Machine.
func (a simMachine) Install(applied uint64, restarted func(uint64)) (err error) {
	a.m.mayCrashSoon(15)
	a.m.disk.during(doingInstall, func() { err = a.Server.Install(applied, restarted) })
	if err == nil {
		a.m.sim.model.installed(a.m, a.Server, applied)
		a.m.sim.count("snapshots installed")
	}
	return err
}

func simConfig(id uint64) Config {
	return Config{DataDir: "/data", MemberID: int(id), MinSessionTimeout: time.Second, ZKMinSessionTimeout: time.Second,
		CacheBytes: 1 << 20, HistoryCount: 400}.WithDefaults()
}

// start opens the member on what its disk has.
func (m *simMember) start() {
	s := m.sim
	m.gen++
	gen := m.gen
	m.began, m.paused, m.deferred = s.now, false, nil
	m.turnDue, m.appendDue, m.applyDue, m.flushDue, m.workDue, m.sendDue = false, false, false, false, false, false
	m.runnable, m.conns = map[*conn]struct{}{}, map[*simConn]struct{}{}
	srv := newServer(simConfig(m.id), s.logger(m))
	srv.clock = func() int64 { return s.now - m.began }
	srv.wall = func() int64 { return 1_800_000_000_000 + (s.now+m.wallSkew)/1e6 }
	srv.spawn = func(c *conn) {
		m.runnable[c] = struct{}{}
		m.soon(&m.workDue, s.between(us, 30*us), m.work)
	}
	if gen > 1 {
		m.mayCrashSoon(30)
	}
	var err error
	m.disk.during(doingStart, func() {
		if err = srv.openStore(m.disk); err == nil {
			m.rep, err = replica.OpenManual("/data/log", m.options(srv))
		}
	})
	if err != nil {
		m.srv = nil
		m.unopened(srv, err)
		return
	}
	if m.flipped != "" && m.survived(srv) {
		return
	}
	srv.rep = m.rep.Replica
	srv.serving.Store(true)
	m.srv = srv
	m.exp = expirer{hang: logHang{last: srv.now()}}
	s.note("member %d starts: applied %d, last %d", m.id, srv.store.Applied(), m.rep.Status().Last)
	m.every(gen, 20*ms, func() { m.turnSoon() })
	m.every(gen, 100*ms, func() { m.rep.Tick() })
	m.every(gen, 50*ms, func() { srv.expireOnce(&m.exp) })
	m.every(gen, 400*ms, func() { srv.reapOnce() })
	m.every(gen, 500*ms, func() { m.rep.Barrier(srv.letIn) })
	for _, other := range s.members {
		if other != m {
			s.net.redial(m.id, other.id)
		}
	}
}

// logger shows what a member logs if the run is to be told.
func (s *sim) logger(m *simMember) *slog.Logger {
	if s.verbose == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(simLogWriter(func(b []byte) { s.verbose(fmt.Sprintf("%10.3f ms    member %d: %s", float64(s.now)/1e6, m.id, b)) }),
		&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
}

type simLogWriter func([]byte)

// Write implements io.Writer.
func (w simLogWriter) Write(b []byte) (int, error) {
	w(bytes.TrimSpace(b))
	return len(b), nil
}

// options are those of the server's replica on the simulated network.
func (m *simMember) options(srv *Server) replica.Options {
	o := srv.replicaOptions(m.disk)
	o.Machine = simMachine{srv, m}
	o.Network = &simNIC{m, m.gen}
	o.Now = func() time.Duration { return time.Duration(m.sim.now - m.began) }
	simAsks(&o, m, srv)
	o.Members = map[uint64]string{}
	o.Join = m.join
	for _, other := range m.sim.members[:m.sim.founders] {
		o.Members[other.id] = fmt.Sprintf("member-%d:1", other.id)
	}
	o.FlushBytes, o.KeepBytes, o.LagBytes, o.SnapshotRate = simFlushBytes, min(m.sim.lagBytes, 4<<10), m.sim.lagBytes, -1
	return o
}

// simFlushBytes lets the state be flushed and the log cut several times in a run.
const simFlushBytes = 4 << 10

// unopened is a member whose disk was refused.
func (m *simMember) unopened(srv *Server, err error) {
	m.sim.note("member %d does not start: %v", m.id, err)
	if srv.store != nil {
		srv.store.Close()
	}
	if m.flipped == "" {
		m.sim.fail("opens", "member %d: %v", m.id, err)
		return
	}
	if !errors.Is(err, replica.ErrCorrupt) && !errors.Is(err, replica.ErrLogBehindState) && !errors.Is(err, replica.ErrStateBehindLog) &&
		!strings.Contains(err.Error(), "corrupt") {
		m.sim.fail("P9", "member %d: the damage (%s) is not named: %v", m.id, m.flipped, err)
	}
	m.sim.count("fault: bit flipped, found and named")
	m.lost = true
	m.sim.replace(m)
}

// survived takes a member that opened though a bit of its disk was flipped. Where no data is
// that does no harm. But in the log it may have been the very last batch, which looks like a
// torn one (promise P9 excepts it), so the member starts with the log as it was.
func (m *simMember) survived(srv *Server) (again bool) {
	inLog := strings.Contains(m.flipped, "/log/")
	m.sim.count(fmt.Sprintf("fault: bit flipped, not noticed, in the log %v", inLog))
	m.flipped = ""
	if !inLog {
		m.damaged = true
		return false
	}
	m.rep.Abandon()
	srv.store.Close()
	m.disk = newSimDisk(m.pristine)
	m.start()
	return true
}

// every does something again and again as long as the process lives; what falls into a pause
// is done once behind it.
func (m *simMember) every(gen uint64, d int64, do func()) {
	waits := false
	var again func()
	again = func() {
		if m.gen != gen {
			return
		}
		m.sim.after(d+m.sim.between(-d/50, d/50), again)
		if !waits {
			waits = true
			m.when(gen, func() {
				waits = false
				do()
			})
		}
	}
	m.sim.after(m.sim.between(0, d), again)
}

// when does something on the member's process, behind its pause if it has one.
func (m *simMember) when(gen uint64, do func()) {
	if m.gen != gen || m.srv == nil {
		return
	}
	if m.paused {
		m.deferred = append(m.deferred, do)
		return
	}
	m.turning = false
	do()
	m.moved()
}

// input gives the process something from outside.
func (m *simMember) input(do func(*simMember)) { m.when(m.gen, func() { do(m) }) }

// soon lets a part move after d, unless it is due already.
func (m *simMember) soon(due *bool, d int64, do func()) {
	if *due {
		return
	}
	*due = true
	gen := m.gen
	m.sim.after(d, func() {
		m.when(gen, func() {
			*due = false
			do()
		})
	})
}

func (m *simMember) turnSoon() { m.soon(&m.turnDue, m.sim.between(us, 40*us), m.turn) }

func (m *simMember) turn() {
	s := m.sim
	if m.turning = !m.rep.Turn(); m.turning { // idle: nothing is to follow
		return
	}
	m.soon(&m.appendDue, s.between(m.syncLow, m.syncHigh), func() { m.rep.Append() })
	m.soon(&m.applyDue, s.between(5*us, 500*us), func() { m.rep.Apply() })
	m.soon(&m.flushDue, s.between(100*us, 5*ms), func() {
		m.disk.during(doingFlush, func() {
			if m.rep.Flush() {
				s.count("state flushed and log cut")
			}
		})
	})
	m.soon(&m.sendDue, s.between(100*us, 5*ms), func() { m.rep.SendSnapshot() })
	m.turnSoon()
}

// work lets all connections with something to do do it.
func (m *simMember) work() {
	list := make([]*conn, 0, len(m.runnable))
	for c := range m.runnable {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
	m.sim.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	clear(m.runnable)
	for _, c := range list {
		c.work()
	}
}

// moved looks at a member behind everything that it did.
func (m *simMember) moved() {
	if m.srv == nil {
		return
	}
	if m.disk.crashed() {
		m.sim.count(strings.TrimSuffix("fault: crash at a sync "+m.disk.mu.died, " "))
		m.stop("power cut at a sync")
		m.sim.comeBack(m)
		return
	}
	if err := m.srv.healthy(); err != nil {
		if !errors.Is(err, errSimIO) && !errors.Is(err, errSimFull) && !strings.Contains(err.Error(), "simulated") {
			m.sim.fail("member works", "member %d failed: %v", m.id, err)
		}
		m.stop(err.Error())
		m.sim.comeBack(m)
		return
	}
	if !m.turning {
		m.turnSoon()
	}
}

// stop ends the process at once. Its disk is what a power cut leaves.
func (m *simMember) stop(why string) {
	s := m.sim
	s.note("member %d stops: %s", m.id, why)
	unsynced := []int{0, 100, int(s.between(1, 99))}[s.rng.IntN(3)]
	image := m.disk.crash(unsynced, s.rng.Uint64())
	srv, rep := m.srv, m.rep
	m.srv, m.rep = nil, nil
	m.gen++
	rep.Abandon()
	srv.store.Close()
	m.disk = newSimDisk(image)
	for c := range ordered(m.conns) {
		c.broken()
	}
	for _, other := range s.members {
		if other != m {
			s.net.cut(m.id, other.id)
		}
	}
}

// pause stops the process, as SIGSTOP does.
func (m *simMember) pause() { m.paused = true }

func (m *simMember) resume() {
	if !m.paused {
		return
	}
	m.paused = false
	list := m.deferred
	m.deferred = nil
	gen := m.gen
	for _, do := range list {
		m.when(gen, do)
	}
}

// leader is the member that leads and knows it, nil if there is none.
func (s *sim) leader() *simMember {
	var best *simMember
	for _, m := range s.members {
		if m.srv != nil && m.rep.Status().IsLeader && (best == nil || m.rep.Status().Term > best.rep.Status().Term) {
			best = m
		}
	}
	return best
}

// simAsks is how the member's sessions follow the lead, as in production, and noted.
func simAsks(o *replica.Options, m *simMember, srv *Server) {
	o.Ask, o.Asked, o.Answered = srv.appendQuestion, srv.takeQuestion, srv.takeAnswer
	led := uint64(0)
	o.RoleChanged = func(st replica.Status) {
		srv.roleChanged(st)
		if st.Leads != led && st.Leads != 0 {
			m.sim.note("member %d leads in term %d", m.id, st.Leads)
			m.sim.count("leaders")
		}
		led = st.Leads
	}
}
