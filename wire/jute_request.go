package wire

import (
	"fmt"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// DecodeRequest decodes one request. Bytes behind its record are ignored.
func (Jute) DecodeRequest(msg []byte) (Request, error) {
	r := juteReader{buf: msg}
	q := Request{Xid: r.int(), Op: Op(r.int())}
	if r.failed() {
		return Request{}, r.err("request header")
	}
	if q.Op == OpWith {
		q.decodeWith(&r)
	}
	if !r.failed() {
		q.decodeRecord(&r)
	}
	if r.failed() {
		q.Body, q.Err, q.Detail = nil, znode.MarshallingError, r.detail()
	}
	return q, nil
}

func (q *Request) decodeWith(r *juteReader) {
	flags := r.int()
	q.Seq, q.Acked = r.long(), r.long()
	op := Op(r.int())
	switch {
	case r.failed():
		return
	case flags&^withStale != 0:
		r.fail("unknown bits in flags", int64(flags))
	case q.Seq < 0:
		r.fail("seq is negative", q.Seq)
	case q.Acked < 0:
		r.fail("acked is negative", q.Acked)
	case op == OpWith:
		r.fail("with inside with", int64(op))
	}
	q.Stale, q.Op = flags&withStale != 0, op
}

// refuse sets an error for a record that decoded.
func (q *Request) refuse(e znode.Error, detail string) {
	q.Body, q.Err, q.Detail = nil, e, detail
}

func (q *Request) decodeRecord(r *juteReader) {
	switch q.Op {
	case OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL:
		c, flags, ok := r.create(q.Op)
		if !ok {
			q.refuse(znode.BadArguments, fmt.Sprintf("%v does not take flags %d", q.Op, flags))
			return
		}
		q.Body = c
	case OpDelete:
		q.Body = &znode.Delete{Path: r.path(), Version: r.int()}
	case OpSetData:
		q.Body = &znode.SetData{Path: r.path(), Data: r.data(), Version: r.int()}
	case OpSetACL:
		q.Body = &znode.SetACL{Path: r.path(), ACL: r.acl(), Version: r.int()}
	case OpMulti:
		q.Body = r.multi()
	case OpMultiRead:
		q.Body = r.multiRead()
	case OpExists, OpGetData, OpGetChildren, OpGetChildren2:
		q.Body = &PathWatch{Path: r.path(), Watch: r.bool()}
	case OpGetACL, OpSync, OpGetAllChildrenNumber:
		q.Body = &PathOnly{Path: r.path()}
	case OpGetEphemerals: // a null prefix is no prefix
		q.Body = &PathOnly{Path: r.str()}
	case OpPing, OpCloseSession, OpWhoAmI, OpStatus, OpMembers:
	default:
		q.decodeRare(r)
	}
}

// decodeRare continues decodeRecord with what a connection sends once in a while.
func (q *Request) decodeRare(r *juteReader) {
	switch q.Op {
	case OpAuth:
		r.int() // "type", always 0
		q.Body = &Auth{Scheme: r.word(), Data: r.data()}
	case OpSASL:
		q.Body = &SASL{Token: r.data()}
	case OpSetWatches:
		q.Body = &SetWatches{RelZxid: r.long(), Data: r.paths(), Exist: r.paths(), Child: r.paths()}
	case OpSetWatches2, OpRewatch:
		q.Body = &SetWatches{
			RelZxid: r.long(), Data: r.paths(), Exist: r.paths(), Child: r.paths(),
			Persistent: r.paths(), Recursive: r.paths(),
		}
	case OpAddWatch:
		a := &AddWatch{Path: r.path(), Mode: r.int()}
		if a.Mode != 0 && a.Mode != 1 {
			r.fail("unknown mode of watch", int64(a.Mode))
		}
		q.Body = a
	case OpCheckWatches, OpRemoveWatches:
		w := &RemoveWatches{Path: r.path(), Type: WatcherType(r.int())}
		if w.Type < WatcherChildren || w.Type > WatcherRecursive {
			r.fail("unknown type of watcher", int64(w.Type))
		}
		q.Body = w
	case OpReconfig:
		q.Body = &Reconfig{Joining: r.str(), Leaving: r.str(), NewMembers: r.str(), ConfigID: r.long()}
	case OpRenew:
		q.Body = r.renew()
	case OpList:
		q.Body = &List{Path: r.path(), After: r.str(), Limit: r.int(), Stats: r.bool()}
	case OpSessions:
		q.Body = &Sessions{After: session.ID(r.long()), Limit: r.int()}
	case OpKillSession:
		q.Body = &KillSession{Session: session.ID(r.long())}
	case OpChangeMembers:
		q.Body = r.changeMembers()
	case OpTransferLead:
		q.Body = &TransferLead{ID: r.int()}
	default: // also OpCheck outside a multi and the server's own OpDeleteContainer
		q.refuse(znode.Unimplemented, fmt.Sprintf("%v is not an operation for clients", q.Op))
	}
}

func (r *juteReader) renew() *Renew {
	n := max(r.count(12), 0)
	v := &Renew{Held: make([]Held, n)}
	for i := range v.Held {
		v.Held[i] = Held{Path: r.path(), Czxid: r.long()}
	}
	return v
}

// create reads the record of one of the four creates; not ok if op does not take flags.
func (r *juteReader) create(op Op) (c *znode.Create, flags int32, ok bool) {
	c = &znode.Create{Path: r.path(), Data: r.data(), ACL: r.acl(), WantStat: op != OpCreate}
	flags = r.int()
	if op == OpCreateTTL {
		c.TTLMs = r.long()
	}
	c.Mode, ok = createMode(op, flags)
	return c, flags, ok
}

// createMode says what flags mean for op. They are ZooKeeper's CreateMode, with its
// quirks: only OpCreateContainer makes containers, and of every kind of flags. A TTL mode
// of an operation that carries no lifetime keeps lifetime 0, which the state machine
// refuses, because whether that is BadArguments or Unimplemented depends on its Rules.
func createMode(op Op, flags int32) (m znode.Mode, ok bool) {
	if flags < 0 || flags > 6 || op == OpCreateTTL && flags < 5 {
		return m, false
	}
	m.Sequential = flags == 2 || flags == 3 || flags == 6
	switch {
	case flags >= 5:
		m.Kind = znode.TTL
	case op == OpCreateContainer:
		m.Kind = znode.Container
	case flags == 1 || flags == 3:
		m.Kind = znode.Ephemeral
	}
	return m, true
}

// createFlags is the inverse of createMode for the operation that OpOf names.
func createFlags(m znode.Mode) int32 {
	switch {
	case m.Kind == znode.TTL && m.Sequential:
		return 6
	case m.Kind == znode.TTL:
		return 5
	case m.Kind == znode.Ephemeral && m.Sequential:
		return 3
	case m.Sequential:
		return 2
	case m.Kind == znode.Container:
		return 4
	case m.Kind == znode.Ephemeral:
		return 1
	}
	return 0
}

// AppendRequest appends one request, inside OpWith if it needs one. The type of Body
// must be that of Op.
func (Jute) AppendRequest(dst []byte, q *Request) []byte {
	dst = putInt(dst, q.Xid)
	if q.Stale || q.Seq != 0 || q.Acked != 0 {
		flags := int32(0)
		if q.Stale {
			flags = withStale
		}
		dst = putInt(putInt(dst, int32(OpWith)), flags)
		dst = putLong(putLong(dst, q.Seq), q.Acked)
	}
	dst = putInt(dst, int32(q.Op))
	switch b := q.Body.(type) {
	case nil:
		return dst
	case *znode.Multi:
		return putMulti(dst, b)
	case znode.Op:
		return putWrite(dst, q.Op, b)
	case *PathWatch:
		return putBool(putStr(dst, b.Path), b.Watch)
	case *PathOnly:
		return putStr(dst, b.Path)
	case *MultiRead:
		return putMultiRead(dst, b)
	}
	return putRare(dst, q)
}

func putRare(dst []byte, q *Request) []byte {
	switch b := q.Body.(type) {
	case *Auth:
		return putData(putStr(putInt(dst, 0), b.Scheme), b.Data)
	case *SASL:
		return putData(dst, b.Token)
	case *SetWatches:
		dst = putStrs(putStrs(putStrs(putLong(dst, b.RelZxid), b.Data), b.Exist), b.Child)
		if q.Op == OpSetWatches {
			return dst
		}
		return putStrs(putStrs(dst, b.Persistent), b.Recursive)
	case *AddWatch:
		return putInt(putStr(dst, b.Path), b.Mode)
	case *RemoveWatches:
		return putInt(putStr(dst, b.Path), int32(b.Type))
	case *Reconfig:
		dst = putStr(putStr(putStr(dst, b.Joining), b.Leaving), b.NewMembers)
		return putLong(dst, b.ConfigID)
	case *Renew:
		dst = putInt(dst, int32(len(b.Held)))
		for _, h := range b.Held {
			dst = putLong(putStr(dst, h.Path), h.Czxid)
		}
		return dst
	case *List:
		return putBool(putInt(putStr(putStr(dst, b.Path), b.After), b.Limit), b.Stats)
	case *Sessions:
		return putInt(putLong(dst, int64(b.After)), b.Limit)
	case *KillSession:
		return putLong(dst, int64(b.Session))
	case *ChangeMembers:
		return putChangeMembers(dst, b)
	case *TransferLead:
		return putInt(dst, b.ID)
	}
	panic("wire: no request has a body of type " + typeName(q.Body))
}

// putWrite appends the record of one write.
func putWrite(dst []byte, op Op, w znode.Op) []byte {
	switch w := w.(type) {
	case *znode.Create:
		dst = putACL(putData(putStr(dst, w.Path), w.Data), w.ACL)
		dst = putInt(dst, createFlags(w.Mode))
		if op == OpCreateTTL {
			dst = putLong(dst, w.TTLMs)
		}
		return dst
	case *znode.Delete:
		return putInt(putStr(dst, w.Path), w.Version)
	case *znode.SetData:
		return putInt(putData(putStr(dst, w.Path), w.Data), w.Version)
	case *znode.SetACL:
		return putInt(putACL(putStr(dst, w.Path), w.ACL), w.Version)
	case *znode.Check:
		return putInt(putStr(dst, w.Path), w.Version)
	}
	panic("wire: no request has a body of type " + typeName(w))
}
