package recipestest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// pitfall is one test of the conformance suite: a fault that was found in some library of
// recipes, and what must happen instead. Numbers are stable.
type pitfall struct {
	number int
	name   string // what goes wrong elsewhere, in CamelCase
	// needs are the verbs without which it cannot be shown.
	needs []verb
	run   func(t *testing.T, h Harness)
}

// verb is a fault that a harness may be able to play.
type verb string

// The verbs of Harness and Peer that are not everywhere.
const (
	verbCutAfterCommit verb = "CutAfterCommit"
	verbCutBeforeSend  verb = "CutBeforeSend"
	verbHold           verb = "Hold"
	verbBreak          verb = "Break"
	verbPartition      verb = "Partition"
	verbDelay          verb = "Delay"
	verbExpire         verb = "Expire"
	verbMove           verb = "Move"
	verbLag            verb = "Lag"
	verbIsolate        verb = "Isolate"
	verbFailSetWatches verb = "FailSetWatches"
	verbJumpWall       verb = "JumpWall"
	verbPause          verb = "Pause"
	verbRestart        verb = "Restart"
	verbSetCounter     verb = "SetCounter"
	verbReap           verb = "Reap"
	verbFake           verb = "fake time"
)

// has returns the verbs of a harness, asked of a peer of it.
func has(h Harness, p *Peer) map[verb]bool {
	return map[verb]bool{
		verbCutAfterCommit: p.CutAfterCommit != nil,
		verbCutBeforeSend:  p.CutBeforeSend != nil,
		verbHold:           p.Hold != nil,
		verbBreak:          p.Break != nil,
		verbPartition:      p.Partition != nil && p.Heal != nil,
		verbDelay:          p.Delay != nil,
		verbExpire:         p.Expire != nil,
		verbMove:           p.Move != nil,
		verbLag:            p.Lag != nil,
		verbIsolate:        p.Isolate != nil && p.Rejoin != nil,
		verbFailSetWatches: p.FailSetWatches != nil,
		verbJumpWall:       p.JumpWall != nil,
		verbPause:          p.Pause != nil,
		verbRestart:        h.Restart != nil,
		verbSetCounter:     h.SetCounter != nil,
		verbReap:           h.Reap != nil,
		verbFake:           h.Fake,
	}
}

// pitfalls returns the whole suite in the order of its numbers.
func pitfalls() []pitfall {
	all := slices.Concat(pitfallsOfOutcomes, pitfallsOfOrder, pitfallsOfSessions, pitfallsOfTime,
		pitfallsOfClosing, pitfallsOfLocks, pitfallsOfBarriers, pitfallsOfCounters, pitfallsOfMembership, pitfallsOfTokens)
	slices.SortFunc(all, func(a, b pitfall) int { return a.number - b.number })
	return all
}

// Conformance runs on h all tests of the suite that h has the verbs for, as subtests named
// by number, and logs which it has not.
func Conformance(t *testing.T, h Harness) {
	var can map[verb]bool
	h.Run(t, func(t *testing.T) { can = has(h, h.Open(t)) })
	var not []string
	for _, p := range pitfalls() {
		missing := slices.DeleteFunc(slices.Clone(p.needs), func(v verb) bool { return can[v] })
		if len(missing) > 0 {
			not = append(not, fmt.Sprintf("P%02d (%v)", p.number, missing))
			continue
		}
		t.Run(fmt.Sprintf("P%02d%s", p.number, p.name), func(t *testing.T) {
			if !h.Fake {
				t.Parallel()
			}
			h.Run(t, func(t *testing.T) { p.run(t, h) })
		})
	}
	if len(not) > 0 {
		t.Logf("%s cannot show %s", h.Name, strings.Join(not, ", "))
	}
}

// patience bounds how long a test waits for what must happen: a dozen session timeouts,
// and two minutes at least, for busy machines.
func (h Harness) patience() time.Duration { return max(12*h.Timeout, 2*time.Minute) }

// within returns a context that ends with the test or after patience.
func (h Harness) within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), h.patience())
	t.Cleanup(cancel)
	return ctx
}

// dir is a directory of the test's own, so that tests can share a backend.
func dir(t *testing.T) string {
	return "/conformance/" + strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()) + fmt.Sprint("-", time.Now().UnixNano())
}

// eventually waits until what holds, which it asks again and again.
func (h Harness) eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(h.patience()); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", h.patience(), what)
		}
		pause(t, max(h.Timeout/200, time.Millisecond))
	}
}

// pause waits for d, in fake time where time is fake, or for the end of the test.
func pause(t *testing.T, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// children returns the names in a directory as it is now, none if there is no directory. It
// goes on in the next session if one ends.
func children(t *testing.T, ctx context.Context, s recipes.Store, path string) []string {
	t.Helper()
	for {
		var names []string
		err := s.Sync(ctx, path) // others have written, perhaps through other members
		if err == nil {
			names, _, err = s.Children(ctx, path)
		}
		switch {
		case err == nil:
			return names
		case errors.Is(err, znode.NoNode):
			return nil
		case ctx.Err() != nil || !errors.Is(err, recipes.ErrUnavailable) && !errors.Is(err, recipes.ErrSessionExpired):
			t.Fatalf("children of %s: %v", path, err)
		}
		pause(t, time.Millisecond)
	}
}

// result is what a call in the background came to.
type result[T any] struct {
	value T
	err   error
	at    time.Time
}

// async runs f in the background. The channel gets its result.
func async[T any](f func() (T, error)) <-chan result[T] {
	done := make(chan result[T], 1)
	go func() {
		v, err := f()
		done <- result[T]{v, err, time.Now()}
	}()
	return done
}

// await returns the result of async, or ends the test if it takes too long.
func await[T any](t *testing.T, h Harness, done <-chan result[T], what string) result[T] {
	t.Helper()
	timer := time.NewTimer(h.patience())
	defer timer.Stop()
	select {
	case r := <-done:
		return r
	case <-timer.C:
		t.Fatalf("not within %v: %s", h.patience(), what)
	}
	panic("unreachable")
}
