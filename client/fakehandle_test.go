package client

import (
	"maps"
	"slices"
	"strings"

	"github.com/gorilla/websocket"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// handle answers one request; false ends the connection.
func (f *fakeEnsemble) handle(fc *fakeConn, m *fakeMember, req *wire.Request) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, seenRequest{fc.number, req.Op})
	if fc.closed || fc.sess.conn != fc {
		return false
	}
	if m.mute {
		return true
	}
	if f.sessions[fc.sess.s.ID] == nil {
		return false
	}
	f.touch(fc.sess)
	switch judge(f.before, fc, req) {
	case cut:
		return false
	case ignore:
		return true
	}
	rep := &wire.Reply{Xid: req.Xid, Op: req.Op, Err: req.Err}
	if req.Err == znode.OK {
		rep.Body, rep.Err = f.answer(fc, req)
	}
	rep.Zxid = f.tree.LastZxid()
	switch judge(f.after, fc, req) {
	case cut:
		fc.pending = nil
		return false
	case ignore:
		return true
	}
	fc.push(wire.Jute{}.AppendReply(nil, rep))
	if req.Op == wire.OpCloseSession {
		fc.closeWith(websocket.CloseNormalClosure)
	}
	return true
}

func judge(hook func(*fakeConn, *wire.Request) verdict, fc *fakeConn, req *wire.Request) verdict {
	if hook == nil {
		return goOn
	}
	return hook(fc, req)
}

func (f *fakeEnsemble) answer(fc *fakeConn, req *wire.Request) (any, znode.Error) {
	switch b := req.Body.(type) {
	case znode.Op:
		return f.write(fc, req, b), znode.OK
	case *wire.PathWatch:
		return f.read(fc, req.Op, b)
	case *wire.List:
		return f.list(b)
	case *wire.PathOnly:
		return f.pathOnly(fc, req.Op, b.Path)
	case *wire.AddWatch:
		if b.Mode == 1 {
			fc.watches.recursive[b.Path] = true
		} else {
			fc.watches.persistent[b.Path] = true
		}
		return &wire.AddWatchReply{}, znode.OK
	case *wire.SetWatches:
		return f.rewatch(fc, b), znode.OK
	case *wire.RemoveWatches:
		return nil, fc.watches.remove(b)
	case *wire.Auth:
		if f.secret != "" && string(b.Data) != f.secret {
			return nil, znode.AuthFailed
		}
		ids, code := znode.Authenticate(b.Scheme, b.Data, "")
		fc.auth = append(fc.auth, ids...)
		return nil, code
	case *wire.Renew:
		r := &wire.RenewReply{TimeoutMs: fc.sess.s.TimeoutMs, Held: make([]znode.Error, len(b.Held))}
		for i, h := range b.Held {
			if n := f.tree.Node(h.Path); n == nil || n.Czxid != h.Czxid {
				r.Held[i] = znode.NoNode
			}
		}
		return r, znode.OK
	}
	switch req.Op {
	case wire.OpCloseSession:
		f.endSession(fc.sess, false)
	case wire.OpWhoAmI:
		return &wire.IdentitiesReply{Identities: fc.auth}, znode.OK
	case wire.OpStatus:
		return &wire.StatusReply{Figures: []wire.Figure{{Name: "role", Value: "fake"}}}, znode.OK
	case wire.OpSessions:
		return &wire.SessionsReply{Sessions: []wire.SessionInfo{{ID: fc.sess.s.ID}}}, znode.OK
	case wire.OpMembers:
		return &wire.MembersReply{Cluster: 7}, znode.OK
	case wire.OpChangeMembers, wire.OpTransferLead:
		return nil, znode.ReconfigInProgress
	case wire.OpKillSession, wire.OpPing:
	default:
		return nil, znode.Unimplemented
	}
	return nil, znode.OK
}

func (f *fakeEnsemble) write(fc *fakeConn, req *wire.Request, op znode.Op) *znode.Result {
	results := fc.sess.results
	maps.DeleteFunc(results, func(seq int64, _ *znode.Result) bool { return seq <= req.Acked })
	if r := results[req.Seq]; r != nil {
		return r
	}
	r := f.apply(&znode.Txn{Session: fc.sess.s.ID, Seq: req.Seq, Acked: req.Acked, Auth: fc.auth, Op: op})
	results[req.Seq] = &r
	return &r
}

func (f *fakeEnsemble) stat(path string) (*znode.Node, znode.Stat) {
	n := f.tree.Node(path)
	if n == nil {
		return nil, znode.Stat{}
	}
	return n, znode.StatOf(n, f.tree.Children(path))
}

func (f *fakeEnsemble) read(fc *fakeConn, op wire.Op, b *wire.PathWatch) (any, znode.Error) {
	n, stat := f.stat(b.Path)
	if b.Watch && (n != nil || op == wire.OpExists) {
		if op == wire.OpGetChildren2 {
			fc.watches.child[b.Path] = true
		} else {
			fc.watches.data[b.Path] = true
		}
	}
	switch {
	case n == nil:
		return nil, znode.NoNode
	case !znode.AccessRead.Allowed(n.ACL, fc.auth) && op != wire.OpExists:
		return nil, znode.NoAuth
	case op == wire.OpExists:
		return &wire.StatReply{Stat: stat}, znode.OK
	case op == wire.OpGetData:
		return &wire.DataReply{Data: n.Data, Stat: stat}, znode.OK
	}
	names := f.tree.List(b.Path)
	if len(names) > fakeListMax {
		return nil, znode.BadArguments
	}
	return &wire.ChildrenReply{Names: names, Stat: stat}, znode.OK
}

