package recipestest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// awaitState waits for a state of the session.
func awaitState(t *testing.T, s recipes.Session, want recipes.ConnState) {
	t.Helper()
	for state := range s.States(t.Context()) {
		if state == want {
			return
		}
	}
	t.Fatalf("the session ended %v without being %v", s.State(), want)
}

// Goal: a write whose answer is lost was applied. Tenure's client gets its result from
// the next connection, ZooKeeper's does not know. Method: cut, and count the nodes.
func TestFakeCutAfterCommit(t *testing.T) {
	flavours(t, FakeOptions{}, func(t *testing.T, f *Fake) {
		p, ctx := f.Open(t), t.Context()
		_, _, w, err := p.Store.GetW(ctx, "/")
		check(t, err)
		done := p.CutAfterCommit(AnyWrite)
		path, err := p.Store.Create(ctx, "/n-", nil, seqEphemeral)
		<-done
		if nodes := f.Nodes("/"); len(nodes) != 1 {
			t.Errorf("nodes %v", nodes)
		}
		if f.o.Exact {
			if err != nil || path != "/n-0000000000" {
				t.Errorf("create: %s, %v", path, err)
			}
			if n := f.Watches(); n != 1 {
				t.Errorf("%d watches", n)
			}
			return
		}
		if !errors.Is(err, recipes.ErrUncertain) {
			t.Errorf("create: %v", err)
		}
		if e, ok := gets(w); !ok || e != recipes.Gap {
			t.Errorf("watch: %v %v", e, ok)
		}
	})
}

// Goal: a write that was cut before it arrived was not applied, and a kind that was not
// asked for is left alone. Method: as said.
func TestFakeCutBeforeSend(t *testing.T) {
	flavours(t, FakeOptions{}, func(t *testing.T, f *Fake) {
		p, ctx := f.Open(t), t.Context()
		done := p.CutBeforeSend(Delete)
		must(p.Store.Create(ctx, "/a", nil, persistent))(t)
		err := p.Store.Delete(ctx, "/a", recipes.Always())
		<-done
		switch exists := len(f.Nodes("/a")) == 1; {
		case f.o.Exact && (err != nil || exists):
			t.Errorf("it was not sent again: %v", err)
		case !f.o.Exact && (!errors.Is(err, recipes.ErrUncertain) || !exists):
			t.Errorf("exists %v, %v", exists, err)
		}
	})
}

// Goal: a read that was cut is certainly harmless: ZooKeeper's client says so. Method:
// cut the answer of each kind of read.
func TestFakeCutReads(t *testing.T) {
	flavours(t, FakeOptions{}, func(t *testing.T, f *Fake) {
		p, ctx := f.Open(t), t.Context()
		for kind, read := range map[OpKind]func() error{
			Get:      func() error { _, _, err := p.Store.Get(ctx, "/"); return err },
			Children: func() error { _, _, err := p.Store.Children(ctx, "/"); return err },
			Exists:   func() error { _, _, w, err := p.Store.ExistsW(ctx, "/"); cancel(w); return err },
			Sync:     func() error { return p.Store.Sync(ctx, "/") },
		} {
			awaitState(t, p.Store.Session(), recipes.Connected)
			done := p.CutAfterCommit(kind)
			err := read()
			<-done
			if f.o.Exact && err != nil || !f.o.Exact && !errors.Is(err, recipes.ErrUnavailable) {
				t.Errorf("kind %d: %v", kind, err)
			}
		}
	})
}

func cancel(w recipes.Watch) {
	if w.Cancel != nil {
		w.Cancel()
	}
}

