package controlplane

import (
	"context"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/metrics"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// setter sets a number: see metrics.NewRead.
type setter = func(name string, value float64, labels ...string)

// readNumbers returns the numbers that are kept anyway.
func readNumbers(n *numbers) *metrics.Read {
	r := metrics.NewRead(metricsNamespace, n.read).
		Gauge("ready", "1 if the control plane serves agents and Runners, as /readyz reports.").
		Gauge("check_ok", "1 if the check of /readyz passes.", "check").
		Gauge("agents", "Agents by state, from the registry.", "state").
		Gauge("heartbeat_oldest_age_seconds", "Age of the oldest last heartbeat among agents whose tunnel is up.").
		Gauge("outbox_events", "Announcements that wait for the broker.").
		Gauge("outbox_oldest_age_seconds", "Age of the oldest event whose announcement waits; 0 if none waits.").
		Gauge("dead_letters", "Announcements that Runners could not process; absent while the broker does not respond.").
		Gauge("webhook_events", "Events that wait for webhooks' receivers.").
		Gauge("webhook_oldest_age_seconds", "How long the oldest event has waited for a receiver; 0 if none waits.").
		Gauge("broker_connected", "1 if the control plane is connected to the broker.").
		Gauge("store_up", "1 if the database responded to this scrape.").
		Gauge("database_backup_timestamp_seconds", "When `pipeops-controlplane database backup` last succeeded, in Unix time; 0 if never. Absent with PostgreSQL.").
		Gauge("certificate_expiry_timestamp_seconds", "Expiry of the root CA, the next intermediate CA and the control plane's own certificate, in Unix time.", "certificate")
	return declareConnections(r)
}

func declareConnections(r *metrics.Read) *metrics.Read {
	return r.
		Gauge("tunnel_agents", "Agents with a tunnel to this control plane.").
		Gauge("tunnel_sessions", "FRP sessions of all agents' replicas, including those that are logging in.").
		Gauge("tunnel_handshakes", "Tunnel connections without a session yet.").
		Counter("tunnel_logins_total", "Logins of agents, by result. A failed TLS handshake counts as refused.", "result").
		Gauge("tunnel_dials", "Connections to agents that are being opened.").
		Counter("tunnel_dials_total", "Connections to agents that Runners requested.").
		Counter("tunnel_dial_errors_total", "Connections to agents that could not be opened.").
		Gauge("tunnel_connections", "Open connections of Runners to agents.").
		Counter("tunnel_bytes_total", "Bytes of ciphertext in Runners' connections.", "direction").
		Gauge("listener_connections", "Open connections.", "listener").
		Gauge("listener_handshakes", "Connections before their first request.", "listener").
		Gauge("listener_peers", "Client addresses that the limits keep track of.", "listener").
		Counter("listener_accepted_total", "Accepted connections.", "listener").
		Counter("listener_refused_total", "Connections that a limit refused.", "listener")
}

// numbers reads what is kept anyway.
type numbers struct {
	health *health
	store  *store.Store
	data   datadir.Data
}

func (n *numbers) read(set setter) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	now := n.health.now()
	answer := n.health.readiness(ctx)
	set("ready", metrics.Bool(answer.Ready))
	for name, ok := range answer.ok {
		set("check_ok", metrics.Bool(ok), name)
	}
	set("heartbeat_oldest_age_seconds", n.health.liveness.OldestBeat(now).Seconds())
	set("broker_connected", metrics.Bool(n.health.broker.Connected()))
	if dead, known := n.health.broker.DeadLetters(); known {
		set("dead_letters", float64(dead))
	}
	set("certificate_expiry_timestamp_seconds", metrics.Seconds(n.health.ca.Certificate().NotAfter), "ca")
	set("certificate_expiry_timestamp_seconds", metrics.Seconds(n.health.ca.IntermediatesEnd()), "intermediate")
	if own, err := n.health.certificate.Get(nil); err == nil && own.Leaf != nil {
		set("certificate_expiry_timestamp_seconds", metrics.Seconds(own.Leaf.NotAfter), "server")
	}
	n.readStore(ctx, now, set)
	n.readConnections(set)
}

// readStore sets the registry's numbers. If the registry cannot be read, it omits them instead of
// setting wrong ones.
func (n *numbers) readStore(ctx context.Context, now time.Time, set setter) {
	states, err := n.store.AgentStates(ctx)
	if err == nil {
		for _, s := range []announce.State{announce.StatePending, announce.StateOnline, announce.StateOffline, announce.StateRevoked} {
			set("agents", float64(states[s]), string(s))
		}
	}
	outbox, wrong := n.health.outbox.Stats(ctx)
	if wrong == nil {
		set("outbox_events", float64(outbox.Length))
		set("outbox_oldest_age_seconds", age(now, outbox.Oldest).Seconds())
	}
	waiting, oldest, unread := n.store.WaitingDeliveries(ctx)
	if unread == nil {
		set("webhook_events", float64(waiting))
		set("webhook_oldest_age_seconds", age(now, oldest).Seconds())
	}
	set("store_up", metrics.Bool(err == nil && wrong == nil && unread == nil))
	if !n.data.Database.Given() {
		set("database_backup_timestamp_seconds", metrics.Seconds(n.data.LastBackup()))
	}
}

func (n *numbers) readConnections(set setter) {
	t := n.health.tunnel.Stats()
	set("tunnel_agents", float64(t.Agents))
	set("tunnel_sessions", float64(t.Sessions))
	set("tunnel_handshakes", float64(t.Handshakes))
	set("tunnel_logins_total", float64(t.Logins), "accepted")
	set("tunnel_logins_total", float64(t.Refused), "refused")
	set("tunnel_dials", float64(t.Dials))
	set("tunnel_dials_total", float64(t.DialsTotal))
	set("tunnel_dial_errors_total", float64(t.DialErrors))
	set("tunnel_connections", float64(t.Connections))
	set("tunnel_bytes_total", float64(t.BytesToAgents), "to_agents")
	set("tunnel_bytes_total", float64(t.BytesFromAgents), "from_agents")
	counts := n.health.connections()
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		s := counts[name]
		set("listener_connections", float64(s.Open), name)
		set("listener_handshakes", float64(s.Handshakes), name)
		set("listener_peers", float64(s.Peers), name)
		set("listener_accepted_total", float64(s.Accepted), name)
		set("listener_refused_total", float64(s.Refused), name)
	}
}

// age returns how long ago that was; zero for the zero time and for times in the future.
func age(now, at time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return max(now.Sub(at), 0)
}

// The flags of the ports, for errors.
const (
	flagMetrics = "--metrics-listen"
	flagPprof   = "--pprof-listen"
)

// openPorts opens what is asked for of Prometheus' port and that of profiles.
func (c *ControlPlane) openPorts(ctx context.Context) (*metrics.Ports, error) {
	return metrics.Open(ctx, metrics.PortsConfig{
		Metrics: c.cfg.MetricsListen, MetricsName: flagMetrics, Pprof: c.cfg.PprofListen, PprofName: flagPprof,
		Gatherer: c.instruments.registry, Log: c.cfg.Log,
	})
}

// ObservedAt returns the addresses of metrics and profiles; nil for a closed port.
func (c *ControlPlane) ObservedAt() (metrics, pprof net.Addr) { return c.ports.Addrs() }

// MetricFamilies returns all metrics of the control plane, for the documentation and its checks.
func MetricFamilies() []metrics.Family {
	i := newInstruments("")
	i.registry.MustRegister(readNumbers(&numbers{}))
	return metrics.Families(i.registry)
}
