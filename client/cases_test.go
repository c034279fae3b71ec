package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: identities are presented first on every connection, also of a new session, so
// that no queued call fails for want of them.
func TestC063AuthSurvivesReconnects(t *testing.T) {
	bubble(t, []string{"a:1", "b:1"}, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, nil)
		if err := c.AddAuth(t.Context(), Auth{"digest", "bob:secret"}); err != nil {
			t.Fatal(err)
		}
		only := []znode.ACL{{Perms: znode.PermAll, Scheme: "auth"}}
		if _, _, err := c.Create(t.Context(), "/z", nil, CreateOptions{ACL: only}); err != nil {
			t.Fatal(err)
		}
		for round := range 2 {
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					if _, _, err := c.Get(context.Background(), "/z", ReadOptions{}); errors.Is(err, znode.NoAuth) {
						t.Errorf("round %d: %v", round, err)
					}
				})
			}
			if round == 0 {
				f.cutAll()
			} else {
				f.expireAll()
			}
			wg.Wait()
		}
		awaitState(t, c.Session(), Connected)
		if _, _, err := c.Get(t.Context(), "/z", ReadOptions{}); err != nil {
			t.Errorf("in the new session: %v", err)
		}
		f.with(func() {
			first := map[int]wire.Op{}
			for _, s := range f.seen {
				if _, ok := first[s.conn]; !ok {
					first[s.conn] = s.op
				}
			}
			for conn, op := range first {
				if conn > 1 && op != wire.OpAuth {
					t.Errorf("connection %d began with %v", conn, op)
				}
			}
		})
	})
}

// Goal: a wrong secret fails Connect at once and shows in no error.
func TestAuthRefused(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		f.secret = "bob:right"
		start := time.Now()
		_, err := Connect(context.Background(), Options{
			Endpoints: []string{"a:1"}, Dial: f.dial, Auth: []Auth{{"digest", "bob:wrong"}},
		})
		if !errors.Is(err, znode.AuthFailed) || strings.Contains(err.Error(), "wrong") || time.Since(start) > time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if s := fmt.Sprintf("%v %+v %#v", Auth{"digest", "bob:wrong"}, Auth{"digest", "bob:wrong"}, Auth{"digest", "bob:wrong"}); strings.Contains(s, "wrong") {
			t.Errorf("formatted as %s", s)
		}
	})
}

// Goal: lists longer than a reply come whole, with and without a watch.
func TestC071HugeChildList(t *testing.T) {
	const children = 100_000
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, nil)
		mustCreate(t, c, "/big", znode.Persistent)
		for i := range children {
			f.tree.Apply(znode.Stamp{}, &znode.Txn{Op: &znode.Create{Path: fmt.Sprintf("/big/child-with-a-name-of-forty-chars-%05d", i), ACL: znode.OpenACL}})
		}
		names, stat, err := c.Children(t.Context(), "/big", ReadOptions{})
		if err != nil || len(names) != children || stat.NumChildren != children || !slices.IsSorted(names) {
			t.Fatalf("%d names, %+v, %v", len(names), stat, err)
		}
		names, _, w, err := c.ChildrenW(t.Context(), "/big")
		if err != nil || len(names) != children {
			t.Fatalf("%d names, %v", len(names), err)
		}
		f.do(t, &znode.Create{Path: "/big/x", ACL: znode.OpenACL})
		if ev := next(t, w); ev.Type != znode.EventChildrenChanged {
			t.Fatalf("%+v", ev)
		}
		page, err := c.List(t.Context(), "/big", wire.List{After: names[9], Limit: 5, Stats: true}, ReadOptions{})
		if err != nil || !slices.Equal(page.Names, names[10:15]) || len(page.Stats) != 5 || !page.More {
			t.Fatalf("%+v, %v", page, err)
		}
		if c.Stats().Connects != 1 {
			t.Fatal("the connection was lost")
		}
	})
}

// slowConn passes at most perSecond bytes out per second.
type slowConn struct {
	net.Conn
	perSecond int
}

func (s *slowConn) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		k := min(len(p)-n, s.perSecond/10)
		time.Sleep(time.Duration(k) * time.Second / time.Duration(s.perSecond))
		if _, err := s.Conn.Write(p[n : n+k]); err != nil {
			return n, err
		}
		n += k
	}
	return len(p), nil
}

// Goal: one large answer on a slow link neither loses the connection nor the session,
// though no heartbeat is answered meanwhile.
func TestC101LargeAnswerOnASlowLink(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		f.members["a:1"].slow = func(nc net.Conn) net.Conn { return &slowConn{nc, 200_000} }
		c := f.client(t, func(o *Options) { o.Timeout = 6 * time.Second })
		mustCreate(t, c, "/big", znode.Ephemeral)
		f.do(t, &znode.SetData{Path: "/zookeeper", Data: make([]byte, 30_000_000), Version: -1})
		s, start := c.Session(), time.Now()
		data, _, err := c.Get(context.Background(), "/zookeeper", ReadOptions{})
		if err != nil || len(data) != 30_000_000 {
			t.Fatalf("%d bytes, %v", len(data), err)
		}
		if took := time.Since(start); took < 2*time.Minute {
			t.Fatalf("the link is not slow: %v", took)
		}
		if _, _, err := c.Get(context.Background(), "/big", ReadOptions{}); err != nil || c.Session() != s || c.Stats().Connects != 1 {
			t.Fatalf("afterwards: %v, %+v", err, c.Stats())
		}
		c.Close()
		time.Sleep(time.Minute) // the slow link drains
	})
}

