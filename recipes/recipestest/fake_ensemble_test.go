package recipestest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: a backend that stops and comes back has its data and its sessions. Method: a
// pause in service that is longer than a session timeout.
func TestFakeRestart(t *testing.T) {
	flavours(t, FakeOptions{Members: 3}, func(t *testing.T, f *Fake) {
		p, ctx := f.Open(t), t.Context()
		must(p.Store.Create(ctx, "/e", nil, ephemeral))(t)
		s := p.Store.Session()
		f.Restart(9 * time.Second)
		check(t, p.Store.Sync(ctx, "/"))
		if p.Store.Session() != s || len(f.Nodes("/e")) != 1 {
			t.Error("the session did not live on")
		}
		f.Restart(30 * time.Second)
		check(t, p.Store.Sync(ctx, "/"))
		if p.Store.Session() == s {
			t.Error("the session outlived the client's own clock")
		}
	})
}

// Goal: the counter does behind its last number what the imitated backend does. Method:
// set it just below, and create one by one and two in a transaction.
func TestFakeCounterOverflow(t *testing.T) {
	flavours(t, FakeOptions{}, func(t *testing.T, f *Fake) {
		s, ctx := f.Open(t).Store, t.Context()
		must(s.Create(ctx, "/d", nil, persistent))(t)
		f.SetCounter(t, "/d", 1<<31-1)
		if p := must(s.Create(ctx, "/d/n", nil, seqEphemeral))(t); p != "/d/n2147483647" {
			t.Errorf("last: %s", p)
		}
		p, err := s.Create(ctx, "/d/n", nil, seqEphemeral)
		if f.o.Exact {
			if !errors.Is(err, znode.QuotaExceeded) {
				t.Errorf("%s, %v", p, err)
			}
			return
		}
		check(t, err)
		r, err := s.Multi(ctx, recipes.OpCreate("/d/n", nil, seqEphemeral), recipes.OpCreate("/d/m", nil, seqEphemeral))
		check(t, err)
		f.SetCounter(t, "/d", -1)
		q := must(s.Create(ctx, "/d/n", nil, seqEphemeral))(t)
		got := []string{p, r[0].Path, r[1].Path, q}
		if !slices.Equal(got, []string{"/d/n-2147483648", "/d/n-2147483647", "/d/m-2147483646", "/d/n-000000001"}) {
			t.Errorf("names %v", got)
		}
	})
}

// Goal: containers go when they lost their last child: by Reap at once, else within a
// minute; one that never had a child stays. Method: nested ones.
func TestFakeContainers(t *testing.T) {
	flavours(t, FakeOptions{}, func(t *testing.T, f *Fake) {
		s, ctx := f.Open(t).Store, t.Context()
		fill := func() {
			for _, path := range []string{"/c", "/c/d", "/c/d/e", "/new"} {
				_, err := s.Create(ctx, path, nil, recipes.CreateSpec{Kind: znode.Container})
				if err != nil && !errors.Is(err, znode.NodeExists) {
					t.Fatal(err)
				}
			}
			check(t, s.Delete(ctx, "/c/d/e", recipes.Always()))
		}
		fill()
		f.Reap()
		if n := f.Nodes("/"); !slices.Equal(n, []string{"/new"}) {
			t.Errorf("after Reap: %v", n)
		}
		fill()
		time.Sleep(2*reapAfter + time.Second)
		synctest.Wait()
		if n := f.Nodes("/"); !slices.Equal(n, []string{"/new"}) {
			t.Errorf("after a while: %v", n)
		}
	})
}

// Goal: a member that lags answers from the past in ZooKeeper's flavour until asked to
// Sync, never in Tenure's; a client sees its own writes in both. Method: one client on
// the follower that lags, one on another.
func TestFakeLag(t *testing.T) {
	flavours(t, FakeOptions{Members: 4}, func(t *testing.T, f *Fake) {
		a, b, c, ctx := f.Open(t), f.Open(t).Store, f.Open(t).Store, t.Context()
		a.Lag(time.Second) // member 1, and 2, where a would go; c is on 3
		must(c.Create(ctx, "/x", nil, persistent))(t)
		start := time.Now()
		_, found, w, err := b.ExistsW(ctx, "/x")
		check(t, err)
		w.Cancel()
		if found != f.o.Exact {
			t.Errorf("seen at the follower: %v", found)
		}
		check(t, b.Sync(ctx, "/x"))
		if _, _, err := b.Get(ctx, "/x"); err != nil {
			t.Errorf("after Sync: %v", err)
		}
		if took := time.Since(start); took < 900*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		must(a.Store.Create(ctx, "/mine", nil, persistent))(t)
		if _, _, err := a.Store.Get(ctx, "/mine"); err != nil {
			t.Errorf("its own write: %v", err)
		}
		a.Lag(0)
		start = time.Now()
		must(a.Store.Create(ctx, "/again", nil, persistent))(t)
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("without lag: %v", took)
		}
	})
}

