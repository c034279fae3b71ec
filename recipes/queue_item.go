package recipes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// Item is one item of a Queue with its claim, a Tenure. End it with Ack or Nack, or
// Release, which is Nack without delay. It is safe for concurrent use.
type Item struct {
	*Tenure
	ID      string
	Body    []byte
	Attempt int // how often it was given out, this time included

	q    *Queue
	name itemName
	head itemHead // as it was stored with this claim
	stat znode.Stat
}

// Ack deletes the item in one transaction with ops: they are applied exactly if the item
// was still claimed by this consumer, and once. If the answer is lost Ack finds out; where
// it cannot, it returns ErrUncertain. If ops are refused, with a MultiError whose Index is
// counted in ops, the item is still claimed.
func (i *Item) Ack(ctx context.Context, ops ...Op) error {
	if err := i.Check(); err != nil {
		return err
	}
	own := []Op{OpDelete(i.claimPath(), Always()), OpDelete(i.path(), IfVersion(i.stat.Version))}
	if i.head.Marked {
		own = append(own, OpDelete(i.q.idPath(i.ID), Always()))
	}
	var b backoff
	for unsure := false; ; {
		_, err := i.q.store.Multi(ctx, slices.Concat(own, ops)...)
		refused, judged := errors.AsType[*MultiError](err)
		switch {
		case err == nil:
			i.finish()
			return nil
		case judged && refused.Index >= len(own):
			return &MultiError{Index: refused.Index - len(own), Op: refused.Op, Err: refused.Err}
		case judged && refused.Index == 2:
			own = own[:2] // somebody removed the mark of the id
			continue
		case judged && unsure:
			if err = i.acked(ctx); err == nil {
				return nil
			}
		case judged:
			i.lost()
			return i.overErr()
		}
		unsure = unsure || errors.Is(err, ErrUncertain)
		if ctx.Err() != nil || !transient(err) {
			return i.unsureAck(unsure, err)
		}
		if werr := pauseIn(ctx, i.session, b.next()); werr != nil {
			return i.unsureAck(unsure, werr)
		}
	}
}

// unsureAck is err, with ErrUncertain if an Ack may have been applied.
func (i *Item) unsureAck(unsure bool, err error) error {
	if unsure && !errors.Is(err, ErrUncertain) && !errors.Is(err, ErrLost) {
		err = fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return fmt.Errorf("ack of %s: %w", i.path(), err)
}

// acked decides about an Ack without an answer when the claim is gone: nil if it was
// applied. Nobody else can have claimed the item, and deleted it, while this tenure is held.
func (i *Item) acked(ctx context.Context) error {
	err := i.q.store.Sync(ctx, i.path())
	if err == nil || errors.Is(err, znode.NoNode) {
		_, _, err = i.q.store.Get(ctx, i.path())
	}
	switch {
	case errors.Is(err, znode.NoNode) && i.Check() == nil:
		i.finish()
		return nil
	case errors.Is(err, znode.NoNode):
		return fmt.Errorf("%w: %w", ErrUncertain, i.overErr())
	case err != nil:
		return err
	}
	i.lost() // the item is there, so the Ack was not applied, and cannot be any more
	return i.overErr()
}

// lost ends a tenure whose claim was found not to be what it was, and removes what may be
// left of it.
func (i *Item) lost() {
	i.end(ErrGone)
	i.session.Upkeep().ensure(i.q.o.Log, "claim of "+i.path(), i.deleteOwnClaim, nil)
}

// Nack gives the item back, to be given out again after delay. Its id and place stay.
func (i *Item) Nack(ctx context.Context, delay time.Duration) error {
	if delay > 0 {
		i.mu.Lock()
		i.head.NotBeforeMs = time.Now().Add(delay).UnixMilli()
		i.mu.Unlock()
	}
	return i.Release(ctx)
}

func (i *Item) path() string      { return znode.Join(i.q.items, i.name.name) }
func (i *Item) claimPath() string { return znode.Join(i.q.claims, i.name.name) }

// leave gives the claim up. If it is clean, the next consumer need not hold off.
func (i *Item) leave(ctx context.Context, clean bool) error {
	gone := OpDelete(i.claimPath(), Always())
	i.mu.Lock()
	head := i.head
	i.mu.Unlock()
	head.Holder = nil
	var err error
	if clean {
		_, err = i.q.store.Multi(ctx, gone, OpSet(i.path(), head.encode(i.Body), IfVersion(i.stat.Version)))
	}
	if _, judged := errors.AsType[*MultiError](err); judged || !clean {
		err = i.deleteOwnClaim(ctx)
	}
	return err
}

// deleteOwnClaim deletes the claim if it is still this one.
func (i *Item) deleteOwnClaim(ctx context.Context) error {
	_, stat, err := i.q.store.Get(ctx, i.claimPath())
	if err == nil && stat.Czxid == i.held[0].Czxid {
		err = i.q.store.Delete(ctx, i.claimPath(), IfVersion(stat.Version))
	}
	if errors.Is(err, znode.NoNode) || errors.Is(err, znode.BadVersion) {
		return nil
	}
	return err
}

// itemHead is the first line of an item's data, JSON; the body follows.
type itemHead struct {
	ID          string `json:"id"`
	Marked      bool   `json:"marked,omitempty"` // there is a znode for the id
	Attempt     int    `json:"attempt,omitempty"`
	NotBeforeMs int64  `json:"notBeforeMs,omitempty"`
	// Holder is the last claim unless it was given up cleanly.
	Holder *holding `json:"holder,omitempty"`
}

func (h itemHead) encode(body []byte) []byte {
	head, err := json.Marshal(h)
	if err != nil {
		panic(fmt.Sprintf("encode %+v: %v", h, err)) // plain strings and numbers
	}
	return append(append(head, '\n'), body...)
}

func parseItem(path string, data []byte) (h itemHead, body []byte, err error) {
	head, body, ok := bytes.Cut(data, []byte{'\n'})
	if ok {
		err = json.Unmarshal(head, &h)
	}
	if !ok || err != nil || h.ID == "" {
		return h, nil, fmt.Errorf("%w: the data of %s are not an item of a queue", ErrInvalid, path)
	}
	return h, body, nil
}

// itemName is what the name of an item tells: p<priority>-<guid>-<sequence>.
type itemName struct {
	name     string
	priority uint16
	guid     string
	seq      int32
}

func itemPrefix(priority uint16, guid string) string { return fmt.Sprintf("p%05d-%s-", priority, guid) }

// parseItems returns the items among names in the order in which they are given out.
func parseItems(names []string) []itemName {
	items := make([]itemName, 0, len(names))
	for _, name := range names {
		head, rest, _ := strings.Cut(name, "-")
		guid, number, ok := strings.Cut(rest, "-")
		if !ok || len(head) != 6 || head[0] != 'p' || len(guid) != guidLength {
			continue
		}
		priority, perr := strconv.ParseUint(head[1:], 10, 16)
		seq, serr := strconv.ParseInt(number, 10, 32)
		if perr == nil && serr == nil {
			items = append(items, itemName{name, uint16(priority), guid, int32(seq)})
		}
	}
	slices.SortFunc(items, func(a, b itemName) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), int(a.seq-b.seq))
	})
	return items
}
