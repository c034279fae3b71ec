package native

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/znode"
)

// Goal: a session is one value from its beginning to its end, and another one follows
// that can be told apart. Method: states and values over a lost connection and an expiry.
func TestSessionStates(t *testing.T) {
	t.Parallel()
	b := startBackend(t, nil)
	p := b.peer(t, shortTimeout)
	first := p.Store.Session()
	if first.State() != recipes.Connected || first.ID() == 0 || first.Err() != nil || first != p.Store.Session() {
		t.Fatalf("a new session is %v with id %d: %v", first.State(), first.ID(), first.Err())
	}
	upkeep := first.Upkeep()
	states := make(chan recipes.ConnState, 16)
	go func() {
		defer close(states)
		for state := range first.States(context.Background()) {
			states <- state
		}
	}()
	next := func(want recipes.ConnState) {
		t.Helper()
		if got, ok := receive(t, want.String(), states); !ok || got != want {
			t.Fatalf("the session became %v (%v), want %v", got, ok, want)
		}
	}
	next(recipes.Connected)
	p.Partition()
	p.Break()
	next(recipes.Suspended)
	p.Heal()
	next(recipes.Connected)
	if first.ID() == 0 || first.Upkeep() != upkeep {
		t.Error("the session has lost what it was")
	}
	p.Partition()
	b.awaitGone(t, first.ID())
	p.Heal()
	second := awaitReplaced(t, p.Store, first)
	next(recipes.Suspended)
	next(recipes.Over)
	if state, ok := receive(t, "the end of the states", states); ok {
		t.Errorf("%v after Over", state)
	}
	if first.State() != recipes.Over || !errors.Is(first.Err(), recipes.ErrSessionExpired) {
		t.Errorf("the expired session is %v: %v", first.State(), first.Err())
	}
	if second.ID() == first.ID() || second.Upkeep() == first.Upkeep() {
		t.Error("the successor has what the first session had")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for state := range second.States(ctx) {
		if state != recipes.Connected {
			t.Errorf("the successor is %v", state)
		}
	}
}

// Goal: a proof begins before the server can have the request, lasts for the negotiated
// timeout, and holds: nobody sees the session over before it has passed. Method: a
// renewal whose answer is held back, one whose answer is lost, then a partition.
func TestProof(t *testing.T) {
	t.Parallel()
	b := startBackend(t, nil)
	p := b.peer(t, shortTimeout)
	sess := p.Store.Session()
	if sess.Timeout() != shortTimeout {
		t.Fatalf("negotiated %v, want %v", sess.Timeout(), shortTimeout)
	}
	renewal := func() (recipes.Proof, error) {
		proof, verdicts, err := sess.Renew(context.Background())
		if len(verdicts) != 0 {
			t.Errorf("verdicts %v about nothing", verdicts)
		}
		return proof, err
	}
	before := time.Now()
	held, release := p.Hold(recipestest.Renew)
	proofs := make(chan recipes.Proof, 1)
	go func() {
		proof, err := renewal()
		if err != nil {
			t.Error(err)
		}
		proofs <- proof
	}()
	receive(t, "a held renewal", held)
	received := time.Now()
	release()
	proof, _ := receive(t, "the proof", proofs)
	if proof.Sent.Before(before) || proof.Sent.After(received) || proof.TTL != shortTimeout {
		t.Errorf("sent at %v for %v: called at %v, received until %v", proof.Sent, proof.TTL, before, received)
	}
	if !strings.Contains(proof.Sent.String(), "m=") {
		t.Errorf("sent time %v has no monotonic clock", proof.Sent)
	}
	done := p.CutAfterCommit(recipestest.Renew)
	proof, err := renewal()
	if err != nil || proof.Sent.Before(received) {
		t.Errorf("a renewal over a reconnect: %v, %v", proof, err)
	}
	receive(t, "a lost answer", done)

	p.Partition()
	b.awaitGone(t, sess.ID())
	if over := time.Now(); over.Before(proof.Sent.Add(proof.TTL)) {
		t.Errorf("the session was over %v before its proof", proof.Sent.Add(proof.TTL).Sub(over))
	}
	p.Heal()
	awaitReplaced(t, p.Store, sess)
	short := b.store(t, client.Options{Timeout: 10 * time.Millisecond})
	if got := short.Session().Timeout(); got != b.cfg.MinSessionTimeout {
		t.Errorf("granted %v, want the least that is granted, %v", got, b.cfg.MinSessionTimeout)
	}
}

// Goal: each held znode is judged by its incarnation. Method: one that stays, one
// deleted, one made anew under its name, one never there.
func TestRenewJudgesEach(t *testing.T) {
	t.Parallel()
	b := startBackend(t, nil)
	p := b.peer(t, patience)
	s := p.Store.(*Store)
	ctx := t.Context()
	var held []recipes.Held
	for _, path := range []string{"/stays", "/goes", "/again"} {
		held = append(held, recipes.Held{Path: path, Czxid: create(t, s, path, znode.Ephemeral).Czxid})
	}
	held = append(held, recipes.Held{Path: "/never", Czxid: 1})
	for _, path := range []string{"/goes", "/again"} {
		if err := s.Delete(ctx, path, recipes.Always()); err != nil {
			t.Fatal(err)
		}
	}
	create(t, s, "/again", znode.Ephemeral)
	_, verdicts, err := s.Session().Renew(ctx, held...)
	if err != nil || len(verdicts) != len(held) {
		t.Fatalf("%v, %v", verdicts, err)
	}
	for i, v := range verdicts {
		if gone := errors.Is(v, znode.NoNode); gone != (i > 0) || !gone && v != nil {
			t.Errorf("%s is judged %v", held[i].Path, v)
		}
	}
}

// Goal: any number of tenures is proved, a thousand in one request, and the proof of
// several requests begins with the first of them. Method: 10 000 with a single one
// missing, the first answer held back.
func TestRenewMany(t *testing.T) {
	t.Parallel()
	b := startBackend(t, nil)
	p := b.peer(t, patience)
	s := p.Store.(*Store)
	long := recipes.Held{Path: "/" + strings.Repeat("x", 100)}
	long.Czxid = create(t, s, long.Path, znode.Persistent).Czxid
	many := make([]recipes.Held, 10_000)
	for i := range many {
		many[i] = long
	}
	many[7_000].Czxid++
	before := s.c.Stats().Requests
	if _, _, err := s.Session().Renew(t.Context(), many[:1000]...); err != nil || s.c.Stats().Requests != before+1 {
		t.Errorf("a thousand took %d requests, %v", s.c.Stats().Requests-before, err)
	}

	called := time.Now()
	reached, release := p.Hold(recipestest.Renew)
	received := make(chan time.Time, 1)
	go func() {
		<-reached
		received <- time.Now()
		release()
	}()
	proof, verdicts, err := s.Session().Renew(t.Context(), many...)
	if err != nil || len(verdicts) != len(many) {
		t.Fatalf("%d verdicts, %v", len(verdicts), err)
	}
	for i, v := range verdicts {
		if (v != nil) != (i == 7_000) {
			t.Errorf("number %d is judged %v", i, v)
		}
	}
	if first, _ := receive(t, "the first request", received); proof.Sent.Before(called) || proof.Sent.After(first) {
		t.Errorf("sent at %v: called at %v, the first request received until %v", proof.Sent, called, first)
	}
}

// watchEnd has f called in the place of the upkeep's end, which it is given.
func watchEnd(s recipes.Session, f func(end func())) {
	cs := s.(*clientSession)
	cs.endUpkeep = func(why error) { f(func() { cs.upkeep.End(why) }) }
	_ = cs.State() // whoever ends the session sees the change: it takes the same lock
}

// Goal: Close ends the tenures while the session certainly lives, and only then the
// session, which is over at once. Method: another client looks for the session and its
// ephemeral while a held lock is being ended, and after Close; whoever waits gets the lock.
func TestCloseEndsTenuresFirst(t *testing.T) {
	t.Parallel()
	b := startBackend(t, nil)
	s := b.store(t, client.Options{})
	sess := s.Session()
	create(t, s, "/mine", znode.Ephemeral)
	held := lock(t, s)
	if held == nil {
		t.FailNow()
	}
	other, next := b.store(t, client.Options{}), make(chan *recipes.Tenure, 1)
	go func() { next <- lock(t, other) }()
	ended := 0
	watchEnd(sess, func(end func()) {
		if ended++; ended > 1 {
			end()
			return
		}
		open, err := b.open(t.Context(), sess.ID())
		if err != nil || !open || sess.State() == recipes.Over || sess.Err() != nil || held.Check() != nil {
			t.Errorf("before the tenures ended: open %v (%v), %v, %v, %v", open, err, sess.State(), sess.Err(), held.Check())
		}
		end()
		if err := held.Check(); !errors.Is(err, recipes.ErrSessionClosed) {
			t.Errorf("the lock is still held, or not because of Close: %v", err)
		}
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if ended == 0 {
		t.Error("the tenures were not ended")
	}
	_, exists, err := b.watching.Exists(t.Context(), "/mine", client.ReadOptions{})
	if open, err2 := b.open(t.Context(), sess.ID()); open || exists || err != nil || err2 != nil {
		t.Errorf("after Close the session is open: %v, its ephemeral there: %v (%v, %v)", open, exists, err, err2)
	}
	select {
	case <-sess.Done():
	default:
		t.Error("Close has returned and the session is not over")
	}
	if s.Session() != sess || sess.State() != recipes.Over || !errors.Is(sess.Err(), recipes.ErrSessionClosed) {
		t.Errorf("the closed session is %v: %v", sess.State(), sess.Err())
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	if after, _ := receive(t, "the lock", next); after != nil && after.Token() <= held.Token() {
		t.Errorf("token %d after %d", after.Token(), held.Token())
	}
}

// lock takes the one lock of these tests, nil if that failed. It may be called from any
// goroutine.
func lock(t testing.TB, s recipes.Store) *recipes.Tenure {
	m, err := recipes.NewMutex(s, "/lock", recipes.Options{})
	if err != nil {
		t.Error(err)
		return nil
	}
	held, err := m.Lock(t.Context())
	if err != nil {
		t.Error(err)
	}
	return held
}

// Goal: nobody is told of an expiry before the tenures have ended. Method: an end that
// takes its time; meanwhile look at all that could tell, and at a call that fails of it.
func TestExpiryEndsTenuresFirst(t *testing.T) {
	t.Parallel()
	b := startBackend(t, nil)
	p := b.peer(t, shortTimeout)
	sess := p.Store.Session()
	ending, goOn := make(chan struct{}), make(chan struct{})
	watchEnd(sess, func(end func()) {
		close(ending)
		<-goOn
		end()
	})
	outcome, renewed := make(chan error, 1), make(chan error, 1)
	held, _ := p.Hold(recipestest.Create)
	go func() {
		_, err := p.Store.Create(context.Background(), "/x", nil, recipes.CreateSpec{})
		outcome <- err
	}()
	receive(t, "a held answer", held)
	go func() {
		_, _, err := sess.Renew(context.Background())
		renewed <- err
	}()
	p.Expire(t)
	receive(t, "the end of the tenures", ending)
	// The client has begun its next session by now: calls work.
	if _, _, err := p.Store.Get(t.Context(), "/"); err != nil {
		t.Error(err)
	}
	select {
	case <-sess.Done():
		t.Error("Done is closed before the tenures have ended")
	case err := <-outcome:
		t.Errorf("a call was told of it before the tenures have ended: %v", err)
	case err := <-renewed:
		t.Errorf("a renewal was told of it before the tenures have ended: %v", err)
	default:
	}
	if sess.Err() != nil || sess.State() != recipes.Suspended || p.Store.Session() != sess {
		t.Errorf("before the tenures have ended: %v, %v", sess.State(), sess.Err())
	}
	close(goOn)
	err, _ := receive(t, "the outcome", outcome)
	wantClasses(t, "the call", err, "uncertain", "expired")
	err, _ = receive(t, "the outcome of a renewal", renewed)
	wantClasses(t, "the renewal", err, "expired")
	if sess.State() != recipes.Over || p.Store.Session() == sess {
		t.Errorf("a call was told of it while the session is %v", sess.State())
	}
}

// Goal: whether another session is open can be asked by anybody and is never an old
// answer. Method: sessions that are open, expired, closed and never were.
func TestSessionOpen(t *testing.T) {
	t.Parallel()
	b := startBackend(t, nil)
	s := b.store(t, client.Options{})
	p, closing := b.peer(t, shortTimeout), b.peer(t, shortTimeout)
	want := func(what string, id int64, want bool) {
		t.Helper()
		if open, err := s.SessionOpen(t.Context(), id); err != nil || open != want {
			t.Errorf("%s, %#x, is open: %v (%v), want %v", what, id, open, err, want)
		}
	}
	expired, closed := p.Store.Session(), closing.Store.Session().ID()
	want("this session", s.Session().ID(), true)
	want("another session", expired.ID(), true)
	want("a third session", closed, true)
	want("no session", 0, false)
	want("a session that never was", closed+1, false)
	want("a session that cannot be", -1<<63, false)
	want("a session that cannot be", 1<<63-1, false)
	p.Expire(t)
	want("the expired session", expired.ID(), false)
	want("its successor", awaitReplaced(t, p.Store, expired).ID(), true)
	if err := closing.Store.Close(); err != nil {
		t.Fatal(err)
	}
	want("the closed session", closed, false)
	_, err := closing.Store.SessionOpen(t.Context(), closed)
	wantClasses(t, "asked after Close", err, "closed")
}

// Goal: nothing runs after Close, with and without a server, and it is soon done. Method:
// stores with watches, one with an expiry behind it; goroutines and, where the system
// lists them, files are counted.
func TestC095CloseLeavesNoGoroutine(t *testing.T) {
	base, files := runtime.NumGoroutine(), openFiles()
	t.Run("stores", func(t *testing.T) {
		b := startBackend(t, nil)
		p := b.peer(t, shortTimeout)
		old := p.Store.Session()
		p.Expire(t)
		awaitReplaced(t, p.Store, old)
		var wg sync.WaitGroup
		stores := []recipes.Store{p.Store}
		for range 10 {
			stores = append(stores, b.store(t, client.Options{}))
		}
		shut := func(s recipes.Store) {
			for range 2 {
				wg.Go(func() {
					start := time.Now()
					_ = s.Close() // half of them have no server
					if took := time.Since(start); took > 5*time.Second {
						t.Errorf("Close took %v", took)
					}
				})
			}
		}
		for _, s := range stores {
			for range 10 {
				if _, _, _, err := s.GetW(t.Context(), "/"); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, s := range stores[:5] {
			shut(s)
		}
		wg.Wait()
		b.restartWith(t, func() {
			for _, s := range stores[5:] {
				shut(s)
			}
			wg.Wait()
		})
	})
	await(t, "goroutines and files to be given back", func(context.Context) (bool, error) {
		return runtime.NumGoroutine() <= base && openFiles() <= files+2, nil
	})
}

// openFiles returns how many files this process has open, 0 where that is not known.
func openFiles() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(list)
}
