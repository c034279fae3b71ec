package znode

import "github.com/tenure-dev/tenure/session"

// openSession starts a session. It works also while the state is Full: whoever
// wants to delete needs one.
func (a *change) openSession(op *OpenSession) Result {
	if op.TimeoutMs <= 0 {
		return failed(BadArguments)
	}
	if op.Seen > a.view.LastZxid() {
		return failed(DataInconsistency)
	}
	return a.ownSession(session.Session{ID: session.ID(a.zxid), TimeoutMs: op.TimeoutMs, Password: op.Password})
}

// resumeSession gives a session to the connection that presents its password.
func (a *change) resumeSession(op *ResumeSession) Result {
	s := a.view.Session(op.Session)
	switch {
	case s == nil || s.Password != op.Password:
		return failed(SessionExpired)
	case op.Seen > a.view.LastZxid():
		return failed(DataInconsistency)
	}
	return a.ownSession(*s)
}

// ownSession stores s as the asking connection's.
func (a *change) ownSession(s session.Session) Result {
	s.Owner = a.txn.Owner
	a.delta.Sessions = []SessionEffect{{ID: s.ID, Session: &s}}
	return Result{Kind: ResultSession, Session: s}
}

// closeSession ends a session: its own by the client, any by the server or super.
// The ephemerals go in ascending order of their paths, so that all members tell the
// same story.
func (a *change) closeSession(op *CloseSession) Result {
	if a.txn.Session != 0 && a.txn.Session != op.Session && !AccessSuper.Allowed(nil, a.txn.Auth) {
		return failed(NoAuth)
	}
	s := a.view.Session(op.Session)
	if s == nil {
		if a.txn.Session != 0 && a.txn.Session != op.Session {
			return failed(UnknownSession) // SessionExpired would be about the asker's own
		}
		return failed(SessionExpired)
	}
	if op.Expired && s.Owner != op.Owner {
		return failed(SessionMoved)
	}
	var paths []string
	a.view.Ephemerals(op.Session, func(path string) bool {
		paths = append(paths, path)
		return true
	})
	a.delta.Sessions = []SessionEffect{{ID: op.Session}}
	a.delta.Nodes = make([]NodeEffect, 0, len(paths))
	a.delta.Changes = make([]Change, 0, len(paths))
	parentPath, parent := "", (*Node)(nil)
	for _, path := range paths {
		n := a.node(path)
		if n == nil {
			continue // only a View that failed has an index without its znode
		}
		// Most ephemerals of a session are siblings: look their parent up once.
		if p, _ := Split(path); p != parentPath {
			parentPath, parent = p, a.node(p)
		}
		a.remove(path, n, Children{}, parentPath, parent)
	}
	return Result{}
}

// reap deletes what its kind allows to go. The leader judged the same before it
// asked; in between a child or new data may have come.
func (a *change) reap(op *Reap) Result {
	if a.txn.Session != 0 {
		return failed(Unimplemented)
	}
	n := a.node(op.Path)
	if n == nil {
		return failed(NoNode)
	}
	own := a.children(op.Path)
	if own.Live > 0 {
		return failed(NotEmpty)
	}
	if !Reapable(n, own, a.timeMs) {
		return failed(BadVersion)
	}
	parentPath, _ := Split(op.Path)
	a.remove(op.Path, n, own, parentPath, a.node(parentPath))
	return Result{}
}

// Reapable reports whether a Reap of the znode would succeed at nowMs: a container
// that had a child and has none, or a childless TTL znode whose data is older than
// its lifetime. A container that never had a child stays, as in ZooKeeper 3.9: its
// creator may be about to use it.
func Reapable(n *Node, c Children, nowMs int64) bool {
	if c.Live > 0 {
		return false
	}
	switch n.Kind {
	case Container:
		return c.Created > 0
	case TTL:
		return nowMs-n.Mtime > n.TTLMs
	}
	return false
}
