package server

import (
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// zkVersion is the release of ZooKeeper whose behaviour this server has.
const zkVersion = "3.9.5"

// zkVersionLine is the version as ZooKeeper's tools read it. They want it to begin with
// digits; some want only letters, digits, dots and dashes up to the comma, and the date
// in the layout that ZooKeeper had before 3.7.
var zkVersionLine = sync.OnceValue(func() string {
	b := Build()
	built, err := time.Parse(time.RFC3339, b.Time)
	if err != nil { // built without version control: no date is true
		built = time.Unix(0, 0)
	}
	return zkVersion + "-tenure." + b.Version + ", built on " + built.UTC().Format("01/02/2006 15:04 MST")
})

// zkReading is one reading of everything that ZooKeeper's monitoring asks for. No part
// of it walks sessions, watches or the tree.
type zkReading struct {
	figures
	s        *Server
	all      latencySum // requests since the last srst
	reads    zkSummary
	updates  zkSummary
	openFDs  int64 // -1: cannot be told here
	maxFDs   int64
	uptimeMs int64
}

func (s *Server) zkRead() *zkReading {
	r := &zkReading{s: s, figures: s.figures(), uptimeMs: s.now() / 1e6, openFDs: -1}
	r.all = s.traffic.since(s.metrics.answered())
	r.reads, r.updates = s.metrics.latencies()
	if dir, err := os.Open("/proc/self/fd"); err == nil {
		names, err := dir.Readdirnames(-1)
		dir.Close()
		if err == nil {
			r.openFDs = int64(len(names)) - 1 // less the directory itself
		}
	}
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		r.maxFDs = int64(min(limit.Cur, math.MaxInt64))
	}
	return r
}

// avgMs is the mean latency in milliseconds.
func (r *zkReading) avgMs() float64 {
	if r.all.count <= 0 {
		return 0
	}
	return float64(r.all.ns) / float64(r.all.count) / 1e6
}

// latencyMs returns the least and the largest latency in whole milliseconds, as
// ZooKeeper counts them.
func (r *zkReading) latencyMs() (least, largest int64) {
	least, largest, _ = r.s.traffic.latency.read()
	return max(least, 0) / 1e6, max(largest, 0) / 1e6
}

// sizes are those of messages to clients: the last, the least and the largest, -1 before
// the first.
func (r *zkReading) sizes() (last, least, largest int64) {
	t := &r.s.traffic
	least, largest, ok := t.sizes.read()
	if !ok {
		return -1, -1, -1
	}
	return t.lastSize.Load(), least, largest
}

// figureKind is how a figure is to be understood.
type figureKind uint8

const (
	zkText figureKind = iota
	zkGauge
	zkCounter
	// zkBasic and zkAdvanced are summaries: average, least, largest, count, sum; the
	// latter with quantiles.
	zkBasic
	zkAdvanced
)

// zkFigure is one figure under the name that it has in ZooKeeper, where mntr puts zk_
// before it. value returns a string, an int64, a float64 or a zkSummary, by kind.
type zkFigure struct {
	name  string
	kind  figureKind
	help  string
	value func(*zkReading) any
}

// zkEnsemble are those that a member of an ensemble has, zkLeader those of its leader. The
// older names of some are there as well, since exporters ask for them.
var (
	zkEnsemble = []zkFigure{
		{"peer_state", zkText, "", func(r *zkReading) any { return r.s.zkPeerState() }},
	}
	zkLeader = []zkFigure{
		{"quorum_size", zkGauge, "Members with a vote.", func(r *zkReading) any { return r.members().Voters }},
		{"learners", zkGauge, "Members besides the leader that answer.", func(r *zkReading) any { return r.members().Followers + r.members().Learners }},
		{"followers", zkGauge, "Members with a vote besides the leader that answer.", func(r *zkReading) any { return r.members().Followers }},
		{"synced_followers", zkGauge, "Members with a vote besides the leader that have nearly all of its log.", func(r *zkReading) any { return r.members().SyncedFollowers }},
		{"synced_observers", zkGauge, "Members without a vote that have nearly all of the leader's log.", func(r *zkReading) any { return r.members().SyncedLearners }},
		{"synced_non_voting_followers", zkGauge, "Always 0: who has no vote is an observer.", func(*zkReading) any { return int64(0) }},
		{"pending_syncs", zkGauge, "Always 0: syncs are not queued.", func(*zkReading) any { return int64(0) }},
	}
)

