package metrics

import (
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	model "github.com/prometheus/client_model/go"
)

// Buckets are for calls that take milliseconds normally and seconds otherwise. There are few,
// because each is a series for each combination of labels.
var Buckets = []float64{.005, .025, .1, .5, 2.5, 10}

// NewRegistry returns a registry with the build's version, the Go runtime and the process. It is
// never the library's default registry, to which frp adds its own numbers.
func NewRegistry(namespace, version string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "Which version runs; always 1.",
		ConstLabels: prometheus.Labels{"version": version, "go": runtime.Version()},
	}, func() float64 { return 1 }))
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Only returns the metrics of another gatherer whose names begin with one of the prefixes.
func Only(g prometheus.Gatherer, prefixes ...string) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*model.MetricFamily, error) {
		all, err := g.Gather()
		return slices.DeleteFunc(all, func(f *model.MetricFamily) bool { return !begins(f.GetName(), prefixes) }), err
	})
}

func begins(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// Seconds returns a time as Prometheus represents it; zero for none.
func Seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// Bool returns a boolean as Prometheus represents it.
func Bool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Class returns an HTTP status as a label: 2xx, 4xx and so on. The individual statuses would be
// many series that are never queried.
func Class(status int) string {
	switch {
	case status >= 500:
		return "5xx"
	case status >= 400:
		return "4xx"
	case status >= 300:
		return "3xx"
	}
	return "2xx"
}

// Family is a declared metric, with or without a value.
type Family struct {
	Name, Help string
	Labels     []string
}

// declared parses prometheus.Desc, which exposes its content only as text.
var declared = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), .*variableLabels: \{([^}]*)\}`)

// Families returns what collectors declare, by name. It is for the documentation, and for checks
// that a queried metric exists.
func Families(all ...prometheus.Collector) []Family {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		for _, c := range all {
			c.Describe(descs)
		}
	}()
	var families []Family
	for d := range descs {
		part := declared.FindStringSubmatch(d.String())
		if part == nil {
			continue // an error, which gathering reports
		}
		name, _ := strconv.Unquote(part[1]) // strconv.Quote wrote them
		help, _ := strconv.Unquote(part[2])
		families = append(families, Family{name, help, strings.FieldsFunc(part[3], func(r rune) bool { return r == ',' || r == ' ' })})
	}
	slices.SortFunc(families, func(a, b Family) int { return strings.Compare(a.Name, b.Name) })
	return families
}
