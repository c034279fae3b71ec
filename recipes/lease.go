package recipes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// ErrHandOver is the cause of a Tenure's context that ended because Lease.HandOver asked
// for it. The tenure itself lasts until Release or its deadline.
var ErrHandOver = errors.New("asked to hand over")

// Lease is held by writing a record again and again, as Kubernetes does: not by an
// ephemeral. So any number of holders of different leases share one session, a lease
// outlives the session, and it costs one write per renewal and holder. Where that does
// not matter use Mutex or Election: they hand over faster and do not poll.
//
// A holder believes for RenewDeadline from the send time of its last acknowledged write.
// A challenger takes over by compare-and-set when it has seen one and the same record for
// the Duration that this record states, by its own monotonic clock. With RenewDeadline
// and Duration as LeaseOptions demands the two never overlap, whatever is lost, late or
// read from a member that lags.
//
// A Lease is safe for concurrent use. Each Acquire is a holder of its own, so that two
// goroutines exclude each other. It has one goroutine for each tenure.
//
// The lease is a persistent znode with the record, and below it one znode for the tenure,
// which Tenure.Guard checks. Whoever deletes them by hand must first stop the holder.
type Lease struct {
	store Store
	path  string
	o     LeaseOptions
	sight leaseSight
}

// LeaseOptions configures a Lease. The zero value of a field means its default. All times
// are whole milliseconds. Of Timing only Drift and Grace matter.
type LeaseOptions struct {
	Options
	// Duration is how long others leave a record alone that does not change; default 15 s.
	Duration time.Duration
	// RenewDeadline is for how long after sending its last acknowledged renewal a holder
	// believes; default two thirds of Duration. With Timing.Drift d it must satisfy
	// RenewDeadline*(1+d) <= Duration*(1-d).
	RenewDeadline time.Duration
	// RetryPeriod is the time between renewals, jittered by 10 %, and between the looks
	// of a challenger, jittered by up to 1.2 RetryPeriod more; default a fifth of
	// RenewDeadline. It must be at most half of RenewDeadline less Timing.Grace.
	RetryPeriod time.Duration
	// Preferred is the ID of the holder that should come next: others let it go first by
	// a RetryPeriod, at a release and at an expiry. Default nobody.
	Preferred string
}

// LeaseRecord is the data of a lease's znode, in JSON.
type LeaseRecord struct {
	Holder      string `json:"holder"` // Options.ID; empty if nobody holds it
	Data        []byte `json:"data,omitempty"`
	DurationMS  int64  `json:"durationMs"`
	Renewals    uint64 `json:"renewals"`     // of this tenure; some numbers may be left out
	Transitions uint64 `json:"transitions"`  // tenures until now
	Token       Token  `json:"token,string"` // of this tenure, or of the last
	// Floor is what SetFloor wrote: the next token is above it.
	Floor Token  `json:"floor,string,omitempty"`
	Nonce string `json:"nonce,omitempty"` // of this tenure
	// RenewedAt is by the holder's wall clock, for people alone.
	RenewedAt time.Time `json:"renewedAt"`
	Preferred string    `json:"preferred,omitempty"`
}

