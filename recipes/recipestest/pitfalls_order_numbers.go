package recipestest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: order stays that of creation where the numbers overflow. Method: six candidates
// around the largest number. A backend that has no number after it refuses the others,
// for good and at once.
func numbersOverflow(t *testing.T, h Harness) {
	s := newScene(t, h)
	peers := s.open(2)
	h.SetCounter(t, s.dir, math.MaxInt32-2)
	var line []<-chan result[*recipes.Tenure]
	var refused bool
	for i := range 6 {
		call := s.campaign(peers[i%2].Store, fmt.Sprint(i))
		h.eventually(t, "the candidate stands in the line, or is refused", func() bool {
			return len(call) > 0 || len(s.names(peers[1].Store)) == len(line)+1
		})
		if i < 3 || len(s.names(peers[1].Store)) == len(line)+1 {
			line = append(line, call)
			continue
		}
		refused = true
		if r := <-call; !errors.Is(r.err, znode.QuotaExceeded) {
			t.Errorf("candidate %d: %v", i, r.err)
		}
	}
	if len(line) != 6 && !refused || refused && len(line) != 3 {
		t.Errorf("%d of 6 stand in the line", len(line))
	}
	s.inTurn(line)
	s.places(peers[1].Store, 0)
}

// inTurn says that the candidates lead in this order, each while all behind it wait.
func (s scene) inTurn(line []<-chan result[*recipes.Tenure]) {
	s.t.Helper()
	for i, call := range line {
		tenure := s.led(call, fmt.Sprintf("candidate %d", i))
		pause(s.t, s.h.Timeout/50)
		for j, other := range line[i+1:] {
			if len(other) > 0 && (s.h.Fake || tenure.Check() == nil) {
				s.t.Errorf("candidate %d leads before %d", i+1+j, i)
			}
		}
		s.release(tenure)
	}
}

// Goal: tokens grow although the directory was removed and made anew. Method: elections
// whose directory is a container, reaped in between.
func numbersBeginAnew(t *testing.T, h Harness) {
	s := newScene(t, h)
	a := h.Open(t)
	e, err := recipes.NewElection(a.Store, s.dir, recipes.ElectionOptions{Options: recipes.Options{Reap: true}})
	if err != nil {
		t.Fatal(err)
	}
	var last recipes.Token
	for round := range 3 {
		tenure := s.led(async(func() (*recipes.Tenure, error) { return e.Campaign(s.ctx) }), "the candidate")
		if tenure.Token() <= last {
			t.Errorf("round %d: token %d after %d", round, tenure.Token(), last)
		}
		last = tenure.Token()
		s.release(tenure)
		h.Reap(t)
		if _, _, err := a.Store.Get(s.ctx, s.dir); a.Store.Caps().Containers && !errors.Is(err, znode.NoNode) {
			t.Errorf("round %d: the directory was not reaped: %v", round, err)
		}
	}
}

// foreignNames are of others: a mark, a configuration, the locks of Curator, kazoo and
// go-zookeeper, and near misses.
var foreignNames = []string{
	"ready", "config", "_c_0b3e9c1a-6b5f-4f6e-9d0a-1f2e3d4c5b6a-lock-0000000000",
	"0b3e9c1a6b5f4f6e9d0a1f2e3d4c5b6a__lock__0000000001", "lock-0000000002", "-", "x-", "x--0000000000",
	"x-0b3e9c1a6b5f4f6e9d0a1f2e3d4c5b6a-", "x-0b3e9c1a6b5f4f6e9d0a1f2e3d4c5b6a-7",
	"y-0b3e9c1a6b5f4f6e9d0a1f2e3d4c5b6a-0000000000", "x1-0b3e9c1a6b5f4f6e9d0a1f2e3d4c5b6a-0000000000",
}

