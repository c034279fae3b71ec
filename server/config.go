package server

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

// Config is everything that can be set about one member. The zero value of a field
// means its default, which config_table.go states once for flags, environment, file
// and code alike. A Config is a plain value: copy it freely, and do not change it
// after Open.
type Config struct {
	// DataDir holds all state. Required.
	DataDir string
	// Listen is the address of websocket and HTTP, default 127.0.0.1:2180. Port 0
	// picks a free one.
	Listen string
	// ZKListen is the address of ZooKeeper's own protocol in plain text, default
	// 127.0.0.1:2181; "none" serves none. ZKTLSListen is that above TLS, by default none.
	ZKListen, ZKTLSListen string
	// ZKWords are the four-letter words that are answered there, "*" for all, as
	// ZooKeeper's 4lw.commands.whitelist. The default has those that name no client and
	// no znode, cost the same whatever the server holds, and change nothing. They open
	// the commands of the same names below /commands on Listen, too.
	ZKWords []string

	// MemberID is this member's number among those of the ensemble, 1 to 255, default 1.
	// It is never given to another member, also not after this one was removed.
	MemberID int
	// PeerListen is the address for the other members; "none", the default, has none, and
	// the member stays alone. PeerAdvertise is what the others dial, by default this
	// member's address in InitialMembers, else PeerListen.
	PeerListen, PeerAdvertise string
	// PeerTLS applies to PeerListen and to what this member dials.
	PeerTLS PeerTLSConfig
	// ClusterName, default "tenure", tells ensembles apart that have the same addresses.
	ClusterName string
	// InitialMembers are the founders of the ensemble, "1=zoo1:2182", the same on each of
	// them; or, with Join, some members to ask. Once the log has begun, the members are
	// those that it says, and this setting has no effect.
	InitialMembers []string
	// Join begins empty and waits to be added to the ensemble of ClusterID, which
	// `tenure member add` prints.
	Join      bool
	ClusterID string
	// ElectionTimeout is how long a leader may be silent before the others elect one,
	// default 1 s.
	ElectionTimeout time.Duration
	// LogKeepBytes bounds the log that a leader keeps for members that lag or are away; those
	// that lack more are sent a snapshot. SnapshotRate bounds the bytes per second of all
	// snapshots that this member sends.
	LogKeepBytes, SnapshotRate int64

	// TLS applies to Listen and ZKTLSListen.
	TLS TLSConfig
	// Insecure allows addresses to be reachable from other machines without TLS that
	// requires client certificates.
	Insecure bool
	// AllowedOrigins are further origins ("https://console.example.com") whose pages
	// may use this server from a browser. Its own origin always may.
	AllowedOrigins []string
	// AllowedHosts are further names that clients may know this server by: the host
	// part of the HTTP Host header. Loopback names and the host of Listen always are.
	AllowedHosts []string

	// MinSessionTimeout and MaxSessionTimeout bound what sessions negotiate, default
	// 1 s and 40 s.
	MinSessionTimeout, MaxSessionTimeout time.Duration
	// ZKMinSessionTimeout and ZKMaxSessionTimeout do so for clients of ZooKeeper's
	// protocol, default 4 s and 40 s: ZooKeeper's own 2 and 20 ticks of 2 s.
	ZKMinSessionTimeout, ZKMaxSessionTimeout time.Duration
	// MaxMessageBytes bounds one request and one reply, default 1048575: the rule of
	// ZooKeeper's jute.maxbuffer, which clients must agree on.
	MaxMessageBytes int64
	// ZKMaxReplyBytes bounds one reply to a client of ZooKeeper's protocol, default 64 MiB:
	// it has no pages, and ZooKeeper leaves long lists of children to the client's limit.
	ZKMaxReplyBytes int64
	// MaxConnections bounds open connections, default 50 000; MaxConnectionsPerIP those
	// from one address, default 20 000. One more is closed at once.
	MaxConnections, MaxConnectionsPerIP int
	// MaxSessions bounds open sessions, default 1 000 000. One more is refused.
	MaxSessions int
	// MaxWatches bounds watches, default 5 000 000; MaxWatchesPerConnection those of one
	// connection, default 200 000. The request that sets one more is refused.
	MaxWatches, MaxWatchesPerConnection int
	// MaxOutstanding bounds the unanswered requests of one connection, default 2048.
	// MaxOutstandingTotal bounds those of all connections together, default 100 000, as
	// ZooKeeper's globalOutstandingLimit: beyond it a connection that has one already is
	// not read. MaxOutstandingBytes bounds their bytes, default 256 MiB.
	MaxOutstanding, MaxOutstandingTotal int
	MaxOutstandingBytes                 int64
	// OutboxBytes bounds what waits for one connection to read it, default 8 MiB, besides
	// the read that it asked for. Beyond it the connection is closed; its session lives on.
	OutboxBytes int
	// HandshakeTimeout bounds TLS handshake, HTTP header and the first message, each,
	// default 10 s. WriteTimeout bounds one write to a client, default 10 s.
	HandshakeTimeout, WriteTimeout time.Duration

	// CacheBytes bounds decoded znodes kept in memory, default 32 MiB.
	CacheBytes int64
	// History is what watches can catch up from, bounded by changes (default
	// 1 000 000), bytes (256 MiB) and age (1 h), whichever is reached first.
	HistoryCount int64
	HistoryBytes int64
	HistoryAge   time.Duration
	// MaxDataBytes is the size of the state above which growth is refused
	// (QuotaExceeded): data, and 128 bytes per znode; 0, the default, is no such bound.
	MaxDataBytes int64
	// MinFreeDiskBytes is the reserve: with less free space under DataDir growth is
	// refused, so that deletes and a restart still have room. Default 64 MiB.
	MinFreeDiskBytes int64
	// ReapInterval is how often emptied containers and outlived TTL znodes are looked
	// for, default 60 s.
	ReapInterval time.Duration
	// NoTTL refuses TTL znodes, like ZooKeeper's extendedTypesEnabled=false.
	NoTTL bool
	// ReconfigEnabled lets ZooKeeper's reconfig change the members: ZooKeeper's
	// reconfigEnabled. A member that can have no others answers Unimplemented, as a standalone
	// ZooKeeper does.
	ReconfigEnabled bool
	// EnforceQuota makes hard quotas refuse writes instead of only being logged.
	EnforceQuota bool
	// SuperDigest, "super:" and the base64 SHA-1 of "super:password", names the digest
	// identity that no ACL binds, like ZooKeeper's superDigest. Empty = none.
	SuperDigest Secret

	// LogFormat is text (default) or json; LogLevel debug, info (default), warn or error.
	LogFormat, LogLevel string
	// ShutdownTimeout bounds an orderly stop, default 10 s.
	ShutdownTimeout time.Duration
}

