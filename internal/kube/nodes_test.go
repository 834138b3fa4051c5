package kube_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/deployments"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// makeNode is a node without a kubelet: its pods end when they are evicted with
// no time to end.
func makeNode(t *testing.T, env *kubetest.Env, name string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"node-role.kubernetes.io/worker": ""}}}
	node.Spec.Taints = []corev1.Taint{{Key: "example.com/own", Value: "yes", Effect: corev1.TaintEffectPreferNoSchedule}}
	require.NoError(t, env.Client.Create(t.Context(), node))
	t.Cleanup(func() { assert.NoError(t, client.IgnoreNotFound(env.Client.Delete(context.Background(), node))) })
	node.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("20")}
	node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("3900m"), "memory": resource.MustParse("7Gi"), "pods": resource.MustParse("20")}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: "no network"}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.1.2.3"}, {Type: corev1.NodeExternalIP, Address: "192.0.2.1"}}
	require.NoError(t, env.Client.Status().Update(t.Context(), node))
}

// podOn makes a pod on a node, of a controller of that kind or of none.
func podOn(t *testing.T, env *kubetest.Env, node, name, owner string, change func(*corev1.Pod)) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: production, Name: name, Labels: map[string]string{"app": name}}}
	pod.Spec.NodeName = node
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "example.com/x:1", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("250m"), "memory": resource.MustParse("64Mi")},
	}}}
	if change != nil {
		change(pod)
	}
	if owner != "" {
		pod.OwnerReferences = []metav1.OwnerReference{controller(t, env, pod, owner)}
	}
	require.NoError(t, env.Client.Create(t.Context(), pod))
	t.Cleanup(func() {
		assert.NoError(t, client.IgnoreNotFound(env.Client.Delete(context.Background(), pod, client.GracePeriodSeconds(0))))
	})
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	require.NoError(t, env.Client.Status().Update(t.Context(), pod))
}

// controller makes a pod's owner: without one, Kubernetes' garbage collector deletes the pod.
func controller(t *testing.T, env *kubetest.Env, of *corev1.Pod, kind string) metav1.OwnerReference {
	t.Helper()
	labels := map[string]any{"app": of.Name}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "example.com/x:1"}}},
		},
	}}}
	o.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(kind))
	o.SetNamespace(of.Namespace)
	o.SetName(of.Name)
	require.NoError(t, env.Client.Create(t.Context(), o))
	t.Cleanup(func() { assert.NoError(t, client.IgnoreNotFound(env.Client.Delete(context.Background(), o))) })
	return *metav1.NewControllerRef(o, o.GroupVersionKind())
}

// awaitRights waits until the API server has taken up what was granted.
func awaitRights(t *testing.T, try func() error) {
	t.Helper()
	var err error
	defer func() { assert.NoError(t, err) }() // it is why the wait ended
	await.Until(t, "what was granted holds", func() bool {
		err = try()
		return err == nil
	})
}

func TestNodes_Described(t *testing.T) {
	env := kubetest.ControlPlane(t)
	makeNode(t, env, "described")
	podOn(t, env, "described", "one", "ReplicaSet", nil)
	podOn(t, env, "described", "two", "ReplicaSet", func(p *corev1.Pod) {
		first := p.Spec.Containers[0]
		first.Name, first.Resources.Requests = "init", corev1.ResourceList{"cpu": resource.MustParse("1")}
		p.Spec.InitContainers = []corev1.Container{first}
	})
	k := asAgent(t, env)
	node, err := k.Nodes().Get(t.Context(), "described")
	require.NoError(t, err)
	assert.Equal(t, []string{"worker"}, node.Roles)
	assert.False(t, node.Ready)
	assert.True(t, node.Schedulable)
	assert.Equal(t, runnerapi.NodeResource{Capacity: 4000, Allocatable: 3900, Requested: 1250}, node.CPU, "an init container counts where it needs more")
	assert.Equal(t, int64(128<<20), node.Memory.Requested)
	assert.Equal(t, runnerapi.NodePods{Allocatable: 20, Count: 2}, node.Pods)
	assert.Equal(t, []string{"10.1.2.3"}, node.Addresses)
	assert.Equal(t, "no network", node.Conditions[0].Message)
	assert.Contains(t, node.Taints, runnerapi.NodeTaint{Key: "example.com/own", Value: "yes", Effect: "PreferNoSchedule"})

	nodes, err := k.Nodes().List(t.Context())
	require.NoError(t, err)
	assert.Contains(t, nodes, node)
	_, err = k.Nodes().Get(t.Context(), "nowhere")
	assert.Equal(t, runnerapi.CodeNotFound, problemOf(t, err).Code)
}

