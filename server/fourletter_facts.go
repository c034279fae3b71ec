package server

import (
	"cmp"
	"net"
	"os"
	"path/filepath"
	"runtime"
	runtimeMetrics "runtime/metrics"
	"strconv"
	"strings"
)

// zkConf is the configuration in the terms of zoo.cfg. There is no tick: tickTime is the
// one that gives ZooKeeper the same least session timeout.
func (s *Server) zkConf() []zkLine {
	data, log := s.diskBytes()
	least, most := s.cfg.ZKMinSessionTimeout.Milliseconds(), s.cfg.ZKMaxSessionTimeout.Milliseconds()
	return []zkLine{
		{"clientPort", portOf(s.ZKAddr())},
		{"secureClientPort", portOf(addrOf(s.zkTLS))},
		{"dataDir", filepath.Join(s.cfg.DataDir, stateDir)},
		{"dataDirSize", data},
		{"dataLogDir", filepath.Join(s.cfg.DataDir, logDir)},
		{"dataLogSize", log},
		{"tickTime", least / 2},
		{"maxClientCnxns", int64(s.cfg.MaxConnectionsPerIP)},
		{"minSessionTimeout", least},
		{"maxSessionTimeout", most},
		{"clientPortListenBacklog", int64(-1)}, // the system's
		{"serverId", int64(s.rep.Status().ID)},
	}
}

// portOf is the port of an address that is listened on, -1 for none.
func portOf(a net.Addr) int64 {
	if t, ok := a.(*net.TCPAddr); ok {
		return int64(t.Port)
	}
	return -1
}

// diskBytes is the space that state and log take.
func (s *Server) diskBytes() (state, log int64) {
	return int64(s.store.Metrics().DiskSpaceUsage()), int64(s.rep.Metrics().DiskSpaceUsage())
}

// zkDigest is the digest of the state and the zxid that it belongs to.
func (s *Server) zkDigest() (zxid int64, digest uint64) {
	s.state.RLock()
	defer s.state.RUnlock()
	return s.store.LastZxid(), s.store.Digest()
}

// zkEnvironment is what envi shows: ZooKeeper's names where they mean something without
// Java, and nothing of the account that the server runs under.
func zkEnvironment() []zkLine {
	host, _ := os.Hostname()
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	memory := []runtimeMetrics.Sample{{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/total:bytes"}}
	runtimeMetrics.Read(memory)
	return []zkLine{
		{"zookeeper.version", zkVersionLine()},
		{"host.name", cmp.Or(host, "<NA>")},
		{"go.version", runtime.Version()},
		{"os.name", strings.ToUpper(runtime.GOOS[:1]) + runtime.GOOS[1:]},
		{"os.arch", runtime.GOARCH},
		{"os.version", cmp.Or(strings.TrimSpace(string(release)), "<NA>")},
		{"os.memory.free", megabytes(memory[0])},
		{"os.memory.total", megabytes(memory[1])},
	}
}

func megabytes(s runtimeMetrics.Sample) string {
	return strconv.FormatUint(s.Value.Uint64()>>20, 10) + "MB"
}
