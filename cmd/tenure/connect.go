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
	"sync"
	"time"

	"github.com/tenure-dev/tenure/client"
	"github.com/tenure-dev/tenure/recipes"
	"github.com/tenure-dev/tenure/recipes/native"
	zkrecipes "github.com/tenure-dev/tenure/recipes/zk"
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
	zk     bool // a ZooKeeper
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

// servers returns the endpoints that the flags, else the environment, name: either all
// are Tenure servers or all are one ZooKeeper's.
func (a *app) servers() ([]endpoint, error) {
	names := a.endpoints
	if len(names) == 0 {
		names = strings.Split(os.Getenv("TENURE_ENDPOINTS"), ",")
	}
	secure := a.cacert != "" || a.cert != "" || a.insecureTLS
	if all := strings.Join(names, ","); strings.HasPrefix(strings.TrimSpace(all), zkScheme) {
		return parseZKAddress(all, secure)
	}
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

// tenureServers is servers for a command that only Tenure has.
func (a *app) tenureServers(command string) ([]endpoint, error) {
	servers, err := a.servers()
	if err == nil && servers[0].zk {
		return nil, usagef("%s: ZooKeeper has no such operation, and %s%s is one", command, zkScheme, where(servers))
	}
	return servers, err
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

// identities returns what to present to a Tenure server: --auth, else TENURE_AUTH, and
// the admin token.
func (a *app) identities() ([]client.Auth, error) {
	all, err := a.ownIdentities()
	if err != nil {
		return nil, err
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

// ownIdentities returns the identities that --auth, else TENURE_AUTH, gives.
func (a *app) ownIdentities() ([]client.Auth, error) {
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
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	c, err := a.connect(ctx, servers)
	if err != nil {
		return err
	}
	err = verb(ctx, c)
	if closeErr := c.tree.Close(); err == nil && closeErr != nil && !errors.Is(closeErr, client.ErrClosed) {
		err = &requestError{c.where, closeErr}
	}
	return err
}

// withTenure is withConn for a command that only Tenure has.
func (a *app) withTenure(ctx context.Context, command string, verb func(ctx context.Context, c *conn) error) error {
	if _, err := a.tenureServers(command); err != nil {
		return err
	}
	return a.withConn(ctx, verb)
}

// connect opens a session whose tree the verbs use.
func (a *app) connect(ctx context.Context, servers []endpoint) (*conn, error) {
	c := &conn{where: where(servers), limit: a.limit(), read: client.ReadOptions{Stale: a.stale}}
	return reach(ctx, a, servers, func(ctx context.Context, o zkOptions) (_ *conn, err error) {
		c.tree, err = connectZK(ctx, o)
		return c, err
	}, func(ctx context.Context, o client.Options) (_ *conn, err error) {
		c.client, err = client.Connect(ctx, o)
		c.tree = tenureTree{c.client}
		return c, err
	})
}

// openStore opens a session for the recipes. The caller closes the store.
func (a *app) openStore(ctx context.Context) (recipes.Store, error) {
	servers, err := a.servers()
	if err != nil {
		return nil, err
	}
	return reach(ctx, a, servers, func(ctx context.Context, o zkOptions) (recipes.Store, error) {
		var failure dialFailure
		s := zkrecipes.Options{Servers: o.servers, Chroot: o.chroot, Timeout: o.timeout, TLS: o.tls, Dial: failure.dial}
		for _, id := range o.auth {
			s.Auth = append(s.Auth, zkrecipes.Auth(id))
		}
		store, err := zkrecipes.Connect(ctx, s)
		return store, failure.explain(err)
	}, func(ctx context.Context, o client.Options) (recipes.Store, error) { return native.Connect(ctx, o) })
}

// dialFailure keeps why the last connection could not be made. Any number of goroutines
// may dial.
type dialFailure struct {
	mu  sync.Mutex
	err error
}

func (f *dialFailure) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	return conn, err
}

// explain adds the failure to err, if there are both.
func (f *dialFailure) explain(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil || f.err == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, f.err)
}

// reach opens a session with servers by the function of their kind, within the limit:
// the one place that tells ZooKeeper from Tenure. A failure names the address and the
// cause.
func reach[T any](ctx context.Context, a *app, servers []endpoint,
	zookeeper func(context.Context, zkOptions) (T, error), tenure func(context.Context, client.Options) (T, error)) (opened T, err error) {
	var none T
	limit := min(a.limit(), connectLimit)
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if servers[0].zk {
		o, wrong := a.zkOptions(servers)
		if wrong != nil {
			return none, wrong
		}
		opened, err = zookeeper(bounded, o)
	} else {
		o, wrong := a.options(servers)
		if wrong != nil {
			return none, wrong
		}
		opened, err = tenure(bounded, o)
	}
	if err == nil {
		return opened, nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return none, ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return none, &requestError{fmt.Sprintf("no session with %s within %v", where(servers), limit), err}
	}
	if exitCode(err) == exitError { // whatever it was, no session came of it
		err = &codeError{exitUnreachable, err}
	}
	return none, &requestError{"no session with " + where(servers), err}
}
