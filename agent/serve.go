package agent

import (
	"context"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/events"
	"github.com/pipeops/pipeops-vm-agent/internal/app/leader"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/helm"
	"github.com/pipeops/pipeops-vm-agent/internal/helm/repository"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/manifests"
	"github.com/pipeops/pipeops-vm-agent/internal/source"
	workloads "github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
)

// runnerAPIVersion is the version of the Runner API that this agent serves.
const runnerAPIVersion = "v1"

// runnerAPI returns the handler of the Runner API of this agent.
func (a *Agent) runnerAPI(control *controlapi.Client, engine *app.Engine, releases *helm.Releases, sources *source.Keeper) http.Handler {
	known := a.monitoring(engine)
	return server.New(a.policy, server.Config{
		Apps: engine, Sessions: engine, Monitoring: known.Beside(engine), Secrets: secrets{a.kube.Secrets(), engine}, ConfigMaps: configMaps{a.kube.ConfigMaps(), engine},
		Namespaces: a.kube.Namespaces(), Cluster: clusterCall{a}, Nodes: nodeCalls{a.kube.Nodes(), a.opts.Config}, Events: a.kube.Events(), Manifests: manifests.API{Applier: a.manifests},
		Routes: a.routes.List(control, engine), Kubernetes: a.kubernetes, Releases: releases, Builds: a.builds, Sources: sources,
		Journal: a.kube.Journal(), Outcomes: engine, Audit: a.audit, Recorder: a.recorder, Approvals: a.kube.Approvals(),
		TrustDomain: a.current.Load().TrustDomain, Version: a.opts.Version,
		Ready: a.health.ready, Log: a.log, Limits: kubernetesLimits(a.opts.Config.KubernetesStreams),
		Observation: server.Observation{Begun: a.instruments.begun, Called: a.instruments.called, Tracer: a.opts.Tracer},
	})
}

// kubernetesLimits returns the default ones but for the streams of the Kubernetes API.
func kubernetesLimits(streams int) transport.Limits {
	return transport.Limits{Streams: 2 * streams, StreamsPerRunner: streams}
}

// releases returns the Helm releases of this agent's namespaces. They cost nothing before the first
// call.
func (a *Agent) releases() *helm.Releases {
	c := a.opts.Config
	return helm.New(a.opts.Kubernetes, helm.Options{
		Namespace: c.Namespace, ServiceAccount: c.ServiceAccount, Namespaces: c.Namespaces, Replica: a.replica,
		Charts: repository.Options{HTTPHosts: c.ChartHTTPHosts, Guard: a.guard}, Workloads: a.workloads(), Log: a.log,
	})
}

// workloads returns how what runs pods is, of sets and releases.
func (a *Agent) workloads() *workloads.Checker {
	return workloads.New(a.opts.Kubernetes, app.StabilizationFor(a.opts.Config.Stabilization))
}

// stopper stops the workloads of sets and releases that make pods without end.
func (a *Agent) stopper(leads func() bool) *workloads.Stopper {
	return &workloads.Stopper{Checker: a.workloads(), Namespaces: a.opts.Config.Namespaces, Leads: leads, Log: a.log}
}

// clusterCall implements the cluster call: the cluster's figures and the agent's identity.
type clusterCall struct{ *Agent }

// Get implements backend.Cluster.
func (c clusterCall) Get(ctx context.Context) (runnerapi.Cluster, error) {
	cluster, err := c.kube.Cluster().Get(ctx)
	if err != nil {
		return runnerapi.Cluster{}, err
	}
	cluster.AgentID, cluster.Name, cluster.AgentVersion = c.current.Load().AgentID, c.opts.Config.ClusterName, c.opts.Version
	state := c.policy.State()
	cluster.Policy = &state
	return cluster, nil
}

// sendEvents hands App events to the control plane.
func sendEvents(control *controlapi.Client) func(context.Context, events.Call) error {
	return func(ctx context.Context, call events.Call) error {
		out := make([]controlapi.Event, len(call.Events))
		for i, e := range call.Events {
			out[i] = controlapi.Event{ID: e.ID, Type: string(e.Type), Time: e.Time, App: &controlapi.AppEvent{
				Namespace: e.Namespace, Name: e.Name, Image: e.Image, Generation: e.Generation,
				Replicas: e.Replicas, Ready: e.Ready, LastRun: e.LastRun, Cause: string(e.Cause), Message: e.Message, Fix: e.Fix,
			}}
		}
		by := leadership(call.By)
		by.After = call.After
		return control.Events(ctx, controlapi.EventsRequest{Leader: by, Events: out, Current: (*controlapi.AppRange)(call.Current)})
	}
}

// leadership returns nil for none.
func leadership(l leader.Leadership) *controlapi.Leadership {
	if l.Call == 0 {
		return nil
	}
	return &controlapi.Leadership{Lease: l.Lease, Term: l.Term, Call: l.Call}
}

// capacity puts the cluster's figures in the form of the heartbeat.
func capacity(f kube.Facts) controlapi.Capacity {
	return controlapi.Capacity{
		Nodes: f.Nodes.Total, ReadyNodes: f.Nodes.Ready, Pods: f.Pods.Allocatable, RunningPods: f.Pods.Running,
		CPUMillis: f.CPU.Allocatable, MemoryBytes: f.Memory.Allocatable,
		UsedCPUMillis: f.CPU.Used, UsedMemoryBytes: f.Memory.Used,
	}
}
