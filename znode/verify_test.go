package znode_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// TestVerifyNamesEachProblem breaks a sound state in one way after the other and
// expects the broken rule by name, and the path. Without the damage nothing may be
// reported.
func TestVerifyNamesEachProblem(t *testing.T) {
	edit := func(path string, change func(n *znode.Node)) func(f *fixture) {
		return func(f *fixture) {
			n := *f.Node(path)
			change(&n)
			f.SetNode(path, &n)
		}
	}
	for _, test := range []struct {
		rule, path string
		damage     func(f *fixture)
	}{
		{"parent", "/x/y", func(f *fixture) { f.SetNode("/x/y", f.Node("/a/b")) }},
		{"parent", "/a/b/c", func(f *fixture) { f.SetNode("/a/b/c", f.Node("/a/b")) }},
		{"path", "/a\x01", func(f *fixture) { f.SetNode("/a\x01", f.Node("/a/b")) }},
		{"live-count", "/a", func(f *fixture) { f.SetNode("/a/more", f.Node("/a/b")) }},
		{"live-count", "/a", func(f *fixture) { f.SetNode("/a/b", nil); f.SetNode("/a/e", nil) }},
		{"live-count", "/a/b", func(f *fixture) { f.SetChildren("/a/b", znode.Children{Created: 1, Live: 1, Pzxid: 4}) }},
		{"orphan-counters", "/gone", func(f *fixture) { f.SetChildren("/gone", znode.Children{Created: 1, Pzxid: 4}) }},
		{"system-node", "/zookeeper/config", func(f *fixture) { f.SetNode("/zookeeper/config", nil) }},
		{"ephemeral-parent", "/a/e", func(f *fixture) { f.SetChildren("/a/e", znode.Children{Created: 1, Pzxid: 4}) }},
		{"owner-session", "/a/e", edit("/a/e", func(n *znode.Node) { n.Owner = 77 })},
		{"owner-session", "/a/e", edit("/a/e", func(n *znode.Node) { n.Czxid = 1; n.Mzxid = 1 })},
		{"owner", "/a/b", edit("/a/b", func(n *znode.Node) { n.Owner = 1 })},
		{"kind", "/a/b", edit("/a/b", func(n *znode.Node) { n.Kind = 4 })},
		{"ttl", "/a/b", edit("/a/b", func(n *znode.Node) { n.TTLMs = 1 })},
		{"ttl", "/a/b", edit("/a/b", func(n *znode.Node) { n.Kind = znode.TTL })},
		{"ttl", "/a/b", edit("/a/b", func(n *znode.Node) { n.Kind, n.TTLMs = znode.TTL, znode.TTLMaxMs+1 })},
		{"acl", "/a/b", edit("/a/b", func(n *znode.Node) { n.ACL = nil })},
		{"acl", "/a/b", edit("/a/b", func(n *znode.Node) { n.ACL = []znode.ACL{{Scheme: "auth"}} })},
		{"zxid-order", "/a/b", edit("/a/b", func(n *znode.Node) { n.Mzxid = n.Czxid - 1 })},
		{"zxid-order", "/a/b", edit("/a/b", func(n *znode.Node) { n.Mzxid = 99 })},
		{"zxid-order", "/a/b", edit("/a/b", func(n *znode.Node) { n.Czxid = 0 })},
		{"time-order", "/a/b", edit("/a/b", func(n *znode.Node) { n.Ctime++ })},
		{"time-order", "/a/b", edit("/a/b", func(n *znode.Node) { n.Mtime = 1001 })},
		{"version", "/a/b", edit("/a/b", func(n *znode.Node) { n.Version = -1 })},
		{"created-below-live", "/a", func(f *fixture) { f.SetChildren("/a", znode.Children{Created: 1, Live: 2, Pzxid: 4}) }},
		{"pzxid", "/a", func(f *fixture) { f.SetChildren("/a", znode.Children{Created: 2, Live: 2, Pzxid: 99}) }},
		{"pzxid", "/a", func(f *fixture) { f.SetChildren("/a", znode.Children{Created: 2, Live: 2}) }},
		{"session-id", "session 0x63", func(f *fixture) { f.openRaw(session.Session{ID: 99, TimeoutMs: 1}) }},
		{"session-timeout", "session 0x2", func(f *fixture) { f.openRaw(session.Session{ID: 2}) }},
	} {
		f := newFixture(t)
		f.must(create("/a"))
		f.must(create("/a/b"))
		ephemeral := create("/a/e")
		ephemeral.Mode.Kind = znode.Ephemeral
		f.must(ephemeral)
		if problems := znode.Verify(f.Tree); len(problems) != 0 {
			t.Fatalf("the sound state: %v", problems)
		}
		test.damage(f)
		problems := fmt.Sprint(znode.Verify(f.Tree))
		if !strings.Contains(problems, test.rule+": "+test.path+": ") {
			t.Errorf("%s at %q not found, but %s", test.rule, test.path, problems)
		}
	}
}

