package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// A member that lacks entries that the leader's log does not have any more is sent the
// state, on a stream of its own:
//
//	leader    hello: format, number of the snapshot, Raft's message
//	follower  answer: go on from a position, or nothing is needed, or why it is refused
//	leader    the state, from that position on; the machine's format, which knows its end
//	follower  answer: it has all of it
//
// Hello and answers are pieces: length (4), CRC-32C (4), both little-endian, and bytes.
// The number tells the snapshot from others: if a stream breaks, the next one with the same
// number goes on where it broke. Raft's message names the state that is really sent, the
// term of its last entry, and the membership as of it.
//
// When the follower has all of it, Raft decides there. If it takes the snapshot, one synced
// batch lets the log begin behind it; then the machine puts the state in place. A crash
// between the two is made good by Machine.Recover.
const (
	streamFormat = 1
	// pieceMax bounds hello and answers: a membership, or the last key in a chunk.
	pieceMax = 1 << 20
)

// The kinds of answer.
const (
	answerContinue = 1 // behind it the position
	answerHave     = 2 // all of it, or what is beyond
	answerRefuse   = 3 // behind it a text
)

// errRefused is what a follower's refusal is.
var errRefused = errors.New("it was refused")

// hello begins a stream.
type hello struct {
	number  uint64
	message *raftpb.Message
}

func writeHello(w io.Writer, h hello) error {
	b := binary.AppendUvarint([]byte{streamFormat}, h.number)
	b, err := proto.MarshalOptions{}.MarshalAppend(b, h.message)
	if err != nil {
		return fmt.Errorf("replica: encoding a snapshot's message: %w", err)
	}
	return writePiece(w, b)
}

func readHello(r io.Reader) (hello, error) {
	b, err := readPiece(r)
	if err != nil {
		return hello{}, err
	}
	f := frameReader{rest: b}
	if format := f.byte(); format != streamFormat {
		return hello{}, fmt.Errorf("replica: a snapshot's stream has format %d, this program knows %d", format, streamFormat)
	}
	h := hello{number: f.uint(), message: new(raftpb.Message)}
	if f.short {
		return h, errors.New("replica: a snapshot's hello ends early")
	}
	if err := proto.Unmarshal(f.rest, h.message); err != nil {
		return h, fmt.Errorf("replica: a snapshot's message: %w", err)
	}
	if m := h.message; m.GetType() != raftpb.MsgSnap || m.GetTerm() == 0 || raft.IsEmptySnap(m.GetSnapshot()) ||
		m.GetSnapshot().GetMetadata().GetTerm() == 0 {
		return h, errors.New("replica: a snapshot's message is none, or has no term or index")
	}
	return h, nil
}

func writeAnswer(w io.Writer, kind byte, body []byte) error {
	return writePiece(w, append([]byte{kind}, body...))
}

// readAnswer returns a refusal as an error.
func readAnswer(r io.Reader) (kind byte, body []byte, err error) {
	b, err := readPiece(r)
	switch {
	case err != nil:
		return 0, nil, err
	case len(b) == 0 || b[0] < answerContinue || b[0] > answerRefuse:
		return 0, nil, fmt.Errorf("replica: an answer of unknown kind to a snapshot, %d bytes", len(b))
	case b[0] == answerRefuse:
		return 0, nil, fmt.Errorf("%w: %s", errRefused, b[1:])
	}
	return b[0], b[1:], nil
}

func writePiece(w io.Writer, body []byte) error {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
	b = binary.LittleEndian.AppendUint32(b, checksum(nil, body))
	_, err := w.Write(append(b, body...))
	return err
}

func readPiece(r io.Reader) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > pieceMax {
		return nil, fmt.Errorf("replica: a piece of %d bytes, more than %d", n, pieceMax)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	if checksum(nil, body) != binary.LittleEndian.Uint32(head[4:]) {
		return nil, errors.New("replica: a piece's checksum is wrong")
	}
	return body, nil
}

// snapshotOf returns the snapshot among messages to storage, nil if there is none.
func snapshotOf(msgs []*raftpb.Message) *raftpb.SnapshotMetadata {
	for _, m := range msgs {
		if s := m.GetSnapshot(); !raft.IsEmptySnap(s) {
			return s.GetMetadata()
		}
	}
	return nil
}
