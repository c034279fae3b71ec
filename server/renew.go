package server

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/tenure-dev/tenure/session"
)

// Only the leader expires sessions, so whoever was heard of on another member is made known
// to it: each question to the leader that confirms a read (replica.Options.Ask) bears the
// renewals of all sessions that were heard of here since the last answered one. A heartbeat
// is acknowledged by such an answer only, of a question that was formed after it arrived, so
// when it is, a leader whose leadership was confirmed afterwards has noted it (promise P6).
//
// The answer names those that the leader is about to close: nothing of them is acknowledged
// any more. It does not name those that it does not know as that connection's. Either their
// close or their move is applied there: then it will be here, too, before anything that the
// answer confirms is acknowledged. Or their opening or resume is not applied there yet: then
// that will give them a full timeout, later than now, and will undo a close under way.

// renewal is a session with the number of the connection that it is on.
type renewal struct {
	session session.ID
	bind    uint64
}

// appendRenewals appends how many there are and each in order of sessions, of which there
// are no two alike: by how much the session is above the last one, and its connection.
func appendRenewals(dst []byte, list []renewal) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	last := session.ID(0)
	for _, r := range list {
		dst = binary.AppendUvarint(dst, uint64(r.session-last))
		dst = binary.AppendUvarint(dst, r.bind)
		last = r.session
	}
	return dst
}

// decodeRenewals decodes what appendRenewals appends, which comes from another member.
func decodeRenewals(b []byte) ([]renewal, error) {
	rest := b
	next := func(most uint64) (v uint64, ok bool) {
		v, n := binary.Uvarint(rest)
		if n <= 0 || v > most {
			return v, false
		}
		rest = rest[n:]
		return v, true
	}
	const sizeMin = 2 // of one
	count, ok := next(math.MaxInt64)
	if !ok || count > uint64(len(rest)/sizeMin) {
		return nil, fmt.Errorf("renewals: there are not %d in %d bytes", count, len(rest))
	}
	list := make([]renewal, count)
	last := session.ID(0)
	for i := range list {
		at := len(b) - len(rest)
		above, ok := next(uint64(math.MaxInt64 - last))
		bind, okBind := next(math.MaxUint64)
		if !ok || !okBind || above == 0 {
			return nil, fmt.Errorf("renewals: number %d of %d, at byte %d, is no session above %v and connection", i, count, at, last)
		}
		last += session.ID(above)
		list[i] = renewal{last, bind}
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("renewals: %d bytes behind the last", len(rest))
	}
	return list, nil
}

// collect appends the renewals for the next question to the leader: all since the last one
// that was answered, as those in between may be lost. origin is this process's.
func (l *liveSessions) collect(dst []byte, origin uint64) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.term != 0 { // no longer, since there is somebody to ask; follow comes later
		l.noteConnected()
	}
	for id := range l.mu.heard {
		l.mu.asked[id] = struct{}{}
	}
	clear(l.mu.heard)
	list := make([]renewal, 0, len(l.mu.asked))
	for id := range l.mu.asked {
		if o := l.mu.open[id].Owner; o.Origin == origin { // else it moved away since
			list = append(list, renewal{id, o.Bind})
		}
	}
	slices.SortFunc(list, func(a, b renewal) int { return cmp.Compare(a.session, b.session) })
	return appendRenewals(dst, list)
}

// noteConnected notes all whose connections are here as heard of.
func (l *liveSessions) noteConnected() {
	for id, s := range l.mu.open {
		if s.conn.Load() != nil {
			l.mu.heard[id] = struct{}{}
		}
	}
}

// renew takes on the leader, at now, the renewals that the process origin collected, and
// appends the reply. After an error nothing was renewed, and nothing may be acknowledged.
func (l *liveSessions) renew(dst []byte, origin uint64, payload []byte, now int64) ([]byte, error) {
	list, err := decodeRenewals(payload)
	if err != nil {
		return dst, err
	}
	var over []renewal
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range list {
		s := l.mu.open[r.session]
		if s == nil || s.Owner != (session.Owner{Origin: origin, Bind: r.bind}) {
			continue
		}
		if !l.mu.tracker.Touch(r.session, now) {
			over = append(over, r)
		}
	}
	return appendRenewals(dst, over), nil
}

// answered takes the leader's reply to the renewals collected last. What it says is over
// gets nothing acknowledged any more. After an error nothing may be acknowledged: the reply
// counts as lost.
func (l *liveSessions) answered(reply []byte) error {
	list, err := decodeRenewals(reply)
	if err != nil {
		return err
	}
	var over []*liveSession
	l.mu.Lock()
	clear(l.mu.asked)
	for _, r := range list {
		if s := l.mu.open[r.session]; s != nil && s.Owner.Bind == r.bind {
			over = append(over, s)
		}
	}
	l.mu.Unlock()
	for _, s := range over {
		s.disown(overReason(s.ID))
	}
	return nil
}
