package znode_test

import (
	"fmt"
	"testing"

	"github.com/tenure-dev/tenure/znode"
)

// flat is a View of one parent and one znode, as cheap as a View can be, so that the
// benchmarks show what Apply itself costs.
type flat struct {
	*znode.Tree
	parent, node *znode.Node
	children     znode.Children
}

func (f *flat) Node(path string) *znode.Node {
	switch path {
	case "/bench":
		return f.parent
	case "/bench/existing":
		return f.node
	}
	return nil
}

func (f *flat) Children(path string) znode.Children {
	if path == "/bench" {
		return f.children
	}
	return znode.Children{}
}

func newFlat() *flat {
	n := &znode.Node{Czxid: 1, Mzxid: 1, ACL: znode.OpenACL, Data: make([]byte, 100)}
	return &flat{Tree: znode.NewTree(), parent: n, node: n, children: znode.Children{Created: 7, Live: 1, Pzxid: 1}}
}

func benchmarkApply(b *testing.B, op znode.Op) {
	v, txn := newFlat(), &znode.Txn{Op: op}
	b.ReportAllocs()
	for b.Loop() {
		if r, _ := znode.Apply(v, znode.Stamp{TimeMs: 1}, txn); r.Err != znode.OK {
			b.Fatal(r.Err)
		}
	}
}

func BenchmarkApplyCreate(b *testing.B) {
	benchmarkApply(b, &znode.Create{Path: "/bench/new", Data: make([]byte, 100), ACL: znode.OpenACL})
}

func BenchmarkApplyCreateSequential(b *testing.B) {
	benchmarkApply(b, &znode.Create{
		Path: "/bench/new-", Data: make([]byte, 100), ACL: znode.OpenACL, Mode: znode.Mode{Sequential: true},
	})
}

func BenchmarkApplySet(b *testing.B) {
	benchmarkApply(b, &znode.SetData{Path: "/bench/existing", Data: make([]byte, 100), Version: -1})
}

func BenchmarkApplyDelete(b *testing.B) {
	benchmarkApply(b, &znode.Delete{Path: "/bench/existing", Version: -1})
}

func BenchmarkApplyMulti(b *testing.B) {
	for _, n := range []int{4, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := &znode.Multi{}
			for i := range n {
				m.Ops = append(m.Ops, &znode.Create{Path: fmt.Sprintf("/bench/%d", i), ACL: znode.OpenACL})
			}
			benchmarkApply(b, m)
		})
	}
}

// TestApplyAllocatesLittle fails when the common operations get more expensive: a
// create is its znode and one block of effects, as is a set; a delete only the block.
func TestApplyAllocatesLittle(t *testing.T) {
	for _, test := range []struct {
		name string
		op   znode.Op
		most float64
	}{
		{"create", &znode.Create{Path: "/bench/new", ACL: znode.OpenACL}, 2},
		{"sequential create", &znode.Create{Path: "/bench/new-", ACL: znode.OpenACL, Mode: znode.Mode{Sequential: true}}, 3},
		{"set", &znode.SetData{Path: "/bench/existing", Version: -1}, 2},
		{"delete", &znode.Delete{Path: "/bench/existing", Version: -1}, 1},
		{"failure", &znode.Delete{Path: "/bench/none", Version: -1}, 0},
	} {
		v, txn := newFlat(), &znode.Txn{Op: test.op}
		got := testing.AllocsPerRun(100, func() { znode.Apply(v, znode.Stamp{TimeMs: 1}, txn) })
		if got > test.most {
			t.Errorf("%s: %v allocations, want at most %v", test.name, got, test.most)
		}
	}
}
