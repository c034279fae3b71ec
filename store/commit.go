package store

import (
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// Prepare does the part of Commit that readers need not be kept out for. Nothing may be
// applied behind it. Its error is Commit's.
func (b *Batch) Prepare() {
	if b.err == nil {
		b.err = b.s.health.err()
	}
	if b.err != nil {
		return
	}
	b.pebble = b.s.db.NewBatch()
	if err := b.write(); err != nil {
		b.err = fmt.Errorf("store: batch of entry %d: %w", b.meta.applied, err)
	}
}

// Commit writes the batch and makes it visible. An error is fatal to the process:
// the store must be closed, and opened again it is where it was at the last Flush or
// later.
func (b *Batch) Commit() error {
	if b.pebble == nil {
		b.Prepare()
	}
	if b.err != nil {
		return b.err
	}
	defer func() { b.pebble = nil }()
	if err := b.s.db.Apply(b.pebble, pebble.NoSync); err != nil {
		return fmt.Errorf("store: commit entry %d: %w", b.meta.applied, err)
	}
	if err := b.pebble.Close(); err != nil {
		return fmt.Errorf("store: commit entry %d: %w", b.meta.applied, err)
	}
	b.publish()
	return nil
}

// write fills the Pebble batch and brings digest and counts up to date. What the
// batch changed several times is written once.
func (b *Batch) write() error {
	for i := range b.nodes.list {
		d := &b.nodes.list[i]
		if err := b.writeNode(d); err != nil {
			return err
		}
		if err := b.writeChildren(d); err != nil {
			return err
		}
		if err := b.writeReap(d); err != nil {
			return err
		}
	}
	if err := b.writeSessions(); err != nil {
		return err
	}
	if err := b.writeWindows(); err != nil {
		return err
	}
	if err := b.writeHistory(); err != nil {
		return err
	}
	b.buf = appendMeta(b.buf[:0], &b.meta)
	return b.pebble.Set(metaKey, b.buf, nil)
}

// writeNode writes the records of a znode: its own, its data's and its ephemeral's.
func (b *Batch) writeNode(d *dirty) error {
	if d.base == d.node {
		return nil
	}
	if err := b.writeData(d); err != nil {
		return err
	}
	if err := b.writeEphemeral(d); err != nil {
		return err
	}
	c := &b.meta.counts
	b.buf = appendPathKey(b.buf[:0], tableNode, d.path)
	n := len(b.buf)
	if d.base != nil {
		c.Znodes--
		c.DataBytes -= int64(len(d.base.Data))
		b.buf = appendNode(b.buf, d.base)
		b.meta.digest -= xxhash.Sum64(b.buf)
	}
	if d.node == nil {
		return b.pebble.Delete(b.buf[:n], nil)
	}
	c.Znodes++
	c.DataBytes += int64(len(d.node.Data))
	b.buf = appendNode(b.buf[:n], d.node)
	b.meta.digest += xxhash.Sum64(b.buf)
	return b.pebble.Set(b.buf[:n], b.buf[n:], nil)
}

// writeData writes the record of large data, unless it is the same as before.
func (b *Batch) writeData(d *dirty) error {
	before, after := apartData(d.base), apartData(d.node)
	if len(before) == 0 && len(after) == 0 {
		return nil
	}
	if len(before) == len(after) && &before[0] == &after[0] {
		return nil // a changed ACL shares the data
	}
	b.buf = appendPathKey(b.buf[:0], tableData, d.path)
	n := len(b.buf)
	if len(before) > 0 {
		b.buf = append(append(b.buf, recordVersion), before...)
		b.meta.digest -= xxhash.Sum64(b.buf)
	}
	if len(after) == 0 {
		return b.pebble.Delete(b.buf[:n], nil)
	}
	b.buf = append(append(b.buf[:n], recordVersion), after...)
	b.meta.digest += xxhash.Sum64(b.buf)
	return b.pebble.Set(b.buf[:n], b.buf[n:], nil)
}

// apartData returns n's data if it has a record of its own.
func apartData(n *znode.Node) []byte {
	if n == nil || len(n.Data) <= InlineDataMax {
		return nil
	}
	return n.Data
}

// writeEphemeral keeps the index of ephemerals, which is no part of the digest: it
// follows from the znodes.
func (b *Batch) writeEphemeral(d *dirty) error {
	was := d.base != nil && d.base.Kind == znode.Ephemeral
	is := d.node != nil && d.node.Kind == znode.Ephemeral
	if was && is && d.base.Owner == d.node.Owner {
		return nil
	}
	if was {
		b.meta.counts.Ephemerals--
		b.buf = appendEphemeralKey(b.buf[:0], d.base.Owner, d.path)
		if err := b.pebble.Delete(b.buf, nil); err != nil {
			return err
		}
	}
	if is {
		b.meta.counts.Ephemerals++
		b.buf = appendEphemeralKey(b.buf[:0], d.node.Owner, d.path)
		return b.pebble.Set(b.buf, nil, nil)
	}
	return nil
}

// writeChildren writes the counters. Zero counters have no record.
func (b *Batch) writeChildren(d *dirty) error {
	if d.baseChildren == d.children {
		return nil
	}
	b.buf = appendPathKey(b.buf[:0], tableChildren, d.path)
	n := len(b.buf)
	if d.baseChildren != (znode.Children{}) {
		b.buf = appendChildren(b.buf, d.baseChildren)
		b.meta.digest -= xxhash.Sum64(b.buf)
	}
	if d.children == (znode.Children{}) {
		return b.pebble.Delete(b.buf[:n], nil)
	}
	b.buf = appendChildren(b.buf[:n], d.children)
	b.meta.digest += xxhash.Sum64(b.buf)
	return b.pebble.Set(b.buf[:n], b.buf[n:], nil)
}

// writeReap keeps the index of what may be reaped, which is no part of the digest.
func (b *Batch) writeReap(d *dirty) error {
	before, was := reapableAt(d.base, d.baseChildren)
	after, is := reapableAt(d.node, d.children)
	if was == is && before == after {
		return nil
	}
	if was {
		b.buf = appendReapKey(b.buf[:0], before, d.path)
		if err := b.pebble.Delete(b.buf, nil); err != nil {
			return err
		}
	}
	if is {
		b.buf = appendReapKey(b.buf[:0], after, d.path)
		return b.pebble.Set(b.buf, nil, nil)
	}
	return nil
}

// reapableAt returns the first time in milliseconds at which znode.Reapable is true of
// the znode as it is, false if there is none.
func reapableAt(n *znode.Node, c znode.Children) (atMs int64, ok bool) {
	if n == nil || c.Live > 0 {
		return 0, false
	}
	switch n.Kind {
	case znode.Container:
		return 0, c.Created > 0
	case znode.TTL:
		// The sum fits: lifetimes have 40 bits and times are the leader's clock's.
		return n.Mtime + n.TTLMs + 1, true
	}
	return 0, false
}

func (b *Batch) writeSessions() error {
	for _, id := range b.sessionOrder {
		before, after := b.s.sessions[id], b.sessions[id]
		if before == after {
			continue
		}
		b.buf = appendID(b.buf[:0], tableSession, int64(id))
		n := len(b.buf)
		if before != nil {
			b.meta.counts.Sessions--
			b.buf = wire.AppendSession(b.buf, before)
			b.meta.digest -= xxhash.Sum64(b.buf)
		}
		if after == nil {
			if err := b.pebble.Delete(b.buf[:n], nil); err != nil {
				return err
			}
			continue
		}
		b.meta.counts.Sessions++
		b.buf = wire.AppendSession(b.buf[:n], after)
		b.meta.digest += xxhash.Sum64(b.buf)
		if err := b.pebble.Set(b.buf[:n], b.buf[n:], nil); err != nil {
			return err
		}
	}
	return nil
}

// publish makes what was written visible in memory.
func (b *Batch) publish() {
	s := b.s
	for i := range b.nodes.list {
		d := &b.nodes.list[i]
		if d.base == nil && d.node != nil {
			b.buf = appendPathKey(b.buf[:0], tableNode, d.path)
			s.known.created(b.buf, b.meta.counts.Znodes)
		}
		if d.node == nil {
			s.cache.remove(d.path)
		} else {
			s.cache.put(d.path, d.node, d.children)
		}
	}
	for _, id := range b.sessionOrder {
		if one := b.sessions[id]; one != nil {
			s.sessions[id] = one
		} else {
			delete(s.sessions, id)
		}
	}
	b.settleWindows()
	m := b.meta
	s.now.Store(&m)
	b.reset()
}
