package bench

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed report.html
var pageText string

// page is the HTML report. It refers to nothing outside itself.
var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"number": number, "duration": duration, "cpu": cpu, "ratio": ratio, "spread": spread, "figures": figuresText,
}).Parse(pageText))

// pageWorkload is what the page shows of one workload.
type pageWorkload struct {
	Name            string
	Rows            []Row
	Latency, Course template.HTML
}

// pageData is what the page is made of.
type pageData struct {
	*Report
	Title      string
	Floor      Floor
	HasFloor   bool
	Bars       template.HTML
	Workloads  []pageWorkload
	Notes      []string
	Earlier    *Report
	Comparison []Ratio
}

// WriteHTML writes the report as one self-contained page, with plots. earlier may be
// nil.
func (r *Report) WriteHTML(w io.Writer, earlier *Report) error {
	d := pageData{Report: r, Title: "Tenure benchmark", Notes: r.notes(), Earlier: earlier}
	if r.Label != "" {
		d.Title += ": " + r.Label
	}
	d.Floor, d.HasFloor = r.Floor()
	if earlier != nil {
		d.Comparison = r.Compare(earlier)
	}
	var list []bar
	for _, row := range r.Rows {
		i := len(d.Workloads) - 1
		if i < 0 || d.Workloads[i].Name != row.Workload {
			d.Workloads = append(d.Workloads, pageWorkload{Name: row.Workload})
			i++
		}
		d.Workloads[i].Rows = append(d.Workloads[i].Rows, row)
		rate := row.Summary().OpsPerSecond
		list = append(list, bar{row.Shape.String(), fmt.Sprintf("%.0f/s", rate), rate, i})
	}
	d.Bars = bars("operations per second", list)
	for i := range d.Workloads {
		o := &d.Workloads[i]
		o.Latency = latencyPlot(o.Name+": latency by percentile", o.Rows).svg()
		o.Course = coursePlot(o.Name+": operations per second over time", o.Rows).svg()
	}
	return page.Execute(w, d)
}
