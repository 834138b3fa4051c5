package gateway

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// maxAgents bounds how many agents have numbers of their own; all others are counted together.
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
	ensured  *prometheus.CounterVec

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
		requests: make.NewCounterVec(counter("requests_total", "Public requests that were answered, by agent, class of host and class of status."), []string{"agent", "class", "code"}),
		failures: make.NewCounterVec(counter("failures_total", "Public requests that the gateway answered by itself, by reason."), []string{"reason"}),
		bytes:    make.NewCounterVec(counter("response_bytes_total", "Bytes of bodies that were sent to the public, by agent."), []string{"agent"}),
		duration: make.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: "gateway", Name: "request_duration_seconds",
			Help: "Time from a public request's header to the end of its answer, by class of host.", Buckets: []float64{.005, .025, .1, .5, 1, 5, 30, 300},
		}, []string{"class"}),
		hosts: make.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: "gateway", Name: "hosts", Help: "Public hosts that are served.",
		}),
		ensured: make.NewCounterVec(counter("certificates_total", "Attempts to obtain or renew a certificate, by result."), []string{"result"}),
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
	m.requests.WithLabelValues(agent, class, strconv.Itoa(answer.status/100)+"xx").Inc()
	m.duration.WithLabelValues(class).Observe(took.Seconds())
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
