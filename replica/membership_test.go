package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.etcd.io/raft/v3/raftpb"
)

// change changes the members through member id and fails unless that works.
func (c *cluster) change(id uint64, steps ...Step) Members {
	c.t.Helper()
	m, err := c.tryChange(id, steps...)
	if err != nil {
		c.t.Fatalf("%+v through member %d: %v", steps, id, err)
	}
	return m
}

func (c *cluster) tryChange(id uint64, steps ...Step) (Members, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	return c.members[id].Change(ctx, Change{Steps: steps})
}

// describe writes members down: id, v or l, address.
func describe(m Members) string {
	var out []string
	for _, e := range m.List {
		kind := "l"
		if e.Voter {
			kind = "v"
		}
		out = append(out, fmt.Sprintf("%d%s@%s", e.ID, kind, e.Address))
	}
	return strings.Join(out, " ")
}

// agree waits until all members have the same configuration, and returns it.
func (c *cluster) agree() Members { return c.agreeOn(slices.Sorted(maps.Keys(c.members))...) }

// agreeOn is agree of some of the members.
func (c *cluster) agreeOn(ids ...uint64) Members {
	c.t.Helper()
	var lists []Members
	for range 10_000 {
		lists = lists[:0]
		for _, id := range ids {
			lists = append(lists, c.members[id].Configuration())
		}
		if !slices.ContainsFunc(lists, func(m Members) bool {
			return m.Changing || describe(m) != describe(lists[0]) || !slices.Equal(m.Removed, lists[0].Removed)
		}) {
			return lists[0]
		}
		time.Sleep(time.Millisecond)
	}
	c.t.Fatalf("the members do not agree: %+v", lists)
	return Members{}
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 10_000 {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("not within 10 s: %s", what)
}

// load proposes through members until it is stopped.
type load struct {
	stop func() sent
	keep func(ids ...uint64) // through which members from now on
}

func (c *cluster) load(ids ...uint64) load {
	var mu sync.Mutex
	s, over, done := sent{}, false, make(chan struct{})
	pick := func(ids []uint64) (list []*clusterMember) {
		for _, id := range ids {
			list = append(list, c.members[id])
		}
		return list
	}
	through := pick(ids)
	go func() {
		defer close(done)
		for {
			mu.Lock()
			if over {
				mu.Unlock()
				return
			}
			for _, m := range through {
				s.tell(c.t, m, fmt.Sprint(m.o.ID))
			}
			mu.Unlock()
			time.Sleep(time.Millisecond)
		}
	}()
	return load{
		stop: func() sent { mu.Lock(); over = true; mu.Unlock(); <-done; return s },
		keep: func(ids ...uint64) { mu.Lock(); through = pick(ids); mu.Unlock() },
	}
}

// Goal: votes are taken and given, the lead is handed over, and members leave one by one
// until one is left, the leader among them, while proposals go on and none is lost; whoever
// leaves learns it, and its id stays used. Method: three members, changed through members
// that do not lead.
func TestShrinkToOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3)
		defer c.stop()
		leader := c.leader().o.ID
		others := slices.DeleteFunc([]uint64{1, 2, 3}, func(id uint64) bool { return id == leader })
		stays, goes := others[0], others[1]
		l := c.load(1, 2, 3)

		m := c.change(stays, Step{Kind: Demote, ID: goes})
		if i := int(goes - 1); m.List[i].Voter || !m.Current || m.Leader != leader || m.Changing {
			t.Errorf("demoted: %+v", m)
		}
		eventually(t, "it is a learner", func() bool { return c.members[goes].Status().IsLearner })
		if m = c.change(goes, Step{Kind: Promote, ID: goes}); !m.List[goes-1].Voter {
			t.Errorf("promoted: %+v", m)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := c.members[goes].TransferLeader(ctx, stays); err != nil || c.members[stays].Leads() == 0 && c.leader().o.ID != stays {
			t.Errorf("transfer to %d: %v", stays, err)
		}
		if err := c.members[goes].TransferLeader(ctx, goes); err != nil {
			t.Errorf("transfer to itself: %v", err)
		}
		l.keep(stays, leader)
		m = c.change(stays, Step{Kind: Remove, ID: goes}) // it leads
		if m.Leader == goes || len(m.List) != 2 || !slices.Equal(m.Removed, []uint64{goes}) || m.Free() != 4 {
			t.Errorf("removed: %+v", m)
		}
		eventually(t, "the removed member knows it", func() bool { return c.members[goes].Status().IsRemoved })
		eventually(t, "a removed member may not come back", func() bool { return errors.Is(c.members[stays].Known(goes, 1), ErrRemoved) })
		l.keep(stays)
		m = c.change(stays, Step{Kind: Remove, ID: leader})
		if describe(m) != fmt.Sprintf("%dv@member-%d:1", stays, stays) {
			t.Errorf("one is left: %s", describe(m))
		}
		s := l.stop()
		for _, id := range []uint64{goes, leader} {
			eventually(t, "the removed member knows it", func() bool { return c.members[id].Status().IsRemoved })
			c.kill(id)
		}
		c.check(s)
		eventually(t, "reads need no barrier", c.members[stays].BarrierNow)
		last := c.kill(stays)
		c.voters = nil
		c.start(stays, last.fs, last.machine.restarted())
		s.tell(t, c.members[stays], "later")
		c.check(s, "1", "2", "3")
		if got := c.agree(); !slices.Equal(got.Removed, slices.Sorted(slices.Values([]uint64{goes, leader}))) {
			t.Errorf("after a restart: %+v", got)
		}
	})
}