func TestNodes_WithoutRights(t *testing.T) {
	env := kubetest.ControlPlane(t)
	makeNode(t, env, "foreign")
	k := asAgent(t, env)
	_, err := k.Nodes().Cordon(t.Context(), "foreign", true, byTest)
	p := problemOf(t, err)
	assert.Equal(t, runnerapi.CodeForbidden, p.Code)
	assert.Contains(t, p.Fix, "node-rights.yaml")
	_, err = k.Nodes().Drain(t.Context(), "foreign", runnerapi.DrainOptions{}, byTest)
	assert.Contains(t, problemOf(t, err).Fix, "node-rights.yaml")
}

// TestDrain_DelayedSparesNode has another replica carry out the drain, and a later command come.
func TestDrain_DelayedSparesNode(t *testing.T) {
	env := kubetest.ControlPlane(t)
	env.Apply(t, string(deployments.NodeRights()))
	makeNode(t, env, "spared")
	podOn(t, env, "spared", "stays", "ReplicaSet", nil)
	k := asAgent(t, env)
	awaitRights(t, func() error {
		_, err := k.Nodes().Cordon(t.Context(), "spared", false, byTest)
		return err
	})
	held := byTest
	held.Answered = func(context.Context) (bool, error) { return true, nil }
	_, err := k.Nodes().Cordon(t.Context(), "spared", true, held)
	require.NoError(t, err)
	drain, err := k.Nodes().Drain(t.Context(), "spared", runnerapi.DrainOptions{}, held)
	require.NoError(t, err)
	assert.Empty(t, drain.Evicted)
	node, err := k.Nodes().Get(t.Context(), "spared")
	require.NoError(t, err)
	assert.True(t, node.Schedulable)
	assert.Equal(t, 1, node.Pods.Count)
}

