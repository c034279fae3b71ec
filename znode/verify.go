package znode

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/session"
)

// State is a whole state at rest, for Verify.
type State interface {
	// All calls yield with every znode and its counters, / first and then ordered by
	// parent path and name (both as bytes), until yield returns false. n is nil where
	// there are counters without a znode.
	All(yield func(path string, n *Node, c Children) bool)
	// Sessions calls yield with every open session.
	Sessions(yield func(s *session.Session) bool)
	// LastZxid and LastTimeMs are as in View.
	LastZxid() int64
	LastTimeMs() int64
}

// Problem is one broken invariant.
type Problem struct {
	// Rule names the invariant, such as "live-count". The names are those of the
	// report calls in this file and stay the same between versions.
	Rule string
	// Path is the znode, "" if the problem is a session's.
	Path    string
	Session session.ID
	Detail  string // the values that disagree
}

// String is one line: rule, where, detail.
func (p Problem) String() string {
	where := p.Path
	if where == "" {
		where = "session " + p.Session.String()
	}
	return fmt.Sprintf("%s: %s: %s", p.Rule, where, p.Detail)
}

// ProblemsMax bounds what Verify returns; it stops looking there.
const ProblemsMax = 1000

// Verify returns all invariants that the state breaks, none if it is sound. It reads
// the state once in key order. Its memory is one map entry for every open session
// and one for every znode that has children and whose children were not yet
// reached; leaves, which are most of a large tree, cost nothing.
func Verify(s State) []Problem {
	c := checker{
		lastZxid: s.LastZxid(), lastTimeMs: s.LastTimeMs(),
		sessions: make(map[session.ID]bool), expected: make(map[string]parentState),
		missing: map[string]bool{Root: true, SystemRoot: true, QuotaRoot: true, ConfigPath: true},
	}
	s.Sessions(func(open *session.Session) bool {
		c.session(open)
		return len(c.problems) < ProblemsMax
	})
	s.All(func(path string, n *Node, counters Children) bool {
		c.visit(path, n, counters)
		return len(c.problems) < ProblemsMax
	})
	if len(c.problems) < ProblemsMax {
		c.finish()
	}
	return c.problems
}

// parentState is what is known of a znode whose children are still to come.
type parentState struct {
	live      int64
	ephemeral bool
}

type checker struct {
	lastZxid, lastTimeMs int64
	problems             []Problem
	sessions             map[session.ID]bool
	// expected holds the znodes with children that were seen and whose own group of
	// children was not. A parent's key comes before its children's keys, since its
	// path is a prefix of theirs.
	expected map[string]parentState
	missing  map[string]bool // system znodes not yet seen
	// The group of children being read:
	parent   string
	children int64
	last     string // the path before this one
	started  bool
}

func (c *checker) report(rule, path, format string, args ...any) {
	c.problems = append(c.problems, Problem{Rule: rule, Path: path, Detail: fmt.Sprintf(format, args...)})
}

func (c *checker) session(s *session.Session) {
	report := func(rule, format string, args ...any) {
		c.problems = append(c.problems, Problem{Rule: rule, Session: s.ID, Detail: fmt.Sprintf(format, args...)})
	}
	if s.ID <= 0 || int64(s.ID) > c.lastZxid {
		report("session-id", "id %d is not a zxid in [1, %d]", int64(s.ID), c.lastZxid)
	}
	if s.TimeoutMs <= 0 {
		report("session-timeout", "timeout of %d ms is not positive", s.TimeoutMs)
	}
	if c.sessions[s.ID] {
		report("session-id", "id is there twice")
	}
	c.sessions[s.ID] = true
}

func (c *checker) visit(path string, n *Node, counters Children) {
	if c.started && compareKeys(c.last, path) >= 0 {
		c.report("order", path, "comes after %q", c.last)
	}
	c.last, c.started = path, true
	if n == nil {
		c.report("orphan-counters", path, "counters %+v without a znode", counters)
		return
	}
	delete(c.missing, path)
	if err := ValidatePath(path); err != nil {
		c.report("path", path, "%v", err)
	}
	if path != Root {
		c.countChild(path)
	}
	if counters.Live > 0 {
		c.expected[path] = parentState{live: counters.Live, ephemeral: n.Kind == Ephemeral}
	}
	c.node(path, n)
	c.counters(path, n, counters)
}

