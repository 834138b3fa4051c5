package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/test/cluster/internal/node"
)

const (
	// maxSimulatedNodes times podsPerSimulatedNode is the number of addresses for simulated pods.
	maxSimulatedNodes    = 128
	podsPerSimulatedNode = 250

	simulatedLabel = "cluster.test/simulated"
	// nodeLease is how long a simulated node may be silent; KWOK renews at a quarter of it, for
	// each node.
	nodeLease = "40"
)

// Annotations of a namespace that the API server's admission plugins PodNodeSelector and
// PodTolerationRestriction read.
const (
	selectorAnnotation    = "scheduler.alpha.kubernetes.io/node-selector"
	tolerationsAnnotation = "scheduler.alpha.kubernetes.io/defaultTolerations"
)

// Simulate returns the annotations of a namespace whose pods all go to simulated nodes, regardless
// of their creator and without their knowledge. All other pods go to the real node.
func Simulate() map[string]string {
	return map[string]string{
		selectorAnnotation:    simulatedLabel + "=true",
		tolerationsAnnotation: fmt.Sprintf(`[{"key":%q,"operator":"Exists"}]`, simulatedLabel),
	}
}

// SimulatedNode returns the name of a simulated node, counted from 0.
func SimulatedNode(i int) string { return fmt.Sprintf("simulated-%d", i) }

// kwok plays the kubelets of the simulated nodes.
func kwok(c *Cluster) node.Component {
	return node.Component{Name: "kwok", Command: []string{
		node.PartsDir + "/kwok/kwok", "--kubeconfig=" + pkiDir + "/kwok.kubeconfig",
		"--manage-all-nodes=false", "--manage-nodes-with-label-selector=" + simulatedLabel,
		"--node-ip=" + c.NodeIP(), "--cidr=" + c.state.Network.simulated().String(),
		"--node-lease-duration-seconds=" + nodeLease,
	}}
}

// admission returns the API server's plugins beside its defaults.
func admission(c *Cluster) []string {
	plugins := []string{"NodeRestriction"}
	if c.state.SimulatedNodes > 0 {
		plugins = append(plugins, "PodNodeSelector", "PodTolerationRestriction")
	}
	return plugins
}

// simulateNodes creates the nodes and waits until they are ready. They have a taint, so that no
// real pod is scheduled on a node that runs nothing.
func (a *apiClient) simulateNodes(ctx context.Context, count int) error {
	for i := range count {
		_, err := a.typed.CoreV1().Nodes().Create(ctx, simulatedNode(i), metav1.CreateOptions{FieldManager: fieldManager})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make simulated node %d: %w", i, err)
		}
	}
	for i := range count {
		if err := a.waitNode(ctx, SimulatedNode(i)); err != nil {
			return err
		}
	}
	return nil
}

func simulatedNode(i int) *corev1.Node {
	has := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods: *resource.NewQuantity(podsPerSimulatedNode, resource.DecimalSI),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   SimulatedNode(i),
			Labels: map[string]string{simulatedLabel: "true", corev1.LabelHostname: SimulatedNode(i), corev1.LabelOSStable: "linux"},
		},
		Spec:   corev1.NodeSpec{Taints: []corev1.Taint{{Key: simulatedLabel, Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Allocatable: has, Capacity: has},
	}
}
