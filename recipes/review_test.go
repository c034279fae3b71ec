package recipes_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
)

func inexact(t *testing.T, test func(t *testing.T, f *recipestest.Fake)) {
	synctest.Test(t, func(t *testing.T) {
		test(t, recipestest.NewFake(recipestest.FakeOptions{Members: 3}))
	})
}

func mutex(t *testing.T, s recipes.Store, path string, o recipes.Options) *recipes.Mutex {
	t.Helper()
	m, err := recipes.NewMutex(s, path, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func lockIn(t *testing.T, m *recipes.Mutex, d time.Duration) *recipes.Tenure {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	tenure, err := m.Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return tenure
}

// Goal: a place that was created in the next session, because the one that asked for it
// ended just then, does not stay in line. Method: the session expires between the look at
// it and the create.
func TestPlaceOfTheNextSession(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		release(t, lockIn(t, mutex(t, p.Store, "/m", recipes.Options{}), time.Minute))
		expired := false
		late := &recipestest.Hooked{Store: p.Store}
		late.Before = func(_ context.Context, c recipestest.Call) error {
			if c.Kind == recipestest.Create && !expired {
				expired = true
				asked := p.Store.Session()
				p.Expire(t)
				<-asked.Done()
			}
			return nil
		}
		_, err := mutex(t, late, "/m", recipes.Options{}).Lock(t.Context())
		if !errors.Is(err, recipes.ErrSessionExpired) {
			t.Fatalf("lock of a session that ended: %v", err)
		}
		time.Sleep(5 * time.Second)
		if left := f.Nodes("/m/"); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		release(t, lockIn(t, mutex(t, f.Open(t).Store, "/m", recipes.Options{}), time.Minute))
	})
}

// Goal: who waits for one of several mutexes that were taken together waits as long as
// their tenure may be believed in. Method: mutexes of different worth; the place at one of
// them is deleted under a holder that hears nothing of it.
func TestLockAllWithDifferentTimings(t *testing.T) {
	inexact(t, func(t *testing.T, f *recipestest.Fake) {
		a, b := f.Open(t), f.Open(t)
		old, err := recipes.LockAll(t.Context(), mutex(t, a.Store, "/a", recipes.Options{}),
			mutex(t, a.Store, "/b", recipes.Options{Timing: recipes.Timing{Worth: time.Second}}))
		if err != nil {
			t.Fatal(err)
		}
		a.Partition()
		for _, place := range f.Nodes("/b/") {
			if err := b.Store.Delete(t.Context(), place, recipes.Always()); err != nil {
				t.Fatal(err)
			}
		}
		next := lockIn(t, mutex(t, b.Store, "/b", recipes.Options{}), time.Minute)
		if old.Check() == nil {
			t.Errorf("two hold: one for another %v", time.Until(old.Deadline()))
		}
		a.Heal()
		release(t, next)
	})
}

// Goal: without a hold-off, where a deadline counts from the last proof but one, proofs
// that follow each other closely do not make it the last one's. Method: Confirm twice.
func TestConfirmTwiceWithoutHoldOff(t *testing.T) {
	inexact(t, func(t *testing.T, f *recipestest.Fake) {
		none := recipes.Options{Timing: recipes.Timing{HoldOff: recipes.HoldOffNone()}}
		tenure := lockIn(t, mutex(t, f.Open(t).Store, "/m", none), time.Minute)
		time.Sleep(time.Second)
		for range 3 {
			if err := tenure.Confirm(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if left := time.Until(tenure.Deadline()); left > 9*time.Second {
			t.Errorf("%v left: that counts from a proof of now", left)
		}
		for range 60 { // seldom or often, the tenure lives on
			time.Sleep(500 * time.Millisecond)
			if err := tenure.Confirm(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		release(t, tenure)
	})
}

// Goal: a record that was wiped under a holder is no licence, where expiry is exact too,
// nor if a floor was set then. Method: wipe, delete the place of a holder that hears
// nothing of it, and lock.
func TestWipedRecord(t *testing.T) {
	for _, floor := range []bool{false, true} {
		flavours(t, func(t *testing.T, f *recipestest.Fake) {
			a, b := f.Open(t), f.Open(t)
			old := lockIn(t, mutex(t, a.Store, "/m", recipes.Options{}), time.Minute)
			a.Partition()
			if _, err := b.Store.Set(t.Context(), "/m", nil, recipes.Always()); err != nil {
				t.Fatal(err)
			}
			if floor {
				if err := recipes.SetFloor(t.Context(), b.Store, "/m", 1<<50); err != nil {
					t.Fatal(err)
				}
			}
			for _, place := range f.Nodes("/m/") {
				if err := b.Store.Delete(t.Context(), place, recipes.Always()); err != nil {
					t.Fatal(err)
				}
			}
			next := lockIn(t, mutex(t, b.Store, "/m", recipes.Options{}), time.Minute)
			if old.Check() == nil {
				t.Errorf("two hold: one for another %v", time.Until(old.Deadline()))
			}
			a.Heal()
			release(t, next)
		})
	}
}

// Goal: a tenure can be released, and its place goes, when the record cannot be read or
// its directory is gone. Method: both, under a holder.
func TestReleaseWithoutARecord(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		tenure := lockIn(t, mutex(t, p.Store, "/m", recipes.Options{}), time.Minute)
		if _, err := p.Store.Set(t.Context(), "/m", []byte("not a record"), recipes.Always()); err != nil {
			t.Fatal(err)
		}
		release(t, tenure)
		if left := f.Nodes("/m/"); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		if _, err := p.Store.Set(t.Context(), "/m", nil, recipes.Always()); err != nil {
			t.Fatal(err)
		}
		tenure = lockIn(t, mutex(t, p.Store, "/m", recipes.Options{}), time.Minute)
		if _, err := p.Store.Set(t.Context(), "/m", nil, recipes.Always()); err != nil { // the holder knows an older version
			t.Fatal(err)
		}
		for _, path := range append(f.Nodes("/m/"), "/m") {
			if err := p.Store.Delete(t.Context(), path, recipes.Always()); err != nil {
				t.Fatal(err)
			}
		}
		release(t, tenure)
	})
}

// Goal: a lead function that panics does not lead on for ever. Method: recover outside of
// Run; another candidate leads then.
func TestRunPanics(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		var tenure *recipes.Tenure
		func() {
			defer func() { _ = recover() }()
			_ = newElection(t, f.Open(t).Store, recipes.ElectionOptions{}).Run(t.Context(), func(_ context.Context, held *recipes.Tenure) error {
				tenure = held
				panic("lead")
			})
		}()
		time.Sleep(20 * time.Second)
		if tenure.Check() == nil {
			t.Errorf("still leads, until %v", tenure.Deadline())
		}
		release(t, campaign(t, newElection(t, f.Open(t).Store, recipes.ElectionOptions{})))
	})
}

