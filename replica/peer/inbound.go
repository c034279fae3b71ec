package peer

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tenure-dev/tenure/replica"
)

// inbound is a link that a peer made to this member. Its fields are under Transport.mu.
type inbound struct {
	number uint64
	conns  [replica.Classes]conn
	ended  chan struct{} // closed when it is over
}

// endLocked closes both connections.
func (in *inbound) endLocked() {
	select {
	case <-in.ended:
		return
	default:
	}
	close(in.ended)
	for _, c := range in.conns {
		if c.raw != nil {
			_ = c.raw.Close()
		}
	}
}

var (
	errReplaced = errors.New("it made a new link")
	errTwice    = errors.New("the link has a connection of this class already")
)

// serveFrames receives the frames of a connection until it breaks.
func (t *Transport) serveFrames(p *peer, h hello, c conn) {
	in, err := t.join(p, h, c)
	if err != nil {
		t.news.tell(p.id, err, func() { t.log.Warn("connection refused", "member", p.id, "error", err) })
		return
	}
	// The last frames of an earlier link may still be on their way into the receiver.
	select {
	case p.turns[h.class] <- struct{}{}:
		err = t.receive(p, h.class, c)
		if h.class == replica.Bulk && errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("no control connection beside its bulk connection within %v", t.cfg.HandshakeTimeout)
		}
		<-p.turns[h.class]
	case <-in.ended:
	}
	t.part(p, in, err)
}

// join makes a connection part of its link, which replaces an earlier one.
func (t *Transport) join(p *peer, h hello, c conn) (*inbound, error) {
	t.mu.Lock()
	if t.mu.closed || t.peer(p.id) != p {
		t.mu.Unlock()
		return nil, errGone
	}
	old, in := p.in, p.in
	if old == nil || old.number != h.link {
		in = &inbound{number: h.link, ended: make(chan struct{})}
		if p.in = in; old != nil {
			old.endLocked()
		}
	} else if in.conns[h.class].raw != nil {
		t.mu.Unlock()
		return nil, errTwice
	}
	in.conns[h.class] = c
	complete := in.conns[replica.Control].raw != nil && in.conns[replica.Bulk].raw != nil
	if complete { // from now on pings show whether the other end is there
		_ = in.conns[replica.Bulk].raw.SetReadDeadline(time.Time{})
	} else if h.class == replica.Bulk {
		_ = c.raw.SetReadDeadline(time.Now().Add(t.cfg.HandshakeTimeout))
	}
	t.mu.Unlock()

	p.seen()
	if old != nil && old != in {
		p.broke(false, errReplaced)
	}
	if complete {
		p.whole()
	}
	return in, nil
}

// part ends a link of which a connection broke.
func (t *Transport) part(p *peer, in *inbound, reason error) {
	t.mu.Lock()
	current := p.in == in
	if current {
		p.in = nil
	}
	in.endLocked()
	t.mu.Unlock()
	if current {
		p.broke(false, reason)
	}
}

// receive hands frames to the receiver and answers pings.
func (t *Transport) receive(p *peer, class replica.Class, c conn) error {
	r := newFrameReader(c, 0, t.cfg.frameMax(class))
	pongs := frameWriter{conn: c.Conn, timeout: t.cfg.SilenceTimeout}
	if class == replica.Control {
		r = newFrameReader(c, t.cfg.SilenceTimeout, t.cfg.frameMax(class))
	}
	for {
		frame, ping, err := r.next()
		if err != nil {
			return err
		}
		if ping != nil {
			pongs.buf = append(pongs.buf, ping...)
			if err := pongs.flush(); err != nil {
				return err
			}
			continue
		}
		p.stats.receivedFrames.Add(1)
		p.stats.receivedBytes.Add(uint64(len(frame)))
		if err := t.receiver.Receive(p.id, class, frame); err != nil {
			return fmt.Errorf("a frame of %d bytes: %w", len(frame), err)
		}
	}
}
