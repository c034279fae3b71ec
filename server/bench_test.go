package server

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
)

// benchShapes are connections and requests in flight on each.
var benchShapes = []struct{ connections, outstanding int }{{1, 1}, {16, 16}}

// BenchmarkPath measures the whole path of one operation in this process: client,
// loopback, server, log with its sync, store, and back. Beside ns/op it reports how
// many operations shared one sync, and what a sync took: at 1x1 the latter is most of
// a write. Bounded runs: go test -bench Path -benchtime 2000x ./server
func BenchmarkPath(b *testing.B) {
	value := make([]byte, 100)
	var name atomic.Int64
	operations := []struct {
		name string
		do   func(ctx context.Context, c *client.Client) error
	}{
		{"create", func(ctx context.Context, c *client.Client) error {
			_, _, err := c.Create(ctx, fmt.Sprintf("/bench/n%d", name.Add(1)), value, client.CreateOptions{})
			return err
		}},
		{"set", func(ctx context.Context, c *client.Client) error {
			_, err := c.Set(ctx, "/bench", value, -1)
			return err
		}},
		{"get", func(ctx context.Context, c *client.Client) error {
			_, _, err := c.Get(ctx, "/bench", client.ReadOptions{})
			return err
		}},
	}
	for _, op := range operations {
		for _, shape := range benchShapes {
			b.Run(fmt.Sprintf("%s/%dx%d", op.name, shape.connections, shape.outstanding), func(b *testing.B) {
				s, clients := benchPath(b, shape.connections)
				benchLoad(b, s, clients, shape.outstanding, op.do)
			})
		}
	}
}

// benchPath starts a server with the node /bench and opens sessions.
func benchPath(b *testing.B, connections int) (*Server, []*client.Client) {
	b.Helper()
	s, err := Open(Config{DataDir: b.TempDir(), Listen: "127.0.0.1:0", ZKListen: "none"}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			b.Error(err)
		}
	})
	var clients []*client.Client
	for range connections {
		c, err := client.Connect(b.Context(), client.Options{Endpoints: []string{s.Addr().String()}})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := c.Close(); err != nil {
				b.Error(err)
			}
		})
		clients = append(clients, c)
	}
	if _, _, err := clients[0].Create(b.Context(), "/bench", nil, client.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	return s, clients
}

// benchLoad makes b.N operations from outstanding goroutines per client.
func benchLoad(b *testing.B, s *Server, clients []*client.Client, outstanding int, do func(context.Context, *client.Client) error) {
	var next atomic.Int64
	var workers sync.WaitGroup
	syncs, syncNs := benchSyncs(s)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range len(clients) * outstanding {
		workers.Go(func() {
			for next.Add(1) <= int64(b.N) {
				if err := do(b.Context(), clients[i%len(clients)]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
	b.StopTimer()
	afterSyncs, afterNs := benchSyncs(s)
	if n := afterSyncs - syncs; n > 0 {
		b.ReportMetric(float64(b.N)/float64(n), "ops/sync")
		b.ReportMetric(float64(afterNs-syncNs)/float64(n), "ns/sync")
	}
}

// benchSyncs returns how many syncs of the log there were, and the time they took.
func benchSyncs(s *Server) (n, ns int64) {
	for i := range s.metrics.sync.buckets {
		n += s.metrics.sync.buckets[i].Load()
	}
	return n, s.metrics.sync.sumNs.Load()
}