// Goal: an answer that is held keeps its caller waiting, not the write from happening; a
// client that closes meanwhile leaves nothing. Method: as said.
func TestFakeHold(t *testing.T) {
	flavours(t, FakeOptions{}, func(t *testing.T, f *Fake) {
		p, q, ctx := f.Open(t), f.Open(t), t.Context()
		held, release := p.Hold(Create)
		made := make(chan error, 1)
		go func() {
			_, err := p.Store.Create(ctx, "/e", nil, ephemeral)
			made <- err
		}()
		<-held
		synctest.Wait()
		if len(f.Nodes("/e")) != 1 || len(made) != 0 {
			t.Errorf("nodes %v, answered %d", f.Nodes("/"), len(made))
		}
		release()
		check(t, <-made)

		held, release = q.Hold(AnyWrite)
		go func() {
			_, err := q.Store.Create(context.Background(), "/late", nil, ephemeral)
			made <- err
		}()
		<-held
		check(t, q.Store.Close())
		if err := <-made; !errors.Is(err, recipes.ErrUncertain) || !errors.Is(err, recipes.ErrSessionClosed) {
			t.Errorf("create: %v", err)
		}
		release()
		if n := f.Nodes("/late"); len(n) != 0 {
			t.Errorf("left behind: %v", n)
		}
	})
}

// Goal: a release before the fault fires disarms it. Method: a create goes through.
func TestFakeReleaseDisarms(t *testing.T) {
	flavours(t, FakeOptions{}, func(t *testing.T, f *Fake) {
		p := f.Open(t)
		held, release := p.Hold(Create)
		release()
		must(p.Store.Create(t.Context(), "/a", nil, persistent))(t)
		select {
		case <-held:
			t.Error("it held")
		default:
		}
	})
}

// Goal: what was armed can be taken back. Method: a fault of each kind, then what it was for.
func TestFakeDisarm(t *testing.T) {
	flavours(t, FakeOptions{}, func(t *testing.T, f *Fake) {
		p := f.Open(t)
		held, _ := p.Hold(Create)
		before, after := p.CutBeforeSend(Create), p.CutAfterCommit(Set)
		p.Disarm()
		must(p.Store.Create(t.Context(), "/a", nil, persistent))(t)
		must(p.Store.Set(t.Context(), "/a", nil, recipes.Always()))(t)
		select {
		case <-held:
			t.Error("it held")
		case <-before:
			t.Error("it was cut before a request")
		case <-after:
			t.Error("it was cut after a request")
		default:
		}
	})
}

// Goal: the same session goes on after a lost connection, and a change in between is
// not missed: Tenure tells it, ZooKeeper's client tells of the gap. Method: the other
// client changes something while this one is away.
func TestFakeBreak(t *testing.T) {
	flavours(t, FakeOptions{}, func(t *testing.T, f *Fake) {
		p, q, ctx := f.Open(t), f.Open(t).Store, t.Context()
		must(q.Create(ctx, "/a", nil, persistent))(t)
		_, _, w, err := p.Store.GetW(ctx, "/a")
		check(t, err)
		_, _, quiet, err := p.Store.ChildrenW(ctx, "/a")
		check(t, err)
		s := p.Store.Session()
		id := s.ID()
		p.Break()
		awaitState(t, s, recipes.Suspended)
		must(q.Set(ctx, "/a", nil, recipes.Always()))(t)
		awaitState(t, s, recipes.Connected)
		want := recipes.Gap
		if f.o.Exact {
			want = recipes.Changed
		}
		if e, ok := gets(w); !ok || e != want {
			t.Errorf("watch: %v %v", e, ok)
		}
		if f.o.Exact {
			synctest.Wait()
			must(q.Create(ctx, "/a/b", nil, persistent))(t)
		}
		if e, ok := gets(quiet); !ok || e != want {
			t.Errorf("watch of the children: %v %v", e, ok)
		}
		if p.Store.Session() != s || s.ID() != id || f.StatsOf(p.Store).Connects != 2 {
			t.Error("another session")
		}
	})
}

