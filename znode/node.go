package znode

import "github.com/tenure-dev/tenure/session"

// Stat is what clients see of a znode besides its data: ZooKeeper's Stat record.
type Stat struct {
	Czxid          int64      // zxid of the creation
	Mzxid          int64      // zxid of the last change of the data
	Ctime          int64      // creation, milliseconds since 1970 by the leader's clock
	Mtime          int64      // last change of the data, likewise
	Version        int32      // changes of the data
	Cversion       int32      // creations plus deletions of children
	Aversion       int32      // changes of the ACL
	EphemeralOwner session.ID // 0 unless ephemeral; also 0 for container and TTL znodes
	DataLength     int32      // bytes
	NumChildren    int32
	Pzxid          int64 // zxid of the last creation or deletion of a child
}

// Kind says what ends a znode's life besides a delete.
type Kind uint8

const (
	Persistent Kind = iota // nothing
	Ephemeral              // the end of the session that owns it
	Container              // the loss of its last child
	TTL                    // no children and no change of the data for TTLMs
)

// Lifetime is what is known of a znode's end: its Kind and, for Kind TTL, for how many
// milliseconds. ZooKeeper's Stat has no place for it.
type Lifetime struct {
	Kind  Kind
	TTLMs int64 // as Node.TTLMs
}

// TTLMaxMs is the longest lifetime of a TTL znode in milliseconds: ZooKeeper has 40
// bits for it, which is 34 years.
const TTLMaxMs = 1<<40 - 1

// SequenceMax is the last number that a sequential create appends: what its clients
// parse is ten digits of a 32-bit number.
const SequenceMax = 1<<31 - 1

// Mode is what a create asks for.
type Mode struct {
	Kind Kind
	// Sequential appends the parent's ten-digit counter to the name.
	Sequential bool
}

// Node is one znode without the counters of its children. A published Node is
// immutable and may be read by any number of goroutines; Apply makes a new one for
// each change.
type Node struct {
	Czxid, Mzxid      int64
	Ctime, Mtime      int64
	Version, Aversion int32
	Kind              Kind
	Owner             session.ID // Invariant: non-zero exactly if Kind is Ephemeral
	TTLMs             int64      // Invariant: in [1, TTLMaxMs] exactly if Kind is TTL
	ACL               []ACL
	// Data is nil for null, which clients can tell from empty.
	Data []byte
}

// Lifetime returns the node's kind and lifetime.
func (n *Node) Lifetime() Lifetime { return Lifetime{Kind: n.Kind, TTLMs: n.TTLMs} }

// Children are the counters that a parent keeps of its children. They are apart
// from Node so that creating a child under a znode with a megabyte of data costs
// bytes.
type Children struct {
	// Created counts the creations of children ever; it is the next sequence number.
	Created int64
	// Live counts the children that exist.
	Live int64
	// Pzxid is the zxid of the last creation or deletion of a child, 0 before the
	// first (Stat then shows the node's Czxid).
	Pzxid int64
}

// StatOf combines what is stored into what clients see. On the wire cversion is
// 2*Created - Live, that is creations plus deletions (ZooKeeper's DataNode.copyStat).
func StatOf(n *Node, c Children) Stat {
	s := Stat{
		Czxid: n.Czxid, Mzxid: n.Mzxid, Ctime: n.Ctime, Mtime: n.Mtime,
		Version: n.Version, Cversion: int32(2*c.Created - c.Live), Aversion: n.Aversion,
		EphemeralOwner: n.Owner, DataLength: int32(len(n.Data)), NumChildren: int32(c.Live),
		Pzxid: c.Pzxid,
	}
	if s.Pzxid == 0 {
		s.Pzxid = n.Czxid
	}
	return s
}
