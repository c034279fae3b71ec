package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: who was told of a write reads it on whatever member: natively at once, on ZooKeeper's
// door behind a sync, and by the tool's sync and get. Method: a follower whose links are
// slow; a write through the leader, and at once a read through the follower. Without the
// sync such a read must be late at least once, or the test would prove nothing.
func TestC039EnsembleReadWhatWasTold(t *testing.T) {
	t.Parallel()
	rounds, delay := scaled(15, 100), scaled(50*time.Millisecond, 200*time.Millisecond)
	e := startEnsemble(t, ensembleOptions{links: true, timeout: 4 * time.Second}) // ten round trips
	leader, follower := e.waitLeader(), e.follower()
	writer := e.connectTo(leader, client.Options{})
	mustCreate(t, writer, "/y")
	reader := e.connectTo(follower, client.Options{})
	z, _, err := zk.Connect([]string{follower.zk}, 30*time.Second, zk.WithLogInfo(false), zk.WithLogger(discardLog{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(z.Close)
	e.links.slow(follower.id, delay, 0)
	early := 0
	for k := range rounds {
		told := fmt.Sprint(k)
		if _, err := writer.Set(t.Context(), "/y", []byte(told), int32(k)); err != nil {
			t.Fatal(err)
		}
		if data, _, err := z.Get("/y"); err != nil || string(data) != told {
			early++
		}
		native := make(chan error, 1)
		go func() {
			data, _, err := reader.Get(t.Context(), "/y", client.ReadOptions{})
			if err == nil && string(data) != told {
				err = fmt.Errorf("the native client read %q", data)
			}
			native <- err
		}()
		_, err := z.Sync("/y")
		if data, _, errGet := z.Get("/y"); err != nil || errGet != nil || string(data) != told {
			t.Errorf("after %q was written, sync (%v) and get gave %q, %v", told, err, data, errGet)
		}
		if err := <-native; err != nil {
			t.Errorf("after %q was written: %v", told, err)
		}
	}
	if early == 0 {
		t.Error("no read without sync was late: the follower was not slow")
	}
	t.Logf("%d of %d reads without sync were late", early, rounds)
	for _, endpoint := range []string{"ws://" + follower.http, "zk://" + follower.zk} {
		if _, err := writer.Set(t.Context(), "/y", []byte("by the tool"), -1); err != nil {
			t.Fatal(err)
		}
		tool := &cliServer{&daemon{t: t, dir: follower.dir, address: endpoint}}
		tool.must("sync", "/y")
		if got := tool.must("get", "/y"); !strings.Contains(got, "by the tool") {
			t.Errorf("tenure get behind sync on %s printed %q", endpoint, got)
		}
	}
}

var eventNames = map[znode.EventType]string{
	znode.EventCreated: "created", znode.EventDeleted: "deleted",
	znode.EventDataChanged: "dataChanged", znode.EventChildrenChanged: "childrenChanged",
}

// Goal: one-shot watches survive the move of their session to another member: each fires
// exactly once if there was something to tell, and otherwise stays. Method: the member that
// the client is on is killed; meanwhile what some of them watch changes.
func TestC041EnsembleWatchesMove(t *testing.T) {
	t.Parallel()
	away := scaled(2*time.Second, 3*time.Second)
	e := startEnsemble(t, ensembleOptions{})
	first := e.follower()
	changer := e.connectTo(e.others(first)[0], client.Options{})
	for _, path := range []string{"/a", "/c", "/d", "/d/child"} {
		mustCreate(t, changer, path)
	}
	c, s := e.steered(first, client.Options{Timeout: 10 * time.Second})
	z, events := zkSteered(t, e, first)
	told := make(chan string, 16)
	arm := func(what string, watch client.OneShot, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		watch.Notify(func(ev wire.Event, ok bool) {
			told <- fmt.Sprintf("%s %s %s %v", what, eventNames[ev.Type], ev.Path, ok)
		})
	}
	_, _, data, err := c.GetW(t.Context(), "/a")
	arm("data", data, err)
	_, _, exists, err := c.ExistsW(t.Context(), "/b")
	arm("exists", exists, err)
	_, _, children, err := c.ChildrenW(t.Context(), "/c")
	arm("children", children, err)
	_, _, data, err = c.GetW(t.Context(), "/d")
	arm("data", data, err)
	_, _, children, err = c.ChildrenW(t.Context(), "/d")
	arm("children", children, err)

	first.kill()
	s.release()
	mustSet(t, changer, "/a")
	mustCreate(t, changer, "/b")
	mustCreate(t, changer, "/c/x")
	<-time.After(away)
	if _, _, err := c.Get(t.Context(), "/", client.ReadOptions{}); err != nil {
		t.Fatal(err)
	}
	wantTold(t, told, "data dataChanged /a true", "exists created /b true", "children childrenChanged /c true")
	wantTold(t, events, "EventNodeDataChanged /a", "EventNodeCreated /b", "EventNodeChildrenChanged /c")
	mustSet(t, changer, "/d")
	mustCreate(t, changer, "/d/again")
	wantTold(t, told, "data dataChanged /d true", "children childrenChanged /d true")
	wantTold(t, events, "EventNodeDataChanged /d", "EventNodeChildrenChanged /d")
	z.Close()
}

// zkSteered is go-zookeeper with the same watches, connected to first and then to others, and
// what it is told.
func zkSteered(t *testing.T, e *ensemble, first *ensembleMember) (*zk.Conn, chan string) {
	t.Helper()
	servers := []string{first.zk}
	for _, m := range e.others(first) {
		servers = append(servers, m.zk)
	}
	z, _, err := zk.Connect(servers, 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(discardLog{}), zk.WithHostProvider(&inOrder{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(z.Close)
	told := make(chan string, 16)
	arm := func(watch <-chan zk.Event, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for ev := range watch {
				told <- fmt.Sprintf("%v %s", ev.Type, ev.Path)
			}
		}()
	}
	_, _, data, err := z.GetW("/a")
	arm(data, err)
	_, _, exists, err := z.ExistsW("/b")
	arm(exists, err)
	_, _, children, err := z.ChildrenW("/c")
	arm(children, err)
	_, _, data, err = z.GetW("/d")
	arm(data, err)
	_, _, children, err = z.ChildrenW("/d")
	arm(children, err)
	return z, told
}

// inOrder is a zk.HostProvider that begins with the first server.
type inOrder struct {
	servers []string
	next    int
}

func (h *inOrder) Init(servers []string) error { h.servers = servers; return nil }
func (h *inOrder) Len() int                    { return len(h.servers) }
func (h *inOrder) Connected()                  {}
func (h *inOrder) Next() (server string, retryStart bool) {
	server = h.servers[h.next%len(h.servers)]
	h.next++
	return server, h.next > 1 && h.next%len(h.servers) == 1
}

func mustSet(t *testing.T, c *client.Client, path string) {
	t.Helper()
	if _, err := c.Set(t.Context(), path, []byte("changed"), -1); err != nil {
		t.Fatal(err)
	}
}

// wantTold wants exactly these events within 10 s, in any order, and no other soon.
func wantTold(t *testing.T, told <-chan string, want ...string) {
	t.Helper()
	var got []string
	limit := time.After(10 * time.Second)
	for len(got) < len(want) {
		select {
		case event := <-told:
			got = append(got, event)
			continue
		case <-limit:
		}
		break
	}
	select {
	case event := <-told:
		got = append(got, event)
	case <-time.After(300 * time.Millisecond):
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("told were %q, want %q", got, want)
	}
}

// Goal: a standing watch tells all that happened while its client moved to another member,
// in order. Method: a recursive watch; its member is killed; meanwhile znodes below are
// created, set, deleted, and deleted and created again.
func TestC043EnsembleWatchCatchesUp(t *testing.T) {
	t.Parallel()
	away := scaled(2*time.Second, 3*time.Second)
	e := startEnsemble(t, ensembleOptions{})
	first := e.waitLeader()
	changer := e.connectTo(e.others(first)[0], client.Options{})
	for _, path := range []string{"/t", "/t/b", "/t/c", "/t/d"} {
		mustCreate(t, changer, path)
	}
	c, s := e.steered(first, client.Options{Timeout: 10 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	armed, told := make(chan struct{}), make(chan string, 64)
	go func() {
		for ev, err := range c.Watch(ctx, "/t", client.WatchOptions{Recursive: true, Armed: func(int64) { close(armed) }}) {
			if err != nil {
				if !errors.Is(err, context.Canceled) && ctx.Err() == nil {
					told <- err.Error()
				}
				return
			}
			told <- fmt.Sprintf("%s %s", eventNames[ev.Type], ev.Path)
		}
	}()
	<-armed
	first.kill()
	s.release()
	mustCreate(t, changer, "/t/a")
	mustSet(t, changer, "/t/b")
	remove := func(path string) {
		if err := changer.Delete(t.Context(), path, -1); err != nil {
			t.Fatal(err)
		}
	}
	remove("/t/c")
	remove("/t/d")
	mustCreate(t, changer, "/t/d")
	<-time.After(away)
	wantInOrder(t, told, "created /t/a", "dataChanged /t/b", "deleted /t/c", "deleted /t/d", "created /t/d")
	mustSet(t, changer, "/t/d")
	wantInOrder(t, told, "dataChanged /t/d")
}

// wantInOrder wants exactly these events soon.
func wantInOrder(t *testing.T, told <-chan string, want ...string) {
	t.Helper()
	limit := time.After(scaled(10*time.Second, 2*time.Second)) // a busy machine, and a quiet one
	for i, w := range want {
		select {
		case got := <-told:
			if got != w {
				t.Fatalf("event %d is %q, want %q", i, got, w)
			}
		case <-limit:
			t.Fatalf("event %d, %q, is missing", i, w)
		}
	}
}