// figuresOfMode are all that this member shows.
func (r *zkReading) figuresOfMode() []zkFigure {
	if r.s.alone() {
		return zkFigures
	}
	all := append(zkFigures[:2:2], zkEnsemble...)
	all = append(all, zkFigures[2:]...)
	if r.Members != nil {
		all = append(all, zkLeader...)
	}
	return all
}

// zkFigures is what mntr, /commands/monitor and /metrics/zookeeper show. Figures of
// ZooKeeper that have no counterpart here are left out rather than shown as 0;
// docs/zookeeper.md lists them. Parsers expect the version first.
var zkFigures = []zkFigure{
	{"version", zkText, "", func(*zkReading) any { return zkVersionLine() }},
	{"server_state", zkText, "", func(r *zkReading) any { return r.s.zkMode() }},
	{"ephemerals_count", zkGauge, "Ephemeral znodes.", func(r *zkReading) any { return r.Counts.Ephemerals }},
	{"num_alive_connections", zkGauge, "Open client connections.", func(r *zkReading) any { return r.Connections }},
	{"avg_latency", zkGauge, "Mean milliseconds from request to reply.", func(r *zkReading) any { return r.avgMs() }},
	{"outstanding_requests", zkGauge, "Requests not answered yet.", func(r *zkReading) any { return r.Outstanding }},
	{"znode_count", zkGauge, "Znodes.", func(r *zkReading) any { return r.Counts.Znodes }},
	{"global_sessions", zkGauge, "Open sessions.", func(r *zkReading) any { return r.Counts.Sessions }},
	// Every session is replicated: none is local to a member.
	{"local_sessions", zkGauge, "Sessions that only this member knows.", func(*zkReading) any { return int64(0) }},
	{"last_client_response_size", zkGauge, "Bytes of the newest message to a client.", func(r *zkReading) any { last, _, _ := r.sizes(); return last }},
	{"max_client_response_size", zkGauge, "Bytes of the largest message to a client.", func(r *zkReading) any { _, _, largest := r.sizes(); return largest }},
	{"min_client_response_size", zkGauge, "Bytes of the smallest message to a client.", func(r *zkReading) any { _, least, _ := r.sizes(); return least }},
	{"packets_sent", zkGauge, "Messages sent to clients.", func(r *zkReading) any { return r.s.traffic.sent.Load() }},
	{"packets_received", zkGauge, "Messages received from clients.", func(r *zkReading) any { return r.s.traffic.received.Load() }},
	// Connections are refused at a bound and never by lot.
	{"connection_drop_probability", zkGauge, "Chance of a new connection to be dropped.", func(*zkReading) any { return 0.0 }},
	{"watch_count", zkGauge, "Watches.", func(r *zkReading) any { return r.Watches }},
	{"auth_failed_count", zkGauge, "Failed authentications.", func(r *zkReading) any { return r.s.metrics.authFailures.Load() }},
	{"min_latency", zkGauge, "Least milliseconds from request to reply.", func(r *zkReading) any { least, _ := r.latencyMs(); return least }},
	{"max_latency", zkGauge, "Most milliseconds from request to reply.", func(r *zkReading) any { _, largest := r.latencyMs(); return largest }},
	{"max_file_descriptor_count", zkGauge, "File descriptors that the process may have open.", func(r *zkReading) any { return r.maxFDs }},
	{"open_file_descriptor_count", zkGauge, "File descriptors that the process has open; -1 where the system does not tell.", func(r *zkReading) any { return r.openFDs }},
	{"approximate_data_size", zkGauge, "Bytes of data in znodes.", func(r *zkReading) any { return r.Counts.DataBytes }},
	{"uptime", zkGauge, "Milliseconds since the start.", func(r *zkReading) any { return r.uptimeMs }},

	{"proposal_count", zkCounter, "Transactions put into the log.", func(r *zkReading) any { return r.s.metrics.proposals.Load() }},
	{"commit_count", zkCounter, "Transactions applied.", func(r *zkReading) any { return r.s.metrics.applied.sum.Load() }},
	{"watch_bytes", zkCounter, "Bytes of events.", func(r *zkReading) any { return r.s.traffic.eventBytes.Load() }},
	{"response_bytes", zkCounter, "Bytes of replies.", func(r *zkReading) any { return r.s.traffic.sentBytes.Load() - r.s.traffic.eventBytes.Load() }},
	{"bytes_received_count", zkCounter, "Bytes of requests.", func(r *zkReading) any { return r.s.traffic.receivedBytes.Load() }},
	{"connection_request_count", zkCounter, "Sessions that were asked for or resumed.", func(r *zkReading) any { return r.s.metrics.ops[opSlot(0)].count() }},
	{"connection_rejected", zkCounter, "Connections closed because there were too many.", func(r *zkReading) any { return r.s.metrics.refusedConns.Load() }},
	{"connection_drop_count", zkCounter, "Connections that ended before their session was closed.", func(r *zkReading) any { return r.s.metrics.dropped.Load() }},
	{"stale_sessions_expired", zkCounter, "Sessions ended by their timeout.", func(r *zkReading) any { return r.s.metrics.expiries.Load() }},
	{"unrecoverable_error_count", zkCounter, "1 once the member failed and stopped for good.", func(r *zkReading) any {
		if r.s.healthy() != nil {
			return int64(1)
		}
		return int64(0)
	}},

	{"fsynctime", zkBasic, "Milliseconds of one sync of the log.", func(r *zkReading) any { return r.s.metrics.sync.summary() }},
	{"sync_processor_batch_size", zkBasic, "Transactions per sync of the log.", func(r *zkReading) any { return r.s.metrics.applied.summary() }},
	{"readlatency", zkAdvanced, "Milliseconds from a read to its reply.", func(r *zkReading) any { return r.reads }},
	{"updatelatency", zkAdvanced, "Milliseconds from a write to its reply.", func(r *zkReading) any { return r.updates }},
}

