package server

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metricsCollector turns metrics and figures into Prometheus' form at each scrape.
type metricsCollector struct {
	m     *metrics
	read  func() figures
	build BuildInfo
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("tenure_"+name, help, labels, nil)
}

// The descriptions with labels or of histograms.
var (
	descBuild    = desc("build_info", "Always 1; the labels say what is running.", "version", "commit", "go")
	descLatency  = desc("request_duration_seconds", "From request decoded to reply queued.", "op")
	descRequests = desc("requests_total", "Requests answered.", "op", "code")
	descApply    = desc("apply_duration_seconds", "Applying one log entry, events and answers included.")
	descApplied  = desc("apply_batch_transactions", "Transactions per log entry.")
	descSync     = desc("log_sync_duration_seconds", "One sync of the log.")

	descDisk           = desc("disk_bytes", "Space used by a database.", "db")
	descMemtable       = desc("memtable_bytes", "Memory of a database's memtables.", "db")
	descBlockCache     = desc("block_cache_bytes", "Memory of a database's block cache.", "db")
	descCompactions    = desc("compactions_total", "Compactions of a database since start.", "db")
	descFlushes        = desc("flushes_total", "Memtable flushes of a database since start.", "db")
	descDebt           = desc("compaction_debt_bytes", "Estimated bytes still to compact.", "db")
	descWAL            = desc("wal_bytes", "Size of a database's write-ahead log.", "db")
	descPeerUp         = desc("peer_connected", "1 while another member is connected.", "peer")
	descPeerRTT        = desc("peer_round_trip_seconds", "Round trip to another member, smoothed.", "peer")
	descPeerQueue      = desc("peer_queued_bytes", "Bytes that wait to be sent to another member.", "peer")
	descPeerDropped    = desc("peer_dropped_frames_total", "Frames for another member that were dropped.", "peer")
	descPeerReconnects = desc("peer_reconnects_total", "Connections made to another member after the first.", "peer")

	descReadAmp = desc("read_amplification", "Tables that a read may have to look into.", "db")
)

// plainFigure is a figure without labels.
type plainFigure struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(m *metrics, f *figures) float64
}

var plainFigures = []plainFigure{
	gauge("connections", "Open client connections.", func(f *figures) int64 { return f.Connections }),
	gauge("watches", "Watches set.", func(f *figures) int64 { return f.Watches }),
	gauge("outstanding_requests", "Requests not answered yet.", func(f *figures) int64 { return f.Outstanding }),
	gauge("outstanding_bytes", "Bytes of requests not answered yet.", func(f *figures) int64 { return f.OutstandingBytes }),
	gauge("outbox_bytes", "Bytes that clients have not read yet.", func(f *figures) int64 { return f.OutboxBytes }),
	gauge("sessions", "Open sessions.", func(f *figures) int64 { return f.Counts.Sessions }),
	gauge("znodes", "Znodes.", func(f *figures) int64 { return f.Counts.Znodes }),
	gauge("ephemerals", "Ephemeral znodes.", func(f *figures) int64 { return f.Counts.Ephemerals }),
	gauge("data_bytes", "Bytes of data in znodes.", func(f *figures) int64 { return f.Counts.DataBytes }),
	gauge("history_changes", "Changes kept for watches to catch up from.", func(f *figures) int64 { return f.Counts.HistoryCount }),
	gauge("history_bytes", "Bytes of those changes.", func(f *figures) int64 { return f.Counts.HistoryBytes }),
	gauge("history_first_zxid", "Changes after this zxid are all kept.", func(f *figures) int64 { return f.Counts.HistoryFirst }),
	gauge("kept_results", "Results kept for requests that may be resent.", func(f *figures) int64 { return f.Counts.Results }),
	gauge("member_id", "This member's id.", func(f *figures) int64 { return int64(f.Replica.ID) }),
	gauge("leader_id", "The leader's id, 0 if none is known.", func(f *figures) int64 { return int64(f.Replica.Leader) }),
	gauge("is_leader", "1 while this member leads.", func(f *figures) int64 {
		if f.Replica.IsLeader {
			return 1
		}
		return 0
	}),
	gauge("term", "Raft term.", func(f *figures) int64 { return int64(f.Replica.Term) }),
	gauge("log_first_index", "First entry in the log.", func(f *figures) int64 { return int64(f.Replica.First) }),
	gauge("log_last_index", "Last entry in the log.", func(f *figures) int64 { return int64(f.Replica.Last) }),
	gauge("log_committed_index", "Last committed entry.", func(f *figures) int64 { return int64(f.Replica.Committed) }),
	gauge("log_applied_index", "Last applied entry.", func(f *figures) int64 { return int64(f.Replica.Applied) }),
	gauge("followers", "On the leader: other voters that answer.", func(f *figures) int64 { return f.members().Followers }),
	gauge("synced_followers", "On the leader: those of them that have nearly all of its log.", func(f *figures) int64 { return f.members().SyncedFollowers }),
	gauge("learners", "On the leader: members without a vote that answer.", func(f *figures) int64 { return f.members().Learners }),
	gauge("differing_members", "On the leader: members whose state is not its own. It must be 0.", func(f *figures) int64 { return f.members().Differing }),
	gauge("log_bytes", "Size of the log.", func(f *figures) int64 { return f.Replica.LogBytes }),

	counter("events_sent_total", "Watch events sent.", func(m *metrics) int64 { return m.events.Load() }),
	counter("slow_consumers_total", "Connections closed because they did not read.", func(m *metrics) int64 { return m.slow.Load() }),
	counter("refused_behind_total", "Handshakes refused because the client had seen more than this member.", func(m *metrics) int64 { return m.behind.Load() }),
	counter("refused_connections_total", "Connections closed because there were too many.", func(m *metrics) int64 { return m.refusedConns.Load() }),
	counter("dropped_connections_total", "Connections that ended before their session was closed.", func(m *metrics) int64 { return m.dropped.Load() }),
	counter("auth_failures_total", "Failed authentications.", func(m *metrics) int64 { return m.authFailures.Load() }),
	counter("sessions_expired_total", "Sessions ended by their timeout.", func(m *metrics) int64 { return m.expiries.Load() }),
	plainCounter("elections_total", "Elections in which this member stood.", func(f *figures) int64 { return f.Stats.Elections }),
	plainCounter("leader_changes_total", "New leaders that this member has seen.", func(f *figures) int64 { return f.Stats.LeaderChanges }),
	plainCounter("forwarded_proposals_total", "Transactions sent to the leader, those that were sent again included.", func(f *figures) int64 { return f.Stats.Forwarded }),
	plainCounter("snapshots_sent_total", "Snapshots of the state sent to other members.", func(f *figures) int64 { return f.Stats.SnapshotsSent }),
	plainCounter("snapshots_received_total", "Snapshots of the state received of other members.", func(f *figures) int64 { return f.Stats.SnapshotsReceived }),
	plainCounter("snapshot_sent_bytes_total", "Bytes of snapshots sent.", func(f *figures) int64 { return f.Stats.SnapshotBytes }),
	plainCounter("leader_questions_total", "Questions to the leader, which confirm reads and renew sessions.", func(f *figures) int64 { return f.Stats.Asks }),
	counter("proposals_total", "Transactions that this member as leader put into the log.", func(m *metrics) int64 { return m.proposals.Load() }),
	counter("read_barriers_total", "Read barriers asked for.", func(m *metrics) int64 { return m.barrier.Load() }),
	{desc("session_extension_seconds_total", "Time added to every session timeout because the server itself had stalled."),
		prometheus.CounterValue, func(m *metrics, _ *figures) float64 { return float64(m.extendedNs.Load()) / 1e9 }},
}

