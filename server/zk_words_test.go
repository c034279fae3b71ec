//go:build unix

package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/recipes/recipestest"
	"github.com/tenure-dev/tenure/wire"
	"github.com/tenure-dev/tenure/znode"
)

// wordVaries are what differs between two servers or two moments, and what it becomes.
var wordVaries = []struct {
	pattern *regexp.Regexp
	to      string
}{
	{regexp.MustCompile(`Zookeeper version: .*`), "VERSION"},
	{regexp.MustCompile(`0x[0-9a-f]+`), "HEX"},
	// ZooKeeper groups what it lists by the tick in which it expires, and lists the
	// connection that asks.
	{regexp.MustCompile(`(?m)^\d+ expire at .*:\n`), ""},
	{regexp.MustCompile(`(?m)^\tip: .*\n`), ""},
	{regexp.MustCompile(`\d+\.\d+\.\d+\.\d+:\d+\[\d\]`), "PEER[N]"},
	{regexp.MustCompile(`\d+(\.\d+)?`), "N"},
}

// wordShape is an answer without what may differ, its lines sorted if they come in any
// order.
func wordShape(answer string, anyOrder bool) string {
	for _, v := range wordVaries {
		answer = v.pattern.ReplaceAllString(answer, v.to)
	}
	if !anyOrder {
		return answer
	}
	lines := strings.Split(answer, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// keysOf are what lies before sep in the lines of an answer.
func keysOf(answer, sep string) map[string]bool {
	keys := map[string]bool{}
	for line := range strings.Lines(answer) {
		if key, _, ok := strings.Cut(line, sep); ok {
			keys[key] = true
		}
	}
	return keys
}

// less returns what a has and b does not.
func less(a, b map[string]bool) (only []string) {
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if !b[key] {
			only = append(only, key)
		}
	}
	return only
}

// zkNotHere says which figures of ZooKeeper's mntr have no counterpart, and why.
// docs/zookeeper.md says the same.
var zkNotHere = []struct{ pattern, reason string }{
	{`_tls_|_mtls_|insecure_admin|unsuccessful_handshake|tls_handshake`, "TLS handshakes are not counted"},
	{`commit_?proc|processor_(queue|request)|prep_process|proposal_process|commit_process|sync_process_|final_proc|session_queue|_committed_time|` +
		`reads_(issued|after)|requests_in_|request_commit_queued|requests_not_forwarded|outstanding_changes|concurrent_request|close_session_prep|write_batch_time`,
		"ZooKeeper's chain of request processors"},
	{`learner|looking|election|leader_|quit_leading|quorum|propagation|proposal_(ack|latency)|follower|observer|ensemble_auth|revalidate|unavailable_time|om_`,
		"traffic between members"},
	{`snap|diff_count|startup|dbinit|digest_mismatch`, "snapshots and their loading: the state is a database"},
	{`jvm|netty|cnxn_closed_without|socket_closing|session_queues_drained|response_packet`, "ZooKeeper's Java implementation"},
	{`dead_watcher|node_(created|deleted|changed|children)_watch_count`, "watches told per event are not counted"},
	{`throttle|stale_(requests|replies)|large_requests|connection_token|sessionless`, "limits that are not these"},
	{`per_namespace`, "requests are not counted per namespace"},
}

// isNotHere reports whether a figure is one of them.
func isNotHere(key string) bool {
	return slices.ContainsFunc(zkNotHere, func(n struct{ pattern, reason string }) bool {
		return regexp.MustCompile(n.pattern).MatchString(key)
	})
}

// Goal: the documentation says which figures are missing, and why.
func TestWordsMissingFiguresAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/zookeeper.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range zkNotHere {
		if !strings.Contains(string(text), n.reason) {
			t.Errorf("docs/zookeeper.md does not say: %s", n.reason)
		}
	}
}

// played is a server, ours or ZooKeeper's, with one session that did the same on both.
type played struct {
	zk, http string
}

// play opens a session that holds an ephemeral and watches a znode's data.
func play(t *testing.T, zk, http string) played {
	t.Helper()
	r := &rawClient{t: t, link: dialFramedTo(t, zk), codec: wire.Jute{}, sent: map[int32]wire.Op{}}
	r.connect(wire.ConnectRequest{TimeoutMs: 4000, Password: make([]byte, 16)})
	r.must("/words", "data", persistent)
	r.must("/words/e", "", ephemeral)
	if e := r.watched(wire.OpGetData, "/words"); e != znode.OK {
		t.Fatal(e)
	}
	return played{zk, http}
}

