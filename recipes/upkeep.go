package recipes

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// stamp is one moment on both clocks in nanoseconds: the monotonic one on a base of its
// own, and the wall clock. Go's monotonic clock stands still while a machine is
// suspended (golang/go#24595), so what must have ended by then is limited on both.
type stamp struct{ mono, wall int64 }

// monoBase is what monotonic readings count from.
var monoBase = time.Now()

func machineClock() (mono, wall int64) {
	t := time.Now()
	return int64(t.Sub(monoBase)), t.UnixNano()
}

// Upkeep is what recipes keep alive on one session: it proves all tenures of the session
// in one renewal per period, and does what was begun and must be finished, such as the
// deletion of a znode whose create was not answered, until that is done or the session
// is over. It is safe for concurrent use. It has one goroutine while there are tenures,
// and one for each thing to finish.
type Upkeep struct {
	session Session
	clock   func() (mono, wall int64)
	ctx     context.Context // ends with the session
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	wake    chan struct{} // a tenure joined: the next renewal may be due sooner

	mu struct {
		sync.Mutex
		tenures map[*Tenure]struct{}
		// own are the marks of the znodes that recipes of this process have made in
		// this session and not given up: whatever else the session owns is an orphan.
		own      map[string]struct{}
		renewing bool
		over     error
	}
}

// NewUpkeep returns the upkeep of s, for the Store that made s.
func NewUpkeep(s Session) *Upkeep {
	u := &Upkeep{session: s, clock: machineClock, wake: make(chan struct{}, 1)}
	u.ctx, u.cancel = context.WithCancel(context.Background())
	u.mu.tenures = map[*Tenure]struct{}{}
	u.mu.own = map[string]struct{}{}
	return u
}

// SetWall replaces the wall clock, in nanoseconds, for tests that part it from the
// monotonic one. Call it before the session is used.
func (u *Upkeep) SetWall(wall func() int64) {
	u.clock = func() (int64, int64) {
		mono, _ := machineClock()
		return mono, wall()
	}
}

// End says that the session is over or about to be closed: all its tenures end at once,
// because of why, and nothing is renewed or finished any more. The Session calls it
// before its Done is closed and before it tells the backend. It may be called again.
func (u *Upkeep) End(why error) {
	u.mu.Lock()
	if u.mu.over == nil {
		u.mu.over = why
	}
	ended := u.snapshot()
	u.mu.Unlock()
	u.cancel()
	for _, t := range ended {
		t.end(why)
	}
}

// Wait waits for the goroutines of the upkeep, after End.
func (u *Upkeep) Wait() { u.wg.Wait() }

func (u *Upkeep) now() stamp {
	mono, wall := u.clock()
	return stamp{mono, wall}
}

// sentAt is the stamp of a proof's send time. The wall clock was not read then: it is
// taken to have gone on from before like the monotonic one. If the machine was
// suspended in between that is too early, which is safe.
func (u *Upkeep) sentAt(p Proof, before stamp) stamp {
	mono := int64(p.Sent.Sub(monoBase))
	return stamp{mono, before.wall + mono - before.mono}
}

// snapshot needs mu.
func (u *Upkeep) snapshot() []*Tenure {
	all := make([]*Tenure, 0, len(u.mu.tenures))
	for t := range u.mu.tenures {
		all = append(all, t)
	}
	return all
}

// add has t proved from now on, until it ends.
func (u *Upkeep) add(t *Tenure) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mu.over != nil {
		return u.mu.over
	}
	u.mu.tenures[t] = struct{}{}
	if !u.mu.renewing {
		u.mu.renewing = true
		u.wg.Go(u.renew)
		return nil
	}
	u.nudge()
	return nil
}

func (u *Upkeep) remove(t *Tenure) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.mu.tenures, t)
	u.nudge() // the last one's end is the end of the goroutine
}

func (u *Upkeep) nudge() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// claimMark and dropMark say which znodes of the session are known to somebody.
func (u *Upkeep) claimMark(guid string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.own[guid] = struct{}{}
}

func (u *Upkeep) dropMark(guid string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.mu.own, guid)
}

