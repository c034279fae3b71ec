package wire

import (
	"fmt"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// AppendReply appends a reply: its header, and the record if there is no error. A failed
// multi with results per operation has OK in the header, whatever Err says, as
// ZooKeeper's clients expect; any other Result that failed is an error there.
func (Jute) AppendReply(dst []byte, p *Reply) []byte {
	xid := p.Xid
	if p.Op == OpPing {
		xid = pingXid
	}
	dst = putLong(putInt(dst, xid), p.Zxid)
	err, results := outcome(p)
	if results != nil {
		return putMultiResult(putInt(dst, int32(znode.OK)), results)
	}
	dst = putInt(dst, int32(err))
	switch {
	case err != znode.OK && hasDetail(p.Op):
		return putStr(dst, p.Detail)
	case err != znode.OK || p.Body == nil:
		return dst
	}
	if res, ok := p.Body.(*znode.Result); ok {
		return putResult(dst, res)
	}
	return putReplyRecord(dst, p)
}

// outcome returns the error that a reply tells, and the multi's result if it has one
// per operation to tell.
func outcome(p *Reply) (znode.Error, *znode.Result) {
	res, ok := p.Body.(*znode.Result)
	if !ok {
		return p.Err, nil
	}
	err := p.Err
	if err == znode.OK {
		err = res.Err
	}
	if res.Kind == znode.ResultMulti && (len(res.Sub) > 0 || err == znode.OK) {
		return err, res
	}
	return err, nil
}

// putResult appends the record of the reply to one write, alone or in a multi.
func putResult(dst []byte, res *znode.Result) []byte {
	switch res.Kind {
	case znode.ResultCreate:
		return putStr(dst, res.Path)
	case znode.ResultCreateStat:
		return putStat(putStr(dst, res.Path), &res.Stat)
	case znode.ResultSetData, znode.ResultSetACL:
		return putStat(dst, &res.Stat)
	}
	return dst
}

func putReplyRecord(dst []byte, p *Reply) []byte {
	switch b := p.Body.(type) {
	case *DataReply:
		return putStat(putData(dst, b.Data), &b.Stat)
	case *StatReply:
		return putStat(dst, &b.Stat)
	case *ACLReply:
		return putStat(putACL(dst, b.ACL), &b.Stat)
	case *ChildrenReply:
		dst = putStrs(dst, b.Names)
		if p.Op == OpGetChildren {
			return dst
		}
		return putStat(dst, &b.Stat)
	case *PathReply:
		return putStr(dst, b.Path)
	case *CountReply:
		return putInt(dst, b.Count)
	case *PathsReply:
		return putStrs(dst, b.Paths)
	case *IdentitiesReply:
		dst = putInt(dst, int32(len(b.Identities)))
		for _, id := range b.Identities {
			dst = putStr(putStr(dst, id.Scheme), id.ID)
		}
		return dst
	case *SASLReply:
		return putData(dst, b.Token)
	case *AddWatchReply:
		return putInt(dst, 0)
	case *MultiReadReply:
		return putMultiReadReply(dst, b)
	}
	return putOwnReply(dst, p.Body)
}

// putOwnReply appends the record of the reply to one of Tenure's own operations.
func putOwnReply(dst []byte, body any) []byte {
	switch b := body.(type) {
	case *RewatchReply:
		return putBool(dst, b.Complete)
	case *RenewReply:
		dst = putInt(putInt(dst, b.TimeoutMs), int32(len(b.Held)))
		for _, e := range b.Held {
			dst = putInt(dst, int32(e))
		}
		return dst
	case *ListReply:
		dst = putInt(putStrs(dst, b.Names), int32(len(b.Stats)))
		for i := range b.Stats {
			dst = putStat(dst, &b.Stats[i])
		}
		dst = putStat(putBool(dst, b.More), &b.Stat)
		dst = putInt(dst, int32(len(b.Lifetimes)))
		for _, l := range b.Lifetimes {
			dst = putLifetime(dst, l)
		}
		return putLifetime(dst, b.Lifetime)
	case *SessionsReply:
		dst = putInt(dst, int32(len(b.Sessions)))
		for i := range b.Sessions {
			s := &b.Sessions[i]
			dst = putStr(putInt(putLong(dst, int64(s.ID)), s.TimeoutMs), s.Remote)
			dst = putInt(putInt(putLong(dst, s.IdleMs), s.Watches), s.Ephemerals)
		}
		return putBool(dst, b.More)
	case *MembersReply:
		return putMembersReply(dst, b)
	case *StatusReply:
		dst = putInt(dst, int32(len(b.Figures)))
		for _, f := range b.Figures {
			dst = putStr(putStr(dst, f.Name), f.Value)
		}
		return dst
	}
	panic("wire: no reply has a body of type " + typeName(body))
}

// DecodeMessage decodes a reply or an event. Xid -1 marks an event and -2 the reply to a
// ping, whatever opOf says of them.
func (Jute) DecodeMessage(msg []byte, opOf func(xid int32) (Op, bool)) (*Reply, *Event, error) {
	r := juteReader{buf: msg}
	p := &Reply{Xid: r.int(), Zxid: r.long(), Err: znode.Error(r.int())}
	if r.failed() {
		return nil, nil, r.err("reply header")
	}
	switch p.Xid {
	case eventXid:
		e := &Event{Zxid: p.Zxid, Type: znode.EventType(r.int())}
		r.int() // the state, always SyncConnected
		e.Path = r.str()
		if r.failed() {
			return nil, nil, r.err("event")
		}
		return nil, e, nil
	case pingXid:
		p.Op = OpPing
		return p, nil, nil
	}
	op, ok := opOf(p.Xid)
	if !ok {
		return nil, nil, fmt.Errorf("wire: reply to xid %d, which was not asked", p.Xid)
	}
	switch p.Op = op; {
	case p.Err == znode.OK:
		p.Body = r.replyRecord(op)
	case hasDetail(op) && r.off < len(r.buf):
		p.Detail = r.str()
	}
	if r.failed() {
		return nil, nil, r.err("reply to " + op.String())
	}
	return p, nil, nil
}

// replyRecord reads the record of a reply; nil where there is only a header.
func (r *juteReader) replyRecord(op Op) any {
	switch op {
	case OpCreate:
		return &znode.Result{Kind: znode.ResultCreate, Path: r.str()}
	case OpCreate2, OpCreateContainer, OpCreateTTL:
		return &znode.Result{Kind: znode.ResultCreateStat, Path: r.str(), Stat: r.stat()}
	case OpDelete:
		return &znode.Result{Kind: znode.ResultDelete}
	case OpSetData:
		return &znode.Result{Kind: znode.ResultSetData, Stat: r.stat()}
	case OpSetACL:
		return &znode.Result{Kind: znode.ResultSetACL, Stat: r.stat()}
	case OpMulti:
		return r.multiResult()
	case OpMultiRead:
		return r.multiReadReply()
	case OpGetData, OpReconfig:
		return &DataReply{Data: r.data(), Stat: r.stat()}
	case OpExists:
		return &StatReply{Stat: r.stat()}
	case OpGetACL:
		return &ACLReply{ACL: r.acl(), Stat: r.stat()}
	case OpGetChildren:
		return &ChildrenReply{Names: r.names()}
	case OpGetChildren2:
		return &ChildrenReply{Names: r.names(), Stat: r.stat()}
	case OpSync:
		return &PathReply{Path: r.str()}
	case OpGetAllChildrenNumber:
		return &CountReply{Count: r.int()}
	case OpGetEphemerals:
		return &PathsReply{Paths: r.names()}
	case OpWhoAmI:
		return &IdentitiesReply{Identities: r.identities()}
	case OpSASL:
		return &SASLReply{Token: r.data()}
	case OpAddWatch:
		r.int()
		return &AddWatchReply{}
	}
	return r.ownReply(op)
}

func (r *juteReader) identities() []znode.Identity {
	ids := make([]znode.Identity, max(r.count(8), 0))
	for i := range ids {
		ids[i] = znode.Identity{Scheme: r.word(), ID: r.str()}
	}
	return ids
}

// ownReply reads the record of the reply to one of Tenure's own operations.
func (r *juteReader) ownReply(op Op) any {
	switch op {
	case OpRewatch:
		return &RewatchReply{Complete: r.bool()}
	case OpRenew:
		b := &RenewReply{TimeoutMs: r.int()}
		b.Held = make([]znode.Error, max(r.count(4), 0))
		for i := range b.Held {
			b.Held[i] = znode.Error(r.int())
		}
		return b
	case OpList:
		b := &ListReply{Names: r.names()}
		b.Stats = make([]znode.Stat, max(r.count(statSize), 0))
		for i := range b.Stats {
			b.Stats[i] = r.stat()
		}
		b.More, b.Stat = r.bool(), r.stat()
		b.Lifetimes = make([]znode.Lifetime, max(r.count(lifetimeSize), 0))
		for i := range b.Lifetimes {
			b.Lifetimes[i] = r.lifetime()
		}
		b.Lifetime = r.lifetime()
		return b
	case OpSessions:
		b := &SessionsReply{}
		b.Sessions = make([]SessionInfo, max(r.count(32), 0))
		for i := range b.Sessions {
			b.Sessions[i] = SessionInfo{
				ID: session.ID(r.long()), TimeoutMs: r.int(), Remote: r.str(),
				IdleMs: r.long(), Watches: r.int(), Ephemerals: r.int(),
			}
		}
		b.More = r.bool()
		return b
	case OpMembers, OpChangeMembers, OpTransferLead:
		return r.membersReply()
	case OpStatus:
		b := &StatusReply{}
		b.Figures = make([]Figure, max(r.count(8), 0))
		for i := range b.Figures {
			b.Figures[i] = Figure{Name: r.str(), Value: r.str()}
		}
		return b
	}
	return nil
}
