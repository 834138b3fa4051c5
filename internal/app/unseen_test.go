package app_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// impatient is an Engine that gives volumes and metrics no more time than a test has.
func impatient(t *testing.T, env *kubetest.Env, ns string) *app.Engine {
	t.Helper()
	config := limitedTo(env, ns)
	config.Stabilization.Volume, config.Stabilization.Metrics = 5*time.Second, 5*time.Second
	e, _ := startWith(t, config)
	return e
}

// TestPublicURLs_OnlyServed follows an Ingress without class, controller and
// certificate until it has all of them.
func TestPublicURLs_OnlyServed(t *testing.T) {
	suite.Release(t, "an Ingress on its way to being served")
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e := impatient(t, env, ns)
	k := key(ns, "shop")
	spec := web()
	spec.Ingress = &runnerapi.Ingress{Class: ns, Hosts: []runnerapi.IngressHost{
		{Host: "shop.example.com", TLSSecret: "cert"}, {Host: "plain.example.com"},
	}}
	await := func(reason string, urls ...string) {
		t.Helper()
		eventually(t, reason, func() bool {
			a, err := e.Get(t.Context(), k)
			require.NoError(t, err)
			return len(a.Status.Conditions) == 1 && a.Status.Conditions[0].Type == runnerapi.ConditionIngressReady &&
				a.Status.Conditions[0].Reason == reason && assert.ObjectsAreEqual(urls, a.Status.PublicURLs)
		})
	}
	secret := func(kind corev1.SecretType) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cert"}, Type: kind,
			Data: map[string][]byte{corev1.TLSCertKey: []byte("-"), corev1.TLSPrivateKeyKey: []byte("-")},
		}
	}
	wrong := secret(corev1.SecretTypeOpaque)
	require.NoError(t, env.Client.Create(t.Context(), wrong))
	deploy(t, e, k, spec)
	await(runnerapi.ReasonBadTLSSecret)
	require.NoError(t, env.Client.Delete(t.Context(), wrong))
	await(runnerapi.ReasonNoTLSSecret)
	require.NoError(t, env.Client.Create(t.Context(), secret(corev1.SecretTypeTLS)))
	await(runnerapi.ReasonNoIngressClass)

	class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: networkingv1.IngressClassSpec{Controller: "example.com/none"}}
	require.NoError(t, env.Client.Create(t.Context(), class))
	t.Cleanup(func() { assert.NoError(t, client.IgnoreNotFound(env.Client.Delete(context.Background(), class))) })
	publish(t, env, k)
	await(runnerapi.ReasonServed, "https://shop.example.com/", "http://plain.example.com/")
}

// publish says of an Ingress what its controller would once it serves it.
func publish(t *testing.T, env *kubetest.Env, k runnerapi.Key) {
	t.Helper()
	in := &networkingv1.Ingress{}
	eventually(t, "the ingress exists", func() bool { return exists(t, env, k, in) })
	in.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
	require.NoError(t, env.Client.Status().Update(t.Context(), in))
}
