package kube_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

func policyConfigMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.AgentNamespace, Name: kube.PolicyConfigMap}, Data: data}
}

// TestOwnersPolicy_Followed makes, changes and deletes the policy as the cluster's
// owner does, and hears of it with the agent's own rights.
func TestOwnersPolicy_Followed(t *testing.T) {
	env := kubetest.ControlPlane(t)
	k, err := kube.New(env.Agent, kube.Options{Namespace: kubetest.AgentNamespace})
	require.NoError(t, err)
	type heard struct {
		data map[string]string
		err  error
	}
	news := make(chan heard, 16)
	await.Background(t, "the watch", func(ctx context.Context) error {
		return k.WatchPolicy(ctx, func(data map[string]string, err error) { news <- heard{data, err} })
	})
	next := func(what string) map[string]string {
		t.Helper()
		n := await.Receive(t, news, what)
		require.NoError(t, n.err)
		return n.data
	}
	assert.Nil(t, next("that there is none"))

	other := policyConfigMap(map[string]string{"paused": "true"})
	other.Name = "not-" + kube.PolicyConfigMap
	require.NoError(t, env.Client.Create(t.Context(), other))
	cm := policyConfigMap(map[string]string{"paused": "true"})
	require.NoError(t, env.Client.Create(t.Context(), cm))
	assert.Equal(t, cm.Data, next("that it was made"))
	read, err := k.ReadPolicy(t.Context())
	require.NoError(t, err)
	assert.Equal(t, cm.Data, read)

	cm.Data = map[string]string{"paused": "false"}
	cm.BinaryData = map[string][]byte{"strange": {1}}
	require.NoError(t, env.Client.Update(t.Context(), cm))
	assert.Equal(t, map[string]string{"paused": "false", "strange": ""}, next("that it was changed"))

	require.NoError(t, env.Client.Delete(t.Context(), cm))
	assert.Nil(t, next("that it was deleted"))
	read, err = k.ReadPolicy(t.Context())
	require.NoError(t, err)
	assert.Nil(t, read)
}

// TestOwnersPolicy_AgentCannotWrite tries it with the agent's rights, among which
// is that to make ConfigMaps beside the policy.
func TestOwnersPolicy_AgentCannotWrite(t *testing.T) {
	env := kubetest.ControlPlane(t)
	agent, err := client.New(env.Agent, client.Options{Scheme: env.Client.Scheme()})
	require.NoError(t, err)
	err = agent.Create(t.Context(), policyConfigMap(nil))
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	assert.ErrorContains(t, err, "the cluster owner's to write")

	mine := policyConfigMap(nil)
	mine.Name = "another"
	mine.Labels = objectmeta.Labels()
	require.NoError(t, agent.Create(t.Context(), mine), "the right that is kept from the policy")

	require.NoError(t, env.Client.Create(t.Context(), policyConfigMap(nil)))
	t.Cleanup(func() { require.NoError(t, env.Client.Delete(context.Background(), policyConfigMap(nil))) })
	assert.True(t, apierrors.IsForbidden(agent.Update(t.Context(), policyConfigMap(map[string]string{"paused": "false"}))))
	assert.True(t, apierrors.IsForbidden(agent.Delete(t.Context(), policyConfigMap(nil))))
}

// TestOwnersPolicy_ReportsUnreadable has somebody without the right watch.
func TestOwnersPolicy_ReportsUnreadable(t *testing.T) {
	env := kubetest.ControlPlane(t)
	nobody := *env.Agent
	nobody.Impersonate.UserName, nobody.Impersonate.Groups = "nobody", nil
	k, err := kube.New(&nobody, kube.Options{Namespace: kubetest.AgentNamespace})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var told error
	require.NoError(t, k.WatchPolicy(ctx, func(_ map[string]string, err error) {
		told = err
		cancel()
	}))
	require.Error(t, told)
	assert.ErrorContains(t, told, "ConfigMap pipeops/pipeops-policy may not be read")
	assert.ErrorContains(t, told, "fix: apply the agent's manifest")
}
