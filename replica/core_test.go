package replica

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// member is a core with its log, on a disk in memory; storage works when run lets it.
type member struct {
	id      uint64
	fs      *vfs.MemFS
	log     *log
	core    *core
	applied []string
	index   uint64 // of the last applied entry
	reads   []string
	slow    bool // appends stay where they are
	appends []*raftpb.Message
}

// ensemble is members on a network in memory, driven by one goroutine: nothing moves
// but by a command.
type ensemble struct {
	t       *testing.T
	members map[uint64]*member
	cut     map[uint64]bool // members on the other side of the partition
	wire    []*raftpb.Message
	out     strings.Builder
}

func (e *ensemble) printf(format string, args ...any) { fmt.Fprintf(&e.out, format+"\n", args...) }

func (e *ensemble) ids() []uint64 {
	var ids []uint64
	for id := range e.members {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// start opens member id; after a crash it starts from what was synced.
func (e *ensemble) start(id uint64, fs *vfs.MemFS, voters []uint64) *member {
	l, err := openLog("log", fs, id, 0, voters, false, discard, func(err error) { e.t.Error(err) })
	if err != nil {
		e.t.Fatal(err)
	}
	c, err := newCore(id, l, discard)
	if err != nil {
		e.t.Fatal(err)
	}
	m := &member{id: id, fs: fs, log: l, core: c, index: 1}
	e.members[id] = m
	return m
}

// run lets everything happen that is waiting to happen.
func (e *ensemble) run() {
	for moved := true; moved; {
		moved = false
		for _, id := range e.ids() {
			moved = e.carryOut(e.members[id]) || moved
		}
		wire := e.wire
		e.wire = nil
		for _, msg := range wire {
			moved = true
			e.deliver(msg)
		}
	}
}

func (e *ensemble) deliver(msg *raftpb.Message) {
	line := raft.DescribeMessage(msg, func(b []byte) string { return fmt.Sprintf("%q", b) })
	to := e.members[msg.GetTo()]
	if to == nil || e.cut[msg.GetFrom()] != e.cut[msg.GetTo()] {
		e.printf("lost %s", line)
		return
	}
	e.printf("%s", line)
	if err := to.core.step(msg); err != nil {
		e.printf("  %v", err)
	}
}

// carryOut does what m's core wants, messages first.
func (e *ensemble) carryOut(m *member) bool {
	var eff effects
	some, err := m.core.ready(&eff)
	if err != nil {
		e.t.Fatal(err)
	}
	if eff.role {
		e.printf("%d is %s in term %d, leader %d", m.id, strings.TrimPrefix(m.core.role.String(), "State"), m.core.term, m.core.leader)
	}
	if eff.conf != nil {
		e.printf("%d has configuration %s", m.id, raft.DescribeConfState(m.core.conf.state))
		if err := m.log.setConf(m.core.conf); err != nil {
			e.t.Fatal(err)
		}
	}
	e.wire = append(e.wire, eff.messages...)
	for _, rs := range eff.reads {
		e.printf("%d may read %q at %d", m.id, rs.RequestCtx, rs.Index)
		m.reads = append(m.reads, string(rs.RequestCtx))
	}
	m.appends = append(m.appends, eff.appends...)
	if !m.slow && len(m.appends) > 0 {
		e.write(m)
	}
	for _, msg := range eff.applies {
		for _, entry := range appendEntries(nil, []*raftpb.Message{msg}) {
			if entry.Index != m.index+1 {
				e.t.Fatalf("member %d applies entry %d after %d", m.id, entry.Index, m.index)
			}
			m.index = entry.Index
			if entry.Data != nil {
				e.printf("%d applies %d %q", m.id, entry.Index, entry.Data)
				m.applied = append(m.applied, string(entry.Data))
			}
		}
		if err := m.core.stored(msg); err != nil {
			e.t.Fatal(err)
		}
	}
	return some
}

func (e *ensemble) write(m *member) {
	w, err := m.log.write(m.appends)
	if err != nil {
		e.t.Fatal(err)
	}
	for _, msg := range m.appends {
		for _, entry := range msg.GetEntries() {
			e.printf("%d writes %d/%d %q", m.id, entry.GetTerm(), entry.GetIndex(), entry.GetData())
		}
		if err := m.core.stored(msg); err != nil {
			e.t.Fatal(err)
		}
	}
	if w.synced {
		e.printf("%d synced", m.id)
	}
	m.appends = nil
}

// do executes one command of a script.
func (e *ensemble) do(d *datadriven.TestData) string {
	e.out.Reset()
	var id uint64
	if d.HasArg("id") {
		d.ScanArgs(e.t, "id", &id)
	}
	switch m := e.members[id]; d.Cmd {
	case "new":
		var n int
		d.ScanArgs(e.t, "members", &n)
		var voters []uint64
		for i := range n {
			voters = append(voters, uint64(i+1))
		}
		for _, id := range voters {
			e.start(id, vfs.NewCrashableMem(), voters)
		}
	case "campaign":
		if err := m.core.campaign(); err != nil {
			e.printf("%v", err)
		}
	case "tick":
		var n int
		d.ScanArgs(e.t, "n", &n)
		for range n {
			m.core.tick()
		}
	case "propose":
		for _, data := range strings.Fields(d.Input) {
			if err := m.core.propose([]byte(data)); err != nil {
				e.printf("%s: %v", data, err)
			}
		}
	case "read":
		m.core.readIndex([]byte(strings.TrimSpace(d.Input)))
	case "slow":
		m.slow = !m.slow
	case "write":
		e.write(m)
	case "conf":
		e.changeConf(m, d)
	case "partition":
		e.partition(d)
	case "crash":
		left := m.fs.CrashClone(vfs.CrashCloneCfg{})
		if err := m.log.close(); err != nil {
			e.t.Fatal(err)
		}
		e.start(id, left, nil)
	case "run":
	case "status":
		e.status()
		return e.out.String()
	default:
		d.Fatalf(e.t, "unknown command %q", d.Cmd)
	}
	if !d.HasArg("hold") {
		e.run()
	}
	return e.out.String()
}

func (e *ensemble) partition(d *datadriven.TestData) {
	e.cut = map[uint64]bool{}
	for _, arg := range d.CmdArgs {
		for _, v := range arg.Vals {
			var id uint64
			fmt.Sscan(v, &id)
			e.cut[id] = true
		}
	}
}

func (e *ensemble) changeConf(m *member, d *datadriven.TestData) {
	changes, err := raftpb.ConfChangesFromString(strings.TrimSpace(d.Input))
	if err == nil {
		err = m.core.node.ProposeConfChange(&raftpb.ConfChangeV2{Changes: changes})
	}
	if err != nil {
		e.printf("%v", err)
	}
}

func (e *ensemble) status() {
	for _, id := range e.ids() {
		m := e.members[id]
		s := m.log.span()
		e.printf("%d: %s term %d leader %d commit %d log %d-%d applied %v alone %v", id, strings.TrimPrefix(m.core.role.String(), "State"),
			m.core.term, m.core.leader, m.core.commit, s.first, s.last, m.applied, m.core.sole())
	}
}

// Goal: what one and three cores say to each other, write, apply and confirm is as
// written down, message by message. Method: the scripts in testdata, each with its own
// ensemble; -rewrite writes down what happens now.
func TestCoreScripts(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 2)
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		e := &ensemble{t: t, members: map[uint64]*member{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			e.t = t
			return e.do(d)
		})
		for _, m := range e.members {
			if err := m.log.close(); err != nil {
				t.Error(err)
			}
		}
	})
}
