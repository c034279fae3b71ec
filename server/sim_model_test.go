package server

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/tenure-dev/tenure/replica"
	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// simModel is what the ensemble should be: the committed entries, in the order in which some
// member first applied each, told to a state that knows nothing of Raft, Pebble or the code
// that it judges. It remembers them for the whole run, so nothing may ever be taken back.
type simModel struct {
	sim      *sim
	facts    []simFact // by index
	first    uint64    // index of facts[0]
	zxid     int64
	timeMs   int64 // the newest stamp, which is never behind an older one
	nodes    map[string]*simNode
	sessions map[session.ID]*simSession
	known    map[session.ID]*simSession     // also those that are over
	results  map[session.Owner][]*simResult // of a connection's transactions, in order
	events   []wire.Event
	versions map[string][]simVersion // what each path was, by zxid
	undo     []func()
	full     bool // the entry's leader has no room: nothing may grow
}

// simFact is what is known of an entry since it was first applied.
type simFact struct {
	term, hash, digest uint64
	zxid, timeMs       int64
}

type simNode struct {
	data    string
	version int32
	owner   session.ID
	created int64 // children ever
	live    int   // children now
}

type simSession struct {
	id        session.ID
	timeout   int64 // nanoseconds
	password  [session.PasswordSize]byte
	owner     session.Owner
	last      int64 // the last number that a write of it used up
	results   map[int64]*simResult
	heard     int64 // when a heartbeat arrived that was acknowledged
	expiredAt int64 // 0 if it has not
}

// simResult is what the client of a transaction should be told.
type simResult struct {
	err     znode.Error
	path    string
	version int32
	session session.ID
	zxid    int64 // of its effect, 0 if it had none
	text    string
}

// simVersion is a znode, or its absence, from a zxid on.
type simVersion struct {
	zxid    int64
	exists  bool
	data    string
	version int32
}

func newSimModel() *simModel {
	d := &simModel{nodes: map[string]*simNode{}, sessions: map[session.ID]*simSession{}, known: map[session.ID]*simSession{},
		results: map[session.Owner][]*simResult{}, versions: map[string][]simVersion{}}
	genesis := znode.Genesis()
	for _, n := range genesis.Nodes {
		d.nodes[n.Path] = &simNode{data: string(n.Node.Data), version: n.Node.Version}
	}
	for _, c := range genesis.Children {
		d.nodes[c.Path].created, d.nodes[c.Path].live = c.Children.Created, int(c.Children.Live)
	}
	return d
}

// last is the index of the newest entry that anybody applied.
func (d *simModel) last() uint64 { return d.first + uint64(len(d.facts)) - 1 }

// applying is called around the application of an entry by a member.
func (d *simModel) applying(m *simMember, srv *Server, e replica.Entry, apply func() (int, error)) (int, error) {
	s := d.sim
	if len(d.facts) == 0 {
		d.first = e.Index
		d.zxid, d.timeMs = srv.store.LastZxid(), srv.store.LastTimeMs()
	}
	h := fnv.New64a()
	h.Write(e.Data)
	is := simFact{term: e.Term, hash: h.Sum64()}
	fresh := e.Index == d.last()+1
	switch {
	case e.Index > d.last()+1:
		s.fail("agreement", "member %d applies entry %d, but nobody has applied %d", m.id, e.Index, d.last()+1)
	case fresh:
		is.zxid, is.timeMs = d.entry(e), d.timeMs
		d.facts = append(d.facts, is)
		s.note("member %d applies first: entry %d, term %d, zxid %d", m.id, e.Index, e.Term, is.zxid)
	case e.Index >= d.first:
		if f := d.facts[e.Index-d.first]; f.term != is.term || f.hash != is.hash {
			s.fail("agreement", "member %d applies another entry %d (term %d) than was applied before (term %d)", m.id, e.Index, e.Term, f.term)
		}
	}
	n, err := apply()
	if err != nil || s.problem != "" {
		return n, err
	}
	st, f := srv.store, &d.facts[e.Index-d.first]
	if zxid := st.LastZxid(); zxid != f.zxid {
		s.fail("zxids", "member %d is at zxid %d behind entry %d, should be at %d", m.id, zxid, e.Index, f.zxid)
	}
	if ms := st.LastTimeMs(); ms != f.timeMs {
		s.fail("zxids", "member %d has the time %d behind entry %d, should have %d", m.id, ms, e.Index, f.timeMs)
	}
	if fresh {
		f.digest = st.Digest()
	} else if got := st.Digest(); got != f.digest {
		s.fail("digest", "member %d has digest %x behind entry %d, the first to apply it had %x", m.id, got, e.Index, f.digest)
	}
	return n, nil
}

