package replica

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// identity tells a log from all others.
type identity struct {
	member uint64
	// cluster tells the ensemble from others.
	cluster uint64
	// instance is drawn when the log is made: who comes back under the same id with
	// another one has lost what it had promised.
	instance uint64
}

// draw returns a random number that is not 0.
func draw() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return max(binary.BigEndian.Uint64(b[:]), 1)
}

// newIdentity is that of a new log; cluster 0 draws one.
func newIdentity(member, cluster uint64) identity {
	if cluster == 0 {
		cluster = draw()
	}
	return identity{member: member, cluster: cluster, instance: draw()}
}

func encodeIdentity(i identity) []byte {
	return encodeUvarints(identityKey, identityFormat, i.member, i.cluster, i.instance)
}

// decodeIdentity also reads format 1, which had the member's id alone: cluster and
// instance are 0 then.
func decodeIdentity(record []byte) (i identity, format uint64, err error) {
	body, err := open(identityKey, record)
	if err != nil {
		return i, 0, err
	}
	format, n := binary.Uvarint(body)
	switch {
	case n <= 0:
		err = fmt.Errorf("%w: the identity has no format", ErrCorrupt)
	case format == 1:
		err = decodeUvarints(body[n:], &i.member)
	case format == identityFormat:
		err = decodeUvarints(body[n:], &i.member, &i.cluster, &i.instance)
	default:
		err = fmt.Errorf("%w: format %d, this program writes format %d", ErrIdentity, format, identityFormat)
	}
	return i, format, err
}

// upgradeIdentity gives a log of format 1 what it lacks. Such a member was alone, so
// nobody else needs to know of the ensemble's id.
func (l *log) upgradeIdentity() error {
	l.identity = newIdentity(l.identity.member, 0)
	return l.meta(0, pebble.Sync, func(b *pebble.Batch) error {
		return b.Set(identityKey, encodeIdentity(l.identity), nil)
	})
}

func appendPeerKey(dst []byte, member uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, peerPrefix), member)
}

// loadPeers reads which instances of other members have been met.
func (l *log) loadPeers() error {
	l.peers.instances = map[uint64]uint64{}
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: []byte{peerPrefix}, UpperBound: []byte{peerPrefix + 1}})
	if err != nil {
		return l.readError(err)
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var v, body []byte
		if v, err = it.ValueAndErr(); err != nil {
			break
		}
		key, instance := it.Key(), uint64(0)
		if len(key) != 9 {
			err = fmt.Errorf("%w: %q is not a peer's key", ErrCorrupt, key)
		} else if body, err = open(key, v); err == nil {
			err = decodeUvarints(body, &instance)
			l.peers.instances[binary.BigEndian.Uint64(key[1:])] = instance
		}
	}
	if errClose := it.Close(); err == nil {
		err = errClose
	}
	if err != nil {
		return l.readError(err)
	}
	return nil
}

// known judges the instance that a peer says it is. The first one met is written down,
// synced, before the peer is believed.
func (l *log) known(member, instance uint64) error {
	l.peers.Lock()
	defer l.peers.Unlock()
	switch known, met := l.peers.instances[member]; {
	case instance == 0:
		return fmt.Errorf("%w: member %d names no instance", ErrWiped, member)
	case met && known != instance:
		return fmt.Errorf("%w: member %d is instance %016x, the one known is %016x: remove it and add it again under a new id",
			ErrWiped, member, instance, known)
	case met:
		return nil
	}
	key := appendPeerKey(nil, member)
	err := l.meta(0, pebble.Sync, func(b *pebble.Batch) error {
		return b.Set(key, encodeUvarints(key, instance), nil)
	})
	if err == nil {
		l.peers.instances[member] = instance
	}
	return err
}

// Cluster returns the id that tells this member's ensemble from others.
func (r *Replica) Cluster() uint64 { return r.log.identity.cluster }

// Instance returns the number that tells this member's log from the one that it had
// before if it was wiped.
func (r *Replica) Instance() uint64 { return r.log.identity.instance }

// Known reports whether a peer that presents itself is the one that it was before: nil at
// the first contact, which is written to disk, and for the same instance; ErrWiped for
// another instance, which has lost what the first had promised; ErrRemoved for who is no
// member any more.
func (r *Replica) Known(member, instance uint64) error {
	if err := r.judgeMember(member); err != nil {
		return err
	}
	return r.log.known(member, instance)
}
