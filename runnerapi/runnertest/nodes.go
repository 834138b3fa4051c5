package runnertest

import (
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NodeName is the fake's only node. It has a pod that a disruption budget protects from the first
// eviction, but not from the second.
const NodeName = "node-1"

type nodeState struct {
	cordoned bool
	tries    int // evictions of its pod
}

// List implements backend.Nodes.
func (b fakeNodes) List(ctx context.Context) ([]runnerapi.Node, error) {
	if err := b.enter(ctx, Call{Verb: "Nodes.List"}); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return []runnerapi.Node{b.fakeNode()}, nil
}

func (b *FakeBackend) fakeNode() runnerapi.Node {
	used := int64(250)
	return runnerapi.Node{
		Name: NodeName, Roles: []string{"worker"}, Ready: true, Schedulable: !b.node.cordoned,
		Conditions:     []runnerapi.NodeCondition{{Type: "Ready", Status: "True", Reason: "KubeletReady", Since: epoch}},
		CPU:            runnerapi.NodeResource{Capacity: 2000, Allocatable: 1900, Requested: 400, Used: &used},
		Memory:         runnerapi.NodeResource{Capacity: 4 << 30, Allocatable: 3 << 30, Requested: 1 << 30},
		Pods:           runnerapi.NodePods{Allocatable: 110, Count: 3},
		KubeletVersion: "v1.36.3", OS: "linux", Architecture: "amd64", Addresses: []string{"10.0.0.1"}, CreatedAt: epoch,
	}
}

// Get implements backend.Nodes.
func (b fakeNodes) Get(ctx context.Context, name string) (runnerapi.Node, error) {
	if err := b.enter(ctx, Call{Verb: "Nodes.Get", Key: runnerapi.Key{Name: name}}); err != nil {
		return runnerapi.Node{}, err
	}
	if name != NodeName {
		return runnerapi.Node{}, notFound("node", name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fakeNode(), nil
}

// Cordon implements backend.Nodes.
func (b fakeNodes) Cordon(ctx context.Context, name string, cordoned bool, opts runnerapi.WriteOptions) (runnerapi.Node, error) {
	if err := b.enter(ctx, Call{"Nodes.Cordon", runnerapi.Key{Name: name}, opts}); err != nil {
		return runnerapi.Node{}, err
	}
	if name != NodeName {
		return runnerapi.Node{}, notFound("node", name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !opts.DryRun {
		b.node.cordoned = cordoned
	}
	node := b.fakeNode()
	node.Schedulable = !cordoned
	return node, nil
}

// Drain implements backend.Nodes.
func (b fakeNodes) Drain(ctx context.Context, name string, _ runnerapi.DrainOptions, opts runnerapi.WriteOptions) (runnerapi.Drain, error) {
	if err := b.enter(ctx, Call{"Nodes.Drain", runnerapi.Key{Name: name}, opts}); err != nil {
		return runnerapi.Drain{}, err
	}
	if name != NodeName {
		return runnerapi.Drain{}, notFound("node", name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	pod := runnerapi.DrainingPod{Namespace: "production", Name: "web-1", State: "waiting"}
	if opts.DryRun {
		return runnerapi.Drain{Node: name, Remaining: []runnerapi.DrainingPod{pod}, Skipped: 1}, nil
	}
	b.node.cordoned = true
	if b.DrainFails != nil {
		return runnerapi.Drain{Node: name, Evicted: []string{"production/web-1"}}, b.DrainFails
	}
	if b.node.tries++; b.node.tries < 2 {
		pod.State, pod.Message = "blocked", "The disruption budget web needs 1 healthy pods and has 1 currently"
		return runnerapi.Drain{Node: name, Remaining: []runnerapi.DrainingPod{pod}, Skipped: 1}, nil
	}
	return runnerapi.Drain{Node: name, Done: true, Evicted: []string{"production/web-1"}, Skipped: 1}, nil
}

// List implements backend.Nodes.
func (b fakeEvents) List(ctx context.Context, namespace string, filter runnerapi.EventFilter) ([]runnerapi.ClusterEvent, error) {
	if err := b.enter(ctx, Call{Verb: "Events.List", Key: runnerapi.Key{Namespace: namespace}}); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkNamespace(namespace); err != nil {
		return nil, err
	}
	if filter.Type == "Normal" || filter.Kind != "" && filter.Kind != "Pod" || filter.Name != "" && filter.Name != "web-1" {
		return nil, nil
	}
	return []runnerapi.ClusterEvent{{
		Namespace: namespace, Type: "Warning", Reason: "BackOff", Message: "Back-off restarting failed container",
		Object: runnerapi.EventOf{Kind: "Pod", Name: "web-1"}, Source: "kubelet", Count: 3, FirstSeen: epoch, LastSeen: epoch.Add(time.Minute),
	}}, nil
}
