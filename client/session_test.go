package client

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: a cut keeps the session; an expiry at the server ends it and opens another.
func TestResumeAndExpiry(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, nil)
		s := c.Session()
		if s.ID() == 0 || s.State() != Connected || s.Timeout() != sessionTimeout || len(s.Password()) != 16 {
			t.Fatalf("session %v is %v with timeout %v", s.ID(), s.State(), s.Timeout())
		}
		mustCreate(t, c, "/e", znode.Ephemeral)
		id := s.ID()
		f.cutAll()
		awaitState(t, s, Suspended)
		awaitState(t, s, Connected)
		if s.ID() != id || c.Session() != s {
			t.Fatalf("session %v became %v", id, c.Session().ID())
		}
		f.expireAll()
		<-s.Done()
		if !errors.Is(s.Err(), znode.SessionExpired) || s.State() != Over {
			t.Fatalf("after the expiry: %v, %v", s.State(), s.Err())
		}
		fresh := c.Session()
		if fresh == s {
			t.Fatal("Done is closed before the successor is there")
		}
		awaitState(t, fresh, Connected)
		if _, found, err := c.Exists(t.Context(), "/e", ReadOptions{}); found || err != nil {
			t.Fatalf("ephemeral of the old session: %v, %v", found, err)
		}
		if got := c.Stats(); got.Connects != 3 || got.Resumes != 1 || got.Expiries != 1 {
			t.Fatalf("stats %+v", got)
		}
	})
}

// Goal: a client that lost its server tries another one first, which is there if the lost one
// is not. Method: cut it many times.
func TestAnotherServerIsTriedFirst(t *testing.T) {
	bubble(t, []string{"a:1", "b:1"}, func(t *testing.T, f *fakeEnsemble) {
		dialed := make(chan string, 1)
		f.client(t, func(o *Options) {
			o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				dialed <- addr
				return f.dial(ctx, network, addr)
			}
		})
		last := <-dialed
		for range 30 {
			time.Sleep(2 * confirmAfter)
			f.cutAll()
			next := <-dialed
			if next == last {
				t.Fatalf("tried %s again, which it had lost", next)
			}
			last = next
		}
	})
}

// Goal: an idle client proves its session each third of the timeout, and the proof
// counts from before the request was sent.
func TestHeartbeatsProve(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, nil)
		for range 20 {
			time.Sleep(sessionTimeout / 3)
			synctest.Wait()
			p := c.Session().Proof()
			if age := time.Since(p.Sent); age > sessionTimeout/3 || p.TTL != sessionTimeout {
				t.Fatalf("proof is %v old with TTL %v", age, p.TTL)
			}
		}
		// Stale reads keep the connection busy but prove nothing by themselves.
		for end := time.Now().Add(sessionTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if _, _, err := c.Get(t.Context(), "/", ReadOptions{Stale: true}); err != nil {
				t.Fatal(err)
			}
			if age := time.Since(c.Session().Proof().Sent); age > sessionTimeout/3+time.Millisecond {
				t.Fatalf("proof is %v old", age)
			}
		}
		before := time.Now()
		p, held, err := c.Session().Renew(t.Context(), wire.Held{Path: "/none", Czxid: 1}, wire.Held{Path: "/", Czxid: 0})
		if err != nil || p.Sent.Before(before) || p.TTL != sessionTimeout || held[0] != znode.NoNode || held[1] != znode.OK {
			t.Fatalf("renew: %+v, %v, %v", p, held, err)
		}
		if best := c.Session().Proof(); best.Sent.Before(p.Sent) {
			t.Fatalf("proof %v is older than the renewal's %v", best.Sent, p.Sent)
		}
	})
}

// Goal: a silent server does not hang calls; another member takes over in time to keep
// the session; with none the session is over by the local clock within 4/3 of it.
func TestC093SilentServers(t *testing.T) {
	bubble(t, []string{"a:1", "b:1"}, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, nil)
		s := c.Session()
		// The member that serves falls silent for every connection it has.
		f.with(func() {
			for fc := range f.conns {
				n := fc.number
				f.before = func(fc *fakeConn, _ *wire.Request) verdict {
					if fc.number == n {
						return ignore
					}
					return goOn
				}
			}
		})
		start := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		_, _, err := c.Get(ctx, "/", ReadOptions{})
		if waited := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || waited != 3*time.Second {
			t.Fatalf("after %v: %v", waited, err)
		}
		if _, _, err := c.Get(context.Background(), "/", ReadOptions{}); err != nil {
			t.Fatalf("without a deadline, another member up: %v", err)
		}
		if c.Session() != s {
			t.Fatal("the session was lost though another member was up")
		}
		f.with(func() {
			f.before = nil
			for _, m := range f.members {
				m.mute = true
			}
		})
		down := time.Now()
		_, err = c.Set(context.Background(), "/zookeeper", nil, -1)
		if !errors.Is(err, ErrUnknown) || !errors.Is(err, znode.SessionExpired) {
			t.Fatalf("write into the silence: %v", err)
		}
		<-s.Done()
		if lost := time.Since(down); lost > sessionTimeout*4/3 {
			t.Fatalf("lost after %v, more than 4/3 of %v", lost, sessionTimeout)
		}
		time.Sleep(5 * time.Minute)
		f.with(func() {
			for _, m := range f.members {
				m.mute = false
			}
		})
		awaitState(t, c.Session(), Connected)
	})
}