// Goal: with a path in the address everything happens below it and nothing shows it.
func TestC105Chroot(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		f.do(t, &znode.Create{Path: "/app", ACL: znode.OpenACL})
		f.do(t, &znode.Create{Path: "/apple", ACL: znode.OpenACL})
		c := f.client(t, func(o *Options) { o.Endpoints = []string{"ws://a:1/app"} })
		ctx := t.Context()
		_, _, root, err1 := c.ChildrenW(ctx, "/")
		_, _, x, err2 := c.ExistsW(ctx, "/x")
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		got, end := collect(t, c, "/", WatchOptions{Recursive: true})
		path, _, err := c.Create(ctx, "/s-", nil, CreateOptions{Mode: znode.Mode{Kind: znode.Ephemeral, Sequential: true}})
		if err != nil || path != "/s-0000000000" {
			t.Fatalf("create: %q, %v", path, err)
		}
		res, err := c.Multi(ctx, &znode.Create{Path: "/x"}, &znode.SetData{Path: "/x", Version: -1}, &znode.Check{Path: "/", Version: -1})
		if err != nil || res[0].Path != "/x" {
			t.Fatalf("multi: %+v, %v", res, err)
		}
		if _, err := c.Set(ctx, "/", nil, -1); err != nil {
			t.Fatal(err)
		}
		if ev := next(t, root); ev.Path != "/" || ev.Type != znode.EventChildrenChanged {
			t.Errorf("root: %+v", ev)
		}
		if ev := next(t, x); ev.Path != "/x" || ev.Type != znode.EventCreated {
			t.Errorf("x: %+v", ev)
		}
		want := []wire.Event{{Type: znode.EventCreated, Path: path}, {Type: znode.EventCreated, Path: "/x"},
			{Type: znode.EventDataChanged, Path: "/x"}, {Type: znode.EventDataChanged, Path: "/"}}
		if events := plain(got()); !slices.Equal(events, want) {
			t.Errorf("recursive: %v, want %v", events, want)
		}
		names, _, err := c.Children(ctx, "/", ReadOptions{})
		if err != nil || !slices.Equal(names, []string{"s-0000000000", "x"}) {
			t.Errorf("children: %v, %v", names, err)
		}
		if paths, err := c.Ephemerals(ctx, "/"); err != nil || !slices.Equal(paths, []string{path}) {
			t.Errorf("ephemerals: %v, %v", paths, err)
		}
		if _, _, err := c.Get(ctx, "", ReadOptions{}); !errors.Is(err, znode.BadArguments) {
			t.Errorf("an empty path: %v", err)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		f.with(func() {
			if f.tree.Node("/app/x") == nil || f.tree.Node("/x") != nil {
				t.Error("not below /app")
			}
		})
	})
}

// Goal: who cannot connect is told to where and why, in words and in the chain. Method:
// real sockets, one for each mistake.
func TestC149WhyNotConnected(t *testing.T) {
	f := newFake(t, "a:1")
	handler := f.httpServer(f.members["a:1"]).Handler
	plain, secure := httptest.NewServer(handler), httptest.NewUnstartedServer(handler)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(func() { plain.Close(); secure.Close() })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	at := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	for _, tc := range []struct {
		name, endpoint, want string
		tls                  *tls.Config
	}{
		{"wrong port", "ws://" + closed.Addr().String(), "connection refused", nil},
		{"TLS to plain", "wss://" + at(plain), "does not speak TLS", nil},
		{"plain to TLS", "ws://" + at(secure), "HTTP request to an HTTPS server", nil},
		{"wrong CA", "wss://" + at(secure), "unknown authority", nil},
		{"right CA", "wss://" + at(secure), "", &tls.Config{RootCAs: roots}},
		{"plain", at(plain), "", nil},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		c, err := Connect(ctx, Options{Endpoints: []string{tc.endpoint}, TLS: tc.tls})
		cancel()
		switch {
		case tc.want == "" && err == nil:
			c.Close()
		case tc.want == "" || err == nil:
			t.Errorf("%s: %v", tc.name, err)
		case !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.endpoint):
			t.Errorf("%s: %v: must say %q and the address", tc.name, err, tc.want)
		}
	}
}

// Goal: options that cannot work are refused with their name.
func TestOptionsAreChecked(t *testing.T) {
	for want, o := range map[string]Options{
		"Endpoints is empty": {},
		"same path":          {Endpoints: []string{"a:1/x", "b:1/y"}},
		"http://a":           {Endpoints: []string{"http://a"}},
		"Timeout":            {Endpoints: []string{"a:1"}, Timeout: -1},
		"Window":             {Endpoints: []string{"a:1"}, Window: -1},
	} {
		if _, err := Connect(context.Background(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
