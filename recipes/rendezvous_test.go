package recipes_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tenure-dev/tenure/recipes"
)

// named returns n members, and n names of shards.
func named(n int) (members []recipes.Member, shards []string) {
	for i := range n {
		members, shards = append(members, recipes.Member{ID: fmt.Sprintf("m%d", i)}), append(shards, fmt.Sprintf("s%d", i))
	}
	return members, shards
}

// Goal: all shards are assigned, evenly, and when a member joins or leaves little more
// moves than what must; the order of the arguments does not matter. Method: a table of
// numbers; the bound of what moves, four shares, is far below what hashing by remainder
// moves.
func TestRendezvous(t *testing.T) {
	if got := recipes.Rendezvous([]string{"s"}, nil); len(got) != 0 {
		t.Errorf("assigned to nobody: %v", got)
	}
	for _, n := range []int{1, 2, 3, 5, 10, 20, 50} {
		for _, m := range []int{1, 10, 20, 64, 100, 256, 1000} {
			members, _ := named(n + 1)
			_, shards := named(m)
			before, after := recipes.Rendezvous(shards, members[:n]), recipes.Rendezvous(shards, members)
			moved, load := 0, map[string]int{}
			for _, s := range shards {
				load[before[s]]++
				if before[s] != after[s] {
					moved++
				}
			}
			for _, member := range members[:n] {
				if got := load[member.ID]; got < m/n || got > (m+n-1)/n {
					t.Errorf("%d shards, %d members: %s has %d", m, n, member.ID, got)
				}
			}
			if share := (m + n) / (n + 1); len(before) != m || moved > 4*share {
				t.Errorf("%d shards, %d members and one more: %d assigned, %d moved", m, n, len(before), moved)
			}
			rand.Shuffle(m, func(i, j int) { shards[i], shards[j] = shards[j], shards[i] })
			slices.Reverse(members)
			for s, owner := range recipes.Rendezvous(shards, members) {
				if owner != after[s] {
					t.Fatalf("%s is assigned to %s, or %s in another order", s, after[s], owner)
				}
			}
		}
	}
}

// Goal: the assignment is the same in all processes and versions: members that disagree
// would fight. Method: what it was at the beginning.
func TestRendezvousIsPinned(t *testing.T) {
	members, shards := named(6)
	got := fmt.Sprint(recipes.Rendezvous(shards, members[:3]))
	if want := "map[s0:m0 s1:m2 s2:m0 s3:m1 s4:m1 s5:m2]"; got != want {
		t.Errorf("assigned %s, want %s", got, want)
	}
}
