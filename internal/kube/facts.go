package kube

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Facts describe the cluster and its capacity.
type Facts struct {
	KubernetesVersion string
	Distribution      string
	Provider          string
	Nodes             runnerapi.NodeCount
	Pods              runnerapi.PodCount
	CPU               runnerapi.ResourceFigure // thousandths of a core
	Memory            runnerapi.ResourceFigure // bytes
}

// Cluster is the cluster as a whole. It implements backend.Cluster.
type Cluster struct{ *Client }

// Cluster returns the cluster as a whole.
func (k *Client) Cluster() Cluster { return Cluster{k} }

// Facts reads the facts from the cluster. It is cheap enough for every heartbeat: it counts pods
// and does not read them.
func (k Cluster) Facts(ctx context.Context) (Facts, error) {
	f := Facts{}
	var err error
	if f.KubernetesVersion, err = k.version(ctx); err != nil {
		return f, kubeproblem.From(err, "reading the cluster's version")
	}
	if err := k.nodeFacts(ctx, &f); err != nil {
		return f, kubeproblem.From(err, "reading the nodes")
	}
	for _, where := range k.everywhere() {
		running, err := k.runningPods(ctx, where)
		if err != nil {
			return f, kubeproblem.From(err, "counting pods")
		}
		f.Pods.Running += running
	}
	if err := k.usage(ctx, &f); err != nil {
		return f, kubeproblem.From(err, "reading the nodes' usage")
	}
	return f, nil
}

// Get describes the cluster. Who the agent is is left to the agent.
func (k Cluster) Get(ctx context.Context) (runnerapi.Cluster, error) {
	f, err := k.Facts(ctx)
	if err != nil {
		return runnerapi.Cluster{}, err
	}
	return runnerapi.Cluster{
		KubernetesVersion: f.KubernetesVersion, Distribution: f.Distribution, Provider: f.Provider,
		Nodes: f.Nodes, Pods: f.Pods, CPU: f.CPU, Memory: f.Memory,
	}, nil
}

// ClusterUID names the cluster for good: the UID of its namespace kube-system.
func (k *Client) ClusterUID(ctx context.Context) (string, error) {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := k.client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, ns); err != nil {
		return "", kubeproblem.From(err, "reading the cluster's identity (namespace kube-system)")
	}
	return string(ns.UID), nil
}

func (k Cluster) version(ctx context.Context) (string, error) {
	raw, err := k.rest.Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return "", err
	}
	var info version.Info
	if err := json.Unmarshal(raw, &info); err != nil {
		return "", fmt.Errorf("decode the cluster's version: %w", err)
	}
	return info.GitVersion, nil
}

func (k Cluster) nodeFacts(ctx context.Context, f *Facts) error {
	f.Distribution = distribution(f.KubernetesVersion, nil)
	return k.pages(ctx, &corev1.NodeList{}, func(list client.ObjectList) error {
		for i := range list.(*corev1.NodeList).Items {
			node := &list.(*corev1.NodeList).Items[i]
			if f.Nodes.Total == 0 {
				f.Distribution, f.Provider = distribution(f.KubernetesVersion, node), provider(node.Spec.ProviderID)
			}
			f.Nodes.Total++
			if isReady(node) {
				f.Nodes.Ready++
			}
			f.Pods.Allocatable += node.Status.Allocatable.Pods().Value()
			f.CPU.Allocatable += node.Status.Allocatable.Cpu().MilliValue()
			f.Memory.Allocatable += node.Status.Allocatable.Memory().Value()
		}
		return nil
	})
}

func isReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// runningPods returns all pods less those that do not run: the API server counts all without
// sending them, and the others are few.
func (k Cluster) runningPods(ctx context.Context, where client.ListOption) (int, error) {
	list := podList()
	if err := k.client.List(ctx, list, where, client.Limit(1)); err != nil {
		return 0, err
	}
	total := len(list.Items)
	if left := list.GetRemainingItemCount(); left != nil {
		total += int(*left)
	}
	err := k.pages(ctx, podList(), func(list client.ObjectList) error {
		total -= len(list.(*metav1.PartialObjectMetadataList).Items)
		return nil
	}, where, client.MatchingFieldsSelector{
		Selector: fields.OneTermNotEqualSelector("status.phase", string(corev1.PodRunning)),
	})
	return max(total, 0), err
}

func podList() *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	return list
}

// usage adds the figures of the metrics API, if there is one.
func (k Cluster) usage(ctx context.Context, f *Facts) error {
	var cpu, memory int64
	nodes := 0
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(nodeMetricsKind.GroupVersion().WithKind(nodeMetricsKind.Kind + "List"))
	err := k.client.List(ctx, list)
	if noMetrics(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, item := range list.Items {
		nodes++
		cpu += figure(item, "cpu").MilliValue()
		memory += figure(item, "memory").Value()
	}
	if nodes > 0 {
		f.CPU.Used, f.Memory.Used = &cpu, &memory
	}
	return nil
}

// noMetrics reports whether the cluster has no metrics API, or one that is down.
func noMetrics(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsForbidden(err)
}

func figure(item unstructured.Unstructured, name string) *resource.Quantity {
	s, _, _ := unstructured.NestedString(item.Object, "usage", name)
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return &resource.Quantity{}
	}
	return &q
}
