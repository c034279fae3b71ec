package server

import (
	"math"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/replica"
)

// setting is one row of the table that flags, environment, file, defaults, printing
// and checking are all made from, so that no setting can miss one of them.
type setting struct {
	name string // flag --NAME, file key NAME
	def  string // the default as text; "" = the field's zero value
	help string // one sentence, for --help and the printed file
	// secret values are redacted wherever they would show.
	secret bool
	value  func(*Config) settingValue
}

// env is the name of the environment variable.
func (s *setting) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

const envPrefix = "TENURE_"

// error makes the ConfigError of a value that breaks a rule.
func (s *setting) error(value string, rule error) *ConfigError {
	if s.secret {
		value = Secret(value).String()
	}
	return &ConfigError{Key: s.name, Value: value, Rule: rule.Error()}
}

// settingNamed returns the row called name, nil if there is none.
func settingNamed(name string) *setting {
	for i := range settings {
		if settings[i].name == name {
			return &settings[i]
		}
	}
	return nil
}

// Bounds that several rows share.
const (
	maxCount    = 1_000_000_000
	maxTimeout  = math.MaxInt32 * time.Millisecond // timeouts are 32-bit milliseconds on the wire
	maxDuration = 10 * 365 * 24 * time.Hour
	maxBytes    = 1 << 50
)

