package znode

import "strconv"

// create checks in ZooKeeper's order: mode, slash and NUL, ACL, parent, permission,
// sequence, syntax, existence, ephemeral parent, quota. So whoever may not create
// cannot probe what exists.
func (a *change) create(op *Create) Result {
	if e := a.modeError(op); e != OK {
		return failed(e)
	}
	parentPath, ok := parentOf(op.Path)
	if !ok {
		return failed(BadArguments)
	}
	acl, ok := normalizeACL(op.ACL, a.txn.Auth)
	if !ok {
		return failed(InvalidACL)
	}
	parent := a.node(parentPath)
	if parent == nil {
		return failed(NoNode)
	}
	if !a.allowed(AccessCreate, parent) {
		return failed(NoAuth)
	}
	siblings := a.children(parentPath)
	path := op.Path
	if op.Mode.Sequential {
		// ZooKeeper's counter sticks here, so that it answers NodeExists or reuses a
		// name. The counter goes on for Stat's sake; there is no name any more.
		if siblings.Created > SequenceMax {
			return failed(QuotaExceeded)
		}
		path = appendSequence(path, siblings.Created)
	}
	if brokenPathRule(path) != "" {
		return failed(BadArguments)
	}
	if a.node(path) != nil {
		return failed(NodeExists)
	}
	if parent.Kind == Ephemeral {
		return failed(NoChildrenForEphemerals)
	}
	q := a.quotaOf(path)
	if a.rules.Full || !a.within(q, 1, int64(len(op.Data))) {
		return failed(QuotaExceeded)
	}
	n := &Node{
		Czxid: a.zxid, Mzxid: a.zxid, Ctime: a.timeMs, Mtime: a.timeMs,
		Kind: op.Mode.Kind, TTLMs: op.TTLMs, ACL: acl, Data: op.Data,
	}
	if n.Kind == Ephemeral {
		n.Owner = a.txn.Session
	}
	a.insert(path, parentPath, n, parent, siblings)
	a.use(q, 1, int64(len(op.Data)))
	if op.WantStat {
		return Result{Kind: ResultCreateStat, Path: path, Stat: StatOf(n, Children{})}
	}
	return Result{Kind: ResultCreate, Path: path}
}

// modeError judges the combination of mode, lifetime and who asks.
func (a *change) modeError(op *Create) Error {
	switch op.Mode.Kind {
	case TTL:
		if a.rules.NoTTL {
			return Unimplemented
		}
		if op.TTLMs < 1 || op.TTLMs > TTLMaxMs {
			return BadArguments
		}
		return OK
	case Ephemeral:
		if a.txn.Session == 0 {
			return BadArguments // the server has no session that could own it
		}
	case Persistent, Container:
	default:
		return BadArguments
	}
	if op.TTLMs != 0 {
		return BadArguments
	}
	return OK
}

// appendSequence appends n in ten digits with leading zeros. Invariant: n in [0, SequenceMax].
func appendSequence(path string, n int64) string {
	var buf [20]byte
	digits := strconv.AppendInt(buf[:0], 1e10+n, 10)[1:]
	return path + string(digits)
}

// insert adds a new znode under its parent.
func (a *change) insert(path, parentPath string, n, parent *Node, siblings Children) {
	if isUsage(path) {
		n.Data = a.countUsage(path)
	}
	siblings.Created++
	siblings.Live++
	siblings.Pzxid = a.zxid
	a.putNode(path, n, nil)
	a.putChildren(parentPath, siblings)
	a.delta.Changes = append(a.delta.Changes,
		Change{Type: EventCreated, Path: path, ACL: n.ACL, ParentACL: parent.ACL})
}

// delete checks in ZooKeeper's order: slash, NUL and system znodes, parent,
// permission on the parent, existence, version, children. The path's syntax is not
// checked: a malformed one just does not exist.
func (a *change) delete(op *Delete) Result {
	parentPath, ok := parentOf(op.Path)
	if !ok || isSystem(op.Path) {
		return failed(BadArguments)
	}
	parent := a.node(parentPath)
	if parent == nil {
		return failed(NoNode)
	}
	if !a.allowed(AccessDelete, parent) {
		return failed(NoAuth)
	}
	n := a.node(op.Path)
	if n == nil {
		return failed(NoNode)
	}
	if !versionMatches(op.Version, n.Version) {
		return failed(BadVersion)
	}
	own := a.children(op.Path)
	if own.Live > 0 {
		return failed(NotEmpty)
	}
	a.remove(op.Path, n, own, parentPath, parent)
	return Result{Kind: ResultDelete}
}

