package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/znode"
)

const groupPath = "/app/group"

func newGroup(t *testing.T, s recipes.Store, o recipes.GroupOptions) *recipes.Group {
	t.Helper()
	g, err := recipes.NewGroup(s, groupPath, o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func joinGroup(t *testing.T, g *recipes.Group, id, data string) *recipes.Membership {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	m, err := g.Join(ctx, id, []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Leave(context.Background()) })
	return m
}

// text is a view in short: id=data of each member, ? if it is not fresh.
func text(v recipes.GroupView) string {
	var words []string
	for _, m := range v.Members {
		words = append(words, m.ID+"="+string(m.Data))
	}
	if !v.Fresh {
		words = append(words, "?")
	}
	return strings.Join(words, " ")
}

// viewLog is all that a stream of views has yielded.
type viewLog struct {
	mu    sync.Mutex
	views []recipes.GroupView
	err   error
	stop  context.CancelFunc
}

// watchGroup logs the views of g until the test ends or stop is called.
func watchGroup(t *testing.T, g *recipes.Group) *viewLog {
	ctx, stop := context.WithCancel(t.Context())
	l := &viewLog{stop: stop}
	go func() {
		for v, err := range g.Members(ctx) {
			l.mu.Lock()
			if err == nil {
				l.views = append(l.views, v)
			}
			l.err = err
			l.mu.Unlock()
		}
	}()
	return l
}

// texts returns the views so far in short, and forgets all but the last.
func (l *viewLog) texts(t *testing.T) (all []string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	pzxid := int64(0)
	for _, v := range l.views {
		all = append(all, text(v))
		if v.Pzxid < pzxid {
			t.Errorf("a view goes back from %d to %d", pzxid, v.Pzxid)
		}
		pzxid = v.Pzxid
	}
	l.views = l.views[max(len(l.views)-1, 0):]
	return all
}

func (l *viewLog) last(t *testing.T, want string) {
	t.Helper()
	all := l.texts(t)
	if len(all) == 0 || all[len(all)-1] != want {
		t.Fatalf("views %q, want %q at last", all, want)
	}
}

// viewIs asks for the view once.
func viewIs(t *testing.T, g *recipes.Group, want string) {
	t.Helper()
	v, err := g.View(t.Context())
	if err != nil || text(v) != want {
		t.Fatalf("view %q, %v; want %q", text(v), err, want)
	}
}

// Goal: a bad option or id is refused with its rule. Method: one each.
func TestGroupOptions(t *testing.T) {
	for name, o := range map[string]recipes.GroupOptions{
		"debounce": {Debounce: -1},
		"linger":   {Linger: -1},
		"instance": {Takeover: true},
		"timing":   {Options: recipes.Options{Timing: recipes.Timing{Drift: 2}}},
	} {
		if _, err := recipes.NewGroup(nil, groupPath, o); !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := recipes.NewGroup(nil, "/", recipes.GroupOptions{}); !errors.Is(err, recipes.ErrInvalid) {
		t.Errorf("path: %v", err)
	}
	g := newGroup(t, nil, recipes.GroupOptions{})
	for _, id := range []string{"a/b", ".", "..", "a\x00"} {
		if _, err := g.Join(t.Context(), id, nil); !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("id %q: %v", id, err)
		}
	}
}

// Goal: joining, changing data, leaving are seen, with the bytes as they were given, also
// of members that other programs make and of data that look like an envelope. Method:
// one of each; the raw znodes are looked at.
func TestGroupViews(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		s, other := f.Open(t).Store, f.Open(t).Store
		g := newGroup(t, s, recipes.GroupOptions{Options: recipes.Options{ID: "me", Data: []byte("mine")}})
		viewIs(t, g, "")
		log := watchGroup(t, newGroup(t, other, recipes.GroupOptions{}))
		settle(time.Second)
		log.last(t, "")
		me := joinGroup(t, g, "", "raw \x00\xff")
		nodeHas(t, s, groupPath+"/me", "raw \x00\xff")
		settle(time.Second)
		log.last(t, "me=raw \x00\xff")
		if err := me.SetData(t.Context(), []byte(`{"tenureMember":1,"x":2}`)); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Create(t.Context(), groupPath+"/foreign", []byte("plain"), ephemeralNode); err != nil {
			t.Fatal(err)
		}
		named := newGroup(t, s, recipes.GroupOptions{Instance: "host"})
		joinGroup(t, named, "z", "enveloped")
		settle(time.Second)
		log.last(t, `foreign=plain me={"tenureMember":1,"x":2} z=enveloped`)
		viewIs(t, g, `foreign=plain me={"tenureMember":1,"x":2} z=enveloped`)
		if err := errors.Join(me.Leave(t.Context()), me.Leave(t.Context())); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		log.last(t, "foreign=plain z=enveloped")
		if me.Joined() || me.ID() != "me" {
			t.Error("joined after Leave")
		}
		log.stop()
		settle(time.Second)
		if n := f.Watches(); n != 1 { // of z itself
			t.Errorf("%d watches after the stream", n)
		}
	})
}

// Goal: Join that waits for another's node says so when it gives up, leaves nothing, and
// two members of one session do not share a node. Method: the same id twice in one
// session, with a ctx that ends; then the first leaves.
func TestGroupIDTaken(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		s := f.Open(t).Store
		g := newGroup(t, s, recipes.GroupOptions{})
		first := joinGroup(t, g, "a", "first")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.Join(ctx, "a", nil); !errors.Is(err, znode.NodeExists) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("join: %v", err)
		}
		viewIs(t, g, "a=first")
		joined := make(chan *recipes.Membership)
		go func() {
			m, err := g.Join(t.Context(), "a", []byte("second"))
			if err != nil {
				t.Error(err)
			}
			joined <- m
		}()
		settle(time.Second)
		if err := first.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := <-joined
		viewIs(t, g, "a=second")
		if err := second.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// Goal: each incarnation is told, and the stream ends with Leave. Method: two expiries.
func TestGroupIncarnations(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		m := joinGroup(t, newGroup(t, p.Store, recipes.GroupOptions{}), "a", "")
		var seen []int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			for czxid := range m.Incarnations(t.Context()) {
				seen = append(seen, czxid)
			}
		}()
		for range 2 {
			settle(5 * time.Second)
			p.Expire(t)
		}
		settle(5 * time.Second)
		if err := m.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-done
		if len(seen) != 3 || !slices.IsSorted(seen) || seen[0] == seen[2] {
			t.Errorf("incarnations %v", seen)
		}
	})
}

// Goal: one member whose data cannot be read does not spoil the list. Method: a backend
// that refuses to show one.
func TestP95UnreadableMember(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		s := meddle(f.Open(t).Store)
		g := newGroup(t, s, recipes.GroupOptions{})
		for i := range 3 {
			joinGroup(t, g, fmt.Sprint("m", i), "x")
		}
		observer := meddle(f.Open(t).Store)
		observer.refuseWith(func(call, path string) error {
			if call == "get" && path == groupPath+"/m1" {
				return znode.NoAuth
			}
			return nil
		})
		log := watchGroup(t, newGroup(t, observer, recipes.GroupOptions{}))
		settle(time.Second)
		view := log.views[len(log.views)-1]
		log.last(t, "m0=x m1= m2=x")
		if !errors.Is(view.Members[1].Err, znode.NoAuth) || view.Members[1].Czxid == 0 || view.Members[0].Err != nil {
			t.Errorf("members %+v", view.Members)
		}
	})
}
