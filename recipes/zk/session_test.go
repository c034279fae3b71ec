package zk_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/recipes/zk"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: P34: the timeout is what the servers grant. Method: ask for too much and too
// little of a server with a tick of 200 ms.
func TestP34NegotiatedTimeout(t *testing.T) {
	t.Parallel()
	for asked, granted := range map[time.Duration]time.Duration{
		time.Minute: 4 * time.Second, 10 * time.Millisecond: 400 * time.Millisecond, timeout: timeout,
	} {
		s := open(t, zk.Options{Servers: single.Get(t).Addrs(), Timeout: asked})
		if got := s.Session().Timeout(); got != granted {
			t.Errorf("asked for %v: %v, want %v", asked, got, granted)
		}
		proof, _, err := s.Session().Renew(bounded(t))
		if err != nil || proof.TTL != granted {
			t.Errorf("proof %+v, %v, want a TTL of %v", proof, err, granted)
		}
	}
}

// Goal: a proof counts from when its own request was written: not before the call, not
// after a delay, not from an earlier attempt. Method: delayed answers, a lost one, and a call
// that begins without a connection.
func TestProofIsSentTime(t *testing.T) {
	t.Parallel()
	p, ctx := peer(t), bounded(t)
	session := p.Store.Session()
	const delay = 100 * time.Millisecond
	p.Delay(delay)
	before := time.Now()
	proof, _, err := session.Renew(ctx)
	must(t, err)
	if received := time.Now(); proof.Sent.Before(before) || received.Sub(proof.Sent) < delay {
		t.Errorf("called %v, sent %v, received %v with answers %v late", before, proof.Sent, received, delay)
	}
	p.Delay(0)
	held, release := p.Hold(recipestest.Renew)
	defer release()
	proofs := make(chan recipes.Proof)
	go func() {
		proof, _, err := session.Renew(ctx)
		if err != nil {
			t.Error(err)
		}
		proofs <- proof
	}()
	receive(t, held)
	broken := time.Now()
	p.Break()
	if proof := receive(t, proofs); proof.Sent.Before(broken) {
		t.Errorf("sent %v before the attempt whose answer was lost", broken.Sub(proof.Sent))
	}

	p.Partition()
	p.Break()
	awaitState(t, session, recipes.Suspended)
	healed := make(chan time.Time, 1)
	time.AfterFunc(delay, func() { healed <- time.Now(); p.Heal() })
	proof, _, err = session.Renew(ctx)
	must(t, err)
	if at := receive(t, healed); proof.Sent.Before(at) {
		t.Errorf("sent %v before there was a connection", at.Sub(proof.Sent))
	}
}

// Goal: P37: overlapping renewals have their own send times. Method: many at once, with
// delayed answers.
func TestP37OverlappingRenewals(t *testing.T) {
	t.Parallel()
	p, ctx := peer(t), bounded(t)
	p.Delay(20 * time.Millisecond)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			before := time.Now()
			proof, _, err := p.Store.Session().Renew(ctx)
			if err != nil || proof.Sent.Before(before) || time.Since(proof.Sent) < 20*time.Millisecond {
				t.Errorf("called at %v: %+v, %v", before, proof, err)
			}
		})
	}
	wg.Wait()
}

// Goal: each held znode is judged, whatever their number, and one that is gone does not
// spoil the others. Method: a list longer than one request, with some deleted.
func TestRenewJudgesEach(t *testing.T) {
	t.Parallel()
	s, ctx := peer(t).Store, bounded(t)
	dir := "/" + fmt.Sprintf("%02000d", 0)
	_, err := s.Create(ctx, dir, nil, recipes.CreateSpec{})
	must(t, err)
	var held []recipes.Held
	for i := range 600 { // of 2 kB: 1.2 MB
		path := fmt.Sprintf("%s/%d", dir, i)
		if i%100 != 50 {
			_, err := s.Create(ctx, path, nil, recipes.CreateSpec{Kind: znode.Ephemeral})
			must(t, err)
		}
		held = append(held, recipes.Held{Path: path})
	}
	for _, held := range [][]recipes.Held{held, held[50:51], nil} {
		before := time.Now()
		proof, errs, err := s.Session().Renew(ctx, held...)
		if err != nil || len(errs) != len(held) || proof.Sent.Before(before) || proof.Sent.After(time.Now()) {
			t.Fatalf("Renew of %d = %+v, %d errors, %v", len(held), proof, len(errs), err)
		}
		for i, err := range errs {
			if gone := len(held) == 1 || i%100 == 50; gone != errors.Is(err, znode.NoNode) {
				t.Errorf("%s: %v", held[i].Path[2000:], err)
			}
		}
	}
}