// Goal: with all servers down, calls in a session that cannot even be opened end too.
func TestC093NothingReachable(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, nil)
		f.with(func() { f.members["a:1"].down = true })
		f.cutAll()
		synctest.Wait()
		start := time.Now()
		_, _, err := c.Create(context.Background(), "/x", nil, CreateOptions{})
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknown) || time.Since(start) > sessionTimeout*4/3 {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		start = time.Now()
		_, _, err = c.Create(context.Background(), "/x", nil, CreateOptions{})
		if !errors.Is(err, ErrUnavailable) || time.Since(start) > sessionTimeout*4/3 {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		if _, ok := errors.AsType[*net.OpError](err); !ok {
			t.Fatalf("the cause is not kept: %v", err)
		}
	})
}

// Goal: a server that lost its data makes the client start anew within two timeouts,
// with a named error, at no more than an attempt a second.
func TestC035HistoryLost(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, nil)
		for range 500 {
			if _, err := c.Set(t.Context(), "/zookeeper", nil, -1); err != nil {
				t.Fatal(err)
			}
		}
		_, _, watch, err := c.GetW(t.Context(), "/zookeeper")
		if err != nil {
			t.Fatal(err)
		}
		s := c.Session()
		f.with(func() {
			f.tree, f.history, f.sessions, f.dials = znode.NewTree(), nil, map[session.ID]*fakeSession{}, 0
		})
		f.cutAll()
		start := time.Now()
		<-s.Done()
		took := time.Since(start)
		if took > 2*sessionTimeout || !errors.Is(s.Err(), znode.SessionExpired) || !errors.Is(s.Err(), ErrHistoryBehind) {
			t.Fatalf("after %v: %v", took, s.Err())
		}
		f.with(func() {
			if f.dials > int(took/time.Second)+5 {
				t.Errorf("%d attempts in %v", f.dials, took)
			}
		})
		if _, open := <-watch.C; open {
			t.Fatal("an event from a session that is over")
		}
		awaitState(t, c.Session(), Connected)
		mustCreate(t, c, "/e", znode.Ephemeral)
	})
}

// Goal: names are resolved on each attempt. Method: the dialer is the resolver.
func TestC097NamesAreResolvedAnew(t *testing.T) {
	bubble(t, []string{"127.0.0.2:1", "127.0.0.3:1"}, func(t *testing.T, f *fakeEnsemble) {
		current := "127.0.0.2:1"
		c := f.client(t, func(o *Options) {
			o.Endpoints = []string{"zk.test:1"}
			o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if addr != "zk.test:1" {
					t.Errorf("dialled %q, not the name", addr)
				}
				f.mu.Lock()
				at := current
				f.mu.Unlock()
				return f.dial(ctx, network, at)
			}
		})
		s := c.Session()
		f.with(func() {
			current = "127.0.0.3:1"
			f.members["127.0.0.2:1"].down = true
		})
		f.cutAll()
		start := time.Now()
		awaitState(t, s, Suspended)
		awaitState(t, s, Connected)
		if took := time.Since(start); took > time.Second || c.Session() != s {
			t.Fatalf("connected again after %v", took)
		}
	})
}

// Goal: servers that accept and close are not hammered, and are used soon after they
// recover. Method: forty clients, a minute of slamming.
func TestC099Backoff(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fakeEnsemble) {
		const clients = 40
		all := make([]*Client, clients)
		for i := range all {
			all[i] = f.client(t, func(o *Options) { o.Timeout = 5 * time.Minute })
		}
		f.with(func() { f.members["a:1"].slam, f.dials = true, 0 })
		f.cutAll()
		time.Sleep(time.Minute)
		f.with(func() {
			if f.dials > clients*60 {
				t.Errorf("%d attempts of %d clients in a minute", f.dials, clients)
			}
			f.members["a:1"].slam = false
		})
		healed := time.Now()
		for _, c := range all {
			awaitState(t, c.Session(), Connected)
		}
		if took := time.Since(healed); took > 5*time.Second {
			t.Fatalf("all connected after %v", took)
		}
	})
}

// Goal: a server that says that it restarts is left and replaced promptly.
func TestServiceRestart(t *testing.T) {
	bubble(t, []string{"a:1", "b:1"}, func(t *testing.T, f *fakeEnsemble) {
		c := f.client(t, nil)
		time.Sleep(time.Minute)
		start := time.Now()
		f.with(func() {
			for fc := range f.conns {
				fc.closeWith(websocket.CloseServiceRestart)
			}
		})
		awaitState(t, c.Session(), Suspended)
		awaitState(t, c.Session(), Connected)
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Fatalf("connected again after %v", took)
		}
	})
}
