package server

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// adminHeader has the admin token of a server.
func adminHeader(t *testing.T, s *Server) http.Header {
	t.Helper()
	return http.Header{"Authorization": {"Bearer " + adminTokenOf(t, s)}}
}

// command runs an admin command and returns status and body.
func command(t *testing.T, s *Server, name string, header http.Header) (int, string) {
	t.Helper()
	resp, body := fetch(t, http.MethodGet, "http://"+s.Addr().String()+"/commands/"+name, header)
	return resp.StatusCode, body
}

// Goal: everybody may run what shows no more than the listed words, and only an
// administrator the rest; what changes something is never for everybody. Method: every
// command, under each of its names, by a stranger, with the token, with the super digest
// and with wrong ones.
func TestCommandsWhoMay(t *testing.T) {
	super := znode.DigestID("super", "secret")
	closed := startServer(t, Config{SuperDigest: Secret(super)})
	opened := startServer(t, Config{ZKWords: allListed})
	digest := http.Header{"Authorization": {"digest super:secret"}}
	shut := []string{"connection_stat_reset", "initial_configuration", "set_trace_mask", "snapshot", "stat_reset"}
	listed := []string{"connections", "dump", "stats", "watches", "watches_by_path"}
	for i := range zkCommands {
		c := &zkCommands[i]
		admin := slices.Contains(shut, c.name)
		byWord := admin || slices.Contains(listed, c.name)
		for _, name := range append([]string{c.name}, c.short...) {
			for _, row := range []struct {
				who     string
				s       *Server
				header  http.Header
				refused int
			}{
				{"stranger", closed, nil, map[bool]int{true: 401}[byWord]},
				{"stranger where all words are listed", opened, nil, map[bool]int{true: 401}[admin]},
				{"wrong token", closed, http.Header{"Authorization": {"Bearer " + testToken}}, map[bool]int{true: 403}[byWord]},
				{"wrong password", closed, http.Header{"Authorization": {"digest super:guess"}}, map[bool]int{true: 401}[byWord]},
				{"digest where no super is set", opened, digest, map[bool]int{true: 401}[admin]},
				{"token", closed, adminHeader(t, closed), 0},
				{"super", closed, digest, 0},
			} {
				want := max(row.refused, 200)
				if status, body := command(t, row.s, name, row.header); status != want || (status != 200) != strings.Contains(body, "Auth info is missing or wrong") {
					t.Errorf("%s by %s: %d %.200q, want %d", name, row.who, status, body, want)
				}
			}
		}
	}
	if resp, _ := fetch(t, http.MethodPost, "http://"+opened.Addr().String()+"/commands/stat_reset", adminHeader(t, opened)); resp.StatusCode != 405 {
		t.Errorf("POST: %d", resp.StatusCode)
	}
	foreign := http.Header{"Origin": {"https://example.com"}}
	if status, _ := command(t, opened, "monitor", foreign); status != 403 {
		t.Errorf("from a foreign page: %d", status)
	}
}