// zkLine is one line of mntr: a key without its zk_, and its value.
type zkLine struct {
	key   string
	value any // string, int64 or float64
}

// lines lists all figures, each summary as the lines that ZooKeeper makes of it.
func (r *zkReading) lines() (all []zkLine) {
	for _, f := range r.figuresOfMode() {
		value := f.value(r)
		sum, ok := value.(zkSummary)
		if !ok {
			all = append(all, zkLine{f.name, value})
			continue
		}
		all = append(all, zkLine{"avg_" + f.name, sum.avg()}, zkLine{"min_" + f.name, sum.least},
			zkLine{"max_" + f.name, sum.largest}, zkLine{"cnt_" + f.name, sum.count}, zkLine{"sum_" + f.name, sum.sum})
		if f.kind == zkAdvanced {
			for _, q := range zkQuantiles {
				all = append(all, zkLine{q.prefix + f.name, sum.quantile(q.share)})
			}
		}
	}
	return all
}

// zkNumber formats a value of a zkLine as Java does: at most four decimals, at least one,
// never an exponent.
func zkNumber(value any) string {
	switch v := value.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		text := strconv.FormatFloat(math.Round(v*1e4)/1e4, 'f', -1, 64)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		return text
	case string:
		return v
	}
	panic("server: a figure of no known type")
}

// zkMode is what this member is in ZooKeeper's words.
func (s *Server) zkMode() string {
	st := s.rep.Status()
	switch {
	case s.alone():
		return "standalone"
	case st.IsLeader:
		return "leader"
	case st.IsLearner:
		return "observer"
	}
	return "follower"
}

// alone reports whether this member has no others beside it.
func (s *Server) alone() bool { return s.network == nil || s.rep.BarrierNow() }

// zkPeerState is what a member of an ensemble does. All that is told to clients comes from
// a time when it does just that.
func (s *Server) zkPeerState() string {
	return map[string]string{"leader": "leading", "follower": "following", "observer": "observing"}[s.zkMode()] + " - broadcast"
}
