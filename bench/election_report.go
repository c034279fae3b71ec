package bench

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"runtime"
	"text/tabwriter"
	"time"
)

// ElectionReport is all that a run found of elections. It is plain data, as JSON has it.
type ElectionReport struct {
	Label       string           `json:"label,omitempty"`
	Environment Environment      `json:"environment"`
	Settings    ElectionSettings `json:"settings"`
	Results     []ElectionResult `json:"results"` // one per target, in their order
}

// ElectionSettings are those of a run that change its figures.
type ElectionSettings struct {
	SessionTimeoutMs int64 `json:"session_timeout_ms"` // asked for
	Candidates       int   `json:"candidates"`
	Rounds           int   `json:"rounds"`
	Crashes          int   `json:"crashes"`
	Waiting          int   `json:"waiting"`
	Tenures          int   `json:"tenures"`
}

// ElectionResult is what was found of one target. Times are in microseconds unless their
// name says otherwise.
type ElectionResult struct {
	Target    string `json:"target"`
	Version   string `json:"version,omitempty"`
	TimeoutMs int64  `json:"session_timeout_ms"` // granted

	RoundTrip Latency `json:"round_trip"` // of a renewal, which the backend confirms and which writes nothing
	Write     Latency `json:"write"`      // of setting 100 bytes

	HandOver     Latency `json:"hand_over"` // from Release to the next candidate's return from Campaign
	HandOverCost Cost    `json:"hand_over_cost"`

	Crash        Latency `json:"crash"` // from the holder's last byte to the next one's return
	CrashBoundUs float64 `json:"crash_bound_us"`
	// NobodyUs is the least time between the last Check that a lost holder passed and the
	// beginning of the next tenure. Below 0 there would have been two.
	NobodyUs float64 `json:"nobody_us"`

	CrowdEnterUs float64 `json:"crowd_enter_us"` // until all were in line
	Crowd        Latency `json:"crowd"`          // hand-overs while they wait
	CrowdCost    Cost    `json:"crowd_cost"`

	Tenures TenureCost `json:"tenures"`
	CheckNs float64    `json:"check_ns"`
}

// Cost is what all candidates together ask for, per hand-over.
type Cost struct {
	Reads  float64 `json:"reads"`
	Writes float64 `json:"writes"` // a transaction is one
	Events float64 `json:"events"` // that watches told
}

// TenureCost is what it costs to hold Count tenures on one session, per period of renewal.
type TenureCost struct {
	Count         int      `json:"count"`
	PeriodUs      float64  `json:"period_us"`
	Requests      *float64 `json:"requests,omitempty"` // nil if they cannot be told, within TLS
	SentBytes     float64  `json:"sent_bytes"`
	ReceivedBytes float64  `json:"received_bytes"`
}

func newElectionReport(c ElectionConfig) *ElectionReport {
	return &ElectionReport{Label: c.Label,
		Environment: Environment{Date: time.Now().Format(time.RFC3339), Go: runtime.Version(), OS: kernel(),
			Arch: runtime.GOARCH, Cores: runtime.NumCPU(), Flags: c.Flags},
		Settings: ElectionSettings{c.SessionTimeout.Milliseconds(), c.Candidates, c.Rounds, c.Crashes, c.Waiting, c.Tenures}}
}

// ElectionRow is one figure of all targets, side by side.
type ElectionRow struct {
	Name   string
	Cells  []string // per target
	Ratios []string // of each target but the first: its figure over the first one's
}

// electionFigures are the rows of the table. A show of nil is a plain number.
var electionFigures = []struct {
	name string
	of   func(ElectionResult) float64 // below 0: not known
	show func(float64) string
}{
	{"session timeout granted", func(r ElectionResult) float64 { return float64(r.TimeoutMs) * 1e3 }, duration},
	{"round trip (renewal) p50", func(r ElectionResult) float64 { return r.RoundTrip.P50 }, duration},
	{"write of 100 bytes p50", func(r ElectionResult) float64 { return r.Write.P50 }, duration},
	{"clean hand-over p50", func(r ElectionResult) float64 { return r.HandOver.P50 }, duration},
	{"clean hand-over p99", func(r ElectionResult) float64 { return r.HandOver.P99 }, duration},
	{"  p50 in round trips", func(r ElectionResult) float64 { return over(r.HandOver.P50, r.RoundTrip.P50) }, ratio},
	{"  p50 in writes", func(r ElectionResult) float64 { return over(r.HandOver.P50, r.Write.P50) }, ratio},
	{"  reads", func(r ElectionResult) float64 { return r.HandOverCost.Reads }, nil},
	{"  writes", func(r ElectionResult) float64 { return r.HandOverCost.Writes }, nil},
	{"  events", func(r ElectionResult) float64 { return r.HandOverCost.Events }, nil},
	{"hand-over after a crash p50", func(r ElectionResult) float64 { return r.Crash.P50 }, duration},
	{"hand-over after a crash max", func(r ElectionResult) float64 { return r.Crash.Max }, duration},
	{"  bound", func(r ElectionResult) float64 { return r.CrashBoundUs }, duration},
	{"  max in session timeouts", func(r ElectionResult) float64 { return over(r.Crash.Max, float64(r.TimeoutMs)*1e3) }, ratio},
	{"  max / bound", func(r ElectionResult) float64 { return over(r.Crash.Max, r.CrashBoundUs) }, ratio},
	{"  nobody held for, at least", func(r ElectionResult) float64 { return r.NobodyUs }, signed},
	{"all candidates in line after", func(r ElectionResult) float64 { return r.CrowdEnterUs }, duration},
	{"hand-over before them p50", func(r ElectionResult) float64 { return r.Crowd.P50 }, duration},
	{"hand-over before them p99", func(r ElectionResult) float64 { return r.Crowd.P99 }, duration},
	{"  reads", func(r ElectionResult) float64 { return r.CrowdCost.Reads }, nil},
	{"  writes", func(r ElectionResult) float64 { return r.CrowdCost.Writes }, nil},
	{"  events", func(r ElectionResult) float64 { return r.CrowdCost.Events }, nil},
	{"many tenures: period", func(r ElectionResult) float64 { return r.Tenures.PeriodUs }, duration},
	{"  requests per period", func(r ElectionResult) float64 { return known(r.Tenures.Requests) }, nil},
	{"  sent per period", func(r ElectionResult) float64 { return r.Tenures.SentBytes }, size},
	{"  received per period", func(r ElectionResult) float64 { return r.Tenures.ReceivedBytes }, size},
	{"Check", func(r ElectionResult) float64 { return r.CheckNs / 1e3 }, nanoseconds},
}

