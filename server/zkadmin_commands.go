package server

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// zkCommands are those of ZooKeeper's AdminServer that mean something here.
var zkCommands = []zkCommand{
	{name: "configuration", short: []string{"conf", "config"}, word: "conf", run: runConfiguration},
	{name: "connection_stat_reset", short: []string{"crst"}, access: byAdmin, run: func(s *Server, _ *http.Request) (jsonObject, error) {
		s.resetConns()
		return nil, nil
	}},
	{name: "connections", short: []string{"cons"}, word: "cons", run: func(s *Server, _ *http.Request) (jsonObject, error) {
		return s.jsonConns(false), nil
	}},
	{name: "dirs", word: "dirs", run: func(s *Server, _ *http.Request) (jsonObject, error) {
		data, log := s.diskBytes()
		return jsonObject{{"datadir_size", data}, {"logdir_size", log}}, nil
	}},
	{name: "dump", word: "dump", run: runDump},
	{name: "environment", short: []string{"env", "envi"}, word: "envi", always: true, run: func(*Server, *http.Request) (jsonObject, error) {
		return jsonLines(zkEnvironment()), nil
	}},
	{name: "get_trace_mask", short: []string{"gtmk"}, word: "gtmk", always: true, run: runTraceMask},
	{name: "hash", word: "hash", run: func(s *Server, _ *http.Request) (jsonObject, error) {
		zxid, digest := s.zkDigest()
		return jsonObject{{"digests", []any{jsonObject{{"zxid", zxid}, {"digest", digest}}}}}, nil
	}},
	{name: "initial_configuration", short: []string{"icfg"}, access: byAdmin, always: true, run: runInitialConfiguration},
	{name: "is_read_only", short: []string{"isro"}, word: "isro", run: func(*Server, *http.Request) (jsonObject, error) {
		return jsonObject{{"read_only", false}}, nil
	}},
	{name: "leader", short: []string{"lead"}, access: byAnybody, run: runLeader},
	{name: "monitor", short: []string{"mntr"}, word: "mntr", run: func(s *Server, _ *http.Request) (jsonObject, error) {
		return jsonLines(s.zkRead().lines()), nil
	}},
	{name: "observers", short: []string{"obsr"}, access: byAnybody, run: runObservers},
	{name: "ruok", word: "ruok", always: true, run: func(*Server, *http.Request) (jsonObject, error) { return nil, nil }},
	{name: "server_stats", short: []string{"srvr"}, word: "srvr", run: func(s *Server, _ *http.Request) (jsonObject, error) {
		return s.jsonStats(), nil
	}},
	{name: "set_trace_mask", short: []string{"stmk"}, access: byAdmin, always: true, run: runSetTraceMask},
	{name: "snapshot", short: []string{"snap"}, access: byAdmin},
	{name: "stat_reset", short: []string{"srst"}, access: byAdmin, run: func(s *Server, _ *http.Request) (jsonObject, error) {
		s.resetTraffic()
		return nil, nil
	}},
	{name: "stats", short: []string{"stat"}, word: "stat", run: func(s *Server, _ *http.Request) (jsonObject, error) {
		return append(s.jsonStats(), s.jsonConns(true)...), nil
	}},
	{name: "voting_view", access: byAnybody, run: runVotingView},
	{name: "watch_summary", short: []string{"wchs"}, word: "wchs", run: func(s *Server, _ *http.Request) (jsonObject, error) {
		n := s.watches.counts()
		return jsonObject{{"num_connections", n.conns}, {"num_paths", n.paths}, {"num_total_watches", n.watches}}, nil
	}},
	{name: "watches", short: []string{"wchc"}, word: "wchc", run: runWatches},
	{name: "watches_by_path", short: []string{"wchp"}, word: "wchp", run: runWatchesByPath},
	{name: "zabstate", access: byAnybody, run: func(s *Server, _ *http.Request) (jsonObject, error) {
		return jsonObject{{"voting", !s.rep.Status().IsLearner}, {"zabstate", "broadcast"}}, nil
	}},
}

// jsonLines makes members of lines.
func jsonLines(lines []zkLine) (o jsonObject) {
	for _, l := range lines {
		o = append(o, jsonField(l))
	}
	return o
}

