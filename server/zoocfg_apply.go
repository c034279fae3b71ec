package server

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// zooSubdirectory of dataDir holds Tenure's data, so that the two servers can take turns
// on one dataDir and neither meets the other's files.
const zooSubdirectory = "tenure"

func (z *zooCfg) dataDir(e *zooEntry) {
	z.set(e, "data-dir", filepath.Join(e.Value, zooSubdirectory))
}

// warnOfTheirData says that a server begins empty beside ZooKeeper's data.
func (z *zooCfg) warnOfTheirData(e *zooEntry) {
	dir := filepath.Join(e.Value, zooSubdirectory)
	_, theirs := os.Stat(filepath.Join(e.Value, "version-2"))
	if _, ours := os.Stat(dir); theirs == nil && errors.Is(ours, fs.ErrNotExist) {
		z.loaded.Warnings = append(z.loaded.Warnings, "dataDir = "+e.Value+" holds ZooKeeper's data, which are not read: this server begins empty, in "+dir)
	}
}

// port returns the value of a key that names a port, "" if it is absent or 0, which
// ZooKeeper takes as absent.
func (z *zooCfg) port(name string) string {
	if text := z.value(name); strings.Trim(text, "0") != "" {
		return text
	}
	return ""
}

func (z *zooCfg) clientPort(e *zooEntry) {
	if z.port("clientPort") == "" {
		z.set(e, "zk-listen", addressNone)
		return
	}
	z.set(e, "zk-listen", joinHost(z.value("clientPortAddress"), e.Value))
	z.loaded.zooClientPort = z.origin(e)
}

// zooOpenAdvice is what to do about a clientPort that other machines can reach, as they
// can without clientPortAddress.
const zooOpenAdvice = ". From a zoo.cfg: set clientPortAddress=127.0.0.1; or put secureClientPort in clientPort's place, " +
	"with ssl.keyStore.location, ssl.trustStore.location and ssl.clientAuth=need; or start with --insecure"

func (z *zooCfg) clientPortAddress(e *zooEntry) {
	z.addressOf(e, "clientPort", "zk-listen")
}

func (z *zooCfg) secureClientPort(e *zooEntry) {
	if z.port("secureClientPort") == "" {
		return
	}
	z.set(e, "zk-tls-listen", joinHost(z.value("secureClientPortAddress"), e.Value))
	if z.entry("clientPort") == nil {
		z.set(e, "zk-listen", addressNone)
	}
	if z.entry("ssl.clientAuth") == nil {
		z.set(e, "tls-client-auth", ClientAuthRequire)
	}
}

func (z *zooCfg) secureClientPortAddress(e *zooEntry) {
	z.addressOf(e, "secureClientPort", "zk-tls-listen")
}

// addressOf judges an address, which has its effect through its port's setting.
func (z *zooCfg) addressOf(e *zooEntry, port, setting string) {
	if z.port(port) == "" {
		z.fail(e, "is set, but "+port+" is not")
		return
	}
	z.joined(e, setting+", with "+port)
}

// joinHost makes an address of a host, which may be an IPv6 address in brackets.
func joinHost(host, port string) string {
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}

func (z *zooCfg) tickTime(e *zooEntry) {
	tick, _ := strconv.ParseInt(e.Value, 10, 64) // form already checked
	for _, bound := range []struct {
		key, setting string
		ticks        int64
	}{{"minSessionTimeout", "zk-min-session-timeout", 2}, {"maxSessionTimeout", "zk-max-session-timeout", 20}} {
		if own := z.value(bound.key); own == "" || own == "-1" {
			z.set(e, bound.setting, zooMillis(tick*bound.ticks))
		}
	}
	if len(e.became) == 0 {
		z.ignore(e, "minSessionTimeout and maxSessionTimeout are set")
	}
}

func (z *zooCfg) sessionTimeout(e *zooEntry) {
	if e.Value == "-1" {
		z.ignore(e, "-1 leaves it to tickTime")
		return
	}
	n, _ := strconv.ParseInt(e.Value, 10, 64) // form already checked
	z.set(e, map[string]string{"minSessionTimeout": "zk-min-session-timeout", "maxSessionTimeout": "zk-max-session-timeout"}[e.name], zooMillis(n))
}

