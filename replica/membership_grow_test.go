package replica

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// join starts a member that waits to be added, which knows where the others are.
func (c *cluster) join(id uint64, fs vfs.FS, m *memoryMachine) {
	c.t.Helper()
	c.joinThrough(id, fs, m, slices.Collect(maps.Keys(c.members))...)
}

// joinThrough is join of a member that only knows where some of the others are.
func (c *cluster) joinThrough(id uint64, fs vfs.FS, m *memoryMachine, others ...uint64) {
	c.t.Helper()
	seeds := map[uint64]string{}
	for _, other := range others {
		seeds[other] = fmt.Sprintf("member-%d:1", other)
	}
	n := c.lan.nic(id)
	r := mustOpen(c.t, "dir", Options{ID: id, Join: true, Members: seeds, Network: n, FS: fs, Machine: m, Tick: 100 * time.Millisecond})
	c.members[id] = &clusterMember{Replica: r, machine: m, fs: fs, nic: n}
	c.lan.plug(n, r)
}

// grow adds member id through another one and gives it a vote once it has caught up.
func (c *cluster) grow(through, id uint64) {
	c.t.Helper()
	c.change(through, Step{Kind: AddLearner, ID: id, Address: fmt.Sprintf("member-%d:1", id)})
	c.join(id, vfs.NewMem(), newMachine())
	eventually(c.t, fmt.Sprintf("member %d gets a vote", id), func() bool {
		_, err := c.tryChange(through, Step{Kind: Promote, ID: id})
		return err == nil
	})
}

// Goal: an ensemble grows from one to five and shrinks to one again while proposals go on,
// and loses none; who joined knows the members, also after a restart, whichever settings
// it starts with; the founders can all be replaced. Method: members 2 to 5 join one after the
// other and are then restarted; members 1 to 4 are removed, through others and themselves.
func TestGrowToFiveAndShrinkToOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1)
		defer c.stop()
		c.leader()
		c.voters = nil // only the log counts
		l := c.load(1)
		for id := uint64(2); id <= 5; id++ {
			c.grow(1, id)
		}
		l.keep(1, 2, 3, 4, 5)
		want := "1v@member-1:1 2v@member-2:1 3v@member-3:1 4v@member-4:1 5v@member-5:1"
		if m := c.agree(); describe(m) != want {
			t.Errorf("grown: %s", describe(m))
		}
		s := l.stop()
		c.check(s)
		killed := map[uint64]*clusterMember{}
		for id := range c.members {
			killed[id] = c.kill(id)
		}
		for id, k := range killed {
			c.start(id, k.fs, k.machine.restarted())
		}
		c.leader()
		if m := c.agree(); describe(m) != want {
			t.Errorf("restarted: %s", describe(m))
		}
		for id, m := range c.members {
			if others := m.nic.reaches(); len(others) != 4 {
				t.Errorf("member %d reaches %v", id, others)
			}
		}
		for id := uint64(1); id <= 4; id++ {
			c.change(id, Step{Kind: Remove, ID: id})
			eventually(t, "it knows that it is removed", func() bool { return c.members[id].Status().IsRemoved })
			c.kill(id)
		}
		s.tell(t, c.members[5], "last")
		c.check(s, "1", "2", "3", "4", "5")
		if m := c.agree(); describe(m) != "5v@member-5:1" || !slices.Equal(m.Removed, []uint64{1, 2, 3, 4}) {
			t.Errorf("shrunk: %+v", m)
		}
	})
}

// Goal: a member that joins and was told of one member only, which does not lead, follows.
// Method: add a fourth; it may talk to members that it knows only.
func TestJoinThroughOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3)
		defer c.stop()
		told := c.others(c.leader())[0].o.ID
		c.change(told, Step{Kind: AddLearner, ID: 4, Address: "member-4:1"})
		c.joinThrough(4, vfs.NewMem(), newMachine(), told)
		follows := c.members[4]
		eventually(t, "it follows", func() bool { return follows.Status().IsLearner })
		c.agree()
	})
}

// Goal: a learner that hears nothing of its leader, whose connection lives, says that it knows of
// none, and follows again when it does. Method: cut one way.
func TestLearnerMissesSilentLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3)
		defer c.stop()
		leader := c.leader().o.ID
		learner := c.others(c.leader())[0]
		c.change(leader, Step{Kind: Demote, ID: learner.o.ID})
		eventually(t, "it is a learner", func() bool { return learner.Status().IsLearner })
		c.lan.setCut(leader, learner.o.ID, true)
		eventually(t, "it knows of no leader", func() bool { return learner.Status().Leader == 0 })
		c.lan.setCut(leader, learner.o.ID, false)
		eventually(t, "it follows again", func() bool { return learner.Status().Leader == leader })
	})
}

