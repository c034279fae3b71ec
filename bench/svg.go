package bench

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
)

// Size of a plot in the units of its view box.
const (
	plotWidth, plotHeight      = 460.0, 260.0
	plotLeft, plotRight        = 58.0, 12.0
	plotTop, plotBottom        = 12.0, 34.0
	barHeight, barGap          = 18.0, 6.0
	barLabelWidth, barMaxWidth = 130.0, 620.0
)

// line is one curve of a plot.
type line struct {
	name   string
	points [][2]float64
}

// tick is a mark on an axis.
type tick struct {
	at   float64
	text string
}

// plot is a chart of lines, with values already on the scale of the axes.
type plot struct {
	title          string
	xName          string
	xTicks, yTicks []tick
	xMin, xMax     float64
	yMin, yMax     float64
	lines          []line
}

func (p *plot) x(v float64) float64 {
	return plotLeft + (v-p.xMin)/max(p.xMax-p.xMin, 1e-9)*(plotWidth-plotLeft-plotRight)
}

func (p *plot) y(v float64) float64 {
	return plotHeight - plotBottom - (v-p.yMin)/max(p.yMax-p.yMin, 1e-9)*(plotHeight-plotTop-plotBottom)
}

// svg draws the plot. Colours come from the page's style, so that it has a light and a
// dark form.
func (p *plot) svg() template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, plotWidth, plotHeight, html.EscapeString(p.title))
	for _, t := range p.yTicks {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, plotLeft, plotWidth-plotRight, p.y(t.at), p.y(t.at))
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, plotLeft-6, p.y(t.at)+3.5, html.EscapeString(t.text))
	}
	for _, t := range p.xTicks {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, p.x(t.at), p.x(t.at), plotTop, plotHeight-plotBottom)
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, p.x(t.at), plotHeight-plotBottom+14, html.EscapeString(t.text))
	}
	fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, plotWidth-plotRight, plotHeight-4, html.EscapeString(p.xName))
	for i, l := range p.lines {
		fmt.Fprintf(&b, `<polyline class="series s%d" points="`, i%seriesColours)
		for _, point := range l.points {
			fmt.Fprintf(&b, "%.1f,%.1f ", p.x(point[0]), p.y(point[1]))
		}
		fmt.Fprintf(&b, `"><title>%s</title></polyline>`, html.EscapeString(l.name))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// seriesColours is how many classes s0, s1, ... the page's style has.
const seriesColours = 6

// bar is one bar of a bar chart.
type bar struct {
	label, text string
	value       float64
	class       int
}

// bars draws horizontal bars, all to one scale.
func bars(title string, list []bar) template.HTML {
	highest := 1e-9
	for _, x := range list {
		highest = max(highest, x.value)
	}
	width, height := barLabelWidth+barMaxWidth+90, float64(len(list))*(barHeight+barGap)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, width, height, html.EscapeString(title))
	for i, x := range list {
		y, length := float64(i)*(barHeight+barGap), max(x.value/highest*barMaxWidth, 1)
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, barLabelWidth-8, y+13, html.EscapeString(x.label))
		fmt.Fprintf(&b, `<rect class="bar s%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="2"/>`, x.class%seriesColours, barLabelWidth, y, length, barHeight)
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f">%s</text>`, barLabelWidth+length+6, y+13, html.EscapeString(x.text))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// linearTicks returns about five round marks from 0 to at least highest.
func linearTicks(highest float64, text func(float64) string) (ticks []tick) {
	highest = max(highest, 1e-9)
	step := math.Pow(10, math.Floor(math.Log10(highest/4)))
	for _, factor := range []float64{1, 2, 2.5, 5, 10} {
		if step*factor*5 >= highest {
			step *= factor
			break
		}
	}
	for i := 0; ; i++ {
		at := float64(i) * step
		ticks = append(ticks, tick{at, text(at)})
		if at >= highest {
			return ticks
		}
	}
}

// latencyPlot draws percentiles: the abscissa stretches the tail, one nine after the
// other, and the ordinate is logarithmic.
func latencyPlot(title string, rows []Row) *plot {
	nines := func(percent float64) float64 { return -math.Log10(max(1-percent/100, 1e-5)) }
	p := &plot{title: title, xName: "percentile", xMax: 5, yMin: math.Inf(1), yMax: math.Inf(-1)}
	for _, mark := range []float64{0, 50, 90, 99, 99.9, 99.99, 99.999} {
		p.xTicks = append(p.xTicks, tick{nines(mark), fmt.Sprint(mark)})
	}
	for _, row := range rows {
		l := line{name: row.Shape.String()}
		for _, c := range row.typical().Latency.Curve {
			if c.Percent == 100 {
				continue // the maximum has no place on this axis; the table has it
			}
			at := math.Log10(max(c.Us, 0.1))
			p.yMin, p.yMax = min(p.yMin, math.Floor(at)), max(p.yMax, math.Ceil(at))
			l.points = append(l.points, [2]float64{nines(c.Percent), at})
		}
		p.lines = append(p.lines, l)
	}
	for decade := p.yMin; decade <= p.yMax && !math.IsInf(decade, 0); decade++ {
		p.yTicks = append(p.yTicks, tick{decade, duration(math.Pow(10, decade))})
	}
	return p
}

// coursePlot draws throughput over time.
func coursePlot(title string, rows []Row) *plot {
	p := &plot{title: title, xName: "seconds"}
	for _, row := range rows {
		l := line{name: row.Shape.String()}
		for _, s := range row.typical().Series {
			p.xMax, p.yMax = max(p.xMax, s.Second), max(p.yMax, s.Rate)
			l.points = append(l.points, [2]float64{s.Second, s.Rate})
		}
		p.lines = append(p.lines, l)
	}
	p.xTicks, p.yTicks = linearTicks(p.xMax, number), linearTicks(p.yMax, thousands)
	p.xMax, p.yMax = p.xTicks[len(p.xTicks)-1].at, p.yTicks[len(p.yTicks)-1].at
	return p
}

// thousands shows a rate in few characters.
func thousands(x float64) string {
	if x >= 1000 {
		return fmt.Sprintf("%gk", math.Round(x/100)/10)
	}
	return fmt.Sprintf("%g", math.Round(x*100)/100)
}
