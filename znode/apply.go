package znode

import "slices"

// Apply decides what t leads to in the state v and returns the outcome and the
// changes that make it true. It writes nothing, and equal arguments give equal
// results. Calls are independent; v is only read, by the calling goroutine.
//
// A change of the state takes the zxid LastZxid+1: one for all of a Multi, one for a
// session's end with all its ephemerals. What fails, and a Multi that only checks,
// takes none (ZooKeeper spends one on failures too, which no client relies on) and
// has an empty Delta; nor does a resume, whose Delta is the session with its new owner. Apply keeps the Data, ACL and Path of ops, which must not be
// written to afterwards.
//
// Every operation is judged in ZooKeeper's order of checks; the first that fails is
// the answer. The session comes before all others.
func Apply(v View, s Stamp, t *Txn) (Result, Delta) {
	last := v.LastZxid()
	a := change{view: v, txn: t, rules: s.Rules, zxid: last + 1, timeMs: max(s.TimeMs, v.LastTimeMs())}
	result := a.run()
	if result.Err != OK || len(a.delta.Nodes)+len(a.delta.Sessions) == 0 {
		result.setZxid(last)
		return result, Delta{}
	}
	if _, resumed := t.Op.(*ResumeSession); resumed {
		result.setZxid(last)
		return result, a.delta
	}
	result.setZxid(a.zxid)
	a.addExcesses()
	a.delta.Zxid, a.delta.TimeMs = a.zxid, a.timeMs
	return result, a.delta
}

func (r *Result) setZxid(zxid int64) {
	r.Zxid = zxid
	for i := range r.Sub {
		r.Sub[i].Zxid = zxid
	}
}

func failed(e Error) Result { return Result{Err: e} }

// change is one transaction while it is judged: what it asks for and what it has
// changed so far. Its operations read through it, so that a later one of a Multi
// sees the earlier ones.
type change struct {
	view   View
	txn    *Txn
	rules  Rules
	zxid   int64
	timeMs int64
	delta  Delta
	// nodeAt and childrenAt find a path's effect in delta once there are more than
	// scanMax; the counts say how many effects they hold already.
	nodeAt, childrenAt         map[string]int
	nodesIndexed, childIndexed int
}

// run judges the whole transaction.
func (a *change) run() Result {
	if id := a.txn.Session; id != 0 {
		if s := a.view.Session(id); s == nil {
			return failed(SessionExpired)
		} else if !s.OwnedBy(a.txn.Owner) {
			return failed(SessionMoved)
		}
	}
	switch op := a.txn.Op.(type) {
	case *Create, *Delete, *SetData:
		return a.step(op)
	case *SetACL:
		return a.setACL(op)
	case *Multi:
		return a.multi(op)
	case *OpenSession:
		return a.openSession(op)
	case *ResumeSession:
		return a.resumeSession(op)
	case *CloseSession:
		return a.closeSession(op)
	case *Reap:
		return a.reap(op)
	}
	return failed(Unimplemented) // also a Check outside Multi
}

// step judges what may be alone or part of a Multi.
func (a *change) step(op Op) Result {
	switch op := op.(type) {
	case *Create:
		return a.create(op)
	case *Delete:
		return a.delete(op)
	case *SetData:
		return a.setData(op)
	case *Check:
		return a.check(op)
	}
	return failed(MarshallingError)
}

// multi applies all or nothing. An operation that may not be in a Multi fails it as
// if it had not been decoded: the answer is the bare error.
func (a *change) multi(m *Multi) Result {
	for _, op := range m.Ops {
		switch op.(type) {
		case *Create, *Delete, *SetData, *Check:
		default:
			return failed(MarshallingError)
		}
	}
	sub := make([]Result, len(m.Ops))
	a.delta.Nodes = make([]NodeEffect, 0, len(m.Ops))
	a.delta.Changes = make([]Change, 0, len(m.Ops))
	for i, op := range m.Ops {
		sub[i] = a.step(op)
		if sub[i].Err != OK {
			return failedMulti(sub, i)
		}
	}
	return Result{Kind: ResultMulti, Sub: sub}
}

