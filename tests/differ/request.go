package differ

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// home stands in paths for the znode below which a play happens, so that one pair of
// servers serves any number of plays.
const home = "~"

// Request is one request as a client could send it, also one that no client library would.
// It has its own encoder, because package wire's cannot write what is malformed. A Request
// is not changed after it was made.
type Request struct {
	Op   wire.Op
	Xid  int32 // 0 = the next of the connection
	Path string
	// NullPath sends null instead of Path.
	NullPath bool
	Data     []byte // nil = null
	ACL      []znode.ACL
	Flags    int32 // of the creates
	TTL      int64 // createTTL
	Version  int32
	Watch    bool
	Mode     int32  // of addWatch, or the type of watcher for checkWatches and removeWatches
	Scheme   string // auth
	// Since and Watches are of setWatches: data, exist, child, persistent, recursive. A
	// nil list is sent as null.
	Since   Moment
	Watches [5][]string
	Sub     []Request // of multi and multiRead
	// Cut takes so many bytes off the end of the record.
	Cut int
}

// Moment names a zxid that each of the servers has its own value for.
type Moment int

// Larger Moments are the zxid in the reply that came Moment-MomentReply replies ago.
const (
	MomentZero   Moment = iota // 0
	MomentLast                 // the last that the session saw
	MomentFuture               // one that is not reached
	MomentReply
)

func (m Moment) String() string {
	switch m {
	case MomentZero:
		return "0"
	case MomentLast:
		return "last"
	case MomentFuture:
		return "future"
	}
	return fmt.Sprintf("reply-%d", m-MomentReply)
}

// outside reports whether a request is about a znode that all plays share.
func (q *Request) outside() bool { return q != nil && isOutside(q.Path) }

// isOutside takes "" for the root, as ZooKeeper does when it reads.
func isOutside(path string) bool {
	return path == "" || path[0] == '/' && !strings.Contains(path, home)
}

func putInt(dst []byte, v int32) []byte  { return binary.BigEndian.AppendUint32(dst, uint32(v)) }
func putLong(dst []byte, v int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(v)) }
func putStr(dst []byte, s string) []byte { return append(putInt(dst, int32(len(s))), s...) }

func putBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func putData(dst, data []byte) []byte {
	if data == nil {
		return putInt(dst, -1)
	}
	return append(putInt(dst, int32(len(data))), data...)
}

func putACL(dst []byte, acl []znode.ACL) []byte {
	if acl == nil {
		return putInt(dst, -1)
	}
	dst = putInt(dst, int32(len(acl)))
	for _, e := range acl {
		dst = putStr(putStr(putInt(dst, e.Perms), e.Scheme), e.ID)
	}
	return dst
}

// encoder writes requests for one play: it knows the play's root and its zxids.
type encoder struct {
	root   string
	zxidOf func(Moment) int64
}

func (e *encoder) expand(path string) string { return strings.ReplaceAll(path, home, e.root) }

// request appends the whole frame of q.
func (e *encoder) request(dst []byte, xid int32, q *Request) []byte {
	at := len(dst)
	dst = putInt(putInt(append(dst, 0, 0, 0, 0), xid), int32(q.Op))
	dst = e.record(dst, q)
	if q.Cut > 0 {
		dst = dst[:max(len(dst)-q.Cut, at+12)]
	}
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

func (e *encoder) path(dst []byte, q *Request) []byte {
	if q.NullPath {
		return putInt(dst, -1)
	}
	return putStr(dst, e.expand(q.Path))
}

func (e *encoder) record(dst []byte, q *Request) []byte {
	switch q.Op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		dst = putInt(putACL(putData(e.path(dst, q), q.Data), q.ACL), q.Flags)
		if q.Op == wire.OpCreateTTL {
			dst = putLong(dst, q.TTL)
		}
	case wire.OpDelete, wire.OpCheck:
		dst = putInt(e.path(dst, q), q.Version)
	case wire.OpSetData:
		dst = putInt(putData(e.path(dst, q), q.Data), q.Version)
	case wire.OpSetACL:
		dst = putInt(putACL(e.path(dst, q), q.ACL), q.Version)
	case wire.OpExists, wire.OpGetData, wire.OpGetChildren, wire.OpGetChildren2:
		dst = putBool(e.path(dst, q), q.Watch)
	case wire.OpGetACL, wire.OpSync, wire.OpGetAllChildrenNumber, wire.OpGetEphemerals:
		dst = e.path(dst, q)
	case wire.OpAddWatch, wire.OpCheckWatches, wire.OpRemoveWatches:
		dst = putInt(e.path(dst, q), q.Mode)
	case wire.OpMulti, wire.OpMultiRead:
		for i := range q.Sub {
			s := &q.Sub[i]
			dst = putInt(putBool(putInt(dst, int32(s.Op)), false), -1)
			dst = e.record(dst, s)
		}
		dst = putInt(putBool(putInt(dst, -1), true), -1)
	case wire.OpAuth:
		dst = putData(putStr(putInt(dst, 0), q.Scheme), q.Data)
	case wire.OpSASL:
		dst = putData(dst, q.Data)
	case wire.OpReconfig:
		dst = putLong(putInt(putInt(putInt(dst, -1), -1), -1), -1)
	case wire.OpSetWatches:
		dst = e.watches(dst, q, 3)
	case wire.OpSetWatches2:
		dst = e.watches(dst, q, 5)
	}
	return dst
}

func (e *encoder) watches(dst []byte, q *Request, lists int) []byte {
	dst = putLong(dst, e.zxidOf(q.Since))
	for _, list := range q.Watches[:lists] {
		if list == nil {
			dst = putInt(dst, -1)
			continue
		}
		dst = putInt(dst, int32(len(list)))
		for _, path := range list {
			dst = putStr(dst, e.expand(path))
		}
	}
	return dst
}
