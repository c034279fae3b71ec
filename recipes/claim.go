package recipes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// admitted claims for the place at index me, or says how long it must hold off.
func (l *line) admitted(ctx context.Context, p *place, line []entry, me int, seen stamp, seenGone map[string]stamp) (*Tenure, *wake, error) {
	r, version, err := l.readRecord(ctx)
	if err != nil {
		return nil, nil, err
	}
	if h, mine := r.holds(p.name); mine {
		// An earlier claim was applied although its answer was lost.
		p.known = &knownRecord{r, version}
		t, err := l.won(ctx, p, h.Token, stamp{})
		return t, nil, err
	}
	slots := l.slots
	if r.Slots > 0 {
		slots = r.Slots
	}
	wait, over, err := l.holdOff(ctx, p, r, line, seen, seenGone, func(left []entry) bool {
		return l.d.excluded(line, me, slots, left)
	})
	if err != nil {
		return nil, nil, err
	}
	if wait > 0 {
		l.o.Log.Debug("holding off", "path", p.path, "for", wait)
		return nil, &wake{until: wait}, nil
	}
	t, err := l.claim(ctx, p, r.without(over...), version)
	if errors.Is(err, znode.BadVersion) {
		err = fmt.Errorf("%w: the record of %s changed", ErrUnavailable, l.path)
	}
	return t, nil, err
}

// noRecord stands for the holder that a missing record may have forgotten.
const noRecord = ""

// holdOff returns how long the place must wait until enough former holders cannot
// believe any more, and which of them cannot already.
func (l *line) holdOff(ctx context.Context, p *place, r record, line []entry, seen stamp, seenGone map[string]stamp, excluded func([]entry) bool) (wait time.Duration, over []string, err error) {
	ghosts := r.ghosts(line)
	if r.Token == 0 && len(r.Holders) == 0 {
		// It may have been wiped under holders, which is no licence.
		t := l.o.Timing.resolve(l.store.Caps(), p.session.Timeout())
		ghosts = []holding{{Node: noRecord, BeliefMs: t.belief().Milliseconds(), Exact: t.exact}}
		excluded = func([]entry) bool { return true }
	}
	var left []entry
	for _, g := range ghosts {
		if _, noted := seenGone[g.Node]; !noted {
			seenGone[g.Node] = seen
		}
		d, err := l.ghostLeft(ctx, p, g, seenGone)
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
	if len(left) == 0 || !excluded(left) {
		wait = 0
	}
	return wait, over, nil
}

// ghostLeft returns for how long from now a former holder may still believe.
//
// Its place's removal was committed before its absence was seen, and each of its proofs
// was committed, hence sent, before that removal. So its belief ends at most BeliefMs of
// true time after the absence was seen, whenever and why ever the place went. Where
// expiry is exact, it has ended if the session has expired.
func (l *line) ghostLeft(ctx context.Context, p *place, g holding, seenGone map[string]stamp) (time.Duration, error) {
	rule := l.o.Timing.HoldOff
	wait := rule.d
	switch {
	case rule.kind == holdOffNone:
		return 0, nil
	case rule.kind == holdOffAuto:
		if g.Exact && l.store.Caps().SessionProbe {
			if g.Node == noRecord {
				return 0, nil
			}
			open, err := l.store.SessionOpen(ctx, g.Session)
			if err != nil {
				return 0, err
			}
			if !open {
				return 0, nil
			}
		}
		wait = time.Duration(float64(g.belief())*(1+l.o.Timing.Drift)) + time.Millisecond
	}
	now := p.session.Upkeep().now()
	return wait - time.Duration(now.mono-seenGone[g.Node].mono), nil
}

// takeOver claims right after the event that the holder ahead may have left, in one
// transaction and without a read. It is applied only if the record's version is one above
// the holder's claim: then the holder has released, and as it was the lowest and this
// place the next, nobody else is before this one.
func (l *line) takeOver(ctx context.Context, p *place, ahead *claimData) (*Tenure, error) {
	t, err := l.claim(ctx, p, record{Token: ahead.Token}, ahead.Version+1)
	if errors.Is(err, znode.BadVersion) {
		return nil, nil // it is something else: look
	}
	return t, err
}

// claim makes the place a holder, on top of the record r of the given version. A
// znode.BadVersion means that the record is another by now.
func (l *line) claim(ctx context.Context, p *place, r record, version int32) (*Tenure, error) {
	u := p.session.Upkeep()
	timing := l.o.Timing.resolve(l.store.Caps(), p.session.Timeout())
	token := max(r.Token+1, Token(p.czxid))
	r.Token = token
	r.Holders = append(r.Holders[:len(r.Holders):len(r.Holders)], holding{
		Node: p.name, ID: l.o.ID, Token: token, Session: p.session.ID(),
		BeliefMs: timing.belief().Milliseconds() + 1, Exact: timing.exact,
	})
	own := OpCheck(p.path, Always())
	if l.d.handsOver() {
		// The change wakes the next in line once, who then knows how to take over.
		data := placeData{ID: l.o.ID, Data: l.o.Data, Claim: &claimData{token, version + 1}}
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
	p.known = &knownRecord{r, version + 1}
	return l.won(ctx, p, token, sent)
}

// won makes the tenure of a place whose claim is committed. sent is when the claim was
// sent, the zero stamp if that is not known.
func (l *line) won(ctx context.Context, p *place, token Token, sent stamp) (*Tenure, error) {
	u, ttl := p.session.Upkeep(), p.session.Timeout()
	held := Held{Path: p.path, Czxid: p.czxid}
	timing := l.o.Timing.resolve(l.store.Caps(), ttl)
	if sent == (stamp{}) || u.now().mono-sent.mono > int64(timing.renew) {
		before := u.now()
		proof, verdicts, err := p.session.Renew(ctx, held)
		switch {
		case err != nil:
			return nil, err
		case verdicts[0] != nil:
			return nil, errPlaceGone
		}
		sent, ttl = u.sentAt(proof, before), proof.TTL
	}
	p.own.Cancel()
	return startTenure(ctx, tenureSpec{
		name: l.path, options: l.o, token: token, store: l.store, session: p.session,
		held: []Held{held}, guard: []Op{OpCheck(p.path, Always())},
		leave: func(ctx context.Context, clean bool) error { return l.leave(ctx, p, clean) },
	}, sent, ttl)
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
	known := p.known
	p.known = nil // whatever comes of it, it is old
	if known == nil {
		r, version, err := l.readRecord(ctx)
		if err != nil {
			return err
		}
		known = &knownRecord{r, version}
	}
	if _, mine := known.holds(p.name); !mine {
		return l.store.Delete(ctx, p.path, Always())
	}
	release := OpSet(l.path, known.without(p.name).encode(), IfVersion(known.version))
	_, err := l.store.Multi(ctx, OpDelete(p.path, Always()), release)
	if refused, ok := errors.AsType[*MultiError](err); ok && refused.Index == 0 && errors.Is(err, znode.NoNode) {
		_, err = l.store.Set(ctx, l.path, release.Data, release.Cond)
	}
	return err
}