// Goal: a call waits out a short partition, bounded by its context; a renewal's proof
// is from before it. Method: both kinds of call in one partition.
func TestFakePartition(t *testing.T) {
	flavours(t, FakeOptions{}, func(t *testing.T, f *Fake) {
		p := f.Open(t)
		s := p.Store.Session()
		p.Partition()
		start := time.Now()
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := p.Store.Create(ctx, "/a", nil, persistent); !errors.Is(err, recipes.ErrUncertain) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("write: %v", err)
		}
		if _, _, err := p.Store.Get(ctx, "/"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, recipes.ErrUncertain) {
			t.Errorf("read: %v", err)
		}
		time.AfterFunc(2*time.Second, p.Heal)
		proof, _, err := s.Renew(t.Context())
		check(t, err)
		if proof.Sent.Sub(start) != time.Second || time.Since(start) < 3*time.Second {
			t.Errorf("sent after %v, answered after %v", proof.Sent.Sub(start), time.Since(start))
		}
		if len(f.Nodes("/a")) != 1 {
			t.Error("the write that was on its way was lost")
		}
	})
}

// Goal: answers are late by what was asked for. Method: time a call.
func TestFakeDelay(t *testing.T) {
	flavours(t, FakeOptions{RTT: 2 * time.Millisecond}, func(t *testing.T, f *Fake) {
		p := f.Open(t)
		for _, d := range []time.Duration{time.Second, 0} {
			p.Delay(d)
			start := time.Now()
			check(t, p.Store.Sync(t.Context(), "/"))
			if took := time.Since(start); took != d+2*time.Millisecond {
				t.Errorf("delay %v: %v", d, took)
			}
		}
	})
}

// Goal: Expire is an expiry: what was acknowledged is kept for its time, the session is
// over for others when Expire returns, and its client gets to know and has a new one.
// Method: look from both sides.
func TestFakeExpire(t *testing.T) {
	flavours(t, FakeOptions{}, func(t *testing.T, f *Fake) {
		p, ctx := f.Open(t), t.Context()
		must(p.Store.Create(ctx, "/e", nil, ephemeral))(t)
		old := p.Store.Session()
		proof, _, err := old.Renew(ctx)
		check(t, err)
		lost := make(chan error, 1)
		go func() {
			time.Sleep(time.Millisecond)
			_, err := p.Store.Create(ctx, "/late", nil, ephemeral)
			lost <- err
		}()
		p.Expire(t)
		if took := time.Since(proof.Sent); took < proof.TTL || took > proof.TTL+2*f.o.tick() {
			t.Errorf("expired %v after a renewal, which is worth %v", took, proof.TTL)
		}
		if n := f.Nodes("/"); len(n) != 0 {
			t.Errorf("nodes %v", n)
		}
		if err := <-lost; f.o.Exact && !errors.Is(err, recipes.ErrSessionExpired) || !errors.Is(err, recipes.ErrUncertain) {
			t.Errorf("a call sent in the old session: %v", err)
		}
		<-old.Done()
		if _, _, err := old.Renew(ctx); !errors.Is(err, recipes.ErrSessionExpired) {
			t.Errorf("renewal: %v", err)
		}
		awaitState(t, p.Store.Session(), recipes.Connected)
		if f.o.Exact {
			for id, want := range map[int64]bool{old.ID(): false, p.Store.Session().ID(): true} {
				if open := must(p.Store.SessionOpen(ctx, id))(t); open != want {
					t.Errorf("session %d: open %v", id, open)
				}
			}
		}
	})
}

// Goal: watches that are lost at a reconnect say that they ended. Method: as said.
func TestFakeFailSetWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFake(FakeOptions{Exact: true})
		p := f.Open(t)
		_, _, w, err := p.Store.GetW(t.Context(), "/")
		check(t, err)
		p.FailSetWatches()
		p.Break()
		if e, ok := gets(w); !ok || e != recipes.Ended {
			t.Errorf("watch: %v %v", e, ok)
		}
		_, _, w, err = p.Store.GetW(t.Context(), "/")
		check(t, err)
		p.Break()
		synctest.Wait()
		awaitState(t, p.Store.Session(), recipes.Connected)
		if f.Watches() != 1 {
			t.Error("the fault stays")
		}
		w.Cancel()
	})
}

