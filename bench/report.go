package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"
)

// Report is all that a run found. It is plain data, as JSON has it.
type Report struct {
	Label       string      `json:"label,omitempty"`
	Environment Environment `json:"environment"`
	Settings    Settings    `json:"settings"`
	Probes      []Probe     `json:"probes"` // one per repetition
	Rows        []Row       `json:"rows"`
	// Versus is what the same run found of another target; it has no probes of its own.
	Versus *Report `json:"versus,omitempty"`
}

// Environment is where a run was made.
type Environment struct {
	Date   string   `json:"date"` // RFC 3339
	Target string   `json:"target"`
	Go     string   `json:"go"` // of the load generator
	OS     string   `json:"os"`
	Arch   string   `json:"arch"`
	Cores  int      `json:"cores"`
	Flags  []string `json:"flags,omitempty"`
}

// Settings are those of a run that change its figures.
type Settings struct {
	Seconds     float64 `json:"seconds"` // per row, unless Count is set
	Count       int64   `json:"count,omitempty"`
	Warmup      float64 `json:"warmup_seconds"`
	Rate        float64 `json:"rate,omitempty"` // 0 = closed loop
	Repeat      int     `json:"repeat"`
	ValueBytes  int     `json:"value_bytes"`
	Keys        int     `json:"keys"`
	Children    int     `json:"children"`
	ReadPercent int     `json:"read_percent"`
}

// Row is one shape with all its repetitions.
type Row struct {
	Shape
	Runs []Run `json:"runs"`
}

// Run is one measurement of a row.
type Run struct {
	Ops          int64            `json:"ops"`
	Seconds      float64          `json:"seconds"` // first request to last answer
	OpsPerSecond float64          `json:"ops_per_second"`
	Latency      Latency          `json:"latency"`
	Parts        []Part           `json:"parts,omitempty"`
	Errors       int64            `json:"errors"`
	ErrorKinds   map[string]int64 `json:"error_kinds"`
	// FirstErrors has one error of each kind in full.
	FirstErrors map[string]string `json:"first_errors,omitempty"`
	// ClientCPUUs is all CPU time of this process per operation, ServerCPUUs the
	// server's, nil if it does not tell.
	ClientCPUUs float64  `json:"client_cpu_us_per_op"`
	ServerCPUUs *float64 `json:"server_cpu_us_per_op,omitempty"`
	// ServerResident is the server's memory at the end, in bytes, 0 if it does not tell.
	ServerResident float64  `json:"server_resident_bytes,omitempty"`
	Figures        []Figure `json:"figures,omitempty"`
	Series         []Sample `json:"series,omitempty"`
}

// Part is one of the operations that a workload is made of.
type Part struct {
	Name    string  `json:"name"`
	Latency Latency `json:"latency"`
}

// Figure is one more number about a run.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

func (r *Run) figure(name string, value float64, unit string) {
	r.Figures = append(r.Figures, Figure{name, value, unit})
}

func newReport(c Config) *Report {
	r := &Report{Label: c.Label,
		Environment: Environment{Date: time.Now().Format(time.RFC3339), Target: c.Target.Name(), Go: runtime.Version(),
			OS: kernel(), Arch: runtime.GOARCH, Cores: runtime.NumCPU(), Flags: c.Flags},
		Settings: Settings{Seconds: c.Duration.Seconds(), Count: c.Count, Warmup: c.Warmup.Seconds(), Rate: c.Rate,
			Repeat: c.Repeat, ValueBytes: c.ValueBytes, Keys: c.Keys, Children: c.Children, ReadPercent: c.ReadPercent}}
	for _, shape := range c.Rows {
		r.Rows = append(r.Rows, Row{Shape: shape})
	}
	return r
}

// finish drops rows without a measurement.
func (r *Report) finish() *Report {
	r.Rows = slices.DeleteFunc(r.Rows, func(row Row) bool { return len(row.Runs) == 0 })
	if r.Versus != nil {
		r.Versus.finish()
	}
	return r
}

// WriteJSON writes the report.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// ReadReport reads what WriteJSON wrote.
func ReadReport(in io.Reader) (*Report, error) {
	r := &Report{}
	if err := json.NewDecoder(in).Decode(r); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	for _, row := range r.Rows {
		if row.Workload == "" || len(row.Runs) == 0 {
			return nil, fmt.Errorf("report: row %v has no run", row.Shape)
		}
	}
	return r, nil
}

