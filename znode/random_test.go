package znode_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

var seedFlag = flag.Uint64("seed", 0, "run the random tests with this seed only")

// TestRandomAgainstModel runs random transactions on a Tree and on the naive model
// and compares outcome, events and the whole state after each; Verify must find
// nothing, and the usage of a quota must be what a recount gives. A failure prints
// the line that replays it.
func TestRandomAgainstModel(t *testing.T) {
	judged := []uint64{1, 2, 3} // by what they reach together: any other seed may miss what is rare
	seeds := append(slices.Clone(judged), rand.Uint64())
	if *seedFlag != 0 {
		judged, seeds = nil, []uint64{*seedFlag}
	}
	reached := map[znode.Error]int{}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("replay: go test ./znode -run TestRandomAgainstModel -seed=%d", seed)
				}
			}()
			g := newGenerator(seed)
			for range 2500 {
				g.step(t)
			}
			if slices.Contains(judged, seed) {
				for e, n := range g.errors {
					reached[e] += n
				}
			}
		})
	}
	if judged == nil || t.Failed() {
		return
	}
	if n := reached[znode.OK]; n < 1000 {
		t.Errorf("only %d transactions succeeded: the generator is no use", n)
	}
	for _, e := range []znode.Error{
		znode.NoNode, znode.NodeExists, znode.NotEmpty, znode.BadVersion, znode.NoAuth, znode.BadArguments,
		znode.NoChildrenForEphemerals, znode.SessionExpired, znode.SessionMoved, znode.DataInconsistency, znode.InvalidACL,
	} {
		if reached[e] == 0 {
			t.Errorf("no transaction failed with %v: the generator is no use", e)
		}
	}
}

// generator drives both implementations.
type generator struct {
	r        *rand.Rand
	tree     *znode.Tree
	model    *model
	sessions []session.ID // also some that have ended
	timeMs   int64
	errors   map[znode.Error]int
}

func newGenerator(seed uint64) *generator {
	g := &generator{
		r: rand.New(rand.NewPCG(seed, 0)), tree: znode.NewTree(), model: newModel(),
		timeMs: 1000, errors: map[znode.Error]int{},
	}
	return g
}

func (g *generator) step(t *testing.T) {
	g.timeMs += g.r.Int64N(60) - 20
	txn := g.txn()
	stamp := znode.Stamp{TimeMs: g.timeMs}
	want := g.model.apply(stamp, txn)
	got, delta := g.tree.Apply(stamp, txn)
	g.errors[got.Err]++
	if _, opened := txn.Op.(*znode.OpenSession); opened && got.Err == znode.OK {
		g.sessions = append(g.sessions, got.Session.ID)
		if int64(got.Session.ID) != g.model.zxid {
			t.Fatalf("session id %d, model has zxid %d", got.Session.ID, g.model.zxid)
		}
	}
	describe := fmt.Sprintf("%T %+v as %d of %v", txn.Op, txn.Op, txn.Session, txn.Owner)
	if a, b := outcomeOf(&got), want.String(); a != b {
		t.Fatalf("%s:\n got %s\nwant %s", describe, a, b)
	}
	if got.Zxid != g.model.zxid || g.tree.LastZxid() != g.model.zxid || g.tree.LastTimeMs() != g.model.timeMs {
		t.Fatalf("%s: zxid %d, last %d at %d ms; model %d at %d", describe,
			got.Zxid, g.tree.LastZxid(), g.tree.LastTimeMs(), g.model.zxid, g.model.timeMs)
	}
	if a, b := eventsOf(&delta), strings.Join(g.model.events, ", "); a != b && got.Err == znode.OK {
		t.Fatalf("%s: events\n got %s\nwant %s", describe, a, b)
	}
	if got.Err != znode.OK && len(delta.Nodes)+len(delta.Children)+len(delta.Sessions)+len(delta.Changes) > 0 {
		t.Fatalf("%s: failed with %v and has effects", describe, got.Err)
	}
	// A failure has no effects, so that the state need not be compared after each.
	if got.Err == znode.OK || g.r.IntN(16) == 0 {
		if a, b := dumpTree(g.tree), dumpModel(g.model); a != b {
			t.Fatalf("%s: state\n got %s\nwant %s", describe, a, b)
		}
		for _, p := range znode.Verify(g.tree) {
			t.Fatalf("%s: %v", describe, p)
		}
	}
}

func (o outcome) String() string {
	s := fmt.Sprintf("%v path=%q stat=%q", o.err, o.path, o.stat)
	for _, sub := range o.sub {
		s += " {" + sub.String() + "}"
	}
	return s
}

