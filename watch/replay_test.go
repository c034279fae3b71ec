package watch_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tenure-dev/tenure/watch"
	"github.com/tenure-dev/tenure/znode"
)

// history yields the transactions from index from on; the zxid of txns[i] is i + 1.
func history(txns [][]znode.Change, from int) func(func(int64, []znode.Change) bool) {
	return func(yield func(int64, []znode.Change) bool) {
		for i := from; i < len(txns); i++ {
			if !yield(int64(i+1), txns[i]) {
				return
			}
		}
	}
}

// wantOf lists what w still has, as its client would after a reconnect.
func wantOf(r *watch.Registry, w watch.Watcher) (set watch.Set) {
	for path, m := range r.PathsOf(w) {
		for k, list := range []*[]string{&set.Data, &set.Child, &set.Persistent, &set.Recursive} {
			if m&(1<<k) != 0 {
				*list = append(*list, path)
			}
		}
	}
	return set
}

// Goal: a watcher that was cut off and resumed by zxid gets exactly the events, in
// order, of one that never was: nothing lost, nothing twice (promise P4). Method:
// watcher 1 stays; watcher 2 has the same watches, is dropped after a random
// transaction, replayed to a later one and registered again, several times.
// Replay: go test ./watch -run TestReplayHasNoGap -seed N.
func TestReplayHasNoGap(t *testing.T) {
	for _, seed := range seeds(300) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		r := watch.NewRegistry()
		for range rnd.IntN(8) {
			path, mode := randomWatchPath(rnd), watch.Mode(rnd.IntN(16))
			r.Add(1, path, mode)
			r.Add(2, path, mode)
		}
		var stayed, cut []string
		note := func(zxid int64, e watch.Event) {
			to := &stayed
			if e.To == 2 {
				to = &cut
			}
			*to = append(*to, fmt.Sprint(zxid, " ", eventNames[e.Type], " ", e.Path))
		}
		var txns [][]znode.Change
		live := func(n int) {
			for range n {
				txns = append(txns, randomTxn(rnd))
				r.Match(txns[len(txns)-1], func(e watch.Event) { note(int64(len(txns)), e) })
			}
		}
		for range 4 {
			live(rnd.IntN(10))
			want, seen := wantOf(r, 2), len(txns)
			r.Drop(2)
			live(rnd.IntN(10))
			for _, w := range watch.Replay(2, want, history(txns, seen), note) {
				r.Add(2, w.Path, w.Mode)
			}
			live(rnd.IntN(3))
		}
		if !slices.Equal(stayed, cut) || r.CountOf(1) != r.CountOf(2) {
			t.Fatalf("seed %d:\nstayed %q\ncut    %q\nthen %d and %d watches left", seed, stayed, cut, r.CountOf(1), r.CountOf(2))
		}
	}
}

// Goal: a replay stops reading the history once nothing is left to match. Method: one
// one-shot watch and an endless history.
func TestReplayStopsEarly(t *testing.T) {
	endless := func(yield func(int64, []znode.Change) bool) {
		for zxid := int64(1); yield(zxid, []znode.Change{{Type: znode.EventDataChanged, Path: "/a"}}); zxid++ {
		}
	}
	var zxids []int64
	left := watch.Replay(1, watch.Set{Data: []string{"/a"}}, endless, func(zxid int64, _ watch.Event) { zxids = append(zxids, zxid) })
	if len(left) != 0 || !slices.Equal(zxids, []int64{1}) {
		t.Fatalf("left %v, events at %v", left, zxids)
	}
}

// Goal: events carry the list that decides who may read them: the znode's own, or the
// parent's for a change of children. Method: one change of each type.
func TestEventsCarryTheirACL(t *testing.T) {
	own := []znode.ACL{{Perms: znode.PermRead, Scheme: "digest", ID: "own"}}
	above := []znode.ACL{{Perms: znode.PermRead, Scheme: "digest", ID: "parent"}}
	r := watch.NewRegistry()
	r.Add(1, "/p/c", watch.Persistent)
	r.Add(1, "/p", watch.Persistent)
	for _, kind := range []znode.EventType{znode.EventCreated, znode.EventDataChanged, znode.EventDeleted} {
		r.Match([]znode.Change{{Type: kind, Path: "/p/c", ACL: own, ParentACL: above}}, func(e watch.Event) {
			want := own
			if e.Type == znode.EventChildrenChanged {
				want = above
			}
			if !slices.Equal(e.ACL, want) {
				t.Errorf("%s has ACL %v, want %v", formatEvent(e), e.ACL, want)
			}
		})
	}
	watch.Compare(1, watch.Set{Exist: []string{"/p"}}, 0,
		func(string) watch.Found { return watch.Found{Exists: true, ACL: above} },
		func(e watch.Event) {
			if !slices.Equal(e.ACL, above) {
				t.Errorf("Compare: %s has ACL %v", formatEvent(e), e.ACL)
			}
		})
}
