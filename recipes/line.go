package recipes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// line is what elections, mutexes and semaphores are made of: a directory whose
// sequential ephemeral children are places in the order of their creation. Who is not
// admitted waits for one other place. Who is admitted claims: a transaction that is
// conditional on its place and on the record, the data of the directory.
//
// It is immutable; every attempt to hold is a place of its own and belongs to one
// goroutine, which derives what is true from fresh reads. Events only wake it.
type line struct {
	store Store
	path  string
	o     Options
	d     discipline
	kind  byte
	// For slotted: how many slots there are if nothing is stored, and how many a place takes.
	slots, weight int
	gone          *absences // the one thing that is not immutable
}

// place is one attempt. It belongs to one goroutine.
type place struct {
	entry
	path    string
	session Session
	czxid   int64
	own     Watch
	// claimed: a claim was sent. known is then the record that it made, if it is known to
	// be the latest of this place.
	claimed bool
	known   *knownRecord
}

// knownRecord is a record with its version.
type knownRecord struct {
	record
	version int32
}

var (
	errPlaceGone = errors.New("the place in line is gone")
	errBusy      = errors.New("held by another")
)

func newLine(s Store, path string, o Options, d discipline, kind byte) (*line, error) {
	if err := validateDir(path); err != nil {
		return nil, err
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &line{store: s, path: path, o: o, d: d, kind: kind, gone: &absences{}}, nil
}

func (l *line) join(name string) string { return znode.Join(l.path, name) }

// hold waits until this attempt holds. With try it returns errBusy instead of waiting. It
// is bound to the session that is current when it is Connected: if that ends, so does
// hold. Whatever it returns, nothing is left behind but a tenure.
func (l *line) hold(ctx context.Context, try bool) (*Tenure, error) {
	sess, err := connected(ctx, l.store)
	if err != nil {
		return nil, err
	}
	w, err := l.win(ctx, sess, try)
	if err != nil {
		return nil, err
	}
	t, err := startTenure(ctx, l.spec(w), w.sent, w.ttl)
	if err != nil {
		l.abandon(w.place)
	}
	return t, err
}

// win is hold, but for the start of a tenure.
func (l *line) win(ctx context.Context, sess Session, try bool) (*won, error) {
	var b backoff
	for {
		p, err := l.enter(ctx, sess)
		if err != nil {
			return nil, err
		}
		w, err := l.await(ctx, p, try)
		if err == nil {
			return w, nil
		}
		l.abandon(p)
		if !errors.Is(err, errPlaceGone) {
			return nil, err
		}
		// Somebody deleted the place: to the end of the line.
		if err := pauseIn(ctx, sess, b.next()); err != nil {
			return nil, err
		}
	}
}

// spec is the tenure of a place that has won.
func (l *line) spec(w *won) tenureSpec {
	return tenureSpec{
		name: l.path, options: l.o, token: w.token, store: l.store, session: w.session,
		held: []Held{w.held()}, guard: []Op{OpCheck(w.path, Always())},
		leave: func(ctx context.Context, clean bool) error { return l.leave(ctx, w.place, clean) },
	}
}

// pauseIn waits for d, or the end of ctx or of the session.
func pauseIn(ctx context.Context, sess Session, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-sess.Done():
		return sess.Err()
	}
}

// enter makes a place at the end of the line.
func (l *line) enter(ctx context.Context, sess Session) (*place, error) {
	guid := newGUID()
	u := sess.Upkeep()
	u.claimMark(guid)
	data := placeData{ID: l.o.ID, Data: l.o.Data}.encode()
	path, err := createMarked(ctx, l.store, sess, l.o, l.directory(), l.join(prefix(l.kind, l.weight, guid)), guid, data)
	if err != nil {
		u.dropMark(guid)
		return nil, err
	}
	_, name := znode.Split(path)
	e, ok := parseEntry(name)
	if !ok {
		u.dropMark(guid)
		return nil, fmt.Errorf("created %s: not the name that was asked for", path)
	}
	p := &place{entry: e, path: path, session: sess, own: Watch{Cancel: func() {}}}
	if err := l.watchOwn(ctx, p); err != nil && !errors.Is(err, errPlaceGone) {
		u.dropMark(guid)
		sweep(l.store, sess, l.o, l.path, guid)
		return nil, err
	}
	return p, nil
}

// directory says what the line's directory is.
func (l *line) directory() znode.Kind {
	if l.o.Reap {
		return znode.Container
	}
	return znode.Persistent
}

// watchOwn reads the place's own znode and watches it. A place of another session is as
// good as gone: this one's session is over, or soon.
func (l *line) watchOwn(ctx context.Context, p *place) error {
	var b backoff
	for {
		_, stat, w, err := l.store.GetW(ctx, p.path)
		switch {
		case err == nil && int64(stat.EphemeralOwner) != p.session.ID():
			w.Cancel()
			return fmt.Errorf("%s belongs to session %d, not %d: %w", p.path, stat.EphemeralOwner, p.session.ID(), ErrSessionExpired)
		case err == nil:
			p.own.Cancel()
			p.own, p.czxid = w, stat.Czxid
			return nil
		case errors.Is(err, znode.NoNode):
			return errPlaceGone
		case !transient(err):
			return err
		}
		if err := pauseIn(ctx, p.session, b.next()); err != nil {
			return err
		}
	}
}