// refusals is an ensemble of three of which one is a learner, and a fourth was removed.
type refusals struct {
	*cluster
	leader, voter, learner, gone uint64
	taken                        string // an address in use
}

type refusal struct {
	steps []Step
	is    error
	want  string
}

func startRefusals(t *testing.T) *refusals {
	c := startCluster(t, 4)
	leader := c.leader().o.ID
	ids := slices.DeleteFunc([]uint64{1, 2, 3, 4}, func(id uint64) bool { return id == leader })
	r := &refusals{cluster: c, leader: leader, voter: ids[0], learner: ids[1], gone: ids[2]}
	c.change(r.voter, Step{Kind: Demote, ID: r.learner})
	r.taken = c.change(r.voter, Step{Kind: Remove, ID: r.gone}).List[0].Address
	return r
}

func (r *refusals) check(rows ...refusal) {
	r.t.Helper()
	for _, row := range rows {
		if _, err := r.tryChange(r.voter, row.steps...); !errors.Is(err, row.is) || !strings.Contains(err.Error(), row.want) {
			r.t.Errorf("%+v: %v, want %q", row.steps, err, row.want)
		}
	}
}

// Goal: each rule about ids, addresses and roles refuses with an error that names it, and
// changes nothing. Method: rows, asked of a follower.
func TestChangeRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startRefusals(t)
		defer c.stop()
		before := c.agreeOn(c.leader, c.voter, c.learner)
		c.check(
			refusal{nil, ErrMember, "without steps"},
			refusal{[]Step{{Kind: 99, ID: c.voter}}, ErrMember, "unknown kind 99"},
			refusal{[]Step{{Kind: AddLearner, ID: 0, Address: "x:1"}}, ErrMember, "want an id from 1 to 255"},
			refusal{[]Step{{Kind: AddLearner, ID: 256, Address: "x:1"}}, ErrMember, "member 256: want an id from 1 to 255"},
			refusal{[]Step{{Kind: AddLearner, ID: c.voter, Address: "x:1"}}, ErrMember, fmt.Sprintf("the id %d is in use", c.voter)},
			refusal{[]Step{{Kind: AddLearner, ID: c.gone, Address: "x:1"}}, ErrMember, "never used again: the next free one is 5"},
			refusal{[]Step{{Kind: AddLearner, ID: 9, Address: c.taken}}, ErrMember, "in use by member"},
			refusal{[]Step{{Kind: AddLearner, ID: 9, Address: "x"}}, ErrMember, "must be HOST:PORT"},
			refusal{[]Step{{Kind: AddLearner, ID: 9, Address: ":1"}}, ErrMember, "must be HOST:PORT"},
			refusal{[]Step{{Kind: AddLearner, ID: 9, Address: "x:70000"}}, ErrMember, "must be HOST:PORT"},
			refusal{[]Step{{Kind: AddLearner, ID: 9, Address: "x:1"}, {Kind: AddLearner, ID: 10, Address: "x:1"}}, ErrMember, "in use by member 9"},
			refusal{[]Step{{Kind: Remove, ID: 9}}, ErrMember, "member 9 is none: the members are"},
			refusal{[]Step{{Kind: Promote, ID: c.voter}}, ErrMember, "has a vote already"},
			refusal{[]Step{{Kind: Demote, ID: c.learner}}, ErrMember, "has no vote to lose"},
			refusal{[]Step{{Kind: Promote, ID: c.learner}, {Kind: Remove, ID: c.learner}}, ErrMember, "in two steps"},
			refusal{[]Step{{Kind: SetAddress, ID: c.learner, Address: c.taken}}, ErrMember, "in use by member"},
			refusal{[]Step{{Kind: Remove, ID: c.voter}, {Kind: Remove, ID: c.leader}}, ErrNoQuorum, "last voter"},
		)
		if err := c.members[c.voter].TransferLeader(t.Context(), c.learner); !errors.Is(err, ErrMember) || !strings.Contains(err.Error(), "no voter") {
			t.Errorf("transfer to a learner: %v", err)
		}
		if after := c.agreeOn(c.leader, c.voter, c.learner); after.Index != before.Index {
			t.Errorf("entry %d changed the members", after.Index)
		}
	})
}

