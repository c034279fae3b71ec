package recipestest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

var pitfallsOfMembership = []pitfall{
	{86, "C087ReplacedZnodeMissed", []verb{verbPartition}, replacedZnodeMissed},
	{87, "ReadAndWatchInTwoSteps", []verb{verbBreak}, readAndWatch},
	{88, "CreatedAndDeletedWhileAway", []verb{verbPartition}, createdAndDeletedAway},
	{89, "SilentDuringADisconnect", []verb{verbPartition, verbBreak}, silentDisconnect},
	{90, "SecondEventNeverReplays", []verb{verbBreak}, secondEventLost},
	{91, "AlwaysAMember", []verb{verbExpire}, alwaysAMember},
	{92, "NodeOfPreviousSession", []verb{verbPartition}, nodeOfPreviousSession},
	{93, "KeptNodeLosesUpdates", []verb{verbPartition, verbExpire}, keptNodeLosesUpdates},
	{93, "C089MembersLoop", []verb{verbExpire}, membersLoop},
	{94, "EmptyView", []verb{verbPartition}, emptyView},
	{95, "OneBadSpoilsAll", nil, oneBadSpoilsAll},
	{96, "TwoOwnersOrNone", []verb{verbBreak, verbPartition}, twoOwnersOrNone},
}

// history is all that a stream has yielded, in short.
type history[T any] struct {
	mu   sync.Mutex
	seen []T
	err  error
}

// historyOf follows a stream until it ends.
func historyOf[T any](stream iter.Seq2[T, error]) *history[T] {
	l := &history[T]{}
	go func() {
		for v, err := range stream {
			l.mu.Lock()
			if err == nil {
				l.seen = append(l.seen, v)
			}
			l.err = err
			l.mu.Unlock()
		}
	}()
	return l
}

// all returns what was yielded so far.
func (l *history[T]) all() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.seen)
}

func (l *history[T]) last() (v T) {
	if all := l.all(); len(all) > 0 {
		return all[len(all)-1]
	}
	return v
}

// mute returns text without what says that it is not fresh.
func mute(text string) string { return strings.TrimSuffix(text, "?") }

// distinct returns texts, fresh or not, without repetitions.
func distinct(texts []string) []string {
	texts = slices.Clone(texts)
	for i := range texts {
		texts[i] = mute(texts[i])
	}
	return slices.Compact(texts)
}

