// Package wire turns bytes into requests, replies and events and back. There is one
// model and two encodings of it: jute, ZooKeeper's binary form, and JSON. The
// package knows no sockets and no frames: it is given one whole message.
package wire

import (
	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// Op is an operation code. Codes below 1000 are ZooKeeper's, from 1000 up Tenure's own.
type Op int32

const (
	OpCreate               Op = 1
	OpDelete               Op = 2
	OpExists               Op = 3
	OpGetData              Op = 4
	OpSetData              Op = 5
	OpGetACL               Op = 6
	OpSetACL               Op = 7
	OpGetChildren          Op = 8
	OpSync                 Op = 9
	OpPing                 Op = 11
	OpGetChildren2         Op = 12
	OpCheck                Op = 13
	OpMulti                Op = 14
	OpCreate2              Op = 15
	OpReconfig             Op = 16
	OpCheckWatches         Op = 17
	OpRemoveWatches        Op = 18
	OpCreateContainer      Op = 19
	OpDeleteContainer      Op = 20
	OpCreateTTL            Op = 21
	OpMultiRead            Op = 22
	OpAuth                 Op = 100
	OpSetWatches           Op = 101
	OpSASL                 Op = 102
	OpGetEphemerals        Op = 103
	OpGetAllChildrenNumber Op = 104
	OpSetWatches2          Op = 105
	OpAddWatch             Op = 106
	OpWhoAmI               Op = 107
	OpCloseSession         Op = -11
	opError                Op = -1 // only inside results of multi

	// OpWith wraps another request with what ZooKeeper's header has no room for:
	// int flags, long seq, long acked, int op, then the record of op. The reply is
	// that of op. Only the encoding shows it: a decoded Request has Op of the
	// inner one and the fields Stale, Seq and Acked.
	OpWith Op = 1000
	// OpRewatch sets watches and first delivers what they missed since a zxid.
	OpRewatch Op = 1001
	// OpRenew proves that the session lives and that znodes still exist.
	OpRenew Op = 1002
	// OpList is a page of children with their Stats and Lifetimes.
	OpList Op = 1003
	// OpSessions lists open sessions, OpStatus describes the member.
	OpSessions Op = 1004
	OpStatus   Op = 1005
	// OpKillSession ends another session; super only.
	OpKillSession Op = 1006
	// OpMembers lists the members of the ensemble, OpChangeMembers changes them and
	// OpTransferLead makes another one the leader; super only.
	OpMembers       Op = 1007
	OpChangeMembers Op = 1008
	OpTransferLead  Op = 1009
)

// ConnectRequest is the first message of a connection.
type ConnectRequest struct {
	LastZxid  int64 // highest zxid the client ever saw
	TimeoutMs int32
	Session   session.ID // 0 = open a new one
	Password  []byte
	// ReadOnly is nil where the client did not send the field; the reply then must
	// not carry it either.
	ReadOnly *bool
}

// ConnectReply answers it. A refused resume has TimeoutMs 0, Session 0 and a zero
// Password.
type ConnectReply struct {
	TimeoutMs int32
	Session   session.ID
	Password  [session.PasswordSize]byte
	ReadOnly  *bool
}

// Request is one decoded request. It may be used by one goroutine at a time.
type Request struct {
	// Xid is the client's number of the request, echoed in the reply. Jute answers
	// OpPing with xid -2 whatever it was, and -1 marks an event.
	Xid int32
	// Op is OpOf(Body) for a write that is to be encoded.
	Op Op
	// Seq and Acked make a write exactly-once (znode.Txn); 0 without OpWith.
	Seq, Acked int64
	// Stale allows a read to be answered from this member's state as it is.
	Stale bool
	// Body is the record, always as a pointer: a znode.Op for a write (Create, Delete,
	// SetData, SetACL, Multi), else one of this package's request records (*PathWatch,
	// *PathOnly, ...); nil for OpPing, OpCloseSession, OpWhoAmI, OpStatus,
	// OpMembers.
	Body any
	// Err is set instead of Body where the record decoded but is not allowed
	// (create flags: BadArguments) or did not decode (MarshallingError). The reply
	// is just that error; the connection stays. Unimplemented is an operation that
	// clients may not send: the reply has zxid -1 and the connection is then closed.
	Err znode.Error
	// Detail says in words what is wrong with the record where Err is set. It may
	// quote what the client sent, but never Data or a password.
	Detail string
}

// PathWatch is the record of OpExists, OpGetData, OpGetChildren and OpGetChildren2.
type PathWatch struct {
	Path  string
	Watch bool
}

// PathOnly is the record of OpGetACL, OpSync, OpGetEphemerals (a prefix) and
// OpGetAllChildrenNumber.
type PathOnly struct{ Path string }

// MultiRead is the record of OpMultiRead: reads judged one by one.
type MultiRead struct{ Ops []ReadOp }

// ReadOp is one read of MultiRead: OpGetData or OpGetChildren.
type ReadOp struct {
	Op   Op
	Path string
}

// Auth is the record of OpAuth. Data is secret: never log it.
type Auth struct {
	Scheme string
	Data   []byte
}

// SASL is the record of OpSASL.
type SASL struct{ Token []byte }

// SetWatches is the record of OpSetWatches, OpSetWatches2 and OpRewatch. RelZxid is
// the last zxid whose events the client has.
type SetWatches struct {
	RelZxid                                   int64
	Data, Exist, Child, Persistent, Recursive []string
}

// AddWatch is the record of OpAddWatch: mode 0 persistent, 1 persistent recursive.
type AddWatch struct {
	Path string
	Mode int32
}

// WatcherType selects the watches of CheckWatches and RemoveWatches.
type WatcherType int32

const (
	WatcherChildren   WatcherType = 1
	WatcherData       WatcherType = 2
	WatcherAny        WatcherType = 3
	WatcherPersistent WatcherType = 4
	WatcherRecursive  WatcherType = 5
)

// RemoveWatches is the record of OpCheckWatches and OpRemoveWatches.
type RemoveWatches struct {
	Path string
	Type WatcherType
}

// Reconfig is the record of OpReconfig.
type Reconfig struct {
	Joining, Leaving, NewMembers string
	ConfigID                     int64
}

// Held names one znode a tenure rests on: it must exist with this czxid.
type Held struct {
	Path  string
	Czxid int64
}

// Renew is the record of OpRenew.
type Renew struct{ Held []Held }

// List is the record of OpList: up to Limit children of Path whose names come
// after After, in ascending order.
type List struct {
	Path  string
	After string
	Limit int32 // 0 = as many as fit
	Stats bool  // with the Stat and the Lifetime of each child
}

// Sessions is the record of OpSessions.
type Sessions struct {
	After session.ID
	Limit int32
}

// KillSession is the record of OpKillSession.
type KillSession struct{ Session session.ID }

// Reply is the answer to one Request.
type Reply struct {
	Xid  int32
	Op   Op
	Zxid int64
	Err  znode.Error
	// Body is nil for an error and for replies that are only a header, else
	// *znode.Result for a write (also a failed Multi, whose Err is OK in the header)
	// or a pointer to one of this package's reply records (*DataReply, ...).
	Body any
	// Detail says the error in words. JSON carries it; jute has room for it only in the
	// replies to OpChangeMembers and OpTransferLead.
	Detail string
}

// DataReply answers OpGetData.
type DataReply struct {
	Data []byte
	Stat znode.Stat
}

// StatReply answers OpExists.
type StatReply struct{ Stat znode.Stat }

// ACLReply answers OpGetACL.
type ACLReply struct {
	ACL  []znode.ACL
	Stat znode.Stat
}

// ChildrenReply answers OpGetChildren (names only) and OpGetChildren2.
type ChildrenReply struct {
	Names []string
	Stat  znode.Stat
}

// PathReply answers OpSync.
type PathReply struct{ Path string }

// CountReply answers OpGetAllChildrenNumber.
type CountReply struct{ Count int32 }

// PathsReply answers OpGetEphemerals.
type PathsReply struct{ Paths []string }

// IdentitiesReply answers OpWhoAmI.
type IdentitiesReply struct{ Identities []znode.Identity }

// SASLReply answers OpSASL.
type SASLReply struct{ Token []byte }

// AddWatchReply answers OpAddWatch. Its body is a 4-byte 0, which Java needs.
type AddWatchReply struct{}

// MultiReadReply answers OpMultiRead: one DataReply, ChildrenReply or error per read.
type MultiReadReply struct{ Results []ReadResult }

// ReadResult is one read of MultiReadReply.
type ReadResult struct {
	Op       Op
	Err      znode.Error
	Data     DataReply     // OpGetData
	Children ChildrenReply // OpGetChildren
}

// RewatchReply answers OpRewatch. Complete is false where the history no longer
// reaches back to RelZxid: persistent watches then got an EventGap each.
type RewatchReply struct{ Complete bool }

// RenewReply answers OpRenew: the granted timeout, and per Held OK or NoNode.
type RenewReply struct {
	TimeoutMs int32
	Held      []znode.Error
}

// ListReply answers OpList.
type ListReply struct {
	Names []string
	Stats []znode.Stat // empty or one per name
	More  bool
	Stat  znode.Stat // of the parent
	// Lifetimes is as long as Stats. It is a list of its own because Stat is ZooKeeper's.
	Lifetimes []znode.Lifetime
	Lifetime  znode.Lifetime // of the parent
}

// SessionInfo describes one open session. It never has the password.
type SessionInfo struct {
	ID         session.ID
	TimeoutMs  int32
	Remote     string // "" while not connected to this member
	IdleMs     int64  // since it was last heard of, -1 where unknown
	Watches    int32
	Ephemerals int32
}

// SessionsReply answers OpSessions.
type SessionsReply struct {
	Sessions []SessionInfo
	More     bool
}

// StatusReply answers OpStatus. Figures are name and value pairs in a fixed order,
// so that a newer server can say more without a new encoding.
type StatusReply struct {
	Figures []Figure
}

// Figure is one named value of StatusReply.
type Figure struct{ Name, Value string }

// EventGap tells the owner of a persistent watch that events are missing: the
// history no longer reaches back. It is Tenure's own; ZooKeeper's door never sends it.
const EventGap znode.EventType = 1000

// Event is one notification. ZooKeeper's state field is always 3 (SyncConnected).
type Event struct {
	Type znode.EventType
	Path string
	Zxid int64 // of the change; -1 for the events of SetWatches
}

// ServerCodec is a server's side of one encoding. Implementations have no state and
// may be used by any number of goroutines. The Append methods append one message to
// dst and cannot fail. Decoded values do not alias msg.
type ServerCodec interface {
	DecodeConnect(msg []byte) (ConnectRequest, error)
	// DecodeRequest fails only if not even xid and op can be read, which costs the
	// connection; a bad record is Request.Err.
	DecodeRequest(msg []byte) (Request, error)
	AppendConnectReply(dst []byte, r *ConnectReply) []byte
	AppendReply(dst []byte, r *Reply) []byte
	AppendEvent(dst []byte, e *Event) []byte
}

// ClientCodec is a client's side of one encoding.
type ClientCodec interface {
	AppendConnect(dst []byte, r *ConnectRequest) []byte
	AppendRequest(dst []byte, r *Request) []byte
	DecodeConnectReply(msg []byte) (ConnectReply, error)
	// DecodeMessage decodes a reply or an event. opOf names the operation of the
	// request with that xid, false if there is none (an error).
	DecodeMessage(msg []byte, opOf func(xid int32) (Op, bool)) (*Reply, *Event, error)
}
