package tests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/znode"
)

// restartLimit is far above what a restart takes: what is tested is what is answered.
const restartLimit = 60 * time.Second

// quietPorts are those that quietPort has returned.
var quietPorts sync.Map

// quietPort returns a free port of loopback below those that the kernel gives to
// outgoing connections, so that nobody gets it while its daemon is down.
func quietPort(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000))
		if _, taken := quietPorts.LoadOrStore(address, true); taken {
			continue
		}
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}

// Goal: a member with much data is soon back, and before it has everything it refuses
// connections instead of answering from half of it. Method: 200 000 znodes, kill -9,
// and clients that try to connect and read all the while from the kill on: each must be
// refused or find its znode. The same after a clean stop.
func TestC131RestartTime(t *testing.T) {
	const parents, children = 20, 10_000
	address := quietPort(t)
	m := newMember(t, "--listen", address)
	c := m.connect(client.Options{})
	began := time.Now()
	var g errgroup.Group
	for p := range parents {
		g.Go(func() error { return createMany(t.Context(), c, fmt.Sprintf("/parent-%d", p), children) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d znodes made in %v", parents*children, time.Since(began))
	if err := c.Detach(); err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func(*member){"kill -9": (*member).crash, "a clean stop": (*member).stop} {
		end(m)
		began := time.Now()
		var probes errgroup.Group
		for i := range 4 {
			probes.Go(func() error {
				return probe(t.Context(), address, fmt.Sprintf("/parent-%d/%d", i*parents/4, children-1))
			})
		}
		m.start()
		ready := time.Since(began)
		if err := probes.Wait(); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
		t.Logf("ready %v after %s, first answers after %v", ready, name, time.Since(began))
	}
	c = m.connect(client.Options{})
	if n, err := c.CountDescendants(t.Context(), "/"); err != nil || n < parents*(children+1) {
		t.Errorf("%v, there are %d znodes, %d must be", err, n, parents*(children+1))
	}
}

// createMany makes a parent and n children in large transactions.
func createMany(ctx context.Context, c *client.Client, parent string, n int) error {
	_, _, err := c.Create(ctx, parent, nil, client.CreateOptions{})
	data := make([]byte, 100)
	for i := 0; i < n && err == nil; {
		var ops []znode.Op
		for ; i < n && len(ops) < 250; i++ {
			ops = append(ops, &znode.Create{Path: fmt.Sprintf("%s/%d", parent, i), Data: data})
		}
		_, err = c.Multi(ctx, ops...)
	}
	return err
}

// probe connects again and again until it gets a session, and then wants to find path.
func probe(ctx context.Context, address, path string) error {
	ctx, cancel := context.WithTimeout(ctx, restartLimit)
	defer cancel()
	for {
		attempt, stop := context.WithTimeout(ctx, 5*time.Second)
		c, err := client.Connect(attempt, client.Options{Endpoints: []string{address}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			if err != nil {
				stop() // this attempt is over: the next one is a new client
			}
			return conn, err
		}})
		stop()
		if err == nil {
			data, _, err := c.Get(ctx, path, client.ReadOptions{})
			if err == nil && len(data) != 100 {
				err = fmt.Errorf("%s has %d bytes", path, len(data))
			}
			return errors.Join(err, c.Close())
		}
		if ctx.Err() != nil {
			return fmt.Errorf("nothing is served after %v: %w", restartLimit, err)
		}
		<-time.After(5 * time.Millisecond) // the member needs the processor too
	}
}