// fakeListMax is how many names fit one reply.
const fakeListMax = 20_000

func (f *fakeEnsemble) list(b *wire.List) (any, znode.Error) {
	n, stat := f.stat(b.Path)
	if n == nil {
		return nil, znode.NoNode
	}
	names := f.tree.List(b.Path)
	from, found := slices.BinarySearch(names, b.After)
	if found {
		from++
	}
	names = names[from:]
	limit := fakeListMax
	if b.Limit > 0 {
		limit = min(limit, int(b.Limit))
	}
	r := &wire.ListReply{Names: names, Stat: stat, Lifetime: n.Lifetime()}
	if len(names) > limit {
		r.Names, r.More = names[:limit], true
	}
	if b.Stats {
		for _, name := range r.Names {
			n, s := f.stat(znode.Join(b.Path, name))
			r.Stats, r.Lifetimes = append(r.Stats, s), append(r.Lifetimes, n.Lifetime())
		}
	}
	return r, znode.OK
}

func (f *fakeEnsemble) pathOnly(fc *fakeConn, op wire.Op, path string) (any, znode.Error) {
	switch op {
	case wire.OpSync:
		return &wire.PathReply{Path: path}, znode.OK
	case wire.OpGetEphemerals:
		r := &wire.PathsReply{}
		f.tree.Ephemerals(fc.sess.s.ID, func(p string) bool {
			if strings.HasPrefix(p, path) {
				r.Paths = append(r.Paths, p)
			}
			return true
		})
		return r, znode.OK
	}
	n, stat := f.stat(path)
	if n == nil {
		return nil, znode.NoNode
	}
	if op == wire.OpGetACL {
		return &wire.ACLReply{ACL: n.ACL, Stat: stat}, znode.OK
	}
	count, _ := f.tree.Subtree(path)
	return &wire.CountReply{Count: int32(count - 1)}, znode.OK
}

// rewatch plays the history to the new watches alone, and then adds what is left of
// them to the connection's.
func (f *fakeEnsemble) rewatch(fc *fakeConn, b *wire.SetWatches) *wire.RewatchReply {
	w := newFakeWatches()
	for i, list := range [][]string{b.Data, b.Exist, b.Child, b.Persistent, b.Recursive} {
		for _, path := range list {
			[]map[string]bool{w.data, w.data, w.child, w.persistent, w.recursive}[i][path] = true
		}
	}
	complete := b.RelZxid >= f.forgotten
	if complete {
		for i := range f.history {
			if f.history[i].Zxid > b.RelZxid {
				w.match(&f.history[i], fc.event)
			}
		}
	} else {
		for _, path := range append(b.Persistent, b.Recursive...) {
			fc.event(wire.Event{Type: wire.EventGap, Path: path, Zxid: f.tree.LastZxid()})
		}
	}
	maps.Copy(fc.watches.data, w.data)
	maps.Copy(fc.watches.child, w.child)
	maps.Copy(fc.watches.persistent, w.persistent)
	maps.Copy(fc.watches.recursive, w.recursive)
	return &wire.RewatchReply{Complete: complete}
}

// fakeWatches are the watches of one connection.
type fakeWatches struct{ data, child, persistent, recursive map[string]bool }

func newFakeWatches() fakeWatches {
	return fakeWatches{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
}

// match emits what d means to w, once per path and type, and uses up one-shot watches.
func (w *fakeWatches) match(d *znode.Delta, emit func(wire.Event)) {
	for _, ch := range d.Changes {
		hit := w.persistent[ch.Path] || w.data[ch.Path]
		delete(w.data, ch.Path)
		if ch.Type == znode.EventDeleted {
			hit = hit || w.child[ch.Path]
			delete(w.child, ch.Path)
		}
		for p := ch.Path; ; p, _ = znode.Split(p) {
			hit = hit || w.recursive[p]
			if p == znode.Root {
				break
			}
		}
		if hit {
			emit(wire.Event{Type: ch.Type, Path: ch.Path, Zxid: d.Zxid})
		}
		if ch.Type == znode.EventDataChanged {
			continue
		}
		parent, _ := znode.Split(ch.Path)
		if w.child[parent] || w.persistent[parent] {
			emit(wire.Event{Type: znode.EventChildrenChanged, Path: parent, Zxid: d.Zxid})
		}
		delete(w.child, parent)
	}
}

func (w *fakeWatches) remove(b *wire.RemoveWatches) znode.Error {
	set := map[wire.WatcherType]map[string]bool{
		wire.WatcherChildren: w.child, wire.WatcherData: w.data,
		wire.WatcherPersistent: w.persistent, wire.WatcherRecursive: w.recursive,
	}[b.Type]
	if !set[b.Path] {
		return znode.NoWatcher
	}
	delete(set, b.Path)
	return znode.OK
}
