package diagnose

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// deviceNode is a node that reports extended resources, as NAME: AMOUNT.
func deviceNode(name string, has map[string]string, taints ...corev1.Taint) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"disk": "hdd"}}, Spec: corev1.NodeSpec{Taints: taints}}
	n.Status.Allocatable = corev1.ResourceList{}
	for of, amount := range has {
		n.Status.Allocatable[corev1.ResourceName(of)] = resource.MustParse(amount)
	}
	n.Status.Capacity = n.Status.Allocatable.DeepCopy()
	return n
}

// wanting is a pod that asks for so much of a resource, which is short on every node.
func wanting(name, amount string, nodes int) *corev1.Pod {
	p := unscheduled(fmt.Sprintf("0/%d nodes are available: %[1]d Insufficient %s. no new claims to deallocate, preemption: 0/%[1]d nodes are available: "+
		"%[1]d Preemption is not helpful for scheduling.", nodes, name), 0)
	of := corev1.ResourceList{corev1.ResourceName(name): resource.MustParse(amount)}
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: of, Limits: of}
	return p
}

func TestDevice_Shortage(t *testing.T) {
	const gpu = "nvidia.com/gpu"
	gpus := func(amount string) map[string]string { return map[string]string{gpu: amount} }
	tainted := corev1.Taint{Key: gpu, Value: "present", Effect: corev1.TaintEffectNoSchedule}
	soft := corev1.Taint{Key: gpu, Effect: corev1.TaintEffectPreferNoSchedule}
	plain := deviceNode("plain", nil)
	for name, c := range map[string]struct {
		resource, amount string
		nodes            []*corev1.Node
		message, fix     string
	}{
		"nowhere": {gpu, "1", []*corev1.Node{plain}, "1 Insufficient nvidia.com/gpu; no node of the cluster has nvidia.com/gpu", "NVIDIA's driver and container toolkit"},
		"of AMD":  {"amd.com/gpu", "1", []*corev1.Node{plain}, "no node of the cluster has amd.com/gpu", "AMD's GPU Operator"},
		"of Intel": {
			"gpu.intel.com/i915", "1", []*corev1.Node{plain}, "no node of the cluster has gpu.intel.com/i915", "Intel's device plugin",
		},
		"of another": {
			"smarter-devices/video_0", "1", []*corev1.Node{plain}, "no node of the cluster has smarter-devices/video_0", "install the device plugin of smarter-devices, ",
		},
		"another name": {
			gpu, "1", []*corev1.Node{plain, deviceNode("gpu-1", map[string]string{"nvidia.com/gpu.shared": "4"})},
			"no node of the cluster has nvidia.com/gpu, but nodes have nvidia.com/gpu.shared", "correct the name",
		},
		"plugin stopped": {
			gpu, "1", []*corev1.Node{plain, deviceNode("gpu-1", gpus("0"))},
			"; no nvidia.com/gpu works on node gpu-1: the device plugin found none, or stopped", "spec.nodeName=gpu-1",
		},
		"in use": {gpu, "1", []*corev1.Node{plain, deviceNode("gpu-1", gpus("4"), soft)}, "; 4 of 4 are in use on node gpu-1", "kubectl describe node gpu-1"},
		"too few free": {
			gpu, "2", []*corev1.Node{deviceNode("gpu-1", gpus("4")), deviceNode("gpu-2", gpus("2"))},
			"; it asks for 2, and of 6 on nodes gpu-1, gpu-2 fewer than that are free on each", "run fewer replicas",
		},
		"too many": {
			gpu, "8", []*corev1.Node{plain, deviceNode("gpu-1", gpus("4"))},
			"; it asks for 8 of nvidia.com/gpu, and the largest node, gpu-1, has 4", "ask for less of nvidia.com/gpu in resources",
		},
		"kept away": {gpu, "1", []*corev1.Node{plain, deviceNode("gpu-1", gpus("4"), tainted)}, "; it is on node gpu-1, where the pod may not go", "tolerations"},
	} {
		t.Run(name, func(t *testing.T) {
			p := wanting(c.resource, c.amount, len(c.nodes))
			require.True(t, WantsTaints(nil, []*corev1.Pod{p}), "the nodes are read")
			diagnosed(t, Find(Evidence{Pods: []*corev1.Pod{p}, Tainted: c.nodes, Now: now}).Diagnosis, runnerapi.CauseUnschedulable, c.message, c.fix)
		})
	}
}

// TestDevice_WhereThePodMayGo has a node whose devices count only for pods that can get there.
func TestDevice_WhereThePodMayGo(t *testing.T) {
	node := deviceNode("gpu-1", map[string]string{"nvidia.com/gpu": "1"}, corev1.Taint{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule})
	find := func(change func(*corev1.PodSpec)) string {
		p := wanting("nvidia.com/gpu", "1", 1)
		p.Spec.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}}
		change(&p.Spec)
		return Find(Evidence{Pods: []*corev1.Pod{p}, Tainted: []*corev1.Node{node}, Now: now}).Diagnosis.Message
	}
	assert.Contains(t, find(func(*corev1.PodSpec) {}), "1 of 1 are in use")
	assert.Contains(t, find(func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{"disk": "ssd"} }), "may not go")
	node.Spec.Unschedulable = true
	assert.Contains(t, find(func(*corev1.PodSpec) {}), "may not go")
}

// TestDevice_SaysOnlyWhatIsKnown has a cluster with more nodes than are read, and none at all.
func TestDevice_SaysOnlyWhatIsKnown(t *testing.T) {
	for _, nodes := range [][]*corev1.Node{nil, {deviceNode("plain", nil)}} {
		d := Find(Evidence{Pods: []*corev1.Pod{wanting("nvidia.com/gpu", "1", 500)}, Tainted: nodes, Now: now}).Diagnosis
		require.NotNil(t, d)
		assert.NotContains(t, d.Message, "no node of the cluster")
		assert.Contains(t, d.Fix, "add a node that has it (now 1 per pod)")
	}
}

// TestDevice_NativeResources has names that Kubernetes makes itself.
func TestDevice_NativeResources(t *testing.T) {
	for _, name := range []string{"cpu", "hugepages-2Mi", "ephemeral-storage", "kubernetes.io/batch-cpu"} {
		assert.False(t, runnerapi.ExtendedResource(name), name)
	}
	d := Find(Evidence{Pods: []*corev1.Pod{wanting("hugepages-2Mi", "2Mi", 1)}, Tainted: []*corev1.Node{deviceNode("plain", nil)}, Now: now}).Diagnosis
	assert.NotContains(t, d.Fix, "device plugin")
}
