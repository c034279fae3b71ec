package wire

import (
	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// reply makes any reply of either encoding.
func (s source) reply() *Reply {
	p := &Reply{Xid: s.Int32N(1000), Zxid: s.long()}
	kinds := []func() (Op, any){
		func() (Op, any) {
			return OpCreate, &znode.Result{Kind: znode.ResultCreate, Path: s.path()}
		},
		func() (Op, any) {
			op := []Op{OpCreate2, OpCreateContainer, OpCreateTTL}[s.IntN(3)]
			return op, &znode.Result{Kind: znode.ResultCreateStat, Path: s.path(), Stat: s.stat()}
		},
		func() (Op, any) { return OpDelete, &znode.Result{Kind: znode.ResultDelete} },
		func() (Op, any) { return OpSetData, &znode.Result{Kind: znode.ResultSetData, Stat: s.stat()} },
		func() (Op, any) { return OpSetACL, &znode.Result{Kind: znode.ResultSetACL, Stat: s.stat()} },
		func() (Op, any) { return OpMulti, s.multiResult() },
		func() (Op, any) { return OpMultiRead, s.multiReadReply() },
		func() (Op, any) { return []Op{OpGetData, OpReconfig}[s.IntN(2)], &DataReply{s.data(), s.stat()} },
		func() (Op, any) { return OpExists, &StatReply{s.stat()} },
		func() (Op, any) { return OpGetACL, &ACLReply{s.acl(), s.stat()} },
		func() (Op, any) { return OpGetChildren, &ChildrenReply{Names: s.strs()} },
		func() (Op, any) { return OpGetChildren2, &ChildrenReply{s.strs(), s.stat()} },
		func() (Op, any) { return OpSync, &PathReply{s.path()} },
		func() (Op, any) { return OpGetAllChildrenNumber, &CountReply{s.int()} },
		func() (Op, any) { return OpGetEphemerals, &PathsReply{s.strs()} },
		func() (Op, any) {
			return OpWhoAmI, &IdentitiesReply{list(s, func() znode.Identity { return znode.Identity{Scheme: s.str(), ID: s.str()} })}
		},
		func() (Op, any) { return OpSASL, &SASLReply{s.data()} },
		func() (Op, any) { return OpAddWatch, &AddWatchReply{} },
		func() (Op, any) { return OpSetWatches, nil },
		s.ownReply,
	}
	p.Op, p.Body = kinds[s.IntN(len(kinds))]()
	if s.IntN(5) == 0 {
		p.Err, p.Body = s.failure(), nil
	}
	return p
}

func (s source) ownReply() (Op, any) {
	switch s.IntN(7) {
	case 0:
		return OpRewatch, &RewatchReply{s.flip()}
	case 1:
		return OpRenew, &RenewReply{s.int(), list(s, s.failure)}
	case 2:
		return OpList, &ListReply{s.strs(), list(s, s.stat), s.flip(), s.stat(), list(s, s.lifetime), s.lifetime()}
	case 3:
		return OpSessions, &SessionsReply{list(s, func() SessionInfo {
			return SessionInfo{session.ID(s.long()), s.int(), s.str(), s.long(), s.int(), s.int()}
		}), s.flip()}
	case 4:
		return OpStatus, &StatusReply{list(s, func() Figure { return Figure{s.str(), s.str()} })}
	}
	if s.flip() {
		return OpKillSession, nil
	}
	return OpMembers + Op(s.IntN(3)), &MembersReply{s.long(), s.int(), s.flip(), s.flip(), s.long(), list(s, func() MemberInfo {
		return MemberInfo{s.int(), s.str(), s.flip(), s.flip(), s.long(), s.long()}
	}), list(s, s.int), s.int()}
}

func (s source) lifetime() znode.Lifetime {
	if kind := znode.Kind(s.IntN(4)); kind != znode.TTL {
		return znode.Lifetime{Kind: kind}
	}
	return znode.Lifetime{Kind: znode.TTL, TTLMs: 1 + s.Int64N(znode.TTLMaxMs)}
}

// multiResult makes one that failed or one that did not, with what jute can carry of it.
func (s source) multiResult() *znode.Result {
	m := &znode.Result{Kind: znode.ResultMulti}
	n := s.IntN(4)
	if n > 0 && s.flip() {
		m.Err = s.failure()
		bad := s.IntN(n)
		for i := range n {
			e := znode.OK
			if i == bad {
				e = m.Err
			} else if i > bad {
				e = znode.RuntimeInconsistency
			}
			m.Sub = append(m.Sub, znode.Result{Err: e})
		}
		return m
	}
	for range n {
		m.Sub = append(m.Sub, []znode.Result{
			{Kind: znode.ResultCreate, Path: s.path()},
			{Kind: znode.ResultCreateStat, Path: s.path(), Stat: s.stat()},
			{Kind: znode.ResultDelete},
			{Kind: znode.ResultSetData, Stat: s.stat()},
			{Kind: znode.ResultCheck},
		}[s.IntN(5)])
	}
	return m
}

func (s source) multiReadReply() *MultiReadReply {
	m := &MultiReadReply{}
	for range s.IntN(4) {
		m.Results = append(m.Results, []ReadResult{
			{Op: OpGetData, Data: DataReply{s.data(), s.stat()}},
			{Op: OpGetChildren, Children: ChildrenReply{Names: s.strs()}},
			{Err: s.failure()},
		}[s.IntN(3)])
	}
	return m
}

// txnOp makes any operation of the log.
func (s source) txnOp() znode.Op {
	var password [session.PasswordSize]byte
	copy(password[:], "0123456789abcdef")
	switch s.IntN(7) {
	case 0:
		return &znode.SetACL{Path: s.path(), ACL: s.acl(), Version: s.int()}
	case 1:
		m := s.multi()
		if m.Ops == nil {
			m.Ops = []znode.Op{}
		}
		return m
	case 2:
		return &znode.OpenSession{TimeoutMs: s.int(), Password: password, Seen: s.long()}
	case 3:
		return &znode.CloseSession{Session: session.ID(s.long()), Expired: s.flip(), Owner: s.owner(s.Uint64())}
	case 4:
		return &znode.ResumeSession{Session: session.ID(s.long()), Password: password, Seen: s.long()}
	case 5:
		return &znode.Reap{Path: s.path()}
	}
	return s.multiOp()
}

// owner is a connection of a process, or nobody.
func (s source) owner(origin uint64) session.Owner {
	bind := uint64(s.long())
	if bind == 0 {
		return session.Owner{}
	}
	return session.Owner{Origin: origin, Bind: bind}
}

func (s source) proposal() Proposal {
	p := Proposal{Origin: s.Uint64(), ID: s.Uint64(), Txn: znode.Txn{
		Session: session.ID(s.long()), Seq: s.long(), Acked: s.long(), Op: s.txnOp(),
	}}
	p.Txn.Owner = s.owner(p.Origin)
	for range s.IntN(3) {
		p.Txn.Auth = append(p.Txn.Auth, znode.Identity{Scheme: s.str(), ID: s.str()})
	}
	return p
}

// result makes any result that the store keeps.
func (s source) result() znode.Result {
	r := s.simpleResult(znode.ResultKind(s.IntN(9)))
	if r.Kind == znode.ResultMulti {
		r.Sub = list(s, func() znode.Result { return s.simpleResult(znode.ResultKind(s.IntN(7))) })
	}
	return r
}

func (s source) simpleResult(k znode.ResultKind) znode.Result {
	r := znode.Result{Kind: k, Err: znode.Error(s.int()), Zxid: s.long()}
	switch k {
	case znode.ResultCreate:
		r.Path = s.path()
	case znode.ResultCreateStat:
		r.Path, r.Stat = s.path(), s.stat()
	case znode.ResultSetData, znode.ResultSetACL:
		r.Stat = s.stat()
	case znode.ResultSession:
		r.Session = session.Session{ID: session.ID(s.long()), TimeoutMs: s.int()}
		copy(r.Session.Password[:], s.data())
	}
	return r
}

func (s source) change() znode.Change {
	return znode.Change{Type: znode.EventType(1 + s.IntN(3)), Path: s.path(), ACL: s.acl(), ParentACL: s.acl()}
}
