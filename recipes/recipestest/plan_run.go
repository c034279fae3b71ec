package recipestest

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// Run plays the plan from now on and returns when its last fault has ended, or earlier if
// ctx ends. In either case nothing is in force any more: partitions are healed, holds
// released, delays over, and faults that met no request disarmed. A verb that the peer or
// h does not have is left out.
//
// Expire and Restart, which take their time, are played beside the others, one at a time:
// further ones meanwhile are left out. Run waits for them.
func (p Plan) Run(ctx context.Context, t testing.TB, h Harness, peers []*Peer) {
	r := &planRun{t: t, h: h, peers: peers, depth: make(map[stageKey]int), busy: make(chan struct{}, 1)}
	began := time.Now()
	steps := slices.Clone(p.Steps)
	slices.SortStableFunc(steps, func(a, b Step) int { return int(a.At - b.At) })
	for len(steps) > 0 || len(r.ends) > 0 {
		if len(r.ends) > 0 && (len(steps) == 0 || r.ends[0].at <= steps[0].At) {
			if !wait(ctx, r.ends[0].at-time.Since(began)) {
				break
			}
			end := r.ends[0].play
			r.ends = r.ends[1:]
			end()
			continue
		}
		if !wait(ctx, steps[0].At-time.Since(began)) {
			break
		}
		r.begin(steps[0])
		steps = steps[1:]
	}
	for _, end := range r.ends {
		end.play()
	}
	r.wg.Wait()
	for _, p := range peers {
		if p.Disarm != nil {
			p.Disarm()
		}
	}
}

// wait returns false if ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// planRun is a plan being played, by one goroutine.
type planRun struct {
	t     testing.TB
	h     Harness
	peers []*Peer
	depth map[stageKey]int // how many faults of the verb are in force on the peer
	ends  []stage          // of those that are in force, in the order of time
	busy  chan struct{}    // held by what is played beside
	wg    sync.WaitGroup
}

type stageKey struct {
	peer int
	verb Verb
}

// stage is the end of a fault.
type stage struct {
	at   time.Duration
	play func()
}

// begin begins a fault and notes its end.
func (r *planRun) begin(s Step) {
	if s.Peer < 0 || s.Peer >= len(r.peers) {
		return
	}
	p := r.peers[s.Peer]
	if !slices.Contains(Verbs(r.h, p), s.Verb) {
		return
	}
	switch s.Verb {
	case VerbCutAfterCommit:
		p.CutAfterCommit(s.Kind)
	case VerbCutBeforeSend:
		p.CutBeforeSend(s.Kind)
	case VerbBreak:
		p.Break()
	case VerbMove:
		p.Move()
	case VerbFailSetWatches:
		p.FailSetWatches()
	case VerbJumpWall:
		p.JumpWall(s.Amount)
	case VerbExpire:
		r.beside(func() { p.Expire(lenient{r.t}) })
	case VerbRestart:
		r.beside(func() { r.h.Restart(r.t, s.For) })
	case VerbHold:
		_, release := p.Hold(s.Kind)
		r.endsWith(s, release)
	case VerbPause:
		r.endsWith(s, p.Pause())
	default:
		r.inForce(s, p)
	}
}

// lenient is a test to which it is no failure that a session cannot be expired just now:
// it may be over already. What it is given for runs on a goroutine of its own.
type lenient struct{ testing.TB }

func (l lenient) Error(args ...any)                 { l.Log(args...) }
func (l lenient) Errorf(format string, args ...any) { l.Logf(format, args...) }
func (l lenient) FailNow()                          { runtime.Goexit() }
func (l lenient) Fatal(args ...any)                 { l.Log(args...); runtime.Goexit() }
func (l lenient) Fatalf(format string, args ...any) { l.Logf(format, args...); runtime.Goexit() }

// inForce begins a fault that lasts until the last of its kind on this peer ends.
func (r *planRun) inForce(s Step, p *Peer) {
	key := stageKey{s.Peer, s.Verb}
	var end func()
	switch s.Verb {
	case VerbPartition:
		p.Partition()
		end = p.Heal
	case VerbMute:
		p.Mute()
		end = p.Unmute
	case VerbDelay:
		p.Delay(s.Amount)
		end = func() { p.Delay(0) }
	case VerbLag:
		p.Lag(s.Amount)
		end = func() { p.Lag(0) }
	case VerbIsolate:
		p.Isolate()
		end = p.Rejoin
	}
	r.depth[key]++
	r.endsWith(s, func() {
		if r.depth[key]--; r.depth[key] == 0 {
			end()
		}
	})
}

// endsWith notes the end of a fault.
func (r *planRun) endsWith(s Step, end func()) {
	r.ends = append(r.ends, stage{at: s.At + s.For, play: end})
	slices.SortStableFunc(r.ends, func(a, b stage) int { return int(a.at - b.at) })
}

// beside plays what takes its time, unless something of the kind is being played.
func (r *planRun) beside(play func()) {
	select {
	case r.busy <- struct{}{}:
	default:
		return
	}
	r.wg.Go(func() {
		defer func() { <-r.busy }()
		play()
	})
}
