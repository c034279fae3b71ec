// Package session says what a session is and, without a clock of its own, which
// sessions have expired.
//
// A session is a client's claim to its ephemeral znodes. Opening and closing one
// are entries of the replicated log; heartbeats are not. The package knows no
// znodes, no sockets and no time: every time is an integer that the caller read.
package session

import "strconv"

// ID names a session. It is the zxid of the transaction that opened the session,
// so it is never reused; 0 means no session.
type ID int64

// String formats id the way ZooKeeper's tools do, as 0x and hexadecimal digits.
func (id ID) String() string { return "0x" + strconv.FormatUint(uint64(id), 16) }

// PasswordSize is the length in bytes of every session password. ZooKeeper's C
// client reads exactly 16.
const PasswordSize = 16

// Owner names the connection that a session is on: only that one may speak for it. The
// zero Owner is nobody.
type Owner struct {
	// Origin is the number that the process drew at its start which has the connection.
	Origin uint64
	// Bind is the connection's number in that process, from 1.
	Bind uint64
}

// Session is the replicated part of a session: what survives a restart. It is
// immutable once opened, except that a resume gives it another owner.
type Session struct {
	ID ID
	// TimeoutMs is the negotiated timeout in milliseconds.
	TimeoutMs int32
	// Password must be presented to resume the session. It is random, so it
	// cannot be derived from the id.
	Password [PasswordSize]byte
	// Owner is the connection that opened or last resumed the session. It is nobody for
	// a session from a log that has no owners: then anybody may speak for it.
	Owner Owner
}

// OwnedBy reports whether connection o may speak for the session.
func (s *Session) OwnedBy(o Owner) bool { return s.Owner == o || s.Owner == Owner{} }

// Negotiate clamps the timeout that a client asks for, in milliseconds, into
// [minMs, maxMs], as ZooKeeper does: whatever is below (also zero and negative)
// becomes minMs, whatever is above becomes maxMs.
func Negotiate(askedMs, minMs, maxMs int32) int32 {
	return max(minMs, min(askedMs, maxMs))
}
