package tests

import (
	"encoding/json"
	"strings"
	"testing"
)

// Goal: an export is faithful: its import elsewhere gives the same kinds, lifetimes,
// access lists and data, null and empty told apart; ephemeral nodes are left out and
// counted. Method: export a subtree of all of these while an ephemeral node is held,
// import it twice, in both forms, and compare the exports.
func TestCommandLineExportIsFaithful(t *testing.T) {
	s := newCLIServer(t)
	for _, args := range [][]string{
		{"/app", ""}, {"/app/null"}, {"/app/text", "a b"},
		{"-c", "/app/queue", "q"}, {"-c", "/app/queue/empty-container"}, {"/app/queue/item", ""},
		{"--ttl", "1h0m0.5s", "/app/cache", "c"}, {"--ttl", "24h", "/app/queue/lease"},
		{"--acl", "ip:127.0.0.0/8:cdrwa,digest:bob:AAAAAAAAAAAAAAAAAAAAAAAAAAA=:r", "/app/closed", "x"},
	} {
		s.must(append([]string{"create"}, args...)...)
	}
	code, out, stderr := s.run("", "create", "-e", "/app/held", "--", program(t, "tenure"), "export", "/app")
	if code != 0 || !strings.Contains(stderr, "exported 9 nodes, skipped 1 ephemeral ones") {
		t.Fatalf("exit %d, %q", code, stderr)
	}
	export := strings.TrimPrefix(out, "/app/held\n")
	for _, want := range []string{
		`{"path":"/queue","data":"q","mode":"container"}`, `{"path":"/queue/lease","mode":"ttl","ttl":"24h0m0s"}`,
		`{"path":"/cache","data":"c","mode":"ttl","ttl":"1h0m0.5s"}`, `{"path":"/queue/item","data":""}`, `{"path":"/null"}`,
	} {
		if !strings.Contains(export, want+"\n") {
			t.Errorf("exported\n%sbut not %s", export, want)
		}
	}
	s.mustRead(export, "import", "/copy")
	if got := s.must("export", "/copy"); got != export {
		t.Errorf("the copy is exported as\n%swant\n%s", got, export)
	}
	s.mustRead(s.must("export", "--document", "/copy"), "import", "/again")
	if got := s.must("export", "/again"); got != export {
		t.Errorf("the copy of the document is exported as\n%swant\n%s", got, export)
	}
}

// modeLine is what ls, stat and tree say of a node in JSON.
type modeLine struct{ Name, Path, Mode, TTL string }

// Goal: ls -l, stat and tree tell the four kinds of nodes apart. Method: one node of
// each kind, and what the three print of them, for people and as JSON.
func TestCommandLineShowsModes(t *testing.T) {
	s := newCLIServer(t)
	s.must("create", "/m")
	s.must("create", "/m/p")
	s.must("create", "-c", "/m/c")
	s.must("create", "--ttl", "90s", "/m/t")
	shell := func(line string) []string {
		return []string{"create", "-e", "/m/e", "--", "/bin/sh", "-c", strings.ReplaceAll(line, "tenure", program(t, "tenure"))}
	}
	if got, want := s.must(shell("tenure tree /m")...), "/m/e\n/m\n├── c (container)\n├── e *\n├── p\n└── t (ttl 1m30s)\n\n4 nodes below\n"; got != want {
		t.Errorf("tree drew\n%swant\n%s", got, want)
	}
	long := s.must(shell("tenure ls -l /m")...)
	for i, want := range []string{"/m/e", "MODE", "container", "ephemeral", "persistent", "ttl 1m30s"} {
		if line := strings.Split(long, "\n")[i]; !strings.HasPrefix(line, want) {
			t.Errorf("line %d of ls -l is %q, want %s first", i, line, want)
		}
	}
	want := map[string]modeLine{
		"c": {Mode: "container"}, "e": {Mode: "ephemeral"}, "p": {Mode: "persistent"}, "t": {Mode: "ttl", TTL: "1m30s"},
	}
	const all = "tenure ls -l -o json /m; tenure tree -o json /m; for n in c e p t; do tenure stat -o json /m/$n; done"
	lines := strings.Split(strings.TrimSpace(s.must(shell(all)...)), "\n")[1:]
	if len(lines) != 3*len(want) {
		t.Fatalf("printed %q", lines)
	}
	for _, line := range lines {
		var got modeLine
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		w := want[got.Name+strings.TrimPrefix(got.Path, "/m/")]
		if got.Mode != w.Mode || got.TTL != w.TTL || w.Mode == "" {
			t.Errorf("%s: want %+v", line, w)
		}
	}
	if stat := s.must("stat", "/m/t"); !strings.HasSuffix(stat, "\nmode            ttl 1m30s\n") {
		t.Errorf("stat printed %q", stat)
	}
}
