package main

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// productionZooCfg has the shape of the example that comes with ZooKeeper and what
// operators add to it.
const productionZooCfg = `# The number of milliseconds of each tick
tickTime=1500
# ticks of the initial synchronization, and between a request and its acknowledgement
initLimit=10
syncLimit=5
dataDir=DIR
dataLogDir=DIR/txnlog
clientPort=PORT
clientPortAddress=127.0.0.1 
maxClientCnxns=60
autopurge.snapRetainCount=3
autopurge.purgeInterval=24
admin.enableServer=true
admin.serverPort=0
snapCount=100000
preAllocSize=65536
globalOutstandingLimit=1000
metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider
metricsProvider.httpPort=7000
server.1=zoo1.example.com:2888:3888
`

// freePort returns a port that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// writeZooCfg writes a zoo.cfg into dir, which DIR in text stands for.
func writeZooCfg(t *testing.T, dir, text string) string {
	t.Helper()
	path := filepath.Join(dir, "zoo.cfg")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Goal: a zoo.cfg as production has it is served: at its port, with its ticks, its data
// beside ZooKeeper's and those untouched; what became of each key is said once in the log
// and by config check. Method: a real process, a handshake that asks for 1 ms.
func TestZooCfgServes(t *testing.T) {
	dir, port := t.TempDir(), freePort(t)
	snapshot := filepath.Join(dir, "version-2", "snapshot.0")
	if err := os.Mkdir(filepath.Dir(snapshot), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(snapshot, []byte("ZKSN"), 0o600); err != nil {
		t.Fatal(err)
	}
	zoo := writeZooCfg(t, dir, strings.ReplaceAll(productionZooCfg, "PORT", port))
	p := start(t, []string{"SERVER_JVMFLAGS=-Xmx512m -Dzookeeper.extendedTypesEnabled=true"}, "--zoo-cfg", zoo)
	if p.fields["zk-listen"] != "127.0.0.1:"+port || p.fields["data-dir"] != filepath.Join(dir, "tenure") {
		t.Errorf("ready line %q", p.ready)
	}
	if got := grantedTimeout(t, "127.0.0.1:"+port, time.Millisecond); got != 3*time.Second {
		t.Errorf("granted a timeout of %v, want 2 ticks", got)
	}
	if code := p.stop(syscall.SIGTERM); code != exitOK {
		t.Errorf("exit code %d\n%s", code, p.stderr)
	}
	code, printed, stderr, _ := finish(t, []string{"TENURE_ZOO_CFG=" + zoo}, "config", "check")
	if code != exitOK {
		t.Errorf("config check: %d %s", code, stderr)
	}
	for line := range strings.Lines(productionZooCfg) {
		key, _, isEntry := strings.Cut(line, "=")
		if !isEntry || line[0] == '#' {
			continue
		}
		if n := strings.Count(p.stderr.String(), " "+key+" = "); n != 1 {
			t.Errorf("the log speaks %d times of %s:\n%s", n, key, p.stderr)
		}
		if strings.Count(printed, " "+key+" = ") != 1 {
			t.Errorf("config check lacks %s:\n%s", key, printed)
		}
	}
	if !strings.Contains(printed, "\nzk-min-session-timeout: 3s # "+zoo+" line 2, tickTime\n") {
		t.Errorf("config check lacks the origin:\n%s", printed)
	}
	if !strings.Contains(p.stderr.String(), "begins empty") {
		t.Errorf("no warning that ZooKeeper's data are not read:\n%s", p.stderr)
	}
	if text, err := os.ReadFile(snapshot); err != nil || string(text) != "ZKSN" {
		t.Errorf("ZooKeeper's snapshot: %q, %v", text, err)
	}
}

// grantedTimeout opens a session with ZooKeeper's handshake and returns its timeout.
func grantedTimeout(t *testing.T, addr string, ask time.Duration) time.Duration {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	b := binary.BigEndian.AppendUint32(nil, 44)
	b = append(b, make([]byte, 4+8)...)
	b = binary.BigEndian.AppendUint32(b, uint32(ask.Milliseconds()))
	b = append(b, make([]byte, 8)...)
	b = append(binary.BigEndian.AppendUint32(b, 16), make([]byte, 16)...)
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(startDeadline))
	reply := make([]byte, 4+36)
	if _, err := io.ReadFull(c, reply); err != nil {
		t.Fatal(err)
	}
	return time.Duration(binary.BigEndian.Uint32(reply[8:])) * time.Millisecond
}

// Goal: a mistake in a zoo.cfg stops the start within 3 s with file, line, key, value and
// what is allowed, and nothing is half-started; C145's that are none in ZooKeeper's eyes
// are none. Method: real processes, one mistake each.
func TestC145ZooCfgStartMistakes(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	const local = "\nclientPortAddress=127.0.0.1\ndataDir=DIR\n"
	for _, row := range []struct {
		name, cfg string
		code      int
		want      []string
	}{
		{"port in use", "clientPort=" + port + local, exitError, []string{"zk-listen", port, "in use"}},
		{"port twice", "clientPort=2190\nadmin.serverPort=2190" + local, exitUsage, []string{"zoo.cfg line 1", "2190", "port of listen"}},
		{"all interfaces", "dataDir=DIR\nclientPort=2181", exitUsage, []string{"line 2", "clientPortAddress=127.0.0.1", "--insecure"}},
		{"no dataDir", "clientPort=2181\nclientPortAddress=127.0.0.1", exitUsage, []string{"data-dir", "required"}},
		{"dataDir that is not there", "clientPort=2181\nclientPortAddress=127.0.0.1\ndataDir=/no/such", exitError, []string{"data-dir", "/no/such/tenure"}},
		{"misspelt number", "tickTime=2 s\nclientPort=2181" + local, exitUsage, []string{"line 1", "tickTime", `"2 s"`, "whole number"}},
		{"two values", "clientPort=2181\nclientPort=2182" + local, exitUsage, []string{"line 2", "clientPort", "2182", "given twice"}},
		{"members", "server.1=a:1:2\nserver.2=b:1:2\nclientPort=2181" + local, exitUsage, []string{"line 1", "server.1", "myid", "member-id"}},
		{"secret", "DigestAuthenticationProvider.superDigest=plantedSecret" + local, exitUsage, []string{"superDigest", "[redacted]"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			var args []string
			if row.name != "port twice" {
				args = []string{"--listen", "127.0.0.1:0"}
			}
			code, stdout, stderr, took := finish(t, nil, append(args, "--zoo-cfg", writeZooCfg(t, dir, row.cfg))...)
			if code != row.code || stdout != "" || took > 3*time.Second {
				t.Errorf("exit code %d, want %d, after %v; standard output %q", code, row.code, took, stdout)
			}
			for _, want := range row.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("message lacks %q:\n%s", want, stderr)
				}
			}
			if strings.Contains(stderr, "plantedSecret") {
				t.Errorf("the secret shows:\n%s", stderr)
			}
			if _, err := os.Stat(filepath.Join(dir, "tenure")); row.code == exitUsage && err == nil {
				t.Error("the data directory was made in spite of the mistake")
			}
		})
	}
}
