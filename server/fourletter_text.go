package server

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func versionLine() string { return "Zookeeper version: " + zkVersionLine() + "\n" }

// writeStats writes what srvr and stat share.
func (s *Server) writeStats(b *bytes.Buffer) {
	r := s.zkRead()
	least, largest := r.latencyMs()
	fmt.Fprintf(b, "Latency min/avg/max: %d/%s/%d\n", least, zkNumber(r.avgMs()), largest)
	fmt.Fprintf(b, "Received: %d\nSent: %d\nConnections: %d\nOutstanding: %d\n",
		s.traffic.received.Load(), s.traffic.sent.Load(), r.Connections, r.Outstanding)
	fmt.Fprintf(b, "Zxid: 0x%x\nMode: %s\nNode count: %d\n", s.store.LastZxid(), s.zkMode(), r.Counts.Znodes)
}

// writeConn writes one line of cons, or of stat.
func writeConn(b *bytes.Buffer, r *connReport, brief bool) {
	fmt.Fprintf(b, " /%s[%d](queued=%d,recved=%d,sent=%d", r.remote, r.interest, r.queued, r.received, r.sent)
	if !brief && r.session != 0 {
		fmt.Fprintf(b, ",sid=%v,lop=%s,est=%d,to=%d,lcxid=0x%x,lzxid=0x%x,lresp=%d,llat=%d,minlat=%d,avglat=%d,maxlat=%d",
			r.session, r.lastOpName(), r.began.UnixMilli(), r.timeoutMs, uint64(r.xid()), uint64(r.zxid()), r.lastAt/1e6,
			r.lastNs/1e6, r.minNs/1e6, r.avgNs()/1e6, r.maxNs/1e6)
	}
	b.WriteString(")\n")
}

// writeConns writes the connections, and how many are left out, if any.
func (s *Server) writeConns(b *bytes.Buffer, brief bool) {
	list, total := s.zkConns()
	for i := range list {
		writeConn(b, &list[i], brief)
	}
	if total > len(list) {
		fmt.Fprintf(b, " %d of %d connections are shown\n", len(list), total)
	}
	b.WriteString("\n")
}

func (s *Server) wordCons(b *bytes.Buffer, _ io.Reader) { s.writeConns(b, false) }

func (s *Server) wordStat(b *bytes.Buffer, _ io.Reader) {
	b.WriteString(versionLine() + "Clients:\n")
	s.writeConns(b, true)
	s.writeStats(b)
}

func (s *Server) wordConf(b *bytes.Buffer, _ io.Reader) {
	for _, l := range s.zkConf() {
		fmt.Fprintf(b, "%s=%v\n", l.key, l.value)
	}
}

func (s *Server) wordDirs(b *bytes.Buffer, _ io.Reader) {
	data, log := s.diskBytes()
	fmt.Fprintf(b, "datadir_size: %d\nlogdir_size: %d\n", data, log)
}

func (s *Server) wordEnvi(b *bytes.Buffer, _ io.Reader) {
	b.WriteString("Environment:\n")
	for _, l := range zkEnvironment() {
		fmt.Fprintf(b, "%s=%v\n", l.key, l.value)
	}
}

func (s *Server) wordMntr(b *bytes.Buffer, _ io.Reader) {
	for _, l := range s.zkRead().lines() {
		b.WriteString("zk_" + l.key + "\t" + zkNumber(l.value) + "\n")
	}
}

// wordHash writes the digest of the state as of the newest change: ZooKeeper has those of
// some earlier ones too.
func (s *Server) wordHash(b *bytes.Buffer, _ io.Reader) {
	zxid, digest := s.zkDigest()
	fmt.Fprintf(b, "%x: %d\n", zxid, digest)
}

func (s *Server) wordWchs(b *bytes.Buffer, _ io.Reader) {
	n := s.watches.counts()
	fmt.Fprintf(b, "%d connections watching %d paths\nTotal watches:%d\n", n.conns, n.paths, n.watches)
}

// writeMore says that a list of watches is not complete.
func writeMore(b *bytes.Buffer, more bool) {
	if more {
		fmt.Fprintf(b, "only %d watches are shown\n", zkListMax)
	}
	b.WriteString("\n")
}

func (s *Server) wordWchp(b *bytes.Buffer, _ io.Reader) {
	list, more := s.zkWatches()
	for i, w := range list {
		if i == 0 || list[i-1].path != w.path {
			b.WriteString(w.path + "\n")
		}
		fmt.Fprintf(b, "\t%v\n", w.session)
	}
	writeMore(b, more)
}

func (s *Server) wordWchc(b *bytes.Buffer, _ io.Reader) {
	list, more := s.zkWatches()
	slices.SortStableFunc(list, func(a, b zkWatch) int { return cmp.Compare(a.session, b.session) })
	for i, w := range list {
		if i == 0 || list[i-1].session != w.session {
			fmt.Fprintf(b, "%v\n", w.session)
		}
		b.WriteString("\t" + w.path + "\n")
	}
	writeMore(b, more)
}

// javaDate is the layout of a date in dump.
const javaDate = "Mon Jan 02 15:04:05 MST 2006"

// wordDump lists sessions, their ephemerals and their connections. ZooKeeper expires
// sessions in sets, once per tick; here each has a moment of its own.
func (s *Server) wordDump(b *bytes.Buffer, _ io.Reader) {
	d, err := s.zkSessions()
	if err != nil {
		b.WriteString(err.Error() + "\n")
		return
	}
	fmt.Fprintf(b, "SessionTracker dump:\nSession Sets (%d)/(%d):\n", len(d.sessions), d.total)
	var owners, connected int
	for _, one := range d.sessions {
		fmt.Fprintf(b, "1 expire at %s:\n\t%v\n", one.expires.Format(javaDate), one.id)
		owners += min(len(one.ephemerals), 1)
		connected += min(len(one.remote), 1)
	}
	fmt.Fprintf(b, "ephemeral nodes dump:\nSessions with Ephemerals (%d):\n", owners)
	for _, one := range d.sessions {
		if len(one.ephemerals) == 0 {
			continue
		}
		fmt.Fprintf(b, "%v:\n", one.id)
		for _, path := range one.ephemerals {
			b.WriteString("\t" + path + "\n")
		}
	}
	if d.cut {
		fmt.Fprintf(b, "only %d ephemerals are shown\n", zkListMax)
	}
	fmt.Fprintf(b, "Connections dump:\nConnections Sets (%d)/(%d):\n", connected, connected)
	for _, one := range d.sessions {
		if one.remote != "" {
			fmt.Fprintf(b, "1 expire at %s:\n\tip: /%s sessionId: %v\n", one.expires.Format(javaDate), one.remote, one.id)
		}
	}
}
