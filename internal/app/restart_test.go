package app_test

import (
	"context"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/sizing"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// asInTheAgent is an Engine that is told of contents by the real client.
func asInTheAgent(t *testing.T, env *kubetest.Env, ns string, sizing sizing.Timing) (*app.Engine, *kube.Client) {
	t.Helper()
	k := contentsOf(t, env, ns)
	config := limitedTo(env, ns)
	config.Contents, config.Sizing = k.Contents(), sizing
	e, _ := startWith(t, config)
	return e, k
}

// contentsOf returns the Kubernetes client of the agent that manages a namespace.
func contentsOf(t *testing.T, env *kubetest.Env, ns string) *kube.Client {
	t.Helper()
	log := zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)
	k, err := kube.New(env.Agent, kube.Options{Namespace: kubetest.AgentOf(ns), Namespaces: []string{ns}, Log: log})
	require.NoError(t, err)
	return k
}

// TestRestartOn_NoticesForeignWrites is of what was written past the
// agent, and of an agent that died between the write and the restart.
func TestRestartOn_NoticesForeignWrites(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "theirs"}, Data: map[string]string{"a": "1"}}
	require.NoError(t, env.Client.Create(t.Context(), settings))
	web := key(ns, "web")
	config := limitedTo(env, ns)
	config.Contents = contentsOf(t, env, ns).Contents()
	e, stop := startWith(t, config)
	deploy(t, e, web, runnerapi.AppSpec{
		Image: "example.com/web:1", EnvFrom: []runnerapi.EnvSource{{ConfigMap: "theirs"}},
		RestartOn: []runnerapi.RestartTrigger{runnerapi.RestartOnConfigMaps},
	})
	eventually(t, "the deployment is there", func() bool { return exists(t, env, web, &appsv1.Deployment{}) })
	stop()
	settings.Data["a"] = "2"
	require.NoError(t, env.Client.Update(context.Background(), settings))
	startWith(t, config)
	eventually(t, "the next agent restarts it", func() bool { return get(t, env, web, &appsv1.Deployment{}).Generation == 2 })
}
