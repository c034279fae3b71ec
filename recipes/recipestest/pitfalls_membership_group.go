package recipestest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

func groupAt(t *testing.T, s recipes.Store, path string, o recipes.GroupOptions) *recipes.Group {
	t.Helper()
	g, err := recipes.NewGroup(s, path, o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// joins makes a member that leaves with the test.
func joins(t *testing.T, h Harness, g *recipes.Group, id, data string) *recipes.Membership {
	t.Helper()
	m, err := g.Join(h.within(t), id, []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Leave(context.Background()) })
	return m
}

func leaves(t *testing.T, h Harness, m *recipes.Membership) {
	t.Helper()
	if err := m.Leave(h.within(t)); err != nil {
		t.Fatal(err)
	}
}

// rosterText is a view in short: id=data of each member, ? if it is not fresh.
func rosterText(v recipes.GroupView) string {
	var words []string
	for _, m := range v.Members {
		words = append(words, m.ID+"="+string(m.Data))
	}
	text := strings.Join(words, " ")
	if !v.Fresh {
		text += "?"
	}
	return text
}

// roster is a stream of the views of g in short.
func roster(ctx context.Context, g *recipes.Group) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for v, err := range g.Members(ctx) {
			if !yield(rosterText(v), err) {
				return
			}
		}
	}
}

// P91. Goal: a member whose session is over is not in any view, its own stream says that it
// is not fresh meanwhile, and it knows that it is not a member; it comes back by itself.
// Method: expire one who watches its own group.
func alwaysAMember(t *testing.T, h Harness) {
	p, other, path, ctx := h.Open(t), h.Open(t).Store, dir(t), h.within(t)
	g, others := groupAt(t, p.Store, path, recipes.GroupOptions{}), groupAt(t, other, path, recipes.GroupOptions{})
	me := joins(t, h, g, "me", "1")
	mine, theirs := historyOf(roster(t.Context(), g)), historyOf(roster(t.Context(), others))
	both := func() bool { return mine.last() == "me=1" && theirs.last() == "me=1" }
	h.eventually(t, "me in both views", both)
	first := me.State().Czxid
	p.Expire(t)
	h.eventually(t, "me back, as another incarnation", func() bool { return me.State().Czxid > first && both() })
	has := func(l *history[string], what string) bool {
		for _, v := range l.all() {
			if v == what {
				return true
			}
		}
		return false
	}
	if !has(theirs, "") && h.Fake {
		t.Errorf("the others never saw me gone: %q", theirs.all())
	}
	if !has(mine, "me=1?") {
		t.Errorf("my own view was always fresh: %q", mine.all())
	}
	leaves(t, h, me)
	if v, err := g.View(ctx); err != nil || me.Joined() || rosterText(v) != "" {
		t.Errorf("after Leave: joined %v, view %q, %v", me.Joined(), rosterText(v), err)
	}
}

// P92. Goal: a node of an earlier session is not taken for one's own. Method: the process
// dies without a word and comes back with the same id within the session timeout: with
// Takeover it is a member at once, without it when the old node is gone; either way it
// stays one, and the old process does not take it back.
func nodeOfPreviousSession(t *testing.T, h Harness) {
	for _, takeover := range []bool{true, false} {
		path := fmt.Sprint(dir(t), takeover)
		o := recipes.GroupOptions{Takeover: takeover, Instance: "host-1", Boot: 1}
		old, fresh := h.Open(t), h.Open(t).Store
		before := joins(t, h, groupAt(t, old.Store, path, o), "a", "old")
		old.Partition()
		start := time.Now()
		o.Boot = 2
		g := groupAt(t, fresh, path, o)
		m := joins(t, h, g, "a", "new")
		if took := time.Since(start); h.Fake && (takeover != (took < h.Timeout/10) || took > 2*h.Timeout) {
			t.Errorf("takeover %v: joined after %v", takeover, took)
		}
		pause(t, 2*h.Timeout)
		old.Heal()
		h.eventually(t, "the old process to know that it is not a member", func() bool {
			s := before.State()
			return !s.Exists && errors.Is(s.Err, znode.NodeExists)
		})
		pause(t, h.Timeout/2)
		h.eventually(t, "the new process to be the member", func() bool {
			v, err := g.View(h.within(t))
			return err == nil && rosterText(v) == "a=new" && v.Members[0].Czxid == m.State().Czxid
		})
	}
}

