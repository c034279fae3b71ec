package recipes_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/znode"
)

// newLease is the lease /lease for a holder of this ID. Its times are the defaults, 15 s,
// 10 s and 2 s, unless edited.
func newLease(t *testing.T, s recipes.Store, id string, edit ...func(*recipes.LeaseOptions)) *recipes.Lease {
	t.Helper()
	o := recipes.LeaseOptions{Options: recipes.Options{ID: id}}
	for _, e := range edit {
		e(&o)
	}
	l, err := recipes.NewLease(s, "/lease", o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// holdLease takes the lease within a minute.
func holdLease(t *testing.T, l *recipes.Lease) *recipes.Tenure {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	held, err := l.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// dropLease gives a tenure up.
func dropLease(t *testing.T, held *recipes.Tenure) {
	t.Helper()
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// leaseRecord reads the lease's record.
func leaseRecord(t *testing.T, l *recipes.Lease) recipes.LeaseRecord {
	t.Helper()
	r, _, err := l.Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Goal: a lease is held as long as it is renewed, says so in its record, and goes to the
// next at its release at once. Method: two holders, five minutes.
func TestLease(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		a, b := newLease(t, f.Open(t).Store, "a"), newLease(t, f.Open(t).Store, "b")
		if r := leaseRecord(t, a); r.Holder != "" {
			t.Errorf("nobody held it yet: %+v", r)
		}
		begun := time.Now()
		first := holdLease(t, a)
		if took := time.Since(begun); took > 20*time.Millisecond {
			t.Errorf("a free lease was acquired in %v", took)
		}
		var second *recipes.Tenure
		var at time.Time
		acquired := make(chan struct{})
		go func() {
			defer close(acquired)
			second, _ = b.Acquire(t.Context())
			at = time.Now()
		}()
		time.Sleep(5 * time.Minute)
		r := leaseRecord(t, b)
		if err := first.Check(); err != nil || second != nil {
			t.Fatalf("after 5 min: %v, %v", err, second)
		}
		if r.Holder != "a" || r.DurationMS != 15_000 || r.Transitions != 1 || r.Token != first.Token() || r.Renewals < 100 || r.Renewals > 200 {
			t.Errorf("record: %+v", r)
		}
		released := time.Now()
		dropLease(t, first)
		<-acquired
		if err := second.Check(); err != nil || at.Sub(released) > 10*time.Millisecond || second.Token() <= first.Token() {
			t.Errorf("next holder: %v, after %v, token %d after %d", err, at.Sub(released), second.Token(), first.Token())
		}
		if err := first.Err(); !errors.Is(err, recipes.ErrReleased) || !errors.Is(err, recipes.ErrLost) {
			t.Errorf("released: %v", err)
		}
		dropLease(t, second)
		if nodes := f.Nodes("/lease"); len(nodes) != 1 || f.Watches() != 0 {
			t.Errorf("left: %v, %d watches", nodes, f.Watches())
		}
	})
}

// Goal: RenewDeadline, Duration and RetryPeriod fit together, and what does not is named
// with its numbers. Method: a table.
func TestP40LeaseOptionsAreChecked(t *testing.T) {
	s := time.Second
	for _, tc := range []struct {
		name                      string
		duration, deadline, retry time.Duration
		timing                    recipes.Timing
		want                      []string // in the error; none: accepted
	}{
		{"defaults", 0, 0, 0, recipes.Timing{}, nil},
		{"defaults with drift", 0, 0, 0, recipes.Timing{Drift: 0.1}, nil},
		{"1500 ms", 1500 * time.Millisecond, 0, 0, recipes.Timing{}, nil},
		{"just enough", 101 * s, 99 * s, 0, recipes.Timing{Drift: 0.01}, nil},
		{"client-go's own rule only", 15 * s, 14900 * time.Millisecond, 2 * s, recipes.Timing{}, []string{"RenewDeadline is 14.9s", "Duration is 15s", "14.702s", "0.01"}},
		{"too much drift", 15 * s, 10 * s, 2 * s, recipes.Timing{Drift: 0.25}, []string{"RenewDeadline", "Duration", "0.25"}},
		{"one try only", 15 * s, 10 * s, 6 * s, recipes.Timing{}, []string{"RetryPeriod is 6s", "RenewDeadline is 10s"}},
		{"below a millisecond", 1500*time.Millisecond + 500, 0, 0, recipes.Timing{}, []string{"Duration is 1.5000005s", "milliseconds"}},
		{"negative", -s, 0, 0, recipes.Timing{}, []string{"Duration is -1s"}},
		{"too much grace", 15 * s, 10 * s, 2 * s, recipes.Timing{Grace: 10 * s}, []string{"Grace is 10s"}},
		{"of another recipe", 0, 0, 0, recipes.Timing{Worth: s}, []string{"Worth"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := recipes.NewLease(nil, "/lease", recipes.LeaseOptions{
				Options: recipes.Options{Timing: tc.timing}, Duration: tc.duration, RenewDeadline: tc.deadline, RetryPeriod: tc.retry,
			})
			if errors.Is(err, recipes.ErrInvalid) != (tc.want != nil) {
				t.Fatalf("got %v", err)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not name %q", err, w)
				}
			}
		})
	}
}

// Goal: a lease does not need its session. Method: the session, which is shorter, expires
// twice.
func TestLeaseOutlivesSessions(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		held := holdLease(t, newLease(t, p.Store, "a", func(o *recipes.LeaseOptions) { o.Duration = time.Minute }))
		for range 2 {
			p.Expire(t)
			time.Sleep(time.Minute)
			if err := held.Confirm(t.Context()); err != nil {
				t.Errorf("after an expiry: %v", err)
			}
		}
		dropLease(t, held)
	})
}

