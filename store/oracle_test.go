package store_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/store"
	"github.com/tenure-dev/tenure/znode"
)

// entry is one log entry of one transaction.
type entry struct {
	stamp znode.Stamp
	txn   *znode.Txn
}

// oracle is the naive model of a store: znode's Tree, and a map for each window.
type oracle struct {
	tree    *znode.Tree
	windows map[session.ID]*oracleWindow
}

type oracleWindow struct {
	last, acked int64
	results     map[int64]znode.Result
}

func newOracle() *oracle {
	return &oracle{tree: znode.NewTree(), windows: make(map[session.ID]*oracleWindow)}
}

func (o *oracle) apply(e entry) store.Outcome {
	t := e.txn
	var w *oracleWindow
	if s := o.tree.Session(t.Session); t.Seq > 0 && s != nil && (s.Owner == t.Owner || s.Owner.Bind == 0) {
		if w = o.windows[t.Session]; w == nil {
			w = &oracleWindow{results: make(map[int64]znode.Result)}
			o.windows[t.Session] = w
		}
		if t.Seq > w.last+1 {
			return store.Outcome{Gap: true}
		}
		for w.acked < min(t.Acked, w.last) {
			w.acked++
			delete(w.results, w.acked)
		}
		if t.Seq <= w.acked {
			return store.Outcome{Result: znode.Result{Err: znode.BadArguments, Zxid: o.tree.LastZxid()}}
		}
		if t.Seq <= w.last {
			return store.Outcome{Result: w.results[t.Seq]}
		}
	}
	result, delta := o.tree.Apply(e.stamp, t)
	for _, s := range delta.Sessions {
		if s.Session == nil {
			delete(o.windows, s.ID)
		}
	}
	if w != nil && o.windows[t.Session] == w {
		w.last = t.Seq
		w.results[t.Seq] = result
	}
	return store.Outcome{Result: result, Changes: delta.Changes, Sessions: delta.Sessions}
}

// generator makes random transactions that mostly make sense in the oracle's state.
type generator struct {
	r      *rand.Rand
	oracle *oracle
	open   []session.ID
	timeMs int64
}

