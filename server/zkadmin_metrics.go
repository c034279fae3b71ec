package server

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// zkCollector shows zkFigures as ZooKeeper's Prometheus provider does: under their plain
// names, which is why they are not among this server's own metrics.
type zkCollector struct{ s *Server }

// zkMetricsHandler serves a scrape of them and of the process's, so that dashboards made
// for ZooKeeper show this server.
func (s *Server) zkMetricsHandler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(zkCollector{s}, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// Describe sends nothing: which figures there are depends on the member's mode.
func (c zkCollector) Describe(chan<- *prometheus.Desc) {}

func (f *zkFigure) desc() *prometheus.Desc { return prometheus.NewDesc(f.name, f.help, nil, nil) }

// Collect implements prometheus.Collector.
func (c zkCollector) Collect(ch chan<- prometheus.Metric) {
	r := c.s.zkRead()
	for _, f := range r.figuresOfMode() {
		kind := prometheus.GaugeValue
		switch f.kind {
		case zkText:
			continue
		case zkCounter:
			kind = prometheus.CounterValue
		}
		switch v := f.value(r).(type) {
		case int64:
			ch <- prometheus.MustNewConstMetric(f.desc(), kind, float64(v))
		case float64:
			ch <- prometheus.MustNewConstMetric(f.desc(), kind, v)
		case zkSummary:
			quantiles := map[float64]float64{}
			for _, q := range zkQuantiles {
				if f.kind == zkAdvanced {
					quantiles[q.share] = float64(v.quantile(q.share))
				}
			}
			ch <- prometheus.MustNewConstSummary(f.desc(), uint64(v.count), float64(v.sum), quantiles)
		}
	}
}
