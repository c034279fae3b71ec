package znode_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// model is an independent, naive statement of the rules: nested nodes, a copy of
// everything before each Multi, counters kept the way clients see them. It knows no
// quotas, and of access lists only world and digest.
type model struct {
	root     *mnode
	zxid     int64
	timeMs   int64
	sessions map[int64]msession
	events   []string
}

type msession struct {
	password byte
	owner    session.Owner // zero: anybody
}

type mnode struct {
	kids                           map[string]*mnode
	data                           string // "-" for null, else "+" and the bytes
	czxid, mzxid, pzxid            int64
	ctime, mtime                   int64
	version, aversion              int32
	created                        int64 // children ever
	changes                        int32 // cversion
	owner                          int64
	container, everHadChild, isTTL bool
	ttlMs                          int64
	acl                            []znode.ACL
}

func newModel() *model {
	plain := func() *mnode { return &mnode{kids: map[string]*mnode{}, data: "+", acl: znode.OpenACL} }
	m := &model{root: plain(), sessions: map[int64]msession{}}
	zk, config := plain(), plain()
	config.aversion, config.acl = -1, []znode.ACL{{Perms: 1, Scheme: "world", ID: "anyone"}}
	zk.kids["quota"], zk.kids["config"], zk.changes = plain(), config, -2
	m.root.kids["zookeeper"], m.root.changes = zk, -1
	return m
}

func (n *mnode) clone() *mnode {
	c := *n
	c.kids = make(map[string]*mnode, len(n.kids))
	for name, kid := range n.kids {
		c.kids[name] = kid.clone()
	}
	return &c
}

// find walks from the root; an element that is empty is no child.
func (m *model) find(path string) *mnode {
	if path == "/" || path == "" {
		return m.root
	}
	n := m.root
	for _, name := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
		if n = n.kids[name]; n == nil {
			return nil
		}
	}
	return n
}

func (n *mnode) allows(letter string, txn *znode.Txn) bool {
	if txn.Session == 0 {
		return true
	}
	for _, e := range n.acl {
		_, perms, _ := strings.Cut(e.String(), e.Scheme+":"+e.ID+":")
		if !strings.Contains(perms, letter) {
			continue
		}
		if e.Scheme == "world" || slices.Contains(txn.Auth, znode.Identity{Scheme: e.Scheme, ID: e.ID}) {
			return true
		}
	}
	return false
}

// good is the path rule for the few characters that the test uses.
func good(path string) bool {
	if path == "/" {
		return true
	}
	if !strings.HasPrefix(path, "/") {
		return false
	}
	for _, name := range strings.Split(path[1:], "/") {
		if name == "" || name == "." || name == ".." {
			return false
		}
	}
	return true
}

type outcome struct {
	err  znode.Error
	path string
	stat string // "" if none
	sub  []outcome
}

func bad(e znode.Error) outcome { return outcome{err: e} }

// apply runs a transaction on m and says what must come out.
func (m *model) apply(s znode.Stamp, txn *znode.Txn) outcome {
	if txn.Session != 0 {
		s, open := m.sessions[int64(txn.Session)]
		if !open {
			return bad(znode.SessionExpired)
		}
		if s.owner.Bind != 0 && s.owner != txn.Owner {
			return bad(znode.SessionMoved)
		}
	}
	saved, zxid, timeMs := m.root.clone(), m.zxid, m.timeMs
	m.events = nil
	m.zxid, m.timeMs = zxid+1, max(timeMs, s.TimeMs)
	var out outcome
	changed := true
	switch op := txn.Op.(type) {
	case *znode.Multi:
		out, changed = m.multi(op, txn)
	case *znode.OpenSession:
		if op.Seen > zxid {
			out = bad(znode.DataInconsistency)
		} else {
			m.sessions[m.zxid] = msession{op.Password[0], txn.Owner}
		}
	case *znode.ResumeSession:
		out, changed = m.resume(op, zxid, txn), false
	case *znode.CloseSession:
		out = m.closeSession(op, txn)
	case *znode.Reap:
		out = m.reap(op.Path)
	default:
		out = m.one(op, txn)
	}
	if out.err != znode.OK || !changed {
		m.root, m.zxid, m.timeMs, m.events = saved, zxid, timeMs, nil
	}
	return out
}

