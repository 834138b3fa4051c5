package controlplane

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/agents"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/outbox"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/metrics"
	"github.com/pipeops/pipeops-vm-agent/internal/span"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// metricsNamespace is the prefix of our metrics' names. docs/reference/metrics.md lists them.
const metricsNamespace = "pipeops_controlplane"

// instruments count events. Stored values are read when Prometheus scrapes: see readNumbers. No
// label contains an agent, a Runner, an address or a path, so ten thousand agents make as many
// series as one.
type instruments struct {
	registry *prometheus.Registry

	requests   *prometheus.HistogramVec // by route and class of status
	calls      *prometheus.CounterVec   // by the way that they arrive
	beats      prometheus.Histogram
	store      prometheus.Histogram
	storeFails prometheus.Counter
	confirms   prometheus.Histogram
	announced  *prometheus.CounterVec // by result
	refreshes  *prometheus.CounterVec // by result
	audited    prometheus.Counter
	webhooks   *prometheus.CounterVec // by result
	gateway    *gateway.Metrics
}

func newInstruments(version string) *instruments {
	registry := metrics.NewRegistry(metricsNamespace, version)
	make := promauto.With(registry)
	histogram := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Namespace: metricsNamespace, Name: name, Help: help, Buckets: buckets}
	}
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: metricsNamespace, Name: name, Help: help}
	}
	return &instruments{
		registry: registry,
		gateway:  gateway.NewMetrics(registry, metricsNamespace),
		requests: make.NewHistogramVec(histogram("api_request_duration_seconds", "Time of a call of the HTTPS API, by route and class of status.", metrics.Buckets),
			[]string{"route", "code"}),
		calls: make.NewCounterVec(counter("api_calls_total", "Calls of the API, by their connection: their own TLS connection, or an agent's tunnel."), []string{"via"}),
		beats: make.NewHistogram(histogram("heartbeat_gap_seconds", "Time between two heartbeats of an agent.",
			[]float64{6, 15, 31, 45, 60, 90, 300})),
		store: make.NewHistogram(histogram("store_transaction_duration_seconds", "Time of a transaction that may write, including the wait for other transactions.", metrics.Buckets)),
		storeFails: make.NewCounter(counter("store_transaction_failures_total",
			"Transactions that the database did not begin or commit.")),
		confirms: make.NewHistogram(histogram("announcement_confirm_duration_seconds",
			"Time from sending a batch of announcements to the broker's last confirmation.", metrics.Buckets)),
		announced: make.NewCounterVec(counter("announcements_total", "Announcements that were sent to the broker, by result."), []string{"result"}),
		refreshes: make.NewCounterVec(counter("refresh_requests_total", "Refresh requests to agents, by result."), []string{"result"}),
		audited:   make.NewCounter(counter("audit_records_total", "Audit records that agents delivered.")),
		webhooks:  make.NewCounterVec(counter("webhook_attempts_total", "Attempts to send an event to a webhook's receiver, by result."), []string{"result"}),
	}
}

// watch connects the parts to the instruments.
func (i *instruments) watch(c *ControlPlane) {
	for _, result := range []string{announcedConfirmed, announcedFailed} {
		i.announced.WithLabelValues(result) // present from the start: a rate needs a zero
	}
	for _, via := range []string{viaTLS, viaTunnel} {
		i.calls.WithLabelValues(via)
	}
	for _, result := range []string{agents.RefreshHeard, agents.RefreshUnheard} {
		i.refreshes.WithLabelValues(result)
	}
	for _, state := range []store.DeliveryState{store.DeliveryDelivered, store.DeliveryPending, store.DeliveryGivenUp} {
		i.webhooks.WithLabelValues(attempt(state))
	}
	c.store.Observed = func(took time.Duration, failed bool) {
		i.store.Observe(took.Seconds())
		if failed {
			i.storeFails.Inc()
		}
	}
	c.liveness.Heard = func(gap time.Duration) { i.beats.Observe(gap.Seconds()) }
	i.registry.MustRegister(readNumbers(&numbers{health: c.health, store: c.store, data: c.cfg.data()}))
}

// attempt returns the label for an attempt that put its delivery into this state.
func attempt(state store.DeliveryState) string {
	switch state {
	case store.DeliveryDelivered:
		return "delivered"
	case store.DeliveryGivenUp:
		return "given_up"
	default:
		return "failed"
	}
}

// measured counts and times the calls of the HTTPS API, and creates their spans. Probes are counted
// but get no span.
func (i *instruments) measured(c *Config, via string, next http.Handler) http.Handler {
	calls := i.calls.WithLabelValues(via)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Inc()
		start, served := time.Now(), func(string, string, int) {}
		if r.URL.Path != "/healthz" && r.URL.Path != "/readyz" {
			r, served = span.Served(r, c.Tracer)
		}
		// Chi writes the route into the context that it finds.
		route := chi.NewRouteContext()
		r = r.WithContext(context.WithValue(r.Context(), chi.RouteCtxKey, route))
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		next.ServeHTTP(ww, r)
		name, status := routeOf(r, route), max(ww.Status(), http.StatusOK)
		served(name, strings.TrimPrefix(name, otherRoute), status)
		i.requests.WithLabelValues(name, metrics.Class(status)).Observe(time.Since(start).Seconds())
	})
}

// otherRoute stands for unknown paths: unauthenticated clients can make up any number of them.
const otherRoute = "other"

// routeOf returns the pattern of the matched route, from either of our two routers.
func routeOf(r *http.Request, chosen *chi.Context) string {
	pattern := chosen.RoutePattern()
	if _, path, ok := strings.Cut(r.Pattern, " "); ok {
		pattern = path
	}
	if len(chosen.RoutePatterns) == 0 && !strings.Contains(r.Pattern, " ") || pattern == "" {
		return otherRoute
	}
	return pattern
}

// The results of an announcement.
const (
	announcedConfirmed = "confirmed"
	announcedFailed    = "failed"
)

// measuredPublisher is a publisher with metrics.
type measuredPublisher struct {
	outbox.Publisher
	i *instruments
}

// Publish implements publisher. A failure counts once, for the event that it was about.
func (m *measuredPublisher) Publish(ctx context.Context, events []announce.Encoded) (int, error) {
	start := time.Now()
	confirmed, err := m.Publisher.Publish(ctx, events)
	if confirmed > 0 {
		m.i.confirms.Observe(time.Since(start).Seconds())
		m.i.announced.WithLabelValues(announcedConfirmed).Add(float64(confirmed))
	}
	if err != nil && ctx.Err() == nil {
		m.i.announced.WithLabelValues(announcedFailed).Inc()
	}
	return confirmed, err
}

// publisher measures a publisher.
func (i *instruments) publisher(p outbox.Publisher) outbox.Publisher { return &measuredPublisher{p, i} }
