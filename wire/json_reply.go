package wire

import (
	"strconv"

	"github.com/tenure-dev/tenure/znode"
)

// AppendReply appends a reply. A failed multi has err beside its results.
func (JSON) AppendReply(dst []byte, p *Reply) []byte {
	dst = strconv.AppendInt(append(dst, `{"xid":`...), int64(p.Xid), 10)
	dst = addLong(dst, "zxid", p.Zxid)
	err, results := outcome(p)
	if err != znode.OK {
		dst = addError(dst, err)
		if p.Detail != "" {
			dst = addStr(dst, "detail", p.Detail)
		}
	}
	switch res, isResult := p.Body.(*znode.Result); {
	case results != nil:
		dst = addResults(dst, results)
	case err != znode.OK || p.Body == nil:
	case isResult:
		dst = addResult(dst, res)
	default:
		dst = addReplyFields(dst, p.Body)
	}
	return append(dst, '}')
}

func addError(dst []byte, e znode.Error) []byte {
	return addStr(addInt(dst, "err", int32(e)), "error", e.Name())
}

// addResult appends the fields of the reply to one write, alone or in a multi.
func addResult(dst []byte, res *znode.Result) []byte {
	switch res.Kind {
	case znode.ResultCreate:
		return addStr(dst, "path", res.Path)
	case znode.ResultCreateStat:
		return addStat(addStr(dst, "path", res.Path), &res.Stat)
	case znode.ResultSetData, znode.ResultSetACL:
		return addStat(dst, &res.Stat)
	}
	return dst
}

func addResults(dst []byte, m *znode.Result) []byte {
	return addList(dst, "results", len(m.Sub), func(dst []byte, i int) []byte {
		s := &m.Sub[i]
		if m.Err != znode.OK {
			dst = strconv.AppendInt(append(dst, `,{"err":`...), int64(s.Err), 10)
			return append(addStr(dst, "error", s.Err.Name()), '}')
		}
		dst = append(append(dst, `,{"op":"`...), jsonName(resultOp(s.Kind))...)
		return append(addResult(append(dst, '"'), s), '}')
	})
}

func addReplyFields(dst []byte, body any) []byte {
	switch b := body.(type) {
	case *DataReply:
		return addStat(addData(dst, "data", b.Data), &b.Stat)
	case *StatReply:
		return addStat(dst, &b.Stat)
	case *ACLReply:
		return addStat(addACL(dst, b.ACL), &b.Stat)
	case *ChildrenReply:
		return addStat(addStrs(dst, "names", b.Names), &b.Stat)
	case *PathReply:
		return addStr(dst, "path", b.Path)
	case *CountReply:
		return addInt(dst, "count", b.Count)
	case *PathsReply:
		return addStrs(dst, "paths", b.Paths)
	case *IdentitiesReply:
		return addList(dst, "identities", len(b.Identities), func(dst []byte, i int) []byte {
			dst = addText(append(dst, `,{"scheme":`...), b.Identities[i].Scheme)
			return append(addStr(dst, "id", b.Identities[i].ID), '}')
		})
	case *SASLReply:
		return addData(dst, "token", b.Token)
	case *AddWatchReply:
		return dst
	case *MultiReadReply:
		return addList(dst, "results", len(b.Results), func(dst []byte, i int) []byte {
			return addReadResult(dst, &b.Results[i])
		})
	}
	return addOwnReplyFields(dst, body)
}

func addReadResult(dst []byte, x *ReadResult) []byte {
	dst = append(dst, ',', '{')
	start := len(dst)
	switch {
	case x.Err != znode.OK:
		dst = addError(dst, x.Err)
	case x.Op == OpGetData:
		dst = addStat(addData(dst, "data", x.Data.Data), &x.Data.Stat)
	default:
		dst = addStrs(dst, "names", x.Children.Names)
	}
	return append(dropComma(dst, start), '}')
}

// addOwnReplyFields appends the reply to one of Tenure's own operations.
func addOwnReplyFields(dst []byte, body any) []byte {
	switch b := body.(type) {
	case *RewatchReply:
		return addBool(dst, "complete", b.Complete)
	case *RenewReply:
		return addList(addInt(dst, "timeoutMs", b.TimeoutMs), "held", len(b.Held),
			func(dst []byte, i int) []byte {
				return strconv.AppendInt(append(dst, ','), int64(b.Held[i]), 10)
			})
	case *ListReply:
		dst = addStrs(dst, "names", b.Names)
		dst = addList(dst, "stats", len(b.Stats), func(dst []byte, i int) []byte {
			return putJSONStat(append(dst, ','), &b.Stats[i])
		})
		dst = addStat(addBool(dst, "more", b.More), &b.Stat)
		dst = addList(dst, "lifetimes", len(b.Lifetimes), func(dst []byte, i int) []byte {
			return putJSONLifetime(append(dst, ','), b.Lifetimes[i])
		})
		return putJSONLifetime(addKey(dst, "lifetime"), b.Lifetime)
	case *SessionsReply:
		dst = addList(dst, "sessions", len(b.Sessions), func(dst []byte, i int) []byte {
			return addSessionInfo(dst, &b.Sessions[i])
		})
		return addBool(dst, "more", b.More)
	case *MembersReply:
		return addMembers(dst, b)
	case *StatusReply:
		dst = append(addKey(dst, "figures"), '{')
		start := len(dst)
		for _, f := range b.Figures {
			dst = addText(append(addText(append(dst, ','), f.Name), ':'), f.Value)
		}
		return append(dropComma(dst, start), '}')
	}
	panic("wire: no reply has a body of type " + typeName(body))
}

func addSessionInfo(dst []byte, s *SessionInfo) []byte {
	dst = append(dst, ',', '{')
	start := len(dst)
	dst = addInt(addLong(dst, "session", int64(s.ID)), "timeoutMs", s.TimeoutMs)
	dst = addLong(addStr(dst, "remote", s.Remote), "idleMs", s.IdleMs)
	dst = addInt(addInt(dst, "watches", s.Watches), "ephemerals", s.Ephemerals)
	return append(dropComma(dst, start), '}')
}
