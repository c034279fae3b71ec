package znode

import "github.com/tenure-dev/tenure/session"

// Op is one change that a client or the server asks for: a pointer to Create,
// Delete, SetData, SetACL, Check, Multi, OpenSession, ResumeSession, CloseSession or Reap.
type Op interface{ op() }

// Create makes a znode. Mode {Persistent false} is ZooKeeper's flag 0.
type Create struct {
	Path  string
	Data  []byte // nil = null
	ACL   []ACL
	Mode  Mode
	TTLMs int64 // lifetime in milliseconds; only for Kind TTL
	// WantStat asks for the Stat in the reply (ZooKeeper's create2).
	WantStat bool
}

// Delete removes a znode that has no children.
type Delete struct {
	Path    string
	Version int32 // -1 = any
}

// SetData replaces a znode's data.
type SetData struct {
	Path    string
	Data    []byte // nil = null
	Version int32  // -1 = any
}

// SetACL replaces a znode's access list.
type SetACL struct {
	Path    string
	ACL     []ACL
	Version int32 // compared with aversion; -1 = any
}

// Check succeeds if the znode exists at the version. Only inside Multi.
type Check struct {
	Path    string
	Version int32 // -1 = any
}

// Multi applies all of Ops or none. Allowed are Create, Delete, SetData and Check.
type Multi struct{ Ops []Op }

// OpenSession starts a session of the connection that asks, Txn.Owner. The session's id
// is the zxid of this change.
type OpenSession struct {
	TimeoutMs int32
	Password  [session.PasswordSize]byte
	// Seen is the newest zxid that the client knows of. A state that is behind it is not
	// the one that the client has seen (a backup, another ensemble): DataInconsistency.
	Seen int64
}

// ResumeSession makes the connection that asks, Txn.Owner, the session's. It is no change
// of the tree and takes no zxid. Whoever has the password may; SessionExpired is the
// answer also to a wrong one.
type ResumeSession struct {
	Session  session.ID
	Password [session.PasswordSize]byte
	Seen     int64 // as in OpenSession
}

// CloseSession ends a session and deletes its ephemerals in one change.
type CloseSession struct {
	Session session.ID
	// Expired tells an expiry by the leader from a close by the client.
	Expired bool
	// Owner is, of an expiry, whose the session was when it was decided. If it is another's
	// since then, its client was heard of, and the expiry does nothing: SessionMoved.
	Owner session.Owner
}

// Reap deletes a childless container that once had a child, or a childless TTL
// znode that is older than its lifetime. Only the leader asks for it; the
// condition is judged again when it is applied.
type Reap struct{ Path string }

func (*Create) op()        {}
func (*Delete) op()        {}
func (*SetData) op()       {}
func (*SetACL) op()        {}
func (*Check) op()         {}
func (*Multi) op()         {}
func (*OpenSession) op()   {}
func (*ResumeSession) op() {}
func (*CloseSession) op()  {}
func (*Reap) op()          {}

// Stamp is what the leader decides for all transactions of one log entry.
type Stamp struct {
	// TimeMs is the leader's wall clock, milliseconds since 1970. Apply never lets
	// it go back.
	TimeMs int64
	Rules  Rules
}

// Rules are the leader's settings that an outcome depends on. They ride in the
// entry, so that all members decide alike.
type Rules struct {
	// NoTTL refuses TTL znodes (ZooKeeper's extendedTypesEnabled=false).
	NoTTL bool
	// EnforceQuota turns hard quotas into QuotaExceeded.
	EnforceQuota bool
	// Full refuses every change that lets the state grow (QuotaExceeded), because
	// the leader's disk or the configured size is exhausted.
	Full bool
}

