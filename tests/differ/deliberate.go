package differ

import (
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Difference is one way in which the right server may differ from the left.
type Difference struct {
	ID, What, Reason string
	// adapt takes the difference, and nothing else, out of two frames that differ, and
	// reports whether it was there. It may change what the pair points to but not what
	// that points to. It is nil where the sequences or the play keep away from the
	// difference.
	adapt func(p *pair) bool
}

// Deliberate is everything in which Tenure differs on purpose from the ZooKeeper 3.8.0 that
// it is compared with. docs/zookeeper.md has the same list.
var Deliberate = []Difference{
	{ID: "event-zxid",
		What:   "An event carries the zxid of its change; 3.8 sends -1.",
		Reason: "As ZooKeeper since 3.9.0.",
		adapt:  adaptEventZxid},
	{ID: "multi-create2",
		What:   "create2 in a multi is answered with type 15, path and Stat; 3.8.0 answers as for create.",
		Reason: "As ZooKeeper since 3.8.2.",
		adapt:  adaptMultiCreate2},
	{ID: "multi-flags",
		What:   "A multi with flags that no create has is refused whole with -5; 3.8.0 refuses the one operation with -8 in its turn.",
		Reason: "As ZooKeeper since 3.8.2.",
		adapt:  adaptMultiFlags},
	{ID: "multi-kinds",
		What:   "In a multi, createContainer makes a container whatever its flags, and createTTL with flags of no TTL mode, or a TTL mode without a lifetime, is refused; 3.8.0 makes what the flags say, and does not undo the multi if it cannot.",
		Reason: "The first and the last as ZooKeeper since 3.8.2, the second as outside a multi. No sequence has them."},
	{ID: "multi-refused",
		What:   "A multi or multiRead that is refused with -5 is answered by the header alone; 3.8.0 adds an empty result.",
		Reason: "No other reply with an error has a record, and no client reads it.",
		adapt:  adaptMultiRefused},
	{ID: "resume-timeout",
		What:   "A session keeps the timeout that was granted when it was opened; ZooKeeper grants another with every connection.",
		Reason: "It is part of the replicated state, so that no restart shortens what was promised. Client libraries ask for the same again.",
		adapt:  adaptResumeTimeout},
	{ID: "acl-duplicates",
		What:   "An access list holds nothing twice; ZooKeeper keeps an identity that stands there by itself and by an auth entry.",
		Reason: "It permits the same.",
		adapt:  adaptACLDuplicates},
	{ID: "auth-order",
		What:   "An auth entry of an access list becomes the identities in the order in which they were added; in ZooKeeper in any order.",
		Reason: "All members must store the same.",
		adapt:  adaptAuthOrder},
	{ID: "exists-read",
		What:   "exists needs READ, and without it sets no watch; 3.8.0 tells everybody.",
		Reason: "As ZooKeeper since 3.8.4 and 3.9.2 (CVE-2024-23944).",
		adapt:  adaptExistsRead},
	{ID: "pipelined-acl",
		What:   "A write behind a setACL in the pipeline is judged by the new list; ZooKeeper may judge it by the old one.",
		Reason: "Requests of a session take effect in order. No sequence has a write there."},
	{ID: "empty-path",
		What:   "The empty path names no znode; 3.8.0 takes it for the root when it reads.",
		Reason: "No client sends it, and no write takes it.",
		adapt:  adaptEmptyPath},
	{ID: "set-watches-acl",
		What:   "setWatches tells nothing of znodes that the session may not read; ZooKeeper does.",
		Reason: "The rule for all other events. The sequences ask for what they may read."},
	{ID: "check-watches",
		What:   "checkWatches answers for the watches of its session; 3.8.0 answers for those of all.",
		Reason: "As ZooKeeper since 3.9.0. The sequences ask where nobody else watches."},
	{ID: "watch-modes",
		What:   "Watches of several modes of a session on one path are independent; in 3.8 the last replaces the mode of the others.",
		Reason: "As ZooKeeper since 3.9.0. In the sequences a session has one mode per path."},
	{ID: "astral-paths",
		What:   "A path with a character above U+FFFF is answered as it was asked; ZooKeeper answers with Java's two surrogates in UTF-8.",
		Reason: "No znode can have such a path. No sequence asks where a path is answered."},
	{ID: "acl-schemes",
		What:   "An access list may name x509 and sasl identities on every server; in ZooKeeper a scheme is known only where it is configured.",
		Reason: "What a transaction does follows from the log and not from a member's settings. No sequence has them."},
	{ID: "relative-path",
		What:   "checkWatches and removeWatches of a path without a leading slash find no watch (-121); 3.8.0 answers -5.",
		Reason: "No path's syntax is judged there. The sequences have no such path there."},
	{ID: "set-watches-null",
		What:   "setWatches with a null list is refused with -5 before it tells anything; ZooKeeper tells what the lists before it find.",
		Reason: "A record is good or bad as a whole. In the sequences the other lists are empty."},
	{ID: "sasl-null",
		What:   "A null token of SASL is answered as any other; 3.8.0 ends the connection.",
		Reason: "An exception that nobody catches is no rule. No sequence has one."},
	{ID: "behind-close",
		What:   "Requests behind closeSession are not answered; 3.8.0 answers them, or not, as it happens.",
		Reason: "They change nothing on either. What comes behind the answer to the close is not compared."},
	{ID: "wrong-password",
		What:   "A wrong password leaves the session's own connection alone; 3.8.0 closes it.",
		Reason: "Nobody must be able to disturb a session by its id alone. Both connections are given up after it."},
}

// adapted returns a pair without deliberate differences, and the ids of those that it had.
func adapted(p pair) (pair, []string) {
	left, right := *p.left, *p.right
	p.left, p.right = &left, &right
	var ids []string
	for _, d := range Deliberate {
		if d.adapt != nil && d.adapt(&p) {
			ids = append(ids, d.ID)
		}
	}
	return p, ids
}

func adaptEventZxid(p *pair) bool {
	if p.left.Kind != KindEvent || p.right.Kind != KindEvent || p.left.Event.Zxid != -1 || p.right.Event.Zxid == -1 {
		return false
	}
	e := *p.right.Event
	e.Zxid = -1
	p.right.Event = &e
	return true
}

func adaptResumeTimeout(p *pair) bool {
	l, r := p.left.Connect, p.right.Connect
	if l == nil || r == nil || l.TimeoutMs == 0 || l.TimeoutMs == r.TimeoutMs || r.TimeoutMs != timeouts[p.left.Session] {
		return false
	}
	reply := *l
	reply.TimeoutMs = r.TimeoutMs
	p.left.Connect = &reply
	return true
}

// replies returns both replies if they are to requests for op.
func (p *pair) replies(op wire.Op) (l, r *wire.Reply, ok bool) {
	l, r = p.left.Reply, p.right.Reply
	ok = p.left.Kind == KindReply && p.right.Kind == KindReply && l != nil && r != nil && l.Op == op && r.Op == op
	return l, r, ok
}

// multis returns the results per operation of two replies to a multi, nil if there are
// none.
func (p *pair) multis() (l, r *znode.Result) {
	lr, rr, ok := p.replies(wire.OpMulti)
	if !ok {
		return nil, nil
	}
	l, _ = lr.Body.(*znode.Result)
	r, _ = rr.Body.(*znode.Result)
	return l, r
}

func adaptMultiCreate2(p *pair) bool {
	l, r := p.multis()
	if l == nil || r == nil || len(l.Sub) != len(r.Sub) || len(l.Sub) != len(p.left.Request.Sub) {
		return false
	}
	plain := *r
	plain.Sub = slices.Clone(r.Sub)
	adapted := false
	for i, s := range p.left.Request.Sub {
		if s.Op == wire.OpCreate2 && l.Sub[i].Kind == znode.ResultCreate && r.Sub[i].Kind == znode.ResultCreateStat {
			plain.Sub[i] = znode.Result{Kind: znode.ResultCreate, Path: r.Sub[i].Path}
			adapted = true
		}
	}
	reply := *p.right.Reply
	reply.Body = &plain
	p.right.Reply = &reply
	return adapted
}

func (q *Request) hasBadFlags() bool {
	switch q.Op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer:
		return q.Flags < 0 || q.Flags > 6
	}
	return false
}

