package bench

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Goal: merging shards loses no value, no maximum and no precision. Method: the same
// latencies into one histogram and into a recorder with many shards and two parts.
func TestRecorderMergesShards(t *testing.T) {
	one := newHistogram()
	r := newRecorder([]string{"a", "b"}, 1000)
	if len(r.shards) != shardsMax {
		t.Fatalf("%d shards, want %d", len(r.shards), shardsMax)
	}
	for i := range 5000 {
		ns := int64(i*i) * 37
		one.record(ns)
		r.of(i).record(i%2, time.Duration(ns))
		if i%1000 == 0 {
			r.collect()
		}
	}
	beyond := latencyMax + 12345*1000 // what a histogram cannot hold
	one.record(beyond)
	r.of(7).record(0, time.Duration(beyond))
	r.of(3).fail("broken", errors.New("in full"))
	r.collect()
	got, want := r.all().latency(), one.latency()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("merged %+v\nwant   %+v", got, want)
	}
	if got.Max != float64(beyond)/1e3 {
		t.Errorf("max %v us, want the exact %v", got.Max, float64(beyond)/1e3)
	}
	if n := r.total[0].count() + r.total[1].count(); n != 5001 || r.errors != 1 {
		t.Errorf("%d values and %d errors, want 5001 and 1", n, r.errors)
	}
	if counts, first := r.kinds(); counts["broken"] != 1 || first["broken"] != "in full" {
		t.Errorf("errors %v, %v", counts, first)
	}
}

// Goal: percentiles are those of the values, within three digits. Method: 1 to 100000
// microseconds, of which every percentile is known.
func TestLatencyPercentiles(t *testing.T) {
	h := newHistogram()
	for us := int64(1); us <= 100_000; us++ {
		h.record(us * 1000)
	}
	l := h.latency()
	for _, c := range l.Curve {
		want := max(c.Percent*1000, 1)
		if math.Abs(c.Us-want) > want/500+1 {
			t.Errorf("p%v = %v us, want %v", c.Percent, c.Us, want)
		}
	}
	if l.Count != 100_000 || l.Max != 100_000 {
		t.Errorf("count %d, max %v", l.Count, l.Max)
	}
}

// Goal: request n of an open loop is due at n/rate, however large n is. Method: exact
// points, and a rate that no nanosecond divides, after a day.
func TestScheduleDoesNotDrift(t *testing.T) {
	s := schedule{rate: 1000}
	for n, want := range map[int64]time.Duration{0: 0, 1: time.Millisecond, 1500: 1500 * time.Millisecond} {
		if got := s.due(n); got != want {
			t.Errorf("due(%d) = %v, want %v", n, got, want)
		}
	}
	odd := schedule{rate: 3}
	if got, day := odd.due(3*86400), 24*time.Hour; (got - day).Abs() > time.Microsecond {
		t.Errorf("after a day: %v, want %v", got, day)
	}
}

// testRow is a row whose requests are answered by do.
func testRow(cfg Config, shape Shape, do workload) *row {
	cfg.Target = &Tenure{}
	r := &row{cfg: cfg, shape: shape, work: do}
	for range shape.Connections {
		r.conns = append(r.conns, nothing{})
	}
	r.makeWorkers()
	return r
}

// xmlElements reads a page as XML and fails the test if it is not well-formed. It returns
// how many elements there are of each name.
func xmlElements(t *testing.T, page []byte) map[string]int {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(page))
	d.Entity = xml.HTMLEntity
	elements := map[string]int{}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return elements
		}
		if err != nil {
			t.Fatalf("the page does not parse: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok {
			elements[e.Name.Local]++
		}
	}
}

