package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

const sessionTimeout = 10 * time.Second

// bubble runs test in fake time with a fake ensemble of the given members, "a:1" if
// none is given.
func bubble(t *testing.T, addrs []string, test func(t *testing.T, f *fakeEnsemble)) {
	t.Helper()
	if len(addrs) == 0 {
		addrs = []string{"a:1"}
	}
	synctest.Test(t, func(t *testing.T) { test(t, newFake(t, addrs...)) })
}

// client connects to all members of f; change may be nil. It is closed with the test.
func (f *fakeEnsemble) client(t testing.TB, change func(*Options)) *Client {
	t.Helper()
	o := Options{Timeout: sessionTimeout, Dial: f.dial}
	for addr := range f.members {
		o.Endpoints = append(o.Endpoints, addr)
	}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := Connect(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func mustCreate(t testing.TB, c *Client, path string, kind znode.Kind) {
	t.Helper()
	if _, _, err := c.Create(t.Context(), path, nil, CreateOptions{Mode: znode.Mode{Kind: kind}}); err != nil {
		t.Fatal(err)
	}
}

// awaitState waits until s is in state, for a minute of fake time at most.
func awaitState(t testing.TB, s *Session, want State) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for state := range s.States(ctx) {
		if state == want {
			return
		}
	}
	t.Fatalf("session is %v after a minute, want %v", s.State(), want)
}

// next returns the event of a one-shot watch, within a minute of fake time.
func next(t testing.TB, w OneShot) wire.Event {
	t.Helper()
	select {
	case ev, ok := <-w.C:
		if !ok {
			t.Fatal("watch ended without an event")
		}
		return ev
	case <-time.After(time.Minute):
		t.Fatal("no event within a minute")
	}
	panic("unreachable")
}

// collect starts a loop over Watch and returns what it has got so far once the bubble
// is idle, each time it is called.
func collect(t testing.TB, c *Client, path string, o WatchOptions) (got func() []wire.Event, end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	events := make(chan wire.Event, 1<<16)
	ended := make(chan error, 1)
	go func() {
		var last error
		for ev, err := range c.Watch(ctx, path, o) {
			if last = err; err == nil {
				events <- ev
			}
		}
		ended <- last
	}()
	synctest.Wait()
	got = func() (all []wire.Event) {
		synctest.Wait()
		for len(events) > 0 {
			all = append(all, <-events)
		}
		return all
	}
	return got, func() error {
		cancel()
		return <-ended
	}
}

// plain forgets zxids, for comparisons.
func plain(events []wire.Event) []wire.Event {
	out := make([]wire.Event, len(events))
	for i, ev := range events {
		out[i] = wire.Event{Type: ev.Type, Path: ev.Path}
	}
	return out
}

func (f *fakeEnsemble) anySession() (id session.ID) {
	f.with(func() {
		for s := range f.sessions {
			id = s
		}
	})
	return id
}
