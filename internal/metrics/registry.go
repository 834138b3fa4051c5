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

// Buckets are of calls that are milliseconds when all is well and seconds when not: few,
// as each is a series for each combination of labels.
var Buckets = []float64{.005, .025, .1, .5, 2.5, 10}

// NewRegistry makes a registry with the build's version, the Go runtime and the process. It is never the library's default
// one: frp puts its own numbers there, which are none of ours.
func NewRegistry(namespace, version string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "Which version runs; always 1.",
		ConstLabels: prometheus.Labels{"version": version, "go": runtime.Version()},
	}, func() float64 { return 1 }))
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Only leaves of what another gatherer has the metrics whose names begin with one of those.
func Only(g prometheus.Gatherer, prefixes ...string) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*model.MetricFamily, error) {
		all, err := g.Gather()
		return slices.DeleteFunc(all, func(f *model.MetricFamily) bool { return !begins(f.GetName(), prefixes) }), err
	})
}

func begins(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// Seconds is a time as Prometheus has it; zero for none.
func Seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// Bool is a truth as Prometheus has it.
func Bool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Class is an HTTP status as a label: 2xx, 4xx and so on. Statuses by themselves would be
// many series that nobody asks for.
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

// Family is a metric as it is declared, whether it has a value yet or not.
type Family struct {
	Name, Help string
	Labels     []string
}

// declared reads prometheus.Desc, which tells of itself in text alone.
var declared = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), .*variableLabels: \{([^}]*)\}`)

// Families are what collectors declare, by name: for the documentation, and for those who
// check that what is asked for exists.
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
			continue // an error, which gathering tells of
		}
		name, _ := strconv.Unquote(part[1]) // strconv.Quote wrote them
		help, _ := strconv.Unquote(part[2])
		families = append(families, Family{name, help, strings.FieldsFunc(part[3], func(r rune) bool { return r == ',' || r == ' ' })})
	}
	slices.SortFunc(families, func(a, b Family) int { return strings.Compare(a.Name, b.Name) })
	return families
}
