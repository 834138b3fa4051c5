package runnertest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Set implements backend.Secrets.
func (b fakeSecrets) Set(ctx context.Context, key runnerapi.Key, spec runnerapi.SecretSpec, opts runnerapi.WriteOptions) (runnerapi.Secret, error) {
	if err := b.enter(ctx, Call{"Secrets.Set", key, opts}); err != nil {
		return runnerapi.Secret{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkNamespace(key.Namespace); err != nil {
		return runnerapi.Secret{}, err
	}
	if err := runnerapi.Unchanged("secret "+key.String(), "digest", opts.Digest, shown(key, b.secrets[key]).Digest); err != nil {
		return runnerapi.Secret{}, err
	}
	if !opts.DryRun {
		b.secrets[key] = spec
	}
	return shown(key, spec), nil
}

// SecretSpec returns what was written: a test may read it, a Runner may not.
func (b *FakeBackend) SecretSpec(key runnerapi.Key) runnerapi.SecretSpec {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.secrets[key]
}

func shown(key runnerapi.Key, spec runnerapi.SecretSpec) runnerapi.Secret {
	s := runnerapi.Secret{Namespace: key.Namespace, Name: key.Name, Type: spec.Type, Keys: []runnerapi.SecretKey{}, CreatedAt: epoch}
	for _, k := range slices.Sorted(maps.Keys(spec.Data)) {
		s.Keys = append(s.Keys, runnerapi.SecretKey{Key: k, Size: len(spec.Data[k])})
	}
	for _, k := range slices.Sorted(maps.Keys(spec.BinaryData)) {
		s.Keys = append(s.Keys, runnerapi.SecretKey{Key: k, Size: len(spec.BinaryData[k])})
	}
	s.Digest = fmt.Sprintf("fake-%d", len(s.Keys))
	return s
}

// Get implements backend.Secrets.
func (b fakeSecrets) Get(ctx context.Context, key runnerapi.Key) (runnerapi.Secret, error) {
	if err := b.enter(ctx, Call{Verb: "Secrets.Get", Key: key}); err != nil {
		return runnerapi.Secret{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	spec, ok := b.secrets[key]
	if !ok {
		return runnerapi.Secret{}, notFound("Secret", key)
	}
	return shown(key, spec), nil
}

// List implements backend.Secrets.
func (b fakeSecrets) List(ctx context.Context, namespace string) ([]runnerapi.Secret, error) {
	if err := b.enter(ctx, Call{Verb: "Secrets.List", Key: runnerapi.Key{Namespace: namespace}}); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var items []runnerapi.Secret
	for key, spec := range b.secrets {
		if key.Namespace == namespace {
			items = append(items, shown(key, spec))
		}
	}
	return items, b.checkNamespace(namespace)
}

// Delete implements backend.Secrets.
func (b fakeSecrets) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	if err := b.enter(ctx, Call{"Secrets.Delete", key, opts}); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.secrets[key]; !ok {
		return notFound("Secret", key)
	}
	if !opts.DryRun {
		delete(b.secrets, key)
	}
	return nil
}

// Set implements backend.Namespaces.
func (b fakeNamespaces) Set(ctx context.Context, name string, spec runnerapi.NamespaceSpec, opts runnerapi.WriteOptions) (runnerapi.Namespace, error) {
	ns := runnerapi.Namespace{
		Name: name, Labels: spec.Labels, Phase: "Active", CreatedAt: epoch,
		Quota: spec.Quota, Limits: spec.Limits, Network: spec.Network,
	}
	if spec.Quota != nil {
		ns.Used = &runnerapi.NamespaceQuota{}
	}
	if err := b.enter(ctx, Call{"Namespaces.Set", runnerapi.Key{Namespace: name}, opts}); err != nil || opts.DryRun {
		return ns, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.namespaces[name] = ns
	return ns, nil
}

// Get implements backend.Namespaces.
func (b fakeNamespaces) Get(ctx context.Context, name string) (runnerapi.Namespace, error) {
	if err := b.enter(ctx, Call{Verb: "Namespaces.Get", Key: runnerapi.Key{Namespace: name}}); err != nil {
		return runnerapi.Namespace{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.namespaces[name], b.checkNamespace(name)
}

// List implements backend.Namespaces.
func (b fakeNamespaces) List(ctx context.Context) ([]runnerapi.Namespace, error) {
	if err := b.enter(ctx, Call{Verb: "Namespaces.List"}); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.namespaces)), nil
}

// Delete implements backend.Namespaces.
func (b fakeNamespaces) Delete(ctx context.Context, name string, opts runnerapi.WriteOptions) error {
	if err := b.enter(ctx, Call{"Namespaces.Delete", runnerapi.Key{Namespace: name}, opts}); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkNamespace(name); err != nil {
		return err
	}
	if !opts.DryRun {
		delete(b.namespaces, name)
	}
	return nil
}

// Get implements backend.Cluster.
func (b fakeCluster) Get(ctx context.Context) (runnerapi.Cluster, error) {
	used := int64(250)
	return runnerapi.Cluster{
		AgentID: AgentID, Name: AgentName, AgentVersion: "v0.0.0-fake", KubernetesVersion: "v1.36.3", Distribution: "fake",
		Nodes: runnerapi.NodeCount{Total: 1, Ready: 1}, Pods: runnerapi.PodCount{Running: 3, Allocatable: 110},
		CPU:    runnerapi.ResourceFigure{Allocatable: 2000, Used: &used},
		Memory: runnerapi.ResourceFigure{Allocatable: 4 << 30},
	}, b.enter(ctx, Call{Verb: "Cluster.Get"})
}