func TestDrain_RespectsDisruptionBudgets(t *testing.T) {
	env := kubetest.ControlPlane(t)
	makeNode(t, env, "drained")
	podOn(t, env, "drained", "kept", "ReplicaSet", nil)
	podOn(t, env, "drained", "free", "ReplicaSet", nil)
	podOn(t, env, "drained", "everywhere", "DaemonSet", nil)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: production, Name: "keeps"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "kept"}},
		},
	}
	require.NoError(t, env.Client.Create(t.Context(), budget))
	t.Cleanup(func() { assert.NoError(t, env.Client.Delete(context.Background(), budget)) })
	allow := func(n int32) { // as the disruption controller, which does not run here, would
		budget.Status = policyv1.PodDisruptionBudgetStatus{
			ObservedGeneration: budget.Generation, DisruptionsAllowed: n, CurrentHealthy: 1 + n, DesiredHealthy: 1, ExpectedPods: 1,
		}
		require.NoError(t, env.Client.Status().Update(t.Context(), budget))
	}
	allow(0)
	env.Apply(t, string(deployments.NodeRights()))
	k := asAgent(t, env)
	dry := byTest
	dry.DryRun = true
	now := runnerapi.DrainOptions{GracePeriodSeconds: new(int64(0))}
	awaitRights(t, func() error {
		_, err := k.Nodes().Drain(t.Context(), "drained", now, dry)
		return err
	})
	node, err := k.Nodes().Get(t.Context(), "drained")
	require.NoError(t, err)
	assert.True(t, node.Schedulable, "a dry run changes nothing")
	assert.Equal(t, 3, node.Pods.Count)

	drain, err := k.Nodes().Drain(t.Context(), "drained", now, byTest)
	require.NoError(t, err)
	assert.False(t, drain.Done)
	assert.Equal(t, []string{production + "/free"}, drain.Evicted)
	assert.Equal(t, 1, drain.Skipped, "the DaemonSet's pod stays")
	blocked := map[string]string{}
	for _, p := range drain.Remaining {
		if p.State == "blocked" {
			blocked[p.Name] = p.Message
		}
	}
	require.Contains(t, blocked, "kept")
	assert.Len(t, blocked, 1)
	assert.Contains(t, blocked["kept"], "keeps", "the budget is named")

	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(budget), budget))
	allow(1)
	await.Until(t, "the node is drained", func() bool {
		drain, err = k.Nodes().Drain(t.Context(), "drained", now, byTest)
		return err == nil && drain.Done
	})
	node, err = k.Nodes().Get(t.Context(), "drained")
	require.NoError(t, err)
	assert.False(t, node.Schedulable)
	assert.Equal(t, 1, node.Pods.Count)

	for range 2 { // it is the same twice
		node, err = k.Nodes().Cordon(t.Context(), "drained", false, byTest)
		require.NoError(t, err)
		assert.True(t, node.Schedulable)
	}
	var signed corev1.Node
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Name: "drained"}, &signed))
	assert.Equal(t, "tester", signed.Annotations[objectmeta.ChangedBy])
}

// TestDrain_PassesUnevictablePod expects the reason for that pod.
func TestDrain_PassesUnevictablePod(t *testing.T) {
	env := kubetest.ControlPlane(t)
	makeNode(t, env, "partly")
	podOn(t, env, "partly", "guarded", "ReplicaSet", nil)
	podOn(t, env, "partly", "loose", "ReplicaSet", nil)
	meta := metav1.ObjectMeta{Name: "guards-a-pod"}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/eviction"}},
		}}}},
		Validations: []admissionv1.Validation{{Expression: `request.name != "guarded"`, Message: "this pod is guarded"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: meta.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	for _, o := range []client.Object{policy, binding} {
		require.NoError(t, env.Client.Create(t.Context(), o))
		t.Cleanup(func() { assert.NoError(t, env.Client.Delete(context.Background(), o)) })
	}
	env.Apply(t, string(deployments.NodeRights()))
	k := asAgent(t, env)
	dry := byTest
	dry.DryRun = true
	failed := func(d runnerapi.Drain) (messages []string) {
		for _, p := range d.Remaining {
			if p.State == "failed" {
				messages = append(messages, p.Name+": "+p.Message)
			}
		}
		return messages
	}
	await.Until(t, "one pod stays", func() bool { // until the rights and the policy are in force
		drain, err := k.Nodes().Drain(t.Context(), "partly", runnerapi.DrainOptions{}, dry)
		return err == nil && len(failed(drain)) == 1
	})
	drain, err := k.Nodes().Drain(t.Context(), "partly", runnerapi.DrainOptions{GracePeriodSeconds: new(int64(0))}, byTest)
	require.NoError(t, err)
	assert.False(t, drain.Done)
	assert.Equal(t, []string{production + "/loose"}, drain.Evicted)
	require.Len(t, failed(drain), 1)
	assert.Contains(t, failed(drain)[0], "guarded: ")
	assert.Contains(t, failed(drain)[0], "this pod is guarded")
}

// These events are in namespace default, which the agent reads only if it has the right.
func TestNodes_Events(t *testing.T) {
	env := kubetest.ControlPlane(t)
	makeNode(t, env, "eventful")
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "eventful.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "eventful"},
		Reason:         "NodeNotReady", Message: "no network", Type: "Warning", LastTimestamp: metav1.Now(),
	}
	require.NoError(t, env.Client.Create(t.Context(), event))
	t.Cleanup(func() { assert.NoError(t, env.Client.Delete(context.Background(), event)) })
	k := asAgent(t, env)
	node, err := k.Nodes().Get(t.Context(), "eventful")
	require.NoError(t, err)
	assert.Empty(t, node.Events)
	env.Apply(t, string(deployments.NodeRights()))
	await.Until(t, "the node has its event", func() bool {
		node, err = k.Nodes().Get(t.Context(), "eventful")
		return err == nil && len(node.Events) == 1
	})
	assert.Equal(t, "NodeNotReady", node.Events[0].Reason)
	_, err = k.Events().List(t.Context(), metav1.NamespaceDefault, runnerapi.EventFilter{})
	assert.Equal(t, runnerapi.CodeNamespaceNotManaged, problemOf(t, err).Code, "of nothing else there")
}

