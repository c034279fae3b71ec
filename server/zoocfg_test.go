package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// zooCfgSaysWhereClientsCome finds what names the clients' port, here or elsewhere.
var zooCfgSaysWhereClientsCome = regexp.MustCompile(`[cC]lientPort|;|dynamicConfigFile`)

// zooCfgOf writes a zoo.cfg. Unless text says otherwise its data are in dir, which exists,
// and clients come from this machine.
func zooCfgOf(t *testing.T, dir, text string) string {
	t.Helper()
	if !strings.Contains(text, "dataDir") {
		text += "\ndataDir=" + dir
	}
	if !zooCfgSaysWhereClientsCome.MatchString(text) {
		text += "\nclientPort=2181\nclientPortAddress=127.0.0.1"
	}
	path := filepath.Join(t.TempDir(), "zoo.cfg")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Goal: each key of a zoo.cfg that Tenure honours becomes the right settings. Method: a
// table of files and the settings that they must make, by what `config check` would print.
func TestZooCfgBecomesSettings(t *testing.T) {
	const secure = "secureClientPort=2281\nsecureClientPortAddress=127.0.0.1\nssl.keyStore.location=/k.pem\nssl.trustStore.location=/t.pem\n"
	for text, want := range map[string]string{
		"clientPort=2182\nclientPortAddress=localhost":     "zk-listen localhost:2182",
		"clientPort=2182\nclientPortAddress=::1":           "zk-listen [::1]:2182",
		"clientPort=2182\nclientPortAddress=[::1]":         "zk-listen [::1]:2182",
		"zookeeper.clientPort 2183\nclientPortAddress:::1": "zk-listen [::1]:2183",
		"clientPort=0":                                    "zk-listen none",
		"dataDir=/var/lib/zookeeper":                      "data-dir /var/lib/zookeeper/tenure",
		"tickTime=1500":                                   "zk-min-session-timeout 3s; zk-max-session-timeout 30s",
		"tickTime=1500\nmaxSessionTimeout=90000":          "zk-min-session-timeout 3s; zk-max-session-timeout 1m30s",
		"maxSessionTimeout=90000\nminSessionTimeout=50":   "zk-min-session-timeout 50ms; zk-max-session-timeout 1m30s",
		"tickTime=1000\nminSessionTimeout=-1":             "zk-min-session-timeout 2s; zk-max-session-timeout 20s",
		"":                                                "zk-listen 127.0.0.1:2181; zk-min-session-timeout 4s; zk-max-session-timeout 40s",
		"maxClientCnxns=60 \nmaxCnxns=700":                "max-connections-per-ip 60; max-connections 700",
		"maxClientCnxns=0\nmaxCnxns=0":                    "max-connections-per-ip 1000000000; max-connections 1000000000",
		"globalOutstandingLimit=1000":                     "max-outstanding-total 1000",
		"jute.maxbuffer=0x1fffff":                         "max-message-bytes 2097151; outbox-bytes 8MiB",
		"jute.maxbuffer=10485760":                         "max-message-bytes 10MiB; outbox-bytes 20MiB",
		"nio.sessionlessCnxnTimeout=2500":                 "handshake-timeout 2.5s",
		"znode.container.checkIntervalMs=2000":            "reap-interval 2s",
		"4lw.commands.whitelist=stat, ruok,nosuch":        "zk-words stat,ruok",
		"4lw.commands.whitelist=*":                        "zk-words *",
		"enforceQuota=TRUE ":                              "enforce-quota true",
		"extendedTypesEnabled=false":                      "no-ttl true",
		"extendedTypesEnabled=true":                       "no-ttl false",
		"reconfigEnabled = true\t":                        "reconfig-enabled true",
		"admin.serverPort=8081":                           "listen 127.0.0.1:8081",
		"admin.serverPort=8081\nadmin.serverAddress=::1":  "listen [::1]:8081",
		"admin.serverAddress=127.0.0.2":                   "listen 127.0.0.2:8080",
		"admin.serverPort=8081\nadmin.enableServer=false": "listen 127.0.0.1:2180",
		"server.7=zoo1:2:3:participant;::1:2190\nclientPort=2181\nclientPortAddress=127.0.0.1": "zk-listen 127.0.0.1:2181",
		"server.7=h:1:2;127.0.0.1:2190": "zk-listen 127.0.0.1:2190; member-id 1; initial-members ; peer-listen none",
		secure:                          "zk-tls-listen 127.0.0.1:2281; zk-listen none; tls-cert /k.pem; tls-key /k.pem; tls-client-ca /t.pem; tls-client-auth require",
		secure + "clientPort=0":         "zk-tls-listen 127.0.0.1:2281; zk-listen none",
		secure + "clientPort=2181\nclientPortAddress=::1\nssl.clientAuth=want":              "zk-listen [::1]:2181; tls-client-auth request",
		secure + "ssl.clientAuth=none":                                                      "tls-client-auth none; tls-client-ca ",
		"ssl.keyStore.location=/k.jks\nssl.trustStore.location=/t.jks\nssl.clientAuth=need": "tls-cert ; tls-client-ca ; tls-client-auth none",
	} {
		l, err := LoadConfig(Sources{ZooCfg: zooCfgOf(t, t.TempDir(), text)})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		for setting := range strings.SplitSeq(want, "; ") {
			name, value, _ := strings.Cut(setting, " ")
			if got := settingNamed(name).value(&l.Config).get(); got != value {
				t.Errorf("%q: %s = %q, want %q", text, name, got, value)
			}
		}
	}
}

// Goal: whatever would open the server, lose something or cannot be meant is an error that
// names file, line, key, value and what is allowed; C145's mistakes are among them. Method:
// a table of files, each with one mistake, and what the error must say.
func TestC145ZooCfgMistakes(t *testing.T) {
	for text, want := range map[string][]string{
		"clientPort=21x":               {"clientPort", `"21x"`, "line 1", "0 to 65535"},
		"clientPort=":                  {"clientPort", `""`, "0 to 65535"},
		"clientPort=70000":             {"clientPort", `"70000"`, "0 to 65535"},
		"clientPortAddress=::1":        {"clientPortAddress", "clientPort is not"},
		"clientPort=2181\ntickTime=2s": {"tickTime", `"2s"`, "line 2", "whole number"},
		"tickTime=0":                   {"tickTime", `"0"`, "from 1"},
		"tickTime=1000\ntickTime=2000": {"tickTime", `"2000"`, "line 2", "given twice", "line 1"},
		"minSessionTimeout=9000\nmaxSessionTimeout=8000":         {"zk-min-session-timeout", "9s", "line 1", "must not be above"},
		"globalOutstandingLimit=many":                            {"globalOutstandingLimit", `"many"`},
		"jute.maxbuffer=1g":                                      {"jute.maxbuffer", `"1g"`, "0xfffff"},
		"jute.maxbuffer=999999999":                               {"jute.maxbuffer", "max-message-bytes", "64MiB"},
		"enforceQuota=on":                                        {"enforceQuota", `"on"`, "true or false"},
		"electionAlg=1":                                          {"electionAlg", `"1"`, "3"},
		"peerType=leader":                                        {"peerType", `"leader"`, "observer"},
		"admin.serverPort=http":                                  {"admin.serverPort", `"http"`},
		"a=\\u12":                                                {"zoo.cfg", "line 1", "hexadecimal"},
		"dynamicConfigFile=/no/such":                             {"/no/such", "no such file"},
		"server.1=zoo1":                                          {"server.1", `"zoo1"`, "host:port:port"},
		"server.1=a:1:2;x":                                       {"server.1", "0 to 65535"},
		"server.1=a:1:2:observer":                                {"server.1", "observer"},
		"peerType=observer":                                      {"peerType", "observer", "tenure member add"},
		"clientPort=2181":                                        {"zk-listen", `":2181"`, "line 1, clientPort", "clientPortAddress=127.0.0.1", "secureClientPort", "--insecure"},
		"clientPort=2180\nclientPortAddress=127.0.0.1":           {"zk-listen", "port of listen"},
		"admin.serverPort=8080\nadmin.serverAddress=0.0.0.0":     {"listen", "0.0.0.0:8080", "admin.serverPort", "insecure"},
		"skipACL=yes":                                            {"skipACL", "superDigest"},
		"sessionRequireClientSASLAuth=true":                      {"sessionRequireClientSASLAuth", "turn away"},
		"ssl.crl=true":                                           {"ssl.crl"},
		"audit.enable=true":                                      {"audit.enable"},
		"DigestAuthenticationProvider.digestAlg=SHA-256":         {"digestAlg", "SHA1"},
		"DigestAuthenticationProvider.enabled=false":             {"enabled", "digest"},
		"DigestAuthenticationProvider.superDigest=plantedSecret": {"superDigest", "[redacted]", "super:"},
		"secureClientPort=2281":                                  {"zk-tls-listen", "tls-cert"},
		"secureClientPort=2281\nsecureClientPortAddress=127.0.0.1\nssl.keyStore.location=/k.jks":                       {"ssl.keyStore.location", "/k.jks", "keytool", "openssl", "tls-cert"},
		"secureClientPort=2281\nsecureClientPortAddress=127.0.0.1\nssl.keyStore.location=/k\nssl.keyStore.type=PKCS12": {"type PKCS12", "openssl"},
		"secureClientPort=2281\nsecureClientPortAddress=127.0.0.1\nssl.trustStore.location=/t.jks":                     {"ssl.trustStore.location", "/t.jks", "keytool"},
		"ssl.clientAuth=maybe": {"ssl.clientAuth", "need, want, none"},
	} {
		l, err := LoadConfig(Sources{ZooCfg: zooCfgOf(t, t.TempDir(), text)})
		if err == nil {
			t.Errorf("%q: accepted: %v", text, l.ZooCfg)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: error %q lacks %q", text, err, part)
			}
		}
		if strings.Contains(fmt.Sprint(err, l.ZooCfg), "plantedSecret") {
			t.Errorf("%q: the secret shows: %v %v", text, err, l.ZooCfg)
		}
	}
	if _, err := LoadConfig(Sources{ZooCfg: "/no/such/zoo.cfg"}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "/no/such/zoo.cfg") {
		t.Errorf("no file: %v", err)
	}
}

