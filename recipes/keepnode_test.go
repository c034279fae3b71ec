package recipes_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/znode"
)

// meddled is a Store whose calls are counted by path, and refused to order.
type meddled struct {
	recipes.Store
	mu      sync.Mutex
	creates map[string]int
	deletes map[string]int
	refuse  func(call, path string) error // nil lets all pass
}

func meddle(s recipes.Store) *meddled {
	return &meddled{Store: s, creates: map[string]int{}, deletes: map[string]int{}}
}

func (m *meddled) refuseWith(f func(call, path string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse = f
}

func (m *meddled) note(call, path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch call {
	case "create":
		m.creates[path]++
	case "delete":
		m.deletes[path]++
	}
	if m.refuse == nil {
		return nil
	}
	return m.refuse(call, path)
}

func (m *meddled) Create(ctx context.Context, path string, data []byte, s recipes.CreateSpec) (string, error) {
	if err := m.note("create", path); err != nil {
		return "", err
	}
	return m.Store.Create(ctx, path, data, s)
}

func (m *meddled) Set(ctx context.Context, path string, data []byte, c recipes.Cond) (znode.Stat, error) {
	if err := m.note("set", path); err != nil {
		return znode.Stat{}, err
	}
	return m.Store.Set(ctx, path, data, c)
}

func (m *meddled) Delete(ctx context.Context, path string, c recipes.Cond) error {
	if err := m.note("delete", path); err != nil {
		return err
	}
	return m.Store.Delete(ctx, path, c)
}

func (m *meddled) GetW(ctx context.Context, path string) ([]byte, znode.Stat, recipes.Watch, error) {
	if err := m.note("get", path); err != nil {
		return nil, znode.Stat{}, recipes.Watch{}, err
	}
	return m.Store.GetW(ctx, path)
}

func (m *meddled) Multi(ctx context.Context, ops ...recipes.Op) ([]recipes.OpResult, error) {
	for _, op := range ops {
		if err := m.note(op.Kind.String(), op.Path); err != nil {
			return nil, err
		}
	}
	return m.Store.Multi(ctx, ops...)
}

var ephemeralNode = recipes.CreateSpec{Kind: znode.Ephemeral}

func keepNode(t *testing.T, s recipes.Store, path, data string) *recipes.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, err := recipes.KeepNode(ctx, s, path, []byte(data), ephemeralNode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close(context.Background()) })
	return n
}

// nodeHas fails unless the znode has the data, and returns its stat.
func nodeHas(t *testing.T, s recipes.Store, path, data string) znode.Stat {
	t.Helper()
	got, stat, err := s.Get(t.Context(), path)
	if err != nil || string(got) != data {
		t.Fatalf("%s has %q, %v; want %q", path, got, err, data)
	}
	return stat
}

// settle lets d pass and everybody react.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// nap lets d pass, in a bubble.
func nap(d time.Duration) { time.Sleep(d) }

// Goal: what cannot be kept is refused with the rule. Method: one bad argument each.
func TestKeepNodeArguments(t *testing.T) {
	for name, test := range map[string]struct {
		path string
		spec recipes.CreateSpec
	}{
		"sequential": {"/a", recipes.CreateSpec{Sequential: true}},
		"kind":       {"/a", recipes.CreateSpec{Kind: znode.TTL}},
		"root":       {"/", recipes.CreateSpec{}},
		"path":       {"a/b", recipes.CreateSpec{}},
	} {
		if _, err := recipes.KeepNode(t.Context(), nil, test.path, nil, test.spec); !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Goal: a create whose answer is lost is settled by looking, not by another create.
// Method: the connection is cut behind the create.
func TestKeepNodeUncertainCreate(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		keepNode(t, p.Store, "/app/first", "") // so that the directory is there
		s := meddle(p.Store)
		cut := p.CutAfterCommit(recipestest.Create)
		n := keepNode(t, s, "/app/node", "x")
		<-cut
		if n.State().Czxid != nodeHas(t, p.Store, "/app/node", "x").Czxid || s.creates["/app/node"] != 1 {
			t.Errorf("state %+v after %d creates", n.State(), s.creates["/app/node"])
		}
	})
}