func TestDrain_RefusedBeforeLoss(t *testing.T) {
	env := kubetest.ControlPlane(t)
	env.Apply(t, string(deployments.NodeRights()))
	k := asAgent(t, env)
	for name, c := range map[string]struct {
		owner  string
		change func(*corev1.Pod)
		says   string
	}{
		"alone": {"", nil, "no controller"},
		"scratch": {"ReplicaSet", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}, "emptyDir"},
		"agent": {"ReplicaSet", func(p *corev1.Pod) {
			p.Namespace, p.Labels["app.kubernetes.io/name"] = kubetest.AgentNamespace, "pipeops-agent"
			hardened(p)
		}, "the agent itself"},
	} {
		makeNode(t, env, "refused-"+name)
		podOn(t, env, "refused-"+name, name, c.owner, c.change)
		_, err := k.Nodes().Drain(t.Context(), "refused-"+name, runnerapi.DrainOptions{}, byTest)
		p := problemOf(t, err)
		assert.Equal(t, runnerapi.CodeConflict, p.Code, name)
		assert.Contains(t, p.Detail, c.says)
		assert.Contains(t, p.Detail, "/"+name, "the pod is named")
		node, err := k.Nodes().Get(t.Context(), "refused-"+name)
		require.NoError(t, err)
		assert.True(t, node.Schedulable, "nothing was changed")
	}
}

// hardened is what the agent's own namespace asks of pods.
func hardened(p *corev1.Pod) {
	p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

func TestEvents_FilteredAndSorted(t *testing.T) {
	env := kubetest.ControlPlane(t)
	now := time.Now().Truncate(time.Second)
	for name, age := range map[string]time.Duration{"newest": 0, "older": time.Minute, "oldest": 2 * time.Hour} {
		event := &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: production, Name: "tale-" + name}, Type: "Warning", Reason: "Tale", Message: name, Count: 2,
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: production, Name: "hero"}, LastTimestamp: metav1.NewTime(now.Add(-age)),
		}
		require.NoError(t, env.Client.Create(t.Context(), event))
		t.Cleanup(func() { assert.NoError(t, env.Client.Delete(context.Background(), event)) })
	}
	k := asAgent(t, env)
	list := func(f runnerapi.EventFilter) (messages []string) {
		events, err := k.Events().List(t.Context(), production, f)
		require.NoError(t, err)
		for _, e := range events {
			messages = append(messages, e.Message)
		}
		return messages
	}
	assert.Equal(t, []string{"newest", "older", "oldest"}, list(runnerapi.EventFilter{Kind: "Pod", Name: "hero", Type: "Warning"}))
	assert.Equal(t, []string{"newest", "older"}, list(runnerapi.EventFilter{Name: "hero", Since: time.Hour}))
	assert.Equal(t, []string{"newest"}, list(runnerapi.EventFilter{Name: "hero", Limit: 1}))
	assert.Empty(t, list(runnerapi.EventFilter{Name: "hero", Type: "Normal"}))
	_, err := k.Events().List(t.Context(), metav1.NamespaceSystem, runnerapi.EventFilter{})
	assert.Equal(t, runnerapi.CodeNamespaceNotManaged, problemOf(t, err).Code)
}
