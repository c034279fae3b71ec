package recipes_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// Goal: what happened while the connection was away is seen after it, whether watches are
// armed again or lost, and later changes are seen too. Method: a gap in which one member
// comes, one goes, one changes its data, one is replaced, and one comes and goes; with
// watches that are lost at the reconnect; with a break between two changes of one moment.
func TestC043GroupSeesWhatHappenedInAGap(t *testing.T) {
	for _, unarmed := range []bool{false, true} {
		flavours(t, func(t *testing.T, f *recipestest.Fake) {
			p, other := f.Open(t), newGroup(t, f.Open(t).Store, recipes.GroupOptions{})
			b := joinGroup(t, other, "b", "1")
			c := joinGroup(t, other, "c", "1")
			d := joinGroup(t, other, "d", "1")
			log := watchGroup(t, newGroup(t, p.Store, recipes.GroupOptions{}))
			settle(time.Second)
			log.last(t, "b=1 c=1 d=1")
			if unarmed {
				p.FailSetWatches()
			}
			p.Partition()
			joinGroup(t, other, "a", "1")
			if err := b.SetData(t.Context(), []byte("2")); err != nil {
				t.Fatal(err)
			}
			leave(t, c)
			leave(t, d)
			leave(t, joinGroup(t, other, "e", ""))
			d = joinGroup(t, other, "d", "2")
			settle(3 * time.Second)
			p.Break()
			p.Heal()
			settle(2 * time.Second)
			log.last(t, "a=1 b=2 d=2")
			p.Break() // between the two
			leave(t, d)
			if err := b.SetData(t.Context(), []byte("3")); err != nil {
				t.Fatal(err)
			}
			settle(2 * time.Second)
			log.last(t, "a=1 b=3")
		})
	}
}

func leave(t *testing.T, m *recipes.Membership) {
	t.Helper()
	if err := m.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Goal: members come back after everything that ends a session, soon and once, with few
// creates and no loop. Method: 50 members; somebody writes to one's node; an admin
// expires each; the whole ensemble is down for five minutes; then ten minutes of quiet.
func TestC089MembersComeBackOnce(t *testing.T) {
	for _, exact := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			testC089(t, recipestest.NewFake(recipestest.FakeOptions{Exact: exact, Members: 3, Reconnect: 200 * time.Millisecond}))
		})
	}
}

func testC089(t *testing.T, f *recipestest.Fake) {
	const members = 50
	var peers []*recipestest.Peer
	var stores []*meddled
	var joined []*recipes.Membership
	for i := range members {
		p := f.Open(t)
		s := meddle(p.Store)
		joined = append(joined, joinGroup(t, newGroup(t, s, recipes.GroupOptions{}), fmt.Sprintf("m%02d", i), "x"))
		peers, stores = append(peers, p), append(stores, s)
	}
	observer := f.Open(t).Store
	all := func(within time.Duration, what string) {
		t.Helper()
		settle(within)
		v, err := newGroup(t, observer, recipes.GroupOptions{}).View(t.Context())
		if err != nil || len(v.Members) != members {
			t.Fatalf("%d members %v after %s, %v", len(v.Members), within, what, err)
		}
		for i, m := range joined { // and not by nodes of sessions that are over
			if state := m.State(); !state.Exists || state.Czxid != v.Members[i].Czxid {
				t.Fatalf("%s %v after %s: %+v", m.ID(), within, what, state)
			}
		}
	}
	all(0, "joining")
	if _, err := observer.Set(t.Context(), groupPath+"/m00", []byte("meddled"), recipes.Always()); err != nil {
		t.Fatal(err)
	}
	all(2*time.Second, "a write to one")
	for _, p := range peers {
		p.Expire(t)
	}
	all(2*time.Second, "expiry")
	settle(time.Minute)
	f.Restart(5 * time.Minute)
	// Clients that are sure that they expired open new sessions; the old nodes
	// they find are theirs.
	all(3*time.Second, "the outage")
	settle(10 * time.Minute)
	before := f.Stats()
	all(0, "quiet")
	settle(10 * time.Minute)
	if after := f.Stats(); after.Writes != before.Writes || after.Reads > before.Reads+members+2 {
		t.Errorf("not idle: %+v after %+v", after, before)
	}
	for i, s := range stores {
		path := fmt.Sprintf("%s/m%02d", groupPath, i)
		if c, d := s.creates[path], s.deletes[path]; c > 5 || d > 5 {
			t.Errorf("%s: %d creates, %d deletes", path, c, d)
		}
	}
}