// remove takes away a znode without children; own are the counters that it had.
func (a *change) remove(path string, n *Node, own Children, parentPath string, parent *Node) {
	siblings := a.children(parentPath)
	siblings.Live--
	siblings.Pzxid = a.zxid
	a.putNode(path, nil, n)
	a.putChildren(parentPath, siblings)
	if own != (Children{}) {
		a.putChildren(path, Children{})
	}
	gone := Change{Type: EventDeleted, Path: path, ACL: n.ACL}
	if parent != nil {
		gone.ParentACL = parent.ACL
	}
	a.delta.Changes = append(a.delta.Changes, gone)
	a.use(a.quotaOf(path), -1, -int64(len(n.Data)))
}

// setData checks in ZooKeeper's order: syntax, existence, permission, quota, version.
func (a *change) setData(op *SetData) Result {
	if brokenPathRule(op.Path) != "" {
		return failed(BadArguments)
	}
	prev := a.node(op.Path)
	if prev == nil {
		return failed(NoNode)
	}
	if !a.allowed(AccessWrite, prev) {
		return failed(NoAuth)
	}
	q := a.quotaOf(op.Path)
	growth := int64(len(op.Data) - len(prev.Data))
	if a.rules.Full && growth > 0 || !a.within(q, 0, growth) {
		return failed(QuotaExceeded)
	}
	if !versionMatches(op.Version, prev.Version) {
		return failed(BadVersion)
	}
	n := new(Node)
	*n = *prev
	n.Data, n.Version, n.Mzxid, n.Mtime = op.Data, nextVersion(prev.Version), a.zxid, a.timeMs
	a.putNode(op.Path, n, prev)
	a.delta.Changes = append(a.delta.Changes, Change{Type: EventDataChanged, Path: op.Path, ACL: n.ACL})
	a.use(q, 0, growth)
	return Result{Kind: ResultSetData, Stat: StatOf(n, a.children(op.Path))}
}

// setACL checks in ZooKeeper's order: syntax, ACL, existence, permission, aversion.
// It is no Change: nobody watches access lists.
func (a *change) setACL(op *SetACL) Result {
	if brokenPathRule(op.Path) != "" {
		return failed(BadArguments)
	}
	acl, ok := normalizeACL(op.ACL, a.txn.Auth)
	if !ok {
		return failed(InvalidACL)
	}
	prev := a.node(op.Path)
	if prev == nil {
		return failed(NoNode)
	}
	if !a.allowed(AccessAdmin, prev) {
		return failed(NoAuth)
	}
	if a.rules.Full && aclBytes(acl) > aclBytes(prev.ACL) {
		return failed(QuotaExceeded)
	}
	if !versionMatches(op.Version, prev.Aversion) {
		return failed(BadVersion)
	}
	n := new(Node)
	*n = *prev
	n.ACL, n.Aversion = acl, nextVersion(prev.Aversion)
	a.putNode(op.Path, n, prev)
	return Result{Kind: ResultSetACL, Stat: StatOf(n, a.children(op.Path))}
}

func aclBytes(acl []ACL) (size int) {
	for i := range acl {
		size += 4 + len(acl[i].Scheme) + len(acl[i].ID)
	}
	return size
}

// check checks in ZooKeeper's order: syntax, existence, permission, version.
func (a *change) check(op *Check) Result {
	if brokenPathRule(op.Path) != "" {
		return failed(BadArguments)
	}
	n := a.node(op.Path)
	if n == nil {
		return failed(NoNode)
	}
	if !a.allowed(AccessRead, n) {
		return failed(NoAuth)
	}
	if !versionMatches(op.Version, n.Version) {
		return failed(BadVersion)
	}
	return Result{Kind: ResultCheck}
}

// versionMatches takes -1 for any version; other negative numbers are versions,
// since the counter wraps.
func versionMatches(asked, actual int32) bool { return asked == -1 || asked == actual }

// nextVersion counts up. It wraps to the smallest int32 and leaves out -1, which
// would be taken for "any" (ZOOKEEPER-4743).
func nextVersion(v int32) int32 {
	if v == -2 {
		return 0
	}
	return v + 1
}
