package kube_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// boundsAt is where the agent keeps what bounds a namespace.
func boundsAt(namespace string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: "pipeops-agent"}
}

func TestNamespace_Bounds(t *testing.T) {
	env, k := controlPlane(t)
	spec := runnerapi.NamespaceSpec{
		Quota: &runnerapi.NamespaceQuota{
			Requests: runnerapi.ResourceAmounts{CPU: "2", Memory: "4Gi"}, Limits: runnerapi.ResourceAmounts{Memory: "8Gi"},
			Pods: new(int32(20)), Storage: "50Gi",
		},
		Limits:  &runnerapi.NamespaceDefaults{Requests: runnerapi.ResourceAmounts{CPU: "50m"}, Limits: runnerapi.ResourceAmounts{Memory: "256Mi"}},
		Network: &runnerapi.NamespaceNetwork{AllowFrom: []string{"monitoring"}},
	}
	started := time.Now()
	ns, err := k.Namespaces().Set(t.Context(), "bounded", spec, byTest)
	require.NoError(t, err)
	t.Logf("a namespace with all its bounds took %s", time.Since(started))
	assert.Equal(t, "2", ns.Quota.Requests.CPU)
	assert.Equal(t, "8Gi", ns.Quota.Limits.Memory)
	assert.EqualValues(t, 20, *ns.Quota.Pods)
	assert.Equal(t, "50Gi", ns.Quota.Storage)
	assert.Equal(t, "256Mi", ns.Limits.Limits.Memory)
	assert.Equal(t, "50m", ns.Limits.Requests.CPU)
	assert.Equal(t, &runnerapi.NamespaceNetwork{Mode: runnerapi.NetworkIsolated, AllowFrom: []string{"monitoring"}}, ns.Network)

	policy := &networkingv1.NetworkPolicy{}
	require.NoError(t, env.Client.Get(t.Context(), boundsAt("bounded"), policy))
	from := policy.Spec.Ingress[0].From
	assert.NotNil(t, from[0].PodSelector, "the namespace itself")
	assert.Subset(t, from[1].NamespaceSelector.MatchExpressions[0].Values, []string{"kube-system", "traefik", "ingress-nginx", "monitoring", "pipeops", "nginx-ingress"}, "the last is that of the component ingress")
	assert.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, policy.Spec.PolicyTypes)

	quota := &corev1.ResourceQuota{}
	require.NoError(t, env.Client.Get(t.Context(), boundsAt("bounded"), quota))
	quota.Spec.Hard = corev1.ResourceList{}
	require.NoError(t, env.Client.Update(t.Context(), quota))
	ns, err = k.Namespaces().Set(t.Context(), "bounded", runnerapi.NamespaceSpec{Quota: &runnerapi.NamespaceQuota{Pods: new(int32(3))}}, byTest)
	require.NoError(t, err, "what somebody changed is taken back")
	assert.EqualValues(t, 3, *ns.Quota.Pods)
	assert.Empty(t, ns.Quota.Requests.CPU, "a part that is no longer asked for goes")
	assert.Nil(t, ns.Limits)
	assert.Equal(t, &runnerapi.NamespaceNetwork{Mode: runnerapi.NetworkIsolated}, ns.Network)

	ns, err = k.Namespaces().Set(t.Context(), "bounded", runnerapi.NamespaceSpec{Network: &runnerapi.NamespaceNetwork{Mode: runnerapi.NetworkOpen}}, byTest)
	require.NoError(t, err)
	assert.Nil(t, ns.Quota)
	assert.Equal(t, runnerapi.NetworkOpen, ns.Network.Mode)
	for _, o := range []client.Object{&corev1.ResourceQuota{}, &corev1.LimitRange{}, &networkingv1.NetworkPolicy{}} {
		assert.True(t, apierrors.IsNotFound(env.Client.Get(t.Context(), boundsAt("bounded"), o)), "%T", o)
	}
}

