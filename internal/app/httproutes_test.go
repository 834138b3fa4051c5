package app_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// gatewayAPIPatience is longer than it takes an agent to see that a kind was installed.
const gatewayAPIPatience = 5 * time.Minute

// gatewayAPI returns the definitions of the Gateway API's kinds.
func gatewayAPI(t *testing.T) (crds []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile("testdata/gatewayapi.yaml")
	require.NoError(t, err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		crd := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(document), &crd.Object))
		if crd.Object != nil {
			crds = append(crds, crd)
		}
	}
	require.Len(t, crds, 2)
	return crds
}

// httpRoute returns an HTTPRoute with the agent's label.
func httpRoute(t *testing.T, ns, name, spec string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte("{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, spec: "+spec+"}"), &o.Object))
	o.SetNamespace(ns)
	o.SetName(name)
	o.SetLabels(objectmeta.Labels())
	return o
}

// TestHTTPRoute_FollowsCluster installs the Gateway API, and removes it.
func TestHTTPRoute_FollowsCluster(t *testing.T) {
	env := kubetest.ControlPlane(t)
	ns, other := ownNamespace(t, env), ownNamespace(t, env)
	config := limitedTo(env, ns)
	config.Namespaces = append(config.Namespaces, other)
	e, _ := startWith(t, config)
	routes := func() map[string]ingress.Route {
		all, err := e.Routes(t.Context())
		require.NoError(t, err)
		byHost := map[string]ingress.Route{}
		for _, r := range all {
			byHost[strings.TrimSuffix(r.Host, ".example.com")] = r
		}
		return byHost
	}
	assert.Empty(t, routes(), "the cluster lacks the kind, which is no error")

	crds := gatewayAPI(t)
	for _, crd := range crds {
		require.NoError(t, env.Client.Create(t.Context(), crd))
		t.Cleanup(func() { _ = env.Client.Delete(t.Context(), crd) })
	}
	for _, at := range []string{ns, other} {
		require.NoError(t, env.Client.Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: at, Name: "web", Labels: objectmeta.Labels()},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}))
	}
	unlabelled := httpRoute(t, ns, "foreign", `{hostnames: [foreign.example.com], rules: [{backendRefs: [{name: web, port: 80}]}]}`)
	unlabelled.SetLabels(nil)
	near := httpRoute(t, ns, "near", `{hostnames: [near.example.com], rules: [{backendRefs: [{name: web, port: 80}]}]}`)
	for _, o := range []client.Object{
		unlabelled, near,
		httpRoute(t, ns, "far", `{hostnames: [far.example.com], rules: [{backendRefs: [{name: web, namespace: `+other+`, port: 80}]}]}`),
		httpRoute(t, ns, "split", `{hostnames: [split.example.com], rules: [{backendRefs: [{name: web, port: 80}, {name: new, port: 80}]}]}`),
	} {
		eventually(t, "the kind is there", func() bool { return client.IgnoreAlreadyExists(env.Client.Create(t.Context(), o)) == nil })
	}
	within(t, gatewayAPIPatience, "the routes are there", func() bool { return len(routes()) == 3 && routes()["near"].Ready })
	now := routes()
	assert.Len(t, now["near"].Addresses, 1)
	assert.Equal(t, "Prefix", now["near"].PathType)
	assert.Contains(t, now["split"].Reason, "spec.rules[0].backendRefs has 2 backends")
	assert.Zero(t, now["split"].Port)
	assert.Contains(t, now["far"].Reason, "no ReferenceGrant in "+other)
	assert.Equal(t, other+"/web", now["far"].Service)

	grant := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(`{apiVersion: gateway.networking.k8s.io/v1beta1, kind: ReferenceGrant, spec: {
		from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: `+ns+`}], to: [{group: "", kind: Service, name: web}]}}`), &grant.Object))
	grant.SetNamespace(other)
	grant.SetName("web")
	require.NoError(t, env.Client.Create(t.Context(), grant))
	within(t, gatewayAPIPatience, "the grant is seen", func() bool { return routes()["far"].Ready })
	require.NoError(t, env.Client.Delete(t.Context(), near))
	eventually(t, "a deleted one is withdrawn", func() bool { return len(routes()) == 2 })

	for _, crd := range crds {
		require.NoError(t, env.Client.Delete(t.Context(), crd))
	}
	within(t, gatewayAPIPatience, "all are withdrawn with the kind", func() bool { return len(routes()) == 0 })
}
