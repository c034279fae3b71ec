package replica

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Goal: a leader that was deposed, and does not know it, refuses nothing for good, since it
// judges by members that are no more. Method: ask one through a learner beside it for the removal
// of a member that its successor adds meanwhile; it hears of that before it answers.
func TestDeposedLeaderRefusesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 4)
		defer c.stop()
		deposed := c.leader()
		others := c.others(deposed)
		asked, far := others[0], others[1:]
		c.change(far[0].o.ID, Step{Kind: Demote, ID: asked.o.ID})
		c.agree()
		cut := func(cut bool) {
			for _, near := range []*clusterMember{deposed, asked} {
				for _, f := range far {
					c.lan.setCut(near.o.ID, f.o.ID, cut)
					c.lan.setCut(f.o.ID, near.o.ID, cut)
				}
			}
		}
		cut(true)
		done := make(chan error, 1)
		go func() {
			_, err := c.tryChange(asked.o.ID, Step{Kind: Remove, ID: 5})
			done <- err
		}()
		eventually(t, "a successor", func() bool { return far[0].Leads() != 0 || far[1].Leads() != 0 })
		c.change(far[0].o.ID, Step{Kind: AddLearner, ID: 5, Address: "nobody:1"})
		cut(false)
		if err := <-done; err != nil {
			t.Errorf("the removal of a member that the deposed leader has not heard of: %v", err)
		}
	})
}

// Goal: a member that is closed says so to whoever asks for a change or a transfer, at once and
// without a deadline. Method: one that led, and one that did not.
func TestChangeOfAClosedMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3)
		defer c.stop()
		leader := c.leader()
		for _, m := range append(c.others(leader), leader) {
			c.kill(m.o.ID)
			began := time.Now()
			if _, err := m.Change(context.Background(), Change{Steps: []Step{{Kind: Remove, ID: 9}}}); !errors.Is(err, ErrStopped) {
				t.Errorf("a change: %v", err)
			}
			if err := m.TransferLeader(context.Background(), 0); !errors.Is(err, ErrStopped) {
				t.Errorf("a transfer: %v", err)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("it took %v", took)
			}
		}
	})
}
