package store

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// Batch collects the effects of one log entry, or of several in a row. It belongs to
// the writer. A Batch that was begun must be committed, and is not valid afterwards.
type Batch struct {
	s     *Store
	open  bool
	view  view
	meta  meta  // what it will be at Commit; the counts only from Commit on
	err   error // the first of a read; everything after it is void
	nodes overlay
	// ephemerals tells per session which paths this batch added (true) or removed.
	ephemerals   map[session.ID]map[string]bool
	sessions     map[session.ID]*session.Session // nil = closed
	sessionOrder []session.ID                    // first touched first
	windows      []*window                       // touched ones
	history      []byte                          // the record to be written
	historyCount int64
	historyLast  int64

	pebble *pebble.Batch // between Prepare and the end of Commit
	buf    []byte
	spare  [][]byte // for the results of sessions
}

// Outcome is what one transaction led to.
type Outcome struct {
	Result znode.Result
	// Changes are for watches; nil for a duplicate.
	Changes []znode.Change
	// Sessions opened, resumed or closed by it, in order; nil for a duplicate.
	Sessions []znode.SessionEffect
	// Excesses are quotas that it exceeded.
	Excesses []znode.Excess
	// Gap: the write's Seq is not the next of its session, or the session keeps too
	// many results (ResultsMax); nothing was done, and the connection that sent it
	// must be closed so that the client resends in order.
	Gap bool
}

func (b *Batch) init(s *Store) {
	b.s = s
	b.view.b = b
	b.nodes.index = make(map[string]int)
	b.ephemerals = make(map[session.ID]map[string]bool)
	b.sessions = make(map[session.ID]*session.Session)
}

// Begin starts the batch of the log entry at index; for several entries it is the
// index of the last. Index must be Applied()+1 or more, and the batch begun before
// must have been committed.
func (s *Store) Begin(index uint64) *Batch {
	if applied := s.Applied(); index <= applied {
		panic(fmt.Sprintf("store: entry %d begun, but %d is applied", index, applied))
	}
	return s.begin(index)
}

func (s *Store) begin(index uint64) *Batch {
	b := &s.batch
	if b.open {
		panic(fmt.Sprintf("store: entry %d begun, but %d is not committed", index, b.meta.applied))
	}
	b.open = true
	b.meta = *s.now.Load()
	b.meta.applied = index
	return b
}

// reset empties b for the next batch. It keeps memory of a usual size.
func (b *Batch) reset() {
	b.nodes.reset()
	clear(b.ephemerals)
	clear(b.sessions)
	b.sessionOrder = b.sessionOrder[:0]
	clear(b.windows)
	b.windows = b.windows[:0]
	b.history, b.historyCount, b.historyLast = recycle(b.history), 0, 0
	b.buf = recycle(b.buf)
	b.open = false
}

// recycle returns buf empty, or nothing if it grew beyond what is usual.
func recycle(buf []byte) []byte {
	const usual = 1 << 20
	if cap(buf) > usual {
		return nil
	}
	return buf[:0]
}

// Apply runs one transaction after those applied earlier in the batch.
//
// A write with a Seq is applied exactly once. If it is the next of its session it is
// applied, and its result, success or not, is kept until a later write of the
// session acknowledges it. If it was applied before, Apply returns the kept result
// and does nothing; if that was acknowledged already, the result is BadArguments. If
// it comes before its time, Outcome.Gap is set.
func (b *Batch) Apply(stamp znode.Stamp, t *znode.Txn) Outcome {
	w, known := b.admit(t)
	if known != nil {
		return *known
	}
	result, delta := znode.Apply(&b.view, stamp, t)
	if b.err != nil {
		return Outcome{Result: b.refusal(znode.SystemError)}
	}
	b.merge(&delta)
	if w != nil && b.err == nil {
		b.keep(w, t.Seq, &result)
	}
	return Outcome{Result: result, Changes: delta.Changes, Sessions: delta.Sessions, Excesses: delta.Excesses}
}

// refusal is the result of a transaction that Apply never saw.
func (b *Batch) refusal(code znode.Error) znode.Result {
	return znode.Result{Err: code, Zxid: b.meta.zxid}
}