// Goal: every word and every admin command answers as ZooKeeper's does, but for what is
// listed here. Method: ask both servers in the same situation and compare the shape of
// the texts and the keys of the JSON.
func TestWordsAndCommandsAsZooKeeper(t *testing.T) {
	real := recipestest.StartZooKeeper(t, recipestest.ZooKeeperOptions{TickTime: 2 * time.Second, Admin: true})
	s := startServer(t, Config{ZKWords: allListed})
	theirs := play(t, real.Addrs()[0], real.AdminAddr(0))
	ours := play(t, s.ZKAddr().String(), s.Addr().String())
	for _, word := range []string{"ruok", "isro", "srvr", "stat", "cons", "dump", "wchs", "wchc", "wchp", "dirs", "gtmk", "crst", "srst", "abcd"} {
		anyOrder := word == "cons" || word == "stat"
		want, got := wordShape(askWord(t, theirs.zk, word), anyOrder), wordShape(askWord(t, ours.zk, word), anyOrder)
		if got != want {
			t.Errorf("%s answers\n%s\nZooKeeper\n%s", word, got, want)
		}
	}
	compareKeys := func(word, sep string, wantMore, wantFewer func(key string) bool) {
		t.Helper()
		their, our := keysOf(askWord(t, theirs.zk, word), sep), keysOf(askWord(t, ours.zk, word), sep)
		if more := slices.DeleteFunc(less(our, their), wantMore); len(more) > 0 {
			t.Errorf("%s has keys that ZooKeeper has not: %v", word, more)
		}
		if fewer := slices.DeleteFunc(less(their, our), wantFewer); len(fewer) > 0 || len(our) == 0 {
			t.Errorf("%s lacks keys that ZooKeeper has: %v", word, fewer)
		}
	}
	never := func(string) bool { return false }
	compareKeys("conf", "=", never, never)
	compareKeys("envi", "=", func(key string) bool { return key == "go.version" }, func(key string) bool {
		return strings.HasPrefix(key, "java.") || strings.HasPrefix(key, "user.") || key == "os.memory.max"
	})
	compareKeys("mntr", "\t", never, isNotHere)
	for i := range zkFigures {
		if isNotHere(zkFigures[i].name) {
			t.Errorf("%s is here, and listed as if it were not", zkFigures[i].name)
		}
	}
	compareCommands(t, theirs, ours)
}

// commandPaths are the paths of all values in an answer of the AdminServer, without the
// keys that are ids, paths or times.
func commandPaths(t *testing.T, addr, command string) map[string]bool {
	t.Helper()
	resp, body := fetch(t, http.MethodGet, "http://"+addr+"/commands/"+command, nil)
	var v any
	if err := json.Unmarshal([]byte(body), &v); err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s of %s: %d %q: %v", command, addr, resp.StatusCode, body, err)
	}
	paths := map[string]bool{}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, inner := range v {
				if regexp.MustCompile(`^\d+$|^/`).MatchString(key) {
					key = "*"
				}
				walk(at+"."+key, inner)
			}
		case []any:
			for _, inner := range v {
				walk(at+"[]", inner)
			}
		}
		paths[fmt.Sprintf("%s %T", at, v)] = true
	}
	walk("", v)
	return paths
}

// compareCommands compares the keys and types of what the admin commands answer.
func compareCommands(t *testing.T, theirs, ours played) {
	names := func(p played) map[string]bool {
		_, body := fetch(t, http.MethodGet, "http://"+p.http+"/commands", nil)
		all := map[string]bool{}
		for _, m := range regexp.MustCompile(`<a href="/commands/(\w+)">`).FindAllStringSubmatch(body, -1) {
			all[m[1]] = true
		}
		return all
	}
	their, our := names(theirs), names(ours)
	if fewer := less(their, our); fmt.Sprint(fewer) != "[last_snapshot observer_connection_stat_reset system_properties]" {
		t.Errorf("ZooKeeper has, and this server lacks: %v", fewer)
	}
	if more := less(our, their); fmt.Sprint(more) != "[snapshot]" {
		t.Errorf("this server has, and ZooKeeper lacks: %v", more)
	}
	// These are compared as words, are for administrators, or differ on purpose: ZooKeeper
	// keeps a digest per 128 changes and Tenure that of the newest; alone, ZooKeeper says
	// that it is not initialized, and Tenure that it leads.
	apart := []string{"monitor", "environment", "snapshot", "initial_configuration", "connection_stat_reset", "stat_reset", "set_trace_mask", "hash", "leader"}
	for _, name := range append(slices.Sorted(maps.Keys(our)), "bogus") {
		if slices.Contains(apart, name) {
			continue
		}
		want, got := commandPaths(t, theirs.http, name), commandPaths(t, ours.http, name)
		for _, key := range []string{"fsync_threshold_exceed_count float64", "provider_null bool", "non_mtlsremote_conn_count float64", "non_mtlslocal_conn_count float64"} {
			delete(want, ".server_stats."+key)
		}
		if !maps.Equal(want, got) {
			t.Errorf("%s has, and ZooKeeper has not: %v; ZooKeeper has: %v", name, less(got, want), less(want, got))
		}
	}
}
