package server

import (
	"os"
	"strings"
	"testing"
)

// zooKeysMarkdown is the table of docs/zookeeper.md.
func zooKeysMarkdown() string {
	var b strings.Builder
	b.WriteString("| key | becomes | remark |\n|---|---|---|\n")
	for i := range zooKeys {
		k := &zooKeys[i]
		becomes := "ignored"
		switch {
		case k.settings != "":
			becomes = "`" + strings.ReplaceAll(k.settings, ", ", "`, `") + "`"
		case k.refused:
			becomes = "refused"
			if k.harmless != "" {
				becomes += ", but for " + strings.ReplaceAll(k.harmless, " ", ", ")
			}
		}
		b.WriteString("| `" + strings.ReplaceAll(k.names, " ", "`, `") + "` | " + becomes + " | " + k.text + " |\n")
	}
	return b.String()
}

// Goal: the documentation has the table of keys as the code has it. Method: compare; the
// right text is printed where it differs.
func TestZooCfgIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/zookeeper.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := zooKeysMarkdown(); !strings.Contains(string(text), "## Coming from zoo.cfg\n") || !strings.Contains(string(text), want) {
		t.Errorf("docs/zookeeper.md needs the section Coming from zoo.cfg with the table\n%s", want)
	}
}

// zooKeysInUse are what configurations have: the keys of ZooKeeper's administrator's guide,
// and those of its server besides that it names nowhere.
const zooKeysInUse = `
clientPort clientPortAddress secureClientPort secureClientPortAddress observerMasterPort dataDir dataLogDir tickTime
initLimit syncLimit connectToLearnerMasterLimit maxClientCnxns maxCnxns minSessionTimeout maxSessionTimeout server.1 group.1
weight.1 standaloneEnabled reconfigEnabled localSessionsEnabled localSessionsUpgradingEnabled peerType quorumListenOnAllIPs
electionAlg cnxTimeout quorumCnxnTimeoutMs leaderServes autopurge.snapRetainCount autopurge.purgeInterval
4lw.commands.whitelist admin.enableServer admin.serverPort admin.serverAddress admin.commandURL admin.idleTimeout
admin.portUnification metricsProvider.className metricsProvider.httpPort metricsProvider.httpHost
metricsProvider.exportJvmInfo authProvider.1 authProvider.sasl extendedTypesEnabled emulate353TTLNodes enforceQuota skipACL
DigestAuthenticationProvider.superDigest DigestAuthenticationProvider.digestAlg DigestAuthenticationProvider.enabled
X509AuthenticationProvider.superUser superUser ensembleAuthName sessionRequireClientSASLAuth enforce.auth.enabled
enforce.auth.schemes allowSaslFailedClients sslQuorum portUnification client.portUnification ssl.keyStore.location
ssl.keyStore.password ssl.keyStore.passwordPath ssl.keyStore.type ssl.trustStore.location ssl.trustStore.password
ssl.trustStore.type ssl.clientAuth ssl.protocol ssl.enabledProtocols ssl.ciphersuites ssl.context.supplier.class
ssl.hostnameVerification ssl.clientHostnameVerification ssl.crl ssl.ocsp ssl.handshakeDetectionTimeoutMillis ssl.authProvider
ssl.quorum.keyStore.location serverCnxnFactory globalOutstandingLimit preAllocSize snapCount snapSizeLimitInKb
txnLogSizeLimitInKb commitLogCount forceSync fsync.warningthresholdms jute.maxbuffer jute.maxbuffer.extrasize
readonlymode.enabled dynamicConfigFile clientPortListenBacklog clientTcpKeepAlive tcpKeepAlive maxResponseCacheSize
maxGetChildrenResponseCacheSize syncEnabled watchManagerName watcherCleanThreadsNum watcherCleanThreshold
watcherCleanIntervalInSeconds maxInProcessingDeadWatchers bitHashCacheSize fastleader.minNotificationInterval
connectionMaxTokens connectionTokenFillTime connectionFreezeTime connectionDropIncrease connectionDecreaseRatio
connection_throttle_tokens flushDelay maxWriteQueuePollTime maxBatchSize requestThrottleLimit requestThrottleStallTime
requestStaleLatencyCheck request_throttle_max_requests request_throttler.shutdownTimeout throttled_op_wait_time
netty.advancedFlowControl.enabled nio.sessionlessCnxnTimeout nio.numSelectorThreads enableEagerACLCheck
leader.maxConcurrentSnapSyncs learner.asyncSending digest.enabled snapshot.trust.empty audit.enable audit.impl.class
largeRequestMaxBytes largeRequestThreshold electionPortBindRetry observer.reconnectDelayMs kerberos.removeHostFromPrincipal
multiAddress.enabled quorum.auth.enableSasl quorum.cnxn.threads.size jvm.pause.monitor commitProcessor.numWorkerThreads
znode.container.checkIntervalMs znode.container.maxPerMinute znode.container.maxNeverUsedIntervalMs messageTracker.BufferSize
datadir.autocreate db.autocreate closeSessionTxn.enabled requireKerberosConfig sasl.serverconfig oraclePath version`

// Goal: no key that configurations have is unknown, and each says what becomes of it.
// Method: all keys by name; every setting that the table names exists.
func TestZooCfgKnowsEveryKey(t *testing.T) {
	for name := range strings.FieldsSeq(zooKeysInUse) {
		if zooKeyNamed(name) == nil {
			t.Errorf("%s is unknown", name)
		}
	}
	seen := map[string]bool{}
	for i := range zooKeys {
		k := &zooKeys[i]
		if k.settings == "" && k.text == "" {
			t.Errorf("%s: nothing says what becomes of it", k.names)
		}
		if k.settings != "" && k.apply == nil || k.refused && k.apply != nil {
			t.Errorf("%s: the row contradicts itself", k.names)
		}
		for name := range strings.SplitSeq(k.settings, ", ") {
			if name != "" && settingNamed(name) == nil {
				t.Errorf("%s: there is no setting %s", k.names, name)
			}
		}
		for name := range strings.FieldsSeq(k.names) {
			if seen[name] {
				t.Errorf("%s has two rows", name)
			}
			seen[name] = true
		}
	}
}
