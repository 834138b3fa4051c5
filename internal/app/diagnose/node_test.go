package diagnose

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// nodeThat is a node with this condition of being ready.
func nodeThat(status corev1.ConditionStatus, message string) *corev1.Node {
	return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
		{Type: corev1.NodeReady, Status: status, Message: message, LastTransitionTime: ago(time.Minute)},
	}}}
}

// onNode is a pod that runs on node n1 and that the node controller, not the
// kubelet, has called not ready.
func onNode() *corev1.Pod {
	p := pod(up(time.Hour))
	p.Spec.NodeName, p.Status.Phase = "n1", corev1.PodRunning
	started := ago(time.Hour)
	p.Status.StartTime = &started
	p.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionFalse}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
	}
	return p
}

func findOn(p *corev1.Pod, node *corev1.Node) Finding {
	return Find(Evidence{Pods: []*corev1.Pod{p}, Nodes: map[string]*corev1.Node{"n1": node}, Now: now})
}

func TestNode_Lost(t *testing.T) {
	since := ago(time.Minute).Format(time.RFC3339)
	for name, c := range map[string]struct {
		node    *corev1.Node
		message string
		fix     string
	}{
		"silent": {nodeThat(corev1.ConditionUnknown, "Kubelet stopped posting node status."), "node n1, which has pod web-abc, has not answered since " + since + ": Kubelet stopped", "kubectl delete node n1"},
		"not ready": {
			nodeThat(corev1.ConditionFalse, "container runtime network not ready: cni plugin not initialized"),
			"has not been ready since " + since + ": container runtime network not ready", "kubectl describe node n1",
		},
		"deleted": {nil, "is no longer part of the cluster", "kubectl -n shop delete pod web-abc --force"},
		"new":     {&corev1.Node{}, "has never reported ready", "kubectl describe node n1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := findOn(onNode(), c.node)
			diagnosed(t, f.Diagnosis, runnerapi.CauseNodeLost, c.message, c.fix)
			assert.Equal(t, "node/n1", f.Diagnosis.Object)
			assert.Positive(t, f.Recheck, "that somebody deleted the node, nothing that is watched tells")
		})
	}
	assert.Equal(t, Finding{}, findOn(onNode(), nodeThat(corev1.ConditionTrue, "")), "a gate keeps it from being ready, not its node")
}

func TestNode_OnlyNeeded(t *testing.T) {
	ready := onNode()
	ready.Status.Conditions[0].Status = corev1.ConditionTrue
	assert.False(t, WantsNode(ready, now))
	unready := onNode()
	unready.Status.Conditions[1].Status = corev1.ConditionFalse
	assert.False(t, WantsNode(unready, now), "its kubelet said so, and so is there")
	assert.True(t, WantsNode(onNode(), now))
	ended := onNode()
	ended.Status.Phase = corev1.PodFailed
	assert.False(t, WantsNode(ended, now))

	scheduled := onNode()
	scheduled.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: ago(time.Second)},
	}}
	assert.False(t, WantsNode(scheduled, now))
	assert.Equal(t, time.Second, Find(Evidence{Pods: []*corev1.Pod{scheduled}, Now: now}).Recheck)
	assert.True(t, WantsNode(scheduled, now.Add(time.Second)), "no kubelet has taken notice")

	lost := onNode()
	lost.Status.Reason = "NodeLost"
	lost.Status.Conditions = nil
	assert.True(t, WantsNode(lost, now))
	evicted := onNode()
	evicted.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager", Message: "Taint manager: deleting due to NoExecute taint"},
	}
	assert.True(t, WantsNode(evicted, now))
}

// What a StatefulSet's pod of a lost node holds up is its own successor; any
// other is replaced though it never ends.
func TestNode_TerminatingPodOnLost(t *testing.T) {
	silent := nodeThat(corev1.ConditionUnknown, "Kubelet stopped posting node status.")
	p := onNode()
	end := ago(-10 * time.Second)
	p.DeletionTimestamp = &end
	assert.Nil(t, findOn(p, silent).Diagnosis)
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&appsv1.StatefulSet{}, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	d := findOn(p, silent).Diagnosis
	require.NotNil(t, d)
	assert.Contains(t, d.Message, "cannot be replaced before")

	p.Status.Conditions[1].Status = corev1.ConditionFalse
	f := findOn(p, silent)
	assert.Nil(t, f.Diagnosis, "it may be ending as it should")
	assert.Equal(t, 11*time.Second, f.Recheck)
	end = ago(time.Second)
	assert.NotNil(t, findOn(p, silent).Diagnosis, "it should have ended")
}

// TestTaint_Unnamed has the message of Kubernetes 1.36.
func TestTaint_Unnamed(t *testing.T) {
	p := unscheduled("0/2 nodes are available: 2 node(s) had untolerated taint(s). preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.", 0)
	require.True(t, WantsTaints(nil, []*corev1.Pod{p}))
	node := func(taints ...corev1.Taint) *corev1.Node { return &corev1.Node{Spec: corev1.NodeSpec{Taints: taints}} }
	tainted := []*corev1.Node{
		node(corev1.Taint{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}),
		node(corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}, corev1.Taint{Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule}),
	}
	d := Find(Evidence{Pods: []*corev1.Pod{p}, Tainted: tainted, Now: now}).Diagnosis
	require.NotNil(t, d)
	assert.Equal(t, "no node takes the pod: 0/2 nodes are available: 2 node(s) had untolerated taint(s): "+
		"dedicated=gpu:NoSchedule, node.kubernetes.io/unreachable:NoSchedule", d.Message)
	assert.Equal(t, "remove the taint dedicated=gpu:NoSchedule from a node (kubectl taint nodes NODE dedicated-), add a toleration of it, or add a node without it; "+
		"bring the node back, which is not ready (kubectl describe nodes)", d.Fix)

	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "logs"}}
	require.True(t, WantsTaints(ds, nil))
	d = Find(Evidence{DaemonSet: ds, Tainted: tainted, Now: now}).Diagnosis
	assert.Contains(t, d.Message, "dedicated=gpu:NoSchedule")
	assert.Contains(t, d.Fix, "kubectl taint nodes NODE dedicated-")
}
