package replica

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Goal: a leader whose connections live but that says nothing, as it is paused or its cable is
// pulled, is followed by another within one and a half election timeouts, every time. Method:
// isolate leaders, at various times between two ticks.
func TestSilentLeaderIsFollowedSoon(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, n)
				defer c.stop()
				for round := range 20 {
					leader := c.leader()
					time.Sleep(time.Second + time.Duration(7*round)*time.Millisecond)
					c.lan.isolate(leader.o.ID, true)
					began := time.Now()
					eventually(t, "another leads", func() bool {
						for _, m := range c.others(leader) {
							if m.Leads() != 0 {
								return true
							}
						}
						return false
					})
					if took := time.Since(began); took > 3*electionTicks*leader.o.Tick/2 {
						t.Errorf("round %d: %v without a leader", round, took)
					}
					c.lan.isolate(leader.o.ID, false)
					eventually(t, "it follows", func() bool { return leader.Leads() == 0 && leader.Status().Leader != 0 })
				}
			})
		})
	}
}