// entry tells the model an entry and returns the zxid behind it.
func (d *simModel) entry(e replica.Entry) int64 {
	if len(e.Data) == 0 {
		return d.zxid
	}
	stamp, proposals, err := wire.DecodeEntry(e.Data)
	if err != nil {
		d.sim.fail("agreement", "entry %d: %v", e.Index, err)
		return d.zxid
	}
	d.full = stamp.Rules.Full
	for i := range proposals {
		t := &proposals[i].Txn
		r := d.txn(t, stamp.TimeMs)
		if (t.Owner != session.Owner{}) {
			d.results[t.Owner] = append(d.results[t.Owner], r)
		}
	}
	return d.zxid
}

// txn is one transaction with its bookkeeping.
func (d *simModel) txn(t *znode.Txn, timeMs int64) *simResult {
	text := fmt.Sprintf("%v seq %d of %v: %s", t.Owner.Bind, t.Seq, t.Session, opText(t.Op))
	s := d.sessions[t.Session]
	if t.Session != 0 {
		switch {
		case s == nil:
			return &simResult{err: znode.SessionExpired, text: text}
		case s.owner != t.Owner:
			d.sim.count("writes of a connection that was not the session's any more")
			return &simResult{err: znode.SessionMoved, text: text}
		}
	}
	if t.Seq > 0 {
		if t.Seq > s.last+1 {
			d.sim.fail("exactly once", "session %v skips from write %d to %d", t.Session, s.last, t.Seq)
		}
		if t.Seq <= s.last {
			d.sim.count("writes that were resent and had been applied")
			return s.results[t.Seq]
		}
	}
	r := &simResult{text: text}
	zxid, events := d.zxid, len(d.events)
	d.zxid++
	d.undo = d.undo[:0]
	changed := d.op(t, t.Op, r)
	if r.err != znode.OK {
		for _, undo := range slices.Backward(d.undo) {
			undo()
		}
		d.events = d.events[:events]
	}
	if r.err != znode.OK || !changed {
		d.zxid = zxid
	} else {
		r.zxid, d.timeMs = d.zxid, max(d.timeMs, timeMs)
	}
	if t.Seq > 0 {
		s.last = t.Seq
		s.results[t.Seq] = r
	}
	return r
}

func opText(op znode.Op) string {
	switch op := op.(type) {
	case *znode.Create:
		return "create " + op.Path
	case *znode.SetData:
		return fmt.Sprintf("set %s at %d", op.Path, op.Version)
	case *znode.Delete:
		return "delete " + op.Path
	case *znode.Multi:
		var list []string
		for _, o := range op.Ops {
			list = append(list, opText(o))
		}
		return "multi " + strings.Join(list, ", ")
	}
	return fmt.Sprintf("%T", op)
}

