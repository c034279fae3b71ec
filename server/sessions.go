package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// liveSession is an open session as its last resume left it, if there was one: a resume
// makes another liveSession of it.
type liveSession struct {
	*session.Session
	// conn is nil while the client is away, or on another member.
	conn atomic.Pointer[conn]
}

// liveSessions are all open sessions, when they expire if this member leads, and if it does
// not, what the leader must be told for that (see renew.go). Safe for concurrent use.
type liveSessions struct {
	mu struct {
		sync.Mutex
		tracker *session.Tracker
		open    map[session.ID]*liveSession
		term    uint64 // in which this member leads, 0 if another does
		// heard are those that were heard of, while another member led, since the leader was
		// last asked; asked those that it was told of then, or before without an answer.
		heard, asked map[session.ID]struct{}
	}
	// wake tells the expirer that a deadline may be nearer than it sleeps for.
	wake chan struct{}
}

func newLiveSessions() *liveSessions {
	l := &liveSessions{wake: make(chan struct{}, 1)}
	l.mu.tracker = session.NewTracker()
	l.mu.open = map[session.ID]*liveSession{}
	l.mu.heard, l.mu.asked = map[session.ID]struct{}{}, map[session.ID]struct{}{}
	return l
}

// bound makes a session that was opened or resumed live with a full timeout from now on, and
// returns what it was before it was resumed, nil if it is new. A close of it that is under
// way was decided before, so it will do nothing: see znode.CloseSession.
func (l *liveSessions) bound(s *session.Session, now int64) (was *liveSession) {
	l.mu.Lock()
	was = l.mu.open[s.ID]
	l.mu.open[s.ID] = &liveSession{Session: s}
	l.mu.tracker.Open(s.ID, int64(s.TimeoutMs)*1e6, now)
	l.mu.tracker.Revive(s.ID, now)
	l.mu.Unlock()
	l.wakeExpirer()
	return was
}

func (l *liveSessions) wakeExpirer() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// closed removes a session and returns it, nil if it was not open.
func (l *liveSessions) closed(id session.ID) *liveSession {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.mu.open[id]
	delete(l.mu.open, id)
	delete(l.mu.heard, id)
	delete(l.mu.asked, id)
	l.mu.tracker.Close(id)
	return s
}

func (l *liveSessions) get(id session.ID) *liveSession {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.open[id]
}

func (l *liveSessions) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.open)
}

// touch renews a session at now. False: it is over or about to be; nothing that came
// from it may be acknowledged (promise P6).
func (l *liveSessions) touch(id session.ID, now int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	lives := l.mu.tracker.Touch(id, now)
	if lives && l.mu.term == 0 {
		l.mu.heard[id] = struct{}{}
	}
	return lives
}

// heard returns when a session was last heard of.
func (l *liveSessions) heard(id session.ID) (int64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.tracker.Touched(id)
}

// lead makes this member the one that expires sessions, in term and no other, once it has
// applied all that was committed before it led. It gives everybody a full timeout: it cannot
// know whom its predecessor, or it itself before a restart, has heard.
func (l *liveSessions) lead(term uint64, now int64) {
	l.mu.Lock()
	l.mu.term = term
	clear(l.mu.heard)
	clear(l.mu.asked)
	l.mu.tracker.Reset(now)
	l.mu.Unlock()
	l.wakeExpirer()
}

// follow ends that. What was closing lives on until the log says otherwise, since a close may
// be lost with the lead. The next leader may lead since long ago, so it is told of whoever
// may have been heard here meanwhile.
func (l *liveSessions) follow(now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteConnected()
	l.mu.term = 0
	l.mu.tracker.Reset(now)
}

// leads returns the term in which this member expires sessions, 0 if it does not.
func (l *liveSessions) leads() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.term
}

// revive gives sessions whose close was not proposed another timeout.
func (l *liveSessions) revive(list []*session.Session, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range list {
		l.mu.tracker.Revive(s.ID, now)
	}
}

// expireBatch bounds how many sessions are expired between two looks at the clock.
const expireBatch = 1000

// expired extends everybody by the stall that was found, or by more, and returns who is
// due, and when to ask again. Nobody is due while another member leads.
func (l *liveSessions) expired(now int64, stall *session.Stall, more int64) (due []*session.Session, until, extended int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.term == 0 {
		return nil, now + session.StallPulse, 0
	}
	extended = max(stall.Wake(now), more)
	l.mu.tracker.Extend(extended)
	for _, id := range l.mu.tracker.Expired(now, expireBatch) {
		due = append(due, l.mu.open[id].Session)
	}
	return due, stall.Sleep(l.mu.tracker.Next()), extended
}

// worthTelling is how long a stall must be to be logged; shorter ones are common where
// the machine is busy.
const worthTelling = int64(1e9)

// logHang measures how long the log hangs. Meanwhile connections whose pipelines are full
// are not read: their heartbeats wait unread, and time must not count against them.
type logHang struct {
	last  int64 // when it was looked at
	forNs int64 // 0 while the log moves
	told  bool
}

// look returns by how much longer the log has hung than at the last look.
func (h *logHang) look(now int64, stuck bool) (more int64) {
	if stuck {
		more = now - h.last
		h.forNs += more
	} else {
		h.forNs, h.told = 0, false
	}
	h.last = now
	return more
}

// tell is true once per hang that is worth telling.
func (h *logHang) tell() bool {
	if h.told || h.forNs < worthTelling {
		return false
	}
	h.told = true
	return true
}

// expirer is what the expirer knows from one look to the next.
type expirer struct {
	stall session.Stall
	hang  logHang
}

// expire is the expirer: while this member leads it closes the sessions whose
// timeouts have passed, at the moment they pass.
func (s *Server) expire(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	e := expirer{hang: logHang{last: s.now()}}
	for {
		timer.Reset(time.Duration(s.expireOnce(&e) - s.now()))
		select {
		case <-ctx.Done():
			return
		case <-s.sessions.wake:
		case <-timer.C:
		}
	}
}

// expireOnce closes who is due and returns when to look again.
func (s *Server) expireOnce(e *expirer) (until int64) {
	now, term := s.now(), s.sessions.leads()
	if term == 0 { // nothing that was seen before counts once it does
		*e = expirer{hang: logHang{last: now}}
	}
	due, until, extended := s.sessions.expired(now, &e.stall, e.hang.look(now, s.stuck(now)))
	s.metrics.extended(extended)
	if e.hang.tell() {
		s.log.Warn("the log does not move: no session expires until it does")
	} else if extended >= worthTelling && e.hang.forNs == 0 {
		s.log.Warn("the server stalled: all sessions extended", "by_ms", extended/1e6)
	}
	s.closeExpired(term, due)
	if len(due) == expireBatch {
		return now
	}
	return until
}

// closeExpired proposes in term the end of sessions whose timeouts have passed.
func (s *Server) closeExpired(term uint64, due []*session.Session) {
	for i, one := range due {
		if err := s.proposeOwn(term, &znode.CloseSession{Session: one.ID, Expired: true, Owner: one.Owner}); err != nil {
			s.log.Warn("expiry not proposed", "err", err, "sessions", len(due)-i)
			s.sessions.revive(due[i:], s.now())
			return
		}
		s.log.Info("session expired", "session", one.ID)
		s.metrics.expired()
	}
}
