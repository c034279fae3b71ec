package wire

import (
	"fmt"

	"github.com/tenure-dev/tenure/znode"
)

// jsonReply are the fields of a reply or an event, as far as they were given.
type jsonReply struct {
	Reply
	event      string
	path       string
	data       []byte
	stat       znode.Stat
	hasStat    bool
	acl        []znode.ACL
	names      []string
	paths      []string
	count      int32
	identities []znode.Identity
	token      []byte
	results    int // where the value of results starts, 0 if there is none
	complete   bool
	timeoutMs  int32
	held       []znode.Error
	stats      []znode.Stat
	sessions   []SessionInfo
	more       bool
	figures    []Figure
	lifetimes  []znode.Lifetime
	lifetime   znode.Lifetime
	members    MembersReply
}

// DecodeMessage decodes a reply or an event. Unknown fields are ignored.
func (JSON) DecodeMessage(msg []byte, opOf func(xid int32) (Op, bool)) (*Reply, *Event, error) {
	r := jsonReader{buf: msg}
	var f jsonReply
	for at := r.object(); r.more('}', &at); {
		f.field(&r)
	}
	if err := r.done("reply"); err != nil {
		return nil, nil, err
	}
	if f.event != "" {
		t, ok := eventTypes[f.event]
		if !ok {
			return nil, nil, fmt.Errorf("wire: event of unknown type %.30q", f.event)
		}
		return nil, &Event{Type: t, Path: f.path, Zxid: f.Zxid}, nil
	}
	op, ok := opOf(f.Xid)
	if !ok {
		return nil, nil, fmt.Errorf("wire: reply to xid %d, which was not asked", f.Xid)
	}
	p := f.Reply
	p.Op = op
	switch {
	case op == OpMulti && f.results > 0:
		m := r.multiResults(f.results, p.Err != znode.OK)
		m.Err, p.Err, p.Body = p.Err, znode.OK, m
	case p.Err == znode.OK:
		p.Body = f.body(&r, op)
	}
	if err := r.problem("reply to " + op.String()); err != nil {
		return nil, nil, err
	}
	return &p, nil, nil
}

func (f *jsonReply) field(r *jsonReader) {
	switch key := r.key(); string(key) {
	case "xid":
		f.Xid = r.int()
	case "zxid":
		f.Zxid = r.long()
	case "err":
		f.Err = znode.Error(r.int())
	case "detail":
		f.Detail = r.str()
	case "event":
		f.event = r.str()
	case "path":
		f.path = r.str()
	case "data":
		f.data = r.data()
	case "stat":
		f.stat, f.hasStat = r.stat(), true
	case "acl":
		f.acl = r.acl()
	case "names":
		f.names = r.strs()
	case "results": // read when the operation is known
		r.peek()
		f.results = r.off
		r.skip()
	default:
		f.rareField(r, key)
	}
}

func (f *jsonReply) rareField(r *jsonReader, key []byte) {
	switch string(key) {
	case "paths":
		f.paths = r.strs()
	case "count":
		f.count = r.int()
	case "identities":
		f.identities = r.identities()
	case "token":
		f.token = r.data()
	case "complete":
		f.complete = r.bool()
	case "timeoutMs":
		f.timeoutMs = r.int()
	case "held":
		f.held = r.errors()
	case "stats":
		f.stats = r.stats()
	case "sessions":
		f.sessions = r.sessions()
	case "more":
		f.more = r.bool()
	case "figures":
		f.figures = r.figures()
	case "lifetimes":
		f.lifetimes = r.lifetimes()
	case "lifetime":
		f.lifetime = r.lifetime()
	default:
		f.memberField(r, key)
	}
}

// memberField reads a field of MembersReply.
func (f *jsonReply) memberField(r *jsonReader, key []byte) {
	switch m := &f.members; string(key) {
	case "cluster":
		m.Cluster = r.long()
	case "leader":
		m.Leader = r.int()
	case "current":
		m.Current = r.bool()
	case "changing":
		m.Changing = r.bool()
	case "index":
		m.Index = r.long()
	case "members":
		m.Members = r.members()
	case "removed":
		m.Removed = r.ints()
	case "free":
		m.Free = r.int()
	default:
		r.skip()
	}
}

