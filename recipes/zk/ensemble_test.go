package zk_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/recipes/zk"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: a session moves between the members of an ensemble and keeps its ephemerals, and
// peers on different members see each other's writes after Sync. Method: 12 moves.
func TestEnsembleMove(t *testing.T) {
	t.Parallel()
	h := harness("three", ensemble, "")
	p, other, ctx := h.Open(t), h.Open(t), bounded(t)
	session := p.Store.Session()
	_, err := p.Store.Create(ctx, "/e", nil, recipes.CreateSpec{Kind: znode.Ephemeral})
	must(t, err)
	for i := range 12 {
		p.Move()
		must(t, p.Store.Sync(ctx, "/")) // on the new connection
		_, err := p.Store.Set(ctx, "/e", []byte{byte(i)}, recipes.IfVersion(int32(i)))
		must(t, err)
		must(t, other.Store.Sync(ctx, "/e"))
		if data, stat, err := other.Store.Get(ctx, "/e"); err != nil || data[0] != byte(i) || int64(stat.EphemeralOwner) != session.ID() {
			t.Fatalf("move %d: %v, %+v, %v", i, data, stat, err)
		}
	}
	if p.Store.Session() != session {
		t.Errorf("the session ended: %v", session.Err())
	}
	p.Expire(t)
	must(t, other.Store.Sync(ctx, "/"))
	if _, exists, w, err := other.Store.ExistsW(ctx, "/e"); exists || err != nil {
		t.Errorf("after Expire the ephemeral exists: %v, %v", exists, err)
	} else {
		w.Cancel()
	}
}

// Goal: a member that is silent, or dead, costs neither the session nor a session
// timeout. Method: servers of its own, since others would notice; all three are in the
// client's list.
func TestMemberFails(t *testing.T) {
	z := recipestest.StartZooKeeper(t, recipestest.ZooKeeperOptions{Servers: 3})
	s, ctx := open(t, zk.Options{Servers: z.Addrs(), Timeout: 4e9}), bounded(t)
	session := s.Session()
	_, err := s.Create(ctx, "/e", nil, recipes.CreateSpec{Kind: znode.Ephemeral})
	must(t, err)
	follower := (z.Leader() + 1) % 3
	must(t, z.Pause(follower))
	must(t, s.Sync(ctx, "/"))
	must(t, z.Resume(follower))
	z.Stop(follower)
	must(t, s.Sync(ctx, "/"))
	must(t, z.Start(follower))
	must(t, s.Sync(ctx, "/"))
	if _, _, err := s.Get(ctx, "/e"); err != nil || s.Session() != session {
		t.Errorf("the session was lost: %v, %v", err, session.Err())
	}
}

// Goal: TLS is used and the server's name is checked. Method: a TLS front of our own
// before the server, with a certificate for 127.0.0.1.
func TestTLS(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(nil)
	defer web.Close()
	front, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: web.TLS.Certificates})
	must(t, err)
	target := single.Get(t).Addrs()[0]
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { front.Close() })
	wg.Go(func() {
		for {
			down, err := front.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", target)
			if err != nil {
				down.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{up, down}, {down, up}} {
				wg.Go(func() {
					io.Copy(pair[0], pair[1]) // its end is what matters
					pair[0].Close()
				})
			}
		}
	})
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	o := zk.Options{Servers: []string{front.Addr().String()}, TLS: &tls.Config{RootCAs: roots}}
	s := open(t, o)
	must(t, s.Sync(bounded(t), "/"))
	must(t, s.Close())
	o.TLS = &tls.Config{RootCAs: roots, ServerName: "another.test"}
	if _, err := zk.Connect(within(t, timeout), o); err == nil {
		t.Error("connected to a server with another name")
	}
}