// median returns the median of what of says over all runs; of two in the middle the
// mean.
func (r Row) median(of func(Run) float64) float64 {
	values := r.values(of)
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

func (r Row) values(of func(Run) float64) []float64 {
	values := make([]float64, len(r.Runs))
	for i, run := range r.Runs {
		values[i] = of(run)
	}
	return values
}

// Summary are a row's figures over all its repetitions: medians, but the sum of
// operations and errors and the largest maximum.
type Summary struct {
	Shape
	Ops, Errors         int64
	OpsPerSecond        float64
	SpreadPercent       float64 // highest less lowest ops/s, of the median
	P50, P99, P999, Max float64 // us
	ClientCPUUs         float64
	ServerCPUUs         float64 // -1 if the server does not tell
	ErrorKinds          map[string]int64
}

// Summary returns the figures of a row.
func (r Row) Summary() Summary {
	s := Summary{Shape: r.Shape, ErrorKinds: map[string]int64{}}
	for _, run := range r.Runs {
		s.Ops += run.Ops
		s.Errors += run.Errors
		s.Max = max(s.Max, run.Latency.Max)
		for kind, n := range run.ErrorKinds {
			s.ErrorKinds[kind] += n
		}
	}
	rate := func(run Run) float64 { return run.OpsPerSecond }
	s.OpsPerSecond = r.median(rate)
	if rates := r.values(rate); s.OpsPerSecond > 0 {
		s.SpreadPercent = (slices.Max(rates) - slices.Min(rates)) / s.OpsPerSecond * 100
	}
	s.P50 = r.median(func(run Run) float64 { return run.Latency.P50 })
	s.P99 = r.median(func(run Run) float64 { return run.Latency.P99 })
	s.P999 = r.median(func(run Run) float64 { return run.Latency.P999 })
	s.ClientCPUUs = r.median(func(run Run) float64 { return run.ClientCPUUs })
	s.ServerCPUUs = r.median(func(run Run) float64 {
		if run.ServerCPUUs == nil {
			return -1
		}
		return *run.ServerCPUUs
	})
	return s
}

// typical is the repetition whose throughput is the median, for plots.
func (r Row) typical() Run {
	runs := slices.Clone(r.Runs)
	slices.SortFunc(runs, func(a, b Run) int {
		switch {
		case a.OpsPerSecond < b.OpsPerSecond:
			return -1
		case a.OpsPerSecond > b.OpsPerSecond:
			return 1
		}
		return 0
	})
	return runs[(len(runs)-1)/2]
}

// Floor compares the 1x1 create with what the machine allows.
type Floor struct {
	Probe        Probe   // medians over the repetitions
	CreateUs     float64 // p50 of create 1x1
	RatioGrowing float64 // to one append to a growing file and one round trip
	RatioAlloc   float64 // the same within an allocated file
}

// Floor returns the comparison; ok is false if the run has no row create 1x1.
func (r *Report) Floor() (f Floor, ok bool) {
	f.Probe = medianProbe(r.Probes)
	for _, row := range r.Rows {
		if row.Shape == reference && len(r.Probes) > 0 {
			f.CreateUs, ok = row.Summary().P50, true
		}
	}
	f.RatioGrowing = f.CreateUs / max(f.Probe.SyncGrowingUs+f.Probe.RoundTripUs, 1e-9)
	f.RatioAlloc = f.CreateUs / max(f.Probe.SyncAllocatedUs+f.Probe.RoundTripUs, 1e-9)
	return f, ok
}

func medianProbe(probes []Probe) (m Probe) {
	if len(probes) == 0 {
		return m
	}
	of := func(value func(Probe) float64) float64 {
		values := make([]float64, len(probes))
		for i, p := range probes {
			values[i] = value(p)
		}
		slices.Sort(values)
		return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
	}
	m.SyncGrowingUs = of(func(p Probe) float64 { return p.SyncGrowingUs })
	m.SyncAllocatedUs = of(func(p Probe) float64 { return p.SyncAllocatedUs })
	m.RoundTripUs = of(func(p Probe) float64 { return p.RoundTripUs })
	m.LoadNsPerOp = of(func(p Probe) float64 { return p.LoadNsPerOp })
	return m
}
