package recipes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// seenItems notes what is known of items without a claim.
type seenItems struct {
	mu struct {
		sync.Mutex
		// Both by name. Invariant: no more than there are items.
		gone map[string]ghostSeen
		due  map[string]time.Time // not to be looked at before
	}
}

// ghostSeen is since when the claim of a former holder is known to be gone.
type ghostSeen struct {
	claim string
	at    stamp
}

// since returns when the claim was seen to be gone, if it was.
func (s *seenItems) since(name, claim string) (stamp, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.mu.gone[name]
	return g.at, g.claim == claim
}

// note notes that the claim was seen to be gone after it was known to have been made.
func (s *seenItems) note(name, claim string, at stamp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.gone[name] = ghostSeen{claim, at}
}

// postpone notes when an item is due.
func (s *seenItems) postpone(name string, due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.due[name] = due
}

// dueIn returns how long it is until the item may be due, by the wall clock.
func (s *seenItems) dueIn(name string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	due, noted := s.mu.due[name]
	if !noted {
		return 0
	}
	return time.Until(due)
}

// keep forgets all but what is unclaimed still.
func (s *seenItems) keep(unclaimed map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := func(name string) bool { return !unclaimed[name] }
	maps.DeleteFunc(s.mu.gone, func(name string, _ ghostSeen) bool { return gone(name) })
	maps.DeleteFunc(s.mu.due, func(name string, _ time.Time) bool { return gone(name) })
}

// Take waits for an item and claims it. It fails when ctx ends, with the session that was
// current when it began, or for reasons that waiting does not cure.
func (q *Queue) Take(ctx context.Context) (*Item, error) {
	sess, err := connected(ctx, q.store)
	if err != nil {
		return nil, err
	}
	var b backoff
	for {
		item, err := q.takeOrWait(ctx, sess)
		switch {
		case item != nil || err != nil && !transient(err) && !errors.Is(err, znode.NoNode):
			return item, err
		case err == nil:
			b = backoff{}
			continue
		case errors.Is(err, znode.NoNode):
			if err := q.makeDirs(ctx); err != nil {
				return nil, err
			}
		}
		if err := pauseIn(ctx, sess, b.next()); err != nil {
			return nil, err
		}
	}
}

