//go:build unix

package recipestest

import (
	"testing"
)

// Goal: the launcher starts an ensemble that serves, survives a member's kill, and takes
// it back. Method: three real servers, asked what they are.
func TestZooKeeperEnsemble(t *testing.T) {
	z := StartZooKeeper(t, ZooKeeperOptions{Servers: 3})
	leader := z.Leader()
	if leader < 0 {
		t.Fatalf("no leader among %v", z.Addrs())
	}
	z.Stop(leader)
	other := (leader + 1) % 3
	if err := z.servers[other].await(true); err != nil {
		t.Fatal(err)
	}
	if err := z.Start(leader); err != nil {
		t.Fatal(err)
	}
	if err := z.Pause(leader); err != nil {
		t.Fatal(err)
	}
	if mode, err := z.servers[leader].mode(); err == nil {
		t.Errorf("a stopped server answered %q", mode)
	}
	if err := z.Resume(leader); err != nil {
		t.Fatal(err)
	}
	if err := z.servers[leader].await(true); err != nil {
		t.Fatal(err)
	}
}
