package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-dev/tenure/session"
	"github.com/tenure-dev/tenure/znode"
)

// zkSession is the session of a zkTree. It is over when the server says so, when it is
// closed, or when its timeout has passed since anything was heard of the server: who is
// to let go when it expires cannot wait for that news. It is safe for concurrent use.
type zkSession struct {
	opened chan struct{} // closed when the session was opened
	done   chan struct{}

	mu       sync.Mutex
	timeout  time.Duration // asked for, then granted
	heard    time.Time     // when anything came of the server
	id       session.ID
	isOpened bool
	err      error       // why it is over
	lost     *time.Timer // runs while there is no connection
}

func newZKSession(timeout time.Duration) *zkSession {
	return &zkSession{timeout: timeout, opened: make(chan struct{}), done: make(chan struct{})}
}

// ID returns the session's id, 0 before it was opened.
func (s *zkSession) ID() session.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

func (s *zkSession) setID(id session.ID) {
	s.mu.Lock()
	s.id = id
	s.mu.Unlock()
}

// granted notes the timeout that the server grants.
func (s *zkSession) granted(timeout time.Duration) {
	s.mu.Lock()
	s.timeout = timeout
	s.mu.Unlock()
}

// hears notes that something came of the server.
func (s *zkSession) hears() {
	s.mu.Lock()
	s.heard = time.Now()
	s.mu.Unlock()
}

// Done is closed when the session is over.
func (s *zkSession) Done() <-chan struct{} { return s.done }

// Err says why the session is over, nil before.
func (s *zkSession) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// end makes the session over, once.
func (s *zkSession) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(why)
}

func (s *zkSession) endLocked(why error) {
	if s.err != nil {
		return
	}
	s.err = why
	s.stopTimer()
	close(s.done)
}

func (s *zkSession) stopTimer() {
	if s.lost != nil {
		s.lost.Stop()
		s.lost = nil
	}
}

// changed tells the session what the library knows of its connection, and reports
// whether the session was resumed.
func (s *zkSession) changed(state zk.State) (resumed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
	case state == zk.StateHasSession:
		s.stopTimer()
		resumed = s.isOpened
		if !s.isOpened {
			s.isOpened = true
			close(s.opened)
		}
	case state == zk.StateExpired && s.isOpened:
		s.endLocked(znode.SessionExpired)
	case state == zk.StateDisconnected && s.isOpened && s.lost == nil:
		var lost *time.Timer
		lost = time.AfterFunc(s.timeout-time.Since(s.heard), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.lost == lost { // it was not stopped too late
				s.endLocked(fmt.Errorf("nothing heard of the server for %v: %w", s.timeout, znode.SessionExpired))
			}
		})
		s.lost = lost
	}
	return resumed
}