// merge adds a transaction's effects to the batch.
func (b *Batch) merge(delta *znode.Delta) {
	for i := range delta.Nodes {
		b.mergeNode(&delta.Nodes[i])
	}
	for i := range delta.Children {
		e := &delta.Children[i]
		d := b.touch(e.Path)
		if d.children = e.Children; e.Gone {
			d.children = znode.Children{}
		}
	}
	for _, e := range delta.Sessions {
		if _, ok := b.sessions[e.ID]; !ok {
			b.sessionOrder = append(b.sessionOrder, e.ID)
		}
		b.sessions[e.ID] = e.Session
		if e.Session == nil {
			b.closeWindow(e.ID)
		}
	}
	if delta.Zxid != 0 {
		b.meta.zxid, b.meta.timeMs = delta.Zxid, delta.TimeMs
	}
	if len(delta.Changes) > 0 && delta.Zxid != 0 {
		if len(b.history) == 0 {
			b.history = append(b.history, recordVersion)
		}
		b.history = appendHistoryEntry(b.history, delta.Zxid, delta.Changes)
		b.historyCount += int64(len(delta.Changes))
		b.historyLast = delta.Zxid
	}
}

func (b *Batch) mergeNode(e *znode.NodeEffect) {
	d := b.nodes.get(e.Path)
	if d == nil {
		// Prev is what view returned just now: no need to look again.
		d = b.nodes.add(e.Path, e.Prev, b.committedChildren(e.Path, e.Prev))
	}
	if d.node != nil && d.node.Kind == znode.Ephemeral {
		b.noteEphemeral(d.node.Owner, e.Path, false)
	}
	if e.Node != nil && e.Node.Kind == znode.Ephemeral {
		b.noteEphemeral(e.Node.Owner, e.Path, true)
	}
	d.node = e.Node
}

func (b *Batch) noteEphemeral(id session.ID, path string, there bool) {
	paths := b.ephemerals[id]
	if paths == nil {
		paths = make(map[string]bool)
		b.ephemerals[id] = paths
	}
	paths[path] = there
}

// touch returns path's place in the overlay, with what is committed if it is new.
// It is valid until the next one.
func (b *Batch) touch(path string) *dirty {
	if d := b.nodes.get(path); d != nil {
		return d
	}
	node, children := b.committed(path)
	return b.nodes.add(path, node, children)
}

// committed returns what path was before the batch.
func (b *Batch) committed(path string) (*znode.Node, znode.Children) {
	node, children, err := b.s.Node(path)
	if err != nil && b.err == nil {
		b.err = err
	}
	return node, children
}

// committedChildren returns the counters that node had before the batch.
func (b *Batch) committedChildren(path string, node *znode.Node) znode.Children {
	if !mayHaveChildren(node) {
		return znode.Children{}
	}
	if cached, children := b.s.cache.get(path); cached != nil {
		return children
	}
	children, err := readChildren(b.s.db, path)
	if err != nil && b.err == nil {
		b.err = err
	}
	return children
}

// overlay is what the batch changed, by path, first touched first.
type overlay struct {
	index map[string]int
	list  []dirty
}

// dirty is one path before (base) and after the batch so far.
type dirty struct {
	path                   string
	base, node             *znode.Node
	baseChildren, children znode.Children
}

func (o *overlay) get(path string) *dirty {
	if len(o.list) == 0 {
		return nil
	}
	if i, ok := o.index[path]; ok {
		return &o.list[i]
	}
	return nil
}

func (o *overlay) add(path string, node *znode.Node, c znode.Children) *dirty {
	o.index[path] = len(o.list)
	o.list = append(o.list, dirty{path: path, base: node, node: node, baseChildren: c, children: c})
	return &o.list[len(o.list)-1]
}

func (o *overlay) reset() {
	const usual = 4096
	if len(o.list) > usual {
		*o = overlay{index: make(map[string]int)}
		return
	}
	clear(o.index)
	clear(o.list)
	o.list = o.list[:0]
}