// takeOrWait looks once: it takes an item, or waits for a change and returns neither.
func (q *Queue) takeOrWait(ctx context.Context, sess Session) (*Item, error) {
	names, _, changed, err := q.store.ChildrenW(ctx, q.items)
	if err != nil {
		return nil, err
	}
	defer changed.Cancel()
	claimed, _, freed, err := q.store.ChildrenW(ctx, q.claims)
	if err != nil {
		return nil, err
	}
	defer freed.Cancel()
	item, soonest, err := q.take(ctx, sess, parseItems(names), claimed)
	if item != nil || err != nil {
		return item, err
	}
	var due <-chan time.Time
	if soonest > 0 {
		timer := time.NewTimer(soonest)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-changed.C:
	case <-freed.C:
	case <-due:
	case <-sess.Done():
		return nil, sess.Err()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return nil, nil
}

// take claims the first item that may be given out now. If there is none it returns how
// soon there may be one; 0 is only after a change.
func (q *Queue) take(ctx context.Context, sess Session, items []itemName, claimed []string) (_ *Item, soonest time.Duration, err error) {
	taken := make(map[string]bool, len(claimed))
	for _, name := range claimed {
		taken[name] = true
	}
	free := make(map[string]bool, len(items))
	for _, name := range items {
		free[name.name] = !taken[name.name]
	}
	q.seen.keep(free)
	for _, name := range items {
		if taken[name.name] {
			continue
		}
		wait := q.seen.dueIn(name.name)
		if wait <= 0 {
			var item *Item
			item, wait, err = q.claim(ctx, sess, name)
			if item != nil || err != nil {
				return item, 0, err
			}
		}
		if wait > 0 && (soonest == 0 || wait < soonest) {
			soonest = wait
		}
	}
	return nil, soonest, nil
}

// claim tries to take one item. Neither item nor error: somebody was faster, or it may be
// given out only after wait.
func (q *Queue) claim(ctx context.Context, sess Session, name itemName) (_ *Item, wait time.Duration, err error) {
	path := znode.Join(q.items, name.name)
	data, stat, err := q.store.Get(ctx, path)
	if errors.Is(err, znode.NoNode) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	head, body, err := parseItem(path, data)
	if err != nil {
		q.o.Log.Warn("skipped", "recipe", "queue", "path", path, "err", err)
		return nil, 0, nil
	}
	wait, claimed, err := q.mustWait(ctx, sess, name, head)
	if wait > 0 || claimed || err != nil {
		return nil, wait, err
	}
	if q.o.Redeliver > 0 && head.Attempt >= q.o.Redeliver {
		return nil, 0, q.bury(ctx, name, head, body, stat)
	}
	u := sess.Upkeep()
	timing := q.o.Timing.resolve(q.store.Caps(), sess.Timeout())
	holder := newHolding(sess, q.o.ID, timing)
	holder.Node = newGUID() // knows this claim from others
	head.Attempt, head.NotBeforeMs, head.Holder = head.Attempt+1, 0, &holder
	i := &Item{ID: head.ID, Body: body, Attempt: head.Attempt, q: q, name: name, head: head}
	sent := u.now()
	results, err := q.store.Multi(ctx,
		OpSet(path, head.encode(body), IfVersion(stat.Version)),
		OpCreate(i.claimPath(), []byte(q.o.ID), CreateSpec{Kind: znode.Ephemeral}))
	_, judged := errors.AsType[*MultiError](err)
	switch {
	case judged && (errors.Is(err, znode.BadVersion) || errors.Is(err, znode.NodeExists) || errors.Is(err, znode.NoNode)):
		return nil, 0, nil
	case errors.Is(err, ErrUncertain):
		return q.settle(ctx, sess, i)
	case err != nil:
		return nil, 0, err
	}
	i.stat = results[0].Stat
	item, err := q.start(ctx, sess, i, sent)
	return item, 0, err
}

// mustWait returns for how long an item may not be given out yet, and whether somebody
// holds it.
func (q *Queue) mustWait(ctx context.Context, sess Session, name itemName, head itemHead) (wait time.Duration, claimed bool, err error) {
	if due := time.UnixMilli(head.NotBeforeMs); head.NotBeforeMs > 0 && time.Until(due) > 0 {
		// It stays so while nobody claims it, so it need not be read for each item that comes.
		q.seen.postpone(name.name, due)
		return time.Until(due), false, nil
	}
	if head.Holder == nil {
		return 0, false, nil
	}
	u := sess.Upkeep()
	at, noted := q.seen.since(name.name, head.Holder.Node)
	if !noted {
		// The list of claims was read before the item: the holder may have come in between.
		_, _, err := q.store.Get(ctx, znode.Join(q.claims, name.name))
		if err == nil || !errors.Is(err, znode.NoNode) {
			return 0, err == nil, err
		}
		at = u.now()
		q.seen.note(name.name, head.Holder.Node, at)
	}
	wait, err = ghostLeft(ctx, q.store, q.o.Timing, *head.Holder, at, u.now())
	return wait, false, err
}

// settle finds out whether the claim whose answer was lost was applied. If it cannot, the
// claim is removed in the background, as long as the session lives.
func (q *Queue) settle(ctx context.Context, sess Session, i *Item) (*Item, time.Duration, error) {
	find := func(ctx context.Context) (found bool, err error) {
		if err := q.store.Sync(ctx, q.items); err != nil {
			return false, err
		}
		data, stat, err := q.store.Get(ctx, i.path())
		if errors.Is(err, znode.NoNode) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		head, _, err := parseItem(i.path(), data)
		i.stat = stat
		return err == nil && head.Holder != nil && head.Holder.Node == i.head.Holder.Node, err
	}
	var b backoff
	for {
		found, err := find(ctx)
		switch {
		case err == nil && !found: // not to be passed over: look again
			return nil, 0, fmt.Errorf("claim of %s: %w", i.path(), ErrUnavailable)
		case err == nil:
			item, err := q.start(ctx, sess, i, stamp{})
			return item, 0, err
		case !transient(err) || ctx.Err() != nil:
			sess.Upkeep().ensure(q.o.Log, "claim of "+i.path(), func(ctx context.Context) error {
				found, err := find(ctx)
				if err != nil || !found {
					return err
				}
				i.Tenure = &Tenure{tenureSpec: q.spec(sess, i)}
				return i.leave(ctx, true)
			}, nil)
			return nil, 0, err
		}
		if err := pauseIn(ctx, sess, b.next()); err != nil && ctx.Err() == nil {
			return nil, 0, err
		}
	}
}

// spec is the tenure of a claimed item. The claim and the item's change are one
// transaction, so they have one zxid: it is the token.
func (q *Queue) spec(sess Session, i *Item) tenureSpec {
	return tenureSpec{
		name: i.path(), options: q.o.Options, token: Token(i.stat.Mzxid), store: q.store, session: sess,
		held: []Held{{Path: i.claimPath(), Czxid: i.stat.Mzxid}},
		// A claim of the same name may be another's; the item's version tells.
		guard: []Op{OpCheck(i.claimPath(), Always()), OpCheck(i.path(), IfVersion(i.stat.Version))},
		leave: i.leave,
	}
}

// start begins the tenure of a claimed item. sent is when the claim was sent, the zero
// stamp if that is not known.
func (q *Queue) start(ctx context.Context, sess Session, i *Item, sent stamp) (*Item, error) {
	spec, ttl, u := q.spec(sess, i), sess.Timeout(), sess.Upkeep()
	timing := q.o.Timing.resolve(q.store.Caps(), ttl)
	if sent == (stamp{}) || u.now().mono-sent.mono > int64(timing.renew) {
		before := u.now()
		proof, verdicts, err := sess.Renew(ctx, spec.held...)
		if err != nil {
			i.Tenure = &Tenure{tenureSpec: spec}
			u.ensure(q.o.Log, "claim of "+i.path(), func(ctx context.Context) error { return i.leave(ctx, true) }, nil)
			return nil, err
		}
		if verdicts[0] != nil {
			return nil, nil
		}
		sent, ttl = u.sentAt(proof, before), proof.TTL
	}
	t, err := startTenure(ctx, spec, sent, ttl)
	if err != nil {
		return nil, err
	}
	i.Tenure = t
	return i, nil
}

// bury moves an item that was given out too often.
func (q *Queue) bury(ctx context.Context, name itemName, head itemHead, body []byte, stat znode.Stat) error {
	ops := []Op{
		OpDelete(znode.Join(q.items, name.name), IfVersion(stat.Version)),
		OpCreate(znode.Join(q.dead, name.name), head.encode(body), CreateSpec{}),
	}
	if head.Marked {
		ops = append(ops, OpDelete(q.idPath(head.ID), Always()))
	}
	_, err := q.store.Multi(ctx, ops...)
	refused, judged := errors.AsType[*MultiError](err)
	switch {
	case judged && refused.Index == 1 && errors.Is(err, znode.NoNode):
		return err // the directory was reaped: Take makes it again
	case judged && refused.Index == 2: // somebody removed the mark
		_, err = q.store.Multi(ctx, ops[:2]...)
		_, judged = errors.AsType[*MultiError](err)
	}
	if judged {
		return nil // somebody was faster
	}
	return err
}