// configurationKeys are the AdminServer's names of what conf shows.
var configurationKeys = map[string]string{
	"clientPort": "client_port", "secureClientPort": "secure_client_port", "dataDir": "data_dir", "dataLogDir": "data_log_dir",
	"tickTime": "tick_time", "maxClientCnxns": "max_client_cnxns", "minSessionTimeout": "min_session_timeout",
	"maxSessionTimeout": "max_session_timeout", "serverId": "server_id", "clientPortListenBacklog": "client_port_listen_backlog",
}

func runConfiguration(s *Server, _ *http.Request) (o jsonObject, _ error) {
	for _, l := range s.zkConf() {
		// Only a port that is listened on is shown.
		if key := configurationKeys[l.key]; key != "" && !(l.key == "secureClientPort" && l.value == int64(-1)) {
			o = append(o, jsonField{key, l.value})
		}
	}
	return o, nil
}

func runInitialConfiguration(s *Server, _ *http.Request) (jsonObject, error) {
	var text bytes.Buffer
	if _, err := (&LoadedConfig{Config: s.cfg}).WriteTo(&text); err != nil {
		return nil, err
	}
	return jsonObject{{"initial_configuration", text.String()}}, nil
}

func runLeader(s *Server, r *http.Request) (jsonObject, error) {
	st := s.rep.Status()
	host := hostOf(s.Addr().String())
	if !st.IsLeader {
		for _, m := range s.memberList(r.Context()) {
			if m.ID == st.Leader {
				host = hostOf(m.Address)
			}
		}
	}
	return jsonObject{{"is_leader", st.IsLeader}, {"leader_id", st.Leader}, {"leader_ip", host}}, nil
}

// runObservers lists the members without a vote, which only the leader knows.
func runObservers(s *Server, _ *http.Request) (jsonObject, error) {
	var synced int64
	list := []any{}
	if f := s.memberFigures.Load(); f != nil {
		synced = f.SyncedLearners
		for _, m := range s.ensembleStatus().Members {
			if !m.Voter && m.Role != "" {
				list = append(list, m.Address)
			}
		}
	}
	return jsonObject{{"synced_observers", synced}, {"observers", list}}, nil
}

// runVotingView shows the voters. Alone, a member votes for itself: there is no quorum
// configuration to show.
func runVotingView(s *Server, r *http.Request) (jsonObject, error) {
	view := jsonObject{}
	if !s.alone() {
		for _, m := range s.memberList(r.Context()) {
			if m.Voter {
				view = append(view, jsonField{strconv.FormatUint(m.ID, 10), jsonObject{
					{"server_addresses", []any{m.Address}}, {"election_addresses", []any{m.Address}}, {"learner_type", "participant"}}})
			}
		}
	}
	return jsonObject{{"current_config", view}}, nil
}

func runTraceMask(s *Server, _ *http.Request) (jsonObject, error) {
	return jsonObject{{"tracemask", s.traceMask.Load()}}, nil
}

func runSetTraceMask(s *Server, r *http.Request) (jsonObject, error) {
	mask, err := strconv.ParseInt(r.URL.Query().Get("traceMask"), 10, 64)
	if err != nil {
		return nil, errors.New("setTraceMask requires long traceMask argument")
	}
	s.traceMask.Store(mask)
	return runTraceMask(s, r)
}

// jsonStats is what server_stats and stats share.
func (s *Server) jsonStats() jsonObject {
	r := s.zkRead()
	data, log := s.diskBytes()
	least, largest := r.latencyMs()
	last, smallest, biggest := r.sizes()
	sizes := jsonObject{{"last_buffer_size", last}, {"min_buffer_size", smallest}, {"max_buffer_size", biggest}}
	return jsonObject{
		{"version", zkVersionLine()},
		{"read_only", false},
		{"server_stats", jsonObject{
			{"packets_sent", s.traffic.sent.Load()},
			{"packets_received", s.traffic.received.Load()},
			{"client_response_stats", sizes},
			{"data_dir_size", data},
			{"log_dir_size", log},
			{"server_state", s.zkMode()},
			{"last_processed_zxid", s.store.LastZxid()},
			{"outstanding_requests", r.Outstanding},
			{"avg_latency", r.avgMs()},
			{"max_latency", largest},
			{"min_latency", least},
			{"num_alive_client_connections", r.Connections},
			{"uptime", r.uptimeMs},
			{"auth_failed_count", s.metrics.authFailures.Load()},
		}},
		{"client_response", sizes},
		{"node_count", r.Counts.Znodes},
	}
}

