package recipes_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

// Goal: the deadline counts from the send time of a renewal and not from its answer.
// Method: answers take 2 s, then a partition: the deadline is at most RenewDeadline after
// the last renewal was sent, which is 2 s before its answer.
func TestP36LeaseDeadlineFromSendTime(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		renewed := make(chan time.Time, 100)
		a := newLease(t, p.Store, "a", func(o *recipes.LeaseOptions) {
			o.Hooks.Renewed = func(_ string, rtt, left time.Duration) {
				if rtt < 2*time.Second || left > 8*time.Second {
					t.Errorf("renewed in %v, %v left", rtt, left)
				}
				renewed <- time.Now()
			}
		})
		held := holdLease(t, a)
		p.Delay(2 * time.Second)
		time.Sleep(30 * time.Second)
		for len(renewed) > 0 {
			<-renewed
		}
		answered := <-renewed
		p.Partition()
		if d := held.Deadline().Sub(answered); d > 8*time.Second || d < 7*time.Second {
			t.Errorf("deadline %v after the answer", d)
		}
		second := holdLease(t, newLease(t, f.Open(t).Store, "b"))
		if held.Check() == nil {
			t.Error("two hold it")
		}
		p.Delay(0)
		p.Heal()
		dropLease(t, second)
	})
}

// overlapOf samples the two and returns for how long the first believed after the second
// began; what then holds is released by its owner.
func overlapOf(t *testing.T, held *recipes.Tenure, next *recipes.Lease) time.Duration {
	t.Helper()
	var lastBelief time.Time
	stop := make(chan struct{})
	sampled := make(chan struct{})
	go func() {
		defer close(sampled)
		for {
			if held.Check() == nil {
				lastBelief = time.Now()
			}
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	second := holdLease(t, next)
	began := time.Now()
	time.Sleep(time.Minute)
	close(stop)
	<-sampled
	dropLease(t, second)
	return lastBelief.Sub(began)
}

// Goal: there is one deadline, whatever renewals are under way. Method: answers take
// 3.5 s, which renewals bear, or 9 s, which they do not; then there are none. The overlap
// of beliefs is printed.
func TestP40LeaseOneDeadline(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{Timeout: 40 * time.Second}, func(t *testing.T, f *recipestest.Fake) {
		for _, tc := range []struct{ delay, after time.Duration }{
			{3500 * time.Millisecond, time.Second}, {3500 * time.Millisecond, 9500 * time.Millisecond},
			{3500 * time.Millisecond, 20 * time.Second}, {9 * time.Second, time.Second}, {9 * time.Second, 7 * time.Second},
		} {
			p := f.Open(t)
			held := holdLease(t, newLease(t, p.Store, "a"))
			next := newLease(t, f.Open(t).Store, "b")
			p.Delay(tc.delay)
			time.Sleep(tc.after)
			if err := held.Check(); err != nil {
				t.Errorf("answers take %v: lost after %v: %v", tc.delay, tc.after, err)
			}
			p.Partition()
			overlap := overlapOf(t, held, next)
			t.Logf("answers take %v, none after %v: overlap %v", tc.delay, tc.after, overlap)
			if overlap >= 0 {
				t.Errorf("two believed for %v", overlap)
			}
			p.Heal()
			p.Delay(0)
			time.Sleep(time.Minute)
		}
	})
}

// Goal: a release touches the record of its own tenure alone. Method: the holder is cut
// off, another takes over, then the holder releases; likewise where the release itself
// was sent in time and comes late.
func TestP62LeaseReleaseLeavesOthersAlone(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		for _, early := range []bool{false, true} {
			p := f.Open(t)
			first := holdLease(t, newLease(t, p.Store, "a"))
			b := newLease(t, f.Open(t).Store, "b")
			p.Partition()
			released := make(chan error, 1)
			if early {
				go func() { released <- first.Release(t.Context()) }()
			}
			second := holdLease(t, b)
			if !early {
				go func() { released <- first.Release(t.Context()) }()
			}
			before := leaseRecord(t, b)
			p.Heal()
			<-released
			time.Sleep(time.Minute)
			r := leaseRecord(t, b)
			if r.Holder != "b" || r.Nonce != before.Nonce || second.Check() != nil {
				t.Errorf("early %v: %+v became %+v; %v", early, before, r, second.Check())
			}
			if err := second.Confirm(t.Context()); err != nil {
				t.Error(err)
			}
			dropLease(t, second)
		}
	})
}

