package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteTable writes the report for people.
func (r *Report) WriteTable(out io.Writer) error {
	if r.Versus != nil {
		fmt.Fprintln(out, r.Environment.Target)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "WORKLOAD\tCxO\tOPS\tOPS/S\tSPREAD\tP50\tP99\tP99.9\tMAX\tERRORS\tCLIENT CPU\tSERVER CPU\t")
	for _, row := range r.Rows {
		s := row.Summary()
		fmt.Fprintf(w, "%s\t%dx%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t\n", s.Workload, s.Connections, s.Outstanding,
			s.Ops, number(s.OpsPerSecond), spread(row), duration(s.P50), duration(s.P99), duration(s.P999), duration(s.Max),
			s.Errors, cpu(s.ClientCPUUs), cpu(s.ServerCPUUs))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, line := range r.notes() {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	if r.Versus == nil {
		return nil
	}
	fmt.Fprintf(out, "\n%s\n", r.Versus.Environment.Target)
	if err := r.Versus.WriteTable(out); err != nil {
		return err
	}
	return r.WriteComparison(out, r.Versus)
}

// notes are what a table does not hold: errors by kind, parts, further figures, and
// the comparison with the probe.
func (r *Report) notes() (lines []string) {
	for _, row := range r.Rows {
		s, run := row.Summary(), row.typical()
		for _, kind := range slices.Sorted(maps.Keys(s.ErrorKinds)) {
			lines = append(lines, fmt.Sprintf("%v: %d errors: %s", row.Shape, s.ErrorKinds[kind], kind))
		}
		for _, part := range run.Parts {
			lines = append(lines, fmt.Sprintf("%v: %s: %d, p50 %s, p99 %s, max %s", row.Shape, part.Name, part.Latency.Count,
				duration(part.Latency.P50), duration(part.Latency.P99), duration(part.Latency.Max)))
		}
		if figures := figuresText(run.Figures); figures != "" {
			lines = append(lines, fmt.Sprintf("%v: %s", row.Shape, figures))
		}
	}
	return append(lines, r.floorNotes()...)
}

func (r *Report) floorNotes() []string {
	if len(r.Probes) == 0 {
		return nil
	}
	p := medianProbe(r.Probes)
	lines := []string{fmt.Sprintf("probe: synced 4 KiB append p50 %s (growing file), %s (allocated file); loopback round trip p50 %s; load generator %.0f ns/op",
		duration(p.SyncGrowingUs), duration(p.SyncAllocatedUs), duration(p.RoundTripUs), p.LoadNsPerOp)}
	if f, ok := r.Floor(); ok {
		lines = append(lines, fmt.Sprintf("create 1x1 p50 %s is %.2f x (append to a growing file + round trip), %.2f x (append to an allocated file + round trip)",
			duration(f.CreateUs), f.RatioGrowing, f.RatioAlloc))
	}
	return lines
}

func figuresText(figures []Figure) string {
	texts := make([]string, len(figures))
	for i, f := range figures {
		switch f.Unit {
		case "bytes":
			texts[i] = f.Name + " " + size(f.Value)
		case "us":
			texts[i] = f.Name + " " + duration(f.Value)
		default:
			texts[i] = f.Name + " " + number(f.Value)
		}
	}
	return strings.Join(texts, ", ")
}

// Ratio compares a row with the same row of an earlier report; each figure is this
// run's over the earlier one's, 0 if either has none.
type Ratio struct {
	Shape
	OpsPerSecond, P50, P99, ServerCPU float64
}

// Compare returns a Ratio for each row that both reports have.
func (r *Report) Compare(earlier *Report) (ratios []Ratio) {
	over := func(now, then float64) float64 {
		if now <= 0 || then <= 0 {
			return 0
		}
		return now / then
	}
	for _, row := range r.Rows {
		i := slices.IndexFunc(earlier.Rows, func(other Row) bool { return other.Shape == row.Shape })
		if i < 0 {
			continue
		}
		now, then := row.Summary(), earlier.Rows[i].Summary()
		ratios = append(ratios, Ratio{row.Shape, over(now.OpsPerSecond, then.OpsPerSecond), over(now.P50, then.P50),
			over(now.P99, then.P99), over(now.ServerCPUUs, then.ServerCPUUs)})
	}
	return ratios
}

// WriteComparison writes the ratios to an earlier report.
func (r *Report) WriteComparison(out io.Writer, earlier *Report) error {
	then := earlier.Environment
	fmt.Fprintf(out, "\nthis run / %s of %s (%s); above 1 is better for OPS/S and worse for the rest\n",
		named(earlier.Label, "the run"), then.Date, then.Target)
	if r.Settings != earlier.Settings {
		fmt.Fprintf(out, "careful: the settings differ: %+v, then %+v\n", r.Settings, earlier.Settings)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "WORKLOAD\tCxO\tOPS/S\tP50\tP99\tSERVER CPU\t")
	for _, q := range r.Compare(earlier) {
		fmt.Fprintf(w, "%s\t%dx%d\t%s\t%s\t%s\t%s\t\n", q.Workload, q.Connections, q.Outstanding,
			ratio(q.OpsPerSecond), ratio(q.P50), ratio(q.P99), ratio(q.ServerCPU))
	}
	return w.Flush()
}

func named(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func ratio(x float64) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", x)
}

// spread shows how far the repetitions lie apart.
func spread(row Row) string {
	if len(row.Runs) < 2 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", row.Summary().SpreadPercent)
}

// duration shows microseconds with three digits or so.
func duration(us float64) string {
	switch {
	case us >= 1e6:
		return fmt.Sprintf("%.2fs", us/1e6)
	case us >= 1e4:
		return fmt.Sprintf("%.1fms", us/1e3)
	case us >= 1e3:
		return fmt.Sprintf("%.2fms", us/1e3)
	case us >= 10:
		return fmt.Sprintf("%.0fus", us)
	}
	return fmt.Sprintf("%.1fus", us)
}

func cpu(us float64) string {
	if us < 0 {
		return "-"
	}
	return fmt.Sprintf("%.1fus", us)
}

// number shows a count or a rate.
func number(x float64) string {
	if x < 100 && x != float64(int64(x)) {
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

func size(bytes float64) string {
	switch {
	case bytes >= 1<<20 || bytes <= -1<<20:
		return fmt.Sprintf("%.1f MiB", bytes/(1<<20))
	case bytes >= 1<<10 || bytes <= -1<<10:
		return fmt.Sprintf("%.1f KiB", bytes/(1<<10))
	}
	return fmt.Sprintf("%.0f B", bytes)
}
