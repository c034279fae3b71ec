package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/bench"
)

// Goal: bench election measures what it is told to and writes the report in all forms.
// Method: two targets, which are one server, with few rounds; counts are judged, never
// time.
func TestBenchElection(t *testing.T) {
	address, name := benchServer(t), filepath.Join(t.TempDir(), "election")
	code, stdout, stderr := testRun(t, "bench", "election", "--target", "ws://"+address, "--target", address,
		"--candidates", "2", "--rounds", "5", "--crashes", "2", "--waiting", "10", "--tenures", "10", "--session-timeout", "1s",
		"--label", "a label", "--json", name+".json", "--html", name+".html")
	if code != exitOK || !strings.Contains(stdout, "clean hand-over p50") || !strings.Contains(stdout, "RATIO") {
		t.Fatalf("exit %d: %s\n%s", code, stderr, stdout)
	}
	data, err := os.ReadFile(name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var r bench.ElectionReport
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	want := bench.ElectionSettings{SessionTimeoutMs: 1000, Candidates: 2, Rounds: 5, Crashes: 2, Waiting: 10, Tenures: 10}
	if r.Settings != want || r.Label != "a label" || len(r.Results) != 2 {
		t.Errorf("%+v, %q, %d results; want %+v of two targets", r.Settings, r.Label, len(r.Results), want)
	}
	for _, result := range r.Results {
		if result.HandOver.Count != 5 || result.Crash.Count != 2 || result.TimeoutMs != 1000 || result.Version == "" {
			t.Errorf("%+v", result)
		}
	}
	if page, err := os.ReadFile(name + ".html"); err != nil || !strings.Contains(string(page), "</html>") {
		t.Errorf("the page: %v", err)
	}
	if code, stdout, _ := testRun(t, "ls", "/", "--endpoint", address); code != exitOK || strings.Contains(stdout, "bench-election") {
		t.Errorf("left behind: %s", stdout)
	}
}

// Goal: mistakes are told before anything is measured, and a target that is not there as
// with other commands. Method: command lines, and a dead port of either kind.
func TestBenchElectionRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"--candidates 1":          "candidates 1: must be from 2 to 1000",
		"--rounds 0":              "--rounds 0: must be above 0",
		"--tick -1s":              "--tick -1s: must not be negative",
		"--session-timeout 10ms":  "session timeout 10ms: must be from 100ms to 1h",
		"--target ftp://h":        "the scheme must be ws or wss",
		"--target zk://":          `endpoint "zk://"`,
		"unexpected":              "want no argument, got 1",
		"--waiting 1 --rounds -5": "--rounds -5: must be above 0",
	} {
		code, _, stderr := testRun(t, append([]string{"bench", "election"}, strings.Fields(line)...)...)
		if code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %q; want %q", line, code, stderr, want)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := l.Addr().String()
	l.Close()
	for _, scheme := range []string{"ws://", "zk://"} {
		code, _, stderr := testRun(t, "bench", "election", "--timeout", "2s", "--target", scheme+dead)
		if code != exitUnreachable || !strings.Contains(stderr, dead) {
			t.Errorf("%s: exit %d: %s", scheme, code, stderr)
		}
	}
}

// Goal: what a ZooKeeper tells of itself is read, and one that tells nothing is no error.
// Method: a listener that answers one word.
func TestZooKeeperWord(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			word := make([]byte, 4)
			if n, _ := nc.Read(word); string(word[:n]) == "conf" {
				nc.Write([]byte("clientPort=1\ntickTime=2000\n")) // the test sees if it fails
			}
			nc.Close()
		}
	}()
	for word, want := range map[string]string{"conf": "2000", "srvr": ""} {
		if got := zkWord(t.Context(), l.Addr().String(), word, "tickTime="); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
	l.Close()
	<-done
	if got := zkWord(t.Context(), l.Addr().String(), "conf", "tickTime="); got != "" {
		t.Errorf("a dead port told %q", got)
	}
}
