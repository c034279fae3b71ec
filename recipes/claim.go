package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// won is a place that holds. sent is when its proof was sent.
type won struct {
	*place
	token Token
	sent  stamp
	ttl   time.Duration
}

func (p *place) held() Held { return Held{Path: p.path, Czxid: p.czxid} }

// admission is the line as it was seen when a place need not wait for others.
type admission struct {
	dir   int64 // incarnation of the directory
	line  []entry
	me    int
	slots int
	seen  stamp // when the line's answer came
	fresh bool  // the record was never written
}

// admitted claims for the place, or says how long it must hold off.
func (l *line) admitted(ctx context.Context, p *place, a admission) (*won, time.Duration, error) {
	r, stat, err := l.readRecord(ctx)
	if err != nil {
		return nil, 0, err
	}
	if stat.Czxid != a.dir {
		return nil, 0, errPlaceGone // with the directory that it was in
	}
	version := stat.Version
	if h, mine := r.holds(p.name); mine {
		// An earlier claim was applied although its answer was lost.
		p.known = &knownRecord{r, version}
		w, err := l.prove(ctx, p, h.Token, stamp{})
		return w, 0, err
	}
	a.fresh = version == 0
	wait, over, err := l.holdOff(ctx, p, r, a)
	if err != nil {
		return nil, 0, err
	}
	if wait > 0 {
		l.o.Log.Debug("holding off", "path", p.path, "for", wait)
		return nil, wait, nil
	}
	w, err := l.claim(ctx, p, r.without(over...), version)
	if errors.Is(err, znode.BadVersion) {
		err = fmt.Errorf("%w: the record of %s changed", ErrUnavailable, l.path)
	}
	return w, 0, err
}

// noRecord stands for the holder that a missing record may have forgotten.
const noRecord = ""

// holdOff returns how long the place must wait until enough former holders cannot
// believe any more, and which of them cannot already.
func (l *line) holdOff(ctx context.Context, p *place, r record, a admission) (wait time.Duration, over []string, err error) {
	now := p.session.Upkeep().now()
	ghosts := slices.DeleteFunc(r.ghosts(a.line), func(g holding) bool {
		// One behind this place was admitted beside it, and may have come after the line
		// was read: it is not known to be gone.
		e, _ := parseEntry(g.Node)
		return e.compare(a.line[a.me]) > 0
	})
	unknown := len(r.Holders) == 0 && (r.Token == 0 || r.Unclaimed)
	if unknown {
		// It may have been wiped under holders, which is no licence. They were gone when
		// this directory was there.
		t := l.o.Timing.resolve(l.store.Caps(), p.session.Timeout())
		ghosts = []holding{{Node: noRecord, BeliefMs: t.belief().Milliseconds() + 1, Exact: t.exact && a.fresh}}
	}
	since := l.gone.since(a.dir, ghosts, a.seen)
	var left []entry
	for i, g := range ghosts {
		d, err := ghostLeft(ctx, l.store, l.o.Timing, g, since[i], now)
		if err != nil {
			return 0, nil, err
		}
		if d <= 0 {
			over = append(over, g.Node)
			continue
		}
		e, _ := parseEntry(g.Node)
		left = append(left, e)
		if wait == 0 || d < wait {
			wait = d
		}
	}
	if len(left) == 0 || !unknown && !l.d.excluded(a.line, a.me, a.slots, left) {
		wait = 0
	}
	return wait, over, nil
}

// absences is when the absence of each ghost was first seen: by all attempts on one line,
// so that who only tries is not too early for ever. It is safe for concurrent use. It has
// the ghosts of the latest look.
type absences struct {
	mu   sync.Mutex
	dir  int64 // incarnation of the directory: names may come again in another
	seen map[string]stamp
}

// since notes that the ghosts were absent at now, and returns since when they are known
// to be. A place that is gone does not come back.
func (a *absences) since(dir int64, ghosts []holding, now stamp) []stamp {
	a.mu.Lock()
	defer a.mu.Unlock()
	if dir != a.dir {
		a.dir, a.seen = dir, nil
	}
	since, seen := make([]stamp, len(ghosts)), make(map[string]stamp, len(ghosts))
	for i, g := range ghosts {
		since[i] = now
		if earlier, noted := a.seen[g.Node]; noted && earlier.mono < now.mono {
			since[i] = earlier
		}
		seen[g.Node] = since[i]
	}
	a.seen = seen
	return since
}

// ghostLeft returns for how long from now a former holder may still believe.
//
// Its znode's removal was committed before its absence was seen, and each of its proofs
// was committed, hence sent, before that removal. So its belief ends at most BeliefMs of
// true time after the absence was seen, whenever and why ever the znode went. Where
// expiry is exact, it has ended if the session has expired.
func ghostLeft(ctx context.Context, s Store, t Timing, g holding, seenGone, now stamp) (time.Duration, error) {
	wait := t.HoldOff.d
	switch {
	case t.HoldOff.kind == holdOffNone:
		return 0, nil
	case t.HoldOff.kind == holdOffAuto:
		if g.Exact && s.Caps().SessionProbe {
			if g.Node == noRecord {
				return 0, nil
			}
			open, err := s.SessionOpen(ctx, g.Session)
			if err != nil || !open {
				return 0, err
			}
		}
		wait = time.Duration(float64(g.belief())*(1+t.Drift)) + time.Millisecond
	}
	return wait - time.Duration(now.mono-seenGone.mono), nil
}

