package native

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// mute makes connections whose requests are held back while answers go on to come, from
// begin to end. It is safe for concurrent use.
type mute struct{ begin, end chan struct{} }

func (m *mute) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, network, address)
	return &mutedConn{Conn: nc, m: m, closed: make(chan struct{})}, err
}

// mutedConn is one connection, used as any net.Conn.
type mutedConn struct {
	net.Conn
	m      *mute
	once   sync.Once
	closed chan struct{}
}

// Write implements net.Conn.
func (c *mutedConn) Write(p []byte) (int, error) {
	select {
	case <-c.m.begin:
		select {
		case <-c.m.end:
		case <-c.closed:
			return 0, net.ErrClosed
		}
	default:
	}
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *mutedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// Goal: a holder counts from when it asked and not from when it was answered. Method: 8
// holders whose answers come late by 0.25 session timeouts, and of whom then nothing is
// heard while those answers still come: the next one must begin after the last Check
// that passed. Who counts from the receipt overlaps by up to 0.25 session timeouts.
func TestLateAnswersProlongNothing(t *testing.T) {
	b := startBackend(t, nil)
	const timeout, late = 2 * time.Second, 500 * time.Millisecond
	heirs := b.store(t, client.Options{})
	var all sync.WaitGroup
	for i := range 8 {
		path := fmt.Sprintf("/late%d", i)
		m := &mute{make(chan struct{}), make(chan struct{})}
		proxy := recipestest.NewProxy(t, b.addr(), recipestest.TenureWire)
		s := b.store(t, client.Options{Endpoints: []string{proxy.Addr()}, Timeout: timeout, Dial: m.dial})
		holder := campaign(t, s, path)
		proxy.Delay(late)
		all.Go(func() {
			defer close(m.end)
			// Wherever this is in the period of a renewal, another time in each.
			<-time.After(timeout + time.Duration(i)*timeout/24)
			next := make(chan time.Time, 1)
			all.Go(func() {
				e, err := recipes.NewElection(heirs, path, recipes.ElectionOptions{})
				if err == nil {
					_, err = e.Campaign(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
				next <- time.Now()
			})
			close(m.begin)
			var last time.Time
			for at := time.Now(); holder.Check() == nil; at = time.Now() {
				last = at
				<-time.After(time.Millisecond)
			}
			if began := <-next; last.IsZero() {
				t.Errorf("%s: lost before it fell silent", path)
			} else if !last.Before(began) {
				t.Errorf("%s: the holder passed a Check at %v, %v after the next began", path, last, last.Sub(began))
			}
		})
	}
	all.Wait()
}

func campaign(t *testing.T, s recipes.Store, path string) *recipes.Tenure {
	t.Helper()
	e, err := recipes.NewElection(s, path, recipes.ElectionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tenure, err := e.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tenure
}
