//go:build unix

package tests

import (
	"sync"
	"testing"

	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/tests/differ"
)

// differLanes is how many sequences are played at a time.
const differLanes = 4

// differZooKeeper starts ZooKeeper as the reference of the differential tests: nothing is
// reaped while they compare, and the sessions' range is that of differDaemon.
func differZooKeeper(t *testing.T) string {
	z := recipestest.StartZooKeeper(t, recipestest.ZooKeeperOptions{
		Config: "minSessionTimeout=1000\nmaxSessionTimeout=600000\nglobalOutstandingLimit=100000\n",
		JVM:    []string{"-Dznode.container.checkIntervalMs=86400000"},
	})
	return z.Addrs()[0]
}

// play plays n seeds of so many requests each, the first being seed, some at a time.
func playDiffer(t *testing.T, tester *differ.Tester, seed, n uint64, requests int) {
	t.Helper()
	seeds := make(chan uint64)
	var lanes sync.WaitGroup
	ctx := t.Context()
	for range differLanes {
		lanes.Go(func() {
			for s := range seeds {
				if err := tester.Run(ctx, s, requests); err != nil && ctx.Err() == nil {
					t.Errorf("%v\nreplay: TENURE_SEED=%d TENURE_SEEDS=1 TENURE_OPS=%d go test -count 1 -run '^%s$' ./tests", err, s, requests, t.Name())
				}
			}
		})
	}
	for s := seed; s < seed+n && ctx.Err() == nil; s++ {
		seeds <- s
	}
	close(seeds)
	lanes.Wait()
	t.Log(tester.Summary())
}

// Goal: the tester finds nothing where there is nothing. Method: ZooKeeper against another
// ZooKeeper.
func TestDifferZooKeeperFromItself(t *testing.T) {
	t.Parallel()
	tester := &differ.Tester{Left: differZooKeeper(t), Right: differZooKeeper(t), Name: "differ"}
	seed := randomSeed(t)
	playDiffer(t, tester, seed, environmentNumber(t, "TENURE_SEEDS", 4), int(environmentNumber(t, "TENURE_OPS", 2000)))
}

// Goal: Tenure behaves as ZooKeeper does, but for what is in differ.Deliberate. Method: the
// daemon against ZooKeeper.
func TestDifferFromZooKeeper(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, t.TempDir(), "--zk-min-session-timeout", "1s", "--zk-max-session-timeout", "600s",
		"--reap-interval", "24h")
	tester := &differ.Tester{Left: differZooKeeper(t), Right: d.zkAddress, Name: "differ"}
	seed := randomSeed(t)
	playDiffer(t, tester, seed, environmentNumber(t, "TENURE_SEEDS", 4), int(environmentNumber(t, "TENURE_OPS", 2000)))
}