// Goal: joining and leaving, and looking, leave nothing behind. Method: 10 000 cycles, of
// which each third gives up at once and each tenth breaks off a stream; goroutines,
// watches and nodes before and after.
func TestGroupCyclesLeaveNothing(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		s := f.Open(t).Store
		g := newGroup(t, s, recipes.GroupOptions{})
		joinGroup(t, g, "stays", "")
		synctest.Wait()
		goroutines, watches := runtime.NumGoroutine(), f.Watches()
		for i := range 10_000 {
			ctx, cancel := context.WithCancel(t.Context())
			if i%3 == 0 {
				cancel()
			}
			if m, err := g.Join(ctx, "cycle", nil); err == nil {
				leave(t, m)
			} else if i%3 != 0 {
				t.Fatal(err)
			}
			if i%10 == 0 {
				for range g.Members(t.Context()) {
					break
				}
			}
			cancel()
		}
		settle(time.Minute)
		// What the runtime itself starts is counted as well; what the cycles leave would be thousands.
		if n, w := runtime.NumGoroutine(), f.Watches(); n > goroutines+10 || w != watches {
			t.Errorf("%d goroutines and %d watches, before %d and %d", n, w, goroutines, watches)
		}
		if nodes := f.Nodes(groupPath + "/"); len(nodes) != 1 {
			t.Errorf("nodes %v", nodes)
		}
	})
}

// Goal: a burst makes one view after it is over, but endless change is shown too; a short
// absence is not seen, a long one is. Method: ten joins 100 ms apart under a debounce of a
// second; data that change all the time; a member that leaves for one second and for good
// under a linger of five.
func TestGroupDebounceAndLinger(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		s := f.Open(t).Store
		g := newGroup(t, s, recipes.GroupOptions{})
		debounced := watchGroup(t, newGroup(t, s, recipes.GroupOptions{Debounce: time.Second}))
		settle(time.Second)
		debounced.last(t, "")
		var last *recipes.Membership
		for i := range 10 {
			last = joinGroup(t, g, strconv.Itoa(i), "")
			time.Sleep(100 * time.Millisecond)
		}
		if got := debounced.texts(t); len(got) != 1 {
			t.Errorf("views during the burst: %q", got)
		}
		settle(2 * time.Second)
		if got := debounced.texts(t); len(got) != 2 || len(strings.Fields(got[1])) != 10 {
			t.Errorf("views after the burst: %q", got)
		}
		for i := range 300 {
			if err := last.SetData(t.Context(), []byte(strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if got := debounced.texts(t); len(got) < 3 || len(got) > 5 {
			t.Errorf("views of 30 s of change: %q", got)
		}

		lingering := watchGroup(t, newGroup(t, s, recipes.GroupOptions{Linger: 5 * time.Second}))
		settle(time.Second)
		leave(t, last)
		settle(time.Second)
		last = joinGroup(t, g, "9", "back")
		settle(10 * time.Second)
		for _, v := range lingering.texts(t) {
			if len(strings.Fields(v)) != 10 {
				t.Errorf("an absence of a second was seen: %q", v)
			}
		}
		leave(t, last)
		settle(4 * time.Second)
		if got := lingering.texts(t); len(got) != 1 {
			t.Errorf("views within the linger: %q", got)
		}
		settle(2 * time.Second)
		if got := lingering.texts(t); len(strings.Fields(got[len(got)-1])) != 9 {
			t.Errorf("views after the linger: %q", got)
		}
	})
}

// Goal: a large group costs a bounded number of watches, and all data changes are seen.
// Method: 1 200 foreign members; one with a watch and one without change.
func TestGroupOfManyMembers(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		s := f.Open(t).Store
		joinGroup(t, newGroup(t, s, recipes.GroupOptions{}), "first", "")
		for i := range 1200 {
			if _, err := s.Create(t.Context(), fmt.Sprintf("%s/m%04d", groupPath, i), nil, ephemeralNode); err != nil {
				t.Fatal(err)
			}
		}
		log := watchGroup(t, newGroup(t, s, recipes.GroupOptions{}))
		settle(10 * time.Second)
		if n := f.Watches(); n != 1+1001 {
			t.Errorf("%d watches", n)
		}
		for path, within := range map[string]time.Duration{"/m0000": time.Second, "/m1199": 31 * time.Second} {
			if _, err := s.Set(t.Context(), groupPath+path, []byte("new"), recipes.Always()); err != nil {
				t.Fatal(err)
			}
			settle(within)
			all := log.texts(t)
			if !strings.Contains(all[len(all)-1], path[1:]+"=new") {
				t.Errorf("the change of %s was not seen in %v", path, within)
			}
		}
	})
}
