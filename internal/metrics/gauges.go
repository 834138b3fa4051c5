package metrics

import "github.com/prometheus/client_golang/prometheus"

// Read collects numbers that another part maintains: they are read when Prometheus scrapes, and
// cost nothing until then.
type Read struct {
	namespace string
	known     map[string]*kept
	order     []*kept
	read      func(set func(name string, value float64, labels ...string))
}

type kept struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

var _ prometheus.Collector = (*Read)(nil)

// NewRead returns a collector of the numbers that read sets. Declare them first with Gauge and
// Counter; undeclared ones are dropped.
func NewRead(namespace string, read func(set func(name string, value float64, labels ...string))) *Read {
	return &Read{namespace: namespace, known: map[string]*kept{}, read: read}
}

// Gauge declares a number that goes up and down.
func (r *Read) Gauge(name, help string, labels ...string) *Read {
	return r.declare(prometheus.GaugeValue, name, help, labels)
}

// Counter declares a number that only grows.
func (r *Read) Counter(name, help string, labels ...string) *Read {
	return r.declare(prometheus.CounterValue, name, help, labels)
}

func (r *Read) declare(kind prometheus.ValueType, name, help string, labels []string) *Read {
	k := &kept{prometheus.NewDesc(prometheus.BuildFQName(r.namespace, "", name), help, labels, nil), kind}
	r.known[name], r.order = k, append(r.order, k)
	return r
}

// Describe implements prometheus.Collector.
func (r *Read) Describe(to chan<- *prometheus.Desc) {
	for _, k := range r.order {
		to <- k.desc
	}
}

// Collect implements prometheus.Collector.
func (r *Read) Collect(to chan<- prometheus.Metric) {
	r.read(func(name string, value float64, labels ...string) {
		if k := r.known[name]; k != nil {
			to <- prometheus.MustNewConstMetric(k.desc, k.kind, value, labels...)
		}
	})
}
