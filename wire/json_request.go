package wire

import (
	"github.com/tenure-dev/tenure/znode"
)

// AppendRequest appends one request. Fields with their default value are left out.
func (JSON) AppendRequest(dst []byte, q *Request) []byte {
	dst = append(dst, '{')
	start := len(dst)
	dst = addStr(addInt(dst, "xid", q.Xid), "op", jsonName(q.Op))
	dst = dropComma(dst, start)
	if q.Seq != 0 {
		dst = addLong(dst, "seq", q.Seq)
	}
	if q.Acked != 0 {
		dst = addLong(dst, "acked", q.Acked)
	}
	dst = addTrue(dst, "stale", q.Stale)
	switch b := q.Body.(type) {
	case nil:
	case *znode.Multi:
		dst = addOps(dst, b)
	case znode.Op:
		dst = addWrite(dst, b)
	default:
		dst = addRead(dst, q)
	}
	return append(dst, '}')
}

func addOps(dst []byte, m *znode.Multi) []byte {
	return addList(dst, "ops", len(m.Ops), func(dst []byte, i int) []byte {
		dst = append(append(dst, `,{"op":"`...), jsonName(OpOf(m.Ops[i]))...)
		return append(addWrite(append(dst, '"'), m.Ops[i]), '}')
	})
}

// addWrite appends the fields of one write.
func addWrite(dst []byte, w znode.Op) []byte {
	switch w := w.(type) {
	case *znode.Create:
		dst = addData(addStr(dst, "path", w.Path), "data", w.Data)
		if !isOpen(w.ACL) {
			dst = addACL(dst, w.ACL)
		}
		if w.Mode != (znode.Mode{}) {
			dst = addStr(dst, "mode", modeNames[w.Mode])
		}
		if w.TTLMs != 0 {
			dst = addLong(dst, "ttlMs", w.TTLMs)
		}
		return addTrue(dst, "stat", w.WantStat)
	case *znode.Delete:
		return addInt(addStr(dst, "path", w.Path), "version", w.Version)
	case *znode.SetData:
		return addInt(addData(addStr(dst, "path", w.Path), "data", w.Data), "version", w.Version)
	case *znode.SetACL:
		return addInt(addACL(addStr(dst, "path", w.Path), w.ACL), "version", w.Version)
	case *znode.Check:
		return addInt(addStr(dst, "path", w.Path), "version", w.Version)
	}
	panic("wire: no request has a body of type " + typeName(w))
}

// addRead appends the fields of a request that is not a write.
func addRead(dst []byte, q *Request) []byte {
	switch b := q.Body.(type) {
	case *PathWatch:
		return addTrue(addStr(dst, "path", b.Path), "watch", b.Watch)
	case *PathOnly:
		return addStr(dst, "path", b.Path)
	case *MultiRead:
		return addList(dst, "ops", len(b.Ops), func(dst []byte, i int) []byte {
			dst = append(append(dst, `,{"op":"`...), jsonName(b.Ops[i].Op)...)
			return append(addStr(append(dst, '"'), "path", b.Ops[i].Path), '}')
		})
	case *Auth:
		return addData(addStr(dst, "scheme", b.Scheme), "data", b.Data)
	case *SASL:
		return addData(dst, "token", b.Token)
	case *SetWatches:
		return addWatches(addLong(dst, "relZxid", b.RelZxid), b)
	case *AddWatch:
		return addTrue(addStr(dst, "path", b.Path), "recursive", b.Mode == 1)
	case *RemoveWatches:
		return addStr(addStr(dst, "path", b.Path), "type", watcherNames[b.Type])
	case *Reconfig:
		dst = addStr(addStr(dst, "joining", b.Joining), "leaving", b.Leaving)
		return addLong(addStr(dst, "newMembers", b.NewMembers), "configId", b.ConfigID)
	case *Renew:
		return addList(dst, "held", len(b.Held), func(dst []byte, i int) []byte {
			dst = addText(append(dst, `,{"path":`...), b.Held[i].Path)
			return append(addLong(dst, "czxid", b.Held[i].Czxid), '}')
		})
	case *List:
		dst = addStr(addStr(dst, "path", b.Path), "after", b.After)
		return addTrue(addInt(dst, "limit", b.Limit), "stats", b.Stats)
	case *Sessions:
		return addInt(addLong(dst, "after", int64(b.After)), "limit", b.Limit)
	case *KillSession:
		return addLong(dst, "session", int64(b.Session))
	case *ChangeMembers:
		if b.Number != 0 {
			dst = addLong(dst, "number", b.Number)
		}
		return addMemberSteps(dst, b.Steps)
	case *TransferLead:
		return addInt(dst, "member", b.ID)
	}
	panic("wire: no request has a body of type " + typeName(q.Body))
}

// addWatches appends the lists that are not empty.
func addWatches(dst []byte, s *SetWatches) []byte {
	dst = append(addKey(dst, "watches"), '{')
	start := len(dst)
	lists := [...]struct {
		name  string
		paths []string
	}{
		{"data", s.Data}, {"exist", s.Exist}, {"child", s.Child},
		{"persistent", s.Persistent}, {"recursive", s.Recursive},
	}
	for _, l := range lists {
		if len(l.paths) > 0 {
			dst = addStrs(dst, l.name, l.paths)
		}
	}
	return append(dropComma(dst, start), '}')
}
