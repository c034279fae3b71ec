package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// What a member asks the leader about members.
const (
	askList     = 1
	askChange   = 2
	askTransfer = 3
)

// memberQuestion is the payload of a frameMembers.
type memberQuestion struct {
	kind   byte
	number uint64 // of a change; of a transfer, to whom
	steps  []Step
}

func appendQuestion(dst []byte, q memberQuestion) []byte {
	dst = binary.AppendUvarint(append(dst, q.kind), q.number)
	dst = binary.AppendUvarint(dst, uint64(len(q.steps)))
	for _, s := range q.steps {
		dst = binary.AppendUvarint(append(dst, byte(s.Kind)), s.ID)
		dst = appendBytes(dst, []byte(s.Address))
	}
	return dst
}

func decodeQuestion(data []byte) (memberQuestion, error) {
	r := frameReader{rest: data}
	q := memberQuestion{kind: r.byte(), number: r.uint()}
	for range r.count(3) {
		q.steps = append(q.steps, Step{Kind: StepKind(r.byte()), ID: r.uint(), Address: string(r.bytes())})
	}
	if r.short || len(r.rest) > 0 || q.kind < askList || q.kind > askTransfer {
		return q, fmt.Errorf("replica: a question about members of kind %d with %d bytes is not understood", q.kind, len(data))
	}
	return q, nil
}

// answerErrors are the errors that an answer can carry, by their number.
var answerErrors = [...]error{1: ErrMember, 2: ErrChanging, 3: ErrNoQuorum, 4: ErrBehind, 5: ErrNoSuccessor, 6: errAgain}

// textError is an error that came from another member: its text, and what it is.
type textError struct {
	text string
	is   error
}

func (e *textError) Error() string { return e.text }
func (e *textError) Unwrap() error { return e.is }

// appendAnswer encodes the members or, if err is not nil, the error.
func appendAnswer(dst []byte, m Members, err error) []byte {
	if err != nil {
		number := len(answerErrors) - 1 // what has no number of its own may pass
		for i, is := range answerErrors {
			if is != nil && errors.Is(err, is) {
				number = i
				break
			}
		}
		return append(binary.AppendUvarint(dst, uint64(number)), err.Error()...)
	}
	dst = append(dst, 0, flags(m.Current, m.Changing))
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, m.Leader), m.Index)
	dst = binary.AppendUvarint(dst, uint64(len(m.List)))
	for i := range m.List {
		e := &m.List[i]
		dst = appendBytes(binary.AppendUvarint(dst, e.ID), []byte(e.Address))
		dst = append(dst, flags(e.Voter, e.Leader, e.Answering))
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, e.Match), e.Lag)
	}
	dst = binary.AppendUvarint(dst, uint64(len(m.Removed)))
	for _, id := range m.Removed {
		dst = binary.AppendUvarint(dst, id)
	}
	return dst
}

func decodeAnswer(data []byte) (Members, error) {
	r := frameReader{rest: data}
	if number := r.uint(); number != 0 {
		is := errAgain
		if number < uint64(len(answerErrors)) {
			is = answerErrors[number]
		}
		return Members{}, &textError{string(r.all()), is}
	}
	var m Members
	f := r.byte()
	m.Current, m.Changing, m.Leader, m.Index = f&1 != 0, f&2 != 0, r.uint(), r.uint()
	for range r.count(5) {
		e := Member{ID: r.uint(), Address: string(r.bytes())}
		f := r.byte()
		e.Voter, e.Leader, e.Answering, e.Match, e.Lag = f&1 != 0, f&2 != 0, f&4 != 0, r.uint(), r.uint()
		if e.ID == 0 || e.ID > MaxMemberID || len(e.Address) > addressMax {
			return m, fmt.Errorf("replica: an answer about members has member %d at an address of %d bytes", e.ID, len(e.Address))
		}
		m.List = append(m.List, e)
	}
	for range r.count(1) {
		m.Removed = append(m.Removed, r.uint())
	}
	if r.short || len(r.rest) > 0 {
		return m, fmt.Errorf("replica: an answer about members of %d bytes ends early or is too long", len(data))
	}
	return m, nil
}

// flags packs booleans, the first into the lowest bit.
func flags(set ...bool) byte {
	var f byte
	for i, s := range set {
		if s {
			f |= 1 << i
		}
	}
	return f
}