// op carries out an operation, notes how to undo it, and reports whether it changes
// anything.
func (d *simModel) op(t *znode.Txn, op znode.Op, r *simResult) (changed bool) {
	switch op := op.(type) {
	case *znode.OpenSession:
		if op.Seen > d.zxid-1 {
			r.err = znode.DataInconsistency
			return false
		}
		r.session = session.ID(d.zxid)
		d.sessions[r.session] = &simSession{id: r.session, timeout: int64(op.TimeoutMs) * 1e6, password: op.Password, owner: t.Owner,
			results: map[int64]*simResult{}}
		d.known[r.session] = d.sessions[r.session]
		return true
	case *znode.ResumeSession:
		s := d.sessions[op.Session]
		switch {
		case s == nil || s.password != op.Password:
			r.err = znode.SessionExpired
		case op.Seen > d.zxid-1:
			r.err = znode.DataInconsistency
		default:
			s.owner, r.session = t.Owner, s.id
		}
		return false
	case *znode.CloseSession:
		return d.closeSession(op, r)
	case *znode.Multi:
		for _, o := range op.Ops {
			if !d.op(t, o, r) {
				return false
			}
		}
		return len(op.Ops) > 0
	case *znode.Create:
		return d.create(t, op, r)
	case *znode.Delete:
		n := d.nodes[op.Path]
		switch {
		case n == nil:
			r.err = znode.NoNode
		case op.Version != -1 && op.Version != n.version:
			r.err = znode.BadVersion
		case n.live > 0:
			r.err = znode.NotEmpty
		default:
			d.remove(op.Path)
			return true
		}
	case *znode.SetData:
		n := d.nodes[op.Path]
		switch {
		case n == nil:
			r.err = znode.NoNode
		case d.full && len(op.Data) > len(n.data):
			r.err = znode.QuotaExceeded
		case op.Version != -1 && op.Version != n.version:
			r.err = znode.BadVersion
		default:
			was := *n
			d.undo = append(d.undo, func() { *n = was; d.forget(op.Path) })
			n.data = string(op.Data)
			n.version++
			r.version = n.version
			d.changed(znode.EventDataChanged, op.Path)
			return true
		}
	default:
		d.sim.fail("model", "does not know %T", op)
	}
	return false
}

func (d *simModel) create(t *znode.Txn, op *znode.Create, r *simResult) bool {
	i := strings.LastIndexByte(op.Path, '/')
	path, parent := op.Path, d.nodes[op.Path[:max(i, 1)]]
	switch {
	case parent == nil:
		r.err = znode.NoNode
		return false
	case op.Mode.Sequential:
		path += fmt.Sprintf("%010d", parent.created)
	}
	if d.nodes[path] != nil {
		r.err = znode.NodeExists
		return false
	}
	if d.full {
		r.err = znode.QuotaExceeded
		return false
	}
	n := &simNode{data: string(op.Data)}
	if op.Mode.Kind == znode.Ephemeral {
		n.owner = t.Session
	}
	d.nodes[path] = n
	parent.created++
	parent.live++
	d.undo = append(d.undo, func() {
		delete(d.nodes, path)
		parent.created--
		parent.live--
		d.forget(path)
	})
	r.path = path
	d.changed(znode.EventCreated, path)
	return true
}

func (d *simModel) remove(path string) {
	n, parent := d.nodes[path], d.nodes[path[:max(strings.LastIndexByte(path, '/'), 1)]]
	delete(d.nodes, path)
	parent.live--
	d.undo = append(d.undo, func() { d.nodes[path] = n; parent.live++; d.forget(path) })
	d.changed(znode.EventDeleted, path)
}

// judgeExpiry: a session must not have expired before its timeout had passed since a heartbeat
// that was acknowledged, now or later (promise P6).
func (d *simModel) judgeExpiry(s *simSession) {
	if early := s.heard + s.timeout - s.expiredAt; s.expiredAt != 0 && early > 0 {
		d.sim.fail("P6", "session %v expired %d ms before its timeout of %d ms had passed since a heartbeat that was acknowledged",
			s.id, early/1e6, s.timeout/1e6)
	}
}

