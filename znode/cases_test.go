package znode_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// The tests of this file are cases that users of comparable systems reported. Those
// that need only inputs and outcomes are scripts in testdata and repeated here by
// id; here are those that look at effects.

// fixture is a tree with an open session that asks for everything.
type fixture struct {
	*znode.Tree
	t    testing.TB
	who  session.ID
	auth []znode.Identity
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{Tree: znode.NewTree(), t: t}
	f.who = f.must(&znode.OpenSession{TimeoutMs: 4000}).Session.ID
	return f
}

func (f *fixture) do(op znode.Op) (znode.Result, znode.Delta) {
	return f.Apply(znode.Stamp{TimeMs: 1000}, &znode.Txn{Session: f.who, Auth: f.auth, Op: op})
}

func (f *fixture) must(op znode.Op) znode.Result {
	f.t.Helper()
	r, _ := f.do(op)
	if r.Err != znode.OK {
		f.t.Fatalf("%T %+v: %v", op, op, r.Err)
	}
	return r
}

func (f *fixture) fails(want znode.Error, op znode.Op) {
	f.t.Helper()
	before := f.LastZxid()
	r, d := f.do(op)
	if r.Err != want || r.Zxid != before || d.Zxid != 0 || len(d.Nodes)+len(d.Children)+len(d.Sessions)+len(d.Changes) > 0 {
		f.t.Fatalf("%T %+v: %v at zxid %d with effects %+v; want %v at %d without", op, op, r.Err, r.Zxid, d, want, before)
	}
}

func (f *fixture) stat(path string) znode.Stat {
	f.t.Helper()
	n := f.Node(path)
	if n == nil {
		f.t.Fatalf("%s does not exist", path)
	}
	return znode.StatOf(n, f.Children(path))
}

func create(path string) *znode.Create {
	return &znode.Create{Path: path, Data: []byte{}, ACL: znode.OpenACL}
}

func sequential(path string) *znode.Create {
	op := create(path)
	op.Mode.Sequential = true
	return op
}

// TestC001EmptyPathIsBadArguments sends every write with paths that crashed a
// server; each must be refused and leave nothing, and the tree stays usable.
func TestC001EmptyPathIsBadArguments(t *testing.T) {
	f := newFixture(t)
	for _, path := range []string{"", "x", "\x00", "/\x00"} {
		f.fails(znode.BadArguments, create(path))
		f.fails(znode.BadArguments, &znode.Delete{Path: path, Version: -1})
		f.fails(znode.BadArguments, &znode.SetData{Path: path, Version: -1})
		f.fails(znode.BadArguments, &znode.SetACL{Path: path, ACL: znode.OpenACL, Version: -1})
		f.fails(znode.BadArguments, &znode.Multi{Ops: []znode.Op{&znode.Check{Path: path, Version: -1}}})
	}
	f.must(create("/ok"))
	f.must(&znode.SetData{Path: "/ok", Version: -1})
}

// TestC003UnicodeNames creates the names of the report: two normal forms are two
// znodes, emoji and U+FFF0 are refused, nothing is changed on the way.
func TestC003UnicodeNames(t *testing.T) {
	f := newFixture(t)
	f.must(create("/u"))
	good := []string{"中文", "\u00e9", "e\u0301", "x\u00a0y", "\uffef", "\uf900", "\ud7ff"}
	for _, name := range good {
		if r := f.must(create("/u/" + name)); r.Path != "/u/"+name {
			t.Errorf("created %q as %q", name, r.Path)
		}
	}
	for _, name := range []string{"🐂", "\ufff0", "\uffff", "\ue000", "\uf8ff", "\u0080", "a\x7f", "\xff", "\xed\xa0\x80"} {
		f.fails(znode.BadArguments, create("/u/"+name))
	}
	slices.Sort(good)
	if got := f.List("/u"); !slices.Equal(got, good) {
		t.Errorf("listed %q, created %q", got, good)
	}
}

// TestC005NullStaysNull stores null, empty and bytes in turn: null and empty differ
// in the data and are alike in the Stat.
func TestC005NullStaysNull(t *testing.T) {
	f := newFixture(t)
	null := create("/n0")
	null.Data = nil
	f.must(null)
	f.must(create("/n1"))
	if n := f.Node("/n0"); n.Data != nil {
		t.Errorf("null became %q", n.Data)
	}
	if n := f.Node("/n1"); n.Data == nil {
		t.Error("empty became null")
	}
	if a, b := f.stat("/n0").DataLength, f.stat("/n1").DataLength; a != 0 || b != 0 {
		t.Errorf("lengths %d and %d, want 0 and 0", a, b)
	}
	f.must(&znode.SetData{Path: "/n1", Data: []byte("12345"), Version: -1})
	if got := f.must(&znode.SetData{Path: "/n1", Version: -1}).Stat.DataLength; got != 0 || f.Node("/n1").Data != nil {
		t.Errorf("set to null: length %d, data %q", got, f.Node("/n1").Data)
	}
}

