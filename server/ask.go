package server

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/replica"
)

// What goes with a question to the leader, and with its answer, besides the renewals of
// sessions (renew.go):
//
//	question: format, origin of the process (8), length and renewals, reportFull or 0
//	answer:   format, length and what became of the renewals
const askFormat = 1

// reportFull: growth is refused here.
const reportFull = 1

// reportGood is how long a member's report counts: each tells the leader ten times in an
// election timeout.
const reportGood = int64(5 * time.Second)

// reports are what the other members last told the leader. Safe for concurrent use.
type reports struct {
	mu   sync.Mutex
	full map[uint64]int64 // when a member last said that growth is refused there
}

// note takes a member's report.
func (r *reports) note(from uint64, full bool, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !full {
		delete(r.full, from)
		return
	}
	if r.full == nil {
		r.full = map[uint64]int64{}
	}
	r.full[from] = now
}

// anyFull reports whether growth is refused on another member.
func (r *reports) anyFull(now int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.full {
		if now-at < reportGood {
			return true
		}
	}
	return false
}

// appendQuestion implements replica.Options.Ask.
func (s *Server) appendQuestion(dst []byte) []byte {
	origin := s.origin.Load()
	dst = binary.BigEndian.AppendUint64(append(dst, askFormat), origin)
	renewals := s.sessions.collect(nil, origin)
	dst = append(binary.AppendUvarint(dst, uint64(len(renewals))), renewals...)
	if s.fullHere() {
		return append(dst, reportFull)
	}
	return append(dst, 0)
}

// takeQuestion implements replica.Options.Asked. What it cannot read it does not answer, so that
// nothing is acknowledged by it.
func (s *Server) takeQuestion(from uint64, payload []byte) ([]byte, error) {
	rest, err := cutFormat(payload)
	if err != nil {
		return nil, err
	}
	if len(rest) < 8 {
		return nil, errShortAsk
	}
	origin := binary.BigEndian.Uint64(rest)
	renewals, rest, err := cutCounted(rest[8:])
	if err != nil {
		return nil, err
	}
	if len(rest) != 1 {
		return nil, fmt.Errorf("question: %d bytes of report, must be 1", len(rest))
	}
	s.reports.note(from, rest[0]&reportFull != 0, s.now())
	became, err := s.sessions.renew(nil, origin, renewals, s.now())
	if err != nil {
		return nil, err
	}
	reply := binary.AppendUvarint([]byte{askFormat}, uint64(len(became)))
	return append(reply, became...), nil
}

// takeAnswer implements replica.Options.Answered.
func (s *Server) takeAnswer(reply []byte) error {
	rest, err := cutFormat(reply)
	if err != nil {
		return err
	}
	became, _, err := cutCounted(rest)
	if err != nil {
		return err
	}
	return s.sessions.answered(became)
}

var errShortAsk = errors.New("question: it ends early")

func cutFormat(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, errShortAsk
	}
	if b[0] != askFormat {
		return nil, fmt.Errorf("question: format %d, this member knows %d", b[0], askFormat)
	}
	return b[1:], nil
}

func cutCounted(b []byte) (field, rest []byte, err error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, errShortAsk
	}
	return b[size : size+int(n)], b[size+int(n):], nil
}

// roleChanged implements replica.Options.RoleChanged: who leads expires sessions.
func (s *Server) roleChanged(st replica.Status) {
	switch term, was := st.Leads, s.sessions.leads(); {
	case term == was:
	case term != 0:
		s.sessions.lead(term, s.now())
	default:
		s.sessions.follow(s.now())
	}
}
