package differ

import (
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Action is what a Step does.
type Action uint8

const (
	Send   Action = iota // the requests, all in one write
	Drop                 // the connection is closed by the client; the session stays
	Resume               // the session is resumed on another connection
	Close                // closeSession, with the requests behind it in the same write
	Expire               // another session is opened, sends the requests and expires
)

// Credential is what a Resume proves the session with.
type Credential uint8

const (
	RightPassword Credential = iota
	WrongPassword
	NullPassword
	UnknownSession // an id that no server gave, with some password
)

// Step is one step of a play. A step that needs a connection gets one: its session is
// resumed, or opened if it has none, so that any part of a sequence can be played.
type Step struct {
	Session    int
	Action     Action
	Requests   []Request  // Send, Close and Expire
	Credential Credential // Resume
	Seen       Moment     // Resume: the last zxid that the client claims to have seen
	TimeoutMs  int32      // Resume
	Old        bool       // Resume: a handshake without the read-only flag
}

// String is the step on one line.
func (s Step) String() string {
	who := fmt.Sprintf("s%d ", s.Session)
	var requests []string
	for i := range s.Requests {
		requests = append(requests, s.Requests[i].String())
	}
	all := strings.Join(requests, " | ")
	switch s.Action {
	case Drop:
		return who + "drops its connection"
	case Expire:
		return who + "closes; its next session expires: " + all
	case Close:
		return who + "closes | " + all
	case Resume:
		with := [...]string{"right password", "wrong password", "null password", "unknown session"}[s.Credential]
		return who + fmt.Sprintf("resumes: %s, last zxid %v, timeout %d, old=%v", with, s.Seen, s.TimeoutMs, s.Old)
	}
	return who + all
}

// String is the request on one line.
func (q *Request) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v", q.Op)
	switch {
	case q.NullPath:
		b.WriteString(" null")
	case q.Path != "":
		fmt.Fprintf(&b, " %q", q.Path)
	}
	switch q.Op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		fmt.Fprintf(&b, " flags=%d data=%s acl=%s", q.Flags, showData(q.Data), showACL(q.ACL))
		if q.Op == wire.OpCreateTTL {
			fmt.Fprintf(&b, " ttl=%d", q.TTL)
		}
	case wire.OpSetData:
		fmt.Fprintf(&b, " data=%s version=%d", showData(q.Data), q.Version)
	case wire.OpSetACL:
		fmt.Fprintf(&b, " acl=%s version=%d", showACL(q.ACL), q.Version)
	case wire.OpDelete, wire.OpCheck:
		fmt.Fprintf(&b, " version=%d", q.Version)
	case wire.OpAddWatch, wire.OpCheckWatches, wire.OpRemoveWatches:
		fmt.Fprintf(&b, " type=%d", q.Mode)
	case wire.OpSASL:
		fmt.Fprintf(&b, " %s", showData(q.Data))
	case wire.OpAuth:
		fmt.Fprintf(&b, " %s %q", q.Scheme, q.Data)
	case wire.OpSetWatches, wire.OpSetWatches2:
		fmt.Fprintf(&b, " since=%v data=%q exist=%q child=%q persistent=%q recursive=%q", q.Since,
			q.Watches[0], q.Watches[1], q.Watches[2], q.Watches[3], q.Watches[4])
	}
	for i := range q.Sub {
		fmt.Fprintf(&b, " [%s]", q.Sub[i].String())
	}
	if q.Watch {
		b.WriteString(" watch")
	}
	if q.Xid != 0 {
		fmt.Fprintf(&b, " xid=%d", q.Xid)
	}
	if q.Cut > 0 {
		fmt.Fprintf(&b, " cut=%d", q.Cut)
	}
	return b.String()
}

func showData(data []byte) string {
	switch {
	case data == nil:
		return "null"
	case len(data) > 32:
		return fmt.Sprintf("%d bytes", len(data))
	}
	return fmt.Sprintf("%q", data)
}

func showACL(acl []znode.ACL) string {
	switch {
	case acl == nil:
		return "null"
	case len(acl) == 1 && acl[0] == znode.OpenACL[0]:
		return "open"
	}
	var entries []string
	for _, e := range acl {
		entries = append(entries, fmt.Sprintf("%s:%s:%d", e.Scheme, e.ID, e.Perms))
	}
	return "[" + strings.Join(entries, ",") + "]"
}