// Goal: without a hold-off a tenure is kept as long as its session. Method: hold one.
func TestKeptWithoutHoldOff(t *testing.T) {
	inexact(t, func(t *testing.T, f *recipestest.Fake) {
		none := recipes.Options{Timing: recipes.Timing{HoldOff: recipes.HoldOffNone()}}
		tenure := lockIn(t, mutex(t, f.Open(t).Store, "/m", none), time.Minute)
		select {
		case <-tenure.Context().Done():
			t.Errorf("%v", context.Cause(tenure.Context()))
		case <-time.After(time.Minute):
		}
		release(t, tenure)
	})
}

// asking is a log handler that asks the tenure it is told of.
type asking struct {
	slog.Handler
	ask func()
}

func (a asking) Enabled(context.Context, slog.Level) bool { return true }

func (a asking) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "lost" {
		a.ask()
	}
	return nil
}

// Goal: no lock is held while a user's logger runs. Method: one that asks the tenure.
func TestLoggerMayAsk(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		var tenure *recipes.Tenure
		var asked error
		log := slog.New(asking{slog.DiscardHandler, func() { asked = tenure.Err() }})
		tenure = lockIn(t, mutex(t, f.Open(t).Store, "/m", recipes.Options{Log: log}), time.Minute)
		release(t, tenure)
		if !errors.Is(asked, recipes.ErrReleased) {
			t.Errorf("the logger was told %v", asked)
		}
	})
}

// Goal: a floor that was set under a holder is not taken for its release. Method: the next
// in line knows the claim; the holder's place is deleted, and it hears nothing of it.
func TestFloorIsNoRelease(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		a, b, c := f.Open(t), f.Open(t), f.Open(t)
		old := lockIn(t, mutex(t, a.Store, "/m", recipes.Options{}), time.Minute)
		place := f.Nodes("/m/")[0]
		won := make(chan *recipes.Tenure)
		go func() {
			next, err := mutex(t, b.Store, "/m", recipes.Options{}).Lock(t.Context())
			if err != nil {
				t.Error(err)
			}
			won <- next
		}()
		time.Sleep(100 * time.Millisecond)
		if err := recipes.SetFloor(t.Context(), c.Store, "/m", 1<<50); err != nil {
			t.Fatal(err)
		}
		a.Partition()
		if err := c.Store.Delete(t.Context(), place, recipes.Always()); err != nil {
			t.Fatal(err)
		}
		next := <-won
		if old.Check() == nil {
			t.Errorf("two hold: one for another %v", time.Until(old.Deadline()))
		}
		if next.Token() <= 1<<50 {
			t.Errorf("token %d is not above the floor", next.Token())
		}
		a.Heal()
		release(t, next)
	})
}

// Goal: who releases after its directory was removed and made again leaves the record of
// the new one alone, which has the same version. Method: that, on one clock.
func TestReleaseBehindAWipe(t *testing.T) {
	flavours(t, func(t *testing.T, f *recipestest.Fake) {
		ctx, admin := t.Context(), f.Open(t).Store
		first := campaign(t, newElection(t, f.Open(t).Store, recipes.ElectionOptions{}))
		names, _, err := admin.Children(ctx, "/app/leader")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/app/leader/" + names[0], "/app/leader"} {
			if err := admin.Delete(ctx, path, recipes.Always()); err != nil {
				t.Fatal(err)
			}
		}
		second := campaign(t, newElection(t, f.Open(t).Store, recipes.ElectionOptions{}))
		_, before, err := admin.Get(ctx, "/app/leader")
		if err != nil {
			t.Fatal(err)
		}
		release(t, first)
		if _, after, err := admin.Get(ctx, "/app/leader"); err != nil || after.Mzxid != before.Mzxid {
			t.Errorf("the record was written by who released: %v, %v", after, err)
		}
		release(t, second)
	})
}