// exampleReport is a report of known figures, with text that HTML must escape.
func exampleReport() *Report {
	run := func(rate, p50 float64) Run {
		cpuUs := 12.5
		return Run{Ops: 1000, Seconds: 1, OpsPerSecond: rate, ClientCPUUs: 20, ServerCPUUs: &cpuUs,
			Latency: Latency{Count: 1000, P50: p50, P99: 2 * p50, P999: 3 * p50, Max: 12345,
				Curve: []Percentile{{0, p50 / 2}, {50, p50}, {99, 2 * p50}, {100, 12345}}},
			Series: []Sample{{1, rate, p50, 2 * p50}, {2, rate * 1.1, p50, 2 * p50}},
			Errors: 1, ErrorKinds: map[string]int64{"NoNode": 1},
			Parts:   []Part{{"get", Latency{Count: 900, P50: p50}}},
			Figures: []Figure{{"held", 20, ""}, {"memory", 3 << 20, "bytes"}, {"late", 7, "us"}}}
	}
	return &Report{Label: `<b>"1 & 2"</b>`,
		Environment: Environment{Date: "2026-01-02T03:04:05Z", Target: "tenure <x>", Go: "go1.26", OS: "Linux 6", Arch: "amd64", Cores: 2, Flags: []string{"--count=5"}},
		Settings:    Settings{Count: 1000, Repeat: 3, ValueBytes: 100, Keys: 1000, Children: 10, ReadPercent: 90},
		Probes:      []Probe{{100, 60, 20, 180}, {140, 60, 20, 180}, {110, 90, 22, 180}},
		Rows: []Row{
			{Shape{"create", 1, 1}, []Run{run(4000, 260), run(5000, 240), run(4500, 280)}},
			{Shape{"get", 16, 4}, []Run{run(90000, 600)}}}}
}

