package gateway

import (
	"cmp"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// maxAgents bounds how many agents have their own numbers; all others are counted together.
const (
	maxAgents   = 500
	otherAgents = "other"
)

// Metrics are the gateway's metrics.
type Metrics struct {
	requests *prometheus.CounterVec
	failures *prometheus.CounterVec
	bytes    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	hosts    prometheus.Gauge
	claims   *prometheus.GaugeVec
	missing  prometheus.Gauge
	ends     prometheus.Gauge
	ensured  *prometheus.CounterVec
	// modes are hosts with an endpoint, by mode.
	modes     *prometheus.GaugeVec
	fallbacks prometheus.Counter
	// connections and carried are of public ports.
	connections, carried *prometheus.CounterVec
	dropped              *prometheus.CounterVec
	open, flows          prometheus.Gauge

	mu     sync.Mutex
	agents map[string]bool
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer, namespace string) *Metrics {
	make := promauto.With(registry)
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: namespace, Subsystem: "gateway", Name: name, Help: help}
	}
	return &Metrics{
		agents:   map[string]bool{},
		requests: make.NewCounterVec(counter("requests_total", "Public requests that were answered, by agent, class of host, mode and class of status."), []string{"agent", "class", "mode", "code"}),
		failures: make.NewCounterVec(counter("failures_total", "Public requests that the gateway answered by itself, by reason."), []string{"reason"}),
		bytes:    make.NewCounterVec(counter("response_bytes_total", "Bytes of bodies that were sent to the public, by agent."), []string{"agent"}),
		duration: make.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: "gateway", Name: "request_duration_seconds",
			Help: "Time from a public request's header to the end of its answer, by class of host and mode.", Buckets: []float64{.005, .025, .1, .5, 1, 5, 30, 300},
		}, []string{"class", "mode"}),
		hosts: make.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: "gateway", Name: "hosts", Help: "Public hosts that are served.",
		}),
		modes: make.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: "gateway", Name: "endpoints", Help: "Hosts with a tested endpoint, by the mode that is in use.",
		}, []string{"mode"}),
		fallbacks:   make.NewCounter(counter("fallbacks_total", "Public requests that an endpoint did not take, and that were sent through the tunnel.")),
		connections: make.NewCounterVec(counter("port_connections_total", "Connections to public ports, and flows of UDP, by agent, protocol and result."), []string{"agent", "protocol", "result"}),
		carried:     make.NewCounterVec(counter("port_bytes_total", "Bytes of connections to public ports, and of flows of UDP, by agent, protocol and direction."), []string{"agent", "protocol", "direction"}),
		dropped:     make.NewCounterVec(counter("port_datagrams_dropped_total", "Visitors' datagrams that were not passed on, by reason."), []string{"reason"}),
		open: make.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: "gateway", Name: "ports", Help: "Public ports at which the gateway listens for Apps.",
		}),
		flows: make.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: "gateway", Name: "port_flows", Help: "Open flows of UDP at public ports.",
		}),
		claims: make.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: "gateway", Name: "claims", Help: "Hosts that agents name, proven or unproven.",
		}, []string{"state"}),
		missing: make.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: "gateway", Name: "hosts_without_certificate", Help: "Served hosts for which no certificate could be obtained.",
		}),
		ends: make.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: "gateway", Name: "certificate_expiry_timestamp_seconds",
			Help: "Earliest expiry of the certificates in this process' memory, in Unix time; 0 if there is none.",
		}),
		ensured: make.NewCounterVec(counter("certificates_total", "Attempts to obtain or renew a certificate, by result."), []string{"result"}),
	}
}

// ObserveClaims records how many hosts agents name, and how many of them are not proven.
func (m *Metrics) ObserveClaims(named, unproven int) {
	m.claims.WithLabelValues("proven").Set(float64(named - unproven))
	m.claims.WithLabelValues("unproven").Set(float64(unproven))
}

// ObserveCertificates records how many hosts have no certificate, and when the first one ends.
func (m *Metrics) ObserveCertificates(missing int, ends time.Time) {
	m.missing.Set(float64(missing))
	m.ends.Set(0)
	if !ends.IsZero() {
		m.ends.Set(float64(ends.Unix()))
	}
}

func (m *Metrics) answered(v *visit, agent string, answer *recorder, took time.Duration) {
	agent = m.bounded(agent)
	class := "own"
	switch {
	case v.host == nil:
		class = "unknown"
	case v.host.Given:
		class = "given"
	}
	mode := cmp.Or(v.mode, "none")
	m.requests.WithLabelValues(agent, class, mode, strconv.Itoa(answer.status/100)+"xx").Inc()
	m.duration.WithLabelValues(class, mode).Observe(took.Seconds())
	m.bytes.WithLabelValues(agent).Add(float64(answer.bytes))
	if v.failed != "" {
		m.failures.WithLabelValues(v.failed).Inc()
	}
}

// bounded returns the label of an agent.
func (m *Metrics) bounded(agent string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.agents[agent] {
		if len(m.agents) >= maxAgents {
			return otherAgents
		}
		m.agents[agent] = true
	}
	return agent
}