func (z *zooCfg) juteMaxBuffer(e *zooEntry) {
	n, _ := strconv.ParseInt(e.Value, 0, 64) // form already checked
	z.set(e, "max-message-bytes", strconv.FormatInt(n, 10))
	if len(e.became) > 0 && 2*n > int64((Config{}).WithDefaults().OutboxBytes) {
		z.set(e, "outbox-bytes", strconv.FormatInt(2*n, 10))
	}
}

func (z *zooCfg) extendedTypes(e *zooEntry) {
	z.set(e, "no-ttl", strconv.FormatBool(strings.EqualFold(e.Value, "false")))
}

// words takes the four-letter words that there are.
func (z *zooCfg) words(e *zooEntry) {
	var known []string
	for word := range strings.SplitSeq(e.Value, ",") {
		if word = strings.TrimSpace(word); isListableWord(word) == nil {
			known = append(known, word)
		}
	}
	if len(known) == 0 {
		z.ignore(e, "lists no four-letter word")
		return
	}
	z.set(e, "zk-words", strings.Join(known, ","))
}

// adminServer makes the AdminServer's address that of HTTP. Where ZooKeeper's default is
// all interfaces it stays on loopback: an absent key should not open a door to clients.
func (z *zooCfg) adminServer(e *zooEntry) {
	port, host := z.value("admin.serverPort"), z.value("admin.serverAddress")
	if strings.EqualFold(z.value("admin.enableServer"), "false") {
		z.ignore(e, "admin.enableServer is false")
		return
	}
	rule := zooHost
	if e.name == "admin.serverPort" {
		rule = zooPort
	}
	if err := rule(e.Value); err != nil {
		z.fail(e, err.Error())
		return
	}
	if e.name == "admin.serverAddress" && port != "" {
		z.joined(e, "listen, with admin.serverPort")
		return
	}
	if host == "" {
		host = "127.0.0.1"
	}
	if port == "" {
		port = "8080" // ZooKeeper's default
	}
	z.set(e, "listen", joinHost(host, port))
}

func (z *zooCfg) dynamicConfigFile(e *zooEntry) { z.joined(e, "its lines are read, too") }

// zooNumber is the rule of whole numbers.
func zooNumber(min, max int64) func(string) error {
	return func(text string) error {
		if n, err := strconv.ParseInt(text, 10, 64); err != nil || n < min || n > max {
			return rule("must be a whole number from %d to %d", min, max)
		}
		return nil
	}
}

// zooPort is the rule of ports.
func zooPort(text string) error { return zooNumber(0, 65535)(text) }

// zooSize is the rule of jute.maxbuffer, which Java also takes in hexadecimal.
func zooSize(text string) error {
	if _, err := strconv.ParseInt(text, 0, 64); err != nil {
		return rule("must be a whole number of bytes, as in 1048575 or 0xfffff")
	}
	return nil
}

// zooBool is the rule of switches.
func zooBool(text string) error {
	if !strings.EqualFold(text, "true") && !strings.EqualFold(text, "false") {
		return rule("must be true or false")
	}
	return nil
}

// zooYesNo is the rule of the switches that ZooKeeper sets with a yes or a no.
func zooYesNo(text string) error {
	if strings.EqualFold(text, "yes") || strings.EqualFold(text, "no") {
		return nil
	}
	if zooBool(text) != nil {
		return rule("must be yes or no")
	}
	return nil
}

// zooHost is the rule of addresses without a port.
func zooHost(text string) error {
	if text == "" || strings.ContainsAny(text, "/ *@") {
		return rule("must be a host name or an IP address")
	}
	return nil
}

// zooPath is the rule of files and directories.
func zooPath(text string) error {
	if text == "" {
		return rule("must be a path")
	}
	return nil
}

func zooPeerType(text string) error {
	return oneOf("participant", "observer")(strings.ToLower(text))
}

func zooStoreType(text string) error {
	return oneOf("PEM", "JKS", "PKCS12", "BCFKS")(strings.ToUpper(text))
}
