package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: Close with many calls queued ends the session at once, every call has an
// outcome, and later ones fail.
func TestC031CloseEndsTheSession(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, func(o *Options) { o.Timeout, o.Window = 30*time.Second, 16 })
		var wg sync.WaitGroup
		outcomes := make(chan error, 1000)
		for i := range 200 {
			wg.Go(func() {
				kind := znode.Persistent
				if i%2 == 0 {
					kind = znode.Ephemeral
				}
				_, _, err := c.Create(context.Background(), fmt.Sprintf("/n%d", i), nil, CreateOptions{Mode: znode.Mode{Kind: kind}})
				outcomes <- err
			})
		}
		wg.Go(func() {
			for range 50 {
				_, _, err := c.Get(context.Background(), "/", ReadOptions{})
				outcomes <- err
			}
		})
		start := time.Now()
		if err := c.Close(); err != nil || time.Since(start) > 2*time.Second {
			t.Fatalf("Close after %v: %v", time.Since(start), err)
		}
		f.with(func() {
			if len(f.sessions) != 0 {
				t.Error("the session is still open after Close")
			}
		})
		wg.Wait()
		close(outcomes)
		count := 0
		for err := range outcomes {
			if count++; err != nil && !errors.Is(err, ErrClosed) {
				t.Errorf("a call ended with %v", err)
			}
		}
		if count != 250 {
			t.Errorf("%d of 250 calls ended", count)
		}
		if _, _, err := c.Get(context.Background(), "/", ReadOptions{}); !errors.Is(err, ErrClosed) {
			t.Errorf("a call after Close: %v", err)
		}
		if s := c.Session(); s.State() != Over || !errors.Is(s.Err(), ErrClosed) {
			t.Errorf("the session is %v: %v", s.State(), s.Err())
		}
		f.with(func() {
			f.tree.All(func(path string, n *znode.Node, _ znode.Children) bool {
				if n.Kind == znode.Ephemeral {
					t.Errorf("ephemeral %s is left", path)
				}
				return true
			})
		})
	})
}

// Goal: nothing is left after Close, whatever was pending. Method: 500 cycles in one
// bubble, which fails the test if a goroutine stays blocked; one in five against a
// server that does not answer.
func TestC095CloseLeavesNothing(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		for cycle := range 500 {
			closeCycle(t, f, cycle%5 == 0)
			if t.Failed() {
				return
			}
		}
		f.with(func() {
			if len(f.conns) != 0 {
				t.Errorf("%d connections are left", len(f.conns))
			}
		})
	})
}

func closeCycle(t *testing.T, f *fakeEnsemble, silent bool) {
	f.with(func() { f.before = nil })
	c := f.client(t, func(o *Options) { o.Window = 64 })
	var watches []OneShot
	for range 20 {
		_, _, w, err := c.ExistsW(context.Background(), "/none")
		if err != nil {
			t.Fatal(err)
		}
		watches = append(watches, w)
	}
	if silent {
		f.with(func() { f.before = func(*fakeConn, *wire.Request) verdict { return ignore } })
	}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if _, _, err := c.Get(context.Background(), "/", ReadOptions{}); err != nil && !errors.Is(err, ErrClosed) {
				t.Errorf("a pending call ended with %v", err)
			}
		})
	}
	wg.Go(func() {
		for _, err := range c.Watch(context.Background(), "/", WatchOptions{}) {
			if err != nil && !errors.Is(err, ErrClosed) {
				t.Errorf("a stream ended with %v", err)
			}
		}
	})
	start := time.Now()
	for range 2 {
		wg.Go(func() { c.Close() })
	}
	wg.Wait()
	if took := time.Since(start); took > time.Second {
		t.Errorf("Close took %v", took)
	}
	for _, w := range watches {
		if _, open := <-w.C; open {
			t.Error("an event on a watch of a closed client")
		}
		w.Cancel()
	}
	synctest.Wait()
}

// Goal: neither Connect nor Close hangs on an address that does not answer.
func TestC095CloseWhileDialling(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, nil)
		f.with(func() { f.members["a:1"].hang = true })
		f.cutAll()
		synctest.Wait()
		start := time.Now()
		if err := c.Close(); err == nil {
			t.Error("Close confirmed an end that no server has seen")
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		start = time.Now()
		_, err := Connect(ctx, Options{Endpoints: []string{"a:1"}, Dial: f.dial})
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 4*time.Second {
			t.Errorf("Connect after %v: %v", took, err)
		}
	})
}

// Goal: Detach leaves the session to expire by itself.
func TestDetach(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, nil)
		if err := c.Detach(); err != nil {
			t.Fatal(err)
		}
		if f.anySession() == 0 {
			t.Error("Detach ended the session")
		}
		time.Sleep(sessionTimeout + time.Second)
		if f.anySession() != 0 {
			t.Error("the session did not expire")
		}
	})
}
