package app

import (
	"context"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/health"
	"github.com/pipeops/pipeops-vm-agent/internal/managed"
)

// evidence gathers the signals about the newest spec. The jobs are its runs, the newest first. An
// event that the diagnosis depends on causes another look at the App.
func (e *Engine) evidence(ctx context.Context, a *App, w client.Object, pods []*corev1.Pod, jobs []*batchv1.Job) (diagnose.Evidence, error) {
	ev := diagnose.Evidence{Spec: a.Spec, Now: e.now(), Stabilization: e.stabilization}
	if a.observed() {
		ev.Previous = a.Status.Diagnosis
	}
	g := health.Gatherer{
		Namespace: a.Namespace, Name: "App " + a.key().String(), Objects: e.cached, Live: e.live, Logs: health.Logs(e.pods),
		Listened: func(of fields.Set, version string, reasons []string) { //nolint:contextcheck // it outlives this look at the App
			e.eventWatches.await(a.key(), of, version, reasons)
		},
	}
	all := health.Workload{Object: w, Pods: pods, Jobs: jobs, Labels: managed.AppLabels(a.Name), Since: a.Status.LastTransition}
	if a.Spec.Autoscaling != nil {
		h := &autoscalingv2.HorizontalPodAutoscaler{}
		if err := e.cached.Get(ctx, client.ObjectKeyFromObject(a), h); client.IgnoreNotFound(err) != nil {
			return ev, fmt.Errorf("read the autoscaler of App %s: %w", a.key(), err)
		} else if err == nil && owns(a, h) {
			ev.Autoscaler = h
		}
	}
	if err := g.Add(ctx, all, &ev); err != nil {
		return ev, err
	}
	ev.Ports, ev.Container = e.ports.of(a, ev.Pods, e.stabilization), a.Name
	return ev, nil
}