// await waits until the place is admitted and has claimed.
func (l *line) await(ctx context.Context, p *place, try bool) (*won, error) {
	var b backoff
	for {
		won, wake, err := l.step(ctx, p)
		switch {
		case err == nil && won != nil:
			return won, nil
		case err == nil && wake != nil:
			if try {
				wake.cancel()
				return nil, errBusy
			}
			won, err = l.sleep(ctx, p, wake)
			if won != nil {
				return won, nil
			}
		}
		switch {
		case err == nil:
			b = backoff{}
			continue
		case !transient(err):
			return nil, err
		}
		l.o.Log.Debug("again", "recipe", "line", "path", p.path, "err", err)
		if err := pauseIn(ctx, p.session, b.next()); err != nil {
			return nil, err
		}
	}
}

// wake is what a place waits for: what watches tell, or time.
type wake struct {
	watch Watch // of the place ahead, or the line
	limit Watch // of the number of slots
	until time.Duration
	// next is what is needed to take over from the holder in one transaction, nil if
	// that is not known.
	next *claimData
}

func (w *wake) cancel() {
	for _, watch := range []Watch{w.watch, w.limit} {
		if watch.Cancel != nil {
			watch.Cancel()
		}
	}
}

// sleep waits for w, and what else may concern the place.
func (l *line) sleep(ctx context.Context, p *place, w *wake) (*won, error) {
	defer w.cancel()
	var timeout <-chan time.Time
	if w.until > 0 {
		timer := time.NewTimer(w.until)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case kind := <-w.watch.C:
		if kind == Changed && w.next != nil {
			return l.takeOver(ctx, p, w.next)
		}
	case <-w.limit.C:
	case <-timeout:
	case <-p.own.C:
		return nil, l.watchOwn(ctx, p)
	case <-p.session.Done():
		return nil, p.session.Err()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return nil, nil
}

// step looks at the line once: the place has won, or must wait for wake, or neither and
// should look again.
func (l *line) step(ctx context.Context, p *place) (w *won, until *wake, err error) {
	if err := p.session.Err(); err != nil {
		return nil, nil, err
	}
	until = &wake{}
	defer func() {
		if w != nil || err != nil || !until.waits() {
			until.cancel()
			until = nil
		}
	}()
	slots, err := l.slotsNow(ctx, until)
	if err != nil {
		return nil, until, err
	}
	names, dir, err := l.list(ctx, until)
	if err != nil {
		return nil, until, err
	}
	seen := p.session.Upkeep().now()
	line := parseLine(names)
	me := indexOf(line, p.name)
	if me < 0 {
		return nil, until, errPlaceGone
	}
	waits, on := l.d.waits(line, me, slots)
	if waits && on >= 0 {
		until.cancel()
		return nil, until, l.behind(ctx, p, line[on], until)
	}
	if waits {
		return nil, until, nil
	}
	until.cancel()
	*until = wake{}
	a := admission{dir: dir, line: line, me: me, slots: slots, seen: seen}
	w, until.until, err = l.admitted(ctx, p, a)
	return w, until, err
}

// waits reports whether there is anything to wait for.
func (w *wake) waits() bool { return w.watch.C != nil || w.until > 0 }

// list reads the line, with a watch where the discipline waits for any change. dir is the
// incarnation of the directory.
func (l *line) list(ctx context.Context, until *wake) (names []string, dir int64, err error) {
	var stat znode.Stat
	if l.slots > 0 {
		names, stat, until.watch, err = l.store.ChildrenW(ctx, l.path)
	} else {
		names, stat, err = l.store.Children(ctx, l.path)
	}
	if errors.Is(err, znode.NoNode) {
		err = errPlaceGone // with the whole directory
	}
	return names, stat.Czxid, err
}

func (l *line) readRecord(ctx context.Context) (record, znode.Stat, error) {
	data, stat, err := l.store.Get(ctx, l.path)
	if errors.Is(err, znode.NoNode) {
		err = errPlaceGone
	}
	if err != nil {
		return record{}, stat, err
	}
	r, err := parseRecord(l.path, data)
	return r, stat, err
}

// behind watches the place that p waits for. If it went meanwhile, until stays empty.
func (l *line) behind(ctx context.Context, p *place, ahead entry, until *wake) error {
	*until = wake{}
	path := l.join(ahead.name)
	data, stat, watch, err := l.store.GetW(ctx, path)
	switch {
	case errors.Is(err, znode.NoNode):
		return nil
	case err != nil:
		return err
	case int64(stat.EphemeralOwner) == p.session.ID() && !p.session.Upkeep().knows(ahead.guid):
		// An attempt of this session that nobody knows any more.
		watch.Cancel()
		if err := l.store.Delete(ctx, path, Always()); err != nil && !errors.Is(err, znode.NoNode) {
			return err
		}
		return nil
	}
	until.watch = watch
	if l.d.handsOver() {
		until.next = parsePlace(data).Claim
	}
	if l.slots > 0 {
		// Those in between may give up, which nobody tells.
		until.until = jitter(p.session.Timeout())
	}
	return nil
}