// Goal: children of others neither count nor disturb. Method: put some in before anybody
// comes; elect and lock as ever.
func foreignChildren(t *testing.T, h Harness) {
	s := newScene(t, h)
	peers := s.open(2)
	a, b := peers[0].Store, peers[1].Store
	for _, name := range foreignNames {
		if _, err := b.Create(s.ctx, znode.Join(s.dir, name), nil, recipes.CreateSpec{}); err != nil {
			t.Fatalf("create %q: %v", name, err)
		}
	}
	held := s.lead(a, "a")
	second := s.campaign(b, "b")
	s.lined(a, "a", "b")
	s.waits(second, h.Timeout/10, "the second")
	s.release(held)
	s.release(s.led(second, "b"))
	sem, err := recipes.NewSemaphore(a, s.dir, 2, recipes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if free, err := sem.Free(s.ctx); free != 2 || err != nil {
		t.Errorf("%d of 2 slots are free, %v", free, err)
	}
	rw, err := recipes.NewRWMutex(b, s.dir, recipes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tenure, ok, err := rw.TryLock(s.ctx)
	if !ok || err != nil {
		t.Fatalf("TryLock: %v, %v", ok, err)
	}
	s.release(tenure)
	names := s.names(b)
	slices.Sort(names)
	if want := slices.Sorted(slices.Values(foreignNames)); !slices.Equal(names, want) {
		t.Errorf("left are %v, want %v", names, want)
	}
}

// Goal: the one before is the next lower number, not the number less one. Method: other
// znodes are made between the candidates, plain and numbered.
func numbersWithGaps(t *testing.T, h Harness) {
	s := newScene(t, h)
	peers := s.open(2)
	var line []<-chan result[*recipes.Tenure]
	for i := range 4 {
		for j := range i + 1 {
			for _, spec := range []recipes.CreateSpec{{}, {Sequential: true}} {
				path := znode.Join(s.dir, fmt.Sprintf("other-%d-%d-", i, j))
				if _, err := peers[0].Store.Create(s.ctx, path, nil, spec); err != nil {
					t.Fatal(err)
				}
			}
		}
		line = append(line, s.campaign(peers[i%2].Store, fmt.Sprint(i)))
		h.eventually(t, "the candidate stands in the line", func() bool { return len(s.line(peers[1].Store)) == i+1 })
	}
	s.inTurn(line)
}

// Goal: a view of an election whose leader goes while it is read has no error and no dead
// leader. Method: stop the reader between list and read, and release meanwhile, with a
// successor and without.
func leaderReadTooLate(t *testing.T, h Harness) {
	for _, successor := range []bool{true, false} {
		s := newScene(t, h)
		a, b, c := h.Open(t), h.Open(t), h.Open(t)
		held := s.lead(a.Store, "a")
		var second <-chan result[*recipes.Tenure]
		if successor {
			second = s.campaign(b.Store, "b")
			s.lined(a.Store, "a", "b")
		}
		g := newGate(c.Store, true, func(c Call) bool { return c.Kind == Children && c.Path == s.dir })
		e := s.election(g, "observer")
		viewed := async(func() (recipes.View, error) { return e.View(s.ctx) })
		s.happens(g.stopped, "the reader has the list")
		s.release(held)
		if successor {
			s.led(second, "b")
		}
		s.answered(c.Store) // it has seen all that
		close(g.goOn)
		r := await(t, h, viewed, "the view is read")
		if r.err != nil {
			t.Errorf("successor %v: %v", successor, r.err)
		}
		for _, candidate := range r.value.Candidates {
			if candidate.ID == "a" {
				t.Errorf("successor %v: who has left is a candidate", successor)
			}
		}
		if l := r.value.Leader; l != nil && (l.ID != "b" || !successor) {
			t.Errorf("successor %v: leader is %+v", successor, *l)
		}
	}
}

// Goal: who is next in line is not called leader before it has claimed. Method: stop the
// second before its claim, release the first, look.
func electedIsNotActing(t *testing.T, h Harness) {
	s := newScene(t, h)
	a, b := h.Open(t), h.Open(t)
	held := s.lead(a.Store, "a")
	if v := s.view(a.Store); v.Leader == nil || v.Leader.ID != "a" || v.Leader.Token != held.Token() {
		t.Errorf("the leader is %+v", v.Leader)
	}
	g := newGate(b.Store, false, func(c Call) bool { return c.Kind == Multi })
	second := s.campaign(g, "b")
	s.lined(a.Store, "a", "b")
	s.release(held)
	s.happens(g.stopped, "the second is about to claim")
	s.lined(a.Store, "b")
	if v := s.view(a.Store); v.Leader != nil || v.Candidates[0].Token != 0 {
		t.Errorf("before it has claimed: leader %+v of %+v", v.Leader, v.Candidates)
	}
	close(g.goOn)
	held = s.led(second, "b")
	h.eventually(t, "the second is seen as leader", func() bool {
		v := s.view(a.Store)
		return v.Leader != nil && v.Leader.ID == "b" && v.Leader.Token == held.Token()
	})
	s.release(held)
}
