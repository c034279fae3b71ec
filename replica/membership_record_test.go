package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// recordV1 is a configuration's record as programs wrote it that knew of no addresses.
func recordV1(t *testing.T, index uint64, state *raftpb.ConfState) []byte {
	t.Helper()
	body, err := proto.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	rec := binary.AppendUvarint(make([]byte, checksumLen), index)
	return seal(confKey, append(rec, body...))
}

// Goal: a configuration comes back from its record and from a snapshot as it was, and
// records without addresses still load. Method: round trips, and a record of version 1.
func TestConfRecord(t *testing.T) {
	state := &raftpb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{4}, VotersOutgoing: []uint64{1, 3}, AutoLeave: new(true)}
	full := conf{index: 300, state: state, members: members{
		addresses: map[uint64]string{1: "one:1", 2: "two:1", 4: "[::1]:4"}, removed: []uint64{5, 900}, last: 1 << 63}}
	rec, err := encodeConf(full)
	if err != nil {
		t.Fatal(err)
	}
	same := func(what string, got, want conf, err error) {
		t.Helper()
		if err != nil || got.index != want.index || !proto.Equal(got.state, want.state) || !reflect.DeepEqual(got.members, want.members) {
			t.Errorf("%s: %+v, %v; want %+v", what, got, err, want)
		}
	}
	got, err := decodeConf(rec)
	same("record", got, full, err)
	got, err = snapshotConf(&raftpb.Snapshot{Data: full.snapshotData(), Metadata: &raftpb.SnapshotMetadata{Index: new(full.index), ConfState: state}})
	same("snapshot", got, full, err)
	got, err = decodeConf(recordV1(t, 7, state))
	same("version 1", got, conf{index: 7, state: state, members: members{addresses: map[uint64]string{}}}, err)
	for n := range len(rec) {
		if _, err := decodeConf(seal(confKey, slices.Clone(rec[:max(n, checksumLen)]))); n < len(rec) && !errors.Is(err, ErrCorrupt) {
			t.Errorf("the first %d of %d bytes: %v", n, len(rec), err)
		}
	}
	for what, data := range map[string][]byte{
		"format 9":                    {9, 0, 0, 0},
		"the address of member 1 has": append(binary.AppendUvarint([]byte{membersFormat, 0, 1, 1}, addressMax+1), make([]byte, addressMax+2)...),
		"end early":                   {membersFormat, 0, 200, 1},
		"bytes end early or have 1":   {membersFormat, 0, 0, 0, 0},
	} {
		if _, err := decodeMembers(data); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Goal: whoever leaves the configuration is a tombstone from then on and has no address;
// in a joint one both halves are members. Method: a replacement of 3 by 4 in two steps.
func TestMembersNext(t *testing.T) {
	before := members{addresses: map[uint64]string{1: "a:1", 2: "b:1", 3: "c:1", 4: "d:1"}, removed: []uint64{9}, last: 1}
	old := &raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}}
	joint := &raftpb.ConfState{Voters: []uint64{1, 2, 4}, VotersOutgoing: []uint64{1, 2, 3}}
	context := appendMembers(nil, members{last: 2, addresses: map[uint64]string{2: "moved:1"}})
	mid, err := before.next(context, old, joint)
	if err != nil || mid.last != 2 || mid.addresses[2] != "moved:1" || mid.addresses[3] != "c:1" || len(mid.removed) != 1 {
		t.Fatalf("joint: %+v, %v", mid, err)
	}
	after, err := mid.next(nil, joint, &raftpb.ConfState{Voters: []uint64{1, 2, 4}})
	if err != nil || after.last != 2 || !slices.Equal(after.removed, []uint64{3, 9}) ||
		!maps.Equal(after.addresses, map[uint64]string{1: "a:1", 2: "moved:1", 4: "d:1"}) {
		t.Fatalf("left: %+v, %v", after, err)
	}
	if before.addresses[2] != "b:1" || len(before.removed) != 1 {
		t.Errorf("an earlier configuration was changed: %+v", before)
	}
	if _, err := before.next([]byte{99}, old, old); err == nil {
		t.Error("a context of another format was taken")
	}
}