// Txn is one transaction as it rides in the log: an Op with who asks for it.
type Txn struct {
	// Session is the session that asks, 0 for the server itself (which no ACL binds).
	Session session.ID
	// Owner is the connection that asks. A transaction of a session whose owner is another
	// one by now is refused with SessionMoved, before anything else is looked at.
	Owner session.Owner
	// Seq numbers the writes of a native session 1, 2, 3, ... so that a resent one
	// is applied once; 0 for a write that is never resent (ZooKeeper's door).
	Seq int64
	// Acked says that the client has the results of all writes up to this Seq.
	Acked int64
	// Auth are the identities of the connection that asked. "auth" entries of an
	// ACL expand to them.
	Auth []Identity
	Op   Op
}

// ResultKind tells what a Result answers, and so which of its fields are set.
type ResultKind uint8

const (
	ResultNone       ResultKind = iota // an error, or an operation without a result
	ResultCreate                       // Path
	ResultCreateStat                   // Path and Stat
	ResultDelete
	ResultSetData // Stat
	ResultSetACL  // Stat
	ResultCheck
	ResultMulti   // Sub
	ResultSession // Session
)

// Result is the outcome of one transaction.
type Result struct {
	Kind ResultKind
	// Err is OK or why nothing was changed. A failed Multi has the error of the
	// operation that failed, and Sub says per operation: OK before it, its error,
	// RuntimeInconsistency behind it.
	Err Error
	// Zxid is the change's own zxid; for a failure the last zxid before it.
	Zxid    int64
	Path    string
	Stat    Stat
	Session session.Session
	Sub     []Result
}

// EventType is what happened to a znode, with ZooKeeper's codes.
type EventType int32

const (
	EventCreated         EventType = 1
	EventDeleted         EventType = 2
	EventDataChanged     EventType = 3
	EventChildrenChanged EventType = 4
)

// Change is one znode created, deleted or given new data: what watches are
// matched against. ChildrenChanged is not a Change of its own: it follows from
// Created and Deleted.
type Change struct {
	Type EventType // EventCreated, EventDeleted or EventDataChanged
	Path string
	// ACL is the znode's access list (before the removal for EventDeleted) and
	// ParentACL its parent's (nil for EventDataChanged): who may not read is not told.
	ACL, ParentACL []ACL
}

// Delta is what a transaction changes. Apply returns one effect per key at most, in
// the order of the first change of each; Changes are in the order of the
// operations. A failed transaction has an empty Delta.
type Delta struct {
	Zxid     int64 // 0 if nothing changed, or only the owner of a session
	TimeMs   int64
	Nodes    []NodeEffect
	Children []ChildrenEffect
	Sessions []SessionEffect
	Changes  []Change
	// Excesses are for the log of whoever runs the server, and change nothing.
	Excesses []Excess
}

// NodeEffect stores Node at Path, or removes what is there if Node is nil. Prev is
// what was there before the transaction (nil if nothing). Both are nil for a znode
// that a Multi created and deleted.
type NodeEffect struct {
	Path       string
	Node, Prev *Node
}

// ChildrenEffect stores the counters of Path, or removes them if Gone.
type ChildrenEffect struct {
	Path     string
	Children Children
	Gone     bool
}

// SessionEffect stores a session, new or resumed, or removes it if Session is nil.
type SessionEffect struct {
	ID      session.ID
	Session *session.Session
}

// View is the state that Apply reads. Its methods return no errors: a View over a
// disk keeps its first error, and its owner discards the transaction.
type View interface {
	// Node returns the znode at path, nil if there is none. path need not be valid.
	Node(path string) *Node
	// Children returns the counters of path, zero if it never had a child.
	Children(path string) Children
	// Session returns the open session id, nil if there is none.
	Session(id session.ID) *session.Session
	// Ephemerals calls yield with the paths of id's ephemerals in ascending order.
	Ephemerals(id session.ID, yield func(path string) bool)
	// Subtree returns how many znodes and bytes of data there are at and below path.
	Subtree(path string) (count, bytes int64)
	// LastZxid returns the zxid of the newest change.
	LastZxid() int64
	// LastTimeMs returns the largest time stamped so far.
	LastTimeMs() int64
}
