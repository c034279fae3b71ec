package server

import (
	"strings"
	"time"
)

// zooKey is one row of the table of what ZooKeeper's keys become here: of it the start-up's
// words, `config check` and the documentation are made.
type zooKey struct {
	// names are the keys, with blanks between them; one that ends in * stands for all that
	// begin so and have no row of their own.
	names string
	// settings is what the documentation says that they become, "" if they are ignored.
	settings string
	// text is the reason why they are ignored, or what is to know besides.
	text string
	// refused keys keep the server from starting: ignoring them would let somebody in or lose
	// what was asked for. The values in harmless, with blanks between them, ask for what is
	// here anyway.
	refused  bool
	harmless string
	// felt marks what somebody may miss if it is ignored.
	felt bool
	// secret values are redacted wherever they would show.
	secret bool
	form   func(string) error       // the rule of the values, nil = any text
	apply  func(*zooCfg, *zooEntry) // makes settings of an entry or refuses it; nil = ignored
}

// zooKeyNamed returns the row of a key, nil if there is none.
func zooKeyNamed(name string) *zooKey {
	var family *zooKey
	for i := range zooKeys {
		for pattern := range strings.FieldsSeq(zooKeys[i].names) {
			prefix, isFamily := strings.CutSuffix(pattern, "*")
			switch {
			case pattern == name:
				return &zooKeys[i]
			case isFamily && strings.HasPrefix(name, prefix) && family == nil:
				family = &zooKeys[i]
			}
		}
	}
	return family
}

// zooKeyNames returns all names of keys, without families.
func zooKeyNames() []string {
	var names []string
	for i := range zooKeys {
		for name := range strings.FieldsSeq(zooKeys[i].names) {
			if !strings.HasSuffix(name, "*") {
				names = append(names, name)
			}
		}
	}
	return names
}

// Why many keys are ignored alike.
const (
	zooMembers  = "concerns ZooKeeper's own traffic between members; here it is peer-listen, election-timeout and the like"
	zooLogFiles = "concerns ZooKeeper's files; Tenure's log and state keep their own size"
	zooJava     = "tunes ZooKeeper's Java implementation"
)

