package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/znode"
)

// Options configures Connect. The zero value of a field means its default. Connect
// copies it, so that it may be used again.
type Options struct {
	// Endpoints are tried in random order: "host:port", "ws://host:port" or
	// "wss://host:port"; without a scheme it is wss if TLS is set; the default port is
	// 2180. Names are resolved anew on every attempt. A path behind the port
	// ("ws://h:2180/app") is a chroot: all paths given and returned are below it. It
	// must be the same in all endpoints.
	Endpoints []string
	// Timeout is the session timeout to ask for, default 10 s. The granted one is
	// Session.Timeout.
	Timeout time.Duration
	// TLS is the configuration for wss endpoints; nil trusts the system's roots.
	TLS *tls.Config
	// Auth is presented on each new connection, before anything else.
	Auth []Auth
	// Log receives what happens to connections and sessions, default nothing.
	Log *slog.Logger
	// Dial replaces net.Dialer.DialContext, for tests and proxies. It resolves addr.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Window bounds the requests that may be outstanding at once, default 1024; the
	// callers of more wait.
	Window int
	// RequestBytesMax bounds one encoded request, default 1 MiB - 1, which is the
	// server's default. A longer one is refused locally with ErrTooLarge.
	RequestBytesMax int
	// ReplyBytesMax bounds one reply, default 64 MiB. A longer one costs the connection.
	ReplyBytesMax int64
}

// Auth is one identity to present: scheme "digest" with "user:password", or "token"
// with the server's admin token. It never appears in logs or errors.
type Auth struct{ Scheme, Secret string }

// String hides the secret from every formatted output.
func (a Auth) String() string { return a.Scheme + ":(secret)" }

// GoString hides the secret from %#v.
func (a Auth) GoString() string { return a.String() }

const (
	timeoutDefault         = 10 * time.Second
	windowDefault          = 1024
	requestBytesMaxDefault = 1<<20 - 1
	replyBytesMaxDefault   = 64 << 20
	portDefault            = "2180"
	doorPath               = "/v1/ws"
	subprotocol            = "tenure.v1.jute"
)

// endpoint is one parsed entry of Options.Endpoints.
type endpoint struct {
	url    string // of the websocket door
	name   string // scheme and address, for errors and logs
	chroot string // "" or "/app"
}

// withDefaults returns o with its defaults filled in, and its endpoints.
func (o Options) withDefaults() (Options, []endpoint, error) {
	if o.Timeout == 0 {
		o.Timeout = timeoutDefault
	}
	if o.Timeout < time.Millisecond || o.Timeout.Milliseconds() > 1<<31-1 {
		return o, nil, fmt.Errorf("client: Options.Timeout %v must be from 1ms to 2147483647ms", o.Timeout)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	if o.Window == 0 {
		o.Window = windowDefault
	}
	if o.RequestBytesMax == 0 {
		o.RequestBytesMax = requestBytesMaxDefault
	}
	if o.ReplyBytesMax == 0 {
		o.ReplyBytesMax = replyBytesMaxDefault
	}
	if o.Window < 1 || o.RequestBytesMax < 1 || o.ReplyBytesMax < 1 {
		return o, nil, fmt.Errorf("client: Options.Window %d, RequestBytesMax %d and ReplyBytesMax %d must be positive",
			o.Window, o.RequestBytesMax, o.ReplyBytesMax)
	}
	o.Auth = append([]Auth(nil), o.Auth...)
	eps, err := parseEndpoints(o.Endpoints, o.TLS != nil)
	return o, eps, err
}

func parseEndpoints(list []string, secure bool) ([]endpoint, error) {
	if len(list) == 0 {
		return nil, errors.New("client: Options.Endpoints is empty")
	}
	eps := make([]endpoint, 0, len(list))
	for _, s := range list {
		ep, err := parseEndpoint(s, secure)
		if err != nil {
			return nil, err
		}
		if len(eps) > 0 && eps[0].chroot != ep.chroot {
			return nil, fmt.Errorf("client: endpoints %q and %q must have the same path", list[0], s)
		}
		eps = append(eps, ep)
	}
	return eps, nil
}

func parseEndpoint(s string, secure bool) (endpoint, error) {
	text := s
	if !strings.Contains(text, "://") {
		if secure {
			text = "wss://" + text
		} else {
			text = "ws://" + text
		}
	}
	u, err := url.Parse(text)
	if err != nil {
		return endpoint{}, fmt.Errorf("client: endpoint %q: %w", s, err)
	}
	if u.Scheme != "ws" && u.Scheme != "wss" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return endpoint{}, fmt.Errorf("client: endpoint %q must be host:port, ws://host:port or wss://host:port, with a path if all paths are below it", s)
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), portDefault)
	}
	chroot := strings.TrimSuffix(u.Path, "/")
	if chroot != "" {
		if err := znode.ValidatePath(chroot); err != nil {
			return endpoint{}, fmt.Errorf("client: endpoint %q: %w", s, err)
		}
	}
	name := u.Scheme + "://" + host
	return endpoint{url: name + doorPath, name: name, chroot: chroot}, nil
}