func (u *Upkeep) knows(guid string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, known := u.mu.own[guid]
	return known
}

// ensure does f again and again until it succeeds or fails for good, or the session is
// over, when all that f could remove is gone. Then it calls finish, if not nil, with the
// outcome. Neither may block for longer than its ctx.
func (u *Upkeep) ensure(log *slog.Logger, what string, f func(ctx context.Context) error, finish func(error)) {
	if finish == nil {
		finish = func(error) {}
	}
	try := func() {
		var b backoff
		for {
			err := f(u.ctx)
			if u.ctx.Err() != nil || sessionOver(err) {
				err = nil
			}
			if err == nil || !transient(err) {
				if err != nil {
					log.Warn("not finished", "what", what, "err", err)
				}
				finish(err)
				return
			}
			log.Debug("to be finished", "what", what, "err", err)
			_ = pause(u.ctx, b.next()) // an end of ctx shows at the top
		}
	}
	u.mu.Lock()
	over := u.mu.over != nil
	if !over {
		u.wg.Go(try)
	}
	u.mu.Unlock()
	if over {
		finish(nil)
	}
}

// renew is the goroutine that proves the tenures; it ends when there are none.
func (u *Upkeep) renew() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var failures backoff
	var retry time.Duration // 0 after a success
	phase := 1.0            // jitter of this period
	for {
		wait, any := u.untilDue(phase)
		if !any || u.ctx.Err() != nil {
			return
		}
		timer.Reset(max(wait, retry))
		select {
		case <-timer.C:
		case <-u.wake:
			if retry == 0 {
				continue
			}
			_ = pause(u.ctx, retry)
		case <-u.ctx.Done():
			return
		}
		period, err := u.renewOnce()
		phase = float64(jitter(time.Second)) / float64(time.Second)
		if err == nil {
			failures, retry = backoff{}, 0
			continue
		}
		retry = min(failures.next(), period/4)
	}
}

// untilDue returns how long it is to the next renewal. Without tenures the goroutine is
// given up in the same breath, so that the next tenure starts a new one.
func (u *Upkeep) untilDue(phase float64) (wait time.Duration, any bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.now().mono
	wait = time.Duration(1 << 62)
	for t := range u.mu.tenures {
		if t.ctx.Err() != nil {
			continue // it is not renewed any more
		}
		due := t.proved.Load() + int64(float64(t.timing.renew)*phase)
		wait = min(wait, time.Duration(due-now))
	}
	if len(u.mu.tenures) == 0 {
		u.mu.renewing = false
	}
	return max(wait, 0), len(u.mu.tenures) > 0
}

// renewOnce proves all tenures in one call. It returns the shortest period.
func (u *Upkeep) renewOnce() (period time.Duration, err error) {
	u.mu.Lock()
	batch := slices.DeleteFunc(u.snapshot(), func(t *Tenure) bool { return t.ctx.Err() != nil })
	u.mu.Unlock()
	var held []Held
	period, worth := time.Duration(1<<62), time.Duration(0)
	for _, t := range batch {
		held = append(held, t.held...)
		period, worth = min(period, t.timing.renew), max(worth, t.timing.worth)
	}
	if len(batch) == 0 {
		return period, nil
	}
	// What is not answered within worth proves nothing any more.
	ctx, cancel := context.WithTimeout(u.ctx, worth)
	defer cancel()
	before := u.now()
	proof, verdicts, err := u.session.Renew(ctx, held...)
	if err != nil {
		return period, err
	}
	sent, rtt := u.sentAt(proof, before), time.Duration(u.now().mono-before.mono)
	for _, t := range batch {
		judged := errors.Join(verdicts[:len(t.held)]...)
		verdicts = verdicts[len(t.held):]
		switch {
		case judged == nil:
			t.extend(sent, proof.TTL, rtt)
		case errors.Is(judged, znode.NoNode):
			t.end(ErrGone)
		default: // it is not proved, nor is it known to be gone
			t.options.Log.Warn("not proved", "path", t.name, "token", uint64(t.token), "err", judged)
			err = judged
		}
	}
	return period, err
}