// TLSConfig names the files of TLS, all PEM. They are read again when they change.
type TLSConfig struct {
	// CertFile and KeyFile turn TLS on. The certificate needs subject alternative
	// names: nobody looks at the common name.
	CertFile, KeyFile string
	// ClientCAFile holds the authorities that client certificates are verified against.
	ClientCAFile string
	// ClientAuth is none (default), request (a certificate is optional, but a bad one
	// is refused) or require.
	ClientAuth string
}

// Values of TLSConfig.ClientAuth.
const (
	ClientAuthNone    = "none"
	ClientAuthRequest = "request"
	ClientAuthRequire = "require"
)

// ConfigError is one setting that breaks a rule.
type ConfigError struct {
	Key    string // the setting's name, as in the file: "max-sessions"
	Value  string // as it was given; redacted if secret
	Source string // where it was given; "" if not known
	Rule   string // what is allowed
}

// Error names key, value, source and rule.
func (e *ConfigError) Error() string {
	from := ""
	if e.Source != "" {
		from = " (from " + e.Source + ")"
	}
	return fmt.Sprintf("%s = %q%s: %s", e.Key, e.Value, from, e.Rule)
}

// WithDefaults returns c with every zero field set to its default.
func (c Config) WithDefaults() Config {
	for i := range settings {
		if v := settings[i].value(&c); settings[i].def != "" && v.isZero() {
			if err := v.set(settings[i].def); err != nil {
				panic(fmt.Sprintf("server: default of %s: %v", settings[i].name, err))
			}
		}
	}
	return c
}