// Goal: what somebody else writes is not fought over, and what somebody deletes comes
// back with what is wanted. Method: both, with the calls counted; then one who deletes
// the node each time it appears.
func TestKeepNodeMeddledWith(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		s, other := meddle(f.Open(t).Store), f.Open(t).Store
		n := keepNode(t, s, "/app/node", "mine")
		if _, err := other.Set(t.Context(), "/app/node", []byte("theirs"), recipes.Always()); err != nil {
			t.Fatal(err)
		}
		settle(10 * time.Second)
		nodeHas(t, other, "/app/node", "theirs")
		if err := other.Delete(t.Context(), "/app/node", recipes.Always()); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		nodeHas(t, other, "/app/node", "mine")
		if err := n.SetData(t.Context(), []byte("new")); err != nil {
			t.Fatal(err)
		}
		nodeHas(t, s, "/app/node", "new")
		settle(5 * time.Second)
		before := s.creates["/app/node"]
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			_ = other.Delete(t.Context(), "/app/node", recipes.Always())
		}
		if made := s.creates["/app/node"] - before; made > 300 || made < 20 {
			t.Errorf("made %d times in a minute of deletions", made)
		}
	})
}

// Goal: a refusal reaches the caller, and what was there before stays wanted. Method: a
// backend that refuses one write; then an expiry.
func TestKeepNodeRefused(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		s := meddle(p.Store)
		n := keepNode(t, s, "/app/node", "good")
		s.refuseWith(func(call, _ string) error {
			if call == "set" {
				return znode.QuotaExceeded
			}
			return nil
		})
		if err := n.SetData(t.Context(), []byte("too much")); !errors.Is(err, znode.QuotaExceeded) {
			t.Errorf("refused set: %v", err)
		}
		s.refuseWith(nil)
		p.Expire(t)
		settle(12 * time.Second)
		nodeHas(t, s, "/app/node", "good")
		if _, err := recipes.KeepNode(t.Context(), s, "/app/node/child", nil, recipes.CreateSpec{}); !errors.Is(err, znode.NoChildrenForEphemerals) {
			t.Errorf("child of an ephemeral: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := recipes.KeepNode(ctx, s, "/app", nil, ephemeralNode); !errors.Is(err, znode.NodeExists) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a persistent node in the place: %v", err)
		}
	})
}

// Goal: Close does not hang without a network, its second call has the same result, and
// the node goes all the same. Method: partition, Close from two goroutines, heal.
func TestP58CloseWithoutNetwork(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		n := keepNode(t, p.Store, "/app/node", "")
		p.Partition()
		start := time.Now()
		results := make(chan error, 2)
		for range 2 {
			go func() { results <- n.Close(t.Context()) }()
		}
		for range 2 {
			if err := <-results; !errors.Is(err, recipes.ErrUncertain) {
				t.Errorf("close: %v", err)
			}
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("close took %v", took)
		}
		p.Heal()
		settle(5 * time.Second)
		if nodes := f.Nodes("/app/"); len(nodes) > 0 {
			t.Errorf("left behind: %v", nodes)
		}
		if err := n.SetData(t.Context(), nil); !errors.Is(err, recipes.ErrReleased) {
			t.Errorf("SetData after Close: %v", err)
		}
	})
}

// Goal: a persistent node is kept too, adopted where it is, and deleted by Close.
// Method: one that is there with other data; a deletion; Close.
func TestKeepNodePersistent(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		s := f.Open(t).Store
		if _, err := s.Create(t.Context(), "/there", []byte("old"), recipes.CreateSpec{}); err != nil {
			t.Fatal(err)
		}
		n, err := recipes.KeepNode(t.Context(), s, "/there", []byte("new"), recipes.CreateSpec{})
		if err != nil {
			t.Fatal(err)
		}
		nodeHas(t, s, "/there", "new")
		if err := s.Delete(t.Context(), "/there", recipes.Always()); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		nodeHas(t, s, "/there", "new")
		if err := n.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if nodes := f.Nodes("/there"); len(nodes) > 0 {
			t.Errorf("left behind: %v", nodes)
		}
	})
}
