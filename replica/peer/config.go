package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/tenure-dev/tenure/replica"
)

// Config is what a Transport is made of. Cluster, ID, Instance, Advertise and Listener must
// be set; bounds that are 0 have the defaults that are named with them.
type Config struct {
	Cluster   uint64 // both ends of a connection must have the same
	ID        uint64 // of this member
	Instance  uint64 // drawn when this member's log was made
	Version   string // of the program, for the other end's information
	Features  uint64 // a bit each, for the other end's information
	Advertise string // host:port at which the other members reach this one

	// Listener accepts plain TCP connections, over which TLS is spoken if there is any.
	// The transport owns it once Open has succeeded.
	Listener net.Listener
	// TLS is nil for plain connections, which everybody on the way can read and forge.
	TLS *TLS
	// Known is asked about the other end of each new connection, once it is a member and, if
	// there is TLS, proved to be who it says; its error refuses the other end, which is told
	// the text. nil: all are fine.
	Known func(member, instance uint64) error
	// Log is nil for none.
	Log *slog.Logger

	ControlFrameMax int // bytes; 16 MiB: a question names every session that was heard of
	BulkFrameMax    int // bytes; 80 MiB: above the largest message of a client
	ControlQueueMax int // bytes that wait for a peer or are being written; 32 MiB
	BulkQueueMax    int // 160 MiB

	HandshakeTimeout time.Duration // from connecting to the last greeting; 5 s
	HandshakesMax    int           // incoming ones in progress, a quarter of them of one IP address; 128
	StreamsMax       int           // incoming ones of one peer; 4

	// PingInterval is the time between pings on a control connection; 500 ms. It must be
	// below half of every member's SilenceTimeout.
	PingInterval time.Duration
	// SilenceTimeout is how long a control connection may be silent, or take no bytes,
	// before it is given up, and the bulk connection beside it; 5 s. A Receiver that
	// blocks that long in a control frame makes its member silent.
	SilenceTimeout time.Duration
	// StallTimeout is how long a bulk connection may take no bytes, and a stream neither
	// take nor bring any; 30 s.
	StallTimeout time.Duration
	// BackoffMin and BackoffMax bound the wait between two attempts to connect, which
	// doubles each time and is shortened by a random part of up to a half; 20 ms, 1 s.
	BackoffMin, BackoffMax time.Duration

	// Dial connects to a peer; nil: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// frameHardMax is what a frame's length can say besides its mark.
const frameHardMax = 1<<30 - 1

// orDefault sets *v to def if it is zero.
func orDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// complete sets what has a default and reports what must be set.
func (c *Config) complete() error {
	orDefault(&c.ControlFrameMax, 16<<20)
	orDefault(&c.BulkFrameMax, 80<<20)
	orDefault(&c.ControlQueueMax, 32<<20)
	orDefault(&c.BulkQueueMax, 160<<20)
	orDefault(&c.HandshakeTimeout, 5*time.Second)
	orDefault(&c.HandshakesMax, 128)
	orDefault(&c.StreamsMax, 4)
	orDefault(&c.PingInterval, 500*time.Millisecond)
	orDefault(&c.SilenceTimeout, 5*time.Second)
	orDefault(&c.StallTimeout, 30*time.Second)
	orDefault(&c.BackoffMin, 20*time.Millisecond)
	orDefault(&c.BackoffMax, time.Second)
	orDefault(&c.Log, slog.New(slog.DiscardHandler))
	if c.Known == nil {
		c.Known = func(uint64, uint64) error { return nil }
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	switch {
	case c.Cluster == 0:
		return errors.New("peer: the cluster id is 0")
	case c.ID == 0:
		return errors.New("peer: the member id is 0")
	case c.Instance == 0:
		return errors.New("peer: the member's instance is 0")
	case c.Listener == nil:
		return errors.New("peer: there is no listener")
	case len(c.Version) > textMax:
		return fmt.Errorf("peer: the version has %d bytes, at most %d", len(c.Version), textMax)
	case 2*c.PingInterval > c.SilenceTimeout:
		return fmt.Errorf("peer: pings every %v cannot show within %v that a connection is silent", c.PingInterval, c.SilenceTimeout)
	}
	for class := range replica.Classes {
		frame, queue := c.frameMax(class), c.queueMax(class)
		if frame > queue || frame > frameHardMax {
			return fmt.Errorf("peer: a frame of %d bytes does not fit in a queue of %d, or is larger than %d", frame, queue, frameHardMax)
		}
	}
	return checkAddress(c.Advertise)
}

// checkAddress reports what is wrong with a member's address.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return fmt.Errorf("peer: %w", err)
	case host == "" || port == "" || port == "0" || len(address) > textMax:
		return fmt.Errorf("peer: address %.*q is not a host and a port at which a member is reached", textMax, address)
	}
	return nil
}

// frameMax and queueMax are the bounds of one class.
func (c *Config) frameMax(class replica.Class) int {
	if class == replica.Control {
		return c.ControlFrameMax
	}
	return c.BulkFrameMax
}

func (c *Config) queueMax(class replica.Class) int {
	if class == replica.Control {
		return c.ControlQueueMax
	}
	return c.BulkQueueMax
}

// writeTimeout is how long a connection may take no bytes.
func (c *Config) writeTimeout(class replica.Class) time.Duration {
	if class == replica.Control {
		return c.SilenceTimeout
	}
	return c.StallTimeout
}
