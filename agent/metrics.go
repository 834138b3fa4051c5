package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	controllers "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/pipeops/pipeops-vm-agent/internal/alerts"
	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/metrics"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// metricsNamespace begins the names of our metrics. docs/reference/metrics.md lists them.
const metricsNamespace = "pipeops_agent"

// readTimeout bounds what is read for Prometheus: all of it is in memory.
const readTimeout = time.Second

// instruments count events. Stored values are read when Prometheus scrapes. No label contains a
// name of the customer's but those of app_failing.
type instruments struct {
	registry *prometheus.Registry
	open     prometheus.Gauge
	commands *prometheus.HistogramVec // by call and class of status
	beats    *prometheus.CounterVec   // by result
	alerts   *prometheus.CounterVec   // by result
}

func newInstruments(version string) *instruments {
	registry := metrics.NewRegistry(metricsNamespace, version)
	make := promauto.With(registry)
	i := &instruments{
		registry: registry,
		open: make.NewGauge(prometheus.GaugeOpts{
			Namespace: metricsNamespace, Name: "calls_open", Help: "Open calls of the Runner API, including waits and streams.",
		}),
		commands: make.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: metricsNamespace, Name: "command_duration_seconds",
			Help: "Time of a call of the Runner API, by ID and class of status.", Buckets: metrics.Buckets,
		}, []string{"call", "code"}),
		beats: make.NewCounterVec(prometheus.CounterOpts{
			Namespace: metricsNamespace, Name: "heartbeats_total", Help: "Heartbeats, by result.",
		}, []string{"result"}),
		alerts: make.NewCounterVec(prometheus.CounterOpts{
			Namespace: metricsNamespace, Name: "alerts_total", Help: "Alerts from Alertmanager, by result.",
		}, []string{"result"}),
	}
	for _, outcome := range alerts.Outcomes() {
		i.alerts.WithLabelValues(outcome)
	}
	i.beats.WithLabelValues(beatTaken)
	i.beats.WithLabelValues(beatFailed)
	return i
}

// What becomes of a heartbeat.
const (
	beatTaken  = "taken"
	beatFailed = "failed"
)

// begun and called are for server.Observation.
func (i *instruments) begun() { i.open.Inc() }

func (i *instruments) called(id string, status int, took time.Duration) {
	i.open.Dec()
	i.commands.WithLabelValues(id, metrics.Class(status)).Observe(took.Seconds())
}

func (i *instruments) beat(err error) {
	result := beatTaken
	if err != nil {
		result = beatFailed
	}
	i.beats.WithLabelValues(result).Inc()
}

// gatherer returns all that the agent has: its own, and what controller-runtime counts for us.
func (i *instruments) gatherer() prometheus.Gatherer {
	return prometheus.Gatherers{i.registry, metrics.Only(controllers.Registry, borrowed...)}
}

// borrowed are the metrics of controller-runtime about the agent: reconciles, their queue, and all
// requests to Kubernetes, which client-go reports only to controller-runtime. The others, about
// webhooks and every setting of the Go runtime, are hundreds of series.
var borrowed = []string{"controller_runtime_reconcile_", "workqueue_", "rest_client_requests_total"}

// parts are what runs with an identity, for metrics.
type parts struct {
	tunnel  *tunnel.Set
	engine  *app.Engine
	control *controlapi.Client
}

// readNumbers returns the numbers that are kept anyway.
func (a *Agent) readNumbers() *metrics.Read {
	return metrics.NewRead(metricsNamespace, a.tellNumbers).
		Gauge("ready", "1 if the agent takes commands, as /readyz reports.").
		Gauge("check_ok", "1 if the check of /readyz passes.", "check").
		Gauge("certificate_expiry_timestamp_seconds", "Expiry of the agent's certificate, in Unix time. The agent renews it at two thirds of its life.").
		Gauge("audit_queue_records", "Audit records that wait to be stored.").
		Counter("audit_lost_records_total", "Audit records that could not be stored. The log has the reason.").
		Gauge("tunnel_connected", "1 if a tunnel is up.").
		Counter("tunnel_reconnects_total", "How often a tunnel came up after all were down.").
		Gauge("leading", "1 if this replica is the leader.").
		Gauge("apps", "Apps by phase.", "phase").
		Gauge("apps_diagnosed", "Apps with a diagnosis, by cause.", "cause").
		Gauge("app_failing", "1 for each App that is Degraded or Failed, for at most 200 Apps.", "namespace", "app", "phase", "cause").
		Gauge("events_waiting", "Apps whose latest state has not been delivered to the control plane.")
}

func (a *Agent) tellNumbers(set func(string, float64, ...string)) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	set("ready", metrics.Bool(a.health.ready(ctx) == nil))
	for check, ok := range a.health.all() {
		set("check_ok", metrics.Bool(ok), check)
	}
	if id := a.current.Load(); id != nil {
		set("certificate_expiry_timestamp_seconds", metrics.Seconds(id.NotAfter()))
	}
	set("audit_queue_records", float64(a.audit.Waiting()))
	set("audit_lost_records_total", float64(a.audit.Lost()))
	if p := a.parts.Load(); p != nil {
		p.tell(ctx, set)
	}
}

func (p *parts) tell(ctx context.Context, set func(string, float64, ...string)) {
	status := p.tunnel.Status()
	set("tunnel_connected", metrics.Bool(status.Phase == tunnel.Connected))
	set("tunnel_reconnects_total", float64(max(status.Returns-1, 0)))
	set("leading", metrics.Bool(p.engine.Leads()))
	counts, ok := p.engine.Counts(ctx)
	if !ok {
		return
	}
	for _, phase := range runnerapi.Phases() {
		set("apps", float64(counts.Phases[phase]), string(phase))
	}
	for cause, n := range counts.Causes {
		set("apps_diagnosed", float64(n), string(cause))
	}
	for _, f := range counts.Failing {
		set("app_failing", 1, f.Namespace, f.Name, string(f.Phase), string(f.Cause))
	}
	set("events_waiting", float64(counts.Unannounced))
}

// MetricFamilies returns all metrics of an agent, for the documentation and its checks.
func MetricFamilies() []metrics.Family {
	i := newInstruments("")
	i.registry.MustRegister((&Agent{}).readNumbers())
	families := metrics.Families(i.registry)
	if c, ok := controllers.Registry.(prometheus.Collector); ok {
		for _, f := range metrics.Families(c) {
			if slices.ContainsFunc(borrowed, func(prefix string) bool { return strings.HasPrefix(f.Name, prefix) }) {
				families = append(families, f)
			}
		}
	}
	return families
}
