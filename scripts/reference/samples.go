package main

import (
	"encoding/json"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

func sampleEvent(kind announce.Type) (announce.Event, error) {
	at := time.Date(2026, 11, 21, 12, 0, 5, 0, time.UTC)
	source := announce.SourceOf("8a6e0804-2bd0-4672-b79d-d97027f9071a", "k3v9q2m7")
	var e announce.Event
	var err error
	switch {
	case kind.IsAgent():
		e, err = announce.NewAgentEvent(kind, source, sampleAgent(), 42, at)
	case kind.IsRoute():
		e, err = announce.NewRouteEvent(kind, source, "k3v9q2m7", sampleRoute(kind), 42, at)
	case kind.IsAlert():
		e, err = announce.NewAlertEvent(kind, source, "k3v9q2m7", sampleAlert(), 42, at)
	default:
		e, err = announce.NewAppEvent(kind, source, "k3v9q2m7", sampleApp(), 42, at)
	}
	e.ID = "0193a0c5-2f10-7e55-9b6e-3c1d5a7f0e11"
	return e, err
}

func encodedSample(kind announce.Type) (json.RawMessage, error) {
	e, err := sampleEvent(kind)
	if err != nil {
		return nil, err
	}
	body, err := e.Encode()
	if err != nil {
		return nil, err
	}
	var sample object // sorts the fields
	if err := json.Unmarshal(body, &sample); err != nil {
		return nil, err
	}
	return json.Marshal(sample)
}

// The samples have a value in each field.

func sampleRoute(kind announce.Type) announce.RouteEvent {
	route := announce.RouteEvent{Host: "www.example.com", Namespace: "shop", App: "web"}
	if kind == announce.RouteSuspended {
		route.Reason = "another agent has a better proof of the host"
	}
	return route
}

func sampleAlert() announce.AlertEvent {
	return announce.AlertEvent{
		Fingerprint: "7df1dc9aa9e0c1b8", Name: "PipeOpsAppFailed", Severity: "critical", Namespace: "shop", App: "web",
		Summary: "The App shop/web does not serve: ImageNotFound", StartedAt: time.Date(2026, 11, 21, 11, 55, 0, 0, time.UTC),
	}
}

func sampleApp() announce.AppEvent {
	return announce.AppEvent{
		Namespace: "shop", Name: "web", Image: "registry.example.com/web:2", Generation: 3, Replicas: 2, Ready: 1,
		Cause: "ImageNotFound", Message: "registry.example.com/web:2 does not exist", Fix: "push it, or deploy another",
	}
}

func sampleAgent() announce.Agent {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	cpu, memory := int64(1250), int64(3<<30)
	return announce.Agent{
		ID: "k3v9q2m7", Name: "shop-eu-1", Labels: map[string]string{"env": "prod"}, State: announce.StateOnline,
		Endpoints:         []announce.Endpoint{{Address: "edge.example.com:8444", ServerName: "k3v9q2m7.agents.pipeops.internal"}},
		KubernetesVersion: "v1.30.4+k3s1", Distribution: "k3s", Provider: "hetzner", AgentVersion: "v1.2.3", RunnerAPIVersion: "v1",
		Capacity: announce.Capacity{Nodes: 1, Pods: 110, RunningPods: 14, CPUMillis: 4000, MemoryBytes: 8 << 30, UsedCPUMillis: &cpu, UsedMemoryBytes: &memory},
		Update:   &announce.AgentUpdate{State: "failed", From: "v1.2.3", To: "v1.3.0", Reason: "it never registered"},
		Components: []announce.Component{
			{Name: "vpa", Version: "0.11.0", Ready: true},
			{Name: "grafana", Version: "12.11.1", Cause: "ImageNotFound", Message: "the registry has no such image"},
		},
		Hosts:  []string{"shop.example.com"},
		Clones: []announce.Clone{{ClusterUID: "3b1c", Instance: "vm-2", Address: "192.0.2.7", FirstSeen: at, LastSeen: at}}, RegisteredAt: at, LastSeen: at,
	}
}
