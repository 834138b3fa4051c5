package kube

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	podresource "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const rolePrefix = "node-role.kubernetes.io/"

// Nodes are the cluster's nodes. With how a machine becomes one, which the agent knows, they
// implement backend.Nodes.
type Nodes struct{ *Client }

// Nodes returns the cluster's nodes.
func (k *Client) Nodes() Nodes { return Nodes{k} }

// List implements backend.Nodes.
func (k Nodes) List(ctx context.Context) ([]runnerapi.Node, error) { return k.nodes(ctx, "") }

// Get implements backend.Nodes. It lists by name: the agent has the right
// to list nodes anyway, and no other.
func (k Nodes) Get(ctx context.Context, name string) (runnerapi.Node, error) {
	node, err := k.node(ctx, name)
	if err == nil {
		node.Events, err = k.Events().ofNode(ctx, name)
	}
	return node, err
}

// node returns a node without its events.
func (k Nodes) node(ctx context.Context, name string) (runnerapi.Node, error) {
	nodes, err := k.nodes(ctx, name)
	if err != nil {
		return runnerapi.Node{}, err
	}
	if len(nodes) == 0 {
		return runnerapi.Node{}, noNode(name)
	}
	return nodes[0], nil
}

func noNode(name string) error {
	return problem.Errorf(problem.NotFound, "see which there are: pipeops-runner node list AGENT", "there is no node %q", name).WithField("path.name")
}

// nodes returns all nodes, or the one of that name, in the order of their names.
func (k Nodes) nodes(ctx context.Context, name string) ([]runnerapi.Node, error) {
	var named, on []client.ListOption
	if name != "" {
		named = []client.ListOption{client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", name)}}
		on = []client.ListOption{client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", name)}}
	}
	byName := map[string]*runnerapi.Node{}
	err := k.pages(ctx, &corev1.NodeList{}, func(list client.ObjectList) error {
		for i := range list.(*corev1.NodeList).Items {
			n := nodeOf(&list.(*corev1.NodeList).Items[i])
			byName[n.Name] = &n
		}
		return nil
	}, named...)
	if err != nil {
		return nil, kubeproblem.From(err, "reading the nodes")
	}
	if len(byName) == 0 {
		return nil, nil
	}
	if err := k.addPods(ctx, byName, on); err != nil {
		return nil, kubeproblem.From(err, "reading the pods of nodes")
	}
	if err := k.addUsage(ctx, byName, named); err != nil {
		return nil, kubeproblem.From(err, "reading the nodes' usage")
	}
	nodes := make([]runnerapi.Node, 0, len(byName))
	for _, n := range byName {
		nodes = append(nodes, *n)
	}
	slices.SortFunc(nodes, func(a, b runnerapi.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, nil
}

func nodeOf(n *corev1.Node) runnerapi.Node {
	capacity, left := n.Status.Capacity, n.Status.Allocatable
	out := runnerapi.Node{
		Name: n.Name, Ready: isReady(n), Schedulable: !n.Spec.Unschedulable, Conditions: []runnerapi.NodeCondition{},
		CPU:            runnerapi.NodeResource{Capacity: capacity.Cpu().MilliValue(), Allocatable: left.Cpu().MilliValue()},
		Memory:         runnerapi.NodeResource{Capacity: capacity.Memory().Value(), Allocatable: left.Memory().Value()},
		Pods:           runnerapi.NodePods{Allocatable: left.Pods().Value()},
		KubeletVersion: n.Status.NodeInfo.KubeletVersion, OS: n.Status.NodeInfo.OperatingSystem,
		Architecture: n.Status.NodeInfo.Architecture, CreatedAt: n.CreationTimestamp.Time,
	}
	for label := range n.Labels {
		if role, ok := strings.CutPrefix(label, rolePrefix); ok && role != "" {
			out.Roles = append(out.Roles, role)
		}
	}
	slices.Sort(out.Roles)
	for _, c := range n.Status.Conditions {
		out.Conditions = append(out.Conditions, runnerapi.NodeCondition{
			Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time,
		})
	}
	for _, t := range n.Spec.Taints {
		out.Taints = append(out.Taints, runnerapi.NodeTaint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			out.Addresses = append(out.Addresses, a.Address)
		}
	}
	return out
}

// addPods counts pods and what they request, page by page.
func (k Nodes) addPods(ctx context.Context, nodes map[string]*runnerapi.Node, on []client.ListOption) error {
	for _, where := range k.everywhere() {
		err := k.pages(ctx, &corev1.PodList{}, func(list client.ObjectList) error {
			for i := range list.(*corev1.PodList).Items {
				pod := &list.(*corev1.PodList).Items[i]
				n := nodes[pod.Spec.NodeName]
				if n == nil || ended(pod) {
					continue
				}
				n.Pods.Count++
				requests := podresource.PodRequests(pod, podresource.PodResourcesOptions{})
				n.CPU.Requested += requests.Cpu().MilliValue()
				n.Memory.Requested += requests.Memory().Value()
			}
			return nil
		}, append([]client.ListOption{where}, on...)...)
		if err != nil {
			return err
		}
	}
	return nil
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// addUsage adds the figures of the metrics API, if there is one.
func (k Nodes) addUsage(ctx context.Context, nodes map[string]*runnerapi.Node, named []client.ListOption) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(nodeMetricsKind.GroupVersion().WithKind(nodeMetricsKind.Kind + "List"))
	err := k.client.List(ctx, list, named...)
	if noMetrics(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, item := range list.Items {
		if n := nodes[item.GetName()]; n != nil {
			cpu, memory := figure(item, "cpu").MilliValue(), figure(item, "memory").Value()
			n.CPU.Used, n.Memory.Used = &cpu, &memory
		}
	}
	return nil
}