// Goal: the end of the store is the end of its leases. Method: close it.
func TestLeaseEndsWithItsStore(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		held := holdLease(t, newLease(t, p.Store, "a"))
		if err := p.Store.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if err := held.Check(); !errors.Is(err, recipes.ErrSessionClosed) {
			t.Errorf("after Close: %v", err)
		}
		if cause := context.Cause(held.Context()); !errors.Is(cause, recipes.ErrSessionClosed) {
			t.Errorf("cause: %v", cause)
		}
	})
}

// Goal: many holders share one session. Method: 50 leases, one released and taken
// by another goroutine's Acquire on the same Lease.
func TestLeaseManyOnOneSession(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		var all []*recipes.Tenure
		var leases []*recipes.Lease
		for i := range 50 {
			l, err := recipes.NewLease(p.Store, "/leases/"+string(rune('A'+i)), recipes.LeaseOptions{})
			if err != nil {
				t.Fatal(err)
			}
			leases, all = append(leases, l), append(all, holdLease(t, l))
		}
		time.Sleep(time.Minute)
		if held, ok, err := leases[7].TryAcquire(t.Context()); held != nil || ok || err != nil {
			t.Errorf("one that is held: %v, %v, %v", held, ok, err)
		}
		dropLease(t, all[7])
		held, ok, err := leases[7].TryAcquire(t.Context())
		if !ok || err != nil {
			t.Fatalf("one that is free: %v, %v", ok, err)
		}
		all[7] = held
		for _, held := range all {
			if err := held.Check(); err != nil {
				t.Error(err)
			}
			dropLease(t, held)
		}
	})
}

// Goal: TryAcquire takes over what has run out as far as it has looked. Method: poll.
func TestLeaseTryAcquirePolls(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		p := f.Open(t)
		first := holdLease(t, newLease(t, p.Store, "a"))
		b := newLease(t, f.Open(t).Store, "b")
		p.Partition()
		time.Sleep(time.Hour)
		for tries := 0; ; tries++ {
			held, ok, err := b.TryAcquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				if tries != 15 || first.Check() == nil {
					t.Errorf("taken over at try %d: %v", tries, first.Check())
				}
				p.Heal()
				dropLease(t, held)
				return
			}
			time.Sleep(time.Second)
		}
	})
}