// TestC007StatCountsChildren follows the parent's Stat through the report's steps.
func TestC007StatCountsChildren(t *testing.T) {
	f := newFixture(t)
	f.must(create("/p"))
	cversion := func(want int32) {
		t.Helper()
		if got := f.stat("/p").Cversion; got != want {
			t.Errorf("cversion %d, want %d", got, want)
		}
	}
	cversion(0)
	for i, name := range []string{"a", "b", "c"} {
		f.must(create("/p/" + name))
		cversion(int32(i + 1))
	}
	deleted := f.must(&znode.Delete{Path: "/p/c", Version: -1}).Zxid
	cversion(4)
	f.must(&znode.SetData{Path: "/p/a", Data: []byte("x"), Version: -1})
	f.must(&znode.SetACL{Path: "/p/a", ACL: znode.OpenACL, Version: -1})
	f.must(create("/p/a/x"))
	f.must(&znode.Delete{Path: "/p/a/x", Version: -1})
	cversion(4)
	if s := f.stat("/p"); s.NumChildren != 2 || s.Pzxid != deleted || s.Version != 0 {
		t.Errorf("Stat %+v, want 2 children, pzxid %d, version 0", s, deleted)
	}
}

// TestC009VersionWrapsWithoutMinusOne counts across both ends of the range.
func TestC009VersionWrapsWithoutMinusOne(t *testing.T) {
	f := newFixture(t)
	f.must(create("/v"))
	start := func(version int32) {
		n := *f.Node("/v")
		n.Version = version
		f.SetNode("/v", &n)
	}
	write := func(conditional int32, want ...int32) {
		t.Helper()
		for _, w := range want {
			got := f.must(&znode.SetData{Path: "/v", Version: conditional}).Stat.Version
			if got != w {
				t.Errorf("version %d, want %d", got, w)
			}
			conditional = got
		}
	}
	start(2147483646)
	write(2147483646, 2147483647, -2147483648, -2147483647)
	start(-2)
	write(-2, 0, 1)
}

// TestC015SequenceCountsEveryChild is the report's sequence of creates and deletes.
func TestC015SequenceCountsEveryChild(t *testing.T) {
	f := newFixture(t)
	f.must(create("/s"))
	f.must(create("/s/a"))
	name := func(prefix, want string) {
		t.Helper()
		if got := f.must(sequential(prefix)).Path; got != want {
			t.Errorf("created %s, want %s", got, want)
		}
	}
	name("/s/n-", "/s/n-0000000001")
	f.must(&znode.Delete{Path: "/s/a", Version: -1})
	f.must(&znode.Delete{Path: "/s/n-0000000001", Version: -1})
	name("/s/m-", "/s/m-0000000002")
	f.fails(znode.NodeExists, create("/s/m-0000000002"))
	name("/s/m-", "/s/m-0000000003")
}

// TestC017SequenceEndsInsteadOfWrapping goes over the last number: the error is
// definite, no name is reused or negative, and other creates go on.
func TestC017SequenceEndsInsteadOfWrapping(t *testing.T) {
	f := newFixture(t)
	f.must(create("/o"))
	f.SetChildren("/o", znode.Children{Created: znode.SequenceMax - 1, Pzxid: f.LastZxid()})
	for _, want := range []string{"/o/n-2147483646", "/o/n-2147483647"} {
		if got := f.must(sequential("/o/n-")).Path; got != want {
			t.Errorf("created %s, want %s", got, want)
		}
	}
	f.fails(znode.QuotaExceeded, sequential("/o/n-"))
	f.must(&znode.Delete{Path: "/o/n-2147483647", Version: -1})
	f.fails(znode.QuotaExceeded, sequential("/o/n-"))
	f.must(create("/o/plain"))
}

