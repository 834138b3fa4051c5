package app_test

import (
	"context"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
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

func TestRestartOn_RestartsOnNewContent(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, k := asInTheAgent(t, env, ns, sizing.Timing{})
	secret := func(value string) {
		_, err := k.Secrets().Set(t.Context(), key(ns, "db"), runnerapi.SecretSpec{Data: map[string]string{"url": value}}, byTest)
		require.NoError(t, err)
		require.NoError(t, e.ContentChanged(t.Context(), runnerapi.RestartOnSecrets, key(ns, "db")))
	}
	config := func(value string) {
		_, err := k.ConfigMaps().Set(t.Context(), key(ns, "settings"), runnerapi.ConfigMapSpec{Data: map[string]string{"LEVEL": value}}, byTest)
		require.NoError(t, err)
		require.NoError(t, e.ContentChanged(t.Context(), runnerapi.RestartOnConfigMaps, key(ns, "settings")))
	}
	secret("one")
	config("info")
	spec := func(on ...runnerapi.RestartTrigger) runnerapi.AppSpec {
		return runnerapi.AppSpec{
			Image: "example.com/web:1", RestartOn: on, EnvFrom: []runnerapi.EnvSource{{ConfigMap: "settings"}},
			Env: []runnerapi.EnvVar{{Name: "DB", Secret: &runnerapi.KeyRef{Name: "db", Key: "url"}}},
		}
	}
	both, secrets, none := key(ns, "both"), key(ns, "secrets"), key(ns, "none")
	deploy(t, e, both, spec(runnerapi.RestartOnSecrets, runnerapi.RestartOnConfigMaps))
	deploy(t, e, secrets, spec(runnerapi.RestartOnSecrets))
	deploy(t, e, none, spec())
	generation := func(k runnerapi.Key) int64 { return get(t, env, k, &appsv1.Deployment{}).Generation }
	for _, k := range []runnerapi.Key{both, secrets, none} {
		eventually(t, "the deployment is there", func() bool { return exists(t, env, k, &appsv1.Deployment{}) })
		assert.EqualValues(t, 1, generation(k))
	}

	secret("one")
	config("info")
	config("debug")
	eventually(t, "the one that uses the config map restarts", func() bool { return generation(both) == 2 })
	secret("two")
	eventually(t, "both that use the secret restart", func() bool { return generation(both) == 3 && generation(secrets) == 2 })
	assert.EqualValues(t, 1, generation(none), "nothing restarts that did not ask for it")

	require.NoError(t, k.Secrets().Delete(t.Context(), key(ns, "db"), byTest))
	require.NoError(t, e.ContentChanged(t.Context(), runnerapi.RestartOnSecrets, key(ns, "db")))
	secret("two")
	eventually(t, "the App is looked at", func() bool { _, err := e.Get(t.Context(), both); return err == nil })
	assert.EqualValues(t, 3, generation(both), "neither the end of a secret nor its return restarts what runs")

	deploy(t, e, both, spec())
	secret("three")
	eventually(t, "the other one restarts", func() bool { return generation(secrets) == 3 })
	assert.EqualValues(t, 3, generation(both), "turning it off is no restart either")
	template := get(t, env, secrets, &appsv1.Deployment{}).Spec.Template
	assert.NotContains(t, template.Annotations["pipeops.io/contents"], "three")
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