// body builds the record of a reply without an error.
func (f *jsonReply) body(r *jsonReader, op Op) any {
	switch op {
	case OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL:
		kind, _ := writeKind("create", f.hasStat)
		return &znode.Result{Kind: kind, Path: f.path, Stat: f.stat}
	case OpDelete:
		return &znode.Result{Kind: znode.ResultDelete}
	case OpSetData:
		return &znode.Result{Kind: znode.ResultSetData, Stat: f.stat}
	case OpSetACL:
		return &znode.Result{Kind: znode.ResultSetACL, Stat: f.stat}
	case OpGetData, OpReconfig:
		return &DataReply{Data: f.data, Stat: f.stat}
	case OpExists:
		return &StatReply{Stat: f.stat}
	case OpGetACL:
		return &ACLReply{ACL: f.acl, Stat: f.stat}
	case OpGetChildren, OpGetChildren2:
		return &ChildrenReply{Names: f.names, Stat: f.stat}
	case OpSync:
		return &PathReply{Path: f.path}
	case OpGetAllChildrenNumber:
		return &CountReply{Count: f.count}
	case OpGetEphemerals:
		return &PathsReply{Paths: f.paths}
	case OpWhoAmI:
		return &IdentitiesReply{Identities: f.identities}
	case OpSASL:
		return &SASLReply{Token: f.token}
	case OpAddWatch:
		return &AddWatchReply{}
	case OpMultiRead:
		return r.readResults(f.results)
	case OpRewatch:
		return &RewatchReply{Complete: f.complete}
	case OpRenew:
		return &RenewReply{TimeoutMs: f.timeoutMs, Held: f.held}
	case OpList:
		return &ListReply{
			Names: f.names, Stats: f.stats, More: f.more, Stat: f.stat,
			Lifetimes: f.lifetimes, Lifetime: f.lifetime,
		}
	case OpSessions:
		return &SessionsReply{Sessions: f.sessions, More: f.more}
	case OpStatus:
		return &StatusReply{Figures: f.figures}
	case OpMembers, OpChangeMembers, OpTransferLead:
		return &f.members
	}
	return nil
}

// multiResults reads the results of a multi at offset off: writes, or errors if it failed.
func (r *jsonReader) multiResults(off int, failed bool) *znode.Result {
	r.off = off
	m := &znode.Result{Kind: znode.ResultMulti}
	for at := r.list("a list of results"); r.more(']', &at); {
		var (
			s             znode.Result
			name          string
			hasStat, fail bool
		)
		for at := r.object(); r.more('}', &at); {
			switch string(r.key()) {
			case "op":
				name = r.str()
			case "path":
				s.Path = r.str()
			case "stat":
				s.Stat, hasStat = r.stat(), true
			case "err":
				s.Err, fail = znode.Error(r.int()), true
			default:
				r.skip()
			}
		}
		var known bool
		if s.Kind, known = writeKind(name, hasStat); !known && (!fail || !failed) {
			r.refuse(fmt.Sprintf("has a result of neither a write nor an error: %.30q", name))
		}
		m.Sub = append(m.Sub, s)
	}
	return m
}

// readResults reads the results of a multiRead at offset off.
func (r *jsonReader) readResults(off int) *MultiReadReply {
	r.off = off
	m := &MultiReadReply{}
	for at := r.list("a list of results"); r.more(']', &at); {
		var x ReadResult
		for at := r.object(); r.more('}', &at); {
			switch string(r.key()) {
			case "data":
				x.Op, x.Data.Data = OpGetData, r.data()
			case "stat":
				x.Data.Stat = r.stat()
			case "names":
				x.Op, x.Children.Names = OpGetChildren, r.strs()
			case "err":
				x.Err = znode.Error(r.int())
			default:
				r.skip()
			}
		}
		m.Results = append(m.Results, x)
	}
	return m
}