func over(a, b float64) float64 {
	if b <= 0 {
		return -1
	}
	return a / b
}

func known(v *float64) float64 {
	if v == nil {
		return -1
	}
	return *v
}

// Ratio returns the ratio of target i, from 1 on, to the first.
func (r ElectionRow) Ratio(i int) string { return r.Ratios[i-1] }

// signed shows microseconds that may be below 0, which is no good sign.
func signed(us float64) string {
	if us < 0 {
		return "-" + duration(-us) + " (TWO HELD)"
	}
	return duration(us)
}

func nanoseconds(us float64) string { return fmt.Sprintf("%.0fns", us*1e3) }

// Rows returns the figures of all targets side by side.
func (r *ElectionReport) Rows() (rows []ElectionRow) {
	for _, f := range electionFigures {
		row := ElectionRow{Name: f.name}
		show := f.show
		if show == nil {
			show = number
		}
		var first float64
		for i, result := range r.Results {
			v, text := f.of(result), "-"
			if v >= 0 || f.name == nobodyRow {
				text = show(v)
			}
			row.Cells = append(row.Cells, text)
			if i == 0 {
				first = v
				continue
			}
			row.Ratios = append(row.Ratios, ratio(max(over(v, first), 0)))
		}
		rows = append(rows, row)
	}
	return rows
}

// nobodyRow is the only one whose figure may be below 0.
const nobodyRow = "  nobody held for, at least"

// WriteJSON writes the report.
func (r *ElectionReport) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteTable writes the report for people: a column per target, and after it, from the
// second on, its ratio to the first.
func (r *ElectionReport) WriteTable(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "ELECTIONS")
	for i, result := range r.Results {
		fmt.Fprintf(w, "\t%s", result.Target)
		if i > 0 {
			fmt.Fprint(w, "\tRATIO")
		}
	}
	fmt.Fprintln(w)
	for _, row := range r.Rows() {
		fmt.Fprint(w, row.Name)
		for i, cell := range row.Cells {
			fmt.Fprintf(w, "\t%s", cell)
			if i > 0 {
				fmt.Fprintf(w, "\t%s", row.Ratio(i))
			}
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, result := range r.Results {
		if result.Version == "" {
			continue
		}
		if _, err := fmt.Fprintf(out, "%s: version %s\n", result.Target, result.Version); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(out, r.note())
	return err
}

func (r *ElectionReport) note() string {
	s := r.Settings
	return fmt.Sprintf("%d candidates with a session each, %d hand-overs, %d crashes, %d candidates in line, %d tenures on one session; session timeout asked for %v. "+
		"The bound after a crash is the session timeout and a round trip; where expiry is not exact also a tick and the hold-off.",
		s.Candidates, s.Rounds, s.Crashes, s.Waiting, s.Tenures, time.Duration(s.SessionTimeoutMs)*time.Millisecond)
}

//go:embed election.html
var electionPageText string

var electionPage = template.Must(template.Must(page.Clone()).New("election").Parse(electionPageText))

// electionPlot is a figure of the page.
type electionPlot struct {
	Name string
	Plot template.HTML
}

// WriteHTML writes the report as one self-contained page, with plots.
func (r *ElectionReport) WriteHTML(w io.Writer) error {
	d := struct {
		*ElectionReport
		Title, Note string
		Plots       []electionPlot
	}{ElectionReport: r, Title: "Tenure benchmark: elections", Note: r.note()}
	if r.Label != "" {
		d.Title += ": " + r.Label
	}
	for _, p := range []struct {
		name string
		of   func(ElectionResult) Latency
	}{
		{"clean hand-over", func(e ElectionResult) Latency { return e.HandOver }},
		{"hand-over after a crash", func(e ElectionResult) Latency { return e.Crash }},
		{"hand-over before a crowd", func(e ElectionResult) Latency { return e.Crowd }},
		{"round trip (renewal)", func(e ElectionResult) Latency { return e.RoundTrip }},
	} {
		var rows []Row
		for _, result := range r.Results {
			rows = append(rows, Row{Shape{Workload: result.Target}, []Run{{Latency: p.of(result)}}})
		}
		d.Plots = append(d.Plots, electionPlot{p.name, latencyPlot(p.name, rows).svg()})
	}
	return electionPage.Execute(w, d)
}