// Goal: a lagging member shows a write neither before it has it, nor to a client that
// has seen it. Method: the answer to a create is lost, then to a read of its result.
func TestFakeLagAndMove(t *testing.T) {
	flavours(t, FakeOptions{Members: 3}, func(t *testing.T, f *Fake) {
		a, ctx := f.Open(t), t.Context()
		a.Lag(time.Second)
		a.CutAfterCommit(Create)
		_, err := a.Store.Create(ctx, "/x", nil, persistent)
		if f.o.Exact {
			check(t, err)
		} else {
			names, _, err := a.Store.Children(ctx, "/")
			check(t, err)
			if slices.Contains(names, "x") {
				t.Error("the member that lags has it at once")
			}
			check(t, a.Store.Sync(ctx, "/"))
		}
		must(a.Store.Set(ctx, "/x", []byte("new"), recipes.Always()))(t)
		for range 5 {
			a.Move()
			data, _, err := a.Store.Get(ctx, "/x")
			check(t, err)
			if string(data) != "new" {
				t.Errorf("travelled back to %q", data)
			}
		}
	})
}

// Goal: at a lagging member the ephemerals of an expired session are still there for
// its next one. Method: expire while the member lags.
func TestFakeExpiryAtLaggingMember(t *testing.T) {
	flavours(t, FakeOptions{Members: 3}, func(t *testing.T, f *Fake) {
		a, ctx := f.Open(t), t.Context()
		must(a.Store.Create(ctx, "/e", nil, ephemeral))(t)
		old := a.Store.Session()
		a.Lag(time.Second)
		moved := make(chan struct{})
		go func() {
			time.Sleep(f.o.timeout() - f.o.tick()/10)
			a.Move() // it is at the leader by now
			close(moved)
		}()
		a.Expire(t)
		<-moved
		if err := a.Store.Sync(ctx, "/"); err == nil {
			t.Error("the leader answered for a session that is over")
		}
		<-old.Done()
		awaitState(t, a.Store.Session(), recipes.Connected)
		_, st, err := a.Store.Get(ctx, "/e")
		switch {
		case f.o.Exact && !errors.Is(err, znode.NoNode):
			t.Errorf("linearizable: %v", err)
		case !f.o.Exact && (err != nil || int64(st.EphemeralOwner) != old.ID()):
			t.Errorf("owner %v, %v", st.EphemeralOwner, err)
		}
	})
}

// Goal: a follower without leader proves nothing. In ZooKeeper's flavour it answers
// pings and reads on, while the session expires for others; Tenure's client goes to
// another member. Method: isolate, and ask.
func TestFakeIsolate(t *testing.T) {
	flavours(t, FakeOptions{Members: 3}, func(t *testing.T, f *Fake) {
		a, b, ctx := f.Open(t), f.Open(t).Store, t.Context()
		must(a.Store.Create(ctx, "/e", nil, ephemeral))(t)
		s := a.Store.Session()
		a.Isolate()
		start := time.Now()
		_, _, err := s.Renew(ctx)
		if f.o.Exact {
			check(t, err)
			if time.Since(start) < 5*time.Second || f.StatsOf(a.Store).Connects != 2 {
				t.Errorf("answered after %v on connection %d", time.Since(start), f.StatsOf(a.Store).Connects)
			}
		} else {
			if err == nil {
				t.Error("a renewal was acknowledged")
			}
			if took := time.Since(start); took < 12*time.Second || s.State() == recipes.Connected {
				t.Errorf("the member gave up after %v, %v", took, s.State())
			}
			if _, _, err := b.Get(ctx, "/e"); !errors.Is(err, znode.NoNode) {
				t.Errorf("for the other: %v", err)
			}
			<-s.Done()
		}
		a.Rejoin()
		check(t, a.Store.Sync(ctx, "/"))
	})
}

// Goal: without its leader the ensemble elects another and no session is lost; without a
// majority nothing is committed. Method: isolate the leader, then a second one.
func TestFakeIsolateLeader(t *testing.T) {
	flavours(t, FakeOptions{Members: 3}, func(t *testing.T, f *Fake) {
		a, b, c, ctx := f.Open(t), f.Open(t), f.Open(t), t.Context()
		sessions := f.Sessions()
		f.mu.Lock()
		first := f.leader
		a.Store.(*fakeClient).home = first
		f.mu.Unlock()
		a.Break()
		awaitState(t, a.Store.Session(), recipes.Suspended)
		check(t, a.Store.Sync(ctx, "/"))
		a.Isolate()
		must(b.Store.Create(ctx, "/after", nil, persistent))(t)
		f.mu.Lock()
		second := f.leader
		f.mu.Unlock()
		if second == nil || second == first {
			t.Error("no new leader")
		}
		b.Isolate()
		c.Isolate()
		made := make(chan error, 1)
		go func() {
			_, err := c.Store.Create(ctx, "/none", nil, persistent)
			made <- err
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		if len(made) != 0 || len(f.Nodes("/none")) != 0 {
			t.Error("committed without a majority")
		}
		a.Rejoin()
		b.Rejoin()
		c.Rejoin()
		if err := <-made; err != nil {
			t.Errorf("after all came back: %v", err)
		}
		if got := f.Sessions(); fmt.Sprint(got) != fmt.Sprint(sessions) {
			t.Errorf("sessions %v, before %v", got, sessions)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, m := range f.members {
			if m.tree.LastZxid() != f.leader.tree.LastZxid() {
				t.Errorf("member %d is at %d", m.index, m.tree.LastZxid())
			}
		}
	})
}