// Goal: a member that was away while another one was added, and got the lead, follows it; and
// it learns from others where the leader has moved to. Method: isolate it meanwhile.
func TestReturnUnderAnUnknownLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3)
		defer c.stop()
		others := c.others(c.leader())
		stays, away := others[0].o.ID, others[1].o.ID
		c.lan.isolate(away, true)
		c.grow(stays, 4)
		c.lan.isolate(away, true) // from member 4, too
		if err := c.members[stays].TransferLeader(t.Context(), 4); err != nil {
			t.Fatal(err)
		}
		c.lan.isolate(away, false)
		eventually(t, "it follows member 4", func() bool { return c.members[away].Status().Leader == 4 })
		c.agree()

		c.lan.isolate(away, true)
		c.change(stays, Step{Kind: SetAddress, ID: 4, Address: "moved:1"})
		time.Sleep(5 * time.Second) // until it knows that it has no leader
		c.lan.setCut(stays, away, false)
		c.lan.setCut(away, stays, false)
		eventually(t, "it knows where the leader is", func() bool { return c.members[away].nic.reaches()[4] == "moved:1" })
	})
}

// Goal: an ensemble whose members come and go while others crash and links are cut loses no
// proposal of who stays, and all agree in the end. Method: by seed: add, promote, demote,
// remove, transfer, crash and restart, cut and heal, until as many changes were tried.
func TestMembershipRandom(t *testing.T) {
	changes := 0
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			})
			changes += membershipRandom(t, rand.New(rand.NewPCG(seed, 1)))
		})
	}
	if t.Logf("%d changes", changes); changes < 60 {
		t.Errorf("only %d changes", changes)
	}
}

func membershipRandom(t *testing.T, rng *rand.Rand) (done int) {
	c := startCluster(t, 3)
	defer c.stop()
	c.leader()
	c.voters = nil
	const stays = 1 // is neither removed nor killed
	s, next := sent{}, uint64(4)
	for range 40 {
		for range rng.IntN(10) {
			s.tell(t, c.members[stays], "1")
		}
		ids := slices.Sorted(maps.Keys(c.members))
		id := ids[rng.IntN(len(ids))]
		switch rng.IntN(8) {
		case 0:
			if len(ids) < 6 {
				if _, err := c.tryChange(stays, Step{Kind: AddLearner, ID: next, Address: fmt.Sprintf("member-%d:1", next)}); err == nil {
					done++
					c.join(next, vfs.NewMem(), newMachine())
				}
				next++
			}
		case 1, 2:
			if _, err := c.tryChange(stays, Step{Kind: Promote, ID: id}); err == nil {
				done++
			}
		case 3:
			if _, err := c.tryChange(stays, Step{Kind: Demote, ID: id}); err == nil && id != stays {
				done++
			}
		case 4:
			if id == stays {
				break
			}
			if _, err := c.tryChange(stays, Step{Kind: Remove, ID: id}); err == nil {
				done++
				time.Sleep(time.Second)
				c.kill(id)
			}
		case 5:
			if id != stays {
				k := c.kill(id)
				time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
				c.join(id, k.fs, k.machine.restarted()) // which only counts for who has not begun
			}
		case 6:
			c.lan.isolate(id, true)
			time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
			c.lan.isolate(id, false)
		case 7:
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			c.members[stays].TransferLeader(ctx, 0) // whether it works is not the question here
			cancel()
		}
	}
	c.settle(s["1"], c.members[stays].Status().First > 2)
	return done
}

// settle waits until all members have applied the proposals 0 to n-1, each once and in order,
// and agree. Where lossy is true some may be missing: the member that they came from was too
// far behind once, and got the state instead.
func (c *cluster) settle(n int, lossy bool) {
	c.t.Helper()
	last := fmt.Sprintf("1 %d", n)
	if err := tell(c.members[1].Replica, last); err != nil {
		c.t.Fatal(err)
	}
	for id, m := range c.members {
		var got []string
		complete := func() bool {
			got = m.machine.snapshot()
			return len(got) > 0 && got[len(got)-1] == last
		}
		for left := 60_000; !complete(); left-- { // a minute
			if left == 0 {
				c.t.Fatalf("member %d has applied %d and not %s: %+v, members %s, network %v",
					id, len(got), last, m.Status(), describe(m.Configuration()), m.nic.reaches())
			}
			time.Sleep(time.Millisecond)
		}
		before := -1
		for _, p := range got {
			number := 0
			if fmt.Sscanf(p, "1 %d", &number); number <= before || number > before+1 && !lossy {
				c.t.Fatalf("member %d applied %q after number %d", id, p, before)
			}
			before = number
		}
	}
	c.agree()
}