// Goal: a lease that was taken without an answer is either held or free again, at once.
// Method: lose the answer, and then the request, of the acquiring write; then hold the
// answer back for longer than Acquire waits.
func TestP08LeaseAcquiredWithoutAnswer(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		a := newLease(t, p.Store, "a")
		for _, arm := range []func(recipestest.OpKind) <-chan struct{}{p.CutAfterCommit, p.CutBeforeSend} {
			arm(recipestest.Multi)
			held := holdLease(t, a)
			if r := leaseRecord(t, a); r.Holder != "a" || r.Token != held.Token() {
				t.Errorf("token %d: %+v", held.Token(), r)
			}
			arm(recipestest.Set)
			time.Sleep(time.Minute)
			if err := held.Check(); err != nil {
				t.Error(err)
			}
			arm(recipestest.Multi)
			dropLease(t, held)
			if r := leaseRecord(t, a); r.Holder != "" {
				t.Errorf("released: %+v", r)
			}
		}
		_, letGo := p.Hold(recipestest.Multi)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("acquire: %v", err)
		}
		letGo()
		time.Sleep(time.Second)
		if r := leaseRecord(t, a); r.Holder != "" || len(f.Nodes("/lease")) != 1 {
			t.Errorf("left: %+v, %v", r, f.Nodes("/lease"))
		}
	})
}

// Goal: the preferred holder comes first, after a release and after an expiry, and nobody
// waits long for one that is away. Method: nine others wait too, and began before it.
func TestLeasePreferred(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		for _, tc := range []struct {
			name             string
			expires, present bool
		}{{"release", false, true}, {"expiry", true, true}, {"nobody there", false, false}} {
			p, q := f.Open(t), f.Open(t)
			held := holdLease(t, newLease(t, p.Store, "a", func(o *recipes.LeaseOptions) { o.Preferred = "x" }))
			ctx, cancel := context.WithCancel(t.Context())
			winners := make(chan *recipes.Tenure, 10)
			var waiters sync.WaitGroup
			ids := []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"}
			if tc.present {
				ids = append(ids, "x")
			}
			for _, id := range ids {
				waiters.Go(func() {
					if won, err := newLease(t, q.Store, id).Acquire(ctx); err == nil {
						winners <- won
					}
				})
				time.Sleep(300 * time.Millisecond)
			}
			time.Sleep(10 * time.Second)
			ended := time.Now()
			if tc.expires {
				p.Partition()
			} else {
				dropLease(t, held)
			}
			won := <-winners
			took := time.Since(ended)
			if (won.Holder() == "x") != tc.present || !tc.expires && took > 2100*time.Millisecond || held.Check() == nil {
				t.Errorf("%s: %s won after %v", tc.name, won.Holder(), took)
			}
			cancel()
			waiters.Wait()
			p.Heal()
			dropLease(t, won)
			time.Sleep(time.Minute)
		}
	})
}

// Goal: whoever is asked to hand over is told, is renewed no more, and is followed by the
// one that was named. Method: a third party asks; the holder releases when it is told.
func TestLeaseHandOver(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		p, ctx := f.Open(t), t.Context()
		held := holdLease(t, newLease(t, p.Store, "a"))
		winners := make(chan *recipes.Tenure, 2)
		for _, id := range []string{"b", "c"} {
			go func() {
				if won, err := newLease(t, f.Open(t).Store, id).Acquire(ctx); err == nil {
					winners <- won
				}
			}()
			time.Sleep(time.Second)
		}
		asked := time.Now()
		if err := newLease(t, f.Open(t).Store, "operator").HandOver(ctx, "c"); err != nil {
			t.Fatal(err)
		}
		<-held.Context().Done()
		if cause := context.Cause(held.Context()); !errors.Is(cause, recipes.ErrHandOver) || time.Since(asked) > 3*time.Second {
			t.Errorf("told %v after %v", cause, time.Since(asked))
		}
		if err := held.Check(); err != nil {
			t.Errorf("until the release: %v", err)
		}
		dropLease(t, held)
		for _, want := range []string{"c", "b"} {
			won := <-winners
			if won.Holder() != want {
				t.Errorf("%s follows, want %s", won.Holder(), want)
			}
			dropLease(t, won)
		}
	})
}

// Goal: hooks tell of each tenure once, in order, and are no reason to stop when they
// block. Method: a hook that sleeps for a minute.
func TestP52LeaseHooks(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		var calls []string
		a := newLease(t, f.Open(t).Store, "a", func(o *recipes.LeaseOptions) {
			o.Hooks.Acquired = func(string, recipes.Token) {
				calls = append(calls, "acquired")
				time.Sleep(time.Minute)
			}
			o.Hooks.Lost = func(_ string, _ recipes.Token, why error) { calls = append(calls, "lost: "+why.Error()) }
		})
		held := holdLease(t, a)
		time.Sleep(50 * time.Second)
		if err := held.Check(); err != nil {
			t.Error(err)
		}
		dropLease(t, held)
		time.Sleep(time.Minute)
		synctest.Wait()
		if !slices.Equal(calls, []string{"acquired", "lost: released"}) {
			t.Errorf("hooks: %q", calls)
		}
	})
}
