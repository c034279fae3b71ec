package wire

import (
	"fmt"
	"strconv"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// jsonFields are the fields of one request, or of one operation in its ops, as far as
// they were given.
type jsonFields struct {
	seen jsonSet
	// refused is the code to answer for the reader's wrong; OK means MarshallingError.
	refused znode.Error

	xid                          int32
	op                           string
	seq, acked                   int64
	stale, stat, watch           bool
	path                         string
	data                         []byte
	acl                          []znode.ACL
	mode                         znode.Mode
	ttlMs                        int64
	version                      int32
	ops                          []any // *znode.Create and so on, or ReadOp
	relZxid                      int64
	watches                      SetWatches
	recursive                    bool
	watcher                      WatcherType
	joining, leaving, newMembers string
	configID                     int64
	held                         []Held
	after                        string
	limit                        int32
	stats                        bool
	session                      int64
	scheme                       string
	token                        []byte
	number                       int64
	steps                        []MemberStep
	member                       int32
}

// read reads the object's fields. inside tells an operation in ops from a request.
func (f *jsonFields) read(r *jsonReader, inside bool) {
	f.version = -1
	f.acl = znode.OpenACL
	for at := r.object(); r.more('}', &at); {
		key := r.key()
		field, known := jsonFieldOf[string(key)]
		switch {
		case !known:
			r.refuse("is unknown")
			r.skip()
		case f.seen&field != 0:
			r.refuse("comes twice")
			r.skip()
		case inside && (field&jsonEnvelope != 0 && field != fieldOp || field == fieldOps):
			r.refuse("is not for an operation inside ops")
			r.skip()
		default:
			f.seen |= field
			f.value(r, field)
		}
	}
}

// value reads the value of one field.
func (f *jsonFields) value(r *jsonReader, field jsonSet) {
	switch field {
	case fieldXid, fieldOp:
		f.identity(r, field)
	case fieldSeq:
		f.seq = f.natural(r)
	case fieldAcked:
		f.acked = f.natural(r)
	case fieldStale:
		f.stale = r.bool()
	case fieldPath:
		f.path = r.str()
	case fieldData:
		f.data = r.data()
	case fieldACL:
		f.acl = r.acl()
	case fieldMode:
		f.mode = f.modeOf(r)
	case fieldTTL:
		f.ttlMs = r.long()
	case fieldStat:
		f.stat = r.bool()
	case fieldVersion:
		f.version = r.int()
	case fieldWatch:
		f.watch = r.bool()
	case fieldOps:
		f.readOps(r)
	case fieldRelZxid:
		f.relZxid = r.long()
	case fieldWatches:
		r.watches(&f.watches)
	default:
		f.rareValue(r, field)
	}
}

func (f *jsonFields) rareValue(r *jsonReader, field jsonSet) {
	switch field {
	case fieldRecursive:
		f.recursive = r.bool()
	case fieldType:
		name := r.str()
		if f.watcher = watcherTypes[name]; f.watcher == 0 {
			r.refuse(fmt.Sprintf("must be children, data, any, persistent or recursive, not %.30q", name))
		}
	case fieldJoining:
		f.joining = r.str()
	case fieldLeaving:
		f.leaving = r.str()
	case fieldNewMembers:
		f.newMembers = r.str()
	case fieldConfigID:
		f.configID = r.long()
	case fieldHeld:
		f.held = r.held()
	case fieldAfter:
		f.after = r.str()
	case fieldLimit:
		f.limit = r.int()
	case fieldStats:
		f.stats = r.bool()
	case fieldSession:
		f.session = r.long()
	case fieldScheme:
		f.scheme = r.str()
	case fieldToken:
		f.token = r.data()
	case fieldNumber:
		f.number = r.long()
	case fieldSteps:
		f.steps = r.memberSteps()
	case fieldMember:
		f.member = r.int()
	}
}

// identity reads xid or op. If it is not what it must be it counts as not given: then the
// request cannot be answered at all.
func (f *jsonFields) identity(r *jsonReader, field jsonSet) {
	before := r.wrong
	r.wrong = ""
	if field == fieldXid {
		f.xid = r.int()
	} else {
		f.op = r.str()
	}
	if r.wrong != "" {
		f.seen &^= field
	}
	if before != "" {
		r.wrong = before
	}
}

func (f *jsonFields) natural(r *jsonReader) int64 {
	v := r.long()
	if v < 0 {
		r.refuse(fmt.Sprintf("must not be negative, as %d is", v))
	}
	return v
}

func (f *jsonFields) modeOf(r *jsonReader) znode.Mode {
	name := r.str()
	mode, ok := modes[name]
	if !ok && r.wrong == "" {
		f.refused = znode.BadArguments
		r.refuse(fmt.Sprintf("is not a mode: %.30q", name))
	}
	return mode
}

func (f *jsonFields) readOps(r *jsonReader) {
	i := 0
	for at := r.list("a list of operations"); r.more(']', &at); i++ {
		if r.wrong != "" {
			r.skip()
			continue
		}
		var sub jsonFields
		sub.read(r, true)
		if body := sub.inner(r); r.wrong == "" {
			f.ops = append(f.ops, body)
		} else {
			r.wrong = "ops[" + strconv.Itoa(i) + "]: " + r.wrong
		}
	}
}

// inner builds one operation of ops.
func (f *jsonFields) inner(r *jsonReader) any {
	spec, ok := jsonOps[f.op]
	if !ok {
		r.field = []byte("op")
		r.refuse(fmt.Sprintf("is not an operation for ops: %.30q", f.op))
		return nil
	}
	f.check(r, spec, fieldOp)
	switch spec.op {
	case OpCreate, OpDelete, OpSetData, OpCheck:
		return f.write(r, spec.op)
	case OpGetData, OpGetChildren:
		if f.seen&fieldWatch != 0 {
			r.field = []byte("watch")
			r.refuse("is not for an operation inside ops")
		}
		return ReadOp{Op: spec.op, Path: f.path}
	}
	r.field = []byte("op")
	r.refuse(fmt.Sprintf("is not an operation for ops: %.30q", f.op))
	return nil
}

// check refuses fields that the operation does not have and asks for those it needs.
func (f *jsonFields) check(r *jsonReader, spec jsonOp, envelope jsonSet) {
	if extra := f.seen &^ (envelope | spec.needs | spec.takes); extra != 0 {
		r.field = []byte(extra.first())
		r.refuse("is not one of " + f.op)
	}
	if missing := spec.needs &^ f.seen; missing != 0 {
		r.field = []byte(missing.first())
		r.refuse("is missing: " + f.op + " needs it")
	}
}

// write builds the change of a write.
func (f *jsonFields) write(r *jsonReader, op Op) znode.Op {
	switch op {
	case OpCreate:
		c := &znode.Create{
			Path: f.path, Data: f.data, ACL: f.acl, Mode: f.mode, TTLMs: f.ttlMs,
			// The reply to these two always has a Stat, as in jute.
			WantStat: f.stat || f.mode.Kind == znode.Container || f.mode.Kind == znode.TTL,
		}
		if c.TTLMs != 0 && c.Mode.Kind != znode.TTL && r.wrong == "" {
			f.refused = znode.BadArguments
			r.field = []byte("ttlMs")
			r.refuse("is only for the modes ttl and ttl-sequential")
		}
		return c
	case OpDelete:
		return &znode.Delete{Path: f.path, Version: f.version}
	case OpSetData:
		return &znode.SetData{Path: f.path, Data: f.data, Version: f.version}
	case OpSetACL:
		return &znode.SetACL{Path: f.path, ACL: f.acl, Version: f.version}
	}
	return &znode.Check{Path: f.path, Version: f.version}
}

// body builds the record of a request.
func (f *jsonFields) body(r *jsonReader, op Op) any {
	switch op {
	case OpCreate, OpDelete, OpSetData, OpSetACL:
		return f.write(r, op)
	case OpMulti:
		return f.multi(r)
	case OpMultiRead:
		return f.multiRead(r)
	case OpExists, OpGetData, OpGetChildren, OpGetChildren2:
		return &PathWatch{Path: f.path, Watch: f.watch}
	case OpGetACL, OpSync, OpGetEphemerals, OpGetAllChildrenNumber:
		return &PathOnly{Path: f.path}
	case OpAuth:
		return &Auth{Scheme: f.scheme, Data: f.data}
	case OpSASL:
		return &SASL{Token: f.token}
	case OpSetWatches, OpSetWatches2, OpRewatch:
		return f.setWatches(r, op)
	case OpAddWatch:
		a := &AddWatch{Path: f.path}
		if f.recursive {
			a.Mode = 1
		}
		return a
	case OpCheckWatches, OpRemoveWatches:
		return &RemoveWatches{Path: f.path, Type: f.watcher}
	case OpReconfig:
		return &Reconfig{Joining: f.joining, Leaving: f.leaving, NewMembers: f.newMembers, ConfigID: f.configID}
	case OpRenew:
		if f.held == nil {
			f.held = []Held{}
		}
		return &Renew{Held: f.held}
	case OpList:
		return &List{Path: f.path, After: f.after, Limit: f.limit, Stats: f.stats}
	case OpSessions:
		return &Sessions{After: f.afterSession(r), Limit: f.limit}
	case OpKillSession:
		return &KillSession{Session: session.ID(f.session)}
	case OpChangeMembers:
		return &ChangeMembers{Number: f.number, Steps: f.steps}
	case OpTransferLead:
		return &TransferLead{ID: f.member}
	}
	return nil
}

// afterSession reads after, which names a session here and a child in a list.
func (f *jsonFields) afterSession(r *jsonReader) session.ID {
	if f.after == "" {
		return 0
	}
	id, err := strconv.ParseInt(f.after, 10, 64)
	if err != nil {
		r.field = []byte("after")
		r.refuse(fmt.Sprintf("must be a session's id in decimal, not %.30q", f.after))
	}
	return session.ID(id)
}

func (f *jsonFields) multi(r *jsonReader) *znode.Multi {
	m := &znode.Multi{}
	for _, op := range f.ops {
		w, ok := op.(znode.Op)
		if !ok {
			r.field = []byte("ops")
			r.refuse("of multi must be creates, deletes, sets and checks")
		}
		m.Ops = append(m.Ops, w)
	}
	return m
}

func (f *jsonFields) multiRead(r *jsonReader) *MultiRead {
	m := &MultiRead{}
	for _, op := range f.ops {
		read, ok := op.(ReadOp)
		if !ok {
			r.field = []byte("ops")
			r.refuse("of multiRead must be get and childNames")
		}
		m.Ops = append(m.Ops, read)
	}
	return m
}

func (f *jsonFields) setWatches(r *jsonReader, op Op) *SetWatches {
	s := f.watches
	s.RelZxid = f.relZxid
	lists := []*[]string{&s.Data, &s.Exist, &s.Child, &s.Persistent, &s.Recursive}
	if op == OpSetWatches {
		if s.Persistent != nil || s.Recursive != nil {
			r.field = []byte("watches")
			r.refuse("of setWatches has no persistent and no recursive ones")
		}
		lists = lists[:3]
	}
	for _, list := range lists {
		if *list == nil {
			*list = []string{}
		}
	}
	return &s
}