func TestNamespace_KeepsForeignBounds(t *testing.T) {
	env, k := controlPlane(t)
	require.NoError(t, env.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "owned"}}))
	theirs := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "owned", Name: "pipeops-agent"}}
	require.NoError(t, env.Client.Create(t.Context(), theirs))
	ns, err := k.Namespaces().Set(t.Context(), "owned", runnerapi.NamespaceSpec{Adopt: true}, byTest)
	require.NoError(t, err)
	assert.Equal(t, runnerapi.NetworkOpen, ns.Network.Mode, "what runs in an adopted namespace is not cut off")
	ns, err = k.Namespaces().Set(t.Context(), "owned", runnerapi.NamespaceSpec{}, byTest)
	require.NoError(t, err)
	assert.Equal(t, runnerapi.NetworkOpen, ns.Network.Mode, "nor later")
	assert.Nil(t, ns.Quota, "theirs is not told of as the agent's")
	_, err = k.Namespaces().Set(t.Context(), "owned", runnerapi.NamespaceSpec{Quota: &runnerapi.NamespaceQuota{Pods: new(int32(1))}}, byTest)
	assert.Equal(t, runnerapi.CodeConflict, problemOf(t, err).Code)

	agent, err := client.New(env.Agent, client.Options{Scheme: env.Client.Scheme()})
	require.NoError(t, err)
	other := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "owned", Name: "of-the-owner"}}
	require.NoError(t, env.Client.Create(t.Context(), other))
	assert.True(t, apierrors.IsForbidden(agent.Delete(t.Context(), other)), "RBAC says so too")

	_, err = k.Namespaces().Set(t.Context(), "owned", runnerapi.NamespaceSpec{Quota: &runnerapi.NamespaceQuota{Limits: runnerapi.ResourceAmounts{CPU: "1"}}}, byTest)
	assert.Equal(t, "defaultLimits.limits.cpu", problemOf(t, err).Field, "a quota that refuses every App is refused itself")
}

func TestQuota_ShowsUsage(t *testing.T) {
	env := kubetest.Full(t)
	k := asAgent(t, env)
	spec := runnerapi.NamespaceSpec{
		Quota:  &runnerapi.NamespaceQuota{Requests: runnerapi.ResourceAmounts{CPU: "1"}, Pods: new(int32(1))},
		Limits: &runnerapi.NamespaceDefaults{Requests: runnerapi.ResourceAmounts{CPU: "20m"}},
	}
	_, err := k.Namespaces().Set(t.Context(), "metered", spec, byTest)
	require.NoError(t, err)
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "metered", Name: name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "example.com/none:1"}}},
		}
	}
	await.Until(t, "the quota's figures are there and the service account too", func() bool { return env.Client.Create(t.Context(), pod("first")) == nil })
	await.Until(t, "the default request counts", func() bool {
		ns, err := k.Namespaces().Get(t.Context(), "metered")
		return err == nil && ns.Used != nil && ns.Used.Pods != nil && *ns.Used.Pods == 1 && ns.Used.Requests.CPU == "20m"
	})
	err = env.Client.Create(t.Context(), pod("second"))
	assert.True(t, apierrors.IsForbidden(err), "%v", err)
}

func TestNamespace_ForeignNetworkPolicy(t *testing.T) {
	env, k := controlPlane(t)
	egress := networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}}
	for name, c := range map[string]struct {
		policy string
		spec   networkingv1.NetworkPolicySpec
		open   bool
	}{
		"with-the-agents-name": {policy: boundsAt("any").Name},
		"with-another-name":    {policy: "deny-all"},
		"about-what-goes-out":  {policy: "no-egress", spec: egress, open: true},
	} {
		open := runnerapi.NamespaceSpec{Network: &runnerapi.NamespaceNetwork{Mode: runnerapi.NetworkOpen}}
		ns, err := k.Namespaces().Set(t.Context(), name, open, byTest)
		require.NoError(t, err)
		assert.Equal(t, runnerapi.NetworkOpen, ns.Network.Mode)
		policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: c.policy}, Spec: c.spec}
		require.NoError(t, env.Client.Create(t.Context(), policy))
		ns, err = k.Namespaces().Get(t.Context(), name)
		require.NoError(t, err)
		if c.open {
			assert.Equal(t, runnerapi.NetworkOpen, ns.Network.Mode)
			assert.Empty(t, ns.NetworkPolicies)
			continue
		}
		assert.Nil(t, ns.Network, name)
		assert.Equal(t, []string{c.policy}, ns.NetworkPolicies)
	}
}
