package zk_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/recipes/zk"
)

// timeout is what peers ask for, and are granted with a tick of 200 ms.
const timeout = 1600 * time.Millisecond

var (
	single   = &recipestest.SharedZooKeeper{}
	ensemble = &recipestest.SharedZooKeeper{Options: recipestest.ZooKeeperOptions{Servers: 3}}
)

func TestMain(m *testing.M) {
	code := m.Run()
	single.Close()
	ensemble.Close()
	os.Exit(code)
}

// harness is servers as recipestest.Conformance wants them, its peers spread over the
// members. If chroot is "", each test has one of its own, which all its peers share.
func harness(name string, servers *recipestest.SharedZooKeeper, chroot string) recipestest.Harness {
	var peers atomic.Int64
	var chroots sync.Map // testing.TB to string
	return recipestest.Harness{
		Name:    name,
		Timeout: timeout,
		Open: func(t testing.TB) *recipestest.Peer {
			n := int(peers.Add(1))
			if chroot != "" {
				return openPeer(t, servers.Get(t), n, chroot)
			}
			own, known := chroots.LoadOrStore(t, fmt.Sprintf("/%s-%d-%d", name, time.Now().UnixNano(), n))
			if !known {
				t.Cleanup(func() { chroots.Delete(t) })
			}
			return openPeer(t, servers.Get(t), n, own.(string))
		},
		Run: func(t *testing.T, test func(t *testing.T)) { test(t) },
	}
}

// openPeer connects a client to member n of z, through a proxy of its own.
func openPeer(t testing.TB, z *recipestest.ZooKeeper, n int, chroot string) *recipestest.Peer {
	t.Helper()
	addrs := z.Addrs()
	proxy := recipestest.NewProxy(t, addrs[n%len(addrs)], recipestest.ZooKeeperWire)
	peer := &recipestest.Peer{Store: open(t, zk.Options{Servers: []string{proxy.Addr()}, Chroot: chroot})}
	proxy.Fill(peer)
	if len(addrs) > 1 {
		var moves atomic.Int64
		peer.Move = func() { proxy.SetTarget(addrs[(n+int(moves.Add(1)))%len(addrs)]) }
	}
	peer.Expire = func(t testing.TB) {
		t.Helper()
		id := peer.Store.Session().ID()
		proxy.Partition()
		defer proxy.Heal()
		eventually(t, 10*timeout, func() bool { return !z.HasSession(id) })
	}
	return peer
}

// open connects with the tests' timeout.
func open(t testing.TB, o zk.Options) *zk.Store {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = timeout
	}
	s, err := zk.Connect(bounded(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// peer is the one peer of most tests here, on the single server.
func peer(t testing.TB) *recipestest.Peer {
	t.Helper()
	return harness("one", single, "").Open(t)
}

// bounded is the test's context with a bound that no test should come near.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// within is a context that ends after d.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until ok.
func eventually(t testing.TB, bound time.Duration, ok func() bool) {
	t.Helper()
	deadline := time.After(bound)
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for !ok() {
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("not within %v", bound)
		}
	}
}

// receive returns the next value of c.
func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came within 20 s")
		panic("unreachable")
	}
}

// awaitState waits until the session is in a state.
func awaitState(t testing.TB, s recipes.Session, want recipes.ConnState) {
	t.Helper()
	for state := range s.States(bounded(t)) {
		if state == want {
			return
		}
	}
	t.Fatalf("session is %v, want %v", s.State(), want)
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ours counts the goroutines that run code of the adapter or the library.
func ours() int {
	buf := make([]byte, 4<<20)
	n := 0
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "recipes/zk.") || strings.Contains(g, "go-zookeeper/zk.") {
			n++
		}
	}
	return n
}
