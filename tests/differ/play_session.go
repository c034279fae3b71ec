package differ

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// expireTimeoutMs is asked for by a session that is to expire: the server's least.
const expireTimeoutMs = 1

// resume resumes a session on a second connection while the first is still there.
func (p *player) resume(step *Step, s *client) error {
	n, old := step.Session, s.c
	if err := p.fence(n); err != nil || s.c == nil {
		return err
	}
	readOnly := false
	q := &wire.ConnectRequest{LastZxid: p.zxidOf(step.Seen), TimeoutMs: step.TimeoutMs,
		Session: s.id, Password: s.password, ReadOnly: &readOnly}
	if step.Old {
		q.ReadOnly = nil
	}
	switch step.Credential {
	case WrongPassword:
		q.Password = append([]byte{^s.password[0]}, s.password[1:]...)
	case NullPassword:
		q.Password = nil
	case UnknownSession:
		q.Session = -1
	}
	if err := p.connect(s, q, n); err != nil {
		return err
	}
	if s.c == old && step.Credential != RightPassword && step.Credential != UnknownSession {
		// Whether the session's connection survives somebody else's wrong password is a
		// deliberate difference (wrong-password): it is given up on both.
		s.c = nil
		return old.nc.Close()
	}
	if s.c == old {
		return nil
	}
	// The server ends the connection that the session has left.
	if err := p.drain(old, n); err != nil {
		return err
	}
	p.note(n, Frame{Kind: KindClosed})
	return old.nc.Close()
}

// close ends a session, with requests behind the close that nobody answers.
func (p *player) close(n int, s *client, behind []Request) error {
	if err := p.fenceAll(); err != nil || s.c == nil {
		return err
	}
	c := s.c
	out := p.enqueue(nil, c, &Request{Op: wire.OpCloseSession})
	for i := range behind {
		out = p.enqueue(out, c, &behind[i])
	}
	if _, err := c.nc.Write(out); err != nil {
		return p.ended(n, s)
	}
	for answered := false; ; {
		f, err := c.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		// Events may be spared the one that leaves, and behind the close ZooKeeper answers
		// SessionExpired or not at all, depending on who is faster (behind-close).
		if f.Kind == KindReply && !answered {
			p.note(n, f)
			answered = true
		}
	}
	s.id = 0
	if err := p.ended(n, s); err != nil {
		return err
	}
	return p.fenceSorted()
}

// expire lets a session expire that was opened for it: its client sends the requests, leaves
// and waits until an ephemeral of it is gone.
func (p *player) expire(n int, s *client, requests []Request) error {
	if err := p.close(n, s, nil); err != nil {
		return err
	}
	if err := p.connect(s, &wire.ConnectRequest{TimeoutMs: expireTimeoutMs}, n); err != nil || s.c == nil {
		return err
	}
	p.expiries++
	mark := Request{Op: wire.OpCreate, Path: fmt.Sprintf("%s-%d", home, p.expiries), ACL: znode.OpenACL, Flags: 1}
	if err := p.send(n, s, append(slices.Clone(requests), mark)); err != nil || s.c == nil {
		return err
	}
	if err := s.c.nc.Close(); err != nil {
		return err
	}
	s.c = nil
	if err := p.fenceAll(); err != nil {
		return err
	}
	if err := p.awaitGone(mark.Path); err != nil {
		return err
	}
	if err := p.fenceSorted(); err != nil {
		return err
	}
	// What a client that comes back too late is told.
	late := &wire.ConnectRequest{LastZxid: s.last, TimeoutMs: timeouts[n], Session: s.id, Password: s.password}
	if err := p.connect(s, late, n); err != nil {
		return err
	}
	if s.c == nil {
		s.id = 0
	}
	return nil
}

// awaitGone waits until a znode is gone. It keeps the other sessions alive meanwhile.
func (p *player) awaitGone(path string) error {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for deadline := time.Now().Add(expiryMax); time.Now().Before(deadline); {
		r, err := p.observe(&Request{Op: wire.OpExists, Path: path})
		if err != nil {
			return err
		}
		if r.Err == znode.NoNode {
			return nil
		}
		<-poll.C
	}
	return errors.New("a session does not expire")
}

// observe asks a question of the observer.
func (p *player) observe(q *Request) (*wire.Reply, error) {
	c := p.observer.c
	if _, err := c.nc.Write(p.enqueue(nil, c, q)); err != nil {
		return nil, err
	}
	f, err := c.next()
	if err != nil {
		return nil, fmt.Errorf("the observer: %w", err)
	}
	if f.Reply == nil {
		return nil, fmt.Errorf("the observer was sent %x", f.Raw)
	}
	return f.Reply, nil
}
