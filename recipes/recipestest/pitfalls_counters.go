package recipestest

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

var pitfallsOfCounters = []pitfall{
	{79, "VersionOverflows", nil, versionOverflows},
	{80, "VersionZeroIsAny", nil, versionZeroIsAny},
	{81, "ItemHandedToTwo", []verb{verbExpire}, itemHandedToTwo},
	{81, "C091ItemsPutDuringACut", []verb{verbPartition}, itemsPutDuringACut},
	{82, "RequeueChangesOrder", nil, requeueChangesOrder},
	{83, "WatchPerPut", nil, watchPerPut},
	{84, "BoundNotEnforced", nil, boundNotEnforced},
	{85, "HugeDirectory", nil, hugeDirectory},
}

func counterAt(t *testing.T, s recipes.Store, path string) *recipes.Counter {
	t.Helper()
	c, err := recipes.NewCounter(s, path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// shifted is a Store on which the versions of data begin at by, as if there had been that
// many changes.
type shifted struct {
	recipes.Store
	by int32
}

func (s shifted) Get(ctx context.Context, path string) ([]byte, znode.Stat, error) {
	data, stat, err := s.Store.Get(ctx, path)
	stat.Version += s.by
	return data, stat, err
}

func (s shifted) Set(ctx context.Context, path string, data []byte, c recipes.Cond) (znode.Stat, error) {
	version, err := c.Version()
	if err != nil {
		return znode.Stat{}, err
	}
	stat, err := s.Store.Set(ctx, path, data, recipes.IfVersion(version-s.by))
	stat.Version += s.by
	return stat, err
}

// loseEach loses the answer of each nth write that was applied.
func loseEach(n int64, s recipes.Store) *Hooked {
	var applied atomic.Int64
	return &Hooked{Store: s, After: func(_ context.Context, c Call, err error) error {
		write := c.Kind == Create || c.Kind == Set || c.Kind == Delete || c.Kind == Multi
		if write && err == nil && applied.Add(1)%n == 0 {
			return recipes.ErrUncertain
		}
		return err
	}}
}

// P79. Goal: versions are compared for equality alone. Method: count over the overflow of
// the version, with answers lost on the way.
func versionOverflows(t *testing.T, h Harness) {
	c := counterAt(t, loseEach(3, shifted{h.Open(t).Store, math.MaxInt32 - 5}), dir(t))
	for i := range int64(12) {
		if n, err := c.Add(h.within(t), 1); n != i+1 || err != nil {
			t.Errorf("add: %d, %v; want %d", n, err, i+1)
		}
	}
}

// P80. Goal: version 0 is a version, the zero Cond is an error, and "not there" is not
// "any". Method: all operations with a condition on a znode of version 1; several clients
// make a counter in the same moment.
func versionZeroIsAny(t *testing.T, h Harness) {
	s, path, ctx := h.Open(t).Store, dir(t), h.within(t)
	if n, err := counterAt(t, s, path).Add(ctx, 1); n != 1 || err != nil {
		t.Fatalf("add: %d, %v", n, err)
	}
	stat, err := s.Set(ctx, path, []byte("x"), recipes.IfVersion(0))
	if err != nil || stat.Version != 1 {
		t.Fatalf("set: %+v, %v", stat, err)
	}
	for _, test := range []struct {
		cond recipes.Cond
		want error
	}{{recipes.IfVersion(0), znode.BadVersion}, {recipes.Cond{}, recipes.ErrInvalid}, {recipes.IfVersion(-1), recipes.ErrInvalid}} {
		_, set := s.Set(ctx, path, nil, test.cond)
		errs := []error{set, s.Delete(ctx, path, test.cond)}
		for _, op := range []recipes.Op{recipes.OpSet(path, nil, test.cond), recipes.OpDelete(path, test.cond), recipes.OpCheck(path, test.cond)} {
			_, err := s.Multi(ctx, op)
			errs = append(errs, err)
		}
		for i, err := range errs {
			if !errors.Is(err, test.want) {
				t.Errorf("operation %d on version 1 with %+v: %v, want %v", i, test.cond, err, test.want)
			}
		}
	}
	if data, stat, err := s.Get(ctx, path); string(data) != "x" || stat.Version != 1 || err != nil {
		t.Errorf("now %q, %+v, %v", data, stat, err)
	}
	n := int64(h.clients(20))
	var adders []<-chan result[int64]
	for range n {
		c := counterAt(t, h.Open(t).Store, path+"-counter")
		adders = append(adders, async(func() (int64, error) { return c.Add(ctx, 3) }))
	}
	for _, done := range adders {
		if r := await(t, h, done, "an addition"); r.err != nil {
			t.Error(r.err)
		}
	}
	if got, err := counterAt(t, s, path+"-counter").Get(ctx); got != 3*n || err != nil {
		t.Errorf("counter is %d, %v; want %d", got, err, 3*n)
	}
}

// clients is n where time is fake, and few where each costs a connection.
func (h Harness) clients(n int) int {
	if h.Fake {
		return n
	}
	return min(n, 5)
}
