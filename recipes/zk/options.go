package zk

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/znode"
)

// Options configures Connect. The zero value of a field means its default.
type Options struct {
	// Servers are host:port, tried in turn from a random one on. Names are resolved anew
	// on every attempt; the default port is 2181.
	Servers []string
	// Chroot is put before all paths and taken off all that are returned. Connect makes
	// it, of persistent znodes, if it is missing. "" and "/" are none.
	Chroot string
	// Timeout is the session timeout to ask for, default 10 s. Servers grant between 2
	// and 20 of their ticks.
	Timeout time.Duration
	// Auth is presented on each connection before any call is made.
	Auth []Auth
	// ACL is the access list of every znode made, default znode.OpenACL.
	ACL []znode.ACL
	// TLS, if set, is used on every connection. An empty ServerName is the server's host.
	TLS *tls.Config
	// Dial replaces net.Dialer.DialContext, for tests and proxies. It resolves addr.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Log receives what happens to sessions, default nothing; at debug level what the
	// library says.
	Log *slog.Logger
}

// Auth is one identity to present, such as scheme "digest" with "user:password". A plain
// value that never appears in logs or errors.
type Auth struct{ Scheme, Secret string }

// String hides the secret from every formatted output.
func (a Auth) String() string { return a.Scheme + ":(secret)" }

// GoString hides the secret from %#v.
func (a Auth) GoString() string { return a.String() }

const (
	timeoutDefault = 10 * time.Second
	portDefault    = "2181"
	scheme         = "zk://"
)

// ParseAddress reads "zk://host:port,host:port/chroot" as Servers and Chroot of Options.
// The port may be left out, and so may the chroot, which is then "".
func ParseAddress(address string) (servers []string, chroot string, err error) {
	rest, ok := strings.CutPrefix(address, scheme)
	if !ok {
		return nil, "", fmt.Errorf("%w: address %q must start with %s", recipes.ErrInvalid, address, scheme)
	}
	hosts, chroot := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		hosts, chroot = rest[:i], rest[i:]
	}
	for _, host := range strings.Split(hosts, ",") {
		server, err := withPort(host)
		if err != nil {
			return nil, "", fmt.Errorf("address %q: %w", address, err)
		}
		servers = append(servers, server)
	}
	if chroot, err = cleanChroot(chroot); err != nil {
		return nil, "", fmt.Errorf("address %q: %w", address, err)
	}
	return servers, chroot, nil
}

// withPort returns server with the default port if it has none.
func withPort(server string) (string, error) {
	host, port, err := net.SplitHostPort(server)
	if err != nil { // no port: a name, an IPv4 address, or an IPv6 address in brackets
		host, port = server, portDefault
		if inner, ok := strings.CutPrefix(server, "["); ok {
			host = strings.TrimSuffix(inner, "]")
		} else if strings.Contains(server, ":") {
			host = ""
		}
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil || host == "" || strings.ContainsAny(host, "[]@/ ") {
		return "", fmt.Errorf("%w: server %q must be host or host:port", recipes.ErrInvalid, server)
	}
	return net.JoinHostPort(host, port), nil
}

// cleanChroot returns "" for none.
func cleanChroot(chroot string) (string, error) {
	if chroot == "" || chroot == znode.Root {
		return "", nil
	}
	if err := znode.ValidatePath(chroot); err != nil {
		return "", fmt.Errorf("%w: chroot: %w", recipes.ErrInvalid, err)
	}
	return chroot, nil
}

// withDefaults checks o and fills in its defaults.
func (o Options) withDefaults() (Options, error) {
	if o.Timeout == 0 {
		o.Timeout = timeoutDefault
	}
	if o.Timeout < time.Millisecond || o.Timeout.Milliseconds() > math.MaxInt32 {
		return o, fmt.Errorf("%w: Options.Timeout %v must be from 1ms to %dms", recipes.ErrInvalid, o.Timeout, math.MaxInt32)
	}
	if len(o.Servers) == 0 {
		return o, fmt.Errorf("%w: Options.Servers is empty: name one server at least", recipes.ErrInvalid)
	}
	servers := make([]string, len(o.Servers))
	for i, server := range o.Servers {
		var err error
		if servers[i], err = withPort(server); err != nil {
			return o, err
		}
	}
	o.Servers = servers
	var err error
	if o.Chroot, err = cleanChroot(o.Chroot); err != nil {
		return o, err
	}
	if len(o.ACL) == 0 {
		o.ACL = znode.OpenACL
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}