// P93. Goal: an update made while the connection is down arrives, and the node is not made
// twice. Method: partition, SetData that gives up, heal; then the same over an expiry.
func keptNodeLosesUpdates(t *testing.T, h Harness) {
	p, other, path, ctx := h.Open(t), h.Open(t).Store, dir(t)+"/node", h.within(t)
	n, err := recipes.KeepNode(ctx, p.Store, path, []byte("one"), recipes.CreateSpec{Kind: znode.Ephemeral})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close(context.Background()) })
	read := func() (string, znode.Stat) {
		var data []byte
		var stat znode.Stat
		err := other.Sync(ctx, path)
		if err == nil {
			data, stat, err = other.Get(ctx, path)
		}
		if err != nil && !errors.Is(err, znode.NoNode) && !errors.Is(err, recipes.ErrUnavailable) {
			t.Fatal(err)
		}
		return string(data), stat
	}
	data, before := read()
	if data != "one" {
		t.Fatalf("KeepNode returned before there was the node: %q", data)
	}
	sess := p.Store.Session()
	p.Partition()
	limited, cancel := context.WithTimeout(ctx, h.Timeout/10)
	defer cancel()
	if err := n.SetData(limited, []byte("two")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("SetData while away: %v", err)
	}
	p.Heal()
	h.eventually(t, "the update made while away", func() bool { data, _ := read(); return data == "two" })
	if _, after := read(); after.Czxid != before.Czxid && sess.Err() == nil {
		t.Error("the node was made again without need")
	}
	p.Expire(t)
	if err := n.SetData(ctx, []byte("three")); err != nil {
		t.Fatal(err)
	}
	h.eventually(t, "the update made after an expiry, in the new session", func() bool {
		data, stat := read()
		return data == "three" && stat.Czxid == n.State().Czxid && stat.Czxid > before.Czxid
	})
	if names := children(t, ctx, other, strings.TrimSuffix(path, "/node")); len(names) != 1 {
		t.Errorf("nodes %v", names)
	}
}

// P93 and C089. Goal: members come back after everything, once, with few creates and no
// loop. Method: somebody writes to one's node; all sessions expire; then quiet.
func membersLoop(t *testing.T, h Harness) {
	n, path := h.clients(20), dir(t)
	var writes atomic.Int64
	var peers []*Peer
	var members []*recipes.Membership
	for i := range n {
		p := h.Open(t)
		counted := &Hooked{Store: p.Store, Before: func(_ context.Context, c Call) error {
			if c.Kind == Create || c.Kind == Delete || c.Kind == Multi {
				writes.Add(1)
			}
			return nil
		}}
		peers = append(peers, p)
		members = append(members, joins(t, h, groupAt(t, counted, path, recipes.GroupOptions{}), fmt.Sprintf("m%02d", i), "x"))
	}
	observer := groupAt(t, h.Open(t).Store, path, recipes.GroupOptions{})
	if _, err := peers[1].Store.Set(h.within(t), path+"/m00", []byte("meddled"), recipes.Always()); err != nil {
		t.Fatal(err)
	}
	before := writes.Load()
	var expired []<-chan result[struct{}]
	for _, p := range peers {
		expired = append(expired, async(func() (struct{}, error) { p.Expire(t); return struct{}{}, nil }))
	}
	for _, done := range expired {
		await(t, h, done, "an expiry")
	}
	h.eventually(t, "all members again, each by its new incarnation", func() bool {
		v, err := observer.View(h.within(t))
		if err != nil || len(v.Members) != n {
			return false
		}
		for i, m := range members {
			if state := m.State(); !state.Exists || state.Czxid != v.Members[i].Czxid {
				return false
			}
		}
		return true
	})
	settled := writes.Load()
	if each := (settled - before) / int64(n); each > 5 {
		t.Errorf("%d creates and deletes for each member to come back", each)
	}
	pause(t, 2*h.Timeout)
	if idle := writes.Load() - settled; h.Fake && idle > 0 {
		t.Errorf("%d creates and deletes when nothing happens", idle)
	}
}

// P94. Goal: whoever is away sees the last view, with Fresh unset, once, and never an empty
// one. Method: partition an observer for longer than its session; a member joins.
func emptyView(t *testing.T, h Harness) {
	p, other, path := h.Open(t), h.Open(t).Store, dir(t)
	g := groupAt(t, other, path, recipes.GroupOptions{})
	joins(t, h, g, "a", "1")
	log := historyOf(roster(t.Context(), groupAt(t, p.Store, path, recipes.GroupOptions{})))
	h.eventually(t, "the view", func() bool { return log.last() == "a=1" })
	p.Partition()
	pause(t, 3*h.Timeout)
	if got := log.all(); h.Fake && len(got) != 2 || got[len(got)-1] != "a=1?" {
		t.Errorf("views while away: %q", got)
	}
	joins(t, h, g, "b", "2")
	p.Heal()
	h.eventually(t, "the view after it", func() bool { return log.last() == "a=1 b=2" })
	for i, v := range log.all() {
		if mute(v) == "" || strings.HasSuffix(v, "?") && mute(v) != mute(log.all()[i-1]) {
			t.Errorf("views: %q", log.all())
		}
	}
}
