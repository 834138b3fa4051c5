package runnertest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Set implements backend.ConfigMaps.
func (b fakeConfigMaps) Set(ctx context.Context, key runnerapi.Key, spec runnerapi.ConfigMapSpec, opts runnerapi.WriteOptions) (runnerapi.ConfigMap, error) {
	if err := b.enter(ctx, Call{"ConfigMaps.Set", key, opts}); err != nil {
		return runnerapi.ConfigMap{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkNamespace(key.Namespace); err != nil {
		return runnerapi.ConfigMap{}, err
	}
	if err := runnerapi.Unchanged("config map "+key.String(), "digest", opts.Digest, configMap(key, b.configMaps[key], false).Digest); err != nil {
		return runnerapi.ConfigMap{}, err
	}
	if !opts.DryRun {
		b.configMaps[key] = spec
	}
	return configMap(key, spec, true), nil
}

func configMap(key runnerapi.Key, spec runnerapi.ConfigMapSpec, values bool) runnerapi.ConfigMap {
	cm := runnerapi.ConfigMap{Namespace: key.Namespace, Name: key.Name, Keys: []runnerapi.DataKey{}, CreatedAt: epoch}
	for _, k := range slices.Sorted(maps.Keys(spec.Data)) {
		cm.Keys = append(cm.Keys, runnerapi.DataKey{Key: k, Size: len(spec.Data[k])})
	}
	for _, k := range slices.Sorted(maps.Keys(spec.BinaryData)) {
		cm.Keys = append(cm.Keys, runnerapi.DataKey{Key: k, Size: len(spec.BinaryData[k])})
	}
	cm.Digest = fmt.Sprintf("fake-%d", len(cm.Keys))
	if values {
		cm.Data, cm.BinaryData = spec.Data, spec.BinaryData
	}
	return cm
}

// Get implements backend.ConfigMaps.
func (b fakeConfigMaps) Get(ctx context.Context, key runnerapi.Key) (runnerapi.ConfigMap, error) {
	if err := b.enter(ctx, Call{Verb: "ConfigMaps.Get", Key: key}); err != nil {
		return runnerapi.ConfigMap{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	spec, ok := b.configMaps[key]
	if !ok {
		return runnerapi.ConfigMap{}, notFound("ConfigMap", key)
	}
	return configMap(key, spec, true), nil
}

// List implements backend.ConfigMaps.
func (b fakeConfigMaps) List(ctx context.Context, namespace string) ([]runnerapi.ConfigMap, error) {
	if err := b.enter(ctx, Call{Verb: "ConfigMaps.List", Key: runnerapi.Key{Namespace: namespace}}); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var items []runnerapi.ConfigMap
	for key, spec := range b.configMaps {
		if key.Namespace == namespace {
			items = append(items, configMap(key, spec, false))
		}
	}
	return items, b.checkNamespace(namespace)
}

// Delete implements backend.ConfigMaps.
func (b fakeConfigMaps) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	if err := b.enter(ctx, Call{"ConfigMaps.Delete", key, opts}); err != nil {
		return err
	}
	if late, err := opts.Late(ctx); late || err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.configMaps[key]; !ok {
		return notFound("ConfigMap", key)
	}
	if !opts.DryRun {
		delete(b.configMaps, key)
	}
	return nil
}

// Metrics implements backend.Monitoring: one pod that uses little. An App whose
// image has "unmeasured" in its name is in a cluster without metrics-server.
func (b fakeMonitoring) Metrics(ctx context.Context, key runnerapi.Key) (runnerapi.AppMetrics, error) {
	if err := b.enter(ctx, Call{Verb: "Monitoring.Metrics", Key: key}); err != nil {
		return runnerapi.AppMetrics{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	app, err := b.get(key)
	if err != nil {
		return runnerapi.AppMetrics{}, err
	}
	if app.Spec.Image == "unmeasured" {
		return runnerapi.AppMetrics{}, runnerapi.NotSupported("install metrics-server", "the cluster has no metrics-server")
	}
	cpu, memory, limit := int64(50), int64(64<<20), int64(128<<20)
	m := runnerapi.AppMetrics{
		Namespace: key.Namespace, Name: key.Name,
		Containers: []runnerapi.ContainerMetrics{{
			Name: key.Name, Pods: 1, CPU: runnerapi.UsageFigure{Average: 3, Highest: 3, Request: &cpu},
			Memory: runnerapi.UsageFigure{Average: 12 << 20, Highest: 12 << 20, Request: &memory, Limit: &limit},
		}},
		Pods: []runnerapi.PodMetrics{{
			Pod: key.Name + "-1", Time: epoch, Window: "15s", Containers: []runnerapi.ContainerUse{{
				Name: key.Name, CPU: runnerapi.UseOfPod{Used: 3, Request: &cpu},
				Memory: runnerapi.UseOfPod{Used: 12 << 20, Request: &memory, Limit: &limit},
			}},
		}},
	}
	m.Sizing = runnerapi.SizingMetrics{Mode: app.Spec.Sizing(), Containers: []runnerapi.Recommendation{{
		Name: key.Name, Samples: 100, Since: epoch,
		CPU:    runnerapi.Fit{Peak: 9, P95: 4, Margin: 15, Basis: "p95", Request: 10, Bound: "floor"},
		Memory: runnerapi.Fit{Peak: 50 << 20, P95: 40 << 20, Margin: 20, Basis: "peak", Request: 60 << 20},
	}}}
	m.VPA = &runnerapi.VPAMetrics{Name: key.Name, Mode: "Auto", Containers: []runnerapi.VPARecommendation{{Name: key.Name, CPU: new(int64(15)), Memory: new(int64(70 << 20))}}}
	return m, nil
}
