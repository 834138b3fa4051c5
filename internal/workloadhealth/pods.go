package workloadhealth

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxPods bounds what is read of one workload's pods.
const maxPods = 500

// workload reads what an object has: its pods and runs.
func (g Gatherer) workload(ctx context.Context, o client.Object) (Workload, error) {
	w := Workload{Object: o}
	var selector *metav1.LabelSelector
	switch o := o.(type) {
	case *appsv1.Deployment:
		selector = o.Spec.Selector
	case *appsv1.StatefulSet:
		selector = o.Spec.Selector
	case *appsv1.DaemonSet:
		selector = o.Spec.Selector
	case *appsv1.ReplicaSet:
		selector = o.Spec.Selector
	case *batchv1.Job:
		w.Jobs, selector = []*batchv1.Job{o}, o.Spec.Selector
	case *batchv1.CronJob:
		return g.runsOf(ctx, o, w)
	case *corev1.Pod:
		w.Pods = []*corev1.Pod{o}
		return w, nil
	}
	if selector != nil {
		w.Labels = selector.MatchLabels
	}
	var err error
	w.Pods, err = g.podsOf(ctx, selector)
	return w, err
}

func (g Gatherer) podsOf(ctx context.Context, by *metav1.LabelSelector) ([]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(by)
	if err != nil || selector.Empty() {
		return nil, nil //nolint:nilerr // the API server would not have taken it
	}
	var list corev1.PodList
	err = g.Objects.List(ctx, &list, client.InNamespace(g.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.Limit(maxPods))
	if err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", g.Name, err)
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods, nil
}

// runsOf reads the runs of a CronJob, and the pods of the newest two.
func (g Gatherer) runsOf(ctx context.Context, o *batchv1.CronJob, w Workload) (Workload, error) {
	var list batchv1.JobList
	if err := g.Objects.List(ctx, &list, client.InNamespace(g.Namespace), client.Limit(maxPods)); err != nil {
		return w, fmt.Errorf("list the runs of %s: %w", g.Name, err)
	}
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], o) {
			w.Jobs = append(w.Jobs, &list.Items[i])
		}
	}
	slices.SortFunc(w.Jobs, func(a, b *batchv1.Job) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
	})
	for _, j := range w.Jobs[:min(len(w.Jobs), 2)] {
		pods, err := g.podsOf(ctx, j.Spec.Selector)
		if err != nil {
			return w, err
		}
		w.Pods = append(w.Pods, pods...)
	}
	return w, nil
}