// Validate checks every setting and their combination, with defaults for zero
// fields. Its error joins one *ConfigError per broken rule.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	for i := range settings {
		if err := settings[i].value(&c).check(); err != nil {
			errs = append(errs, settings[i].error(settings[i].value(&c).get(), err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	fail := func(key, value, rule string) {
		errs = append(errs, &ConfigError{Key: key, Value: value, Rule: rule})
	}
	if c.DataDir == "" {
		fail("data-dir", "", "is required: the directory that holds all state")
	}
	c.validateAddresses(fail)
	c.validateTLS(fail)
	c.validateMembers(fail)
	for _, t := range []struct {
		prefix   string
		min, max time.Duration
	}{{"", c.MinSessionTimeout, c.MaxSessionTimeout}, {"zk-", c.ZKMinSessionTimeout, c.ZKMaxSessionTimeout}} {
		if t.min > t.max {
			fail(t.prefix+"min-session-timeout", t.min.String(),
				"must not be above "+t.prefix+"max-session-timeout = "+t.max.String())
		}
	}
	if c.ZKMaxReplyBytes < c.MaxMessageBytes {
		fail("zk-max-reply-bytes", formatBytes(c.ZKMaxReplyBytes),
			"must hold a message of max-message-bytes = "+formatBytes(c.MaxMessageBytes))
	}
	if int64(c.OutboxBytes) < 2*c.MaxMessageBytes {
		fail("outbox-bytes", formatBytes(int64(c.OutboxBytes)),
			"must hold two messages of max-message-bytes = "+formatBytes(c.MaxMessageBytes))
	}
	if c.MaxOutstandingBytes < 2*c.MaxMessageBytes {
		fail("max-outstanding-bytes", formatBytes(c.MaxOutstandingBytes),
			"must hold two messages of max-message-bytes = "+formatBytes(c.MaxMessageBytes))
	}
	return errors.Join(errs...)
}

func (c *Config) validateAddresses(fail func(key, value, rule string)) {
	seen := map[string]string{}
	for _, l := range []struct{ key, addr string }{
		{"listen", c.Listen}, {"zk-listen", c.ZKListen}, {"zk-tls-listen", c.ZKTLSListen}, {"peer-listen", c.PeerListen},
	} {
		if l.addr == "" || l.addr == addressNone {
			continue
		}
		_, port, _ := net.SplitHostPort(l.addr) // form already checked
		if first, taken := seen[port]; taken && port != "0" {
			fail(l.key, l.addr, "must not have the port of "+first)
		}
		seen[port] = l.key
	}
}

func (c *Config) validateTLS(fail func(key, value, rule string)) {
	t := c.TLS
	if (t.CertFile == "") != (t.KeyFile == "") {
		fail("tls-cert", t.CertFile, fmt.Sprintf("must be set together with tls-key = %q", t.KeyFile))
	}
	verifies := t.ClientAuth == ClientAuthRequest || t.ClientAuth == ClientAuthRequire
	switch {
	case verifies && t.ClientCAFile == "":
		fail("tls-client-auth", t.ClientAuth, "needs tls-client-ca, the authorities to verify against")
	case verifies && t.CertFile == "":
		fail("tls-client-auth", t.ClientAuth, "needs tls-cert and tls-key")
	case !verifies && t.ClientCAFile != "":
		fail("tls-client-ca", t.ClientCAFile, "has no effect unless tls-client-auth is request or require")
	}
	if c.ZKTLSListen != "" && t.CertFile == "" {
		fail("zk-tls-listen", c.ZKTLSListen, "needs tls-cert and tls-key")
	}
	secured := t.CertFile != "" && t.ClientAuth == ClientAuthRequire
	const accept = "insecure = true if you accept that everybody who reaches it may use it"
	for _, l := range []struct {
		key, addr string
		secured   bool
		rule      string
	}{
		{"listen", c.Listen, secured, "needs tls-cert, tls-key and tls-client-auth = require, or " + accept},
		{"zk-listen", c.ZKListen, false, "needs zk-tls-listen in its place, with tls-client-auth = require, or " + accept},
		{"zk-tls-listen", c.ZKTLSListen, secured, "needs tls-client-auth = require, or " + accept},
	} {
		if host, _, _ := net.SplitHostPort(l.addr); l.addr != "" && l.addr != addressNone && !isLoopback(host) && !l.secured && !c.Insecure {
			fail(l.key, l.addr, "can be reached from other machines, which "+l.rule)
		}
	}
}

// addressNone is the address of a door that stays shut.
const addressNone = "none"

// isLoopback reports whether host can only be reached from this machine. Names
// besides localhost are not looked up: what they mean may change.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
