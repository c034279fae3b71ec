// Package bench measures a coordination service under load and reports what it found:
// throughput, latency with its tail, errors, and the CPU time of both sides. It is
// the engine of "tenure bench".
//
// A run is a list of rows; a row is one workload at one shape, connections x
// outstanding requests per connection. Every row works below a fresh node of its own
// and removes it afterwards. A probe in the same run measures what the machine
// allows, one synced append and one loopback round trip, so that latencies can be
// read as multiples of it.
//
// In a closed loop a worker sends its next request when the last one is answered: the
// load adapts to the server, and a stall holds back requests that would have seen it.
// With Config.Rate requests have a time at which they are due, whatever happened to
// those before, and latency counts from then.
package bench

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Config says what to measure. It is not changed during a run.
type Config struct {
	Target Target
	// Versus, if set, is measured too, each row right before or behind that of Target, so
	// that ratios are of one time and one machine.
	Versus Target
	// Rows are measured in order, Repeat times (default 1).
	Rows   []Shape
	Repeat int
	// Label names the run in reports.
	Label string

	// Duration is how long each row is measured, default 5 s. If Count is not 0, each
	// row makes that many operations instead.
	Duration time.Duration
	Count    int64
	// Warmup runs each row before it is measured.
	Warmup time.Duration
	// Rate is the operations per second that are due, 0 = closed loop.
	Rate float64

	ValueBytes  int // size of values
	Keys        int // nodes that set, get, exists and mixed choose from, default 1000
	Children    int // nodes that list lists, default 10
	ReadPercent int // share of reads of mixed
	Watchers    int // of watch; default one per connection

	// Root is the node below which everything happens. It must exist or be "/".
	Root string
	// ProbeDir is where the probe writes; it should be on the server's disk.
	ProbeDir string
	// Flags are put into the report as they are.
	Flags []string
	// Progress, if set, is told how a row goes, once per interval, by one goroutine.
	Progress func(Progress)
}

// Shape is a workload and the load that it puts on the server.
type Shape struct {
	Workload    string `json:"workload"`
	Connections int    `json:"connections"`
	Outstanding int    `json:"outstanding"` // requests at once per connection
}

// String is the shape as tables name it: "create 16x4".
func (s Shape) String() string {
	return fmt.Sprintf("%s %dx%d", s.Workload, s.Connections, s.Outstanding)
}

// Progress is how one row goes.
type Progress struct {
	Shape        Shape
	What         string // prepare, warm up, measure, remove
	Rate         float64
	P50Us, P99Us float64
	Errors       int64
	Left         time.Duration // 0 if unknown
}

// Bounds of what one run may ask for.
const (
	connectionsMax = 100_000
	outstandingMax = 100_000
	workersMax     = 1_000_000
	valueBytesMax  = 1 << 20
	keysMax        = 10_000_000
)

// Suites are the fixed sets of shapes, by name.
func Suites() []string { return []string{"quick", "full"} }

// SuiteWorkloads are the workloads of a suite where none are named.
func SuiteWorkloads() []string { return []string{"create", "set", "get", "list", "mixed", "churn"} }

// SuiteShapes returns the rows of a suite for workloads.
func SuiteShapes(suite string, workloads []string) (rows []Shape) {
	sizes := [][2]int{{1, 1}, {16, 16}}
	if suite == "full" {
		sizes = [][2]int{{1, 1}, {16, 1}, {64, 1}, {1, 64}, {16, 16}, {64, 16}}
	}
	for _, workload := range workloads {
		for _, size := range sizes {
			rows = append(rows, Shape{workload, size[0], size[1]})
		}
	}
	return rows
}

// withDefaults fills in what is zero, and puts the row in front that the probe is
// compared with.
func (c Config) withDefaults() Config {
	if c.Duration == 0 {
		c.Duration = 5 * time.Second
	}
	c.Repeat = max(c.Repeat, 1)
	if c.Keys == 0 {
		c.Keys = 1000
	}
	if c.Children == 0 {
		c.Children = 10
	}
	if c.Root == "" {
		c.Root = "/"
	}
	if c.ProbeDir == "" {
		c.ProbeDir = "."
	}
	c.Rows = distinct(c.Rows)
	if !slices.Contains(c.Rows, reference) {
		c.Rows = append([]Shape{reference}, c.Rows...)
	}
	return c
}

// distinct returns rows without repetition. Requests in flight mean nothing to
// workloads that have no loop of workers.
func distinct(rows []Shape) (list []Shape) {
	for _, row := range rows {
		if w, err := workloadOf(row.Workload); err == nil && w.measure != nil {
			row.Outstanding = 1
		}
		if !slices.Contains(list, row) {
			list = append(list, row)
		}
	}
	return list
}

// reference is the row that every run has, because the probe explains its latency.
var reference = Shape{"create", 1, 1}

// Validate names every value that breaks a rule.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, row := range c.Rows {
		if _, err := workloadOf(row.Workload); err != nil {
			errs = append(errs, err)
		}
		check(row.Connections >= 1 && row.Connections <= connectionsMax, "connections %d: must be from 1 to %d", row.Connections, connectionsMax)
		check(row.Outstanding >= 1 && row.Outstanding <= outstandingMax, "outstanding %d: must be from 1 to %d", row.Outstanding, outstandingMax)
		check(row.Connections*row.Outstanding <= workersMax, "connections %d x outstanding %d: must be at most %d together", row.Connections, row.Outstanding, workersMax)
	}
	check(c.Duration > 0, "duration %v: must be above 0", c.Duration)
	check(c.Count >= 0, "count %d: must not be negative", c.Count)
	check(c.Warmup >= 0, "warmup %v: must not be negative", c.Warmup)
	check(c.Rate >= 0 && c.Rate <= 1e8, "rate %v: must be from 0 to 100000000 per second", c.Rate)
	check(c.ValueBytes >= 0 && c.ValueBytes <= valueBytesMax, "size %d: must be from 0 to %d bytes", c.ValueBytes, valueBytesMax)
	check(c.Keys >= 1 && c.Keys <= keysMax, "keys %d: must be from 1 to %d", c.Keys, keysMax)
	check(c.Children >= 1 && c.Children <= keysMax, "children %d: must be from 1 to %d", c.Children, keysMax)
	check(c.ReadPercent >= 0 && c.ReadPercent <= 100, "reads %d: must be from 0 to 100 percent", c.ReadPercent)
	check(c.Watchers >= 0 && c.Watchers <= workersMax, "watchers %d: must be from 0 to %d", c.Watchers, workersMax)
	return errors.Join(errs...)
}