// NewLease returns the lease at path.
func NewLease(s Store, path string, o LeaseOptions) (*Lease, error) {
	if err := validateDir(path); err != nil {
		return nil, err
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Lease{store: s, path: path, o: o}, nil
}

func (o LeaseOptions) withDefaults() (LeaseOptions, error) {
	var err error
	if o.Options, err = o.Options.withDefaults(); err != nil {
		return o, err
	}
	if o.Duration == 0 {
		o.Duration = 15 * time.Second
	}
	if o.RenewDeadline == 0 {
		o.RenewDeadline = (o.Duration * 2 / 3).Truncate(time.Millisecond)
	}
	if o.RetryPeriod == 0 {
		o.RetryPeriod = (o.RenewDeadline / 5).Truncate(time.Millisecond)
	}
	return o, o.validate()
}

// validate names the first field that breaks its rule.
func (o LeaseOptions) validate() error {
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"Duration", o.Duration}, {"RenewDeadline", o.RenewDeadline}, {"RetryPeriod", o.RetryPeriod}} {
		if f.value < time.Millisecond || f.value%time.Millisecond != 0 {
			return fmt.Errorf("%w: %s is %v: it must be a whole number of milliseconds, at least 1", ErrInvalid, f.name, f.value)
		}
	}
	d := o.Timing.Drift
	t := o.Timing
	switch {
	case float64(o.RenewDeadline)*(1+d) > float64(o.Duration)*(1-d):
		return fmt.Errorf("%w: RenewDeadline is %v and Duration is %v: RenewDeadline*(1+Drift) must be at most Duration*(1-Drift), so at most %v with Drift %v",
			ErrInvalid, o.RenewDeadline, o.Duration, shorten(o.Duration, d).Truncate(time.Millisecond), d)
	case t.Grace >= o.RenewDeadline:
		return fmt.Errorf("%w: Timing.Grace is %v and RenewDeadline is %v: Grace must be less", ErrInvalid, t.Grace, o.RenewDeadline)
	case o.RetryPeriod > (o.RenewDeadline-t.Grace)/2:
		return fmt.Errorf("%w: RetryPeriod is %v, RenewDeadline is %v and Timing.Grace is %v: RetryPeriod must be at most half of RenewDeadline-Grace, so that one lost renewal is not the end",
			ErrInvalid, o.RetryPeriod, o.RenewDeadline, t.Grace)
	case t.Worth != 0 || t.Renew != 0 || t.HoldOff != HoldOff{}:
		return fmt.Errorf("%w: Timing.Worth, Renew and HoldOff are not for a lease: it has RenewDeadline, RetryPeriod and Duration", ErrInvalid)
	}
	return nil
}

// held reports whether the record is that of a tenure, over or not.
func (r LeaseRecord) held() bool { return r.Nonce != "" }

// duration is how long others leave it alone.
func (r LeaseRecord) duration() time.Duration { return time.Duration(r.DurationMS) * time.Millisecond }

// released is the record after the tenure.
func (r LeaseRecord) released() LeaseRecord {
	return LeaseRecord{Transitions: r.Transitions, Token: r.Token, Floor: r.Floor, RenewedAt: r.RenewedAt, Preferred: r.Preferred}
}

func (r LeaseRecord) encode() []byte {
	data, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("encode %+v: %v", r, err)) // only a year beyond 9999 can
	}
	return data
}

func (l *Lease) decode(data []byte) (r LeaseRecord, err error) {
	if len(data) == 0 {
		return r, nil
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("%w: data of %s are not a lease's record: %w", ErrInvalid, l.path, err)
	}
	if r.held() && r.DurationMS <= 0 {
		return r, fmt.Errorf("%w: record of %s: durationMs is %d: it must be positive", ErrInvalid, l.path, r.DurationMS)
	}
	return r, nil
}

// holder is the path of a tenure's znode. Its name is never used twice, so that the guard
// of a former tenure cannot be met by a later one, not even after a deletion by hand.
func (l *Lease) holder(nonce string) string { return znode.Join(l.path, "holder-"+nonce) }

// clock is that of the store's process.
func (l *Lease) clock() (mono, wall int64) { return l.store.Session().Upkeep().clock() }

func (l *Lease) now() stamp {
	mono, wall := l.clock()
	return stamp{mono, wall}
}

// Record returns the record, with all writes that ended before the call. A lease that
// nobody ever held has the zero record and Stat.
func (l *Lease) Record(ctx context.Context) (LeaseRecord, znode.Stat, error) {
	var r LeaseRecord
	var stat znode.Stat
	err := insist(ctx, nil, func() (err error) {
		r, stat, err = l.reread(ctx)
		if errors.Is(err, znode.NoNode) {
			return nil
		}
		return err
	})
	if err != nil {
		return LeaseRecord{}, znode.Stat{}, fmt.Errorf("record of lease %s: %w", l.path, err)
	}
	return r, stat, nil
}

func (l *Lease) read(ctx context.Context) (LeaseRecord, znode.Stat, error) {
	data, stat, err := l.store.Get(ctx, l.path)
	if err != nil {
		return LeaseRecord{}, znode.Stat{}, err
	}
	r, err := l.decode(data)
	return r, stat, err
}