// takeOver claims right after the event that the holder ahead may have left, in one
// transaction and without a read. It is applied only if the record's version is one above
// the holder's claim: then the holder has released, and as it was the lowest and this
// place the next, nobody else is before this one.
func (l *line) takeOver(ctx context.Context, p *place, ahead *claimData) (*won, error) {
	w, err := l.claim(ctx, p, record{Token: ahead.Token}, nextVersion(ahead.Version))
	if errors.Is(err, znode.BadVersion) {
		return nil, nil // it is something else: look
	}
	return w, err
}

// claim makes the place a holder, on top of the record r of the given version. A
// znode.BadVersion means that the record is another by now.
func (l *line) claim(ctx context.Context, p *place, r record, version int32) (*won, error) {
	u := p.session.Upkeep()
	timing := l.o.Timing.resolve(l.store.Caps(), p.session.Timeout())
	token := max(r.Token+1, Token(p.czxid))
	r.Token, r.Unclaimed = token, false
	h := newHolding(p.session, l.o.ID, timing)
	h.Node, h.Token = p.name, token
	r.Holders = append(r.Holders[:len(r.Holders):len(r.Holders)], h)
	own := OpCheck(p.path, Always())
	if l.d.handsOver() {
		// The change wakes the next in line once, who then knows how to take over.
		data := placeData{ID: l.o.ID, Data: l.o.Data, Claim: &claimData{token, nextVersion(version)}}
		own = OpSet(p.path, data.encode(), Always())
		p.own.Cancel() // not to be woken by it oneself
	}
	claimed := p.claimed
	p.claimed = true
	sent := u.now()
	_, err := l.store.Multi(ctx, own, OpSet(l.path, r.encode(), IfVersion(version)))
	if refused, ok := errors.AsType[*MultiError](err); ok {
		p.claimed = claimed // an earlier one may have been applied
		if refused.Index == 0 && errors.Is(err, znode.NoNode) {
			return nil, errPlaceGone
		}
		if l.d.handsOver() {
			if err := l.watchOwn(ctx, p); err != nil {
				return nil, err
			}
		}
		return nil, err
	}
	if errors.Is(err, ErrUncertain) && ctx.Err() == nil {
		// The next look finds the claim in the record, or not. What was sent before a
		// Sync was applied before its answer, or never will be.
		if serr := l.store.Sync(ctx, l.path); serr != nil {
			return nil, serr
		}
	}
	if err != nil {
		return nil, err
	}
	p.known = &knownRecord{r, nextVersion(version)}
	return l.prove(ctx, p, token, sent)
}

// prove has a proof for a place whose claim is committed: the claim itself, sent at sent,
// if that is not long ago. The zero stamp says that it is not known when it was sent.
func (l *line) prove(ctx context.Context, p *place, token Token, sent stamp) (*won, error) {
	u, ttl := p.session.Upkeep(), p.session.Timeout()
	timing := l.o.Timing.resolve(l.store.Caps(), ttl)
	if sent == (stamp{}) || u.now().mono-sent.mono > int64(timing.renew) {
		before := u.now()
		proof, verdicts, err := p.session.Renew(ctx, p.held())
		switch {
		case err != nil:
			return nil, err
		case verdicts[0] != nil:
			return nil, errPlaceGone
		}
		sent, ttl = u.sentAt(proof, before), proof.TTL
	}
	p.own.Cancel()
	return &won{place: p, token: token, sent: sent, ttl: ttl}, nil
}

// abandon gives up a place in the background: the caller's ctx may be over. A claim that
// was sent and never became a tenure did no work.
func (l *line) abandon(p *place) {
	p.own.Cancel()
	p.session.Upkeep().ensure(l.o.Log, "removal of "+p.path, func(ctx context.Context) error {
		return l.leave(ctx, p, true)
	}, nil)
}

// leave removes the place. If it is clean and the place has claimed, the same transaction
// takes the claim out of the record. Otherwise the claim stays as a ghost.
func (l *line) leave(ctx context.Context, p *place, clean bool) error {
	err := l.leaveOnce(ctx, p, clean)
	var b backoff
	for errors.Is(err, znode.BadVersion) { // another holder changed the record
		if err := pause(ctx, b.next()); err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		err = l.leaveOnce(ctx, p, clean)
	}
	if err == nil || errors.Is(err, znode.NoNode) {
		p.session.Upkeep().dropMark(p.guid)
		return nil
	}
	return err
}

func (l *line) leaveOnce(ctx context.Context, p *place, clean bool) error {
	if !clean || !p.claimed {
		return l.store.Delete(ctx, p.path, Always())
	}
	if known := p.known; known != nil {
		p.known = nil // whatever comes of it, it is old
		if _, err := l.store.Multi(ctx, OpDelete(p.path, Always()), l.release(p, *known)); !errors.Is(err, znode.NoNode) {
			return err
		}
		// The place is gone, perhaps with the whole directory: what is there now may be
		// the record of another, of the same version.
	}
	r, stat, err := l.readRecord(ctx)
	if errors.Is(err, ErrInvalid) || errors.Is(err, errPlaceGone) {
		return l.store.Delete(ctx, p.path, Always()) // there is no claim to take out
	}
	if err != nil {
		return err
	}
	if _, mine := r.holds(p.name); !mine {
		return l.store.Delete(ctx, p.path, Always())
	}
	release := l.release(p, knownRecord{r, stat.Version})
	_, err = l.store.Multi(ctx, OpDelete(p.path, Always()), release)
	if errors.Is(err, znode.NoNode) {
		_, err = l.store.Set(ctx, l.path, release.Data, release.Cond)
	}
	return err
}

// release takes the place's claim out of the record.
func (l *line) release(p *place, r knownRecord) Op {
	return OpSet(l.path, r.without(p.name).encode(), IfVersion(r.version))
}
