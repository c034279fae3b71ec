package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/client"
)

const (
	defaultEndpoint = "127.0.0.1:2180"
	defaultPort     = "2180"
	// requestLimit bounds each request where --timeout does not say.
	requestLimit = 10 * time.Second
	// connectLimit bounds connecting: long enough for a server that restarts.
	connectLimit = 5 * time.Second
)

// endpoint is one server to use.
type endpoint struct {
	secure bool
	host   string // host:port
	chroot string // "" or a path
}

// url is the endpoint as client.Options takes it.
func (e endpoint) url() string {
	if e.secure {
		return "wss://" + e.host + e.chroot
	}
	return "ws://" + e.host + e.chroot
}

// http is the address of the endpoint's HTTP requests, without a path.
func (e endpoint) http() string {
	if e.secure {
		return "https://" + e.host
	}
	return "http://" + e.host
}

// parseEndpoint reads HOST, HOST:PORT, ws://HOST:PORT or wss://HOST:PORT, the last
// three with a path for a chroot. secure is for one without a scheme.
func parseEndpoint(s string, secure bool) (endpoint, error) {
	e := endpoint{secure: secure}
	rest := s
	if scheme, after, ok := strings.Cut(s, "://"); ok {
		switch scheme {
		case "ws", "http":
			e.secure = false
		case "wss", "https":
			e.secure = true
		default:
			return e, usagef("endpoint %q: the scheme must be ws or wss", s)
		}
		rest = after
	}
	// The URL parser knows brackets of IPv6 and what may be in a host.
	u, err := url.Parse("ws://" + rest)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return e, usagef("endpoint %q: want HOST:PORT, ws://HOST:PORT or wss://HOST:PORT", s)
	}
	port := u.Port()
	if port == "" {
		port = defaultPort
	}
	e.host = net.JoinHostPort(u.Hostname(), port)
	e.chroot = strings.TrimSuffix(u.EscapedPath(), "/")
	return e, nil
}

// servers returns the endpoints that the flags, else the environment, name.
func (a *app) servers() ([]endpoint, error) {
	names := a.endpoints
	if len(names) == 0 {
		names = strings.Split(os.Getenv("TENURE_ENDPOINTS"), ",")
	}
	secure := a.cacert != "" || a.cert != "" || a.insecureTLS
	var all []endpoint
	for _, name := range names {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		e, err := parseEndpoint(name, secure)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	if len(all) == 0 {
		all = []endpoint{{secure: secure, host: defaultEndpoint}}
	}
	return all, nil
}

// tlsConfig builds what the TLS flags ask for. With none of them it is the default
// of crypto/tls, which trusts the system's CAs.
func (a *app) tlsConfig() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: a.insecureTLS}
	if a.cacert != "" {
		pem, err := readFileMax(a.cacert, 16<<20)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--cacert %s: there is no certificate (PEM) in it", a.cacert)
		}
	}
	if a.cert != "" {
		pair, err := tls.LoadX509KeyPair(a.cert, a.key)
		if err != nil {
			return nil, usagef("--cert %s, --key %s: %v", a.cert, a.key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// identities returns what to present to the server: --auth, else TENURE_AUTH, and
// the admin token.
func (a *app) identities() ([]client.Auth, error) {
	from, list := "--auth", a.auth
	if len(list) == 0 {
		from, list = "TENURE_AUTH", strings.Split(os.Getenv("TENURE_AUTH"), "\n")
	}
	var all []client.Auth
	for _, entry := range list {
		if entry = strings.TrimSuffix(entry, "\r"); entry == "" {
			continue
		}
		scheme, secret, ok := strings.Cut(entry, ":")
		if !ok || scheme == "" || secret == "" {
			// The entry may be a misplaced password: it is not repeated.
			return nil, usagef("%s: want SCHEME:SECRET, as in digest:user:password", from)
		}
		all = append(all, client.Auth{Scheme: scheme, Secret: secret})
	}
	token, err := a.adminToken()
	if err != nil {
		return nil, err
	}
	if token != "" {
		all = append(all, client.Auth{Scheme: "token", Secret: token})
	}
	return all, nil
}

// adminToken reads the token file that --token-file, else the environment, names; ""
// if neither does.
func (a *app) adminToken() (string, error) {
	name := a.tokenFile
	if name == "" {
		name = os.Getenv("TENURE_TOKEN_FILE")
	}
	if name == "" {
		return "", nil
	}
	data, err := readFileMax(name, secretMax)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", usagef("token file %s: is empty", name)
	}
	return token, nil
}

// options builds the client's options for servers.
func (a *app) options(servers []endpoint) (client.Options, error) {
	o := client.Options{Timeout: a.sessionTimeout}
	for _, e := range servers {
		o.Endpoints = append(o.Endpoints, e.url())
	}
	var err error
	if o.TLS, err = a.tlsConfig(); err != nil {
		return o, err
	}
	o.Auth, err = a.identities()
	return o, err
}

// where names servers in messages.
func where(servers []endpoint) string {
	names := make([]string, len(servers))
	for i, e := range servers {
		names[i] = e.host + e.chroot
	}
	return strings.Join(names, ", ")
}

// limit is how long one request may take.
func (a *app) limit() time.Duration {
	if a.timeout > 0 {
		return a.timeout
	}
	return requestLimit
}

// withConn connects, calls verb, and ends the session. The context that verb gets
// ends with --timeout or an interrupt.
func (a *app) withConn(ctx context.Context, verb func(ctx context.Context, c *conn) error) error {
	servers, err := a.servers()
	if err != nil {
		return err
	}
	o, err := a.options(servers)
	if err != nil {
		return err
	}
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	c, err := connect(ctx, o, where(servers), a.limit(), a.stale)
	if err != nil {
		return err
	}
	err = verb(ctx, c)
	if closeErr := c.client.Close(); err == nil && closeErr != nil && !errors.Is(closeErr, client.ErrClosed) {
		err = &requestError{c.where, closeErr}
	}
	return err
}

// connect opens a session within limit. A failure names the address and the cause.
func connect(ctx context.Context, o client.Options, where string, limit time.Duration, stale bool) (*conn, error) {
	c := &conn{where: where, limit: limit, read: client.ReadOptions{Stale: stale}}
	limit = min(limit, connectLimit)
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var err error
	if c.client, err = client.Connect(bounded, o); err == nil {
		return c, nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, &requestError{fmt.Sprintf("no session with %s within %v", where, limit), err}
	}
	if exitCode(err) == exitError { // whatever it was, no session came of it
		err = &codeError{exitUnreachable, err}
	}
	return nil, &requestError{"no session with " + where, err}
}