// countChild adds path to the group of its parent's children.
func (c *checker) countChild(path string) {
	parent, _ := Split(path)
	if parent != c.parent {
		c.endGroup()
		c.parent = parent
		known, ok := c.expected[parent]
		switch {
		case !ok:
			c.report("parent", path, "parent %s does not exist or counts no children", parent)
		case known.ephemeral:
			c.report("ephemeral-parent", path, "parent %s is ephemeral", parent)
		}
	}
	c.children++
}

// endGroup compares the number of children read with what their parent counts.
func (c *checker) endGroup() {
	if known, ok := c.expected[c.parent]; ok && known.live != c.children {
		c.report("live-count", c.parent, "counts %d children and has %d", known.live, c.children)
	}
	delete(c.expected, c.parent)
	c.children = 0
}

// finish judges what can only be known at the end.
func (c *checker) finish() {
	c.endGroup()
	for _, path := range slices.Sorted(maps.Keys(c.expected)) {
		c.report("live-count", path, "counts %d children and has 0", c.expected[path].live)
	}
	for _, path := range slices.Sorted(maps.Keys(c.missing)) {
		c.report("system-node", path, "does not exist")
	}
}

// node judges a znode by itself and against the sessions.
func (c *checker) node(path string, n *Node) {
	switch {
	case n.Kind > TTL:
		c.report("kind", path, "kind %d is not one of 0..%d", n.Kind, TTL)
	case n.Kind == Ephemeral && !c.sessions[n.Owner]:
		c.report("owner-session", path, "owner %v is not an open session", n.Owner)
	case n.Kind == Ephemeral && int64(n.Owner) >= n.Czxid:
		c.report("owner-session", path, "owner %v was opened after the creation at %d", n.Owner, n.Czxid)
	case n.Kind != Ephemeral && n.Owner != 0:
		c.report("owner", path, "kind %d has the owner %v", n.Kind, n.Owner)
	}
	if n.Kind == TTL && (n.TTLMs < 1 || n.TTLMs > TTLMaxMs) {
		c.report("ttl", path, "lifetime of %d ms is not in [1, %d]", n.TTLMs, int64(TTLMaxMs))
	}
	if n.Kind != TTL && n.TTLMs != 0 {
		c.report("ttl", path, "kind %d has a lifetime of %d ms", n.Kind, n.TTLMs)
	}
	if !storable(n.ACL) {
		c.report("acl", path, "list %q is empty, too long or has an entry of no scheme that can be stored", FormatACL(n.ACL))
	}
	if n.Czxid < 0 || n.Czxid > n.Mzxid || n.Mzxid > c.lastZxid || n.Czxid == 0 && !isSystem(path) {
		c.report("zxid-order", path, "created at %d, changed at %d, last is %d", n.Czxid, n.Mzxid, c.lastZxid)
	}
	if n.Ctime > n.Mtime || n.Mtime > c.lastTimeMs {
		c.report("time-order", path, "created at %d ms, changed at %d, last is %d", n.Ctime, n.Mtime, c.lastTimeMs)
	}
	if path != ConfigPath && (n.Version == -1 || n.Aversion == -1) {
		c.report("version", path, "version %d, aversion %d: -1 stands for any", n.Version, n.Aversion)
	}
}

func (c *checker) counters(path string, n *Node, counters Children) {
	if counters.Live < 0 || counters.Created < 0 || counters.Created+bornChildren(path) < counters.Live {
		c.report("created-below-live", path, "%d children of %d ever created", counters.Live, counters.Created)
	}
	if counters.Pzxid > c.lastZxid || counters.Pzxid != 0 && counters.Pzxid < n.Czxid {
		c.report("pzxid", path, "children changed at %d, created at %d, last is %d", counters.Pzxid, n.Czxid, c.lastZxid)
	}
	if counters.Created > 0 && counters.Pzxid == 0 {
		c.report("pzxid", path, "%d children created but never changed", counters.Created)
	}
	if n.Kind == Ephemeral && counters != (Children{}) {
		c.report("ephemeral-parent", path, "an ephemeral has the counters %+v", counters)
	}
}