// reread is read after a sync: it sees a write of ours whose answer was lost.
func (l *Lease) reread(ctx context.Context) (LeaseRecord, znode.Stat, error) {
	if err := l.store.Sync(ctx, l.path); err != nil {
		return LeaseRecord{}, znode.Stat{}, err
	}
	return l.read(ctx)
}

// Watch yields the record and then its changes, the latest; renewals are changes. Where
// there is none that is the zero record. A record that is not a lease's, or another error
// that trying again does not cure, is yielded and ends the stream; an end of ctx ends it
// silently.
func (l *Lease) Watch(ctx context.Context) iter.Seq2[LeaseRecord, error] {
	return func(yield func(LeaseRecord, error) bool) {
		latest := int64(-1) // zxid of the record yielded last; 0 for none
		for {
			var r LeaseRecord
			var stat znode.Stat
			var watch Watch
			err := insist(ctx, nil, func() (err error) {
				r, stat, watch, err = l.readW(ctx)
				return err
			})
			if ctx.Err() != nil && err != nil {
				return
			}
			if err != nil {
				yield(LeaseRecord{}, fmt.Errorf("watch lease %s: %w", l.path, err))
				return
			}
			// A member that lags shows what was yielded before.
			if stat.Mzxid > latest || stat.Mzxid == 0 && latest > 0 {
				latest = stat.Mzxid
				if !yield(r, nil) {
					watch.Cancel()
					return
				}
			}
			select {
			case <-watch.C:
			case <-ctx.Done():
			}
			watch.Cancel()
			if ctx.Err() != nil {
				return
			}
		}
	}
}

// readW is read with a watch, also for a record that is not there.
func (l *Lease) readW(ctx context.Context) (LeaseRecord, znode.Stat, Watch, error) {
	data, stat, watch, err := l.store.GetW(ctx, l.path)
	if errors.Is(err, znode.NoNode) {
		_, there, watch, err := l.store.ExistsW(ctx, l.path)
		if err == nil && there {
			watch.Cancel()
			err = errAgain
		}
		return LeaseRecord{}, znode.Stat{}, watch, err
	}
	if err != nil {
		return LeaseRecord{}, znode.Stat{}, Watch{}, err
	}
	r, err := l.decode(data)
	if err != nil {
		watch.Cancel()
	}
	return r, stat, watch, err
}

// HandOver asks whoever holds the lease to let the holder whose ID is to have it. With its
// next renewal the context of the tenure ends because of ErrHandOver, and it is renewed no
// more; at its Release or expiry all others let to go first, by a RetryPeriod. If nobody
// holds the lease only that is so.
func (l *Lease) HandOver(ctx context.Context, to string) error {
	err := l.edit(ctx, func(r *LeaseRecord) bool {
		changed := r.Preferred != to
		r.Preferred = to
		return changed
	})
	if err != nil {
		return fmt.Errorf("hand lease %s over to %s: %w", l.path, to, err)
	}
	return nil
}

// SetFloor makes the token of the next tenure higher than floor; see the function SetFloor,
// which is for the other recipes.
func (l *Lease) SetFloor(ctx context.Context, floor Token) error {
	err := l.edit(ctx, func(r *LeaseRecord) bool {
		raise := floor > r.Floor
		r.Floor = max(r.Floor, floor)
		return raise
	})
	if err != nil {
		return fmt.Errorf("floor of lease %s: %w", l.path, err)
	}
	return nil
}

// edit changes the record from outside: the holder takes over what it finds.
func (l *Lease) edit(ctx context.Context, change func(*LeaseRecord) bool) error {
	return insist(ctx, nil, func() error {
		r, stat, err := l.reread(ctx)
		if errors.Is(err, znode.NoNode) {
			return again(l.ensure(ctx))
		}
		if err != nil || !change(&r) {
			return err
		}
		_, err = l.store.Set(ctx, l.path, r.encode(), IfVersion(stat.Version))
		if errors.Is(err, znode.BadVersion) || errors.Is(err, znode.NoNode) {
			return errConflict
		}
		return err
	})
}

// ensure makes the znode of the record.
func (l *Lease) ensure(ctx context.Context) error {
	kind := znode.Persistent
	if l.o.Reap {
		kind = znode.Container
	}
	return ensureDir(ctx, l.store, l.path, kind)
}
