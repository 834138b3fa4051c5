package evidence

import (
	"context"
	"fmt"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/podport"
	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Collector collects what there is to diagnose an App by.
type Collector struct {
	store         *appcache.Store
	podLogs       corev1client.PodsGetter
	now           func() time.Time
	stabilization diagnose.Stabilization
	eventWatches  *eventWatches
	ports         *ports
}

// New returns a Collector that tries ports while this replica leads.
func New(
	store *appcache.Store, core corev1client.CoreV1Interface, reach podport.Reach, stabilization diagnose.Stabilization, leads func() bool, now func() time.Time,
) *Collector {
	return &Collector{
		store: store, podLogs: core, now: now, stabilization: stabilization,
		eventWatches: newEventWatches(core, store), ports: newPorts(store, reach, leads, now),
	}
}

// Start implements manager.Runnable. It returns after ctx and all that was started has ended.
func (c *Collector) Start(ctx context.Context) error {
	var parts sync.WaitGroup
	parts.Go(func() { c.eventWatches.run(ctx) })
	parts.Go(func() { c.ports.run(ctx) })
	parts.Wait()
	return nil
}

// Forget forgets an App that is gone.
func (c *Collector) Forget(key runnerapi.Key) { c.ports.forget(key) }

// Collect gathers the signals about the newest spec. The jobs are its runs, the newest first. An
// event that the diagnosis depends on causes another look at the App.
func (c *Collector) Collect(ctx context.Context, a *v1alpha1.App, w client.Object, pods []*corev1.Pod, jobs []*batchv1.Job) (diagnose.Evidence, error) {
	ev := diagnose.Evidence{Spec: a.Spec, Now: c.now(), Stabilization: c.stabilization}
	if a.Observed() {
		ev.Previous = a.Status.Diagnosis
	}
	g := workloadhealth.Gatherer{
		Namespace: a.Namespace, Name: "App " + a.Key().String(), Objects: c.store.Cached, Live: c.store.Live, Logs: workloadhealth.Logs(c.podLogs),
		Listened: func(of fields.Set, version string, reasons []string) { //nolint:contextcheck // it outlives this look at the App
			c.eventWatches.await(a.Key(), of, version, reasons)
		},
	}
	all := workloadhealth.Workload{Object: w, Pods: pods, Jobs: jobs, Labels: objectmeta.AppLabels(a.Name), Since: a.Status.LastTransition}
	if a.Spec.Autoscaling != nil {
		h := &autoscalingv2.HorizontalPodAutoscaler{}
		if err := c.store.Cached.Get(ctx, client.ObjectKeyFromObject(a), h); client.IgnoreNotFound(err) != nil {
			return ev, fmt.Errorf("read the autoscaler of App %s: %w", a.Key(), err)
		} else if err == nil && workload.Owns(a, h) {
			ev.Autoscaler = h
		}
	}
	if err := g.Add(ctx, all, &ev); err != nil {
		return ev, err
	}
	ev.Ports, ev.Container = c.ports.of(a, ev.Pods, c.stabilization), a.Name
	return ev, nil
}
