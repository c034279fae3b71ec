package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	acceptWait  = 5 * time.Millisecond // after a failed accept: out of descriptors, most likely
	lingerTime  = time.Second          // for the other end to read why it is refused
	lingerBytes = 64 << 10
)

func (t *Transport) acceptLoop() {
	for {
		raw, err := t.cfg.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			t.news.tell(0, err, func() { t.log.Warn("accept failed", "error", err) })
			select {
			case <-t.ctx.Done():
				return
			case <-time.After(acceptWait):
			}
			continue
		}
		ip := remoteIP(raw)
		if err := t.enter(ip); err != nil || !t.hold(raw, nil) {
			if err != nil {
				t.refusals.tell(0, err, func() { t.log.Warn("connection closed unheard", "remote", ip, "error", err) })
			} else {
				t.leave(ip)
			}
			_ = raw.Close()
			continue
		}
		t.done.Go(func() { t.serve(raw, ip) })
	}
}

// remoteIP is the other end's address without its port.
func remoteIP(raw net.Conn) string {
	host, _, err := net.SplitHostPort(raw.RemoteAddr().String())
	if err != nil {
		return raw.RemoteAddr().String()
	}
	return host
}

// enter counts a handshake in progress, if there is room.
func (t *Transport) enter(ip string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if most := t.cfg.HandshakesMax; t.mu.handshakes >= most {
		return fmt.Errorf("%d handshakes are in progress", most)
	}
	if most := max(1, t.cfg.HandshakesMax/4); t.mu.perIP[ip] >= most {
		return fmt.Errorf("%d handshakes of %s are in progress", most, ip)
	}
	t.mu.handshakes++
	t.mu.perIP[ip]++
	return nil
}

func (t *Transport) leave(ip string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.handshakes--
	if t.mu.perIP[ip]--; t.mu.perIP[ip] == 0 {
		delete(t.mu.perIP, ip)
	}
}

// serve does the handshake of an accepted connection and then what it is for.
func (t *Transport) serve(raw net.Conn, ip string) {
	defer t.drop(raw)
	tune(raw)
	p, h, c, err := t.greet(raw)
	t.leave(ip)
	switch {
	case err != nil:
		t.refusals.tell(h.from, err, func() {
			t.log.Warn("connection refused", "remote", raw.RemoteAddr().String(), "member", h.from, "error", err)
		})
	case h.class == classStream:
		t.serveStream(p, c)
	default:
		t.serveFrames(p, h, c)
	}
}

// greet does the handshake of the accepting end. An error has been told to the other end
// where that is possible.
func (t *Transport) greet(raw net.Conn) (p *peer, h hello, c conn, err error) {
	slow := fmt.Errorf("no greeting within %v", t.cfg.HandshakeTimeout)
	ctx, cancel := context.WithTimeoutCause(t.ctx, t.cfg.HandshakeTimeout, slow)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	c = conn{raw, raw}
	if t.creds != nil {
		secured := tls.Server(raw, t.creds.Current())
		c.Conn = secured
		if err = secured.HandshakeContext(ctx); isPlain(err) {
			c.Conn, err = raw, errNoTLS // it can be told so
		}
	}
	if err == nil {
		h, err = readHello(c)
	}
	if err == nil {
		p, err = t.judge(h, c)
	}
	if err == nil && h.class == classStream {
		if err = p.admitStream(); err == nil {
			defer func() {
				if err != nil {
					<-p.streams
				}
			}()
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, h, c, context.Cause(ctx)
		}
		refuse(c, err)
		return nil, h, c, err
	}
	if _, err = c.Write(t.accepted().encode()); err == nil {
		_, err = readReply(c)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return p, h, c, err
}

// refuse tells the other end why, and leaves it a moment to read that: what it has sent
// meanwhile would otherwise make the kernel throw the answer away.
func refuse(c conn, reason error) {
	_ = c.raw.SetDeadline(time.Now().Add(lingerTime))
	_, _ = c.Write(reply{refusal: reason.Error()}.encode())
	if half, ok := c.raw.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c.raw, lingerBytes)
	}
}

// judge says whether the other end is who it must be, and which member that is. From before
// its address is looked at the connection is the member's, so that SetMembers ends it.
func (t *Transport) judge(h hello, c conn) (*peer, error) {
	switch {
	case h.cluster != t.cfg.Cluster:
		return nil, fmt.Errorf("cluster %016x is not this member's cluster %016x", h.cluster, t.cfg.Cluster)
	case h.to != t.cfg.ID:
		return nil, fmt.Errorf("you call member %d, this is member %d", h.to, t.cfg.ID)
	case h.from == t.cfg.ID:
		return nil, fmt.Errorf("member %d is this member's own id", h.from)
	}
	p := t.peer(h.from)
	if p == nil {
		return nil, fmt.Errorf("member %d is not a member", h.from)
	}
	if !t.hold(c.raw, p) {
		return nil, errGone
	}
	if err := checkHost(c, h.from, *p.address.Load()); err != nil {
		return nil, err
	}
	if err := t.cfg.Known(h.from, h.instance); err != nil {
		return nil, err
	}
	p.stats.about(h.version, h.features)
	return p, nil
}
