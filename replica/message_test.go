package replica

import (
	"bytes"
	"reflect"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// sampleFrames is one frame of each kind.
func sampleFrames() map[byte][]byte {
	typ, kind := raftpb.MsgApp, raftpb.EntryConfChangeV2
	m := &raftpb.Message{Type: &typ, Term: new(uint64(7)), LogTerm: new(uint64(6)), Index: new(uint64(900)), Commit: new(uint64(899)),
		Reject: new(true), RejectHint: new(uint64(3)), Context: []byte("ctx"), Entries: []*raftpb.Entry{
			{Term: new(uint64(7)), Index: new(uint64(901)), Type: &kind, Data: []byte("change")},
			{Term: new(uint64(7)), Index: new(uint64(902)), Type: new(raftpb.EntryNormal)},
		}}
	return map[byte][]byte{
		frameRaft:      appendMessage(nil, m),
		frameProposals: appendProposals(nil, &proposals{term: 5, origin: 1 << 60, first: 4, list: [][]byte{[]byte("a"), {}, []byte("ccc")}}),
		frameAccepted:  appendAccepted(nil, accepted{term: 5, origin: 1 << 60, last: 9, again: true}),
		frameAsk:       appendNote(nil, frameAsk, note{nonce: 1 << 63, payload: []byte("who")}),
		frameAnswer:    appendNote(nil, frameAnswer, note{nonce: 1 << 63, index: 12, payload: []byte("me")}),
		frameCall:      appendNote(nil, frameCall, note{nonce: 3}),
		frameReply:     appendNote(nil, frameReply, note{nonce: 3, failed: true, payload: []byte("no")}),
		frameMembers:   appendNote(nil, frameMembers, note{nonce: 3, payload: appendQuestion(nil, memberQuestion{kind: askList})}),
	}
}

// encode is the inverse of decodeFrame.
func encode(kind byte, body any) []byte {
	switch b := body.(type) {
	case *raftpb.Message:
		return appendMessage(nil, b)
	case *proposals:
		return appendProposals(nil, b)
	case accepted:
		return appendAccepted(nil, b)
	}
	return appendNote(nil, kind, body.(note))
}

// Goal: every kind of frame survives the way, and one that is cut anywhere, or longer than
// it says, is refused unless its end is a payload. Method: one of each, cut at each byte.
func TestFrames(t *testing.T) {
	for kind, frame := range sampleFrames() {
		got, body, err := decodeFrame(frame)
		if err != nil || got != kind || !bytes.Equal(encode(kind, body), frame) {
			t.Errorf("kind %d: %d, %v, %v", kind, got, body, err)
		}
		payload := kind >= frameAsk
		for n := range frame {
			if _, _, err := decodeFrame(frame[:n]); err == nil && !payload {
				t.Errorf("kind %d: the first %d of %d bytes were taken", kind, n, len(frame))
			}
		}
		if _, _, err := decodeFrame(append(frame[:len(frame):len(frame)], 0)); err == nil && !payload {
			t.Errorf("kind %d: a byte too many was taken", kind)
		}
	}
	if _, _, err := decodeFrame([]byte{99}); err == nil {
		t.Error("an unknown kind was taken")
	}
}

// Goal: what a peer sends costs no more memory than it has bytes, and never panics; what is
// taken means the same when it is encoded again. Method: fuzz from one frame of each kind.
func FuzzFrame(f *testing.F) {
	for _, frame := range sampleFrames() {
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		kind, body, err := decodeFrame(frame)
		if err != nil {
			return
		}
		again, second, err := decodeFrame(encode(kind, body))
		if err != nil || again != kind {
			t.Fatalf("%v cannot be read back: %v", body, err)
		}
		if m, ok := body.(*raftpb.Message); ok && proto.Equal(m, second.(*raftpb.Message)) {
			return
		}
		if !reflect.DeepEqual(body, second) {
			t.Fatalf("%#v became %#v", body, second)
		}
	})
}