// Goal: a paused process does nothing, its session ends for others, and it learns so
// when it goes on. Method: pause for three timeouts.
func TestFakePause(t *testing.T) {
	flavours(t, FakeOptions{}, func(t *testing.T, f *Fake) {
		p, ctx := f.Open(t), t.Context()
		old := p.Store.Session()
		resume := p.Pause()
		renewed := make(chan error, 1)
		go func() {
			_, _, err := old.Renew(ctx)
			renewed <- err
		}()
		time.Sleep(30 * time.Second)
		if len(renewed) != 0 || old.State() != recipes.Connected || len(f.Sessions()) != 0 {
			t.Errorf("renewed %d, %v, sessions %v", len(renewed), old.State(), f.Sessions())
		}
		resume()
		resume()
		if err := <-renewed; !errors.Is(err, recipes.ErrSessionExpired) && !errors.Is(err, recipes.ErrUncertain) {
			t.Errorf("renewal: %v", err)
		}
		<-old.Done()
		awaitState(t, p.Store.Session(), recipes.Connected)
	})
}

// Goal: the client is granted what the ensemble allows. Method: ask for more.
func TestFakeTimeoutMax(t *testing.T) {
	flavours(t, FakeOptions{Timeout: time.Minute, TimeoutMax: 10 * time.Second}, func(t *testing.T, f *Fake) {
		s := f.Open(t).Store.Session()
		proof, _, err := s.Renew(t.Context())
		check(t, err)
		if s.Timeout() != 10*time.Second || proof.TTL != 10*time.Second {
			t.Errorf("granted %v, proof worth %v", s.Timeout(), proof.TTL)
		}
	})
}

// Goal: a renewal judges each znode, by its incarnation where that is exact. Method: one
// that is there, one that was made anew, one that is gone.
func TestFakeRenewJudges(t *testing.T) {
	flavours(t, FakeOptions{}, func(t *testing.T, f *Fake) {
		s, ctx := f.Open(t).Store, t.Context()
		must(s.Create(ctx, "/a", nil, ephemeral))(t)
		_, st, err := s.Get(ctx, "/a")
		check(t, err)
		writes := len(f.history)
		_, errs, err := s.Session().Renew(ctx, recipes.Held{Path: "/a", Czxid: st.Czxid},
			recipes.Held{Path: "/a", Czxid: st.Czxid - 1}, recipes.Held{Path: "/none", Czxid: 1})
		check(t, err)
		want := fmt.Sprint([]error{nil, nil, znode.NoNode})
		if f.o.Exact {
			want = fmt.Sprint([]error{nil, znode.NoNode, znode.NoNode})
		}
		if fmt.Sprint(errs) != want || len(f.history) != writes {
			t.Errorf("judged %v, want %s", errs, want)
		}
	})
}

// Goal: a jump of one process's wall clock is seen by its tenures and by no others.
// Method: two locks; the clock of one holder jumps.
func TestFakeJumpWall(t *testing.T) {
	flavours(t, FakeOptions{}, func(t *testing.T, f *Fake) {
		var held []*recipes.Tenure
		peers := []*Peer{f.Open(t), f.Open(t)}
		for i, p := range peers {
			m := must(recipes.NewMutex(p.Store, fmt.Sprintf("/lock%d", i), recipes.Options{}))(t)
			held = append(held, must(m.Lock(t.Context()))(t))
			check(t, held[i].Check())
		}
		peers[0].JumpWall(time.Hour)
		if err := held[0].Check(); !errors.Is(err, recipes.ErrLost) {
			t.Errorf("where the clock jumped: %v", err)
		}
		check(t, held[1].Check())
	})
}
