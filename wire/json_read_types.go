package wire

import (
	"fmt"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// acl reads an access list; null is nil, which no znode may have.
func (r *jsonReader) acl() []znode.ACL {
	if r.literal("null") {
		return nil
	}
	acl := []znode.ACL{}
	for at := r.list("a list of access entries or null"); r.more(']', &at); {
		if r.wrong != "" {
			r.skip()
			continue
		}
		acl = append(acl, r.aclEntry())
	}
	if isOpen(acl) {
		return znode.OpenACL
	}
	return acl
}

func (r *jsonReader) aclEntry() (a znode.ACL) {
	const all = 7
	seen := 0
	for at := r.object(); r.more('}', &at); {
		switch string(r.key()) {
		case "perms":
			a.Perms = r.int()
			seen |= 1
		case "scheme":
			a.Scheme = internScheme([]byte(r.str()))
			seen |= 2
		case "id":
			a.ID = r.str()
			seen |= 4
		default:
			r.refuse("is unknown")
			r.skip()
		}
	}
	if seen != all {
		r.field = []byte("acl")
		r.refuse("must have perms, scheme and id in each entry")
	}
	return a
}

func (r *jsonReader) watches(s *SetWatches) {
	for at := r.object(); r.more('}', &at); {
		switch string(r.key()) {
		case "data":
			s.Data = r.strs()
		case "exist":
			s.Exist = r.strs()
		case "child":
			s.Child = r.strs()
		case "persistent":
			s.Persistent = r.strs()
		case "recursive":
			s.Recursive = r.strs()
		default:
			r.refuse("is unknown")
			r.skip()
		}
	}
}

func (r *jsonReader) held() []Held {
	held := []Held{}
	for at := r.list("a list of held znodes"); r.more(']', &at); {
		if r.wrong != "" {
			r.skip()
			continue
		}
		held = append(held, r.heldEntry())
	}
	return held
}

func (r *jsonReader) heldEntry() (h Held) {
	const both = 3
	seen := 0
	for at := r.object(); r.more('}', &at); {
		switch string(r.key()) {
		case "path":
			h.Path = r.str()
			seen |= 1
		case "czxid":
			h.Czxid = r.long()
			seen |= 2
		default:
			r.refuse("is unknown")
			r.skip()
		}
	}
	if seen != both {
		r.field = []byte("held")
		r.refuse("must have path and czxid in each entry")
	}
	return h
}

// The rest reads parts of replies, where unknown fields are skipped.

func (r *jsonReader) stat() (s znode.Stat) {
	for at := r.object(); r.more('}', &at); {
		switch string(r.key()) {
		case "czxid":
			s.Czxid = r.long()
		case "mzxid":
			s.Mzxid = r.long()
		case "ctime":
			s.Ctime = r.long()
		case "mtime":
			s.Mtime = r.long()
		case "version":
			s.Version = r.int()
		case "cversion":
			s.Cversion = r.int()
		case "aversion":
			s.Aversion = r.int()
		case "ephemeralOwner":
			s.EphemeralOwner = session.ID(r.long())
		case "dataLength":
			s.DataLength = r.int()
		case "numChildren":
			s.NumChildren = r.int()
		case "pzxid":
			s.Pzxid = r.long()
		default:
			r.skip()
		}
	}
	return s
}

func (r *jsonReader) stats() []znode.Stat {
	stats := []znode.Stat{}
	for at := r.list("a list of Stats"); r.more(']', &at); {
		stats = append(stats, r.stat())
	}
	return stats
}

// lifetime reads what putJSONLifetime writes.
func (r *jsonReader) lifetime() (l znode.Lifetime) {
	for at := r.object(); r.more('}', &at); {
		switch string(r.key()) {
		case "mode":
			name := r.str()
			mode, ok := modes[name]
			if !ok || mode.Sequential {
				r.refuse(fmt.Sprintf("is not the mode of a znode: %.30q", name))
				continue
			}
			l.Kind = mode.Kind
		case "ttlMs":
			l.TTLMs = r.long()
		default:
			r.skip()
		}
	}
	return l
}

func (r *jsonReader) lifetimes() []znode.Lifetime {
	all := []znode.Lifetime{}
	for at := r.list("a list of lifetimes"); r.more(']', &at); {
		all = append(all, r.lifetime())
	}
	return all
}

func (r *jsonReader) errors() []znode.Error {
	errs := []znode.Error{}
	for at := r.list("a list of error codes"); r.more(']', &at); {
		errs = append(errs, znode.Error(r.int()))
	}
	return errs
}

func (r *jsonReader) identities() []znode.Identity {
	ids := []znode.Identity{}
	for at := r.list("a list of identities"); r.more(']', &at); {
		var id znode.Identity
		for at := r.object(); r.more('}', &at); {
			switch string(r.key()) {
			case "scheme":
				id.Scheme = r.str()
			case "id":
				id.ID = r.str()
			default:
				r.skip()
			}
		}
		ids = append(ids, id)
	}
	return ids
}

func (r *jsonReader) sessions() []SessionInfo {
	infos := []SessionInfo{}
	for at := r.list("a list of sessions"); r.more(']', &at); {
		var s SessionInfo
		for at := r.object(); r.more('}', &at); {
			switch string(r.key()) {
			case "session":
				s.ID = session.ID(r.long())
			case "timeoutMs":
				s.TimeoutMs = r.int()
			case "remote":
				s.Remote = r.str()
			case "idleMs":
				s.IdleMs = r.long()
			case "watches":
				s.Watches = r.int()
			case "ephemerals":
				s.Ephemerals = r.int()
			default:
				r.skip()
			}
		}
		infos = append(infos, s)
	}
	return infos
}

// figures reads an object of names and values, in its order.
func (r *jsonReader) figures() []Figure {
	figures := []Figure{}
	for at := r.object(); r.more('}', &at); {
		raw := r.key()
		name, rule := unescape(raw)
		if rule != "" {
			r.fail(rule)
		}
		figures = append(figures, Figure{Name: string(name), Value: r.str()})
	}
	return figures
}