// newGenerator prints its seed; TENURE_SEED=n replays it.
func newGenerator(t *testing.T, seed uint64) *generator {
	if text := os.Getenv("TENURE_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("replay: TENURE_SEED=%d go test ./store -run '^%s$'", seed, t.Name())
	return &generator{r: rand.New(rand.NewPCG(seed, 1)), oracle: newOracle(), timeMs: 1_700_000_000_000}
}

// entries makes n entries with the outcomes that the oracle says.
func (g *generator) entries(n int) (all []entry, outcomes []store.Outcome) {
	for range n {
		g.timeMs += g.r.Int64N(20) - 2
		e := entry{znode.Stamp{TimeMs: g.timeMs}, g.txn()}
		out := g.oracle.apply(e)
		for _, s := range out.Sessions {
			g.note(s)
		}
		all, outcomes = append(all, e), append(outcomes, out)
	}
	return all, outcomes
}

func (g *generator) note(s znode.SessionEffect) {
	if slices.Contains(g.open, s.ID) && s.Session != nil {
		return // resumed
	}
	if s.Session != nil {
		g.open = append(g.open, s.ID)
		return
	}
	for i, id := range g.open {
		if id == s.ID {
			g.open = append(g.open[:i], g.open[i+1:]...)
			return
		}
	}
}

func (g *generator) txn() *znode.Txn {
	p := g.r.IntN(100)
	if len(g.open) < 3 || p < 2 {
		op := &znode.OpenSession{TimeoutMs: 1000 + int32(p)}
		op.Password[0] = byte(p)
		return &znode.Txn{Op: op, Owner: g.owner()}
	}
	id := g.open[g.r.IntN(len(g.open))]
	switch {
	case p < 4:
		return &znode.Txn{Op: &znode.CloseSession{Session: id, Expired: true, Owner: g.ownerOf(id)}}
	case p < 8:
		op := &znode.ResumeSession{Session: id, Password: g.oracle.tree.Session(id).Password}
		return &znode.Txn{Op: op, Owner: g.owner()}
	case p < 9:
		return g.number(&znode.Txn{Session: id, Op: &znode.CloseSession{Session: id}})
	case p < 16:
		return &znode.Txn{Op: &znode.Reap{Path: g.path()}}
	case p < 19:
		return &znode.Txn{Op: g.op()}
	}
	return g.number(&znode.Txn{Session: id, Op: g.op()})
}

// owner is one of a few connections, or nobody.
func (g *generator) owner() session.Owner {
	bind := uint64(g.r.IntN(4))
	return session.Owner{Origin: min(bind, 1), Bind: bind}
}

// ownerOf is mostly the session's owner.
func (g *generator) ownerOf(id session.ID) session.Owner {
	if g.r.IntN(8) == 0 {
		return g.owner()
	}
	return g.oracle.tree.Session(id).Owner
}

// number gives most writes a Seq: mostly the next, sometimes one again or too early.
func (g *generator) number(t *znode.Txn) *znode.Txn {
	t.Owner = g.ownerOf(t.Session)
	var last, acked int64
	if w := g.oracle.windows[t.Session]; w != nil {
		last, acked = w.last, w.acked
	}
	switch p := g.r.IntN(100); {
	case p < 20:
		return t
	case p < 30 && last > 0:
		t.Seq = 1 + g.r.Int64N(last)
	case p < 33:
		t.Seq = last + 2
	default:
		t.Seq = last + 1
	}
	if g.r.IntN(3) == 0 {
		t.Acked = acked + g.r.Int64N(last-acked+2)
	}
	return t
}

func (g *generator) path() string {
	path := ""
	for range 1 + g.r.IntN(1+g.r.IntN(3)) {
		path += "/" + string("abc!"[g.r.IntN(4)])
	}
	return path
}

func (g *generator) data() []byte {
	switch g.r.IntN(8) {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return bytes.Repeat([]byte{byte(g.r.IntN(256))}, store.InlineDataMax+g.r.IntN(3))
	}
	return []byte(strconv.Itoa(g.r.IntN(1000)))
}

func (g *generator) simpleOp() znode.Op {
	switch p := g.r.IntN(10); {
	case p < 5:
		c := &znode.Create{Path: g.path(), Data: g.data(), ACL: znode.OpenACL, WantStat: p == 0}
		c.Mode = znode.Mode{Kind: znode.Kind(g.r.IntN(4)), Sequential: p == 1}
		if c.Mode.Kind == znode.TTL {
			c.TTLMs = 1 + g.r.Int64N(200)
		}
		if c.Mode.Kind == znode.Container {
			c.Mode.Sequential = false
		}
		return c
	case p < 7:
		return &znode.SetData{Path: g.path(), Data: g.data(), Version: -1}
	case p < 9:
		return &znode.Delete{Path: g.path(), Version: -1}
	}
	return &znode.Check{Path: g.path(), Version: -1}
}

func (g *generator) op() znode.Op {
	switch p := g.r.IntN(20); {
	case p == 0:
		acl := []znode.ACL{{Perms: znode.PermAll, Scheme: "world", ID: "anyone"}}
		if g.r.IntN(2) == 0 {
			acl = append(acl, znode.ACL{Perms: znode.PermRead, Scheme: "ip", ID: "10.0.0.1"})
		}
		return &znode.SetACL{Path: g.path(), ACL: acl, Version: -1}
	case p < 4:
		m := &znode.Multi{}
		for range 1 + g.r.IntN(4) {
			m.Ops = append(m.Ops, g.simpleOp())
		}
		return m
	}
	for {
		if op := g.simpleOp(); !isCheck(op) {
			return op
		}
	}
}

func isCheck(op znode.Op) bool {
	_, ok := op.(*znode.Check)
	return ok
}

func mustOpen(t testing.TB, fs vfs.FS, o store.Options) *store.Store {
	t.Helper()
	o.FS = fs
	s, err := store.Open("state", o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustClose(t testing.TB, s *store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// play applies entries, the first of which has index first, in batches of size.
func play(t testing.TB, s *store.Store, entries []entry, size int) (outcomes []store.Outcome) {
	t.Helper()
	for len(entries) > 0 {
		n := min(size, len(entries))
		b := s.Begin(s.Applied() + uint64(n))
		for _, e := range entries[:n] {
			outcomes = append(outcomes, b.Apply(e.stamp, e.txn))
		}
		if err := b.Commit(); err != nil {
			t.Fatal(err)
		}
		entries = entries[n:]
	}
	return outcomes
}

// write applies ops as the server itself, in one batch, all of which must succeed.
func write(t testing.TB, s *store.Store, ops ...znode.Op) []store.Outcome {
	t.Helper()
	var entries []entry
	for _, op := range ops {
		entries = append(entries, entry{znode.Stamp{TimeMs: 1000}, &znode.Txn{Op: op}})
	}
	outcomes := play(t, s, entries, len(entries))
	for i, out := range outcomes {
		if out.Result.Err != znode.OK {
			t.Fatalf("%T %+v: %v", ops[i], ops[i], out.Result.Err)
		}
	}
	return outcomes
}

func create(path string, data []byte) *znode.Create {
	return &znode.Create{Path: path, Data: data, ACL: znode.OpenACL}
}

// compare fails where the store's state differs from the tree's.
func compare(t testing.TB, s *store.Store, tree *znode.Tree) {
	t.Helper()
	count := int64(0)
	tree.All(func(path string, want *znode.Node, wantC znode.Children) bool {
		got, gotC, err := s.Node(path)
		if err != nil || !reflect.DeepEqual(got, want) || gotC != wantC {
			t.Fatalf("%s is %+v %+v (%v), want %+v %+v", path, got, gotC, err, want, wantC)
		}
		stat, life, ok, err := s.Stat(path)
		if err != nil || !ok || stat != znode.StatOf(want, wantC) || life != want.Lifetime() {
			t.Fatalf("stat of %s is %+v %+v %v (%v)", path, stat, life, ok, err)
		}
		names, err := s.List(path, "", 0)
		if err != nil || fmt.Sprint(names) != fmt.Sprint(tree.List(path)) {
			t.Fatalf("children of %s are %v (%v), want %v", path, names, err, tree.List(path))
		}
		count++
		return true
	})
	c := s.Counts()
	nodes, size := tree.Subtree("/")
	if c.Znodes != nodes || c.DataBytes != size || count != nodes {
		t.Fatalf("counts are %+v, want %d znodes with %d bytes", c, nodes, size)
	}
	compareSessions(t, s, tree)
	if s.LastZxid() != tree.LastZxid() || s.LastTimeMs() != tree.LastTimeMs() {
		t.Fatalf("at zxid %d and %d ms, want %d and %d", s.LastZxid(), s.LastTimeMs(), tree.LastZxid(), tree.LastTimeMs())
	}
}

func compareSessions(t testing.TB, s *store.Store, tree *znode.Tree) {
	t.Helper()
	var sessions, ephemerals int64
	tree.Sessions(func(want *session.Session) bool {
		sessions++
		if got := s.Session(want.ID); got == nil || *got != *want {
			t.Fatalf("session %s is %+v, want %+v", want.ID, got, want)
		}
		var paths []string
		tree.Ephemerals(want.ID, func(path string) bool { paths = append(paths, path); return true })
		got, err := s.Ephemerals(want.ID, "", 0)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(paths) {
			t.Fatalf("ephemerals of %s are %v (%v), want %v", want.ID, got, err, paths)
		}
		ephemerals += int64(len(paths))
		return true
	})
	if c := s.Counts(); c.Sessions != sessions || c.Ephemerals != ephemerals || int64(len(s.Sessions(0, 0))) != sessions {
		t.Fatalf("counts are %+v, want %d sessions and %d ephemerals", c, sessions, ephemerals)
	}
}

// mustCheck closes nothing: the store must be closed already.
func mustCheck(t testing.TB, fs vfs.FS) {
	t.Helper()
	found, err := store.Check("state", store.Options{FS: fs})
	problems := found.Problems
	if err != nil || len(problems) > 0 {
		t.Fatalf("check: %v (%v)", problems, err)
	}
}