func configAt(t *testing.T, s recipes.Store, path string) *recipes.Config[string] {
	t.Helper()
	c, err := recipes.NewConfig(s, path, recipes.Text{}, recipes.ConfigOptions[string]{Validate: func(v string) error {
		if v == "bad" {
			return errors.New("bad is not good")
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// values is a stream of a configuration in short: - for none, ! if it is bad, ? if it is
// not fresh.
func values(ctx context.Context, c *recipes.Config[string]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for v, err := range c.Watch(ctx) {
			text := v.V
			for _, mark := range []struct {
				on   bool
				text string
			}{{!v.Exists, "-"}, {v.Err != nil, "!"}, {!v.Fresh, "?"}} {
				if mark.on {
					text += mark.text
				}
			}
			if !yield(text, err) {
				return
			}
		}
	}
}

// settings is a configuration that one writes and another, who is played faults on, watches.
type settings struct {
	t      *testing.T
	h      Harness
	ctx    context.Context
	path   string
	peer   *Peer
	other  recipes.Store
	writer *recipes.Config[string]
	log    *history[string]
}

func newSettings(t *testing.T, h Harness) settings {
	t.Helper()
	s := settings{t: t, h: h, ctx: h.within(t), path: dir(t) + "/app/key", peer: h.Open(t), other: h.Open(t).Store}
	s.writer = configAt(t, s.other, s.path)
	s.log = historyOf(values(t.Context(), configAt(t, s.peer.Store, s.path)))
	s.shows("-")
	return s
}

func (s settings) set(v string) {
	s.t.Helper()
	if _, err := s.writer.Set(s.ctx, v); err != nil {
		s.t.Fatal(err)
	}
}

func (s settings) remove(path string) {
	s.t.Helper()
	if err := s.other.Delete(s.ctx, path, recipes.Always()); err != nil {
		s.t.Fatal(err)
	}
}

// shows waits until the watcher has seen v at last.
func (s settings) shows(v string) {
	s.t.Helper()
	s.h.eventually(s.t, fmt.Sprintf("the value %q", v), func() bool { return s.log.last() == v })
}

// away does something while the watcher is cut off and knows it.
func (s settings) away(something func()) {
	s.t.Helper()
	s.peer.Partition()
	something()
	s.h.eventually(s.t, "the value to be not fresh", func() bool { return strings.HasSuffix(s.log.last(), "?") })
	s.peer.Heal()
}

// P86 and C087. Goal: a znode that was deleted and made again is another value, though its
// version is the same. Method: that while the watcher is away, and a CompareAndSet on what
// was read before; then the same, of the directory too, while it is not.
func replacedZnodeMissed(t *testing.T, h Harness) {
	s := newSettings(t, h)
	s.set("one")
	s.shows("one")
	c := configAt(t, s.peer.Store, s.path)
	old, err := c.Get(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.away(func() {
		s.remove(s.path)
		s.set("two")
	})
	s.shows("two")
	if _, err := c.CompareAndSet(s.ctx, old, "three"); !errors.Is(err, recipes.ErrConflict) {
		t.Errorf("compare and set on another znode of the same version: %v", err)
	}
	for i := range 3 {
		s.remove(s.path)
		if i == 1 && h.Reap != nil {
			h.Reap(t)
		}
		// The directory is a container, which the backend may have removed already.
		err := s.other.Delete(s.ctx, strings.TrimSuffix(s.path, "/key"), recipes.Always())
		if err != nil && !errors.Is(err, znode.NoNode) {
			t.Fatal(err)
		}
		s.shows("-")
		s.set("again")
		s.shows("again")
	}
	want := []string{"-", "one", "two", "-", "again", "-", "again", "-", "again"}
	if got := distinct(s.log.all()); !slices.Equal(got, want) {
		t.Errorf("values %q, want %q", got, want)
	}
}

// P87. Goal: no update between read and watch is lost. Method: updates at all moments
// around the reads of the watcher, whose connection breaks at times; each must show at last
// when it is the last for a while.
func readAndWatch(t *testing.T, h Harness) {
	s := newSettings(t, h)
	n := 1000
	if !h.Fake {
		n = 100
	}
	for i := range n {
		s.set(strconv.Itoa(i))
		if i%7 == 0 {
			s.peer.Break()
		}
		if i%20 == 0 {
			s.shows(strconv.Itoa(i))
			continue
		}
		pause(t, time.Duration(i%13)*300*time.Microsecond)
	}
	s.shows(strconv.Itoa(n - 1))
}

// P88. Goal: after a gap what is true then is shown, not what went by. Method: a value,
// and a member, that come and go while the watcher is away.
func createdAndDeletedAway(t *testing.T, h Harness) {
	s := newSettings(t, h)
	g := groupAt(t, s.other, s.path+"-group", recipes.GroupOptions{})
	log := historyOf(roster(t.Context(), groupAt(t, s.peer.Store, s.path+"-group", recipes.GroupOptions{})))
	s.away(func() {
		s.set("brief")
		s.remove(s.path)
		leaves(t, h, joins(t, h, g, "brief", ""))
		joins(t, h, g, "stays", "")
	})
	h.eventually(t, "the member that stays", func() bool { return log.last() == "stays=" })
	s.shows("-")
	for _, v := range slices.Concat(log.all(), s.log.all()) {
		if strings.Contains(v, "brief") {
			t.Errorf("shown: %q", v)
		}
	}
}

// P89. Goal: a stream converges after a gap, also if its watches were lost at the
// reconnect, and says meanwhile that it is not fresh. Method: two changes in a gap, with
// and, where that can be played, without watches after it; later changes are seen too.
func silentDisconnect(t *testing.T, h Harness) {
	s := newSettings(t, h)
	for i, fail := range []func(){s.peer.FailSetWatches, nil} {
		first, second := fmt.Sprint("first", i), fmt.Sprint("second", i)
		s.away(func() {
			if fail != nil {
				fail()
			}
			s.set("brief")
			s.set(first)
			s.peer.Break()
		})
		s.shows(first)
		s.set(second)
		s.shows(second)
	}
}

// P90. Goal: the second of two changes is seen though the connection breaks between their
// events. Method: break before, between and after, many times.
func secondEventLost(t *testing.T, h Harness) {
	s := newSettings(t, h)
	for i := range h.clients(30) {
		first, second := fmt.Sprint("first", i), fmt.Sprint("second", i)
		s.peer.Break()
		s.set(first)
		if i%2 == 0 {
			s.peer.Break()
		}
		s.set(second)
		s.peer.Break()
		s.shows(second)
	}
}

// P95. Goal: one bad value does not end the stream, and the last good one stays; one child
// that cannot be read does not spoil the list. Method: garbage of two kinds, then good; a
// backend that refuses to show one member.
func oneBadSpoilsAll(t *testing.T, h Harness) {
	s := newSettings(t, h)
	s.set("good")
	s.shows("good")
	for _, garbage := range []string{"bad", "\xff"} {
		if _, err := s.other.Set(s.ctx, s.path, []byte(garbage), recipes.Always()); err != nil {
			t.Fatal(err)
		}
		s.shows("good!")
	}
	s.set("fine")
	s.shows("fine")
	if got, want := distinct(s.log.all()), []string{"-", "good", "good!", "fine"}; !slices.Equal(got, want) {
		t.Errorf("values %q, want %q", got, want)
	}
	path := s.path + "-group"
	g := groupAt(t, s.other, path, recipes.GroupOptions{})
	for i := range 3 {
		joins(t, h, g, fmt.Sprint("m", i), "x")
	}
	blind := &Hooked{Store: s.peer.Store, Before: func(_ context.Context, c Call) error {
		if c.Kind == Get && c.Path == path+"/m1" {
			return znode.NoAuth
		}
		return nil
	}}
	v, err := groupAt(t, blind, path, recipes.GroupOptions{}).View(s.ctx)
	if err != nil || rosterText(v) != "m0=x m1= m2=x" || !errors.Is(v.Members[1].Err, znode.NoAuth) {
		t.Errorf("view %+v, %v", v, err)
	}
	log := historyOf(roster(t.Context(), groupAt(t, blind, path, recipes.GroupOptions{})))
	h.eventually(t, "the list with a bad member", func() bool { return log.last() == "m0=x m1= m2=x" })
}