// Goal: who does not answer or lacks too much gets neither a vote nor the lead, and no change
// leaves too few that answer. Method: a member is cut off; then nothing large reaches it.
func TestChangeRefusesWhoIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startRefusals(t)
		defer c.stop()
		promote := []Step{{Kind: Promote, ID: c.learner}}
		c.lan.isolate(c.learner, true)
		time.Sleep(2 * time.Second)
		c.check(refusal{promote, ErrBehind, "does not answer"})
		for i := range promoteLagMax + 10 { // one entry each
			s := sent{}
			s.tell(t, c.members[c.voter], fmt.Sprint("fill", i))
			c.members[c.voter].machine.wait(func(got []string) bool { return len(got) > i })
		}
		c.lan.hold(c.learner, true)
		c.lan.isolate(c.learner, false)
		eventually(t, "it answers", func() bool {
			m, err := c.members[c.voter].Members(t.Context())
			return err == nil && m.Current && m.List[slices.IndexFunc(m.List, func(e Member) bool { return e.ID == c.learner })].Answering
		})
		c.check(refusal{promote, ErrBehind, "more than 1024"})
		c.lan.hold(c.learner, false)
		eventually(t, "it has caught up", func() bool { _, err := c.tryChange(c.voter, promote...); return err == nil })

		c.lan.isolate(c.learner, true)
		time.Sleep(2 * time.Second)
		c.check(
			refusal{[]Step{{Kind: Remove, ID: c.voter}}, ErrNoQuorum, "of the 2 voters then"},
			refusal{[]Step{{Kind: Remove, ID: c.leader}}, ErrNoQuorum, "only 1 answer, and 2 must"},
		)
		if err := c.members[c.voter].TransferLeader(t.Context(), c.learner); !errors.Is(err, ErrNoSuccessor) {
			t.Errorf("transfer to who does not answer: %v", err)
		}
		if after := c.change(c.voter, Step{Kind: Remove, ID: c.learner}); len(after.List) != 2 {
			t.Errorf("removing who does not answer: %+v", after)
		}
	})
}

