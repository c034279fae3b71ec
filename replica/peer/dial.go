package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/tenure-dev/tenure/replica"
)

// Kernel keep-alives find the end of connections on which nothing is sent: bulk ones of
// which the other end went away without a word.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 5}

func tune(raw net.Conn) {
	if c, ok := raw.(*net.TCPConn); ok {
		_ = c.SetNoDelay(true)
		_ = c.SetKeepAliveConfig(keepAlive)
	}
}

// dial makes a connection to a peer and does its greetings. The result is held; the
// caller drops it.
func (t *Transport) dial(ctx context.Context, p *peer, class replica.Class, link uint64) (conn, error) {
	address := *p.address.Load()
	ctx, cancel := context.WithTimeoutCause(ctx, t.cfg.HandshakeTimeout,
		fmt.Errorf("no connection and greeting within %v", t.cfg.HandshakeTimeout))
	defer cancel()
	c, err := t.connect(ctx, p, address, hello{
		protocol: protocolVersion, cluster: t.cfg.Cluster, from: t.cfg.ID, to: p.id, instance: t.cfg.Instance,
		link: link, features: t.cfg.Features, class: class, version: t.cfg.Version, address: t.cfg.Advertise,
	})
	if err == nil {
		return c, nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return conn{}, fmt.Errorf("member %d at %s: %w", p.id, address, err)
}

func (t *Transport) connect(ctx context.Context, p *peer, address string, h hello) (conn, error) {
	raw, err := t.cfg.Dial(ctx, "tcp", address)
	if err != nil {
		return conn{}, err
	}
	tune(raw)
	if !t.hold(raw, p) {
		_ = raw.Close()
		return conn{}, errGone
	}
	if *p.address.Load() != address { // SetMembers ends only what was held before
		t.drop(raw)
		return conn{}, errors.New("the member has moved")
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	c := conn{raw, raw}
	if t.creds != nil {
		c.Conn, err = t.secure(ctx, raw, address)
	}
	if err == nil {
		err = t.introduce(c, p, h)
	}
	if !stop() && err == nil {
		err = ctx.Err() // raw is closed, or about to be
	}
	if err != nil {
		t.drop(raw)
		return conn{}, err
	}
	return c, nil
}

// secure does the TLS handshake of a dialed connection.
func (t *Transport) secure(ctx context.Context, raw net.Conn, address string) (net.Conn, error) {
	config, err := dialConfig(t.creds.Current(), address)
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, config)
	if err := c.HandshakeContext(ctx); err != nil {
		if isPlain(err) {
			return nil, errNoTLS
		}
		return nil, err
	}
	return c, nil
}

// introduce does the greetings of the dialing end.
func (t *Transport) introduce(c conn, p *peer, h hello) error {
	if _, err := c.Write(h.encode()); err != nil {
		return err
	}
	answer, err := readReply(c)
	if err != nil {
		return tlsAlert(err)
	}
	if err := t.cfg.Known(p.id, answer.instance); err != nil {
		_, _ = c.Write(reply{refusal: err.Error()}.encode())
		return fmt.Errorf("this member refuses it: %w", err)
	}
	p.stats.about(answer.version, answer.features)
	_, err = c.Write(t.accepted().encode())
	return err
}

// accepted is the reply that accepts the other end.
func (t *Transport) accepted() reply {
	return reply{instance: t.cfg.Instance, features: t.cfg.Features, version: t.cfg.Version}
}

// tlsAlert says of an error that the other end ended TLS, which with TLS 1.3 is how the
// dialing end learns that its certificate is not accepted.
func tlsAlert(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return fmt.Errorf("it does not accept this member's certificate: %w", err)
	}
	return err
}
