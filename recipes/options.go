package recipes

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// Token is a fencing token: it grows with every tenure of the same name and is never
// given twice. It does not fit a JavaScript number: send it as a string.
type Token uint64

// Options configures any recipe. The zero value of a field means its default.
type Options struct {
	ID     string // who this is, for people and observers; default host-pid-random
	Data   []byte // what observers are shown with it
	Timing Timing
	Log    *slog.Logger // default nothing
	Hooks  Hooks
	// Reap lets the backend remove the recipe's directory when nobody uses it (if it has
	// containers), for names that come and go. Forgotten with it are a token floor
	// that was set, and that the last holder released cleanly.
	Reap bool
}

// Hooks tell what happens to tenures. They run on a goroutine of their own per tenure, in
// order: Acquired once, Renewed when there is news (the latest), Lost once. A hook that
// blocks delays the hooks behind it and nothing else.
type Hooks struct {
	Acquired func(name string, t Token)
	Renewed  func(name string, rtt, left time.Duration)
	Lost     func(name string, t Token, why error)
}

// Timing is how long a tenure may be believed in. The zero value is right for most.
//
// The rule behind all of it: a holder believes until D has passed on its own clock since
// the send time of its last proof, and nobody succeeds it before that (docs/guarantees.md
// has the argument).
type Timing struct {
	// Drift bounds the error of clock rates, ours and the backend's: 0.01 (the default)
	// means that each runs between 0.99 and 1.01 of true time. ntpd slews by 0.0005 at
	// most; chronyd by up to 0.083 unless its maxslewrate is set: use 0.1 then.
	Drift float64
	// Worth is D: how long one proof is worth. The default, and the most that is possible,
	// is the session timeout shortened for drift where expiry is exact, and 0.4 of the
	// session timeout where it is not.
	Worth time.Duration
	// Renew is the time between renewals, default D/3 and at most half of D less Grace;
	// they are jittered by 10 %.
	Renew time.Duration
	// Grace is how long before the deadline the context of a tenure ends, default D/5.
	Grace time.Duration
	// HoldOff is what a new holder waits for after an unclean end of the one before.
	HoldOff HoldOff
}

// HoldOff is a rule for new holders. Its zero value is HoldOffAuto. A plain value.
type HoldOff struct {
	kind holdOffKind
	d    time.Duration
}

type holdOffKind uint8

const (
	holdOffAuto holdOffKind = iota
	holdOffNone
	holdOffFor
)

// HoldOffAuto waits until the belief of the one before must have ended. It need not wait
// where that one released, nor where its session expired and expiry is exact.
func HoldOffAuto() HoldOff { return HoldOff{} }

// HoldOffNone never waits. Where expiry is not exact its holders count their deadline
// from the last renewal but one, for up to the session timeout, and renew as often as
// others: that rests on the backend's timing and not on order. For those who fence anyway.
func HoldOffNone() HoldOff { return HoldOff{kind: holdOffNone} }

// HoldOffFor waits for d after every unclean end.
func HoldOffFor(d time.Duration) HoldOff { return HoldOff{kind: holdOffFor, d: d} }

// validate names the first field that breaks its rule.
func (t Timing) validate() error {
	switch {
	case t.Drift < 0 || t.Drift > 0.5:
		return fmt.Errorf("%w: Timing.Drift is %v: it must be in 0..0.5", ErrInvalid, t.Drift)
	case t.Worth < 0:
		return fmt.Errorf("%w: Timing.Worth is %v: it must not be negative", ErrInvalid, t.Worth)
	case t.Renew < 0 || t.Worth > 0 && t.Renew > t.Worth/2:
		return fmt.Errorf("%w: Timing.Renew is %v: it must be at most half of Worth (%v), so that one lost renewal is not the end", ErrInvalid, t.Renew, t.Worth)
	case t.Grace < 0 || t.Worth > 0 && t.Grace >= t.Worth:
		return fmt.Errorf("%w: Timing.Grace is %v: it must be less than Worth (%v)", ErrInvalid, t.Grace, t.Worth)
	case t.HoldOff.d < 0:
		return fmt.Errorf("%w: Timing.HoldOff is %v: it must not be negative", ErrInvalid, t.HoldOff.d)
	}
	return nil
}

// withDefaults fills in what every recipe needs.
func (o Options) withDefaults() (Options, error) {
	if err := o.Timing.validate(); err != nil {
		return o, err
	}
	if o.ID == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		o.ID = fmt.Sprintf("%s-%d-%s", host, os.Getpid(), newGUID()[:8])
	}
	if o.Timing.Drift == 0 {
		o.Timing.Drift = 0.01
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// newGUID returns 128 random bits in hex: the mark by which an attempt knows its own
// znode again.
func newGUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