// Goal: C117: a learner added under an address where nobody is costs nothing: writes go on,
// the list says that it does not answer, and it can be removed. Method: a member that is
// alone, asked all the time.
func TestC117WrongAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1)
		defer c.stop()
		c.leader()
		l := c.load(1)
		m := c.change(1, Step{Kind: AddLearner, ID: 2, Address: "nobody:1"})
		if describe(m) != "1v@member-1:1 2l@nobody:1" {
			t.Fatalf("added: %s", describe(m))
		}
		time.Sleep(5 * time.Second)
		m, err := c.members[1].Members(t.Context())
		if err != nil || m.List[1].Answering || !m.List[0].Answering || m.List[1].Lag == 0 || m.List[0].Lag != 0 {
			t.Errorf("listed: %+v, %v", m, err)
		}
		if _, err := c.tryChange(1, Step{Kind: Promote, ID: 2}); !errors.Is(err, ErrBehind) {
			t.Errorf("promoted: %v", err)
		}
		began := time.Now()
		s := l.stop()
		c.check(s)
		if s["1"] < 1000 || time.Since(began) > time.Second {
			t.Errorf("%d writes in 5 s, %v until the last were applied", s["1"], time.Since(began))
		}
		if m = c.change(1, Step{Kind: Remove, ID: 2}); describe(m) != "1v@member-1:1" || !slices.Equal(m.Removed, []uint64{2}) {
			t.Errorf("removed: %+v", m)
		}
	})
}

// Goal: what the log says of addresses counts after a restart, not the settings. Method:
// move a member, restart all with the old settings and without any.
func TestAddressesSurvive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3)
		defer c.stop()
		c.leader()
		want := "1v@member-1:1 2v@moved:9 3v@member-3:1"
		if m := c.change(3, Step{Kind: SetAddress, ID: 2, Address: "moved:9"}); describe(m) != want {
			t.Fatalf("moved: %s", describe(m))
		}
		for range 2 {
			c.agree()
			killed := map[uint64]*clusterMember{}
			for id := range c.members {
				killed[id] = c.kill(id)
			}
			for id, k := range killed {
				c.start(id, k.fs, k.machine.restarted())
			}
			c.leader()
			if m := c.agree(); describe(m) != want {
				t.Errorf("after a restart: %s", describe(m))
			}
			for id, m := range c.members {
				if at := m.nic.reaches()[2]; at != "moved:9" && id != 2 {
					t.Errorf("member %d reaches member 2 at %q", id, at)
				}
			}
			c.voters = nil
		}
	})
}

// crashing is a disk that stops at the n-th operation that changes it: what a crash there
// would leave is kept.
type crashing struct {
	mu   sync.Mutex
	n    int
	left *vfs.MemFS
	m    *memoryMachine
}

func (c *cluster) startCrashing(id uint64, disk *vfs.MemFS, m *memoryMachine, percent int) *crashing {
	k := &crashing{n: -1}
	c.start(id, errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.n < 0 || !changes(op) {
			return nil
		}
		if k.n--; k.n >= 0 {
			return nil
		}
		c.lan.isolate(id, true) // nothing that it does from now on counts
		m.mu.Lock()
		defer m.mu.Unlock()
		k.m, k.left = m.flushed(), disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(uint64(percent), 0))})
		return nil
	})), m)
	return k
}

func (k *crashing) arm(n int) { k.mu.Lock(); k.n = n; k.mu.Unlock() }

func (k *crashing) crashed() bool { k.mu.Lock(); defer k.mu.Unlock(); return k.left != nil }