func adaptMultiFlags(p *pair) bool {
	l, r := p.multis()
	bad := l != nil && r == nil && l.Err != znode.OK && p.right.Reply.Err == znode.MarshallingError &&
		slices.ContainsFunc(p.left.Request.Sub, func(s Request) bool { return s.hasBadFlags() })
	if bad {
		reply := *p.left.Reply
		reply.Err, reply.Body = znode.MarshallingError, nil
		p.left.Reply = &reply
	}
	return bad
}

func adaptACLDuplicates(p *pair) bool {
	l, r := p.lists()
	return len(l) != len(r) && p.adaptLists(func(acl []znode.ACL) []znode.ACL {
		var once []znode.ACL
		for _, e := range acl {
			if !slices.Contains(once, e) {
				once = append(once, e)
			}
		}
		return once
	})
}

func adaptAuthOrder(p *pair) bool {
	l, r := p.lists()
	return !slices.Equal(l, r) && p.adaptLists(func(acl []znode.ACL) []znode.ACL {
		sorted := slices.Clone(acl)
		sortDigests(sorted)
		return sorted
	})
}

// lists returns the access lists of two replies to a getACL, nil if that is not what they
// are.
func (p *pair) lists() (l, r []znode.ACL) {
	lr, rr, ok := p.replies(wire.OpGetACL)
	if !ok || lr.Err != znode.OK || rr.Err != znode.OK {
		return nil, nil
	}
	return lr.Body.(*wire.ACLReply).ACL, rr.Body.(*wire.ACLReply).ACL
}

