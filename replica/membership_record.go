package replica

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// conf is the membership as of an applied entry.
type conf struct {
	index uint64
	state *raftpb.ConfState
	members
}

// members is what a conf knows beyond Raft's own part. Its values are never changed in
// place: a conf may be read while the next one is made.
type members struct {
	addresses map[uint64]string // where each member listens for the others, as far as known
	removed   []uint64          // ids that were members once, ascending: they are never used again
	last      uint64            // the number of the last change, see changeRequest
}

// addressMax bounds the length of a member's address: a host name has 253 bytes at most.
const addressMax = 300

// membersFormat is the version of the encoding of members.
const membersFormat = 1

// appendMembers encodes m: as it is in a conf's record, in the context of a change, where
// the addresses are those that are to be, and in a snapshot.
func appendMembers(dst []byte, m members) []byte {
	dst = binary.AppendUvarint(append(dst, membersFormat), m.last)
	dst = binary.AppendUvarint(dst, uint64(len(m.addresses)))
	for _, id := range slices.Sorted(maps.Keys(m.addresses)) {
		dst = appendBytes(binary.AppendUvarint(dst, id), []byte(m.addresses[id]))
	}
	dst = binary.AppendUvarint(dst, uint64(len(m.removed)))
	for _, id := range m.removed {
		dst = binary.AppendUvarint(dst, id)
	}
	return dst
}

// decodeMembers is the inverse of appendMembers; nothing at all is what a program wrote
// that knew of no addresses.
func decodeMembers(data []byte) (members, error) {
	m := members{addresses: map[uint64]string{}}
	if len(data) == 0 {
		return m, nil
	}
	r := frameReader{rest: data}
	if format := r.byte(); format != membersFormat {
		return m, fmt.Errorf("replica: the members have format %d, this program knows format %d", format, membersFormat)
	}
	m.last = r.uint()
	for range r.count(2) {
		id, address := r.uint(), r.bytes()
		if len(address) > addressMax {
			return m, fmt.Errorf("replica: the address of member %d has %d bytes, more than %d", id, len(address), addressMax)
		}
		m.addresses[id] = string(address)
	}
	for range r.count(1) {
		m.removed = append(m.removed, r.uint())
	}
	if r.short || len(r.rest) > 0 {
		return m, fmt.Errorf("replica: the members' %d bytes end early or have %d too many", len(data), len(r.rest))
	}
	return m, nil
}

// next returns what follows m when Raft's part changes from old to state by a change with
// context. Whoever is no member any more is never one again.
func (m members) next(context []byte, old, state *raftpb.ConfState) (members, error) {
	n := members{addresses: maps.Clone(m.addresses), removed: slices.Clone(m.removed), last: m.last}
	if n.addresses == nil {
		n.addresses = map[uint64]string{}
	}
	if len(context) > 0 { // Raft's own leaving of a joint configuration has none
		said, err := decodeMembers(context)
		if err != nil {
			return n, err
		}
		maps.Copy(n.addresses, said.addresses)
		n.last = said.last
	}
	now := memberIDs(state)
	for _, id := range memberIDs(old) {
		if !slices.Contains(now, id) {
			n.removed = append(n.removed, id)
		}
	}
	slices.Sort(n.removed)
	maps.DeleteFunc(n.addresses, func(id uint64, _ string) bool { return !slices.Contains(now, id) })
	return n, nil
}

// memberIDs returns all members of a configuration, ascending; in a joint one those of
// both.
func memberIDs(s *raftpb.ConfState) []uint64 {
	ids := slices.Concat(s.GetVoters(), s.GetVotersOutgoing(), s.GetLearners(), s.GetLearnersNext())
	slices.Sort(ids)
	return slices.Compact(ids)
}

// isJoint reports whether a change with several steps is under way.
func isJoint(s *raftpb.ConfState) bool { return len(s.GetVotersOutgoing()) > 0 }

// snapshotData is what of c belongs into raftpb.Snapshot.Data: all that its metadata has
// no room for.
func (c conf) snapshotData() []byte { return appendMembers(nil, c.members) }

// snapshotConf returns the configuration that a snapshot carries.
func snapshotConf(s *raftpb.Snapshot) (conf, error) {
	m, err := decodeMembers(s.GetData())
	return conf{index: s.GetMetadata().GetIndex(), state: s.GetMetadata().GetConfState(), members: m}, err
}

// The body of a conf's record: confFormat behind a zero, the index, Raft's part behind its
// length, and the members. Version 1 had no format: its first number was the index, which
// is never 0, and Raft's part was the rest.
const confFormat = 2

func encodeConf(c conf) ([]byte, error) {
	state, err := proto.Marshal(c.state)
	if err != nil {
		return nil, fmt.Errorf("replica: encoding the configuration of entry %d: %w", c.index, err)
	}
	rec := append(make([]byte, checksumLen, 128), 0, confFormat)
	rec = appendBytes(binary.AppendUvarint(rec, c.index), state)
	return seal(confKey, appendMembers(rec, c.members)), nil
}

func decodeConf(record []byte) (conf, error) {
	body, err := open(confKey, record)
	if err != nil {
		return conf{}, fmt.Errorf("configuration: %w", err)
	}
	r := frameReader{rest: body}
	c := conf{state: new(raftpb.ConfState), members: members{addresses: map[uint64]string{}}}
	var state []byte
	if c.index = r.uint(); c.index == 0 && !r.short {
		if format := r.byte(); format != confFormat && !r.short {
			return conf{}, fmt.Errorf("%w: the configuration has format %d, this program knows formats 1 and %d", ErrCorrupt, format, confFormat)
		}
		if c.index, state = r.uint(), r.bytes(); len(r.rest) == 0 {
			r.fail()
		}
		if c.members, err = decodeMembers(r.all()); err != nil {
			return conf{}, fmt.Errorf("%w: configuration: %w", ErrCorrupt, err)
		}
	} else {
		state = r.all()
	}
	if r.short {
		return conf{}, fmt.Errorf("%w: the configuration ends early", ErrCorrupt)
	}
	if err := proto.Unmarshal(state, c.state); err != nil {
		return conf{}, fmt.Errorf("%w: configuration: %w", ErrCorrupt, err)
	}
	return c, nil
}
