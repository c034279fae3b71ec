package znode

import (
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/session"
)

// Tree is a whole state in memory: a View and a State made of maps, for tests,
// models and tools. It is plain rather than fast: Subtree and All visit everything.
// One goroutine at a time may use it.
type Tree struct {
	nodes      map[string]*Node
	children   map[string]Children
	names      map[string]map[string]bool // parent path to names
	sessions   map[session.ID]*session.Session
	ephemerals map[session.ID]map[string]bool
	lastZxid   int64
	lastTimeMs int64
}

var (
	_ View  = (*Tree)(nil)
	_ State = (*Tree)(nil)
)

// NewTree returns the state of Genesis.
func NewTree() *Tree {
	t := &Tree{
		nodes:      make(map[string]*Node),
		children:   make(map[string]Children),
		names:      make(map[string]map[string]bool),
		sessions:   make(map[session.ID]*session.Session),
		ephemerals: make(map[session.ID]map[string]bool),
	}
	genesis := Genesis()
	t.Update(&genesis)
	return t
}

// Apply runs one transaction and makes its changes visible.
func (t *Tree) Apply(s Stamp, txn *Txn) (Result, Delta) {
	r, d := Apply(t, s, txn)
	t.Update(&d)
	return r, d
}

// Update makes the changes of d visible. An empty Delta changes nothing.
func (t *Tree) Update(d *Delta) {
	for _, e := range d.Nodes {
		t.setNode(e.Path, e.Node)
	}
	for _, e := range d.Children {
		t.SetChildren(e.Path, e.Children)
	}
	for _, e := range d.Sessions {
		if e.Session == nil {
			delete(t.sessions, e.ID)
		} else {
			t.sessions[e.ID] = e.Session
		}
	}
	t.lastZxid = max(t.lastZxid, d.Zxid)
	t.lastTimeMs = max(t.lastTimeMs, d.TimeMs)
}

func (t *Tree) setNode(path string, n *Node) {
	if prev := t.nodes[path]; prev != nil && prev.Kind == Ephemeral {
		removeFrom(t.ephemerals, prev.Owner, path)
	}
	parent, name := Split(path)
	if n == nil {
		delete(t.nodes, path)
		removeFrom(t.names, parent, name)
		return
	}
	t.nodes[path] = n
	if path != Root {
		addTo(t.names, parent, name)
	}
	if n.Kind == Ephemeral {
		addTo(t.ephemerals, n.Owner, path)
	}
}

func addTo[K comparable](sets map[K]map[string]bool, key K, member string) {
	if sets[key] == nil {
		sets[key] = make(map[string]bool)
	}
	sets[key][member] = true
}

func removeFrom[K comparable](sets map[K]map[string]bool, key K, member string) {
	delete(sets[key], member)
	if len(sets[key]) == 0 {
		delete(sets, key)
	}
}

// SetNode replaces what is stored at path without a transaction, as an import does.
func (t *Tree) SetNode(path string, n *Node) { t.setNode(path, n) }

// SetChildren replaces the counters of path without a transaction.
func (t *Tree) SetChildren(path string, c Children) {
	if c == (Children{}) {
		delete(t.children, path)
		return
	}
	t.children[path] = c
}

// Node implements View.
func (t *Tree) Node(path string) *Node { return t.nodes[path] }

// Children implements View.
func (t *Tree) Children(path string) Children { return t.children[path] }

// Session implements View.
func (t *Tree) Session(id session.ID) *session.Session { return t.sessions[id] }

// Ephemerals implements View.
func (t *Tree) Ephemerals(id session.ID, yield func(path string) bool) {
	for _, path := range slices.Sorted(maps.Keys(t.ephemerals[id])) {
		if !yield(path) {
			return
		}
	}
}

// Subtree implements View.
func (t *Tree) Subtree(path string) (count, bytes int64) {
	for p, n := range t.nodes {
		if under(p, path) {
			count, bytes = count+1, bytes+int64(len(n.Data))
		}
	}
	return count, bytes
}

// LastZxid implements View.
func (t *Tree) LastZxid() int64 { return t.lastZxid }

// LastTimeMs implements View.
func (t *Tree) LastTimeMs() int64 { return t.lastTimeMs }

// List returns the names of path's children in ascending order.
func (t *Tree) List(path string) []string { return slices.Sorted(maps.Keys(t.names[path])) }

// All implements State.
func (t *Tree) All(yield func(path string, n *Node, c Children) bool) {
	paths := slices.Collect(maps.Keys(t.nodes))
	for path := range t.children {
		if t.nodes[path] == nil {
			paths = append(paths, path)
		}
	}
	slices.SortFunc(paths, compareKeys)
	for _, path := range paths {
		if !yield(path, t.nodes[path], t.children[path]) {
			return
		}
	}
}

// Sessions implements State.
func (t *Tree) Sessions(yield func(s *session.Session) bool) {
	for _, id := range slices.Sorted(maps.Keys(t.sessions)) {
		if !yield(t.sessions[id]) {
			return
		}
	}
}

// compareKeys orders paths by parent and then by name: State's order.
func compareKeys(a, b string) int {
	parentA, nameA := Split(a)
	parentB, nameB := Split(b)
	if c := strings.Compare(parentA, parentB); c != 0 {
		return c
	}
	return strings.Compare(nameA, nameB)
}
