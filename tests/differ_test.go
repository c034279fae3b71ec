//go:build unix

package tests

import (
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/tests/differ"
)

// differLanes is how many sequences are played at a time.
const differLanes = 4

// differZooKeeper starts ZooKeeper as a side of the differential tests: nothing is reaped
// while they compare, and the sessions' range is that of Tenure there.
func differZooKeeper(t *testing.T) string {
	t.Helper()
	z := recipestest.StartZooKeeper(t, recipestest.ZooKeeperOptions{
		Config: "minSessionTimeout=1000\nmaxSessionTimeout=600000\n",
		JVM:    []string{"-Dznode.container.checkIntervalMs=86400000"},
	})
	return z.Addrs()[0]
}

// playSeeds plays TENURE_SEEDS (or so many) sequences of TENURE_OPS requests.
func playSeeds(t *testing.T, tester *differ.Tester, seeds, requests uint64) {
	t.Helper()
	seed := environmentNumber(t, "TENURE_SEED", rand.Uint64()>>1)
	seeds, requests = environmentNumber(t, "TENURE_SEEDS", seeds), environmentNumber(t, "TENURE_OPS", requests)
	next := make(chan uint64)
	var lanes sync.WaitGroup
	for range differLanes {
		lanes.Go(func() {
			for s := range next {
				if err := tester.Run(t.Context(), s, int(requests)); err != nil {
					t.Errorf("%v\nreplay: TENURE_SEED=%d TENURE_SEEDS=1 TENURE_OPS=%d go test -count 1 -run '^%s$' ./tests",
						err, s, requests, t.Name())
				}
			}
		})
	}
	for s := seed; s < seed+seeds && !t.Failed(); s++ {
		next <- s
	}
	close(next)
	lanes.Wait()
	t.Logf("seeds from %d: %s", seed, tester.Summary())
}

// Goal: the tester reports no difference where there is none. Method: ZooKeeper against
// another ZooKeeper.
func TestDifferZooKeeperFromItself(t *testing.T) {
	t.Parallel()
	playSeeds(t, &differ.Tester{Left: differZooKeeper(t), Right: differZooKeeper(t), Name: "differ"}, 4, 1000)
}

// Goal: Tenure behaves as ZooKeeper does, but for what is in differ.Deliberate. Method:
// random sequences of all operations on both, every frame compared. make differ plays more.
func TestDifferTenureFromZooKeeper(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, t.TempDir(), "--zk-min-session-timeout", "1s", "--zk-max-session-timeout", "600s", "--reap-interval", "24h")
	playSeeds(t, &differ.Tester{Left: differZooKeeper(t), Right: d.zkAddress, Name: "differ"}, 12, 1500)
	if t.Failed() {
		d.kill()
		t.Logf("output of the daemon:\n%s", &d.output)
	}
}

// Goal: the document lists exactly the deliberate differences. Method: its table is what
// their list gives.
func TestDifferencesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/zookeeper.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Deliberate differences\n")
	section, _, _ = strings.Cut(section, "\n## ")
	want := "| id | what | why |\n|---|---|---|\n"
	for _, d := range differ.Deliberate {
		want += "| " + d.ID + " | " + d.What + " | " + d.Reason + " |\n"
	}
	if !found || !strings.Contains(section, "\n"+want) {
		t.Errorf("docs/zookeeper.md needs a section \"Deliberate differences\" with this table:\n%s", want)
	}
}
