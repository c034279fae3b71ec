package recipes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// directoryKey is the watch on the list; no member can have this name.
const directoryKey = "/"

// groupLooker is what a stream of Members knows. It belongs to the stream's goroutine.
type groupLooker struct {
	group *Group
	seen  map[string]*seenMember
	pzxid int64

	shown    GroupView
	any      bool
	last     GroupView // as it was composed last, shown or held back
	dirty    time.Time // since when last differs from shown; zero if it does not
	lastMove time.Time // when last changed
}

// seenMember is one member, or one that lingers.
type seenMember struct {
	Member
	known  bool      // it was read
	gone   time.Time // when it was found missing; zero if it is there
	readAt time.Time
}

// look reads what is not watched any more.
func (l *groupLooker) look(ctx context.Context, w *watches) (round[GroupView], error) {
	if !w.has(directoryKey) {
		if err := l.list(ctx, w); err != nil {
			return round[GroupView]{}, err
		}
	}
	if err := l.readMembers(ctx, w); err != nil {
		return round[GroupView]{}, err
	}
	now := time.Now()
	view, again := l.compose(now, w)
	if !l.any {
		l.any, l.shown, l.last = true, view, view
		return round[GroupView]{view, true, again}, nil
	}
	wait := l.debounce(view, now)
	if wait > 0 {
		return round[GroupView]{l.shown, false, sooner(again, wait)}, nil
	}
	changed := !sameMembers(view.Members, l.shown.Members)
	if changed {
		l.shown, l.dirty = view, time.Time{}
	}
	return round[GroupView]{l.shown, changed, again}, nil
}

// list reads who is there.
func (l *groupLooker) list(ctx context.Context, w *watches) error {
	store, dir := l.group.store, l.group.path
	names, stat, watch, err := store.ChildrenW(ctx, dir)
	if errors.Is(err, znode.NoNode) {
		var exists bool
		if _, exists, watch, err = store.ExistsW(ctx, dir); err == nil && exists {
			watch.Cancel()
			return fmt.Errorf("%s was made in between: %w", dir, ErrUnavailable)
		}
		stat.Pzxid = l.pzxid
	}
	if err != nil {
		return err
	}
	if stat.Pzxid < l.pzxid {
		watch.Cancel()
		return errors.Join(store.Sync(ctx, dir), fmt.Errorf("%s is behind what was read before: %w", dir, ErrUnavailable))
	}
	w.arm(directoryKey, watch)
	l.pzxid = stat.Pzxid
	there := make(map[string]bool, len(names))
	for _, id := range names {
		there[id] = true
		if m := l.seen[id]; m == nil {
			l.seen[id] = &seenMember{Member: Member{ID: id}}
		} else {
			m.gone = time.Time{}
		}
	}
	now := time.Now()
	for id, m := range l.seen {
		if !there[id] && m.gone.IsZero() {
			m.gone = now
			w.disarm(id)
		}
	}
	return nil
}

// readMembers reads those that are there and not watched.
func (l *groupLooker) readMembers(ctx context.Context, w *watches) error {
	var ids []string
	now := time.Now()
	for id, m := range l.seen {
		if m.gone.IsZero() && !w.has(id) && (!m.known || now.Sub(m.readAt) >= memberRefresh || m.mayWatch(w)) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	free := memberWatches + 1 - w.count() // one is the directory's
	found, err := l.group.read(ctx, ids, func(i int) bool { return i < free })
	for i := range found {
		f, m := &found[i], l.seen[ids[i]]
		switch {
		case f.exists:
			m.Member, m.known, m.readAt = f.Member, true, now
			if f.watched {
				w.arm(f.ID, f.watch)
			}
		case err == nil: // deleted since it was listed, which the watch on the list tells
			m.gone = now
		}
	}
	return err
}

// mayWatch reports whether there is a watch to spare for a member that has none.
func (m *seenMember) mayWatch(w *watches) bool { return w.count() <= memberWatches }

// compose makes a view of what is known, and says when it changes by itself.
func (l *groupLooker) compose(now time.Time, w *watches) (GroupView, time.Duration) {
	v := GroupView{Pzxid: l.pzxid}
	var again time.Duration
	for _, id := range slices.Sorted(maps.Keys(l.seen)) {
		m := l.seen[id]
		if !m.gone.IsZero() {
			left := m.gone.Add(l.group.o.Linger).Sub(now)
			if left <= 0 || !m.known {
				delete(l.seen, id)
				continue
			}
			again = sooner(again, left)
		} else if !w.has(id) {
			again = sooner(again, memberRefresh)
		}
		v.Members = append(v.Members, m.Member)
	}
	return v, again
}

// debounce returns for how long view is to be held back.
func (l *groupLooker) debounce(view GroupView, now time.Time) time.Duration {
	d := l.group.o.Debounce
	if sameMembers(view.Members, l.shown.Members) {
		l.dirty, l.last = time.Time{}, view
		return 0
	}
	if l.dirty.IsZero() {
		l.dirty = now
	}
	if !sameMembers(view.Members, l.last.Members) {
		l.last, l.lastMove = view, now
	}
	due := l.lastMove.Add(d)
	if latest := l.dirty.Add(10 * d); latest.Before(due) {
		due = latest
	}
	return due.Sub(now)
}

// sooner returns the shorter of two waits of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// sameMembers compares incarnations and changes, which tell more than versions: those
// begin anew when a node is deleted and made again.
func sameMembers(a, b []Member) bool {
	return slices.EqualFunc(a, b, func(a, b Member) bool {
		return a.ID == b.ID && a.Czxid == b.Czxid && a.Mzxid == b.Mzxid && (a.Err == nil) == (b.Err == nil)
	})
}