// Goal: the table says what was measured, errors and outliers too. Method: golden text
// of a known report, whose repetitions have known medians.
func TestTable(t *testing.T) {
	var b bytes.Buffer
	if err := exampleReport().WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	const want = `  WORKLOAD   CxO   OPS  OPS/S  SPREAD    P50     P99   P99.9     MAX  ERRORS  CLIENT CPU  SERVER CPU
    create   1x1  3000   4500     22%  260us   520us   780us  12.3ms       3      20.0us      12.5us
       get  16x4  1000  90000       -  600us  1.20ms  1.80ms  12.3ms       1      20.0us      12.5us
create 1x1: 3 errors: NoNode
create 1x1: get: 900, p50 280us, p99 0.0us, max 0.0us
create 1x1: held 20, memory 3.0 MiB, late 7.0us
get 16x4: 1 errors: NoNode
get 16x4: get: 900, p50 600us, p99 0.0us, max 0.0us
get 16x4: held 20, memory 3.0 MiB, late 7.0us
probe: synced 4 KiB append p50 110us (growing file), 60us (allocated file); loopback round trip p50 20us; load generator 180 ns/op
create 1x1 p50 260us is 2.00 x (append to a growing file + round trip), 3.25 x (append to an allocated file + round trip)
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// Goal: what is written as JSON is read back, and compared row by row. Method: a round
// trip, then ratios of a report to itself with half the speed.
func TestJSONAndComparison(t *testing.T) {
	now := exampleReport()
	var b bytes.Buffer
	if err := now.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	then, err := ReadReport(&b)
	if err != nil || !reflect.DeepEqual(now, then) {
		t.Fatalf("read back %+v, %v\nwant %+v", then, err, now)
	}
	then.Rows[1].Runs[0].OpsPerSecond = 45000
	then.Rows = append(then.Rows, Row{Shape{"set", 1, 1}, then.Rows[1].Runs})
	want := []Ratio{{Shape{"create", 1, 1}, 1, 1, 1, 1}, {Shape{"get", 16, 4}, 2, 1, 1, 1}}
	if got := now.Compare(then); !reflect.DeepEqual(got, want) {
		t.Errorf("compared %v, want %v", got, want)
	}
	for _, bad := range []string{"", "[]", `{"rows":[{"workload":"get"}]}`} {
		if _, err := ReadReport(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read as a report", bad)
		}
	}
}

// Goal: the page is well-formed, complete, and refers to nothing outside itself.
// Method: parse it, count its plots, and look for anything that a browser would load.
func TestPageIsSelfContained(t *testing.T) {
	var b bytes.Buffer
	r := exampleReport()
	if err := r.WriteHTML(&b, r); err != nil {
		t.Fatal(err)
	}
	elements := xmlElements(t, b.Bytes())
	if elements["svg"] != 1+2*2 || elements["rect"] != 2 || elements["polyline"] != 4 || elements["b"] != 0 {
		t.Errorf("elements %v", elements)
	}
	if found := regexp.MustCompile(`(?i)(src=|href=|url\(|@import|https?:|<script|<link)[^>]{0,40}`).Find(b.Bytes()); found != nil {
		t.Errorf("the page refers to %q", found)
	}
	if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
		t.Error("a plot has no coordinates")
	}
	if !strings.Contains(b.String(), "prefers-color-scheme: dark") {
		t.Error("the page has no dark form")
	}
}

// Goal: a bad configuration is refused with the value and the rule. Method: one each.
func TestValidate(t *testing.T) {
	for want, c := range map[string]Config{
		`workload "x": want one of create`:      {Rows: []Shape{{"x", 1, 1}}},
		"connections 0: must be from 1":         {Rows: []Shape{{"get", 0, 1}}},
		"outstanding -1: must be from 1":        {Rows: []Shape{{"get", 1, -1}}},
		"connections 100000 x outstanding 1000": {Rows: []Shape{{"get", 100000, 1000}}},
		"duration -1s: must be above 0":         {Duration: -time.Second},
		"count -1: must not":                    {Count: -1},
		"warmup -1s: must not":                  {Warmup: -time.Second},
		"rate -1: must be":                      {Rate: -1},
		"size 1048577: must be":                 {ValueBytes: 1<<20 + 1},
		"keys -1: must be":                      {Keys: -1},
		"children -1: must be":                  {Children: -1},
		"reads 101: must be":                    {ReadPercent: 101},
		"watchers -1: must be":                  {Watchers: -1},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// Goal: a stall is seen by every request that was due in it: no coordinated omission.
// Method: in fake time, one worker at 100/s against a service that answers at once but
// for one request, which takes a second: 100 requests then have latencies of 1 s down
// to nothing, where a closed loop would have seen one.
func TestOpenLoopCountsFromDueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		w := workload{parts: []string{"x"}, do: stallingDo(&calls)}
		r := testRow(Config{}, Shape{"x", 1, 1}, w)
		p := r.phase(t.Context(), goal{count: 200, rate: 100})
		if p.err != nil {
			t.Fatal(p.err)
		}
		slow := 0
		l := p.rec.all()
		for _, bar := range l.h.Distribution() {
			if bar.From >= int64(5*time.Millisecond) {
				slow += int(bar.Count)
			}
		}
		if l.count() != 200 || slow < 99 || slow > 101 {
			t.Errorf("%d of %d requests were slow, want about 100 of 200", slow, l.count())
		}
		if p.elapsed != 1990*time.Millisecond {
			t.Errorf("took %v, want 1.99s: a stall must not stretch the timetable", p.elapsed)
		}
	})
}

// Goal: a closed loop makes exactly count operations, or ends with its duration, and
// gives up on a service that only fails. Method: in fake time, a service with a known
// latency of 10 ms; one that fails.
func TestClosedLoopEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRow(Config{}, Shape{"x", 2, 3}, workload{parts: []string{"x"}, do: slowDo})
		if p := r.phase(t.Context(), goal{count: 100}); p.rec.all().count() != 100 || p.err != nil {
			t.Errorf("%d operations, %v; want 100", p.rec.all().count(), p.err)
		}
		p := r.phase(t.Context(), goal{duration: time.Second})
		if n := p.rec.all().count(); n != 600 || p.elapsed != time.Second {
			t.Errorf("%d operations in %v, want 600 in 1s", n, p.elapsed)
		}
		r = testRow(Config{}, Shape{"x", 1, 1}, workload{parts: []string{"x"}, do: failingDo})
		p = r.phase(t.Context(), goal{duration: time.Hour})
		if counts, _ := p.rec.kinds(); p.err == nil || counts["other"] != failuresMax {
			t.Errorf("%v after %v", p.err, counts)
		}
	})
}

// slowDo is a service that takes 10 ms for everything.
func slowDo(context.Context, *worker) (int, error) {
	time.Sleep(10 * time.Millisecond)
	return 0, nil
}

// stallingDo is a service that answers at once but for its 51st request.
func stallingDo(calls *int) func(context.Context, *worker) (int, error) {
	return func(context.Context, *worker) (int, error) {
		if *calls++; *calls == 51 {
			time.Sleep(time.Second)
		}
		return 0, nil
	}
}

// failingDo is a service that refuses everything.
func failingDo(context.Context, *worker) (int, error) { return 0, errors.New("refused") }