func outcomeOf(r *znode.Result) string {
	o := outcome{err: r.Err, path: r.Path}
	if r.Kind == znode.ResultCreateStat || r.Kind == znode.ResultSetData || r.Kind == znode.ResultSetACL {
		o.stat = statLine(r.Stat)
	}
	s := fmt.Sprintf("%v path=%q stat=%q", o.err, o.path, o.stat)
	for _, sub := range r.Sub {
		s += " {" + outcomeOf(&sub) + "}"
	}
	return s
}

func eventsOf(d *znode.Delta) string {
	var events []string
	for _, c := range d.Changes {
		events = append(events, changeNames[c.Type]+" "+c.Path)
	}
	return strings.Join(events, ", ")
}

func dumpTree(tree *znode.Tree) string {
	var lines []string
	tree.All(func(path string, n *znode.Node, c znode.Children) bool {
		lines = append(lines, fmt.Sprint(path, " ", statLine(znode.StatOf(n, c)), " ", mdata(n.Data), " ", znode.FormatACL(n.ACL)))
		return true
	})
	tree.Sessions(func(s *session.Session) bool {
		lines = append(lines, fmt.Sprint("session ", int64(s.ID), s.Password[0], s.Owner))
		return true
	})
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func dumpModel(m *model) string {
	var lines []string
	m.walk(func(path string, n *mnode) {
		lines = append(lines, fmt.Sprint(path, " ", n.stat(), " ", n.data, " ", znode.FormatACL(n.acl)))
	})
	for id, s := range m.sessions {
		lines = append(lines, fmt.Sprint("session ", id, s.password, s.owner))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (g *generator) txn() *znode.Txn {
	txn := &znode.Txn{}
	if len(g.sessions) > 0 && g.r.IntN(5) > 0 {
		// Mostly one of the newest sessions, at times one that has ended.
		newest := len(g.sessions) - 1
		txn.Session = g.sessions[max(0, newest-g.r.IntN(3))]
		txn.Auth = []znode.Identity{{Scheme: "ip", ID: "127.0.0.1"}}
		if g.r.IntN(2) == 0 {
			txn.Auth = append(txn.Auth, znode.Identity{Scheme: "digest", ID: "u:h"})
		}
	}
	if s := g.tree.Session(txn.Session); s != nil && g.r.IntN(8) > 0 {
		txn.Owner = s.Owner
	} else {
		txn.Owner = g.owner() // by chance the session's
	}
	switch p := g.r.IntN(100); {
	case p < 4:
		txn.Owner, txn.Op = g.owner(), &znode.OpenSession{TimeoutMs: 1000, Password: g.password(), Seen: g.seen()}
	case p < 6 && len(g.sessions) > 0:
		txn.Op = &znode.CloseSession{Session: g.sessions[g.r.IntN(len(g.sessions))]}
	case p < 8 && len(g.sessions) > 0:
		txn.Session, txn.Op = 0, &znode.CloseSession{Session: g.sessions[g.r.IntN(len(g.sessions))], Expired: true, Owner: g.owner()}
	case p < 12 && len(g.sessions) > 0:
		newest := len(g.sessions) - 1
		txn.Session, txn.Owner = 0, g.owner()
		txn.Op = &znode.ResumeSession{Session: g.sessions[max(0, newest-g.r.IntN(3))], Password: g.password(), Seen: g.seen()}
	case p < 16:
		txn.Session, txn.Op = 0, &znode.Reap{Path: g.path()}
	case p < 22:
		txn.Op = &znode.SetACL{Path: g.path(), ACL: g.acl(), Version: g.version()}
	case p < 40:
		m := &znode.Multi{}
		for range g.r.IntN(14) {
			m.Ops = append(m.Ops, g.op(true))
		}
		txn.Op = m
	default:
		txn.Op = g.op(false)
	}
	return txn
}

// owner is one of few connections, so that they meet; at times nobody.
func (g *generator) owner() session.Owner {
	bind := uint64(g.r.IntN(4))
	return session.Owner{Origin: min(bind, 1), Bind: bind}
}

func (g *generator) password() (p [session.PasswordSize]byte) {
	p[0] = byte(g.r.IntN(4) / 3)
	return p
}

// seen is mostly what a client can have seen, at times more.
func (g *generator) seen() int64 { return g.tree.LastZxid() + 1 - g.r.Int64N(10) }

func (g *generator) op(inMulti bool) znode.Op {
	switch p := g.r.IntN(10); {
	case p < 5:
		op := &znode.Create{Path: g.path(), Data: g.data(), ACL: g.acl(), WantStat: g.r.IntN(2) == 0}
		op.Mode = znode.Mode{Kind: znode.Kind(g.r.IntN(4)), Sequential: g.r.IntN(5) == 0}
		if op.Mode.Kind == znode.TTL {
			op.TTLMs = g.r.Int64N(100)
		}
		return op
	case p < 8:
		return &znode.Delete{Path: g.path(), Version: g.version()}
	case p == 8 && inMulti:
		return &znode.Check{Path: g.path(), Version: g.version()}
	}
	return &znode.SetData{Path: g.path(), Data: g.data(), Version: g.version()}
}

func (g *generator) path() string {
	special := []string{"/", "/zookeeper", "/zookeeper/config", "/a/", "//a", "/a//b", "/.", "/b/.."}
	if p := g.r.IntN(60); p < len(special) {
		return special[p]
	}
	path := ""
	for range 1 + g.r.IntN(3) {
		path += "/" + string(rune('a'+g.r.IntN(4)))
	}
	return path
}

func (g *generator) data() []byte {
	switch n := g.r.IntN(6); n {
	case 0:
		return nil
	default:
		return []byte(strings.Repeat("x", n-1))
	}
}

func (g *generator) acl() []znode.ACL {
	switch g.r.IntN(30) {
	case 0:
		return nil
	case 1:
		return []znode.ACL{{Perms: znode.PermRead | znode.PermDelete, Scheme: "world", ID: "anyone"}}
	case 2:
		return []znode.ACL{{Perms: znode.PermAll, Scheme: "digest", ID: "u:h"}, {Perms: znode.PermRead, Scheme: "world", ID: "anyone"}}
	}
	return znode.OpenACL
}

func (g *generator) version() int32 {
	if g.r.IntN(3) > 0 {
		return -1
	}
	return int32(g.r.IntN(5)) - 2
}

// TestRandomQuotaUsage runs random transactions below two nested hard quotas that
// were there before anything else. After each the usage must be what a recount
// gives, and no limit may ever be exceeded.
func TestRandomQuotaUsage(t *testing.T) {
	seed := max(*seedFlag, 1)
	t.Logf("replay: go test ./znode -run TestRandomQuotaUsage -seed=%d", seed)
	g := newGenerator(seed)
	for _, c := range []znode.Create{
		{Path: "/zookeeper/quota/a"}, {Path: "/zookeeper/quota/a/b"},
		{Path: "/zookeeper/quota/a/zookeeper_limits", Data: []byte("count=-1,bytes=-1=;countHardLimit=9;byteHardLimit=20")},
		{Path: "/zookeeper/quota/a/b/zookeeper_limits", Data: []byte("count=-1,bytes=-1=;countHardLimit=4;byteHardLimit=5")},
		{Path: "/zookeeper/quota/a/zookeeper_stats"}, {Path: "/zookeeper/quota/a/b/zookeeper_stats"},
	} {
		c.ACL = znode.OpenACL
		if r, _ := g.tree.Apply(znode.Stamp{}, &znode.Txn{Op: &c}); r.Err != znode.OK {
			t.Fatalf("%s: %v", c.Path, r.Err)
		}
	}
	refused := 0
	for range 2500 {
		stamp := znode.Stamp{TimeMs: g.timeMs, Rules: znode.Rules{EnforceQuota: true}}
		g.timeMs += 10
		txn := g.txn()
		r, _ := g.tree.Apply(stamp, txn)
		if _, opened := txn.Op.(*znode.OpenSession); opened && r.Err == znode.OK {
			g.sessions = append(g.sessions, r.Session.ID)
		}
		if r.Err == znode.QuotaExceeded {
			refused++
		}
		countA, bytesA := g.tree.Subtree("/a")
		countB, bytesB := g.tree.Subtree("/a/b")
		countA, bytesA = countA-countB, bytesA-bytesB // the longest prefix counts
		for usage, want := range map[string]string{
			"/zookeeper/quota/a/zookeeper_stats":   fmt.Sprintf("count=%d,bytes=%d", countA, bytesA),
			"/zookeeper/quota/a/b/zookeeper_stats": fmt.Sprintf("count=%d,bytes=%d", countB, bytesB),
		} {
			if got := string(g.tree.Node(usage).Data); got != want {
				t.Fatalf("after %T %+v: %s is %s, recount %s", txn.Op, txn.Op, usage, got, want)
			}
		}
		if countA > 9 || bytesA > 20 || countB > 4 || bytesB > 5 {
			t.Fatalf("after %T %+v: over the limit: %d, %d; %d, %d", txn.Op, txn.Op, countA, bytesA, countB, bytesB)
		}
	}
	if refused == 0 {
		t.Error("the limits were never reached: the generator is no use")
	}
}
