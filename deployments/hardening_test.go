package deployments_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestManifest_PodHardened checks what the agent's process may do on its node, and who may connect
// to it. Restricted pod security enforces most of it, but not the read-only root.
func TestManifest_PodHardened(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range agentObjects(t) {
		into := func(obj any) {
			seen[o.GetKind()] = true
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, obj))
		}
		switch o.GetKind() {
		case "Namespace":
			var ns corev1.Namespace
			into(&ns)
			assert.Equal(t, "restricted", ns.Labels["pod-security.kubernetes.io/enforce"])
		case "Deployment":
			var d appsv1.Deployment
			into(&d)
			isHardened(t, d.Spec.Template.Spec)
		case "NetworkPolicy":
			var n networkingv1.NetworkPolicy
			into(&n)
			assert.Contains(t, n.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
			require.Len(t, n.Spec.Ingress, 2)
			require.Len(t, n.Spec.Ingress[0].Ports, 1)
			assert.Equal(t, "health", n.Spec.Ingress[0].Ports[0].Port.String())
			metrics := n.Spec.Ingress[1]
			require.Len(t, metrics.Ports, 1)
			assert.Equal(t, "metrics", metrics.Ports[0].Port.String())
			require.Len(t, metrics.From, 1)
			assert.Equal(t, map[string]string{"kubernetes.io/metadata.name": "monitoring"}, metrics.From[0].NamespaceSelector.MatchLabels)
		}
	}
	assert.Len(t, seen, 3)
}

func isHardened(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	assert.True(t, *pod.SecurityContext.RunAsNonRoot)
	assert.NotZero(t, *pod.SecurityContext.RunAsUser)
	assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
	assert.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC)
	assert.Empty(t, pod.InitContainers)
	for _, v := range pod.Volumes {
		assert.Nil(t, v.HostPath, v.Name)
	}
	require.Len(t, pod.Containers, 1)
	c := pod.Containers[0]
	assert.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
	assert.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	assert.Nil(t, c.SecurityContext.Privileged)
	assert.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
	assert.Empty(t, c.SecurityContext.Capabilities.Add)
	assert.False(t, c.Resources.Limits.Memory().IsZero())
	for _, p := range c.Ports {
		assert.Zero(t, p.HostPort, p.Name)
	}
}