func gauge(name, help string, value func(*figures) int64) plainFigure {
	return plainFigure{desc(name, help), prometheus.GaugeValue,
		func(_ *metrics, f *figures) float64 { return float64(value(f)) }}
}

func plainCounter(name, help string, value func(*figures) int64) plainFigure {
	f := gauge(name, help, value)
	f.kind = prometheus.CounterValue
	return f
}

func counter(name, help string, value func(*metrics) int64) plainFigure {
	return plainFigure{desc(name, help), prometheus.CounterValue,
		func(m *metrics, _ *figures) float64 { return float64(value(m)) }}
}

// Describe sends nothing: which operations and databases there are is known only at a
// scrape, so the collector is an unchecked one.
func (c *metricsCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *metricsCollector) Collect(ch chan<- prometheus.Metric) {
	f := c.read()
	ch <- prometheus.MustNewConstMetric(descBuild, prometheus.GaugeValue, 1, c.build.Version, c.build.Commit, c.build.Go)
	for i := range plainFigures {
		ch <- prometheus.MustNewConstMetric(plainFigures[i].desc, plainFigures[i].kind, plainFigures[i].value(c.m, &f))
	}
	for slot := range c.m.ops {
		op := &c.m.ops[slot]
		op.latency.collect(ch, descLatency, opName(slot))
		for code := range op.codes {
			if n := op.codes[code].Load(); n > 0 {
				ch <- prometheus.MustNewConstMetric(descRequests, prometheus.CounterValue, float64(n), opName(slot), codeName(code))
			}
		}
	}
	c.m.apply.collect(ch, descApply)
	c.m.applied.collect(ch, descApplied)
	c.m.sync.collect(ch, descSync)
	for i := range f.Disks {
		f.Disks[i].collect(ch)
	}
	for i := range f.Peers {
		f.Peers[i].collect(ch)
	}
}

// members are the figures of the other members, all 0 where they are not known.
func (f *figures) members() memberFigures {
	if f.Members == nil {
		return memberFigures{}
	}
	return *f.Members
}

func (p *PeerStatus) collect(ch chan<- prometheus.Metric) {
	connected := 0.0
	if p.Connected {
		connected = 1
	}
	for _, figure := range []struct {
		desc  *prometheus.Desc
		kind  prometheus.ValueType
		value float64
	}{
		{descPeerUp, prometheus.GaugeValue, connected},
		{descPeerRTT, prometheus.GaugeValue, p.RTTMs / 1e3},
		{descPeerQueue, prometheus.GaugeValue, float64(p.QueuedBytes)},
		{descPeerDropped, prometheus.CounterValue, float64(p.Dropped)},
		{descPeerReconnects, prometheus.CounterValue, float64(p.Reconnects)},
	} {
		ch <- prometheus.MustNewConstMetric(figure.desc, figure.kind, figure.value, strconv.FormatUint(p.ID, 10))
	}
}

func (d *diskFigures) collect(ch chan<- prometheus.Metric) {
	for _, figure := range []struct {
		desc  *prometheus.Desc
		kind  prometheus.ValueType
		value int64
	}{
		{descDisk, prometheus.GaugeValue, d.DiskBytes},
		{descMemtable, prometheus.GaugeValue, d.MemtableBytes},
		{descBlockCache, prometheus.GaugeValue, d.CacheBytes},
		{descCompactions, prometheus.CounterValue, d.Compactions},
		{descFlushes, prometheus.CounterValue, d.Flushes},
		{descDebt, prometheus.GaugeValue, d.CompactionDebtBytes},
		{descWAL, prometheus.GaugeValue, d.WALBytes},
		{descReadAmp, prometheus.GaugeValue, d.ReadAmplification},
	} {
		ch <- prometheus.MustNewConstMetric(figure.desc, figure.kind, float64(figure.value), d.Name)
	}
}