// verdicts lists what became of the entries: key, verdict and text.
func verdicts(l *LoadedConfig) string {
	var b strings.Builder
	for _, z := range l.ZooCfg {
		fmt.Fprintln(&b, z)
	}
	return b.String()
}

// Goal: zoo.cfg is weaker than --config, environment and flags, and the table says who
// won; a refusal is lifted by those who set what the key would have set. Method: all of
// them at once.
func TestZooCfgIsTheWeakestSource(t *testing.T) {
	file := writeConfig(t, "max-connections: 1\nno-ttl: true\n")
	zoo := zooCfgOf(t, t.TempDir(), "maxCnxns=5\nmaxClientCnxns=6\nglobalOutstandingLimit=7\nenforceQuota=true\nsecureClientPort=2281\n"+
		"secureClientPortAddress=127.0.0.1\nssl.clientAuth=none\nssl.keyStore.location=/k.jks\nclientPort=21810\nclientPortAddress=127.0.0.1")
	flags := ConfigFlags{"max-connections-per-ip": "2", "tls-cert": "/c.pem", "tls-key": "/k.pem", "enforce-quota": ""}
	l, err := LoadConfig(Sources{ZooCfg: zoo, File: file, Environ: []string{"TENURE_MAX_OUTSTANDING_TOTAL=3"}, Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	c := l.Config
	got := fmt.Sprint(c.MaxConnections, c.MaxConnectionsPerIP, c.MaxOutstandingTotal, c.NoTTL, c.EnforceQuota, c.TLS.CertFile, c.ZKListen)
	if want := fmt.Sprint(1, 2, 3, true, false, "/c.pem", "127.0.0.1:21810"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if origin := l.Origin["zk-listen"]; origin != zoo+" line 9, clientPort" {
		t.Errorf("origin %q", origin)
	}
	for _, want := range []string{
		"overridden maxCnxns = 5 (" + zoo + " line 1): max-connections comes from " + file,
		"overridden maxClientCnxns = 6 (" + zoo + " line 2): max-connections-per-ip comes from flag --max-connections-per-ip",
		"max-outstanding-total comes from environment TENURE_MAX_OUTSTANDING_TOTAL",
		"enforce-quota comes from an empty value",
		"overridden ssl.keyStore.location = /k.jks (" + zoo + " line 8): by flag --tls-cert",
		"honoured   clientPort = 21810 (" + zoo + " line 9): zk-listen = 127.0.0.1:21810",
	} {
		if !strings.Contains(verdicts(&l), want) {
			t.Errorf("the table lacks %q:\n%s", want, verdicts(&l))
		}
	}
}

// Goal: system properties count as ZooKeeper's scripts pass them, only beside a zoo.cfg,
// weaker than the file, the last one winning; what concerns Java is passed over, and no
// secret is shown. Method: both variables, with planted secrets also in keys that are
// ignored or unknown.
func TestZooCfgSystemProperties(t *testing.T) {
	environ := []string{
		"SERVER_JVMFLAGS=-Xmx1g -Dzookeeper.DigestAuthenticationProvider.superDigest=super:plantedSecret -Djute.maxbuffer=2000 -Dzookeeper.nosuch=1",
		"JVMFLAGS=-Djute.maxbuffer=3000 -Dzookeeper.extendedTypesEnabled=false -Dzookeeper.maxCnxns=9 -Dcom.sun.x=y -Djava.security.auth.login.config=/jaas",
		"TENURE_DATA_DIR=/d",
	}
	l, err := LoadConfig(Sources{ZooCfg: zooCfgOf(t, t.TempDir(), "maxCnxns=8\nssl.quorum.keyStore.password=plantedSecret\nmyPassword=plantedSecret"), Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	c := l.Config
	if c.SuperDigest.Reveal() != "super:plantedSecret" || c.MaxMessageBytes != 3000 || !c.NoTTL || c.MaxConnections != 8 {
		t.Errorf("got %+v", c)
	}
	table := verdicts(&l)
	for _, want := range []string{"unknown    zookeeper.nosuch = 1 (environment SERVER_JVMFLAGS)", "superDigest = [redacted] (environment SERVER_JVMFLAGS): super-digest = [redacted]", "ignored    java.security.auth.login.config"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	if strings.Contains(table, "planted") || strings.Contains(table, "com.sun") || strings.Contains(table, "Xmx") {
		t.Errorf("the table has what it should not:\n%s", table)
	}
	l, err = LoadConfig(Sources{Environ: environ})
	if err != nil || l.Config.NoTTL || len(l.ZooCfg) != 0 {
		t.Errorf("without a zoo.cfg: %v %+v", err, l.Config)
	}
}

// Goal: what ZooKeeper has written in its dataDir is left alone, and a server that begins
// empty beside it says so, once. Method: a dataDir with version-2, before and after.
func TestZooCfgBesideZooKeepersData(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "version-2"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		l, err := LoadConfig(Sources{ZooCfg: zooCfgOf(t, dir, "")})
		if err != nil {
			t.Fatal(err)
		}
		if warned := slices.ContainsFunc(l.Warnings, func(w string) bool { return strings.Contains(w, "begins empty") }); warned != want {
			t.Errorf("warnings %q, want one: %v", l.Warnings, want)
		}
		if err := os.Mkdir(l.Config.DataDir, 0o700); want && err != nil {
			t.Fatal(err)
		}
	}
}