// Goal: P33: after an expiry there is another Session, and nothing of the old one: its
// ephemerals are gone, it stays over, its calls fail. Method: expire, while calls run.
func TestP33SessionsAreNotMixed(t *testing.T) {
	t.Parallel()
	p, ctx := peer(t), bounded(t)
	old := p.Store.Session()
	id := old.ID()
	_, err := p.Store.Create(ctx, "/e", nil, recipes.CreateSpec{Kind: znode.Ephemeral})
	must(t, err)
	_, err = p.Store.Create(ctx, "/p", nil, recipes.CreateSpec{})
	must(t, err)

	p.Partition()
	failed := make(chan error, 1)
	go func() { _, err := p.Store.Set(ctx, "/p", nil, recipes.Always()); failed <- err }()
	read := make(chan error, 1)
	go func() { _, _, err := p.Store.Get(ctx, "/p"); read <- err }()
	p.Expire(t)
	if err := receive(t, failed); !errors.Is(err, recipes.ErrUncertain) {
		t.Errorf("a write in the expired session: %v", err)
	}
	if err := receive(t, read); !errors.Is(err, recipes.ErrSessionExpired) || errors.Is(err, recipes.ErrUncertain) {
		t.Errorf("a read in the expired session: %v", err)
	}
	receive(t, old.Done())
	next := p.Store.Session()
	if next == old || old.State() != recipes.Over || !errors.Is(old.Err(), recipes.ErrSessionExpired) {
		t.Fatalf("the old session is %v, %v; the same: %v", old.State(), old.Err(), next == old)
	}
	awaitState(t, next, recipes.Connected)
	if next.ID() == id || old.ID() != id {
		t.Errorf("ids %#x and %#x", next.ID(), old.ID())
	}
	if _, _, err := old.Renew(ctx); !errors.Is(err, recipes.ErrSessionExpired) {
		t.Errorf("renewal of the old session: %v", err)
	}
	if _, _, err := p.Store.Get(ctx, "/e"); !errors.Is(err, znode.NoNode) {
		t.Errorf("the old session's ephemeral: %v", err)
	}
	if old.State() != recipes.Over {
		t.Error("the old session was revived")
	}
}

// Goal: P30: a session is over by the local clock, since its end cannot be told to a
// client that is cut off. Method: partition for good; it must end after 4/3 of the
// timeout, not much later, and not by the servers' word.
func TestP30LocalExpiry(t *testing.T) {
	t.Parallel()
	p := peer(t)
	session := p.Store.Session()
	_, _, err := session.Renew(bounded(t))
	must(t, err)
	start := time.Now()
	p.Partition()
	receive(t, session.Done())
	took := time.Since(start)
	if took < timeout || took > timeout*4/3+500*time.Millisecond {
		t.Errorf("over after %v, want from %v to %v", took, timeout, timeout*4/3)
	}
	if next := p.Store.Session(); next == session || next.State() != recipes.Connecting || next.ID() != 0 {
		t.Errorf("next session is %v, id %#x", next.State(), next.ID())
	}
	if p.Store.Session().Timeout() != timeout {
		t.Errorf("timeout while Connecting is %v, want what was asked for", p.Store.Session().Timeout())
	}
}

// Goal: P61: whoever reads states slowly sees the last. Method: break the connection
// 1 000 times while a reader stands still.
func TestP61LatestState(t *testing.T) {
	t.Parallel()
	p, ctx := peer(t), bounded(t)
	session := p.Store.Session()
	gate, reached := make(chan struct{}), make(chan struct{})
	go func() {
		for state := range session.States(ctx) {
			<-gate
			if state == recipes.Over {
				close(reached)
			}
		}
	}()
	for range 1000 {
		p.Break()
		must(t, p.Store.Sync(ctx, "/")) // connected again
	}
	if session.State() != recipes.Connected {
		t.Errorf("%v after 1 000 broken connections: %v", session.State(), session.Err())
	}
	must(t, p.Store.Close())
	close(gate)
	receive(t, reached)
}

// Goal: P58, P59: Close is quick without a server, may be called twice and at once, and
// leaves no goroutine. Method: close a connected store, one whose server is silent, and
// one that is not connected.
func TestP58Close(t *testing.T) {
	for name, fault := range map[string]func(p *recipestest.Peer){
		"connected": func(*recipestest.Peer) {},
		"silent":    func(p *recipestest.Peer) { p.Partition() },
		"suspended": func(p *recipestest.Peer) {
			p.Partition()
			p.Break()
			awaitState(t, p.Store.Session(), recipes.Suspended)
		},
	} {
		p := peer(t)
		session, ctx := p.Store.Session(), bounded(t)
		_, err := p.Store.Create(ctx, "/e", nil, recipes.CreateSpec{Kind: znode.Ephemeral})
		must(t, err)
		fault(p)
		id := session.ID()
		start := time.Now()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := p.Store.Close(); err != nil {
					t.Errorf("%s: Close: %v", name, err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("%s: Close took %v", name, took)
		}
		if !errors.Is(session.Err(), recipes.ErrSessionClosed) || p.Store.Session() != session {
			t.Errorf("%s: the session is over by %v", name, session.Err())
		}
		if _, _, err := p.Store.Get(ctx, "/e"); !errors.Is(err, recipes.ErrSessionClosed) {
			t.Errorf("%s: get after Close: %v", name, err)
		}
		if name == "connected" && single.Get(t).HasSession(id) {
			t.Errorf("%s: the server still has the session", name)
		}
	}
}

// Goal: goroutines stay flat over sessions, and Close waits for all. Method: three
// expiries, cancelled calls, Close; count goroutines with our code. Not parallel, and the
// others wait for it.
func TestGoroutinesEnd(t *testing.T) {
	before := ours()
	p := peer(t)
	for range 3 {
		session := p.Store.Session()
		awaitState(t, session, recipes.Connected)
		p.Partition()
		for range 20 {
			_, err := p.Store.Create(within(t, 5*time.Millisecond), "/x", nil, recipes.CreateSpec{})
			if err == nil {
				t.Error("a create went through a partition")
			}
		}
		p.Expire(t)
		receive(t, session.Done())
	}
	must(t, p.Store.Close())
	if after := ours(); after > before {
		t.Errorf("%d goroutines, %d before", after, before)
	}
}
