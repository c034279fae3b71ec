package recipes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// QueueOptions configures a Queue. The zero value of a field means its default.
type QueueOptions struct {
	Options
	// MaxItems bounds the items, exactly: a Put beyond it is ErrQueueFull. It costs
	// producers to take turns. Default 10 000, approximately, which costs nothing; the
	// list of items must fit an answer of the backend.
	MaxItems int
	// Redeliver is how often an item is given out before it goes to the directory dead
	// instead; default without bound.
	Redeliver int
}

const queueItemsDefault = 10000

// Queue is a queue whose consumers hold what they work on: an item that is not
// acknowledged by a consumer that dies is given out again. So effects outside the store
// happen at least once, effects inside it, in Ack's transaction, exactly once. It is safe
// for concurrent use and has no goroutine of its own.
//
// In the directory are items/ (persistent, in order), claims/ (ephemeral, one per item
// that somebody works on), ids/ (what Put was told with ID), puts/ (ephemeral, one per Put
// at a time, kept for the next) and dead/.
type Queue struct {
	store                          Store
	path                           string
	o                              QueueOptions
	items, claims, ids, dead, puts string
	seen                           seenItems
	receipts                       receipts
}

// NewQueue makes a queue of the directory path, which is created when it is needed.
func NewQueue(s Store, path string, o QueueOptions) (*Queue, error) {
	if err := validateDir(path); err != nil {
		return nil, err
	}
	options, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	o.Options = options
	if o.MaxItems < 0 || o.Redeliver < 0 {
		return nil, fmt.Errorf("%w: QueueOptions.MaxItems is %d, Redeliver %d: neither may be negative", ErrInvalid, o.MaxItems, o.Redeliver)
	}
	q := &Queue{store: s, path: path, o: o}
	q.items, q.claims = znode.Join(path, "items"), znode.Join(path, "claims")
	q.ids, q.dead, q.puts = znode.Join(path, "ids"), znode.Join(path, "dead"), znode.Join(path, "puts")
	q.seen.mu.gone, q.seen.mu.due = map[string]ghostSeen{}, map[string]time.Time{}
	return q, nil
}

// PutOption modifies one Put.
type PutOption func(*putOptions)

type putOptions struct {
	priority  uint16
	notBefore time.Time
	id        string
}

// Priority orders items: lower goes first, default 100, equals in the order of Put.
func Priority(n uint16) PutOption { return func(o *putOptions) { o.priority = n } }

// NotBefore keeps an item from being given out before t, by the consumers' wall clocks.
func NotBefore(t time.Time) PutOption { return func(o *putOptions) { o.notBefore = t } }

// ID makes Put do nothing if an item with this id is in the queue.
func ID(idempotency string) PutOption { return func(o *putOptions) { o.id = idempotency } }

// Put adds an item, once, also where answers are lost, and returns its id: ID, or one of
// its own. It goes on in the next session if one ends. ErrUncertain is left where ctx or
// the session ended before the outcome was seen. Keep the body small: giving an item out
// rewrites it.
func (q *Queue) Put(ctx context.Context, body []byte, options ...PutOption) (string, error) {
	o := putOptions{priority: 100}
	for _, option := range options {
		option(&o)
	}
	guid := newGUID()
	if o.id == "" {
		o.id = guid
	}
	head := itemHead{ID: o.id, Marked: o.id != guid}
	if !o.notBefore.IsZero() {
		head.NotBeforeMs = o.notBefore.UnixMilli()
	}
	p := put{q: q, guid: guid, id: o.id, marked: head.Marked,
		path: znode.Join(q.items, itemPrefix(o.priority, guid)), data: head.encode(body)}
	if err := p.do(ctx); err != nil {
		return "", err
	}
	return o.id, nil
}

func (q *Queue) maxItems() int {
	if q.o.MaxItems > 0 {
		return q.o.MaxItems
	}
	return queueItemsDefault
}

// idPath is the znode that marks an id as taken. Ids may be any text.
func (q *Queue) idPath(id string) string {
	sum := sha256.Sum256([]byte(id))
	return znode.Join(q.ids, hex.EncodeToString(sum[:16]))
}

func (q *Queue) makeDirs(ctx context.Context) error {
	kind := znode.Persistent
	if q.o.Reap {
		kind = znode.Container
	}
	for _, dir := range []string{q.items, q.claims, q.ids, q.dead, q.puts} {
		if err := ensureDir(ctx, q.store, dir, kind); err != nil {
			return err
		}
	}
	return nil
}

// Items yields what Take returns until ctx ends (silently) or Take fails. It goes on in the
// next session if one expires.
func (q *Queue) Items(ctx context.Context) iter.Seq2[*Item, error] {
	return func(yield func(*Item, error) bool) {
		for {
			item, err := q.Take(ctx)
			if ctx.Err() != nil {
				if item != nil {
					_ = item.Release(context.WithoutCancel(ctx)) // it goes on by itself
				}
				return
			}
			if errors.Is(err, ErrSessionExpired) {
				continue // Take waits for the next one
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}
