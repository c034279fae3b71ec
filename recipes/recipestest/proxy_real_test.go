package recipestest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/server"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// startTenure runs a server of one member and a client of it behind a proxy.
func startTenure(t *testing.T) (*Proxy, *client.Client) {
	t.Helper()
	s, err := server.Open(server.Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0", ZKListen: "none"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	x := NewProxy(t, s.Addr().String(), TenureWire)
	c, err := client.Connect(t.Context(), client.Options{Endpoints: []string{x.Addr()}, Timeout: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return x, c
}

// Goal: the faults do to the real client and server what they say, and the client comes
// back by itself. Method: each verb around real calls; a write whose answer was dropped
// is applied exactly once.
func TestProxyBetweenRealClientAndServer(t *testing.T) {
	x, c := startTenure(t)
	var peer Peer
	x.Fill(&peer)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, _, err := c.Create(ctx, "/a", nil, client.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	set := func(version int32) {
		t.Helper()
		stat, err := c.Set(ctx, "/a", fmt.Appendf(nil, "%d", version), version)
		if err != nil || stat.Version != version+1 {
			t.Fatalf("set of version %d: version %d, %v", version, stat.Version, err)
		}
	}
	done := peer.CutAfterCommit(Set)
	set(0)
	happens(t, "cut after commit", done)
	done = peer.CutBeforeSend(AnyWrite)
	set(1)
	happens(t, "cut before send", done)

	held, release := peer.Hold(Renew)
	renewed := make(chan error, 1)
	go func() {
		_, _, err := c.Session().Renew(ctx, wire.Held{Path: "/a"})
		renewed <- err
	}()
	happens(t, "hold", held)
	select {
	case err := <-renewed:
		t.Fatalf("the renewal returned (%v) while its answer was held", err)
	default:
	}
	release()
	if err := <-renewed; err != nil {
		t.Fatal(err)
	}

	peer.Break()
	set(2)
	peer.Partition()
	short, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	if _, _, err := c.Get(short, "/a", client.ReadOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a read during a partition: %v, want it to wait", err)
	}
	peer.Heal()
	set(3)
	peer.Delay(100 * time.Millisecond)
	began := time.Now()
	set(4)
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("a write took %v with answers delayed by 100 ms", took)
	}
	peer.Delay(0)
	if _, err := c.Set(ctx, "/a", nil, 77); !errors.Is(err, znode.BadVersion) {
		t.Errorf("set of a wrong version: %v, want BadVersion", err)
	}
}
