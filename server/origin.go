package server

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// originPolicy decides whether an HTTP request, a websocket upgrade too, may be served
// to a page in somebody's browser. Loopback is no defence: any page that the user
// visits can send requests there. Two rules close that:
//
//  1. Host must be a name that this server is known by. A page that rebinds its own
//     DNS name to this address still sends that name.
//  2. Origin, which browsers add and pages cannot forge, must be absent (no browser),
//     this server's own, or allowed. "null" is foreign.
//
// X-Forwarded-* and Forwarded count for nothing. An originPolicy is immutable and safe
// for concurrent use.
type originPolicy struct {
	hosts    map[string]bool // canonical
	origins  map[string]bool // canonical
	wildcard bool            // listening on all addresses: any IP address is this server's
}

func newOriginPolicy(c *Config) *originPolicy {
	p := &originPolicy{hosts: map[string]bool{"localhost": true}, origins: map[string]bool{}}
	for _, h := range c.AllowedHosts {
		p.hosts[canonicalHost(h)] = true
	}
	for _, o := range c.AllowedOrigins {
		p.origins[canonicalOrigin(o)] = true
	}
	listen, _, _ := net.SplitHostPort(c.Listen)
	if ip, err := netip.ParseAddr(listen); listen == "" || err == nil && ip.IsUnspecified() {
		p.wildcard = true
	} else {
		p.hosts[canonicalHost(listen)] = true
	}
	return p
}

// wrap answers 403 instead of h where the policy forbids it.
func (p *originPolicy) wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := p.check(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// check returns why r must not be served, nil if it may.
func (p *originPolicy) check(r *http.Request) error {
	host, _ := splitHost(r.Host)
	if !p.knows(host) {
		return fmt.Errorf("host %q is not a name of this server; allowed-hosts can add it", r.Host)
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return nil
	}
	origin := canonicalOrigin(origins[0])
	if len(origins) == 1 && origin != "" && (p.origins[origin] || origin == ownOrigin(r)) {
		return nil
	}
	return fmt.Errorf("origin %q may not use this server; allowed-origins can allow it", strings.Join(origins, ", "))
}

// knows reports whether host, in canonical form, is a name of this server.
func (p *originPolicy) knows(host string) bool {
	if p.hosts[host] {
		return true
	}
	ip, err := netip.ParseAddr(host)
	// An address cannot be rebound, so behind a wildcard any will do.
	return err == nil && (ip.Unmap().IsLoopback() || p.wildcard)
}

// ownOrigin is the origin of a page that came from where r goes to.
func ownOrigin(r *http.Request) string {
	if overTLS(r) {
		return canonicalOrigin("https://" + r.Host)
	}
	return canonicalOrigin("http://" + r.Host)
}

// overTLS reports whether r came over TLS. net/http only says so of connections that are
// a *tls.Conn themselves, not of one inside a gatherConn.
func overTLS(r *http.Request) bool {
	if g, ok := r.Context().Value(connKey{}).(*gatherConn); ok {
		return tlsState(g.Conn) != nil
	}
	return r.TLS != nil
}

// splitHost separates a Host header into canonical host and port ("" if absent). The
// host is "" if the header is malformed.
func splitHost(hostport string) (host, port string) {
	if h, p, err := net.SplitHostPort(hostport); err == nil {
		return canonicalHost(h), p
	}
	if inner, found := strings.CutPrefix(hostport, "["); found {
		inner, found = strings.CutSuffix(inner, "]")
		if !found {
			return "", ""
		}
		hostport = inner
	}
	return canonicalHost(hostport), ""
}

// canonicalHost makes equal hosts equal texts: lower case, no final dot, addresses in
// their standard form. It returns "" for what is neither name nor address.
func canonicalHost(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	if strings.ContainsAny(host, ":/@[]* \\") {
		return ""
	}
	return host
}

// canonicalOrigin makes equal origins equal texts, with the port always given. It
// returns "" for "null" and for what is no http or https origin.
func canonicalOrigin(origin string) string {
	u, err := url.Parse(strings.ToLower(origin))
	if err != nil || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return ""
	}
	host, port := splitHost(u.Host)
	if port == "" {
		switch u.Scheme {
		case "http":
			port = "80"
		case "https":
			port = "443"
		}
	}
	if host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return ""
	}
	return u.Scheme + "://" + net.JoinHostPort(host, port)
}