// zooKeys is that table, in the order of its documentation.
var zooKeys = []zooKey{
	{names: "clientPort", settings: "zk-listen", form: zooPort, apply: (*zooCfg).clientPort,
		text: "without clientPortAddress it means all interfaces, which needs `--insecure`; 0 is `none`"},
	{names: "clientPortAddress", settings: "zk-listen", form: zooHost, apply: (*zooCfg).clientPortAddress},
	{names: "secureClientPort", settings: "zk-tls-listen", form: zooPort, apply: (*zooCfg).secureClientPort,
		text: "needs ssl.keyStore.location; alone it makes zk-listen `none`"},
	{names: "secureClientPortAddress", settings: "zk-tls-listen", form: zooHost, apply: (*zooCfg).secureClientPortAddress},
	{names: "dataDir", settings: "data-dir", form: zooPath, apply: (*zooCfg).dataDir,
		text: "its subdirectory `tenure`; ZooKeeper's own files there are neither read nor touched"},
	{names: "tickTime", settings: "zk-min-session-timeout, zk-max-session-timeout", form: zooNumber(1, 100_000_000), apply: (*zooCfg).tickTime,
		text: "2 and 20 ticks, unless minSessionTimeout and maxSessionTimeout say otherwise"},
	{names: "minSessionTimeout", settings: "zk-min-session-timeout", form: zooNumber(-1, 1<<31-1), apply: (*zooCfg).sessionTimeout},
	{names: "maxSessionTimeout", settings: "zk-max-session-timeout", form: zooNumber(-1, 1<<31-1), apply: (*zooCfg).sessionTimeout},

	{names: "maxClientCnxns", settings: "max-connections-per-ip", form: zooNumber(0, maxCount), apply: zooBound("max-connections-per-ip"),
		text: "for all doors together; 0 is no bound"},
	{names: "maxCnxns", settings: "max-connections", form: zooNumber(0, maxCount), apply: zooBound("max-connections"),
		text: "for all doors together; 0 is no bound"},
	{names: "globalOutstandingLimit", settings: "max-outstanding-total", form: zooNumber(1, maxCount), apply: zooSets("max-outstanding-total", "")},
	{names: "jute.maxbuffer", settings: "max-message-bytes", form: zooSize, apply: (*zooCfg).juteMaxBuffer,
		text: "also from zoo.cfg, where ZooKeeper does not look for it; outbox-bytes grows with it, and zk-max-reply-bytes bounds replies"},
	{names: "nio.sessionlessCnxnTimeout", settings: "handshake-timeout", form: zooNumber(1, maxCount), apply: zooSets("handshake-timeout", "ms")},
	{names: "znode.container.checkIntervalMs", settings: "reap-interval", form: zooNumber(1, maxCount), apply: zooSets("reap-interval", "ms")},
	{names: "enforceQuota", settings: "enforce-quota", form: zooBool, apply: zooSets("enforce-quota", "")},
	{names: "extendedTypesEnabled", settings: "no-ttl", form: zooBool, apply: (*zooCfg).extendedTypes,
		text: "TTL znodes are there without it; false refuses them"},
	{names: "reconfigEnabled", settings: "reconfig-enabled", form: zooBool, apply: zooSets("reconfig-enabled", ""),
		text: "without peer-listen reconfig is then Unimplemented"},
	{names: "DigestAuthenticationProvider.superDigest", settings: "super-digest", secret: true, apply: zooSets("super-digest", "")},
	{names: "admin.serverPort admin.serverAddress", settings: "listen", form: nil, apply: (*zooCfg).adminServer,
		text: "only loopback without admin.serverAddress, as that port also serves websocket clients"},

	{names: "ssl.keyStore.location", settings: "tls-cert, tls-key", form: zooPath, apply: (*zooCfg).keyStore,
		text: "with secureClientPort; PEM with certificate chain and key, other types are refused; `listen` speaks TLS then, too"},
	{names: "ssl.trustStore.location", settings: "tls-client-ca", form: zooPath, apply: (*zooCfg).trustStore,
		text: "with secureClientPort; PEM, other types are refused"},
	{names: "ssl.clientAuth", settings: "tls-client-auth", form: oneOf("need", "want", "none"), apply: (*zooCfg).clientAuth,
		text: "need (the default) is `require`, want is `request`"},
	{names: "ssl.keyStore.type ssl.trustStore.type", settings: "tls-cert, tls-key, tls-client-ca", form: zooStoreType, apply: (*zooCfg).storeTypeGiven,
		text: "where a store's name does not end in .pem"},
	{names: "ssl.keyStore.password ssl.keyStore.passwordPath ssl.trustStore.password ssl.trustStore.passwordPath", secret: true,
		text: "stores in PEM need none; an encrypted key is refused"},

	{names: "server.*", settings: "member-id, initial-members, peer-listen, zk-listen", form: zooMember, apply: (*zooCfg).member,
		text: "several lines make an ensemble with `dataDir/myid`: host and first port are the member's address, of several addresses the first; observers are refused and told what to do. " +
			"One line is a member alone. A `;port` counts where clientPort is absent"},
	{names: "dynamicConfigFile", settings: "member-id, initial-members, peer-listen, zk-listen", form: zooPath, apply: (*zooCfg).dynamicConfigFile, text: "its lines count as if they were in zoo.cfg"},
	{names: "skipACL", form: zooYesNo, refused: true, harmless: "no false", text: "opens everything to everybody. ACLs are always checked here, which costs nothing to speak of; " +
		"to repair them, log in as the super user (DigestAuthenticationProvider.superDigest). Set no"},
	{names: "sessionRequireClientSASLAuth enforce.auth.enabled", form: zooBool, refused: true, harmless: "false", text: "asks to turn away clients that have not logged in, which is not done here: let TLS do it, with ssl.clientAuth=need"},
	{names: "ensembleAuthName", refused: true, text: "asks to turn away clients of other ensembles, which is not done here"},
	{names: "ssl.crl ssl.ocsp ssl.clientHostnameVerification", form: zooBool, refused: true, harmless: "false", text: "asks for a check of client certificates that is not done here"},
	{names: "ssl.context.supplier.class", refused: true, text: "needs Java; give tls-cert, tls-key and tls-client-ca"},
	{names: "DigestAuthenticationProvider.enabled", form: zooBool, refused: true, harmless: "true", text: "asks to switch off scheme digest, which is always there"},
	{names: "DigestAuthenticationProvider.digestAlg", refused: true, harmless: "sha1 sha-1", text: "would change every digest identity; SHA1, the default, is what is here"},
	{names: "audit.enable", form: zooBool, refused: true, harmless: "false", text: "asks for an audit log, which is not kept here"},

	{names: "authProvider.*", felt: true, text: "world, digest, ip and x509 are always there; SASL and providers of your own are not: their identities match nobody"},
	{names: "superUser X509AuthenticationProvider.superUser", felt: true, text: "the super user is the one of DigestAuthenticationProvider.superDigest"},
	{names: "4lw.commands.whitelist", settings: "zk-words", apply: (*zooCfg).words, text: "what is no word is passed over, as in ZooKeeper"},
	{names: "admin.enableServer", form: zooBool, text: "`listen` is always open; false leaves it where it is without admin.serverPort"},
	{names: "admin.commandURL", felt: true, text: "the commands are at /commands of `listen`"},
	{names: "admin.*", text: "concerns ZooKeeper's AdminServer"},
	{names: "metricsProvider.*", felt: true, text: "Prometheus' metrics are always at /metrics of `listen`, those of ZooKeeper's names at /metrics/zookeeper"},
	{names: "readonlymode.enabled", form: zooBool, text: "a member without a majority serves nobody"},
	{names: "localSessionsEnabled localSessionsUpgradingEnabled", form: zooBool, text: "all sessions are global"},
	{names: "serverCnxnFactory", text: zooJava + "; one kind of connection does plain text and TLS"},
	{names: "client.portUnification", form: zooBool, felt: true, text: "TLS has its own port: secureClientPort"},
	{names: "ssl.protocol ssl.enabledProtocols ssl.ciphersuites fips-mode", felt: true, text: "TLS 1.2 and 1.3 are served, with Go's choice of ciphers"},
	{names: "ssl.quorum.*", felt: true, text: "TLS between members is peer-tls-cert, peer-tls-key and peer-tls-ca"},
	{names: "controllerPort", text: zooMembers},
	{names: "ssl.*", felt: true, text: "TLS here knows the keys above"},

	{names: "dataLogDir", form: zooPath, felt: true, text: "log and state are in one directory; what mattered most, that the log is synced before an answer, holds"},
	{names: "forceSync", form: zooYesNo, text: "every write is synced before it is acknowledged"},
	{names: "autopurge.snapRetainCount autopurge.purgeInterval preAllocSize snapCount", form: zooNumber(-1<<31, 1<<31-1), text: zooLogFiles},
	{names: "snapSizeLimitInKb txnLogSizeLimitInKb commitLogCount fsync.* snapshot.* snapshotSizeFactor forceSnapshotSync", text: zooLogFiles},
	{names: "datadir.autocreate db.autocreate", form: zooBool, text: "dataDir must exist; only the subdirectory in it is made"},
	{names: "initLimit syncLimit connectToLearnerMasterLimit cnxTimeout quorumCnxnTimeoutMs observerMasterPort", form: zooNumber(-1<<31, 1<<31-1), text: zooMembers},
	{names: "electionAlg", form: oneOf("3"), text: zooMembers},
	{names: "peerType", form: zooPeerType, refused: true, harmless: "participant", text: "asks to be an observer: start with join, cluster-id and initial-members, as `tenure member add` prints them"},
	{names: "quorumListenOnAllIPs", settings: "peer-listen", form: zooBool, apply: (*zooCfg).allPeerAddresses, text: "with several server.N"},
	{names: "sslQuorum", form: zooBool, felt: true, text: "TLS between members is peer-tls-cert, peer-tls-key and peer-tls-ca; without it they are on loopback, or insecure is set"},
	{names: "standaloneEnabled sslQuorumReloadCertFiles portUnification syncEnabled", form: zooBool, text: zooMembers},
	{names: "group.* weight.*", felt: true, text: "every voter counts once, and a majority of all decides"},
	{names: "version multiAddress.* quorum.* observer.* leader.* learner.* fastleader.* oraclePath leaderServes tcpKeepAlive electionPortBindRetry", text: zooMembers},
	{names: "clientPortListenBacklog", form: zooNumber(-1, 1<<31-1), text: "the system's own (net.core.somaxconn)"},
	{names: "clientTcpKeepAlive", form: zooBool, text: "always on"},
	{names: "znode.container.*", text: "a container goes when it has been emptied, at the next reap-interval"},
	{names: "client.secure clientCnxnSocket request.timeout disableAutoWatchReset testingonly.*", text: "concerns ZooKeeper's client or its tests"},
	{names: "emulate353TTLNodes", text: "concerns data written by ZooKeeper 3.5.3"},
	{names: "largeRequestMaxBytes largeRequestThreshold request_throttle_* request_throttler.* requestThrottle* request_stale_* requestStale* throttled_op_wait_time connection_throttle_*" +
		" connectionMaxTokens connectionToken* connectionFreezeTime connectionDrop* connectionDecreaseRatio", felt: true,
		text: "max-outstanding, max-outstanding-total and max-outstanding-bytes bound what waits"},
	{names: "enforce.auth.schemes allowSaslFailedClients letAnySaslUserDoX server.principal server.realm sasl.* kerberos.* java.security.auth.login.config java.security.krb5.conf requireKerberosConfig", felt: true, text: "there is no SASL"},
	{names: "audit.* jvm.pause.* jmx.* pathStats.* root.logger log.dir log.file", text: "concerns ZooKeeper's own logs; metrics are at /metrics"},
	{names: "nio.* netty.* commitProcessor.* jute.maxbuffer.extrasize maxResponseCacheSize maxGetChildrenResponseCacheSize flushDelay maxWriteQueuePollTime maxBatchSize digest.enabled closeSessionTxn.enabled enableEagerACLCheck" +
		" watchManagerName watcherClean* maxInProcessingDeadWatchers bitHashCacheSize messageTracker.* intBufferStartingSizeBytes", text: zooJava},
}

// zooBound makes a count a setting where 0 means no bound.
func zooBound(name string) func(*zooCfg, *zooEntry) {
	return func(z *zooCfg, e *zooEntry) {
		text := e.Value
		if text == "0" {
			text = zooUnbounded
		}
		z.set(e, name, text)
	}
}

// zooUnbounded is a count that nothing reaches.
const zooUnbounded = "1000000000"

// zooSets makes a value with a unit behind it the value of a setting.
func zooSets(name, unit string) func(*zooCfg, *zooEntry) {
	return func(z *zooCfg, e *zooEntry) { z.set(e, name, e.Value+unit) }
}

// zooMillis is a number of milliseconds as the text of a setting.
func zooMillis(n int64) string { return (time.Duration(n) * time.Millisecond).String() }
