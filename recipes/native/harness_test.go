package native

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/server"
	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

const (
	// harnessTimeout is the session timeout of the conformance suite, which waits for many
	// expiries.
	harnessTimeout = time.Second
	// shortTimeout is for tests that wait for one, long enough for a busy machine to keep
	// the session until then.
	shortTimeout = 3 * time.Second
	// patience bounds every wait, and is the timeout of sessions that are not to expire:
	// nothing takes as long unless it is broken.
	patience = 40 * time.Second
)

// backend is one server on a directory and a port of its own, in this process.
type backend struct {
	mu       sync.Mutex
	cfg      server.Config
	srv      *server.Server
	watching *client.Client // sees what others see, on a connection without faults
}

// startBackend starts a server that ends with the test; change may be nil.
func startBackend(t testing.TB, change func(*server.Config)) *backend {
	t.Helper()
	b := &backend{cfg: server.Config{
		DataDir: t.TempDir(), Listen: "127.0.0.1:0", ZKListen: "none",
		MinSessionTimeout: 100 * time.Millisecond,
		ReapInterval:      50 * time.Millisecond,
	}}
	if change != nil {
		change(&b.cfg)
	}
	b.start(t)
	b.cfg.Listen = b.srv.Addr().String()
	t.Cleanup(func() { b.stop(t) })
	b.watching = connect(t, client.Options{Endpoints: []string{b.addr()}, Timeout: patience})
	return b
}

