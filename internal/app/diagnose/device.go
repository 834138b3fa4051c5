package diagnose

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// plugins are what makes nodes report the extended resources of a domain, with what such a node
// needs besides.
var plugins = []struct{ domain, install string }{
	{"nvidia.com", "install NVIDIA's GPU Operator; or its device plugin, with NVIDIA's driver and container toolkit on each node that has a GPU"},
	{"amd.com", "install AMD's GPU Operator; or its device plugin, with the amdgpu driver on each node that has a GPU"},
	{"intel.com", "install Intel's device plugin for this resource, with the device's driver on each node that has such a device"},
}

// pluginFix returns how nodes with such a device come to report it.
func pluginFix(name string) string {
	domain, _, _ := strings.Cut(name, "/")
	for _, p := range plugins {
		if domain == p.domain || strings.HasSuffix(domain, "."+p.domain) {
			return p.install
		}
	}
	return "install the device plugin of " + domain + ", with the device's driver on each node that has such a device"
}

// device is why no node has an extended resource for a pod.
type device struct {
	pod   *corev1.Pod
	name  corev1.ResourceName
	nodes []*corev1.Node
}

// shortage returns what the nodes have of it, in words that continue the scheduler's, and the fix.
// It returns nothing where that is not known.
func (d device) shortage(message string) (why, fix string) {
	having := d.where(func(n *corev1.Node) bool { return d.has(n) > 0 })
	fitting := d.where(func(n *corev1.Node) bool { return d.has(n) >= d.asks() })
	switch {
	case len(having) == 0 && allNodes(message, d.nodes):
		return d.nowhere()
	case len(having) == 0:
		return "", ""
	case len(fitting) == 0:
		return tooLarge(d.pod, d.name, d.nodes), fmt.Sprintf("ask for less of %s in resources, or add a node that has more", d.name)
	}
	within := device{d.pod, d.name, fitting}.where(d.open)
	if len(within) == 0 {
		return fmt.Sprintf("; it is on %s, where the pod may not go", nodeNames(fitting)),
			fmt.Sprintf("let the pod onto a node that has %s, by tolerations, nodeSelector and affinity (kubectl describe node %s)", d.name, fitting[0].Name)
	}
	return d.held(within)
}

// nowhere says why no node has it: its plugin found no device or stopped, the name is wrong, or
// there is no plugin.
func (d device) nowhere() (why, fix string) {
	if broken := d.where(func(n *corev1.Node) bool { _, reported := n.Status.Capacity[d.name]; return reported }); len(broken) > 0 {
		n := broken[0]
		return fmt.Sprintf("; no %s works on %s: the device plugin found none, or stopped", d.name, nodeNames(broken)),
			fmt.Sprintf("see the logs of the device plugin's pod on the node (kubectl get pods -A --field-selector spec.nodeName=%s), and its driver", n.Name)
	}
	why = "; no node of the cluster has " + string(d.name)
	if like := d.alike(); like != "" {
		return why + ", but nodes have " + like, "correct the name in resources (kubectl describe nodes lists what they have)"
	}
	return why, pluginFix(string(d.name)) + "; or add a node that has it (kubectl describe nodes)"
}

// alike names what a node has of the same domain.
func (d device) alike() string {
	domain, _, _ := strings.Cut(string(d.name), "/")
	var others []string
	for _, n := range d.nodes {
		for name, q := range n.Status.Allocatable {
			if strings.HasPrefix(string(name), domain+"/") && !q.IsZero() {
				others = add(others, string(name))
			}
		}
	}
	return some(others)
}

// held says that pods have all of it that the pod could get.
func (d device) held(by []*corev1.Node) (why, fix string) {
	var all int64
	for _, n := range by {
		all += d.has(n)
	}
	why = fmt.Sprintf("; %d of %d are in use on %s", all, all, nodeNames(by))
	if asks := d.asks(); asks > 1 {
		why = fmt.Sprintf("; it asks for %d, and of %d on %s fewer than that are free on each", asks, all, nodeNames(by))
	}
	return why, fmt.Sprintf("stop a pod that uses %s (kubectl describe node %s), run fewer replicas, or add a node that has it", d.name, by[0].Name)
}

func (d device) has(n *corev1.Node) int64 { q := n.Status.Allocatable[d.name]; return q.Value() }

func (d device) asks() int64 { q := requested(d.pod, d.name); return q.Value() }

func (d device) where(holds func(*corev1.Node) bool) (out []*corev1.Node) {
	for _, n := range d.nodes {
		if holds(n) {
			out = append(out, n)
		}
	}
	return out
}

// open reports whether the pod may go to a node, by its taints, its labels and the pod's affinity.
func (d device) open(n *corev1.Node) bool {
	_, kept := scheduling.FindMatchingUntoleratedTaint(klog.Logger{}, n.Spec.Taints, d.pod.Spec.Tolerations,
		func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }, true)
	fits, err := nodeaffinity.GetRequiredNodeAffinity(d.pod).Match(n)
	return !kept && !n.Spec.Unschedulable && fits && err == nil
}

// ofNodes is the number of nodes that a scheduler has looked at.
var ofNodes = regexp.MustCompile(`^0/(\d+) nodes`)

// allNodes reports whether these are all nodes of the cluster: there may be too many to read.
func allNodes(message string, nodes []*corev1.Node) bool {
	m := ofNodes.FindStringSubmatch(message)
	if m == nil {
		return false
	}
	n, err := strconv.Atoi(m[1])
	return err == nil && n <= len(nodes)
}

// maxNames bounds how many nodes or resources a message names.
const maxNames = 3

// some names the first of several names, in their order.
func some(names []string) string {
	slices.Sort(names)
	if more := len(names) - maxNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), more)
	}
	return strings.Join(names, ", ")
}

// nodeNames names nodes for display.
func nodeNames(nodes []*corev1.Node) string {
	out := make([]string, 0, len(nodes))
	for _, n := range nodes {
		out = append(out, n.Name)
	}
	if len(out) > 1 {
		return "nodes " + some(out)
	}
	return "node " + some(out)
}
