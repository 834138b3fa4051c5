package agent

import (
	"context"
	"crypto/tls"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// runnerAPIVersion is the version of the Runner API that this agent serves.
const runnerAPIVersion = "v1"

func (a *Agent) tunnelConfig(id *identity.Identity) tunnel.Config {
	return tunnel.Config{
		ServerAddress: id.Tunnel.Address, ServerName: id.Tunnel.ServerName, AgentID: id.AgentID,
		Instance: a.replica, Cluster: a.knownCluster, Proxy: proxyFunc(), Log: a.log,
		TLS: func(context.Context) (*tls.Config, error) {
			cfg := a.current.Load().TLS()
			cfg.Time = a.now
			return cfg, nil
		},
	}
}

// runnerAPI is what a Runner may ask of this agent.
func (a *Agent) runnerAPI(engine *app.Engine) http.Handler {
	return runnerapi.NewServer(runnerapi.Config{
		Apps: engine, Meter: engine, Secrets: contents{a.kube, engine}, ConfigMaps: contents{a.kube, engine},
		Namespaces: a.kube, Clusters: clusterCall{a},
		Journal: a.kube.Journal(), Outcomes: engine, Policy: a.policy, Audit: a.audit,
		TrustDomain: a.current.Load().TrustDomain, Version: a.opts.Version,
		Ready: a.health.ready, Log: a.log,
		Observation: runnerapi.Observation{Called: a.instruments.called, Tracer: a.opts.Tracer},
	})
}

// clusterCall answers the cluster call: the cluster's figures and who the agent is.
type clusterCall struct{ *Agent }

// Cluster implements runnerapi.Clusters.
func (c clusterCall) Cluster(ctx context.Context) (runnerapi.Cluster, error) {
	cluster, err := c.kube.Cluster(ctx)
	if err != nil {
		return runnerapi.Cluster{}, err
	}
	cluster.AgentID, cluster.Name, cluster.AgentVersion = c.current.Load().AgentID, c.opts.Config.ClusterName, c.opts.Version
	state := c.policy.State()
	cluster.Policy = &state
	return cluster, nil
}

// refusedPause is how long the tunnel is left alone after frps would not have
// this agent and its certificate. Whether that is final is the control plane's to say.
const refusedPause = 15 * time.Second

// keepTunnel runs the tunnel until ctx ends. When it is refused, the next
// heartbeat tells why: the answer to that ends the agent, or the tunnel is tried again.
func (a *Agent) keepTunnel(ctx context.Context, tun *tunnel.Tunnel) error {
	for {
		err := tun.Run(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the agent stops; that the tunnel ended for it is no error
		}
		a.log.Error().Err(err).Dur("retryIn", refusedPause).Msg("the tunnel is refused")
		a.beatSoon()
		if !a.pauseTunnel(ctx) {
			return nil
		}
	}
}

// pauseTunnel waits, but no longer than until there is another certificate. It
// answers false when ctx has ended.
func (a *Agent) pauseTunnel(ctx context.Context) bool {
	timer := time.NewTimer(refusedPause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-a.fresh:
	case <-timer.C:
	}
	return true
}

// watch makes the readiness tell of the tunnel and the App engine, and asks for
// a heartbeat when the tunnel changes.
func (a *Agent) watch(ctx context.Context, tun *tunnel.Tunnel, engine *app.Engine) error {
	a.health.ask("apps", func() string {
		if !engine.Ready() {
			return "reading the cluster"
		}
		return stateOK
	})
	a.health.ask("tunnel", func() string { return tunnelState(tun.Status()) })
	for {
		changed := tun.Changed()
		a.news.expire() // the control plane could not nudge while it was down
		a.beatSoon()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func tunnelState(s tunnel.Status) string {
	switch {
	case s.Phase == tunnel.Connected:
		return stateOK
	case s.LastError != "":
		return string(s.Phase) + ": " + s.LastError
	}
	return string(s.Phase)
}

// announcer hands App events to the control plane.
func announcer(control *controlapi.Client) func(context.Context, []app.Event) error {
	return func(ctx context.Context, events []app.Event) error {
		out := make([]controlapi.Event, len(events))
		for i, e := range events {
			out[i] = controlapi.Event{ID: e.ID, Type: string(e.Type), Time: e.Time, App: controlapi.AppEvent{
				Namespace: e.Namespace, Name: e.Name, Image: e.Image, Generation: e.Generation,
				Replicas: e.Replicas, Ready: e.Ready, Cause: string(e.Cause), Message: e.Message, Fix: e.Fix,
			}}
		}
		return control.Events(ctx, out)
	}
}

// capacity puts the cluster's figures in the form of the heartbeat.
func capacity(f kube.Facts) controlapi.Capacity {
	return controlapi.Capacity{
		Nodes: f.Nodes.Total, ReadyNodes: f.Nodes.Ready, Pods: f.Pods.Allocatable, RunningPods: f.Pods.Running,
		CPUMillis: f.CPU.Allocatable, MemoryBytes: f.Memory.Allocatable,
		UsedCPUMillis: f.CPU.Used, UsedMemoryBytes: f.Memory.Used,
	}
}