// Goal: a crash at any moment of a joint change leaves an ensemble that has made it or has
// not, that all members agree on, and that goes on. Method: for the leader and a follower,
// crash it before its n-th operation on the disk behind the beginning of the change, for
// each n until the change is over first; restart it with what was synced and a part of the rest.
func TestJointChangeCrashAtEverySync(t *testing.T) {
	crashes := 0
	for _, victim := range []string{"leader", "follower", "demoted"} {
		for n, again := 0, true; again && n < 60; n++ {
			for _, percent := range []int{0, 50, 100} {
				synctest.Test(t, func(t *testing.T) { again = jointChangeWithCrash(t, victim, n, percent) })
				if t.Failed() {
					t.Fatalf("the %s crashes before operation %d, keeping %d %%", victim, n, percent)
				}
				if again {
					crashes++
				}
			}
		}
	}
	if t.Logf("%d crashes", crashes); crashes < 12 {
		t.Errorf("only %d crashes", crashes)
	}
}

func jointChangeWithCrash(t *testing.T, who string, n, percent int) (crashed bool) {
	c := &cluster{t: t, lan: newLAN(), members: map[uint64]*clusterMember{}, voters: map[uint64]string{1: "a:1", 2: "b:1", 3: "c:1"}}
	defer c.stop()
	disks := map[uint64]*crashing{}
	for id := range c.voters {
		disks[id] = c.startCrashing(id, vfs.NewCrashableMem(), newMachine(), percent)
	}
	leader := c.leader().o.ID
	others := slices.DeleteFunc([]uint64{1, 2, 3}, func(id uint64) bool { return id == leader })
	demoted, asked := others[0], others[1]
	victim := map[string]uint64{"leader": leader, "follower": asked, "demoted": demoted}[who]
	through := asked
	if victim == asked {
		through = demoted
	}
	s := sent{}
	s.tell(t, c.members[through], "before")
	c.check(s)
	disks[victim].arm(n)
	change := []Step{{Kind: Demote, ID: demoted}, {Kind: SetAddress, ID: leader, Address: "moved:1"}}
	done := make(chan error, 1)
	go func() {
		_, err := c.tryChange(through, change...)
		done <- err
	}()
	var err error
	over := false
	for !over && !disks[victim].crashed() {
		select {
		case err = <-done:
			over = true
		case <-time.After(time.Millisecond):
		}
	}
	if crashed = disks[victim].crashed(); crashed {
		c.kill(victim)
		c.lan.isolate(victim, false)
		c.start(victim, disks[victim].left, disks[victim].m)
	}
	if !over {
		err = <-done
	}
	if errors.Is(err, ErrNoQuorum) { // whoever crashed did not answer yet
		eventually(t, "the change", func() bool {
			_, err = c.tryChange(through, change...)
			return err == nil
		})
	}
	if err != nil {
		t.Errorf("the change: %v", err)
	}
	disks[victim].arm(-1)
	s.tell(t, c.members[through], "after")
	c.check(s)
	m := c.agree()
	for _, e := range m.List {
		if e.Voter == (e.ID == demoted) || e.ID == leader && e.Address != "moved:1" {
			t.Errorf("members %s", describe(m))
		}
	}
	return crashed
}

// Goal: a member that forgets its leader, and hears of it again before it looks at what Raft
// wants, follows it again. Method: break and use the connection in one step of the loop.
func TestForgottenLeaderIsFollowedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3)
		defer c.stop()
		leader := c.leader().o.ID
		follower := c.members[1+leader%3]
		follower.in.task(func() {
			l := follower.loop
			l.core.forgetLeader()
			if err := l.core.step(&raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(leader), To: new(follower.o.ID), Term: new(l.core.term)}); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(500 * time.Millisecond)
		if s := follower.Status(); s.Leader != leader {
			t.Fatalf("it follows %d: %+v", s.Leader, s)
		}
		if err := barrier(follower.Replica); err != nil {
			t.Error(err)
		}
	})
}