func (m *model) multi(op *znode.Multi, txn *znode.Txn) (out outcome, changed bool) {
	out.sub = make([]outcome, len(op.Ops))
	for i, sub := range op.Ops {
		if _, isCheck := sub.(*znode.Check); !isCheck {
			changed = true
		}
		if out.err != znode.OK {
			out.sub[i] = bad(znode.RuntimeInconsistency)
			continue
		}
		out.sub[i] = m.one(sub, txn)
		if e := out.sub[i].err; e != znode.OK {
			out.err = e
			for j := range i {
				out.sub[j] = outcome{}
			}
		}
	}
	return out, changed
}

func (m *model) one(op znode.Op, txn *znode.Txn) outcome {
	switch op := op.(type) {
	case *znode.Create:
		return m.create(op, txn)
	case *znode.Delete:
		return m.remove(op.Path, op.Version, txn)
	case *znode.SetData:
		n := m.find(op.Path)
		switch {
		case !good(op.Path):
			return bad(znode.BadArguments)
		case n == nil:
			return bad(znode.NoNode)
		case !n.allows("w", txn):
			return bad(znode.NoAuth)
		case op.Version != -1 && op.Version != n.version:
			return bad(znode.BadVersion)
		}
		n.data, n.version, n.mzxid, n.mtime = mdata(op.Data), n.version+1, m.zxid, m.timeMs
		m.events = append(m.events, "changed "+op.Path)
		return outcome{stat: n.stat()}
	case *znode.SetACL:
		n := m.find(op.Path)
		switch {
		case !good(op.Path):
			return bad(znode.BadArguments)
		case len(op.ACL) == 0:
			return bad(znode.InvalidACL)
		case n == nil:
			return bad(znode.NoNode)
		case !n.allows("a", txn):
			return bad(znode.NoAuth)
		case op.Version != -1 && op.Version != n.aversion:
			return bad(znode.BadVersion)
		}
		n.acl, n.aversion = op.ACL, n.aversion+1
		return outcome{stat: n.stat()}
	case *znode.Check:
		n := m.find(op.Path)
		switch {
		case !good(op.Path):
			return bad(znode.BadArguments)
		case n == nil:
			return bad(znode.NoNode)
		case !n.allows("r", txn):
			return bad(znode.NoAuth)
		case op.Version != -1 && op.Version != n.version:
			return bad(znode.BadVersion)
		}
		return outcome{}
	}
	panic(fmt.Sprintf("%T", op))
}

func mdata(data []byte) string {
	if data == nil {
		return "-"
	}
	return "+" + string(data)
}

func (m *model) create(op *znode.Create, txn *znode.Txn) outcome {
	parent := m.find(op.Path[:strings.LastIndex(op.Path, "/")])
	switch {
	case op.Mode.Kind == znode.Ephemeral && txn.Session == 0:
		return bad(znode.BadArguments)
	case op.Mode.Kind == znode.TTL && op.TTLMs == 0:
		return bad(znode.BadArguments)
	case len(op.ACL) == 0:
		return bad(znode.InvalidACL)
	case parent == nil:
		return bad(znode.NoNode)
	case !parent.allows("c", txn):
		return bad(znode.NoAuth)
	}
	path := op.Path
	if op.Mode.Sequential {
		path = fmt.Sprintf("%s%010d", path, parent.created)
	}
	name := path[strings.LastIndex(path, "/")+1:]
	switch {
	case !good(path):
		return bad(znode.BadArguments)
	case path == "/" || parent.kids[name] != nil:
		return bad(znode.NodeExists)
	case parent.owner != 0:
		return bad(znode.NoChildrenForEphemerals)
	}
	n := &mnode{
		kids: map[string]*mnode{}, data: mdata(op.Data), acl: op.ACL,
		czxid: m.zxid, mzxid: m.zxid, pzxid: m.zxid, ctime: m.timeMs, mtime: m.timeMs,
		container: op.Mode.Kind == znode.Container, isTTL: op.Mode.Kind == znode.TTL, ttlMs: op.TTLMs,
	}
	if op.Mode.Kind == znode.Ephemeral {
		n.owner = int64(txn.Session)
	}
	parent.kids[name] = n
	parent.created++
	parent.changes++
	parent.pzxid, parent.everHadChild = m.zxid, true
	m.events = append(m.events, "created "+path)
	out := outcome{path: path}
	if op.WantStat {
		out.stat = n.stat()
	}
	return out
}