func (b *backend) start(t testing.TB) {
	t.Helper()
	srv, err := server.Open(b.cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b.srv = srv
}

// stop may be called when it is stopped already.
func (b *backend) stop(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.srv.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

func (b *backend) addr() string { return b.cfg.Listen }

// restart implements recipestest.Harness.Restart.
func (b *backend) restart(t testing.TB, down time.Duration) {
	t.Helper()
	b.restartWith(t, func() { <-time.After(down) })
}

// restartWith calls between while the server is stopped.
func (b *backend) restartWith(t testing.TB, between func()) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop(t)
	between()
	b.start(t)
}

// reap implements recipestest.Harness.Reap. The reaper looks often: what is left to do
// is to wait until it has nothing to remove.
func (b *backend) reap(t testing.TB) {
	t.Helper()
	await(t, "containers to be reaped", func(ctx context.Context) (bool, error) {
		return b.reaped(ctx, znode.Root)
	})
}

// reaped reports whether there is no container at or below path that has lost its last
// child.
func (b *backend) reaped(ctx context.Context, path string) (bool, error) {
	stat, life, err := b.watching.Stat(ctx, path, client.ReadOptions{})
	if err != nil {
		return false, ignore(err, znode.NoNode)
	}
	if life.Kind == znode.Container && stat.NumChildren == 0 && stat.Cversion > 0 {
		return false, nil
	}
	names, _, err := b.watching.Children(ctx, path, client.ReadOptions{})
	if err != nil {
		return false, ignore(err, znode.NoNode)
	}
	for _, name := range names {
		if done, err := b.reaped(ctx, znode.Join(path, name)); !done || err != nil {
			return false, err
		}
	}
	return true, nil
}

// awaitGone waits until others see that a session is over.
func (b *backend) awaitGone(t testing.TB, id int64) {
	t.Helper()
	await(t, "a session to be over", func(ctx context.Context) (bool, error) {
		open, err := b.open(ctx, id)
		return !open, err
	})
}

func (b *backend) open(ctx context.Context, id int64) (bool, error) {
	list, err := b.watching.Sessions(ctx, 0, 0)
	if err != nil {
		return false, err
	}
	for _, s := range list.Sessions {
		if s.ID == session.ID(id) {
			return true, nil
		}
	}
	return false, nil
}

// figure returns one of the server's figures.
func (b *backend) figure(t testing.TB, name string) int {
	t.Helper()
	status, err := b.watching.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range status.Figures {
		if f.Name == name {
			n, err := strconv.Atoi(f.Value)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("the server has no figure %q", name)
	return 0
}

// peer opens a Store through a proxy of its own.
func (b *backend) peer(t testing.TB, timeout time.Duration) *recipestest.Peer {
	t.Helper()
	proxy := recipestest.NewProxy(t, b.addr(), recipestest.TenureWire)
	s := b.store(t, client.Options{Endpoints: []string{proxy.Addr()}, Timeout: timeout})
	p := &recipestest.Peer{Store: s}
	proxy.Fill(p)
	p.Expire = func(t testing.TB) {
		t.Helper()
		id := s.Session().ID()
		proxy.Partition()
		defer proxy.Heal()
		b.awaitGone(t, id)
	}
	return p
}

// store opens a Store. Without endpoints it is straight to the server, and without a
// timeout its session does not expire.
func (b *backend) store(t testing.TB, o client.Options) *Store {
	t.Helper()
	if o.Endpoints == nil {
		o.Endpoints = []string{b.addr()}
	}
	if o.Timeout == 0 {
		o.Timeout = patience
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := Connect(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // a test may have left no server to confirm it
	return s
}

// newHarness is Tenure, one member of it, for the conformance suite.
func newHarness(t testing.TB) recipestest.Harness {
	t.Helper()
	b := startBackend(t, nil)
	return recipestest.Harness{
		Name:    "tenure",
		Timeout: harnessTimeout,
		Open:    func(t testing.TB) *recipestest.Peer { return b.peer(t, harnessTimeout) },
		Run:     func(t *testing.T, test func(t *testing.T)) { test(t) },
		Restart: b.restart,
		Reap:    b.reap,
	}
}

// Goal: recipes do on Tenure what they promise. Method: the suite.
func TestConformance(t *testing.T) { recipestest.Conformance(t, newHarness(t)) }

// Goal: the verbs that are this backend's own do what the conformance suite relies on.
// Method: two peers, an expiry of one, a restart and a reaped container.
func TestHarness(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Run(t, func(t *testing.T) {
		one, two := h.Open(t), h.Open(t)
		expired := one.Store.Session()
		if expired.Timeout() != h.Timeout || expired.State() != recipes.Connected {
			t.Errorf("a peer is %v with a timeout of %v", expired.State(), expired.Timeout())
		}
		one.Expire(t)
		if open, err := two.Store.SessionOpen(t.Context(), expired.ID()); open || err != nil {
			t.Errorf("the expired session is open: %v, %v", open, err)
		}
		create(t, two.Store, "/c", znode.Container)
		create(t, two.Store, "/c/child", znode.Persistent)
		start := time.Now()
		h.Restart(t, h.Timeout/10)
		if took := time.Since(start); took < h.Timeout/10 {
			t.Errorf("down for %v", took)
		}
		h.Reap(t) // removes nothing yet
		if err := two.Store.Delete(t.Context(), "/c/child", recipes.Always()); err != nil {
			t.Fatal(err)
		}
		h.Reap(t)
		if _, _, err := two.Store.Get(t.Context(), "/c"); !errors.Is(err, znode.NoNode) {
			t.Errorf("the container is still there: %v", err)
		}
		awaitReplaced(t, one.Store, expired)
	})
}

func connect(t testing.TB, o client.Options) *client.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := client.Connect(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// await waits until done says so; its errors are fatal.
func await(t testing.TB, what string, done func(ctx context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		ok, err := done(ctx)
		switch {
		case err != nil:
			t.Fatalf("waiting for %s: %v", what, err)
		case ok:
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited %v for %s", patience, what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// receive returns what comes from c, ok as a receive does.
func receive[T any](t testing.TB, what string, c <-chan T) (v T, ok bool) {
	t.Helper()
	select {
	case v, ok = <-c:
	case <-time.After(patience):
		t.Fatalf("waited %v for %s", patience, what)
	}
	return v, ok
}

func awaitState(t testing.TB, s recipes.Session, want recipes.ConnState) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for state := range s.States(ctx) {
		if state == want {
			return
		}
	}
	t.Fatalf("the session is %v, want %v", s.State(), want)
}

// awaitReplaced waits until old is over and its successor is open.
func awaitReplaced(t testing.TB, s recipes.Store, old recipes.Session) recipes.Session {
	t.Helper()
	receive(t, "the end of a session", old.Done())
	next := s.Session()
	if next == old {
		t.Fatal("the session is over and has no successor")
	}
	awaitState(t, next, recipes.Connected)
	return next
}

func create(t testing.TB, s recipes.Store, path string, kind znode.Kind) znode.Stat {
	t.Helper()
	if _, err := s.Create(t.Context(), path, nil, recipes.CreateSpec{Kind: kind}); err != nil {
		t.Fatal(err)
	}
	_, stat, err := s.Get(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return stat
}

func ignore(err error, code znode.Error) error {
	if errors.Is(err, code) {
		return nil
	}
	return err
}