// settings is that table, in the order in which it is printed.
var settings = []setting{
	{name: "data-dir", help: "Directory that holds all state. Required.",
		value: func(c *Config) settingValue { return textValue{field: &c.DataDir} }},
	{name: "listen", def: "127.0.0.1:2180", help: "Address of websocket and HTTP; port 0 picks a free one.",
		value: func(c *Config) settingValue { return textValue{&c.Listen, isAddress} }},
	{name: "zk-listen", def: "127.0.0.1:2181", help: "Address of ZooKeeper's own protocol, plain text; none = not served, port 0 picks a free one.",
		value: func(c *Config) settingValue { return textValue{&c.ZKListen, isAddressOrNone} }},
	{name: "zk-tls-listen", help: "Address of ZooKeeper's own protocol above TLS.",
		value: func(c *Config) settingValue { return textValue{&c.ZKTLSListen, isAddress} }},
	{name: "zk-words", def: openWords(), help: "ZooKeeper's four-letter words that are answered; * = all.",
		value: func(c *Config) settingValue { return listValue{&c.ZKWords, isListableWord} }},

	{name: "member-id", def: "1", help: "This member's number in the ensemble, from 1 to 255, never to be used again for another.",
		value: func(c *Config) settingValue { return countValue[int]{&c.MemberID, 1, replica.MaxMemberID} }},
	{name: "peer-listen", def: addressNone, help: "Address for the other members; none = this member is alone.",
		value: func(c *Config) settingValue { return textValue{&c.PeerListen, isAddressOrNone} }},
	{name: "peer-advertise", help: "Address that the other members dial; without it this member's in initial-members, else peer-listen.",
		value: func(c *Config) settingValue { return textValue{&c.PeerAdvertise, isDialable} }},
	{name: "cluster", def: "tenure", help: "Name of the ensemble, the same on all its members.",
		value: func(c *Config) settingValue { return textValue{&c.ClusterName, isClusterName} }},
	{name: "initial-members", help: "Founders of the ensemble, the same on each: 1=zoo1:2182,2=zoo2:2182,3=zoo3:2182. With join: members to ask.",
		value: func(c *Config) settingValue { return strictListValue{listValue{&c.InitialMembers, isMember}} }},
	{name: "join", def: "false", help: "Begin empty and wait to be added by `tenure member add`.",
		value: func(c *Config) settingValue { return boolValue{&c.Join} }},
	{name: "cluster-id", help: "With join: the ensemble to join, as `tenure member add` prints it.",
		value: func(c *Config) settingValue { return textValue{&c.ClusterID, isClusterID} }},
	{name: "election-timeout", def: "1s", help: "How long a leader may be silent before the others elect one; the same on all members.",
		value: func(c *Config) settingValue {
			return durationValue{&c.ElectionTimeout, 100 * time.Millisecond, time.Minute}
		}},
	{name: "log-keep-bytes", def: "128MiB", help: "Most log kept for members that lag or are away; those that lack more are sent a snapshot.",
		value: func(c *Config) settingValue { return bytesValue[int64]{&c.LogKeepBytes, 1 << 10, maxBytes} }},
	{name: "snapshot-rate", def: "32MiB", help: "Most bytes per second that this member sends in snapshots, all together.",
		value: func(c *Config) settingValue { return bytesValue[int64]{&c.SnapshotRate, 1 << 10, maxBytes} }},
	{name: "peer-tls-cert", help: "PEM file of the certificate chain that this member shows to the others. Read again when it changes.",
		value: func(c *Config) settingValue { return textValue{field: &c.PeerTLS.CertFile} }},
	{name: "peer-tls-key", help: "PEM file of that certificate's private key.",
		value: func(c *Config) settingValue { return textValue{field: &c.PeerTLS.KeyFile} }},
	{name: "peer-tls-ca", help: "PEM file of the authorities that the other members' certificates are verified against.",
		value: func(c *Config) settingValue { return textValue{field: &c.PeerTLS.CAFile} }},

	{name: "tls-cert", help: "PEM file of the server's certificate chain; turns TLS on. Read again when it changes.",
		value: func(c *Config) settingValue { return textValue{field: &c.TLS.CertFile} }},
	{name: "tls-key", help: "PEM file of the certificate's private key.",
		value: func(c *Config) settingValue { return textValue{field: &c.TLS.KeyFile} }},
	{name: "tls-client-ca", help: "PEM file of the authorities that client certificates are verified against.",
		value: func(c *Config) settingValue { return textValue{field: &c.TLS.ClientCAFile} }},
	{name: "tls-client-auth", def: ClientAuthNone, help: "Client certificates: none, request (optional, verified if given) or require.",
		value: func(c *Config) settingValue {
			return textValue{&c.TLS.ClientAuth, oneOf(ClientAuthNone, ClientAuthRequest, ClientAuthRequire)}
		}},
	{name: "insecure", def: "false", help: "Allow other machines to reach this server without TLS and client certificates.",
		value: func(c *Config) settingValue { return boolValue{&c.Insecure} }},
	{name: "allowed-origins", help: "Further origins whose pages may use this server from a browser.",
		value: func(c *Config) settingValue { return listValue{&c.AllowedOrigins, isOrigin} }},
	{name: "allowed-hosts", help: "Further host names that clients may know this server by.",
		value: func(c *Config) settingValue { return listValue{&c.AllowedHosts, isHost} }},

	{name: "min-session-timeout", def: "1s", help: "Shortest session timeout that is granted.",
		value: func(c *Config) settingValue {
			return durationValue{&c.MinSessionTimeout, 10 * time.Millisecond, maxTimeout}
		}},
	{name: "max-session-timeout", def: "40s", help: "Longest session timeout that is granted.",
		value: func(c *Config) settingValue {
			return durationValue{&c.MaxSessionTimeout, 10 * time.Millisecond, maxTimeout}
		}},
	{name: "zk-min-session-timeout", def: "4s", help: "Shortest session timeout that is granted to clients of ZooKeeper's protocol.",
		value: func(c *Config) settingValue {
			return durationValue{&c.ZKMinSessionTimeout, 10 * time.Millisecond, maxTimeout}
		}},
	{name: "zk-max-session-timeout", def: "40s", help: "Longest session timeout that is granted to clients of ZooKeeper's protocol.",
		value: func(c *Config) settingValue {
			return durationValue{&c.ZKMaxSessionTimeout, 10 * time.Millisecond, maxTimeout}
		}},
	{name: "max-message-bytes", def: "1048575", help: "Largest request and reply, as ZooKeeper's jute.maxbuffer.",
		value: func(c *Config) settingValue { return bytesValue[int64]{&c.MaxMessageBytes, 1 << 10, 64 << 20} }},
	{name: "zk-max-reply-bytes", def: "64MiB", help: "Largest reply to clients of ZooKeeper's protocol, whose own jute.maxbuffer may be smaller.",
		value: func(c *Config) settingValue { return bytesValue[int64]{&c.ZKMaxReplyBytes, 1 << 10, 1 << 30} }},
	{name: "max-connections", def: "50000", help: "Most connections open at once; one more is closed.",
		value: func(c *Config) settingValue { return countValue[int]{&c.MaxConnections, 1, maxCount} }},
	{name: "max-connections-per-ip", def: "20000", help: "Most connections open at once from one address.",
		value: func(c *Config) settingValue { return countValue[int]{&c.MaxConnectionsPerIP, 1, maxCount} }},
	{name: "max-sessions", def: "1000000", help: "Most sessions open at once; one more is refused.",
		value: func(c *Config) settingValue { return countValue[int]{&c.MaxSessions, 1, maxCount} }},
	{name: "max-watches", def: "5000000", help: "Most watches at once; one more is refused.",
		value: func(c *Config) settingValue { return countValue[int]{&c.MaxWatches, 1, maxCount} }},
	{name: "max-watches-per-connection", def: "200000", help: "Most watches at once on one connection.",
		value: func(c *Config) settingValue { return countValue[int]{&c.MaxWatchesPerConnection, 1, maxCount} }},
	{name: "max-outstanding", def: "2048", help: "Most unanswered requests of one connection; then the server stops reading it.",
		value: func(c *Config) settingValue { return countValue[int]{&c.MaxOutstanding, 1, 1_000_000} }},
	{name: "max-outstanding-total", def: "100000", help: "Most unanswered requests on all doors together; then a connection that has one is not read, as with ZooKeeper's globalOutstandingLimit.",
		value: func(c *Config) settingValue { return countValue[int]{&c.MaxOutstandingTotal, 1, maxCount} }},
	{name: "max-outstanding-bytes", def: "256MiB", help: "Most bytes of unanswered requests of all connections together.",
		value: func(c *Config) settingValue { return bytesValue[int64]{&c.MaxOutstandingBytes, 1 << 10, maxBytes} }},
	{name: "outbox-bytes", def: "8MiB", help: "Most bytes that wait for one connection to read them; then it is closed.",
		value: func(c *Config) settingValue { return bytesValue[int]{&c.OutboxBytes, 1 << 10, maxBytes} }},
	{name: "handshake-timeout", def: "10s", help: "Longest TLS handshake, HTTP header and wait for the first message, each.",
		value: func(c *Config) settingValue {
			return durationValue{&c.HandshakeTimeout, 10 * time.Millisecond, 10 * time.Minute}
		}},
	{name: "write-timeout", def: "10s", help: "Longest write to a client before its connection is closed.",
		value: func(c *Config) settingValue {
			return durationValue{&c.WriteTimeout, 10 * time.Millisecond, 10 * time.Minute}
		}},

	{name: "cache-bytes", def: "32MiB", help: "Memory for decoded znodes.",
		value: func(c *Config) settingValue { return bytesValue[int64]{&c.CacheBytes, 1 << 10, maxBytes} }},
	{name: "history-count", def: "1000000", help: "Most changes kept for watches to catch up from.",
		value: func(c *Config) settingValue { return countValue[int64]{&c.HistoryCount, 1, maxCount} }},
	{name: "history-bytes", def: "256MiB", help: "Most bytes of changes kept.",
		value: func(c *Config) settingValue { return bytesValue[int64]{&c.HistoryBytes, 1 << 10, maxBytes} }},
	{name: "history-age", def: "1h", help: "Oldest change kept.",
		value: func(c *Config) settingValue { return durationValue{&c.HistoryAge, time.Millisecond, maxDuration} }},
	{name: "max-data-bytes", help: "Size of the state above which growth is refused; 0 = no bound.",
		value: func(c *Config) settingValue { return bytesValue[int64]{&c.MaxDataBytes, 0, maxBytes} }},
	{name: "min-free-disk-bytes", def: "64MiB", help: "Free disk space below which growth is refused.",
		value: func(c *Config) settingValue { return bytesValue[int64]{&c.MinFreeDiskBytes, 1, maxBytes} }},
	{name: "reap-interval", def: "1m", help: "How often emptied containers and outlived TTL znodes are removed.",
		value: func(c *Config) settingValue {
			return durationValue{&c.ReapInterval, 10 * time.Millisecond, 24 * time.Hour}
		}},
	{name: "no-ttl", def: "false", help: "Refuse TTL znodes.",
		value: func(c *Config) settingValue { return boolValue{&c.NoTTL} }},
	{name: "reconfig-enabled", def: "false", help: "Let ZooKeeper's reconfig change the members, for who has WRITE on /zookeeper/config; without peer-listen it is then Unimplemented instead of ReconfigDisabled.",
		value: func(c *Config) settingValue { return boolValue{&c.ReconfigEnabled} }},
	{name: "enforce-quota", def: "false", help: "Let hard quotas refuse writes instead of only being logged.",
		value: func(c *Config) settingValue { return boolValue{&c.EnforceQuota} }},
	{name: "super-digest", help: "Digest identity that no ACL binds: super:BASE64(SHA1(super:PASSWORD)). Prefer the environment or the file.",
		secret: true,
		value:  func(c *Config) settingValue { return secretValue{&c.SuperDigest} }},

	{name: "log-format", def: "text", help: "Form of the log: text or json.",
		value: func(c *Config) settingValue { return textValue{&c.LogFormat, oneOf("text", "json")} }},
	{name: "log-level", def: "info", help: "Least level that is logged: debug, info, warn or error.",
		value: func(c *Config) settingValue {
			return textValue{&c.LogLevel, oneOf("debug", "info", "warn", "error")}
		}},
	{name: "shutdown-timeout", def: "10s", help: "Longest orderly stop.",
		value: func(c *Config) settingValue {
			return durationValue{&c.ShutdownTimeout, 10 * time.Millisecond, time.Hour}
		}},
}