// Goal: Watch yields the present record and then changes, over lost connections; its end
// is silent, that of the store is told. Method: a holder, a hand-over, a closed store.
func TestLeaseWatch(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		p, watcher := f.Open(t), f.Open(t)
		a, w := newLease(t, p.Store, "a"), newLease(t, watcher.Store, "w")
		var holders []string
		ended := make(chan error)
		go func() {
			var last error
			for r, err := range w.Watch(t.Context()) {
				last = err
				if n := len(holders); err == nil && (n == 0 || holders[n-1] != r.Holder) {
					holders = append(holders, r.Holder)
				}
			}
			ended <- last
		}()
		time.Sleep(time.Second)
		held := holdLease(t, a)
		time.Sleep(time.Minute)
		watcher.Break()
		dropLease(t, held)
		time.Sleep(time.Second)
		if err := watcher.Store.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, recipes.ErrSessionClosed) {
			t.Errorf("the stream ended because of %v", err)
		}
		if !slices.Equal(holders, []string{"", "a", ""}) {
			t.Errorf("holders: %q", holders)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for r, err := range a.Watch(ctx) {
			if err != nil || r.Transitions != 1 {
				t.Errorf("watch: %+v, %v", r, err)
			}
		}
	})
}

// Goal: tokens grow, also over a record that was deleted and a floor that was set; the
// guard of a former tenure is never met again. Method: delete everything by hand.
func TestLeaseTokensAndGuards(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		p, ctx := f.Open(t), t.Context()
		a := newLease(t, p.Store, "a")
		if _, err := p.Store.Create(ctx, "/effect", nil, recipes.CreateSpec{}); err != nil {
			t.Fatal(err)
		}
		var last recipes.Token
		var guards [][]recipes.Op
		next := func() *recipes.Tenure {
			held := holdLease(t, a)
			if held.Token() <= last {
				t.Errorf("token %d after %d", held.Token(), last)
			}
			last = held.Token()
			for i, g := range guards {
				if _, err := p.Store.Multi(ctx, g...); err == nil {
					t.Errorf("guard %d of %d is met", i, len(guards))
				}
			}
			guards = append(guards, append(held.Guard(), recipes.OpSet("/effect", nil, recipes.Always())))
			if _, err := held.Txn(ctx, recipes.OpSet("/effect", nil, recipes.Always())); err != nil {
				t.Error(err)
			}
			return held
		}
		dropLease(t, next())
		wiped := next()
		for _, node := range slices.Backward(f.Nodes("/lease")) {
			if err := p.Store.Delete(ctx, node, recipes.Always()); err != nil {
				t.Fatal(err)
			}
		}
		if err := wiped.Confirm(ctx); !errors.Is(err, recipes.ErrGone) {
			t.Errorf("confirm of what was deleted: %v", err)
		}
		dropLease(t, next())
		if err := a.SetFloor(ctx, 1<<40); err != nil {
			t.Fatal(err)
		}
		last = 1 << 40
		held := next()
		if err := a.SetFloor(ctx, 1<<41); err != nil { // while it is held
			t.Fatal(err)
		}
		if err := held.Confirm(ctx); err != nil {
			t.Error(err)
		}
		dropLease(t, held)
		last = 1 << 41
		dropLease(t, next())
	})
}

// Goal: data that are no record are an error and left alone. Method: text; a record
// without a duration.
func TestLeaseForeignData(t *testing.T) {
	onFakes(t, recipestest.FakeOptions{}, func(t *testing.T, f *recipestest.Fake) {
		s, ctx := f.Open(t).Store, t.Context()
		if _, err := s.Create(ctx, "/lease", nil, recipes.CreateSpec{}); err != nil {
			t.Fatal(err)
		}
		for _, data := range []string{"text", `{"holder":"x","nonce":"n"}`} {
			if _, err := s.Set(ctx, "/lease", []byte(data), recipes.Always()); err != nil {
				t.Fatal(err)
			}
			if _, err := newLease(t, s, "a").Acquire(ctx); !errors.Is(err, recipes.ErrInvalid) {
				t.Errorf("%s: %v", data, err)
			}
			if got, _, err := s.Get(ctx, "/lease"); string(got) != data || err != nil {
				t.Errorf("%s became %s, %v", data, got, err)
			}
		}
		if _, err := recipes.NewLease(s, znode.Root, recipes.LeaseOptions{}); !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("lease at /: %v", err)
		}
	})
}