// TestC019SequenceNameMayBeEmpty creates names that are only the number.
func TestC019SequenceNameMayBeEmpty(t *testing.T) {
	f := newFixture(t)
	f.must(create("/q"))
	for prefix, want := range map[string]string{"/q/": "/q/0000000000", "/": "/0000000001"} {
		if got := f.must(sequential(prefix)).Path; got != want {
			t.Errorf("created %s, want %s", got, want)
		}
	}
	f.fails(znode.BadArguments, create("/q/"))
	if got := f.must(sequential("/q/a b-")).Path; got != "/q/a b-0000000001" {
		t.Errorf("created %s", got)
	}
}

// TestC047FailedMultiHasNoChanges checks that what watches are matched against is
// empty for a multi that fails at its end, and complete when it succeeds.
func TestC047FailedMultiHasNoChanges(t *testing.T) {
	f := newFixture(t)
	f.must(create("/w"))
	f.must(create("/p"))
	ops := []znode.Op{
		&znode.SetData{Path: "/w", Version: -1}, create("/p/x"), &znode.Check{Path: "/w", Version: 9999},
	}
	f.fails(znode.BadVersion, &znode.Multi{Ops: ops})
	_, d := f.do(&znode.Multi{Ops: ops[:2]})
	if got := eventsOf(&d); got != "changed /w, created /p/x" {
		t.Errorf("changes %s", got)
	}
}

// TestC053MultiSaysWhichStepFailed puts the failing step in the middle, first and last.
func TestC053MultiSaysWhichStepFailed(t *testing.T) {
	f := newFixture(t)
	f.must(create("/p"))
	before := f.stat("/p")
	none := &znode.Delete{Path: "/none", Version: -1}
	a, s, c := create("/a"), sequential("/p/s-"), create("/c")
	for _, test := range []struct {
		ops  []znode.Op
		want []znode.Error
	}{
		{[]znode.Op{a, s, none, c}, []znode.Error{0, 0, -101, -2}},
		{[]znode.Op{none, a, s, c}, []znode.Error{-101, -2, -2, -2}},
		{[]znode.Op{a, s, c, none}, []znode.Error{0, 0, 0, -101}},
	} {
		f.fails(znode.NoNode, &znode.Multi{Ops: test.ops})
		r, _ := f.do(&znode.Multi{Ops: test.ops})
		var got []znode.Error
		for _, sub := range r.Sub {
			got = append(got, sub.Err)
			if sub.Kind != znode.ResultNone || sub.Path != "" {
				t.Errorf("a step of a failed multi has a result: %+v", sub)
			}
		}
		if r.Kind != znode.ResultMulti || !slices.Equal(got, test.want) {
			t.Errorf("kind %d, results %d, want %d", r.Kind, got, test.want)
		}
	}
	if after := f.stat("/p"); after != before || f.Node("/a") != nil || f.Node("/c") != nil {
		t.Errorf("something remained: /p %+v, was %+v", after, before)
	}
	if got := f.must(s).Path; got != "/p/s-0000000000" {
		t.Errorf("the next number is %s", got)
	}
}

// TestC057CloseDeletes50000InOneDelta ends a session with 50 000 ephemerals under a
// few parents: one zxid, one effect per key, a Change each in order of paths.
func TestC057CloseDeletes50000InOneDelta(t *testing.T) {
	const count, parents = 50_000, 5
	f := newFixture(t)
	for p := range parents {
		f.must(create(fmt.Sprintf("/p%d", p)))
	}
	for i := range count {
		op := create(fmt.Sprintf("/p%d/%s%05d", i%parents, strings.Repeat("x", 55), i))
		op.Mode.Kind = znode.Ephemeral
		f.must(op)
	}
	last := f.LastZxid()
	r, d := f.do(&znode.CloseSession{Session: f.who})
	if r.Err != znode.OK || r.Zxid != last+1 || d.Zxid != last+1 {
		t.Fatalf("close: %v at zxid %d", r.Err, r.Zxid)
	}
	if len(d.Nodes) != count || len(d.Changes) != count || len(d.Children) != parents || len(d.Sessions) != 1 {
		t.Fatalf("%d znodes, %d changes, %d counters, %d sessions",
			len(d.Nodes), len(d.Changes), len(d.Children), len(d.Sessions))
	}
	if !slices.IsSortedFunc(d.Changes, func(a, b znode.Change) int { return strings.Compare(a.Path, b.Path) }) {
		t.Error("changes are not in order of paths")
	}
	for p := range parents {
		s := f.stat(fmt.Sprintf("/p%d", p))
		if s.NumChildren != 0 || s.Cversion != 2*count/parents || s.Pzxid != last+1 {
			t.Errorf("parent %d: %+v", p, s)
		}
	}
	for _, p := range znode.Verify(f.Tree) {
		t.Error(p)
	}
}
