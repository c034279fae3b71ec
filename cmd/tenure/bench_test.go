package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/bench"
	"github.com/tenure-dev/tenure/server"
)

// benchServer runs a server until the test ends and returns its address.
func benchServer(t *testing.T) string {
	t.Helper()
	s, err := server.Open(server.Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0", ZKListen: "none"}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return s.Addr().String()
}

// readBenchReport reads the file of --json.
func readBenchReport(t *testing.T, name string) *bench.Report {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := bench.ReadReport(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Goal: every workload works, counts exactly, has no error, and leaves nothing behind.
// Method: 200 operations of each (5 rounds of the one that is made of rounds) against a
// server in this process; counts and shape are judged, never time.
func TestBenchEveryWorkload(t *testing.T) {
	address, dir := benchServer(t), t.TempDir()
	reports := map[string]*bench.Report{}
	for count, workloads := range map[string][]string{
		"200": {"create", "set", "get", "exists", "list", "mixed", "churn", "sessions"}, "5": {"watch"},
	} {
		name := filepath.Join(dir, count+".json")
		line := append([]string{"bench", "--endpoint", address, "--connections", "3", "--outstanding", "4", "--count", count, "--warmup", "20ms",
			"--watchers", "7", "--keys", "50", "--children", "5", "--repeat", "2", "--probe-dir", dir, "--json", name, "--html", name + ".html"}, workloads...)
		if code, stdout, stderr := testRun(t, line...); code != exitOK || !strings.Contains(stdout, "probe: synced 4 KiB append") {
			t.Fatalf("exit %d: %s\n%s", code, stderr, stdout)
		}
		reports[count] = readBenchReport(t, name)
		if n := len(reports[count].Rows); n != len(workloads)+1 {
			t.Errorf("%d rows, want create 1x1 and %q", n, workloads)
		}
		if page, err := os.ReadFile(name + ".html"); err != nil || !bytes.Contains(page, []byte("</html>")) {
			t.Errorf("the page: %v", err)
		}
	}
	for count, r := range reports {
		for _, row := range r.Rows {
			want := map[string]int64{"200": 200, "5": 5}[count]
			if row.Workload == "sessions" {
				want = 3
			}
			for _, run := range row.Runs {
				if run.Ops != want || run.Latency.Count != want || run.Errors != 0 || run.OpsPerSecond <= 0 || run.ServerCPUUs == nil {
					t.Errorf("%v: %+v; want %d operations", row.Shape, run, want)
				}
			}
			if len(row.Runs) != 2 {
				t.Errorf("%v: %d runs, want 2", row.Shape, len(row.Runs))
			}
		}
		if len(r.Probes) != 2 || slices.ContainsFunc(r.Probes, func(p bench.Probe) bool {
			return p.SyncGrowingUs <= 0 || p.SyncAllocatedUs <= 0 || p.RoundTripUs <= 0
		}) {
			t.Errorf("probes %+v", r.Probes)
		}
	}
	if _, stdout, _ := testRun(t, "ls", "/", "--endpoint", address); strings.TrimSpace(stdout) != "zookeeper" {
		t.Errorf("left behind: %q", stdout)
	}
}

// Goal: an open loop, JSON on standard output and a comparison work together with a
// chroot. Method: two short runs of one row at a rate, the second compared with the
// first.
func TestBenchOpenLoopAndComparison(t *testing.T) {
	address, name := benchServer(t), filepath.Join(t.TempDir(), "first.json")
	if code, _, stderr := testRun(t, "create", "/app", "--endpoint", address); code != exitOK {
		t.Fatal(stderr)
	}
	line := []string{"bench", "get", "--endpoint", "ws://" + address + "/app", "--connections", "2", "--outstanding", "2",
		"--count", "100", "--warmup", "0s", "--rate", "2000", "--probe-dir", t.TempDir()}
	code, stdout, stderr := testRun(t, append(line, "-o", "json", "--json", name)...)
	if code != exitOK || !json.Valid([]byte(stdout)) {
		t.Fatalf("exit %d: %s\n%s", code, stderr, stdout)
	}
	get := readBenchReport(t, name).Rows[1].Runs[0]
	if get.Ops != 100 || !slices.ContainsFunc(get.Figures, func(f bench.Figure) bool { return f.Name == "sent after due p50" }) {
		t.Errorf("open loop: %+v", get)
	}
	code, stdout, stderr = testRun(t, append(line, "--compare", name)...)
	if code != exitOK || !strings.Contains(stdout, "this run / the run of") {
		t.Errorf("exit %d: %s\n%s", code, stderr, stdout)
	}
	if _, stdout, _ := testRun(t, "ls", "/app", "--endpoint", address); stdout != "" {
		t.Errorf("left behind: %q", stdout)
	}
}

// Goal: an interrupted run reports the rows that it finished and removes what it made.
// Method: a run of an hour, interrupted once the measured row's node is there.
func TestBenchInterrupted(t *testing.T) {
	address := benchServer(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var stdout, stderr bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"bench", "create", "--endpoint", address, "--connections", "2", "--duration", "1h", "--warmup", "0s", "--probe-dir", t.TempDir()},
			strings.NewReader(""), &stdout, &stderr)
	}()
	for out := ""; !strings.Contains(out, "bench-"); {
		_, out, _ = testRun(t, "ls", "/", "--endpoint", address)
		select {
		case got := <-code:
			t.Fatalf("exit %d before it was interrupted: %s", got, stderr.String())
		default:
		}
	}
	interrupt()
	if got := <-code; got != exitInterrupted {
		t.Errorf("exit %d, %s", got, stderr.String())
	}
	if _, out, _ := testRun(t, "ls", "/", "--endpoint", address); strings.TrimSpace(out) != "zookeeper" {
		t.Errorf("left behind: %q", out)
	}
}

// Goal: a wrong command line of bench is refused before anything is sent. Method: one
// per rule; there is no server.
func TestBenchUsage(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{"bench nonsense", `workload "nonsense": want one of create, set`},
		{"bench --suite slow", `--suite "slow": want quick or full`},
		{"bench --connections 3", "they need a WORKLOAD"},
		{"bench get --repeat 0", "--repeat 0: must be from 1"},
		{"bench get --reads 101", "reads 101: must be from 0 to 100"},
		{"bench get --duration 0s --count -1", "count -1: must not be negative"},
		{"bench get --compare /does/not/exist", "/does/not/exist"},
	} {
		code, _, stderr := testRun(t, strings.Fields(test.line)...)
		if code != exitUsage || !strings.Contains(stderr, test.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: exit %d, %q; want 2 and one line with %q", test.line, code, stderr, test.want)
		}
	}
}

// Goal: the live line says how a row goes, and replaces the one before. Method: golden.
func TestBenchProgressLine(t *testing.T) {
	shape := bench.Shape{Workload: "get", Connections: 16, Outstanding: 4}
	got := progressLine(bench.Progress{Shape: shape, What: "measure", Rate: 1234.5, P50Us: 100, P99Us: 900, Errors: 2, Left: 7 * time.Second})
	if want := clearLine + "get 16x4: 1234 ops/s, p50 100 us, p99 900 us, errors 2, 7 s left"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := progressLine(bench.Progress{Shape: shape, What: "remove"}), clearLine+"get 16x4: remove"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