// closeSession ends a session and all that goes with it.
func (d *simModel) closeSession(op *znode.CloseSession, r *simResult) bool {
	s := d.sessions[op.Session]
	switch {
	case s == nil:
		r.err = znode.SessionExpired
		return false
	case op.Expired && s.owner != op.Owner:
		d.sim.count("expiries without effect, as the session had moved")
		r.err = znode.SessionMoved
		return false
	}
	if op.Expired {
		d.sim.count("sessions expired")
		d.sim.note("session %v expires", s.id)
		s.expiredAt = d.sim.now
		d.judgeExpiry(s)
	}
	delete(d.sessions, op.Session)
	var paths []string
	for path, n := range d.nodes {
		if n.owner == op.Session {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	for _, path := range paths {
		d.remove(path)
	}
	return true
}

// changed notes an event and what the path is from now on.
func (d *simModel) changed(typ znode.EventType, path string) {
	d.events = append(d.events, wire.Event{Type: typ, Path: path, Zxid: d.zxid})
	v := simVersion{zxid: d.zxid}
	if n := d.nodes[path]; n != nil {
		v.exists, v.data, v.version = true, n.data, n.version
	}
	d.versions[path] = append(d.versions[path], v)
}

func (d *simModel) forget(path string) { d.versions[path] = d.versions[path][:len(d.versions[path])-1] }

// at returns what a path was at a zxid.
func (d *simModel) at(path string, zxid int64) simVersion {
	list := d.versions[path]
	i := sort.Search(len(list), func(i int) bool { return list[i].zxid > zxid })
	if i == 0 {
		return simVersion{}
	}
	return list[i-1]
}

// childrenAt returns the names of a path's children at a zxid, in order.
func (d *simModel) childrenAt(parent string, zxid int64) (names []string) {
	for path := range d.versions {
		if name, below := strings.CutPrefix(path, parent+"/"); below && d.at(path, zxid).exists {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// eventsFrom returns the place of the first event behind a zxid.
func (d *simModel) eventsFrom(zxid int64) int {
	return sort.Search(len(d.events), func(i int) bool { return d.events[i].Zxid > zxid })
}

// installed judges a member that has put a received state in the place of its own.
func (d *simModel) installed(m *simMember, srv *Server, applied uint64) {
	if applied < d.first || applied > d.last() {
		d.sim.fail("agreement", "member %d got a snapshot as of entry %d, but nobody has applied that", m.id, applied)
		return
	}
	want := DigestAt{applied, formatDigest(d.facts[applied-d.first].digest)}
	if list := srv.digests.list(); list[len(list)-1] != want || formatDigest(srv.store.Digest()) != want.Digest {
		d.sim.fail("digest", "member %d got a snapshot with digest %x and tells of %v, should be %v", m.id, srv.store.Digest(), list, want)
	}
}

// compare judges a member's whole state.
func (d *simModel) compare(m *simMember) {
	for _, path := range slices.Sorted(maps.Keys(d.nodes)) {
		want := d.nodes[path]
		n, kids, err := m.srv.store.Node(path)
		switch {
		case err != nil || n == nil:
			d.sim.fail("state", "member %d lacks %s: %v", m.id, path, err)
		case string(n.Data) != want.data || n.Version != want.version || n.Owner != want.owner:
			d.sim.fail("state", "member %d has %s with %q, version %d, owner %v; should be %q, %d, %v", m.id, path, n.Data, n.Version, n.Owner,
				want.data, want.version, want.owner)
		case kids.Created != want.created || kids.Live != int64(want.live):
			d.sim.fail("state", "member %d has %s with %d children of %d ever; should be %d of %d", m.id, path, kids.Live, kids.Created, want.live, want.created)
		}
	}
	sessions := m.srv.store.Sessions(0, 1<<20)
	if len(sessions) != len(d.sessions) {
		d.sim.fail("state", "member %d has %d sessions, should have %d", m.id, len(sessions), len(d.sessions))
	}
	for i := range sessions {
		got, want := &sessions[i], d.sessions[sessions[i].ID]
		if want == nil || got.Owner != want.owner || int64(got.TimeoutMs)*1e6 != want.timeout || got.Password != want.password {
			d.sim.fail("state", "member %d has %+v, should be %+v", m.id, *got, want)
		}
	}
	if live, _, err := m.srv.store.Subtree("/"); err != nil || int(live) != len(d.nodes) {
		d.sim.fail("state", "member %d has %d znodes, should have %d: %v", m.id, live, len(d.nodes), err)
	}
}