// adaptLists changes both lists.
func (p *pair) adaptLists(change func([]znode.ACL) []znode.ACL) bool {
	for _, f := range []*Frame{p.left, p.right} {
		reply, body := *f.Reply, *f.Reply.Body.(*wire.ACLReply)
		body.ACL = change(body.ACL)
		reply.Body = &body
		f.Reply = &reply
	}
	return true
}

// sortDigests sorts neighbours that one entry of scheme auth may have become.
func sortDigests(acl []znode.ACL) {
	for start := 0; start < len(acl); {
		end := start + 1
		for end < len(acl) && acl[end].Scheme == "digest" && acl[start].Scheme == "digest" && acl[end].Perms == acl[start].Perms {
			end++
		}
		slices.SortFunc(acl[start:end], func(a, b znode.ACL) int { return strings.Compare(a.ID, b.ID) })
		start = end
	}
}

func adaptExistsRead(p *pair) bool {
	l, r, ok := p.replies(wire.OpExists)
	if !ok || !p.left.Unreadable || l.Err != znode.OK || r.Err != znode.NoAuth {
		return false
	}
	reply := *l
	reply.Err, reply.Body = znode.NoAuth, nil
	p.left.Reply = &reply
	return true
}

func adaptEmptyPath(p *pair) bool {
	l, r, q := p.left.Reply, p.right.Reply, p.left.Request
	if q == nil || q.Path != "" || q.NullPath || l == nil || r == nil || l.Err != znode.OK || r.Err != znode.NoNode {
		return false
	}
	switch q.Op {
	case wire.OpExists, wire.OpGetData, wire.OpGetACL, wire.OpGetChildren, wire.OpGetChildren2:
		reply := *l
		reply.Err, reply.Body = znode.NoNode, nil
		p.left.Reply = &reply
		return true
	}
	return false
}

// multiEnd is a result of a multi without operations.
const multiEnd = "\xff\xff\xff\xff\x01\xff\xff\xff\xff"

func adaptMultiRefused(p *pair) bool {
	l, _, ok := p.replies(wire.OpMulti)
	if !ok {
		l, _, ok = p.replies(wire.OpMultiRead)
	}
	if !ok || l.Err != znode.MarshallingError || string(p.left.behindHeader()) != multiEnd {
		return false
	}
	p.left.Raw = nil
	return true
}