// jsonConns lists connections; briefly, without what their sessions did.
func (s *Server) jsonConns(brief bool) jsonObject {
	list, total := s.zkConns()
	conns := []any{}
	for i := range list {
		r := &list[i]
		o := jsonObject{
			{"remote_socket_address", r.remote},
			{"interest_ops", r.interest},
			{"outstanding_requests", r.queued},
			{"packets_received", r.received},
			{"packets_sent", r.sent},
		}
		if !brief && r.session != 0 {
			o = append(o, jsonObject{
				{"session_id", int64(r.session)},
				{"last_operation", r.lastOpName()},
				{"established", r.began.UnixMilli()},
				{"session_timeout", r.timeoutMs},
				{"last_cxid", r.xid()},
				{"last_zxid", r.zxid()},
				{"last_response_time", r.lastAt / 1e6},
				{"last_latency", r.lastNs / 1e6},
				{"min_latency", r.minNs / 1e6},
				{"avg_latency", r.avgNs() / 1e6},
				{"max_latency", r.maxNs / 1e6},
			}...)
		}
		conns = append(conns, o)
	}
	o := jsonObject{{"connections", conns}, {"secure_connections", []any{}}}
	return withMore(o, total > len(list), fmt.Sprintf("%d of %d connections are listed", len(list), total))
}

// withMore says that a list is not complete.
func withMore(o jsonObject, more bool, text string) jsonObject {
	if more {
		o = append(o, jsonField{"incomplete", text})
	}
	return o
}

func runDump(s *Server, _ *http.Request) (jsonObject, error) {
	d, err := s.zkSessions()
	if err != nil {
		return nil, err
	}
	var expiry, owners jsonObject
	for _, one := range d.sessions {
		id := int64(one.id)
		key := itoa(one.expires.UnixMilli())
		if last := len(expiry) - 1; last >= 0 && expiry[last].key == key {
			expiry[last].value = append(expiry[last].value.([]any), id)
		} else {
			expiry = append(expiry, jsonField{key, []any{id}})
		}
		if len(one.ephemerals) > 0 {
			owners = append(owners, jsonField{itoa(id), anys(one.ephemerals)})
		}
	}
	o := jsonObject{{"expiry_time_to_session_ids", expiry}, {"session_id_to_ephemeral_paths", owners}}
	return withMore(o, d.cut || d.total > len(d.sessions),
		fmt.Sprintf("%d of %d sessions, and at most %d ephemerals are listed", len(d.sessions), d.total, zkListMax)), nil
}

func anys[T any](list []T) []any {
	all := make([]any, len(list))
	for i, one := range list {
		all[i] = one
	}
	return all
}

func runWatches(s *Server, _ *http.Request) (jsonObject, error) {
	list, more := s.zkWatches()
	return jsonWatches("session_id_to_watched_paths", list, more, func(w zkWatch) (string, any) { return itoa(int64(w.session)), w.path }), nil
}

func runWatchesByPath(s *Server, _ *http.Request) (jsonObject, error) {
	list, more := s.zkWatches()
	return jsonWatches("path_to_session_ids", list, more, func(w zkWatch) (string, any) { return w.path, int64(w.session) }), nil
}

// jsonWatches groups watches.
func jsonWatches(name string, list []zkWatch, more bool, split func(zkWatch) (key string, value any)) jsonObject {
	var groups jsonObject
	at := map[string]int{}
	for _, w := range list {
		key, value := split(w)
		i, ok := at[key]
		if !ok {
			i = len(groups)
			at[key], groups = i, append(groups, jsonField{key, []any{}})
		}
		groups[i].value = append(groups[i].value.([]any), value)
	}
	return withMore(jsonObject{{name, groups}}, more, fmt.Sprintf("only %d watches are listed", len(list)))
}
