package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// TestInvalidSpec_FoundByCluster deploys a spec that only Kubernetes itself can refuse.
func TestInvalidSpec_FoundByCluster(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "nightly")
	spec := runnerapi.AppSpec{
		Image: "example.com/web:1", Type: runnerapi.TypeCronJob, Schedule: &runnerapi.Schedule{Cron: "0 25 * * *", TimeZone: "Etc/UTC"},
	}
	_, err := e.Deploy(t.Context(), k, spec, runnerapi.WriteOptions{DryRun: true})
	assert.Equal(t, runnerapi.CodeInvalid, code(err), "a dry run asks the cluster")
	deploy(t, e, k, spec)
	eventually(t, "the App has a diagnosis", func() bool {
		a, err := e.Get(t.Context(), k)
		return err == nil && a.Status.Phase == runnerapi.PhaseFailed && a.Status.Diagnosis != nil &&
			a.Status.Diagnosis.Cause == runnerapi.CauseInvalidSpec
	})
	a, err := e.Get(t.Context(), k)
	require.NoError(t, err)
	assert.Contains(t, a.Status.Diagnosis.Message, "schedule")
	t.Logf("%s; fix: %s", a.Status.Diagnosis.Message, a.Status.Diagnosis.Fix)
	kubectl(t, env, "-n", k.Namespace, "patch", "apps.pipeops.io", k.Name, "--type=merge", "-p", `{"spec":{"schedule":{"cron":"0 5 * * *"}}}`)
	eventually(t, "corrected, it is made", func() bool { return exists(t, env, k, &batchv1.CronJob{}) })
	eventually(t, "and healthy again", func() bool { return phaseOf(t, e, k) != runnerapi.PhaseFailed })
}

func phaseOf(t *testing.T, e *app.Engine, k runnerapi.Key) runnerapi.Phase {
	t.Helper()
	a, err := e.Get(t.Context(), k)
	require.NoError(t, err)
	return a.Status.Phase
}

// TestSchema_ValidatesLikeAPI sends the API server what the Runner API refuses
// (TestAppSpec_RefusesInvalid), and what it takes.
func TestSchema_ValidatesLikeAPI(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	send := func(t *testing.T, spec string) error {
		t.Helper()
		u := &unstructured.Unstructured{Object: map[string]any{}}
		var tree map[string]any
		require.NoError(t, json.Unmarshal([]byte(spec), &tree))
		tree["image"] = "example.com/web:1"
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
		u.SetNamespace(production)
		u.SetName("web")
		u.Object["spec"] = tree
		return env.Client.Create(t.Context(), u, client.DryRunAll, client.FieldValidation("Strict"))
	}
	for name, bad := range runnertest.BadSpecs() {
		t.Run(name, func(t *testing.T) {
			err := send(t, bad.JSON)
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			assert.ErrorContains(t, err, bad.Message)
		})
	}
	for name, good := range runnertest.GoodSpecs() {
		assert.NoError(t, send(t, good), name)
	}
}

func TestSchema_SetsDefaults(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	err := env.Client.Create(t.Context(), &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: production, GenerateName: "bad-"}}, client.DryRunAll)
	assert.True(t, apierrors.IsInvalid(err), "an image has no default: %v", err)
	a := &v1alpha1.App{
		ObjectMeta: metav1.ObjectMeta{Namespace: production, GenerateName: "good-"},
		Spec: runnerapi.AppSpec{
			Image: "a", Ports: []runnerapi.Port{{Port: 80}}, Env: []runnerapi.EnvVar{{Name: "EMPTY"}},
			Probes: runnerapi.Probes{Readiness: &runnerapi.Probe{HTTP: &runnerapi.HTTPProbe{Port: 80}}},
		},
	}
	require.NoError(t, env.Client.Create(t.Context(), a, client.DryRunAll))
	assert.Equal(t, runnerapi.TypeDeployment, a.Spec.Type, "defaults are the schema's")
	assert.Equal(t, "TCP", a.Spec.Ports[0].Protocol)
	assert.Equal(t, "/", a.Spec.Probes.Readiness.HTTP.Path)
}

func TestEngine_ReportsMissingCRD(t *testing.T) {
	env := kubetest.ControlPlane(t)
	out, err := env.Cluster.Kubectl(t.Context(), "annotate", "crd", v1alpha1.CRDName, v1alpha1.SchemaVersionAnnotation+"=0", "--overwrite")
	require.NoError(t, err, string(out))
	t.Cleanup(func() {
		out, err := env.Cluster.Kubectl(context.Background(), "annotate", "crd", v1alpha1.CRDName, fmt.Sprintf("%s=%d", v1alpha1.SchemaVersionAnnotation, v1alpha1.SchemaVersion), "--overwrite")
		assert.NoError(t, err, string(out))
	})
	e, err := app.New(everywhere(env))
	require.NoError(t, err)
	var missing *app.MissingCRDError
	err = e.Run(t.Context())
	require.ErrorAs(t, err, &missing)
	assert.ErrorContains(t, err, fmt.Sprintf("has version 0, this agent needs %d: apply the agent's manifest", v1alpha1.SchemaVersion))
}

// kubectl changes something past the agent.
func kubectl(t *testing.T, env *kubetest.Env, args ...string) {
	t.Helper()
	out, err := env.Cluster.Kubectl(t.Context(), args...)
	require.NoError(t, err, string(out))
}
