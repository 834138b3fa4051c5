package components_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/pipeops/pipeops-vm-agent/internal/components"
)

// TestBalancer_PortTaken has the load balancer of another ingress controller. The component's state
// names cause and fix until the port is free.
func TestBalancer_PortTaken(t *testing.T) {
	at := func(ip string) corev1.ServiceStatus {
		return corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: ip}}}}
	}
	ports := corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}}
	meta := metav1.ObjectMeta{
		Namespace: "nginx-ingress", Name: "nginx-ingress-controller", UID: "own", Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"},
		Annotations: map[string]string{"meta.helm.sh/release-name": "nginx-ingress", "meta.helm.sh/release-namespace": "nginx-ingress"},
	}
	controller := &appsv1.Deployment{ObjectMeta: meta}
	controller.Status = appsv1.DeploymentStatus{UpdatedReplicas: 1, AvailableReplicas: 1}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	own := &corev1.Service{ObjectMeta: meta, Spec: ports}
	theirs := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "traefik", UID: "theirs"}, Spec: ports, Status: at("192.0.2.1")}
	client := fake.NewClientset(controller, node, own, theirs)
	state := func() components.State {
		t.Helper()
		states, err := components.States(t.Context(), client, nil)
		require.NoError(t, err)
		require.Len(t, states, 1)
		return states[0]
	}

	taken := state()
	assert.False(t, taken.Ready)
	assert.Equal(t, "PortClash", taken.Cause)
	assert.Equal(t, "the Service has no address: port 80 is taken by Service kube-system/traefik", taken.Message)
	assert.Equal(t, "nginx-ingress/nginx-ingress-controller", taken.Workload)
	assert.NotEmpty(t, taken.Fix)

	theirs.Status = at("203.0.113.1") // a cloud's load balancer, which takes no port of the nodes
	_, err := client.CoreV1().Services("kube-system").UpdateStatus(t.Context(), theirs, metav1.UpdateOptions{})
	require.NoError(t, err)
	waits := state()
	assert.False(t, waits.Ready)
	assert.Empty(t, waits.Cause)
	assert.Contains(t, waits.Message, "nothing in the cluster has given it one")

	own.Status = at("203.0.113.2")
	_, err = client.CoreV1().Services("nginx-ingress").UpdateStatus(t.Context(), own, metav1.UpdateOptions{})
	require.NoError(t, err)
	assert.True(t, state().Ready)
}