func (m *model) remove(path string, version int32, txn *znode.Txn) outcome {
	switch path {
	case "/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config":
		return bad(znode.BadArguments)
	}
	parent := m.find(path[:strings.LastIndex(path, "/")])
	if parent == nil {
		return bad(znode.NoNode)
	}
	n := m.find(path)
	switch {
	case !parent.allows("d", txn):
		return bad(znode.NoAuth)
	case n == nil:
		return bad(znode.NoNode)
	case version != -1 && version != n.version:
		return bad(znode.BadVersion)
	case len(n.kids) > 0:
		return bad(znode.NotEmpty)
	}
	m.cut(path)
	return outcome{}
}

func (m *model) cut(path string) {
	slash := strings.LastIndex(path, "/")
	parent := m.find(path[:slash])
	delete(parent.kids, path[slash+1:])
	parent.changes++
	parent.pzxid = m.zxid
	m.events = append(m.events, "deleted "+path)
}

func (m *model) reap(path string) outcome {
	n := m.find(path)
	switch {
	case n == nil:
		return bad(znode.NoNode)
	case len(n.kids) > 0:
		return bad(znode.NotEmpty)
	case n.container && n.everHadChild, n.isTTL && m.timeMs-n.mtime > n.ttlMs:
		m.cut(path)
		return outcome{}
	}
	return bad(znode.BadVersion)
}

func (m *model) resume(op *znode.ResumeSession, zxid int64, txn *znode.Txn) outcome {
	s, open := m.sessions[int64(op.Session)]
	if !open || s.password != op.Password[0] {
		return bad(znode.SessionExpired)
	}
	if op.Seen > zxid {
		return bad(znode.DataInconsistency)
	}
	m.sessions[int64(op.Session)] = msession{s.password, txn.Owner}
	return outcome{}
}

func (m *model) closeSession(op *znode.CloseSession, txn *znode.Txn) outcome {
	id := int64(op.Session)
	if txn.Session != 0 && int64(txn.Session) != id {
		return bad(znode.NoAuth)
	}
	s, open := m.sessions[id]
	if !open {
		return bad(znode.SessionExpired)
	}
	if op.Expired && s.owner != op.Owner {
		return bad(znode.SessionMoved)
	}
	delete(m.sessions, id)
	var owned []string
	m.walk(func(path string, n *mnode) {
		if n.owner == id {
			owned = append(owned, path)
		}
	})
	slices.Sort(owned)
	for _, path := range owned {
		m.cut(path)
	}
	return outcome{}
}

func (m *model) walk(visit func(path string, n *mnode)) {
	var down func(path string, n *mnode)
	down = func(path string, n *mnode) {
		visit(path, n)
		for name, kid := range n.kids {
			down(strings.TrimSuffix(path, "/")+"/"+name, kid)
		}
	}
	down("/", m.root)
}

func (n *mnode) stat() string {
	length := int32(len(n.data) - 1)
	return fmt.Sprint(n.czxid, n.mzxid, n.pzxid, n.ctime, n.mtime, n.version, n.changes, n.aversion, n.owner, length, len(n.kids))
}

// statLine is a Stat in the order of mnode.stat.
func statLine(s znode.Stat) string {
	return fmt.Sprint(s.Czxid, s.Mzxid, s.Pzxid, s.Ctime, s.Mtime, s.Version, s.Cversion, s.Aversion,
		int64(s.EphemeralOwner), s.DataLength, int(s.NumChildren))
}
