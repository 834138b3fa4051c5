package runnertest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// MetricsHistory implements backend.Monitoring: an App that uses more and more CPU. An App whose
// image is "unmeasured" is in a cluster without Prometheus.
func (b fakeMonitoring) MetricsHistory(ctx context.Context, key runnerapi.Key, opts runnerapi.HistoryOptions) (runnerapi.MetricsHistory, error) {
	if err := b.enter(ctx, Call{Verb: "Monitoring.MetricsHistory", Key: key}); err != nil {
		return runnerapi.MetricsHistory{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	app, err := b.get(key)
	if err != nil {
		return runnerapi.MetricsHistory{}, err
	}
	if app.Spec.Image == "unmeasured" {
		return runnerapi.MetricsHistory{}, noComponent("prometheus")
	}
	history := runnerapi.MetricsHistory{
		Namespace: key.Namespace, Name: key.Name, Start: epoch, End: epoch.Add(opts.Since), Step: opts.Step.String(),
	}
	cpu := runnerapi.MetricSeries{Metric: runnerapi.MetricCPU, Unit: "cores"}
	if opts.ByPod {
		cpu.Pod = key.Name + "-1"
	}
	for at, n := time.Duration(0), 0; at <= opts.Since; at, n = at+opts.Step, n+1 {
		value := new(float64)
		if *value = float64(n) / 1000; n == 1 {
			value = nil
		}
		cpu.Values = append(cpu.Values, value)
	}
	history.Series = append(history.Series, cpu)
	return history, nil
}

func noComponent(name string) error {
	return runnerapi.NotSupported("have the owner of the cluster run: pipeops-agent component install "+name, "the cluster has no component %s", name)
}

// Alerts implements backend.Monitoring: each App has one, and so has the cluster.
func (b fakeMonitoring) Alerts(ctx context.Context, namespace string) ([]runnerapi.Alert, error) {
	if err := b.enter(ctx, Call{Verb: "Monitoring.Alerts", Key: runnerapi.Key{Namespace: namespace}}); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []runnerapi.Alert{}
	if namespace == "" {
		list = append(list, runnerapi.Alert{Name: "Watchdog", State: runnerapi.AlertFiring, Severity: "none", ActiveAt: epoch})
	} else if err := b.checkNamespace(namespace); err != nil {
		return nil, err
	}
	for key := range b.apps {
		if namespace == "" || namespace == key.Namespace {
			list = append(list, runnerapi.Alert{
				Name: "AppFailed", State: runnerapi.AlertFiring, Severity: "critical", Namespace: key.Namespace, App: key.Name,
				Summary: "App " + key.Name + " has failed", ActiveAt: epoch, Labels: map[string]string{"namespace": key.Namespace},
			})
		}
	}
	slices.SortFunc(list, func(a, b runnerapi.Alert) int { return cmp.Compare(a.Namespace+a.App, b.Namespace+b.App) })
	return list, nil
}

// Cost implements backend.Monitoring: each App costs three dollars.
func (b fakeMonitoring) Cost(ctx context.Context, opts runnerapi.CostOptions) (runnerapi.CostList, error) {
	if err := b.enter(ctx, Call{Verb: "Monitoring.Cost", Key: runnerapi.Key{Namespace: opts.Namespace}}); err != nil {
		return runnerapi.CostList{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if opts.Namespace != "" {
		if err := b.checkNamespace(opts.Namespace); err != nil {
			return runnerapi.CostList{}, err
		}
	}
	sums := map[runnerapi.Key]runnerapi.Cost{}
	for key := range b.apps {
		if opts.Namespace != "" && key.Namespace != opts.Namespace {
			continue
		}
		if !opts.ByApp {
			key.Name = ""
		}
		sum := sums[key]
		sum.Namespace, sum.App = key.Namespace, key.Name
		sum.CPU, sum.Memory, sum.Total = sum.CPU+1, sum.Memory+2, sum.Total+3
		sums[key] = sum
	}
	list := runnerapi.CostList{Start: epoch, End: epoch.Add(opts.Since), Items: slices.Collect(maps.Values(sums))}
	slices.SortFunc(list.Items, func(a, b runnerapi.Cost) int { return cmp.Compare(a.Namespace+"/"+a.App, b.Namespace+"/"+b.App) })
	return list, nil
}