// failedMulti is the outcome of a Multi whose operation at failing did not succeed.
func failedMulti(sub []Result, failing int) Result {
	err := sub[failing].Err
	for i := range sub {
		switch {
		case i < failing:
			sub[i] = failed(OK)
		case i > failing:
			sub[i] = failed(RuntimeInconsistency)
		}
	}
	return Result{Kind: ResultMulti, Err: err, Sub: sub}
}

// allowed asks the access list of n, which is the znode that need names; the server
// itself needs no permission.
func (a *change) allowed(need Access, n *Node) bool {
	return a.txn.Session == 0 || need.Allowed(n.ACL, a.txn.Auth)
}

// scanMax is how many effects are searched one by one. A single operation has fewer,
// so it never needs a map.
const scanMax = 8

// nodeEffect returns the index of path's effect, -1 if there is none yet.
func (a *change) nodeEffect(path string) int {
	nodes := a.delta.Nodes
	if len(nodes) <= scanMax {
		return slices.IndexFunc(nodes, func(e NodeEffect) bool { return e.Path == path })
	}
	if a.nodeAt == nil {
		a.nodeAt = make(map[string]int, 2*len(nodes))
	}
	for ; a.nodesIndexed < len(nodes); a.nodesIndexed++ {
		a.nodeAt[nodes[a.nodesIndexed].Path] = a.nodesIndexed
	}
	if i, ok := a.nodeAt[path]; ok {
		return i
	}
	return -1
}

// node is View.Node after the changes so far.
func (a *change) node(path string) *Node {
	if i := a.nodeEffect(path); i >= 0 {
		return a.delta.Nodes[i].Node
	}
	return a.view.Node(path)
}

// putNode stores n (nil to remove) where prev was.
func (a *change) putNode(path string, n, prev *Node) {
	if i := a.nodeEffect(path); i >= 0 {
		a.delta.Nodes[i].Node = n
		return
	}
	if a.delta.Nodes == nil {
		a.makeRoom()
	}
	a.delta.Nodes = append(a.delta.Nodes, NodeEffect{Path: path, Node: n, Prev: prev})
}

// makeRoom allocates what a single operation needs at once. Invariant: the first
// effect of every operation is a znode's.
func (a *change) makeRoom() {
	room := new(struct {
		nodes    [1]NodeEffect
		children [1]ChildrenEffect
		changes  [1]Change
	})
	a.delta.Nodes, a.delta.Children, a.delta.Changes = room.nodes[:0], room.children[:0], room.changes[:0]
}

func (a *change) childrenEffect(path string) int {
	children := a.delta.Children
	if len(children) <= scanMax {
		return slices.IndexFunc(children, func(e ChildrenEffect) bool { return e.Path == path })
	}
	if a.childrenAt == nil {
		a.childrenAt = make(map[string]int, 2*len(children))
	}
	for ; a.childIndexed < len(children); a.childIndexed++ {
		a.childrenAt[children[a.childIndexed].Path] = a.childIndexed
	}
	if i, ok := a.childrenAt[path]; ok {
		return i
	}
	return -1
}

// children is View.Children after the changes so far.
func (a *change) children(path string) Children {
	if i := a.childrenEffect(path); i >= 0 {
		return a.delta.Children[i].Children
	}
	return a.view.Children(path)
}

// putChildren stores the counters of path, or removes them if c is zero.
func (a *change) putChildren(path string, c Children) {
	effect := ChildrenEffect{Path: path, Children: c, Gone: c == Children{}}
	if i := a.childrenEffect(path); i >= 0 {
		a.delta.Children[i] = effect
		return
	}
	a.delta.Children = append(a.delta.Children, effect)
}
