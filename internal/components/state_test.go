package components_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// TestState_FollowsPods uses the rights of the agent, which reads neither Helm's records nor events
// there.
func TestState_FollowsPods(t *testing.T) {
	env := kubetest.ControlPlane(t)
	i := installer(t, env)
	var s components.Settings
	s.Choose([]string{"vpa"}, components.Always)
	t.Cleanup(func() { removeAll(t, i) })
	require.NoError(t, i.Apply(t.Context(), planned(t, i, s)))

	agent, err := kubernetes.NewForConfig(env.Agent)
	require.NoError(t, err)
	state := func() components.State {
		states, err := components.States(t.Context(), agent, workloadhealth.NewFromPods(env.Agent, diagnose.DefaultStabilization))
		require.NoError(t, err)
		require.Len(t, states, 1)
		assert.Equal(t, "vpa", states[0].Component)
		assert.Equal(t, "0.11.0", states[0].Version)
		return states[0]
	}
	fresh := state()
	assert.False(t, fresh.Ready)
	assert.Empty(t, fresh.Cause, "it only starts")

	deployment := imagePullFails(t, i.Client, "vpa")
	broken := state()
	assert.False(t, broken.Ready)
	assert.Contains(t, broken.Cause, "Image")
	assert.NotEmpty(t, broken.Fix)
	assert.Equal(t, "vpa/"+deployment.Name, broken.Workload)

	deployment.Status = appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1,
	}
	_, err = i.Client.AppsV1().Deployments("vpa").UpdateStatus(t.Context(), deployment, metav1.UpdateOptions{})
	require.NoError(t, err)
	assert.True(t, state().Ready)

	cluster, err := components.Look(t.Context(), i.Client)
	require.NoError(t, err)
	for _, status := range components.Statuses(cluster, []components.State{broken}) {
		if status.Component == "vpa" {
			require.Len(t, status.Releases, 1)
			assert.Equal(t, status.Releases[0].Version, status.Releases[0].Newest)
			assert.False(t, status.Releases[0].Changed.IsZero())
			assert.Equal(t, &broken, status.State)
		} else {
			assert.Nil(t, status.State)
		}
	}
}

// imagePullFails does what a controller and a kubelet would, which the test API server lacks: the
// only Deployment of a namespace has a pod whose image cannot be pulled.
func imagePullFails(t *testing.T, client kubernetes.Interface, namespace string) *appsv1.Deployment {
	t.Helper()
	ctx := t.Context()
	list, err := client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	d := &list.Items[0]
	const revision = "deployment.kubernetes.io/revision"
	d.Annotations[revision] = "1"
	d, err = client.AppsV1().Deployments(namespace).Update(ctx, d, metav1.UpdateOptions{})
	require.NoError(t, err)
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, UnavailableReplicas: 1}
	d, err = client.AppsV1().Deployments(namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
	require.NoError(t, err)

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "of-components"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	_, err = client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	require.NoError(t, err)
	labels := d.Spec.Template.Labels
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: d.Name + "-1", Labels: labels, Annotations: map[string]string{revision: "1"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector, Template: d.Spec.Template},
	}
	rs, err = client.AppsV1().ReplicaSets(namespace).Create(ctx, rs, metav1.CreateOptions{})
	require.NoError(t, err)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: rs.Name + "-x", Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		},
		Spec: corev1.PodSpec{NodeName: "of-components", Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/none:1"}}},
	}
	pod, err = client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	require.NoError(t, err)
	pod.Status = corev1.PodStatus{
		Phase:      corev1.PodPending,
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Image: "registry.example.com/none:1", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "registry.example.com/none:1: not found"},
		}}},
	}
	_, err = client.CoreV1().Pods(namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { // no garbage collector does it
		_ = client.CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{})
		_ = client.CoreV1().Pods(namespace).Delete(context.Background(), pod.Name, metav1.DeleteOptions{})
		_ = client.AppsV1().ReplicaSets(namespace).Delete(context.Background(), rs.Name, metav1.DeleteOptions{})
	})
	return d
}

func service(namespace, name, ip string, ports ...string) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/name": "loki"}},
		Spec:       corev1.ServiceSpec{ClusterIP: ip},
	}
	for i, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: p, Port: int32(3100 + i)})
	}
	return s
}

// listing is a client of a fake API server, which lists Services and nothing else.
func listing(t *testing.T, services ...*corev1.Service) kubernetes.Interface {
	t.Helper()
	list := corev1.ServiceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}}
	for _, s := range services {
		list.Items = append(list.Items, *s)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/api/v1/services", r.URL.Path)
		assert.Equal(t, "app.kubernetes.io/name=loki", r.URL.Query().Get("labelSelector"))
		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(list))
	}))
	t.Cleanup(server.Close)
	api, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	return api
}

// TestEndpoint_OfComponent is of Services as the charts make them, and of others.
func TestEndpoint_OfComponent(t *testing.T) {
	external := service("shop", "loki", "10.0.0.9", "http-metrics")
	external.Spec.Type = corev1.ServiceTypeExternalName
	for name, c := range map[string]struct {
		services []*corev1.Service
		url      string
	}{
		"none": {nil, ""},
		"the chart's": {[]*corev1.Service{
			service("monitoring", "loki-headless", "None", "http-metrics"), service("monitoring", "loki", "10.0.0.1", "grpc", "http-metrics"),
			service("monitoring", "loki-memberlist", "None", "tcp"),
		}, "http://10.0.0.1:3101"},
		"its own namespace first": {[]*corev1.Service{
			service("logs", "loki", "10.0.0.2", "http-metrics"), service("monitoring", "loki", "fd00::1", "http-metrics"),
		}, "http://[fd00::1]:3100"},
		"another namespace":        {[]*corev1.Service{service("logs", "loki", "10.0.0.2", "http-metrics")}, "http://10.0.0.2:3100"},
		"a Runner's":               {[]*corev1.Service{service("shop-managed", "loki", "10.0.0.3", "http-metrics")}, ""},
		"a name of another":        {[]*corev1.Service{external}, ""},
		"a port of something else": {[]*corev1.Service{service("monitoring", "loki", "10.0.0.1", "ssh")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := components.FindEndpoint(t.Context(), listing(t, c.services...), "loki", func(namespace string) (bool, error) { return namespace != "shop-managed", nil })
			require.NoError(t, err)
			if c.url == "" {
				assert.Nil(t, at)
				return
			}
			require.NotNil(t, at)
			assert.Equal(t, c.url, at.URL)
		})
	}
	_, err := components.FindEndpoint(t.Context(), listing(t), "istio", nil)
	require.ErrorContains(t, err, "istio has no API")
}

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
