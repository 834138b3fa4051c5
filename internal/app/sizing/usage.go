package sizing

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// podUse is what metrics-server reports about one pod.
type podUse struct {
	name       string
	app        runnerapi.Key
	at         time.Time
	window     string
	containers map[string]use
}

type use struct{ cpu, memory int64 } // thousandths of a core, bytes

// usage asks metrics-server for the pods of some Apps of one namespace.
func (s *Sizer) usage(ctx context.Context, namespace string, apps ...string) (map[string]podUse, error) {
	pods := map[string]podUse{}
	err := eachUse(ctx, s.store.Live, selection.In, apps, func(p podUse) { pods[p.name] = p }, client.InNamespace(namespace))
	return pods, err
}

// AppUse is what all pods of an App use: thousandths of a core, and bytes.
type AppUse struct{ CPU, Memory int64 }

// UseOfApps asks metrics-server once for the pods of all Apps.
func UseOfApps(ctx context.Context, from client.Reader) (map[runnerapi.Key]AppUse, error) {
	apps := map[runnerapi.Key]AppUse{}
	err := eachUse(ctx, from, selection.Exists, nil, func(p podUse) {
		sum := apps[p.app]
		for _, c := range p.containers {
			sum.CPU, sum.Memory = sum.CPU+c.cpu, sum.Memory+c.memory
		}
		apps[p.app] = sum
	})
	return apps, err
}

// eachUse lists what metrics-server reports about pods of Apps.
func eachUse(ctx context.Context, from client.Reader, which selection.Operator, apps []string, each func(podUse), opts ...client.ListOption) error {
	of, err := labels.NewRequirement(objectmeta.App, which, apps)
	if err != nil {
		return err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(appcache.PodMetricsKind.GroupVersion().WithKind(appcache.PodMetricsKind.Kind + "List"))
	selector := labels.SelectorFromSet(objectmeta.Labels()).Add(*of)
	if err := from.List(ctx, list, append(opts, client.MatchingLabelsSelector{Selector: selector})...); err != nil {
		return noUsage(err)
	}
	for i := range list.Items {
		each(podUseOf(&list.Items[i]))
	}
	return nil
}

// noUsage distinguishes a cluster without metrics-server from one with a failing metrics-server.
func noUsage(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return runnerapi.NotSupported("install metrics-server (https://github.com/kubernetes-sigs/metrics-server)",
			"the cluster has no metrics-server: it does not serve %s", appcache.PodMetricsKind.GroupVersion())
	case apierrors.IsServiceUnavailable(err):
		return kubeproblem.From(fmt.Errorf("metrics-server does not answer: %w", err), "asking metrics-server")
	}
	return kubeproblem.From(err, "asking metrics-server")
}

func podUseOf(pod *unstructured.Unstructured) podUse {
	tree := pod.Object
	p := podUse{
		name: pod.GetName(), app: runnerapi.Key{Namespace: pod.GetNamespace(), Name: pod.GetLabels()[objectmeta.App]}, containers: map[string]use{},
	}
	p.window, _, _ = unstructured.NestedString(tree, "window")
	at, _, _ := unstructured.NestedString(tree, "timestamp")
	p.at, _ = time.Parse(time.RFC3339, at)
	items, _, _ := unstructured.NestedSlice(tree, "containers")
	for _, item := range items {
		c, ok := item.(map[string]any)
		if !ok {
			continue
		}
		name, _, _ := unstructured.NestedString(c, "name")
		p.containers[name] = use{cpu: quantityAt(c, "cpu").MilliValue(), memory: quantityAt(c, "memory").Value()}
	}
	return p
}

func quantityAt(container map[string]any, name string) *resource.Quantity {
	s, _, _ := unstructured.NestedString(container, "usage", name)
	q, _ := workload.Quantity(s)
	return &q
}