// Goal: questions about members and their answers come as they were sent; what ends early, or
// names a member that there cannot be, is refused. Method: round trips, and cuts at each byte.
func TestMemberMessages(t *testing.T) {
	q := memberQuestion{kind: askChange, number: 1 << 63, steps: []Step{{AddLearner, 4, "d:1"}, {Kind: Remove, ID: 3}}}
	data := appendQuestion(nil, q)
	if got, err := decodeQuestion(data); err != nil || !reflect.DeepEqual(got, q) {
		t.Errorf("question %+v, %v", got, err)
	}
	m := Members{Current: true, Leader: 2, Index: 300, Removed: []uint64{3}, List: []Member{
		{ID: 1, Address: "a:1", Voter: true, Answering: true, Match: 299, Lag: 1}, {ID: 255, Address: "b:1", Leader: true}}}
	answer := appendAnswer(nil, m, nil)
	if got, err := decodeAnswer(answer); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("answer %+v, %v", got, err)
	}
	for n := range data {
		if _, err := decodeQuestion(data[:n]); err == nil {
			t.Errorf("the first %d of %d bytes of a question were taken", n, len(data))
		}
	}
	for n := range answer {
		if _, err := decodeAnswer(answer[:n]); err == nil {
			t.Errorf("the first %d of %d bytes of an answer were taken", n, len(answer))
		}
	}
	for _, e := range []Member{{ID: 0}, {ID: 256}, {ID: 1, Address: strings.Repeat("a", addressMax+1)}} {
		if _, err := decodeAnswer(appendAnswer(nil, Members{List: []Member{e}}, nil)); err == nil {
			t.Errorf("member %d at an address of %d bytes was taken", e.ID, len(e.Address))
		}
	}
	for _, is := range []error{ErrMember, ErrChanging, ErrNoQuorum, ErrBehind, ErrNoSuccessor, errAgain} {
		if _, err := decodeAnswer(appendAnswer(nil, m, fmt.Errorf("%w: why", is))); !errors.Is(err, is) || !strings.HasSuffix(err.Error(), ": why") {
			t.Errorf("%v came as %v", is, err)
		}
	}
	if _, err := decodeAnswer(appendAnswer(nil, m, ErrStopped)); !errors.Is(err, errAgain) {
		t.Errorf("what has no number came as %v", err)
	}
}

// Goal: the lowest id that no member ever had is free, and none if all are used up.
func TestFreeID(t *testing.T) {
	m := Members{List: []Member{{ID: 1}, {ID: 2}, {ID: 5}}, Removed: []uint64{3}}
	if id := m.Free(); id != 4 {
		t.Errorf("free is %d", id)
	}
	for id := uint64(4); id <= MaxMemberID; id++ {
		m.Removed = append(m.Removed, id)
	}
	if id := m.Free(); id != 0 {
		t.Errorf("free is %d", id)
	}
}

// Goal: a member that joins begins with nothing at all, opens again, and asks nobody for a
// vote. Method: open it twice, and let time pass.
func TestJoiningMemberWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, lan := vfs.NewMem(), newLAN()
		for range 2 {
			r := mustOpen(t, "dir", Options{ID: 4, Join: true, Members: map[uint64]string{1: "a:1"}, Network: lan.nic(4), FS: fs, Machine: newMachine()})
			time.Sleep(10 * time.Second)
			s := r.Status()
			if s.Term != 0 || s.Last != 0 || s.First != 1 || s.Leader != 0 || s.IsLearner || s.IsRemoved {
				t.Errorf("status %+v", s)
			}
			m, err := r.Members(t.Context())
			if err != nil || m.Current || len(m.List) != 0 {
				t.Errorf("members %+v, %v", m, err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Goal: a member whose state is ahead of its configuration's record, as a power cut can leave it,
// has the configuration of what was applied: in its snapshots, and when it has cut its log.
// Method: a change behind the record, applied; open the log, cut it, and open it again.
func TestConfAheadOfItsRecord(t *testing.T) {
	data, err := proto.Marshal(&raftpb.ConfChangeV2{
		Changes: []*raftpb.ConfChangeSingle{{Type: raftpb.ConfChangeAddLearnerNode.Enum(), NodeId: new(uint64(2))}},
		Context: appendMembers(nil, members{addresses: map[uint64]string{2: "two:1"}})})
	if err != nil {
		t.Fatal(err)
	}
	entries := testEntries(2, 6, 1)
	entries[2].Type, entries[2].Data = raftpb.EntryConfChangeV2.Enum(), data
	fs := vfs.NewMem()
	l := newTestLog(t, fs)
	m := &raftpb.Message{Term: new(uint64(1)), Vote: new(uint64(1)), Commit: new(uint64(6)), Entries: entries}
	if _, err := l.write([]*raftpb.Message{m}); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"before", "behind"} {
		l.applied = 6
		c, err := newCore(1, l, discard)
		if err != nil {
			t.Fatal(err)
		}
		for who, got := range map[string]conf{"the core": c.conf, "the log": l.conf()} {
			if got.index != 4 || !slices.Equal(got.state.GetLearners(), []uint64{2}) || got.addresses[2] != "two:1" {
				t.Errorf("%s the cut %s has %+v", when, who, got)
			}
		}
		if err := errors.Join(l.truncate(5, 0, 0), l.close()); err != nil {
			t.Fatal(err)
		}
		l = newTestLog(t, fs)
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
}
