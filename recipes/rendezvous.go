package recipes

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// Rendezvous assigns shards to members by highest random weight (Thaler and Ravishankar,
// 1996): when a member comes or goes little else moves. Each gets its share, rounded up or
// down: a shard whose best member is full goes to its next best.
func Rendezvous(shards []string, members []Member) map[string]string {
	assigned := make(map[string]string, len(shards))
	if len(members) == 0 {
		return assigned
	}
	share, larger := len(shards)/len(members), len(shards)%len(members) // so many get one more
	load := map[string]int{}
	for _, shard := range slices.Sorted(slices.Values(shards)) {
		ranked := slices.SortedFunc(slices.Values(members), func(a, b Member) int {
			return cmp.Or(cmp.Compare(weight(shard, b.ID), weight(shard, a.ID)), cmp.Compare(a.ID, b.ID))
		})
		for _, m := range ranked {
			switch n := load[m.ID]; {
			case n > share, n == share && larger == 0:
				continue
			case n == share:
				larger--
			}
			load[m.ID]++
			assigned[shard] = m.ID
			break
		}
	}
	return assigned
}

// weight is the same on all members: it must not depend on the process.
func weight(shard, member string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(shard))
	h.Write([]byte{0})
	h.Write([]byte(member))
	// FNV alone mixes the last bytes too little for a comparison by size.
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