// openRaw stores a session without a transaction.
func (f *fixture) openRaw(s session.Session) {
	f.Update(&znode.Delta{Sessions: []znode.SessionEffect{{ID: s.ID, Session: &s}}})
}

// disordered is a state that yields / twice.
type disordered struct{ *znode.Tree }

func (d disordered) All(yield func(string, *znode.Node, znode.Children) bool) {
	d.Tree.All(yield)
	yield("/", d.Node("/"), d.Children("/"))
}

// TestVerifyNeedsKeyOrder gives a znode twice, as a broken index would.
func TestVerifyNeedsKeyOrder(t *testing.T) {
	problems := znode.Verify(disordered{znode.NewTree()})
	if len(problems) == 0 || problems[0].Rule != "order" {
		t.Errorf("problems %v, want order", problems)
	}
}

// TestVerifyIsBounded breaks more than it may report.
func TestVerifyIsBounded(t *testing.T) {
	f := newFixture(t)
	for i := range znode.ProblemsMax {
		f.SetNode(fmt.Sprintf("/none/%d", i), &znode.Node{})
	}
	if n := len(znode.Verify(f.Tree)); n < znode.ProblemsMax || n > znode.ProblemsMax+10 {
		t.Errorf("%d problems, want about %d", n, znode.ProblemsMax)
	}
}

// wide is a sound state with many leaves under one znode that are made while they
// are read.
type wide struct {
	*znode.Tree
	leaves int
	names  []string
}

func (w wide) All(yield func(string, *znode.Node, znode.Children) bool) {
	w.Tree.All(yield)
	leaf := &znode.Node{Czxid: w.LastZxid(), Mzxid: w.LastZxid(), ACL: znode.OpenACL}
	for _, path := range w.names[:w.leaves] {
		yield(path, leaf, znode.Children{})
	}
}

// TestVerifyLeavesCostNothing reads few and many leaves: the allocations must be the
// same, or a large tree would be checked in memory.
func TestVerifyLeavesCostNothing(t *testing.T) {
	f := newFixture(t)
	f.must(create("/~w"))
	names := make([]string, 100_000)
	for i := range names {
		names[i] = fmt.Sprintf("/~w/%06d", i)
	}
	allocations := func(leaves int) float64 {
		f.SetChildren("/~w", znode.Children{Created: int64(leaves), Live: int64(leaves), Pzxid: f.LastZxid()})
		return testing.AllocsPerRun(2, func() {
			if problems := znode.Verify(wide{f.Tree, leaves, names}); len(problems) != 0 {
				t.Fatal(problems)
			}
		})
	}
	if few, many := allocations(1), allocations(len(names)); many > few+10 {
		t.Errorf("%v allocations for one leaf, %v for %d", few, many, len(names))
	}
}