// Goal: the bodies are what ZooKeeper's AdminServer prints, and true. Method: exact texts
// and values with a session that holds something; while nothing is served, too.
func TestCommandsBodies(t *testing.T) {
	s := startServer(t, Config{ZKWords: allListed})
	r := openAs(t, s, zooKeeper, 30*time.Second)
	r.must("/e", "", ephemeral)
	r.watched(wire.OpGetData, "/e")
	id := strconv.FormatInt(int64(r.session.Session), 10)
	for name, want := range map[string]string{
		"ruok":            "{\n  \"command\" : \"ruok\",\n  \"error\" : null\n}\n",
		"bogus":           "{\n  \"command\" : \"bogus\",\n  \"error\" : \"Unknown command: bogus\"\n}\n",
		"isro":            "{\n  \"read_only\" : false,\n  \"command\" : \"is_read_only\",\n  \"error\" : null\n}\n",
		"voting_view":     "{\n  \"current_config\" : { },\n  \"command\" : \"voting_view\",\n  \"error\" : null\n}\n",
		"watches":         "{\n  \"session_id_to_watched_paths\" : {\n    \"" + id + "\" : [ \"/e\" ]\n  },\n  \"command\" : \"watches\",\n  \"error\" : null\n}\n",
		"watches_by_path": "{\n  \"path_to_session_ids\" : {\n    \"/e\" : [ " + id + " ]\n  },\n  \"command\" : \"watches_by_path\",\n  \"error\" : null\n}\n",
	} {
		if status, got := command(t, s, name, nil); status != 200 || got != want {
			t.Errorf("%s: %d %s, want %s", name, status, got, want)
		}
	}
	var dump struct {
		Expiry     map[string][]int64  `json:"expiry_time_to_session_ids"`
		Ephemerals map[string][]string `json:"session_id_to_ephemeral_paths"`
	}
	_, body := command(t, s, "dump", nil)
	if err := json.Unmarshal([]byte(body), &dump); err != nil || len(dump.Expiry) != 1 || len(dump.Ephemerals[id]) != 1 {
		t.Errorf("dump: %s: %v", body, err)
	}
	if _, got := command(t, s, "monitor", nil); !strings.Contains(got, "\n  \"znode_count\" : 5,\n") || !strings.Contains(got, "\n  \"connection_drop_probability\" : 0.0,\n") {
		t.Errorf("monitor: %s", got)
	}
	admin := adminHeader(t, s)
	if _, got := command(t, s, "stmk?traceMask=5", admin); !strings.Contains(got, "\"tracemask\" : 5,") {
		t.Errorf("set_trace_mask: %s", got)
	}
	if _, got := command(t, s, "stmk", admin); !strings.Contains(got, "requires long traceMask") {
		t.Errorf("set_trace_mask without one: %s", got)
	}
	command(t, s, "crst", admin)
	command(t, s, "srst", admin)
	if _, got := command(t, s, "cons", nil); !strings.Contains(got, "\"packets_received\" : 0,") {
		t.Errorf("connections after connection_stat_reset: %s", got)
	}
	if _, got := command(t, s, "srvr", nil); !strings.Contains(got, "\"packets_received\" : 0,") {
		t.Errorf("server_stats after stat_reset: %s", got)
	}
	if _, got := command(t, s, "icfg", admin); !strings.Contains(got, "max-watches: 5000000") {
		t.Errorf("initial_configuration: %s", got)
	}
	s.serving.Store(false)
	defer s.serving.Store(true)
	if _, got := command(t, s, "srvr", nil); !strings.Contains(got, "\"error\" : \"This ZooKeeper instance is not currently serving requests\"") {
		t.Errorf("while nothing is served: %s", got)
	}
	if _, got := command(t, s, "ruok", nil); !strings.Contains(got, "\"error\" : null") {
		t.Errorf("ruok while nothing is served: %s", got)
	}
}

// Goal: a dashboard made for ZooKeeper's Prometheus provider finds its names, with the
// values of mntr. Method: a scrape.
func TestCommandsPrometheus(t *testing.T) {
	s := startServer(t, Config{})
	r := openAs(t, s, zooKeeper, 30*time.Second)
	r.must("/n", "12345", persistent)
	resp, text := fetch(t, http.MethodGet, "http://"+s.Addr().String()+"/metrics/zookeeper", nil)
	if resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	for _, line := range []string{"znode_count 5", "approximate_data_size 5", "num_alive_connections 1", "outstanding_requests 0",
		"# TYPE znode_count gauge", "# TYPE proposal_count counter", "proposal_count 2",
		"# TYPE updatelatency summary", `updatelatency{quantile="0.99"} [0-9]+`, "updatelatency_count 2", "fsynctime_count [1-9][0-9]*", "process_open_fds [1-9][0-9]*"} {
		if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(text) {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
	for i := range zkFigures {
		if f := &zkFigures[i]; (f.kind != zkText) != strings.Contains(text, "# HELP "+f.name+" ") {
			t.Errorf("%s is shown: %t", f.name, f.kind == zkText)
		}
	}
}
