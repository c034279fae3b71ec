package recipestest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
)

func leaseAt(t *testing.T, s recipes.Store, path string, o recipes.LeaseOptions) *recipes.Lease {
	t.Helper()
	l, err := recipes.NewLease(s, path, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// lastRenewal cuts a holder off and returns its last record, as seen from another peer.
func lastRenewal(t *testing.T, h Harness, p *Peer, seen *recipes.Lease) recipes.LeaseRecord {
	t.Helper()
	p.Partition()
	pause(t, h.Timeout/50) // what is under way arrives
	r, _, err := seen.Record(h.within(t))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Goal: a holder has one deadline, however long its renewals take, and options that would
// let two believe are refused. Method: answers take a good part of the lease's belief,
// then none comes.
func budgetInsteadOfDeadline(t *testing.T, h Harness) {
	duration, belief, retry := h.Timeout*3/2, h.Timeout, h.Timeout*2/5
	for _, delay := range []time.Duration{belief / 10, belief / 4} {
		o := recipes.LeaseOptions{Duration: duration, RenewDeadline: belief, RetryPeriod: retry}
		path, a, b := dir(t), h.Open(t), h.Open(t)
		old := obtained(t, h, leaseAt(t, a.Store, path, o).Acquire)
		a.Delay(delay)
		moves(t, h, old, retry/2)
		last := old.Deadline()
		other := leaseAt(t, b.Store, path, o)
		if r := lastRenewal(t, h, a, other); last.Sub(r.RenewedAt) > belief+h.Timeout/100 {
			t.Errorf("answers take %v: the deadline is %v after the last renewal", delay, last.Sub(r.RenewedAt))
		}
		next := obtained(t, h, other.Acquire)
		at := time.Now()
		succeeded(t, h, old, next)
		if last.After(at) {
			t.Errorf("answers take %v: the deadline was %v after the successor's beginning", delay, last.Sub(at))
		}
		a.Delay(0)
		a.Heal()
		released(t, h, next)
	}
	s := h.Open(t).Store
	for _, belief := range []time.Duration{duration, duration * 99 / 100} {
		o := recipes.LeaseOptions{Duration: duration, RenewDeadline: belief.Truncate(time.Millisecond)}
		if _, err := recipes.NewLease(s, dir(t), o); !errors.Is(err, recipes.ErrInvalid) {
			t.Errorf("belief %v of a lease of %v: %v", belief, duration, err)
		}
	}
}

// Goal: milliseconds count, in what is promised and in what is waited for. Method: a
// holder of 1.5 s is cut off; the next comes after that and not after 1 s. What cannot
// be told in milliseconds is refused.
func unitsTruncated(t *testing.T, h Harness) {
	o := recipes.LeaseOptions{Duration: 1500 * time.Millisecond}
	path, a, b := dir(t), h.Open(t), h.Open(t)
	old := obtained(t, h, leaseAt(t, a.Store, path, o).Acquire)
	other := leaseAt(t, b.Store, path, o)
	r := lastRenewal(t, h, a, other)
	if r.DurationMS != 1500 {
		t.Errorf("record: %+v", r)
	}
	next := obtained(t, h, other.Acquire)
	took := time.Since(r.RenewedAt)
	succeeded(t, h, old, next)
	if took < o.Duration || h.Fake && took > o.Duration*4/3 {
		t.Errorf("taken over %v after the last renewal", took)
	}
	a.Heal()
	released(t, h, next)
	o.Duration += time.Microsecond
	if _, err := recipes.NewLease(b.Store, path, o); !errors.Is(err, recipes.ErrInvalid) {
		t.Errorf("a lease of %v: %v", o.Duration, err)
	}
}

// Goal: others go by the duration in the record that they see. Method: the holder's is
// three times the challenger's; the holder is cut off.
func durationsOfTwoSides(t *testing.T, h Harness) {
	long := recipes.LeaseOptions{Duration: 3 * h.Timeout}
	path, a, b := dir(t), h.Open(t), h.Open(t)
	old := obtained(t, h, leaseAt(t, a.Store, path, long).Acquire)
	other := leaseAt(t, b.Store, path, recipes.LeaseOptions{Duration: h.Timeout})
	r := lastRenewal(t, h, a, other)
	next := obtained(t, h, other.Acquire)
	if took := time.Since(r.RenewedAt); took < long.Duration {
		t.Errorf("taken over %v after the last renewal", took)
	}
	succeeded(t, h, old, next)
	a.Heal()
	released(t, h, next)
}

// Goal: those who wait and those who hold spread out. Method: many challengers of a lease
// begin together; where time is fake, renewals of a lock are timed too.
func noJitter(t *testing.T, h Harness) {
	path, a := dir(t), h.Open(t)
	losers, slotsPerPeriod, most := 40, 2, 0.7
	if h.Fake {
		losers, slotsPerPeriod, most = 200, 10, 0.17
	}
	retry := h.Timeout / 5
	o := recipes.LeaseOptions{Duration: 2 * h.Timeout, RetryPeriod: retry}
	held := obtained(t, h, leaseAt(t, a.Store, path, o).Acquire)
	looks := &lookTimes{}
	hooked := &Hooked{Store: h.Open(t).Store, Before: func(_ context.Context, c Call) error {
		if c.Kind == Get && c.Path == path {
			looks.add(time.Now())
		}
		return nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	var waiters sync.WaitGroup
	for range losers {
		waiters.Go(func() {
			if _, err := leaseAt(t, hooked, path, o).Acquire(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("acquire: %v", err)
			}
		})
	}
	pause(t, 3*h.Timeout)
	from := time.Now()
	pause(t, 2*h.Timeout)
	cancel()
	waiters.Wait()
	total, peak := looks.since(from, retry/time.Duration(slotsPerPeriod))
	if periods := int(2 * h.Timeout / retry); total > losers*periods*5/4 || h.Fake && total < losers*periods/3 {
		t.Errorf("%d looks of %d losers in %d periods", total, losers, periods)
	}
	if float64(peak) > most*float64(losers) {
		t.Errorf("%d of %d losers looked within a part of %d of a period", peak, losers, slotsPerPeriod)
	}
	released(t, h, held)
	if h.Fake {
		renewalsDrift(t, h, path+"-lock", a)
	}
}

// lookTimes is safe for concurrent use.
type lookTimes struct {
	mu sync.Mutex
	at []time.Time
}

func (l *lookTimes) add(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = append(l.at, at)
}

// since counts from a moment on, in all and in the fullest slot.
func (l *lookTimes) since(from time.Time, slot time.Duration) (total, peak int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slots := map[time.Duration]int{}
	for _, at := range l.at {
		if d := at.Sub(from); d >= 0 {
			total++
			slots[d/slot]++
			peak = max(peak, slots[d/slot])
		}
	}
	return total, peak
}

// renewalsDrift: the periods of one holder are neither equal nor far apart.
func renewalsDrift(t *testing.T, h Harness, path string, p *Peer) {
	times := &lookTimes{}
	held := obtained(t, h, mutexAt(t, p.Store, path, func(o *recipes.Options) {
		o.Hooks.Renewed = func(string, time.Duration, time.Duration) { times.add(time.Now()) }
	}).Lock)
	pause(t, 20*h.Timeout)
	released(t, h, held)
	times.mu.Lock()
	defer times.mu.Unlock()
	shortest, longest := time.Hour, time.Duration(0)
	for i := 1; i < len(times.at); i++ {
		d := times.at[i].Sub(times.at[i-1])
		shortest, longest = min(shortest, d), max(longest, d)
	}
	if len(times.at) < 50 || longest > shortest*5/4 || longest < shortest*21/20 {
		t.Errorf("%d renewals with periods of %v to %v", len(times.at), shortest, longest)
	}
}
