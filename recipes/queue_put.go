package recipes

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tenure-dev/tenure/znode"
)

// receipts are the free receipts of a Queue. A receipt is an ephemeral znode of whoever
// puts, in which each Put leaves its mark together with its item. So Put knows whether what
// it got no answer for was applied, also if the item was taken and acknowledged since. It
// is safe for concurrent use.
type receipts struct {
	mu struct {
		sync.Mutex
		session Session // that they are of
		free    []string
	}
}

// take returns a free receipt of the session, "" if there is none.
func (r *receipts) take(sess Session) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := len(r.mu.free) - 1
	if r.mu.session != sess || last < 0 {
		return ""
	}
	path := r.mu.free[last]
	r.mu.free = r.mu.free[:last]
	return path
}

// give makes a receipt free. There are as many as there were Puts at a time.
func (r *receipts) give(sess Session, path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.session != sess {
		r.mu.session, r.mu.free = sess, nil
	}
	r.mu.free = append(r.mu.free, path)
}

// put is one Put. It belongs to one goroutine.
type put struct {
	q        *Queue
	guid, id string
	marked   bool // the caller gave the id
	path     string
	data     []byte

	session Session // of the receipt
	receipt string  // "" before there is one
	made    bool    // the receipt was there before this Put
	unsure  bool    // an answer was lost: what is there may be ours
}

// do tries until the outcome is known. What is put is no session's: it goes on in the next.
func (p *put) do(ctx context.Context) error {
	err := insist(ctx, nil, func() error { return p.once(ctx) })
	switch {
	case p.unsure:
		p.dropReceipt()
		if !errors.Is(err, ErrUncertain) {
			err = fmt.Errorf("%w: %w", ErrUncertain, err)
		}
	case p.made:
		p.q.receipts.give(p.session, p.receipt)
	}
	if err != nil {
		return fmt.Errorf("put into %s: %w", p.q.path, err)
	}
	return nil
}

// once puts the item unless an earlier try is found to have been applied.
func (p *put) once(ctx context.Context) error {
	q := p.q
	if p.unsure {
		applied, err := p.settle(ctx)
		if err != nil || applied {
			return err
		}
	}
	if sess := q.store.Session(); p.session != sess {
		p.session, p.receipt, p.made = sess, "", false
	}
	if p.receipt == "" {
		p.receipt = q.receipts.take(p.session)
		if p.made = p.receipt != ""; !p.made {
			p.receipt = znode.Join(q.puts, newGUID())
		}
	}
	ops, err := p.ops(ctx)
	if err == nil {
		_, err = q.store.Multi(ctx, ops...)
	}
	return p.judge(ctx, err)
}

// ops is the transaction that puts the item.
func (p *put) ops(ctx context.Context) ([]Op, error) {
	q := p.q
	stat, err := q.room(ctx)
	if err != nil {
		return nil, err
	}
	ops := []Op{OpCreate(p.receipt, []byte(p.guid), CreateSpec{Kind: znode.Ephemeral})}
	if p.made {
		ops[0] = OpSet(p.receipt, []byte(p.guid), Always())
	}
	if p.marked {
		ops = append(ops, OpCreate(q.idPath(p.id), nil, CreateSpec{}))
	}
	if q.o.MaxItems > 0 {
		// Items only leave meanwhile, unless somebody else's Put comes first.
		ops = append(ops, OpSet(q.items, nil, IfVersion(stat.Version)))
	}
	return append(ops, OpCreate(p.path, p.data, CreateSpec{Sequential: true})), nil
}

// room returns the Stat of the items' directory if one more may be put there. That the queue
// is full is said of a state that is not older than the call: a member that lags is asked again.
func (q *Queue) room(ctx context.Context) (znode.Stat, error) {
	limit := q.maxItems()
	for synced := false; ; synced = true {
		_, stat, err := q.store.Get(ctx, q.items)
		switch {
		case err != nil || int(stat.NumChildren) < limit:
			return stat, err
		case synced:
			return stat, fmt.Errorf("%w: %d items of %d", ErrQueueFull, stat.NumChildren, limit)
		}
		if err := q.store.Sync(ctx, q.items); err != nil {
			return stat, err
		}
	}
}

// judge says what is to be made of the outcome of a try.
func (p *put) judge(ctx context.Context, err error) error {
	refused, _ := errors.AsType[*MultiError](err)
	switch {
	case err == nil:
		p.made, p.unsure = true, false
		return nil
	case errors.Is(err, ErrUncertain):
		p.unsure = true
		return err
	case refused != nil && p.made && refused.Index == 0 && errors.Is(err, znode.NoNode):
		p.receipt, p.made = "", false // of a session that is over, or removed by somebody
		return errAgain
	case errors.Is(err, znode.NoNode):
		return again(p.q.makeDirs(ctx))
	case refused != nil && p.marked && errors.Is(err, znode.NodeExists):
		return nil // in the queue already
	case refused != nil && errors.Is(err, znode.BadVersion):
		return errConflict
	}
	return err
}

// errPutForgotten: the session in which a Put may have been applied is over, and its
// receipt with it.
var errPutForgotten = errors.New("its session is over, and the item is not in the queue or not any more")

// settle finds out whether a try whose answer was lost was applied. What was sent before a
// Sync was applied before its answer, or never will be.
func (p *put) settle(ctx context.Context) (applied bool, err error) {
	s := p.q.store
	if s.Session() != p.session || p.session.Err() != nil {
		there, err := p.q.has(ctx, p.guid)
		if err == nil && !there {
			err = errPutForgotten
		}
		p.unsure = !there
		return there, err
	}
	if err := s.Sync(ctx, p.receipt); err != nil && !errors.Is(err, znode.NoNode) {
		return false, err
	}
	data, _, err := s.Get(ctx, p.receipt)
	if errors.Is(err, znode.NoNode) {
		// It was not made, unless it went with the session.
		if _, _, err := p.session.Renew(ctx); err != nil {
			return false, err
		}
		p.receipt, p.made, p.unsure = "", false, false
		return false, nil
	}
	if err != nil {
		return false, err
	}
	p.made, p.unsure = true, false
	return string(data) == p.guid, nil
}

// dropReceipt removes a receipt that may be needed no more, as long as the session lives.
func (p *put) dropReceipt() {
	s, path := p.q.store, p.receipt
	p.session.Upkeep().ensure(p.q.o.Log, "removal of "+path, func(ctx context.Context) error {
		if err := s.Delete(ctx, path, Always()); err != nil && !errors.Is(err, znode.NoNode) {
			return err
		}
		return nil
	}, nil)
}

// has reports whether an item with the mark is in the queue.
func (q *Queue) has(ctx context.Context, guid string) (bool, error) {
	if err := q.store.Sync(ctx, q.items); err != nil {
		return false, err
	}
	names, _, err := q.store.Children(ctx, q.items)
	for _, i := range parseItems(names) {
		if i.guid == guid {
			return true, nil
		}
	}
	return false, err
}
