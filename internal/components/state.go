package components

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
)

// State is how the workloads of an installed component are: ready, or the first cause that is not.
type State struct {
	Component string `json:"component"`
	Version   string `json:"version"` // of its first chart
	Ready     bool   `json:"ready"`
	Workload  string `json:"workload,omitempty"` // that is not ready, or a Service without an address
	Cause     string `json:"cause,omitempty"`    // of the diagnosis; empty while it only starts
	Message   string `json:"message,omitempty"`
	Fix       string `json:"fix,omitempty"`
}

// States returns how the installed components are. It reads workloads, pods and Services, and none
// of Helm's records, which are Secrets: releases are known by the annotations that Helm puts on
// their objects. Components without workloads are left out.
func States(ctx context.Context, api kubernetes.Interface, checker *workloadhealth.Checker) ([]State, error) {
	all, err := workloads(ctx, api)
	if err != nil {
		return nil, err
	}
	balancers, err := loadBalancers(ctx, api)
	if err != nil {
		return nil, err
	}
	var states []State
	for _, c := range table {
		s := State{Component: c.Name, Ready: true}
		var found int
		for _, chart := range c.Charts {
			for _, w := range all[releaseKey{c.Namespace, chart.Name}] {
				found++
				s.Version = cmp.Or(s.Version, versionOf(w, chart.Name))
				if err := s.add(ctx, checker, w); err != nil {
					return nil, err
				}
			}
			s.addBalancers(releaseKey{c.Namespace, chart.Name}, balancers)
		}
		if found > 0 {
			states = append(states, s)
		}
	}
	return states, nil
}

// releaseKey is where Helm keeps a release, and its name.
type releaseKey struct{ namespace, name string }

// The annotations by which Helm knows the objects of a release, and the labels of it and of charts.
const (
	annotationRelease   = "meta.helm.sh/release-name"
	annotationNamespace = "meta.helm.sh/release-namespace"
	byHelm              = "app.kubernetes.io/managed-by=Helm"
	labelOfChart        = "helm.sh/chart"
)

func releaseOf(o metav1.Object) releaseKey {
	return releaseKey{o.GetAnnotations()[annotationNamespace], o.GetAnnotations()[annotationRelease]}
}

// workloads returns what runs pods, by its release.
func workloads(ctx context.Context, api kubernetes.Interface) (map[releaseKey][]client.Object, error) {
	all := map[releaseKey][]client.Object{}
	add := func(o client.Object, kind string) {
		o.GetObjectKind().SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(kind))
		all[releaseOf(o)] = append(all[releaseOf(o)], o)
	}
	// Of the API server's cache: this is asked often.
	opts := metav1.ListOptions{LabelSelector: byHelm, ResourceVersion: "0"}
	deployments, err := api.AppsV1().Deployments("").List(ctx, opts)
	if err != nil {
		return nil, translated(err, "listing Deployments")
	}
	for i := range deployments.Items {
		add(&deployments.Items[i], "Deployment")
	}
	sets, err := api.AppsV1().StatefulSets("").List(ctx, opts)
	if err != nil {
		return nil, translated(err, "listing StatefulSets")
	}
	for i := range sets.Items {
		add(&sets.Items[i], "StatefulSet")
	}
	daemons, err := api.AppsV1().DaemonSets("").List(ctx, opts)
	if err != nil {
		return nil, translated(err, "listing DaemonSets")
	}
	for i := range daemons.Items {
		add(&daemons.Items[i], "DaemonSet")
	}
	return all, nil
}

// add takes account of a workload. The first that fails counts, before any that only starts.
func (s *State) add(ctx context.Context, checker *workloadhealth.Checker, w client.Object) error {
	if isUp(w) || s.Cause != "" {
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w)
	if err != nil {
		return fmt.Errorf("read %s: %w", w.GetName(), err)
	}
	report, _, err := checker.Check(ctx, &unstructured.Unstructured{Object: content})
	if err != nil {
		return translated(err, "reading the pods of "+w.GetNamespace()+"/"+w.GetName())
	}
	if !s.Ready && report.Diagnosis == nil {
		return nil
	}
	s.Ready = false
	s.Workload = w.GetNamespace() + "/" + w.GetName()
	s.Message = cmp.Or(report.Message, "it is not ready")
	if report.Diagnosis != nil {
		s.Cause, s.Fix = string(report.Diagnosis.Cause), report.Diagnosis.Fix
	}
	return nil
}

// isUp reports whether a workload has all its pods, without a look at these.
func isUp(w client.Object) bool {
	switch w := w.(type) {
	case *appsv1.Deployment:
		want := replicas(w.Spec.Replicas)
		return w.Status.ObservedGeneration >= w.Generation && w.Status.UpdatedReplicas >= want && w.Status.AvailableReplicas >= want
	case *appsv1.StatefulSet:
		want := replicas(w.Spec.Replicas)
		return w.Status.ObservedGeneration >= w.Generation && w.Status.UpdatedReplicas >= want && w.Status.AvailableReplicas >= want
	case *appsv1.DaemonSet:
		s := w.Status
		return s.ObservedGeneration >= w.Generation && s.UpdatedNumberScheduled >= s.DesiredNumberScheduled && s.NumberAvailable >= s.DesiredNumberScheduled
	}
	return false
}

func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

// versionOf returns the version in the label that charts give their objects: NAME-VERSION.
func versionOf(w client.Object, chart string) string {
	version, ok := strings.CutPrefix(w.GetLabels()[labelOfChart], chart+"-")
	if !ok {
		return ""
	}
	return strings.ReplaceAll(version, "_", "+")
}
