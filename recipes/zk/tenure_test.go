package zk_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/recipes/zk"
	"github.com/tenure-dev/tenure/server"
	"github.com/tenure-dev/tenure/session"
)

// tenure is a server of this module, in this process, whose ZooKeeper door is used.
type tenure struct {
	cfg server.Config
	srv *server.Server
}

func startTenure(t testing.TB) *tenure {
	t.Helper()
	b := &tenure{cfg: server.Config{
		DataDir: t.TempDir(), Listen: "127.0.0.1:0", ZKListen: "127.0.0.1:0",
		ZKMinSessionTimeout: 100 * time.Millisecond, ReapInterval: 50 * time.Millisecond,
	}}
	b.start(t)
	b.cfg.Listen, b.cfg.ZKListen = b.srv.Addr().String(), b.srv.ZKAddr().String()
	t.Cleanup(func() { b.stop(t) })
	return b
}

func (b *tenure) start(t testing.TB) {
	t.Helper()
	srv, err := server.Open(b.cfg, slog.New(slog.DiscardHandler))
	must(t, err)
	b.srv = srv
}

func (b *tenure) stop(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := b.srv.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

// restart implements recipestest.Harness.Restart.
func (b *tenure) restart(t testing.TB, down time.Duration) {
	t.Helper()
	b.stop(t)
	<-time.After(down)
	b.start(t)
}

// open implements recipestest.Harness.Open: a peer through a proxy of its own.
func (b *tenure) open(t testing.TB) *recipestest.Peer {
	t.Helper()
	proxy := recipestest.NewProxy(t, b.cfg.ZKListen, recipestest.ZooKeeperWire)
	peer := &recipestest.Peer{Store: open(t, zk.Options{Servers: []string{proxy.Addr()}, Chroot: "/conformance"})}
	proxy.Fill(peer)
	peer.Expire = func(t testing.TB) {
		t.Helper()
		id := peer.Store.Session().ID()
		proxy.Partition()
		defer proxy.Heal()
		eventually(t, 10*timeout, func() bool { return !b.hasSession(t, id) })
	}
	return peer
}

// hasSession asks at the server's other door.
func (b *tenure) hasSession(t testing.TB, id int64) bool {
	t.Helper()
	c, err := client.Connect(bounded(t), client.Options{Endpoints: []string{b.cfg.Listen}})
	must(t, err)
	defer c.Close()
	list, err := c.Sessions(t.Context(), session.ID(id-1), 1)
	must(t, err)
	return len(list.Sessions) == 1 && list.Sessions[0].ID == session.ID(id)
}

// Goal: recipes keep their promises on Tenure's own ZooKeeper door. Method: the
// conformance suite, with sessions of 1.6 s, and the server restarted in it.
func TestConformanceTenure(t *testing.T) {
	t.Parallel()
	b := startTenure(t)
	recipestest.Conformance(t, recipestest.Harness{
		Name: "tenure's ZooKeeper door", Timeout: timeout, Open: b.open, Restart: b.restart,
		Run: func(t *testing.T, test func(t *testing.T)) { test(t) },
	})
}
