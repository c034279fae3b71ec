package znode_test

import (
	"testing"

	"github.com/tenure-dev/tenure/znode"
)

// server runs an operation as the server itself at a given time.
func (f *fixture) server(timeMs int64, rules znode.Rules, op znode.Op) znode.Error {
	r, _ := f.Apply(znode.Stamp{TimeMs: timeMs, Rules: rules}, &znode.Txn{Op: op})
	return r.Err
}

// TestC011ParentIsEmptyAfterItsOwnersEnd ends the owner of ephemerals by close and by
// expiry, at one and at three levels and under a container: right after it the
// parent counts no children and can be deleted, and a new one has none.
func TestC011ParentIsEmptyAfterItsOwnersEnd(t *testing.T) {
	for _, expired := range []bool{false, true} {
		for _, parents := range [][]string{{"/f"}, {"/f", "/f/g", "/f/g/h"}} {
			for _, kind := range []znode.Kind{znode.Persistent, znode.Container} {
				f := newFixture(t)
				for _, path := range parents {
					op := create(path)
					op.Mode.Kind = kind
					f.must(op)
				}
				last := parents[len(parents)-1]
				op := create(last + "/e")
				op.Mode.Kind = znode.Ephemeral
				f.must(op)
				f.fails(znode.NotEmpty, &znode.Delete{Path: last, Version: -1})
				f.must(&znode.CloseSession{Session: f.who, Expired: expired})
				if s := f.stat(last); s.NumChildren != 0 || s.Cversion != 2 || s.Pzxid != f.LastZxid() {
					t.Errorf("%s: %+v", last, s)
				}
				for i := len(parents) - 1; i >= 0; i-- {
					if err := f.server(0, znode.Rules{}, &znode.Delete{Path: parents[i], Version: -1}); err != znode.OK {
						t.Errorf("delete %s: %v", parents[i], err)
					}
				}
				if err := f.server(0, znode.Rules{}, create("/f")); err != znode.OK || len(f.List("/f")) != 0 {
					t.Errorf("create again: %v, children %q", err, f.List("/f"))
				}
				for _, p := range znode.Verify(f.Tree) {
					t.Error(p)
				}
			}
		}
	}
}

// TestC013ContainersGoAfterTheirLastChild reaps containers in each stage of a life.
// One that never had a child stays, as documented on Reapable.
func TestC013ContainersGoAfterTheirLastChild(t *testing.T) {
	f := newFixture(t)
	container := func(path string) *znode.Create {
		op := create(path)
		op.Mode.Kind = znode.Container
		return op
	}
	f.must(container("/c0"))
	f.must(container("/c1"))
	f.must(create("/c1/x"))
	f.must(&znode.Delete{Path: "/c1/x", Version: -1})
	f.must(&znode.Multi{Ops: []znode.Op{container("/c2"), create("/c2/x")}})
	if owner := f.stat("/c2").EphemeralOwner; owner != 0 {
		t.Errorf("ephemeralOwner %v, want 0", owner)
	}
	for path, want := range map[string]znode.Error{"/c0": znode.BadVersion, "/c1": znode.OK, "/c2": znode.NotEmpty, "/none": znode.NoNode} {
		if got := f.server(1<<40, znode.Rules{}, &znode.Reap{Path: path}); got != want {
			t.Errorf("reap %s: %v, want %v", path, got, want)
		}
	}
	if f.Node("/c0") == nil || f.Node("/c1") != nil || f.Node("/c2") == nil {
		t.Error("the wrong containers went")
	}
}

// TestC073FullStateStillShrinks fills up and then does all that a way out needs:
// sessions open and end, data shrink, znodes go; only growth is refused, by a
// definite code, and it works again when there is room.
func TestC073FullStateStillShrinks(t *testing.T) {
	f := newFixture(t)
	full := znode.Rules{Full: true}
	big := create("/big")
	big.Data = make([]byte, 100)
	f.must(big)
	for _, test := range []struct {
		op   znode.Op
		want znode.Error
	}{
		{create("/more"), znode.QuotaExceeded},
		{sequential("/more"), znode.QuotaExceeded},
		{&znode.SetData{Path: "/big", Data: make([]byte, 101), Version: -1}, znode.QuotaExceeded},
		{&znode.SetData{Path: "/big", Data: make([]byte, 100), Version: -1}, znode.OK},
		{&znode.SetData{Path: "/big", Data: []byte{}, Version: -1}, znode.OK},
		{&znode.Multi{Ops: []znode.Op{&znode.Check{Path: "/big", Version: -1}}}, znode.OK},
		{&znode.OpenSession{TimeoutMs: 1000}, znode.OK},
		{&znode.CloseSession{Session: f.who}, znode.OK},
		{&znode.Delete{Path: "/big", Version: -1}, znode.OK},
	} {
		if got := f.server(0, full, test.op); got != test.want {
			t.Errorf("%T %+v: %v, want %v", test.op, test.op, got, test.want)
		}
	}
	if got := f.server(0, znode.Rules{}, create("/more")); got != znode.OK {
		t.Errorf("create when there is room: %v", got)
	}
}
