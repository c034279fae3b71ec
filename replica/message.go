package replica

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
)

// The kinds of frame between members, the first byte of each. Numbers are uvarints, and
// bytes stand behind their length. A release may add kinds: the handshake tells what a
// peer knows.
const (
	frameRaft      = 1 // a message of Raft: see appendMessage
	frameProposals = 2 // term, origin, number of the first, count, proposals
	frameAccepted  = 3 // term, origin, number of the last accepted, 1 if the next was refused
	frameAsk       = 4 // nonce, payload
	frameAnswer    = 5 // nonce, read index, payload
	frameCall      = 6 // nonce, payload
	frameReply     = 7 // nonce, 0 and payload or 1 and the text of an error
	frameMembers   = 8 // nonce, payload: see memberQuestion; answered like a call
)

// proposals are writes on their way to the leader of term. Their numbers count up from 1
// within (origin, term).
type proposals struct {
	term, origin, first uint64
	list                [][]byte
}

// accepted answers proposals: all up to last are the leader's now.
type accepted struct {
	term, origin, last uint64
	again              bool // the ones behind last were refused: send them again
}

// note is the body of an ask, an answer, a call or a reply.
type note struct {
	nonce, index uint64
	failed       bool // a reply whose payload is the text of an error
	payload      []byte
}

// appendMessage appends a message of Raft as a frame. Sender and receiver are those of
// the connection. Messages with a snapshot do not travel in frames.
func appendMessage(dst []byte, m *raftpb.Message) []byte {
	dst = append(dst, frameRaft, byte(m.GetType()))
	reject := uint64(0)
	if m.GetReject() {
		reject = 1
	}
	for _, v := range [...]uint64{m.GetTerm(), m.GetLogTerm(), m.GetIndex(), m.GetCommit(), reject, m.GetRejectHint()} {
		dst = binary.AppendUvarint(dst, v)
	}
	dst = appendBytes(dst, m.GetContext())
	dst = binary.AppendUvarint(dst, uint64(len(m.GetEntries())))
	for _, e := range m.GetEntries() {
		dst = append(binary.AppendUvarint(binary.AppendUvarint(dst, e.GetTerm()), e.GetIndex()), byte(e.GetType()))
		dst = appendBytes(dst, e.GetData())
	}
	return dst
}

// messageSize is about what appendMessage appends.
func messageSize(m *raftpb.Message) int {
	n := 2 + 6*5 + len(m.GetContext()) + 8
	for _, e := range m.GetEntries() {
		n += len(e.GetData()) + 20
	}
	return n
}

func appendProposals(dst []byte, p *proposals) []byte {
	dst = append(dst, frameProposals)
	for _, v := range [...]uint64{p.term, p.origin, p.first, uint64(len(p.list))} {
		dst = binary.AppendUvarint(dst, v)
	}
	for _, one := range p.list {
		dst = appendBytes(dst, one)
	}
	return dst
}

func appendAccepted(dst []byte, a accepted) []byte {
	again := uint64(0)
	if a.again {
		again = 1
	}
	dst = append(dst, frameAccepted)
	for _, v := range [...]uint64{a.term, a.origin, a.last, again} {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

func appendNote(dst []byte, kind byte, n note) []byte {
	dst = binary.AppendUvarint(append(dst, kind), n.nonce)
	switch kind {
	case frameAnswer:
		dst = binary.AppendUvarint(dst, n.index)
	case frameReply:
		failed := byte(0)
		if n.failed {
			failed = 1
		}
		dst = append(dst, failed)
	}
	return append(dst, n.payload...)
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// decodeFrame decodes a frame from a peer: *raftpb.Message (without sender and receiver),
// *proposals, accepted or note. What it returns aliases frame.
func decodeFrame(frame []byte) (kind byte, body any, err error) {
	r := frameReader{rest: frame}
	switch kind = r.byte(); kind {
	case frameRaft:
		body = r.message()
	case frameProposals:
		body = r.proposals()
	case frameAccepted:
		body = accepted{term: r.uint(), origin: r.uint(), last: r.uint(), again: r.uint() != 0}
	case frameAsk, frameCall, frameMembers:
		body = note{nonce: r.uint(), payload: r.all()}
	case frameAnswer:
		body = note{nonce: r.uint(), index: r.uint(), payload: r.all()}
	case frameReply:
		body = note{nonce: r.uint(), failed: r.byte() != 0, payload: r.all()}
	default:
		return kind, nil, fmt.Errorf("replica: a frame of unknown kind %d with %d bytes", kind, len(frame))
	}
	if r.short || len(r.rest) > 0 {
		return kind, nil, fmt.Errorf("replica: a frame of kind %d and %d bytes: %d bytes are too many or it ends early", kind, len(frame), len(r.rest))
	}
	return kind, body, nil
}

// frameReader takes a frame apart. Behind its end everything reads as zero and short is set.
type frameReader struct {
	rest  []byte
	short bool
}

func (r *frameReader) fail() { r.short, r.rest = true, nil }

func (r *frameReader) byte() byte {
	if len(r.rest) == 0 {
		r.fail()
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *frameReader) uint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *frameReader) bytes() []byte {
	n := r.uint()
	if n > uint64(len(r.rest)) {
		r.fail()
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *frameReader) all() []byte {
	b := r.rest
	r.rest = nil
	return b
}

// count reads the number of things that take at least size bytes each.
func (r *frameReader) count(size int) int {
	n := r.uint()
	if n > uint64(len(r.rest)/size) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *frameReader) message() *raftpb.Message {
	typ := raftpb.MessageType(r.byte())
	if _, ok := raftpb.MessageType_name[int32(typ)]; !ok {
		r.fail()
	}
	m := &raftpb.Message{Type: &typ, Term: new(r.uint()), LogTerm: new(r.uint()), Index: new(r.uint()), Commit: new(r.uint()),
		Reject: new(r.uint() != 0), RejectHint: new(r.uint())}
	if ctx := r.bytes(); len(ctx) > 0 {
		m.Context = ctx
	}
	n := r.count(4)
	if n == 0 {
		return m
	}
	entries, numbers := make([]raftpb.Entry, n), make([]uint64, 2*n)
	types := make([]raftpb.EntryType, n)
	m.Entries = make([]*raftpb.Entry, n)
	for i := range entries {
		e := &entries[i]
		numbers[2*i], numbers[2*i+1], types[i] = r.uint(), r.uint(), raftpb.EntryType(r.byte())
		if _, ok := raftpb.EntryType_name[int32(types[i])]; !ok {
			r.fail()
		}
		e.Term, e.Index, e.Type = &numbers[2*i], &numbers[2*i+1], &types[i]
		if data := r.bytes(); len(data) > 0 {
			e.Data = data
		}
		m.Entries[i] = e
	}
	return m
}

func (r *frameReader) proposals() *proposals {
	p := &proposals{term: r.uint(), origin: r.uint(), first: r.uint()}
	n := r.count(1)
	p.list = make([][]byte, n)
	for i := range p.list {
		p.list[i] = r.bytes()
	}
	return p
}
