package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// liveSession is an open session with the connection that it is on now.
type liveSession struct {
	*session.Session
	// conn is nil while the client is away. Set under the state lock.
	conn atomic.Pointer[conn]
	// proposed is the id of its last write that was proposed here.
	proposed atomic.Uint64
}

// liveSessions are the open sessions of this member and when they expire. Safe for
// concurrent use. That the member may expire anybody it decides by being leader.
type liveSessions struct {
	mu struct {
		sync.Mutex
		tracker *session.Tracker
		open    map[session.ID]*liveSession
	}
	// wake tells the expirer that a deadline may be nearer than it sleeps for.
	wake chan struct{}
}

func newLiveSessions() *liveSessions {
	l := &liveSessions{wake: make(chan struct{}, 1)}
	l.mu.tracker = session.NewTracker()
	l.mu.open = map[session.ID]*liveSession{}
	return l
}

// opened adds a session with a full timeout from now on.
func (l *liveSessions) opened(s *session.Session, now int64) {
	l.mu.Lock()
	l.mu.open[s.ID] = &liveSession{Session: s}
	l.mu.tracker.Open(s.ID, int64(s.TimeoutMs)*1e6, now)
	l.mu.Unlock()
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
	return l.mu.tracker.Touch(id, now)
}

// heard returns when a session was last heard of.
func (l *liveSessions) heard(id session.ID) (int64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.tracker.Touched(id)
}

// reset gives everybody a full timeout: this member begins to serve and cannot know
// whom its predecessor, or it itself before a restart, has heard.
func (l *liveSessions) reset(now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.tracker.Reset(now)
}

// revive gives sessions whose close was not proposed another timeout.
func (l *liveSessions) revive(ids []session.ID, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.mu.tracker.Revive(id, now)
	}
}

// expireBatch bounds how many sessions are expired between two looks at the clock.
const expireBatch = 1000

// expired extends everybody by the stall that was found, or by more, and returns who is
// due, and when to ask again.
func (l *liveSessions) expired(now int64, stall *session.Stall, more int64) (due []session.ID, until, extended int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	extended = max(stall.Wake(now), more)
	l.mu.tracker.Extend(extended)
	due = l.mu.tracker.Expired(now, expireBatch)
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

// expire is the expirer: while this member leads it closes the sessions whose
// timeouts have passed, at the moment they pass.
func (s *Server) expire(ctx context.Context) {
	var stall session.Stall
	timer := time.NewTimer(0)
	defer timer.Stop()
	hang := logHang{last: s.now()}
	for {
		now := s.now()
		due, until, extended := s.sessions.expired(now, &stall, hang.look(now, s.stuck(now)))
		s.metrics.extended(extended)
		if hang.tell() {
			s.log.Warn("the log does not move: no session expires until it does")
		} else if extended >= worthTelling && hang.forNs == 0 {
			s.log.Warn("the server stalled: all sessions extended", "by_ms", extended/1e6)
		}
		for i, id := range due {
			if err := s.proposeOwn(&znode.CloseSession{Session: id, Expired: true}); err != nil {
				s.log.Warn("expiry not proposed", "err", err, "sessions", len(due)-i)
				s.sessions.revive(due[i:], s.now())
				break
			}
			s.log.Info("session expired", "session", id)
			s.metrics.expired()
		}
		if len(due) == expireBatch {
			continue
		}
		timer.Reset(time.Duration(until - s.now()))
		select {
		case <-ctx.Done():
			return
		case <-s.sessions.wake:
		case <-timer.C:
		}
	}
}
